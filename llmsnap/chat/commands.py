"""The lines that begin with a slash."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from enum import Enum, auto
from pathlib import Path
from typing import Final

from llmsnap.chat.desk import Desk
from llmsnap.chat.models import askable, pick
from llmsnap.chat.terminal import Terminal
from llmsnap.client.proxy import Client
from llmsnap.errors import LlmsnapError


class Then(Enum):
    """What follows a command."""

    NEXT_LINE = auto()
    ANSWER = auto()
    LEAVE = auto()


@dataclass(frozen=True)
class Floor:
    """What commands work on."""

    client: Client
    desk: Desk
    terminal: Terminal
    now: Callable[[], datetime]


def obey(floor: Floor, line: str) -> Then:
    """Do what the line says. Raises LlmsnapError."""
    word, _, rest = line.removeprefix("/").partition(" ")
    for command in _COMMANDS:
        if word in command.words:
            return command.run(floor, rest.strip())
    raise LlmsnapError(f"no command is called {'/' + word!r}; /help shows those that there are")


def _model(floor: Floor, name: str) -> Then:
    conversation = floor.desk.conversation
    if name:
        conversation.model = pick(floor.client, name)
        floor.terminal.note(f"{conversation.model} goes on with the conversation")
    else:
        names = ", ".join(askable(floor.client))
        floor.terminal.note(f"{conversation.model} answers; there are: {names}")
    return Then.NEXT_LINE


def _retry(floor: Floor, _: str) -> Then:
    if floor.desk.conversation.retry():
        return Then.ANSWER
    raise LlmsnapError("nothing was asked yet")


def _file(floor: Floor, path: str) -> Then:
    if not path:
        raise LlmsnapError("which file? /file PATH")
    floor.desk.enclose(Path(path))
    floor.terminal.note(f"{path} goes along with the next question")
    return Then.NEXT_LINE


def _save(floor: Floor, name: str) -> Then:
    floor.desk.keep_as(name or floor.desk.name)
    floor.terminal.note(f"kept as {floor.desk.name}")
    return Then.NEXT_LINE


def _load(floor: Floor, name: str) -> Then:
    if not name:
        names = ", ".join(floor.desk.archive.names()[:20]) or "none yet"
        floor.terminal.note(f"conversations, the last one first: {names}")
        return Then.NEXT_LINE
    floor.desk.take(name)
    show_last(floor)
    return Then.NEXT_LINE


def _new(floor: Floor, _: str) -> Then:
    floor.desk.clear(floor.desk.archive.new_name(floor.now()))
    floor.terminal.note("a new conversation")
    return Then.NEXT_LINE


def _help(floor: Floor, _: str) -> Then:
    width = max(len(command.usage) for command in _COMMANDS)
    lines = [f"{command.usage:{width}}  {command.meaning}" for command in _COMMANDS]
    lines.append(f"{chr(34) * 3:{width}}  begins and ends a question of several lines")
    floor.terminal.note("\n".join(lines))
    return Then.NEXT_LINE


def _leave(_: Floor, __: str) -> Then:
    return Then.LEAVE


def show_last(floor: Floor) -> None:
    """Remind of where the conversation stopped."""
    conversation = floor.desk.conversation
    count = sum(message.role == "user" for message in conversation.messages)
    floor.terminal.note(
        f"{floor.desk.name}: {count} question{'' if count == 1 else 's'}, {conversation.model}"
    )
    if conversation.messages and conversation.messages[-1].role == "assistant":
        floor.terminal.note(conversation.messages[-1].content)


@dataclass(frozen=True)
class _Command:
    words: tuple[str, ...]
    usage: str
    meaning: str
    run: Callable[[Floor, str], Then]


_COMMANDS: Final = (
    _Command(("model",), "/model NAME", "has another model go on; without NAME shows all", _model),
    _Command(("retry",), "/retry", "asks the last question again", _retry),
    _Command(("file",), "/file PATH", "has a text file go along with the next question", _file),
    _Command(("save",), "/save NAME", "keeps the conversation under a name", _save),
    _Command(("load",), "/load NAME", "goes on with a kept one; without NAME lists them", _load),
    _Command(("new",), "/new", "begins a new conversation", _new),
    _Command(("help", "?"), "/help", "shows this", _help),
    _Command(("quit", "exit", "bye"), "/quit", "leaves, as Ctrl-D does", _leave),
)
