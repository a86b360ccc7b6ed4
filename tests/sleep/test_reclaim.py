"""Cgroups that may be reclaimed as a whole."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from llmsnap.memory.host import Host
from llmsnap.sleep import madvise, pager, reclaim
from llmsnap.sleep.offload import Deadline
from tests.sleep.holder import holding

MIB = 2**20


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """Model processes 70 and 71 in a cgroup of their own, 80 elsewhere."""
    scope = tmp_path / "cgroup" / "user.slice" / "run-1.scope"
    for pid, path in {70: "run-1.scope", 71: "run-1.scope", 80: "app.slice"}.items():
        folder = tmp_path / "proc" / str(pid)
        folder.mkdir(parents=True)
        (folder / "cgroup").write_text(f"1:name=systemd:/\n0::/user.slice/{path}\n")
    (scope / "inner").mkdir(parents=True)
    (scope / "cgroup.procs").write_text("70\n")
    (scope / "inner" / "cgroup.procs").write_text("71\n")
    (scope / "memory.reclaim").write_text("")
    (scope / "memory.current").write_text("0\n")
    return tmp_path


def own(machine: Path, *pids: int) -> Path | None:
    """The cgroup that is only for these."""
    return reclaim.own_cgroup(pids, root=machine / "cgroup", proc=machine / "proc")


def test_a_cgroup_of_its_own(machine: Path) -> None:
    """All of the model's processes are in it or below it, and nobody else."""
    assert own(machine, 70, 71) == machine / "cgroup/user.slice/run-1.scope"


def test_where_both_versions_are_mounted(machine: Path) -> None:
    """Version 2 has a place of its own then."""
    (machine / "cgroup").rename(machine / "unified")
    (machine / "cgroup").mkdir()
    (machine / "unified").rename(machine / "cgroup" / "unified")
    assert own(machine, 70, 71) == machine / "cgroup/unified/user.slice/run-1.scope"


def test_a_cgroup_with_strangers_is_left_alone(machine: Path) -> None:
    """They would be paged out as well."""
    assert own(machine, 70) is None


def test_processes_in_several_cgroups(machine: Path) -> None:
    """None of these is the model's."""
    assert own(machine, 70, 71, 80) is None


def test_a_cgroup_without_memory_controller(machine: Path) -> None:
    """There is nothing to write to."""
    (machine / "cgroup/user.slice/run-1.scope/memory.reclaim").unlink()
    assert own(machine, 70, 71) is None


def test_a_process_that_is_gone(machine: Path) -> None:
    """It is in no cgroup."""
    assert own(machine, 99) is None


def test_the_topmost_cgroup_is_nobodys_own(machine: Path) -> None:
    """It holds the whole machine, or the whole container."""
    (machine / "proc/70/cgroup").write_text("0::/\n")
    (machine / "proc/71/cgroup").write_text("0::/\n")
    assert own(machine, 70, 71) is None


class Cgroup:
    """Stands in for a cgroup's files: holds memory, and gives some of it up when asked."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, held: int, stays: int) -> None:
        self.asked: list[int] = []
        self._held, self._stays = held, stays
        monkeypatch.setattr(Path, "read_text", lambda _: f"{self._held}\n")
        monkeypatch.setattr(Path, "write_text", lambda _, text: self._write(text))

    def _write(self, text: str) -> None:
        self.asked.append(int(text))
        given = min(int(text), self._held - self._stays)
        self._held -= given
        if given < int(text):
            raise OSError(errno.EAGAIN, "Resource temporarily unavailable")


def test_reclaim_asks_until_the_kernel_finds_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """In steps, so that a deadline can end it; 10 MiB can't be paged out."""
    cgroup = Cgroup(monkeypatch, held=600 * MIB, stays=10 * MIB)
    reclaim.reclaim(Path("x"), Deadline(5))
    assert cgroup.asked[:3] == [256 * MIB, 256 * MIB, 88 * MIB]
    assert cgroup.asked[3:] == [10 * MIB, 10 * MIB]


def test_reclaim_keeps_to_its_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    """It looks before each step."""
    cgroup = Cgroup(monkeypatch, held=600 * MIB, stays=0)
    deadline = Deadline(60)
    deadline.call_off()
    with pytest.raises(TimeoutError):
        reclaim.reclaim(Path("x"), deadline)
    assert cgroup.asked == []


@pytest.fixture
def cgroup() -> Iterator[Path]:
    """A real cgroup of version 2, with nobody in it."""
    folder = Path(f"/sys/fs/cgroup/llmsnap-test-{os.getpid()}")
    try:
        folder.mkdir()
    except OSError as error:
        pytest.skip(f"no cgroup for this test: {error}")
    try:
        if not (folder / "memory.reclaim").exists():
            pytest.skip("no cgroup of version 2 with a memory controller")
        yield folder
    finally:
        folder.rmdir()


async def test_a_real_cgroup(swap: None, cgroup: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its memory goes to swap without process_madvise, and comes back without it."""
    monkeypatch.setattr(madvise, "fault", lambda *_: "not permitted")
    monkeypatch.setattr(madvise, "advise", _not_permitted)
    async with holding(64, cgroup=cgroup) as holder:
        before, memories = await holder.checksum(), pager.in_memory([holder.pid])
        held = pager.page_out(Host(), [holder.pid], Deadline(20))
        assert held.anonymous_bytes < 8 * MIB
        pager.fetch(memories, Deadline(20), mapped=False)
        assert holder.usage.anonymous_bytes >= 64 * MIB
        assert await holder.checksum() == before


def _not_permitted(*_: object) -> int:
    raise PermissionError
