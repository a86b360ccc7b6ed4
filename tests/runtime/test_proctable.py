from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from llmsnap.runtime import proctable
from llmsnap.runtime.proctable import MARK_VARIABLE, Entry, carries, command_line, family
from tests.helpers.waiting import eventually

ME = os.getpid()


def table(*entries: Entry) -> dict[int, Entry]:
    """A machine with these processes."""
    return {entry.pid: entry for entry in entries}


def entry(pid: int, *, parent: int = 1, session: int = 0, started: float = 10) -> Entry:
    """A process in a group of its own."""
    return Entry(pid, parent=parent, group=pid, session=session or pid, started=started)


def found(
    processes: dict[int, Entry], *, marked: tuple[int, ...] = (), session_is_ours: bool = False
) -> set[int]:
    """The family of child 50, which started at 10."""
    return family(
        processes,
        pid=50,
        started=10,
        mark="m",
        session_is_ours=session_is_ours,
        carries=lambda pid, mark: mark == "m" and pid in marked,
    )


def test_descendants_and_session_are_family() -> None:
    """Children count wherever they went, and so do those in the child's session."""
    machine = table(
        entry(50, session=50),
        entry(51, parent=50, session=51),
        entry(52, parent=51, session=52),
        entry(53, parent=1, session=50),
        entry(54, parent=1, session=54),
    )
    assert found(machine) == {50, 51, 52, 53}


def test_a_recycled_pid_is_a_stranger_with_all_its_kin() -> None:
    """Another start time means another process, and its session isn't ours."""
    machine = table(entry(50, session=50, started=99), entry(51, parent=1, session=50, started=99))
    assert found(machine) == set()
    assert found(machine, session_is_ours=True) == set()


def test_orphans_are_found_by_their_mark() -> None:
    """With the leader gone, only the inherited mark tells, and it reaches their children."""
    machine = table(entry(60), entry(61, parent=60), entry(62))
    assert found(machine, marked=(60,)) == {60, 61}


def test_the_session_of_a_leader_who_is_gone_counts_only_for_its_parent() -> None:
    """A number may be given out anew; only the parent knows that it wasn't."""
    machine = table(entry(61, parent=1, session=50))
    assert found(machine) == set()
    assert found(machine, session_is_ours=True) == {61}


def test_what_is_older_than_the_child_is_no_kin() -> None:
    """Nothing that ran before the child can have come from it."""
    machine = table(entry(50, session=50), entry(51, parent=1, session=50, started=9))
    assert found(machine) == {50}


def test_zombies_and_this_process_are_never_members() -> None:
    """A zombie counts as gone, and nothing here may ever signal us."""
    zombie = Entry(51, parent=50, group=50, session=50, started=11, zombie=True)
    machine = table(entry(50, session=50), zombie, entry(ME, parent=50, session=50, started=11))
    assert found(machine) == {50}


@pytest.fixture
def marked_child() -> Iterator[subprocess.Popen[bytes]]:
    """A sleeping child with a mark."""
    env = {**os.environ, MARK_VARIABLE: "abc"}
    with subprocess.Popen([sys.executable, "-S", "-c", "input()", "x y"], stdin=-1, env=env) as it:
        yield it
        it.kill()


@pytest.mark.parametrize("on_linux", [True, False], ids=["proc", "psutil"])
async def test_both_readers_see_a_real_process(
    marked_child: subprocess.Popen[bytes], on_linux: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Parent, session, start, words and mark of a child, by /proc and by psutil."""
    if on_linux and not proctable.ON_LINUX:
        pytest.skip("no /proc here")
    monkeypatch.setattr(proctable, "ON_LINUX", on_linux)
    pid = marked_child.pid
    await eventually(lambda: carries(pid, "abc"), what="exec")
    seen = proctable.read_table()[pid]
    own = proctable.read_entry(ME)
    assert own is not None
    assert (seen.parent, seen.session, seen.group) == (ME, os.getsid(0), os.getpgrp())
    assert seen.started >= own.started
    assert not seen.zombie
    assert command_line(pid)[-1] == "x y"
    assert not carries(pid, "ab")
    marked_child.kill()
    await eventually(lambda: (e := proctable.read_entry(pid)) is not None and e.zombie)
    marked_child.wait()
    assert proctable.read_entry(pid) is None
    assert command_line(pid) == ()
    assert not carries(pid, "abc")


def test_a_name_with_brackets_is_read_right(tmp_path_factory: pytest.TempPathFactory) -> None:
    """The name in /proc/PID/stat may hold brackets and blanks."""
    if not proctable.ON_LINUX:
        pytest.skip("no /proc here")
    program = tmp_path_factory.mktemp("bin") / "a) S 1 (b"
    program.symlink_to("/bin/sleep")
    with subprocess.Popen([str(program), "60"]) as child:
        seen = proctable.read_entry(child.pid)
        child.kill()
    assert seen is not None
    assert seen.parent == ME
