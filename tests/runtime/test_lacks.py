"""What a model lacks is found out before anybody leaves for it, where it has no process."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from llmsnap.core.messages import Event, LackChanged
from llmsnap.runtime import lacks
from llmsnap.runtime.lacks import Looks, lack_of, lacks_of
from llmsnap.runtime.plan import Endpoint, Plan
from llmsnap.runtime.tasks import Background
from tests.helpers.waiting import eventually


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


class Watched:
    """One model that lacks its file, the events that were posted, and what was looked for anew."""

    def __init__(self, folder: Path, background: Background) -> None:
        self.file = folder / "model.gguf"
        self.runner = Runner(plan(server(folder), "-m", self.file))
        self.events: list[Event] = []
        self.found: list[str] = []
        self.looks = Looks({"a": self.runner}.get, background, {})
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
async def watched(tmp_path: Path) -> AsyncIterator[Watched]:
    """A model whose file isn't there."""
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
    file.touch()
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
    watched.file.touch()
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
    monkeypatch.setattr(lacks, "lack_of", lambda _: go.wait(20))
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
    watched.file.touch()
    await eventually(lambda: watched.told()[-1:] == [None])


async def test_the_log_says_it_once(watched: Watched, caplog: pytest.LogCaptureFixture) -> None:
    """Until something else is lacking."""
    for _ in range(3):
        await watched.look()
    assert caplog.text.count("isn't there") == 1
