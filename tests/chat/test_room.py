"""A question, its answer, and a Ctrl-C that comes at any moment between."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

import pytest

from llmsnap.chat import room
from llmsnap.chat.archive import Archive
from llmsnap.chat.commands import Floor
from llmsnap.chat.conversation import Conversation, Message
from llmsnap.chat.desk import Desk
from llmsnap.chat.terminal import Terminal
from llmsnap.client.proxy import Client, NoProxy
from llmsnap.client.stream import Figures, Piece


class Impatient(Terminal):
    """Whose person types Ctrl-C when `at` is shown."""

    def __init__(self, at: str) -> None:
        super().__init__()
        self.is_interactive = False
        self._at = at

    def write(self, text: str, *, is_thought: bool = False) -> None:
        """Show it, or be interrupted."""
        if text == self._at:
            raise KeyboardInterrupt
        super().write(text, is_thought=is_thought)


class Pieces:
    """An answer of two pieces, as `Stream` gives it."""

    figures = Figures(model="a", total_s=1, phases_s={})

    def __iter__(self) -> Iterator[Piece]:
        """Yield them."""
        yield Piece("one ")
        yield Piece("two")


@contextmanager
def two_pieces(*_: object) -> Iterator[Pieces]:
    """Lend the answer."""
    yield Pieces()


@pytest.mark.parametrize("at", ["one ", "two", "\n"])
def test_what_ctrl_c_leaves_of_an_answer_is_part_of_the_conversation(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, at: str
) -> None:
    """Also the piece that was being shown, and also when the answer was being put away."""
    monkeypatch.setattr(room, "ask", two_pieces)
    desk = Desk(Archive(tmp_path), Conversation("a"), "mine")
    desk.ask("hi")
    talk = room.Room(Floor(Client("http://localhost"), desk, Impatient(at), datetime.now))

    if at == "\n":
        with pytest.raises(KeyboardInterrupt):
            talk.answer()
    else:
        assert talk.answer() is False

    came = "one " if at == "one " else "one two"
    assert desk.conversation.messages == [Message("user", "hi"), Message("assistant", came)]


class Cut(Pieces):
    """An answer that breaks off after its first piece."""

    def __iter__(self) -> Iterator[Piece]:
        """Yield it, and no more."""
        yield Piece("one ")
        raise NoProxy("the answer broke off")


def test_an_answer_that_breaks_off_is_kept_as_far_as_it_came(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """On disk too: the server that went away may take the terminal along."""

    @contextmanager
    def cut(*_: object) -> Iterator[Cut]:
        yield Cut()

    monkeypatch.setattr(room, "ask", cut)
    desk = Desk(Archive(tmp_path), Conversation("a"), "mine")
    desk.ask("hi")
    talk = room.Room(Floor(Client("http://localhost"), desk, Impatient(""), datetime.now))

    with pytest.raises(NoProxy):
        talk.answer()

    assert Archive(tmp_path).load("mine").messages[-1] == Message("assistant", "one ")
