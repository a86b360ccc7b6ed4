"""What a model lacks is found out before anybody leaves for it, where it has no process."""

from __future__ import annotations

import asyncio
import os
import socket
import struct
import threading
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from llmsnap.core.lifecycle import State
from llmsnap.core.messages import Event, LackChanged
from llmsnap.runtime import lacks
from llmsnap.runtime.lacks import Looks, lack_of, lacks_of
from llmsnap.runtime.plan import Endpoint, Plan
from llmsnap.runtime.ports import taken
from llmsnap.runtime.tasks import Background
from tests.helpers.views import view_of
from tests.helpers.waiting import eventually

HOLLOW = b"GGUF" + struct.pack("<IQQ", 3, 0, 0)
"""A model file without tensors and keys, and whole."""


def server(folder: Path, text: bytes = b"\x7fELF", name: str = "llama-server") -> Path:
    """A program that could be run."""
    path = folder / name
    path.write_bytes(text)
    path.chmod(0o755)
    return path


def plan(*argv: str | Path, model: str = "a") -> Plan:
    """How a model is to be run."""
    words = tuple(map(str, argv))
    return Plan(
        model=model, argv=words, env=dict(os.environ), endpoint=Endpoint(host="127.0.0.1", port=1)
    )


@dataclass
class Runner:
    """What runs a model."""

    plan: Plan
    alive: bool = False

    @property
    def place(self) -> Endpoint:
        """Where it listens."""
        return self.plan.endpoint


class Watched:
    """One model that lacks its file, the events that were posted, and what was looked for anew."""

    def __init__(self, folder: Path, background: Background) -> None:
        self.file = folder / "model.gguf"
        self.runner = Runner(plan(server(folder), "-m", self.file))
        self.events: list[Event] = []
        self.found: list[str] = []
        self.runners: dict[str, Runner] = {"a": self.runner}
        self.looks = Looks(self.runners, background, {})
        self.looks.report_to(self.events.append, self.take)

    async def take(self, model: str) -> None:
        """Note that its need is looked for before the scheduler hears that it can start."""
        self.found.append(f"{model} after {len(self.events)}")

    async def look(self) -> None:
        """As a request does."""
        if (look := self.looks.before("a")) is not None:
            await look

    def told(self) -> list[str | None]:
        """The lacks that were posted."""
        lacks = [event.lack for event in self.events if isinstance(event, LackChanged)]
        return [None if lack is None else str(lack) for lack in lacks]


@pytest.fixture
async def watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Watched]:
    """A model whose file isn't there, and a disk that has all the time it needs to say so."""
    monkeypatch.setattr(lacks, "_PATIENCE_S", 60.0)
    background = Background()
    yield Watched(tmp_path, background)
    await background.aclose()


def test_the_lack_names_the_path(tmp_path: Path) -> None:
    """Of the file and of the program; nothing is said when both are there."""
    program, file = server(tmp_path), tmp_path / "m.gguf"
    assert str(lack_of(plan(program, "-m", file))) == (
        f"model 'a' can't start: its file '{file}' isn't there; fetch it, or correct its path in "
        "`cmd`"
    )
    file.write_bytes(HOLLOW[:-1])
    assert str(lack_of(plan(program, "-m", file))) == (
        f"model 'a' can't start: its file '{file}' is cut off within its header; fetch the file "
        "again"
    )
    file.write_bytes(HOLLOW)
    assert lack_of(plan(program, "-m", file)) is None
    program.unlink()
    assert f"'{program}' doesn't exist" in str(lack_of(plan(program, "-m", file)))


def test_behind_a_wrapper_a_path_may_mean_something_else(tmp_path: Path) -> None:
    """In containers, scripts and other servers nothing is looked for."""
    script = server(tmp_path, b"#!/usr/bin/env bash\ndocker run", "llama-server-docker")
    python = server(tmp_path, b"#!/opt/python3\n", "llama-server-py")
    other = server(tmp_path, name="vllm")
    assert lack_of(plan(script, "-m", "/none.gguf")) is None
    assert lack_of(plan(other, "-m", "/none.gguf")) is None
    assert lack_of(plan("env", python, "-m", "/none.gguf")) is None
    assert lack_of(plan(python, "-m", "/none.gguf")) is not None


async def test_a_file_that_comes_is_seen_by_the_next_request(watched: Watched) -> None:
    """What the model needs is taken in before the scheduler may start it."""
    await watched.look()
    await watched.look()
    watched.file.write_bytes(HOLLOW)
    await watched.look()
    await watched.look()
    assert [lack is None for lack in watched.told()] == [False, False, True]
    assert watched.found == ["a after 2"]


async def test_what_has_a_process_costs_no_look(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is awaited for it, and the disk is left alone."""
    monkeypatch.setattr(lacks, "lack_of", pytest.fail)
    watched.runner.alive = True
    assert watched.looks.before("a") is None
    assert watched.looks.before("of a peer") is None


async def test_a_crowd_shares_one_look(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    """And who leaves meanwhile doesn't take it from the others."""
    calls: list[str] = []
    go = threading.Event()

    def look(a_plan: Plan) -> None:
        calls.append(a_plan.model)
        assert go.wait(20)

    monkeypatch.setattr(lacks, "lack_of", look)
    crowd = [asyncio.ensure_future(watched.look()) for _ in range(500)]
    await eventually(lambda: bool(calls))
    crowd[0].cancel()
    go.set()
    await asyncio.gather(*crowd[1:])
    assert calls == ["a"]


async def test_a_disk_that_hangs_holds_nobody_for_long(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it doesn't say is as it was."""
    go = threading.Event()
    monkeypatch.setattr(lacks, "_PATIENCE_S", 0.05)
    monkeypatch.setattr(lacks, "lack_of", lambda _, **__: go.wait(20))
    try:
        await watched.look()
        assert await lacks_of([watched.runner.plan]) == {}
    finally:
        go.set()
    assert watched.events == []


async def test_what_is_lacking_is_looked_for_while_nobody_asks(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that a pinned model loads by itself; afterwards nothing runs any more."""
    monkeypatch.setattr(lacks, "_AGAIN_S", 0.01)
    watched.looks.take(await lacks_of([watched.runner.plan]))
    watched.file.write_bytes(HOLLOW)
    await eventually(lambda: watched.told()[-1:] == [None])


async def test_the_log_says_it_once(watched: Watched, caplog: pytest.LogCaptureFixture) -> None:
    """Until something else is lacking."""
    for _ in range(3):
        await watched.look()
    assert caplog.text.count("isn't there") == 1


@dataclass
class Squatter:
    """Something that listens where `a` is to listen, which lacks nothing else."""

    watched: Watched
    listener: socket.socket

    def has_it(self, host: str = "localhost") -> Plan:
        """Have the model's server be at `host`, and at that port."""
        port = self.listener.getsockname()[1]
        runner = self.watched.runner
        runner.plan = replace(runner.plan, endpoint=Endpoint(host=host, port=port))
        return runner.plan


@pytest.fixture
def squatter(watched: Watched) -> Iterator[Squatter]:
    """A stranger to llmsnap; that this process plays it makes no difference."""
    watched.file.write_bytes(HOLLOW)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield Squatter(watched, listener)


async def test_a_port_that_a_stranger_has(watched: Watched, squatter: Squatter) -> None:
    """Is told before anybody leaves, with who it is; when it is free, the model may start."""
    squatter.has_it()
    await watched.look()
    squatter.listener.close()
    await watched.look()
    (lack, *rest) = watched.told()
    assert lack is not None
    assert f"is taken by pid {os.getpid()} (" in lack
    assert rest == [None]


async def test_a_port_of_one_of_ours_is_no_strangers(watched: Watched, squatter: Squatter) -> None:
    """Models may share one, if they are never up together: the other one makes room for this."""
    watched.runners["b"] = Runner(squatter.has_it(), alive=True)
    await watched.look()
    assert watched.told() == []


async def test_whoever_has_begun_meanwhile_is_no_stranger(
    watched: Watched, squatter: Squatter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The model's own process, for somebody who came earlier."""
    squatter.has_it()

    async def slow(host: str, port: int) -> str | None:
        found = await taken(host, port)
        watched.runner.alive = True
        return found

    monkeypatch.setattr(lacks, "taken", slow)
    await watched.look()
    assert watched.told() == []


@pytest.mark.parametrize("host", ["gpu-box.lan", "192.0.2.7", "0.0.0.0"])
async def test_ports_elsewhere_are_left_to_the_start(
    watched: Watched, squatter: Squatter, monkeypatch: pytest.MonkeyPatch, host: str
) -> None:
    """Whose they are can't be said for certain, and names may take their time."""
    squatter.has_it(host)
    monkeypatch.setattr(lacks, "taken", pytest.fail)
    await watched.look()
    assert watched.told() == []


async def test_a_failed_start_is_looked_into(watched: Watched, squatter: Squatter) -> None:
    """Nobody asks for a pinned model, which would be tried again and again."""
    squatter.has_it()
    watched.looks.follow(view_of("a", state=State.READY), State.STARTING)
    watched.looks.follow(view_of("a", state=State.FAILED), State.STARTING)
    await eventually(lambda: len(watched.told()) == 1)
