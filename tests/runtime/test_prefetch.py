"""Reading ahead: real files, dropped from the page cache, and what is resident afterwards."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from llmsnap.core.lifecycle import State, Trigger
from llmsnap.core.messages import (
    Admit,
    Event,
    ModelChanged,
    ModelView,
    RequestArrived,
    RequestFinished,
)
from llmsnap.runtime.prefetch import Prefetch, ReadAhead, files_of, spare_bytes
from tests.helpers.pagecache import drop, resident_bytes, write_file
from tests.helpers.views import view_of
from tests.helpers.waiting import eventually
from tests.runtime.rig import OneAtATime, Rig, plan

MIB = 1024**2
GIB = 1024**3
SIZE = 64 * MIB + 1000
WHOLE = 64 * MIB + 4096


@pytest.fixture(scope="module")
def big_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of a bit over 64 MiB."""
    return write_file(tmp_path_factory.mktemp("files") / "model.gguf", SIZE)


@pytest.fixture
def cold(big_file: Path) -> Path:
    """The same, out of the page cache."""
    drop(big_file)
    if resident_bytes(big_file):
        pytest.skip(f"{big_file.parent} is in memory itself; set TMPDIR to a place on a disk")
    return big_file


class Gate:
    """Says that there is plenty of memory, as often as the test lets it."""

    def __init__(self) -> None:
        self.asked = 0
        self._passes = threading.Semaphore(0)

    def __call__(self) -> int:
        self.asked += 1
        self._passes.acquire()
        return 100 * GIB

    def open(self, times: int = 1000) -> None:
        """Let so many questions through."""
        self._passes.release(times)


def prefetch(path: Path, free_bytes: Callable[[], int] = lambda: 100 * GIB) -> Prefetch:
    """Reads `path`."""
    return Prefetch("b", ("server", "-m", str(path)), {}, free_bytes)


async def done(reads: Prefetch) -> None:
    """Wait until nothing is read any more."""
    await eventually(lambda: not reads.is_reading)


# ---- which files -------------------------------------------------------------------------------


def sparse(folder: Path, name: str, size: int = 1) -> Path:
    """A file that only has to be there."""
    path = folder / name
    path.touch()
    os.truncate(path, size)
    return path


@pytest.mark.parametrize(
    "options",
    [
        "-m {f}/m.gguf --mmproj {f}/p.gguf -md {f}/d.gguf --lora {f}/l.gguf",
        "--model {f}/m.gguf -mm {f}/p.gguf --model-draft {f}/d.gguf --lora={f}/l.gguf",
        "--model={f}/m.gguf --mmproj={f}/p.gguf --spec-draft-model {f}/d.gguf --lora {f}/l.gguf",
    ],
)
def test_what_llama_server_is_told_to_load(options: str, tmp_path: Path) -> None:
    """The model, what belongs to it, and nothing else, however large."""
    paths = [sparse(tmp_path, f"{name}.gguf") for name in "mpdl"]
    sparse(tmp_path, "large", GIB)
    argv = ("server", *options.format(f=tmp_path).split(), "--log-file", f"{tmp_path}/large")
    assert sorted(files_of(argv, {})) == sorted(paths)


def test_several_adapters_in_one_option(tmp_path: Path) -> None:
    """With commas between; a comma may be part of a name, too."""
    one, two, odd = (sparse(tmp_path, name) for name in ("1.gguf", "2.gguf", "a,b.gguf"))
    assert files_of(["server", "-m", f"{odd}", "--lora", f"{one},{two}"], {}) == (odd, one, two)


def test_a_model_that_the_environment_names(tmp_path: Path) -> None:
    """As llama-server takes all its options."""
    path = sparse(tmp_path, "m.gguf")
    assert files_of(["server"], {"LLAMA_ARG_MODEL": f"{path}"}) == (path,)
    direct = {"LLAMA_ARG_MODEL": f"{path}", "LLAMA_ARG_LOAD_MODE": "dio"}
    assert files_of(["server"], direct) == ()


def test_all_parts_of_a_split_model(tmp_path: Path) -> None:
    """Those that are there, each once, in order, whichever part is named."""
    parts = [sparse(tmp_path, f"m-0000{i}-of-00004.gguf") for i in (1, 2, 4)]
    sparse(tmp_path, "m-00001-of-00002.gguf")
    argv = ("server", "-m", str(parts[1]), "--lora", str(parts[0]))
    assert files_of(argv, {}) == tuple(parts)


def test_a_command_that_names_no_model_by_an_option_of_llama_server(tmp_path: Path) -> None:
    """Large files among its arguments are taken for it; not the program itself."""
    large = sparse(tmp_path, "weights.bin", 16 * MIB + 1)
    small = sparse(tmp_path, "settings.json", 16 * MIB)
    program = sparse(tmp_path, "program", GIB)
    for argv in (
        (f"{program}", f"{large}", f"{small}"),
        (f"{program}", f"--weights={large}", f"--settings={small}"),
        (f"{program}", "-m", "org/name", "--weights", f"{large}"),
    ):
        assert files_of(argv, {}) == (large,)


def test_what_is_no_file(tmp_path: Path) -> None:
    """A folder, a name on a hub, a text too long for a path, a pipe that would block."""
    os.mkfifo(tmp_path / "pipe")
    for value in (str(tmp_path), "org/name", "x" * 5000, "a\0b", "", str(tmp_path / "pipe")):
        assert files_of(["server", "-m", value], {}) == ()
    assert files_of(["server", "-m"], {}) == files_of([], {}) == ()


@pytest.mark.parametrize("options", ["-dio", "--direct-io", "-lm dio", "--load-mode dio"])
def test_what_is_read_past_the_page_cache_is_left_alone(options: str, tmp_path: Path) -> None:
    """Direct I/O finds nothing there."""
    path = sparse(tmp_path, "m.gguf")
    assert files_of(["server", "-m", str(path), *options.split()], {}) == ()
    assert files_of(["server", "-m", str(path), "--load-mode", "mmap"], {}) == (path,)


# ---- reading -----------------------------------------------------------------------------------


async def test_the_file_is_in_the_page_cache_afterwards(
    cold: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """All of it; one line says how much came from the disk, and one of nothing isn't written."""
    caplog.set_level(logging.DEBUG, "llmsnap")
    for _ in range(2):
        reads = prefetch(cold)
        reads.begin()
        await done(reads)
    assert resident_bytes(cold) == WHOLE
    (record,) = caplog.records
    assert record.getMessage().startswith("model b: read 64 MiB ahead of its start in ")


async def test_it_ends_when_it_is_called_off(cold: Path) -> None:
    """With the window that it is at; it can begin again."""
    gate = Gate()
    reads = prefetch(cold, gate)
    reads.begin()
    reads.begin()
    gate.open(1)
    await eventually(lambda: gate.asked == 2)
    reads.cancel()
    gate.open()
    await done(reads)
    assert gate.asked == 2
    assert 16 * MIB <= resident_bytes(cold) < WHOLE - 16 * MIB  # the kernel reads ahead itself

    reads.begin()
    await done(reads)
    assert resident_bytes(cold) == WHOLE


async def test_it_is_not_done_twice(cold: Path) -> None:
    """What has been read isn't read again until it is called off."""
    gate = Gate()
    gate.open()
    reads = prefetch(cold, gate)
    reads.begin()
    await done(reads)
    asked = gate.asked
    reads.begin()
    assert not reads.is_reading
    assert gate.asked == asked
    reads.cancel()
    reads.cancel()


@pytest.mark.parametrize(
    ("free", "spare"),
    [(0, 0), (GIB, 0), (GIB + 5, 5), (10 * GIB, 9 * GIB), (100 * GIB, 90 * GIB)],
)
def test_how_much_may_be_filled(free: int, spare: int) -> None:
    """10 % stay free, but no less than 1 GiB."""
    assert spare_bytes(free) == spare


async def test_no_more_is_read_than_there_is_room_for(cold: Path) -> None:
    """Nothing at all where memory is short; else as many windows as fit."""
    for free, least, most in ((GIB, 0, 0), (GIB + 20 * MIB, 16 * MIB, 40 * MIB)):
        reads = prefetch(cold, lambda free=free: free)  # type: ignore[misc]
        reads.begin()
        await done(reads)
        assert least <= resident_bytes(cold) <= most


async def test_it_ends_when_memory_becomes_short(cold: Path) -> None:
    """Somebody else took it in the meantime."""
    figures = iter((100 * GIB, GIB))
    reads = prefetch(cold, lambda: next(figures))
    reads.begin()
    await done(reads)
    assert resident_bytes(cold) <= 40 * MIB
    assert next(figures, None) is None


async def test_errors_are_nobodys_concern(cold: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A figure that can't be read, or a thread that can't be had, is a line for debugging."""
    caplog.set_level(logging.DEBUG, "llmsnap")

    def unknown() -> int:
        raise OSError("no /proc")

    reads = prefetch(cold, unknown)
    reads.begin()
    await done(reads)
    assert caplog.messages == ["model b: reading ahead failed: no /proc"]
    assert caplog.records[0].levelno == logging.DEBUG


async def test_no_thread_is_no_error(cold: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine is short of everything; the request waits as it would have."""

    def fail(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    reads = prefetch(cold)
    monkeypatch.setattr(threading.Thread, "start", fail)
    reads.begin()
    assert not reads.is_reading
    reads.cancel()


# ---- for whom ----------------------------------------------------------------------------------


class Recorded(Prefetch):
    """Writes down what it is told."""

    def __init__(self, model: str, told: list[str]) -> None:
        super().__init__(model, (), {}, lambda: 0)
        self._name, self._told = model, told

    def begin(self) -> None:
        self._told.append(f"begin {self._name}")

    def cancel(self) -> None:
        self._told.append(f"cancel {self._name}")


class Scene:
    """Models as the test shows them, and what is read for them."""

    def __init__(self) -> None:
        self.views = {model: view_of(model) for model in "abc"}
        self.looks = 0
        self.told: list[str] = []
        self.ahead = ReadAhead({m: Recorded(m, self.told) for m in "bc"}, self._look)

    def _look(self, model: str) -> ModelView:
        self.looks += 1
        return self.views[model]

    def show(self, model: str, state: State, waiting: int, event: Event) -> list[str]:
        """Change one model, tell of `event`, and return what was ordered."""
        self.views[model] = replace(self.views[model], state=state, waiting=waiting)
        self.told.clear()
        self.ahead.follow(event, ())
        return list(self.told)


def test_who_waits_for_room_is_read_ahead_until_it_starts() -> None:
    """Once; then nothing is looked at any more."""
    scene = Scene()
    assert scene.show("b", State.STOPPED, 1, RequestArrived(1, "b")) == ["begin b"]
    assert scene.show("b", State.STOPPED, 2, RequestArrived(2, "b")) == []
    gone = ModelChanged("a", 1, Trigger.EXITED)
    assert scene.show("b", State.STARTING, 2, gone) == ["cancel b"]
    looks = scene.looks
    scene.ahead.follow(RequestFinished(7), ())
    assert scene.looks == looks


def test_reading_is_called_off_when_the_last_client_has_left() -> None:
    """Not before."""
    scene = Scene()
    scene.show("b", State.FAILED, 2, RequestArrived(1, "b"))
    assert scene.show("b", State.FAILED, 1, RequestFinished(1)) == []
    assert scene.show("b", State.FAILED, 0, RequestFinished(2)) == ["cancel b"]
    assert scene.show("b", State.STOPPED, 1, RequestArrived(3, "b")) == ["begin b"]


def test_the_one_that_is_wanted_next_comes_first() -> None:
    """The other one's turn comes when that starts."""
    scene = Scene()
    scene.show("b", State.STOPPED, 1, RequestArrived(1, "b"))
    assert scene.show("c", State.STOPPED, 1, RequestArrived(2, "c")) == []
    gone = ModelChanged("a", 1, Trigger.EXITED)
    assert scene.show("b", State.STARTING, 1, gone) == ["cancel b", "begin c"]
    scene.told.clear()
    scene.ahead.close()
    assert scene.told == ["cancel c"]


def test_who_is_wanted_again_while_it_ends_is_read_ahead_afterwards() -> None:
    """Its process is on the way out when the request comes, and another one is next."""
    scene = Scene()
    assert scene.show("b", State.STOPPING, 1, RequestArrived(1, "b")) == []
    gone = ModelChanged("b", 1, Trigger.EXITED)
    assert scene.show("b", State.STOPPED, 1, gone) == ["begin b"]


def test_nothing_is_read_for_a_model_without_a_prefetch() -> None:
    """As for all when `memory.prefetch` is off; it stands in nobody's way."""
    scene = Scene()
    assert scene.show("a", State.STOPPED, 1, RequestArrived(1, "a")) == []
    assert scene.show("b", State.STOPPED, 1, RequestArrived(2, "b")) == ["begin b"]


def test_a_request_for_a_model_that_is_up_is_not_looked_at() -> None:
    """The hot path: it is admitted at once, and it ends."""
    scene = Scene()
    scene.ahead.follow(RequestArrived(1, "b"), [Admit(1)])
    scene.ahead.follow(RequestFinished(1), ())
    assert scene.looks == 0


# ---- in the supervisor -------------------------------------------------------------------------


def swapping(rig: Rig, reads: Prefetch) -> None:
    """Models a and b, one of them at a time."""
    rig.supervise(plan("a"), plan("b"), constraints=OneAtATime(), prefetches={"b": reads})


async def test_the_file_is_there_before_the_victim_is_done(rig: Rig, cold: Path) -> None:
    """b waits behind a, which is answering; when a is done, b starts."""
    swapping(rig, prefetch(cold))
    supervisor = rig.supervisor
    assert supervisor is not None
    async with supervisor.lease("a"):
        loading = asyncio.ensure_future(supervisor.load("b"))
        await eventually(lambda: resident_bytes(cold) == WHOLE)
        assert supervisor.view("a").in_flight == 1
        assert supervisor.view("b").state is State.STOPPED
    await loading


async def test_reading_stops_when_the_client_leaves(rig: Rig, cold: Path) -> None:
    """a goes on answering; the rest of b's file stays where it is."""
    gate = Gate()
    reads = prefetch(cold, gate)
    swapping(rig, reads)
    supervisor = rig.supervisor
    assert supervisor is not None
    async with supervisor.lease("a"):
        loading = asyncio.ensure_future(supervisor.load("b"))
        gate.open(1)
        await eventually(lambda: gate.asked == 2)
        loading.cancel()
        await eventually(lambda: supervisor.view("b").waiting == 0)
        gate.open()
        await done(reads)
        assert gate.asked == 2
        assert resident_bytes(cold) < WHOLE


async def test_reading_stops_when_the_model_starts(rig: Rig, cold: Path) -> None:
    """Its own process reads the file from then on."""
    gate = Gate()
    reads = prefetch(cold, gate)
    swapping(rig, reads)
    supervisor = rig.supervisor
    assert supervisor is not None
    async with supervisor.lease("a"):
        loading = asyncio.ensure_future(supervisor.load("b"))
        gate.open(1)
        await eventually(lambda: gate.asked == 2)
    await loading
    gate.open()
    await done(reads)
    assert gate.asked == 2
