"""Conversations with a server that remembers what it was asked."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from llmsnap.bench.servers import Answer, Server
from llmsnap.bench.talks import Talks
from llmsnap.client.proxy import Client
from llmsnap.client.stream import Figures
from llmsnap.telemetry.tokens import Tokens


@dataclass(frozen=True)
class Listener(Server):
    """It has a token every four characters, and says as much as it was told to."""

    asked: list[str] = field(default_factory=list)
    """All questions."""

    def complete(self, model: str, prompt: str, tokens: int) -> Answer:
        """Remember the question."""
        self.asked.append(prompt)
        said = Tokens(computed=len(prompt) // 4, cached=0)
        return Answer("!", Figures(model=model, total_s=1.0, phases_s={}, tokens=said))


@pytest.fixture
def server() -> Listener:
    """One."""
    return Listener("s", Client("http://127.0.0.1:1"))


@pytest.fixture
def talks(server: Listener) -> Talks:
    """With it."""
    return Talks(server, "seed", 4)


def test_a_text_has_the_length_that_was_asked_for(server: Listener, talks: Talks) -> None:
    """In the model's own tokens, which one trial tells."""
    for _ in range(2):
        assert len(talks.begin("m", 500).text) // 4 == pytest.approx(500, rel=0.02)
    assert len(server.asked) == 1


def test_what_goes_on_was_asked_once(server: Listener, talks: Talks) -> None:
    """So that it is as long each time; the answer is part of it."""
    measured = []
    for _ in range(3):
        talk = talks.resume("m", 100)
        talks.ask("m", talk)
        before, last = server.asked[-2:]
        assert last.startswith(f"{before}!")
        measured.append(len(last))

    assert max(measured) - min(measured) < 30


def test_what_was_begun_just_now_goes_on(server: Listener, talks: Talks) -> None:
    """It needn't be asked again before, unless the model has heard something else since."""
    talk = talks.begin("m", 100)
    talks.ask("m", talk)
    assert talks.resume("m", 100) is talk

    talks.disturb("m")
    assert talks.resume("m", 100) is not talk
