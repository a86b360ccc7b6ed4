"""`llmsnap chat`: talk to the models of a running proxy, and see what each answer took."""

from __future__ import annotations

import os
import sys
from datetime import datetime
from pathlib import Path

import click

from llmsnap.chat.archive import Archive
from llmsnap.chat.commands import Floor, show_last
from llmsnap.chat.conversation import Conversation
from llmsnap.chat.desk import Desk
from llmsnap.chat.models import pick
from llmsnap.chat.room import Room
from llmsnap.chat.terminal import Terminal
from llmsnap.cli.client import talks_to_proxy
from llmsnap.cli.places import keeps_state
from llmsnap.client.proxy import Client
from llmsnap.errors import LlmsnapError
from llmsnap.runtime.runfile import state_folder

_INTERRUPTED = 130


@click.command()
@click.argument("model", required=False)
@click.option("--system", metavar="TEXT", help="What the model is told about its part.")
@click.option(
    "--file",
    "files",
    type=click.Path(path_type=Path, dir_okay=False),
    multiple=True,
    help="A text that goes along with the first question; may be given more than once.",
)
@click.option("--continue", "goes_on", is_flag=True, help="Go on with the last conversation.")
@click.option("--load", metavar="NAME", help="Go on with the conversation of that name.")
@keeps_state
@talks_to_proxy
def chat(
    model: str | None,
    system: str | None,
    files: tuple[Path, ...],
    goes_on: bool,
    load: str | None,
    state_dir: Path | None,
    url: str,
    key: str,
) -> None:
    """Talk to MODEL; under each answer stands what it took.

    What is piped in is asked as it is, and the answer alone goes to standard output.
    """
    client, terminal = Client(url, key), Terminal()
    archive = Archive(state_folder(os.environ, state_dir) / "chats")
    name = load or (_last(archive) if goes_on else "")
    desk = _resumed(archive, name, model, client) if name else _fresh(archive, model, client)
    if system is not None:
        desk.conversation.instruct(system)
    for path in files:
        desk.enclose(path)
    floor = Floor(client, desk, terminal, _now)
    if terminal.is_interactive:
        if name:
            show_last(floor)
        Room(floor).run()
    else:
        _answer_once(floor, keeps=bool(name))


def _fresh(archive: Archive, model: str | None, client: Client) -> Desk:
    return Desk(archive, Conversation.begun(pick(client, model)), archive.new_name(_now()))


def _resumed(archive: Archive, name: str, model: str | None, client: Client) -> Desk:
    conversation = archive.load(name)
    conversation.model = pick(client, model or conversation.model)
    return Desk(archive, conversation, name)


def _last(archive: Archive) -> str:
    names = archive.names()
    if not names:
        raise LlmsnapError("there is no conversation yet to go on with; leave out --continue")
    return names[0]


def _answer_once(floor: Floor, *, keeps: bool) -> None:
    """Ask what is piped in. What nobody went on with isn't kept: scripts ask often."""
    floor.desk.ask(floor.terminal.everything())
    if not floor.desk.conversation.open_question:
        raise LlmsnapError('nothing was piped in; `echo hi | llmsnap chat MODEL` asks "hi"')
    if not Room(floor, keeps=keeps).answer():
        sys.exit(_INTERRUPTED)


def _now() -> datetime:
    return datetime.now().astimezone()
