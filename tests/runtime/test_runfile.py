from __future__ import annotations

import asyncio
import json
import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from llmsnap.runtime.logs import LogPipe
from llmsnap.runtime.process import Child, Command, Farewell, end, launch
from llmsnap.runtime.proctable import MARK_VARIABLE, ON_LINUX, boot_id, read_entry
from llmsnap.runtime.runfile import RunFiles, state_folder
from tests.helpers.processes import lives
from tests.helpers.waiting import eventually
from tests.runtime.rig import PROXY_LIKE, loop_name

MARK = os.urandom(8).hex()
"""Of its own a test run: another one, at the same time, ends what carries its own."""


@contextmanager
def process(*, mark: str = MARK, argv: tuple[str, ...] = ("sleep", "60")) -> Iterator[int]:
    """A process in a session of its own, as a dead proxy leaves it; yields its pid."""
    env = {**os.environ, MARK_VARIABLE: mark}
    with subprocess.Popen(argv, env=env, start_new_session=True) as child:
        while MARK.encode() not in Path(f"/proc/{child.pid}/environ").read_bytes():
            if mark != MARK or not ON_LINUX:
                break
            time.sleep(0.001)
        yield child.pid
        child.kill()


def note(folder: Path, pid: int, **changes: Any) -> Path:
    """Write the note of a dead proxy about `pid`; returns its file."""
    entry = read_entry(pid)
    content = {
        "model": "a",
        "command": ["sleep", "60"],
        "pid": pid,
        "started": entry.started if entry else 0.0,
        "pgid": pid,
        "sid": pid,
        "mark": MARK,
        "owner_pid": 2**22 + 1,
        "owner_started": 1.0,
        "boot_id": boot_id(),
        "written_at": "2026-01-01T00:00:00+00:00",
        **changes,
    }
    path = folder / "run" / f"{content['mark']}.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(content))
    return path


async def child_of(argv: tuple[str, ...], mark: str = MARK) -> tuple[Child, LogPipe]:
    """A child of ours."""
    pipe = LogPipe(lambda _: None)
    child = await launch(Command(argv=argv, env=os.environ), output=pipe.write_end, mark=mark)
    pipe.close_write_end()
    return child, pipe


async def test_a_note_is_private_and_goes_with_its_process(tmp_path: Path) -> None:
    """0600 in a 0700 folder; it says what is needed to find the process, and no more."""
    (tmp_path / "run").mkdir(mode=0o755)
    files = RunFiles(tmp_path)
    child, pipe = await child_of(("sleep", "60"))
    files.add(child, model="a", command=["sleep", "60"])
    (path,) = (tmp_path / "run").iterdir()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    content = json.loads(path.read_text())
    assert (content["pid"], content["model"]) == (child.pid, "a")
    assert content["owner_pid"] == os.getpid()
    assert await files.end_leftovers() == 0
    assert lives(child.pid)
    files.remove(child.mark)
    assert list(path.parent.iterdir()) == []
    await end(child, Farewell(grace_s=0))
    pipe.close()


async def test_what_a_dead_proxy_left_is_ended(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It is named in the log, and its note is deleted."""
    with process() as pid:
        path = note(tmp_path, pid)
        assert await RunFiles(tmp_path).end_leftovers() == 1
        assert not lives(pid)
        assert not path.exists()
        assert f"ending pid {pid}" in caplog.text


async def test_what_ignores_the_signal_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A left-over gets a short grace only."""
    monkeypatch.setattr("llmsnap.runtime.runfile._GRACE_S", 0.1)
    code = "import signal,time; signal.signal(15, signal.SIG_IGN); time.sleep(60)"
    with process(argv=(sys.executable, "-S", "-c", code)) as pid:
        await eventually(lambda: ignores_term(pid))
        note(tmp_path, pid)
        assert await RunFiles(tmp_path).end_leftovers() == 1
        assert not lives(pid)


async def test_kill_false_holds_for_leftovers_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is asked, not killed; its note stays for the next time."""
    monkeypatch.setattr("llmsnap.runtime.runfile._GRACE_S", 0.1)
    code = "import signal,time; signal.signal(15, signal.SIG_IGN); time.sleep(60)"
    with process(argv=(sys.executable, "-S", "-c", code)) as pid:
        await eventually(lambda: ignores_term(pid))
        path = note(tmp_path, pid, kill=False)
        await RunFiles(tmp_path).end_leftovers()
        assert lives(pid)
        assert path.exists()
    assert f"pid {pid} doesn't end, and `kill: false` spares it" in caplog.text


def ignores_term(pid: int) -> bool:
    """Whether the process has come to ignore SIGTERM."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("SigIgn:"):
            return bool(int(line.split()[1], 16) & (1 << (signal.SIGTERM - 1)))
    return False


async def test_u62_a_recycled_pid_is_never_touched(tmp_path: Path) -> None:
    """Same pid, another start time: a stranger, whose kin are no concern of ours."""
    with process(mark="another") as pid:
        entry = read_entry(pid)
        assert entry is not None
        path = note(tmp_path, pid, started=entry.started - 1)
        assert await RunFiles(tmp_path).end_leftovers() == 0
        assert lives(pid)
        assert not path.exists()


async def test_a_living_proxy_keeps_its_children(tmp_path: Path) -> None:
    """A second proxy leaves them alone: the owner's pid and start time tell."""
    with process(mark="owner") as owner, process() as pid:
        entry = read_entry(owner)
        assert entry is not None
        path = note(tmp_path, pid, owner_pid=owner, owner_started=entry.started)
        assert await RunFiles(tmp_path).end_leftovers() == 0
        assert lives(pid)
        assert path.exists()
        note(tmp_path, pid, owner_pid=owner, owner_started=entry.started + 1)
        assert await RunFiles(tmp_path).end_leftovers() == 1
        assert not lives(pid)


async def test_notes_from_before_a_reboot_are_forgotten(tmp_path: Path) -> None:
    """Nothing lives through one, whatever has the same number now."""
    with process() as pid:
        path = note(tmp_path, pid, boot_id="another boot")
        assert await RunFiles(tmp_path).end_leftovers() == 0
        assert lives(pid)
        assert not path.exists()


async def test_a_zombie_counts_as_gone(tmp_path: Path) -> None:
    """Where nobody reaps, waiting for it would never end."""
    with process() as pid:
        path = note(tmp_path, pid)
        os.kill(pid, signal.SIGKILL)
        await eventually(lambda: not lives(pid))
        async with asyncio.timeout(30):
            assert await RunFiles(tmp_path).end_leftovers() == 0
        assert not path.exists()


@pytest.mark.parametrize("text", ["", "{", '{"pid": 1}', "\xff", '{"pid": "x"}', "[]"], ids=repr)
async def test_a_broken_file_is_set_aside(
    tmp_path: Path, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It is kept for a look, told once, and stops nothing."""
    with process() as pid:
        note(tmp_path, pid)
        broken = tmp_path / "run" / "broken.json"
        broken.write_bytes(text.encode("latin-1"))
        assert await RunFiles(tmp_path).end_leftovers() == 1
        assert not broken.exists()
        assert broken.with_suffix(".broken").exists()
        assert "set aside" in caplog.text
        caplog.clear()
        assert await RunFiles(tmp_path).end_leftovers() == 0
        assert caplog.text == ""


async def test_a_nonsense_signal_makes_a_broken_file(tmp_path: Path) -> None:
    """Nobody is sent signal 999."""
    with process() as pid:
        path = note(tmp_path, pid, stop_signal=999)
        assert await RunFiles(tmp_path).end_leftovers() == 0
        assert lives(pid)
        assert not path.exists()


async def test_a_folder_that_cannot_be_written_is_told_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Models run all the same."""
    (tmp_path / "run").write_text("a file where the folder should be")
    files = RunFiles(tmp_path)
    child, pipe = await child_of(("sleep", "60"))
    files.add(child, model="a", command=[])
    files.add(child, model="a", command=[])
    files.remove(child.mark)
    assert await files.end_leftovers() == 0
    assert caplog.text.count("run files can't be written") == 1
    await end(child, Farewell(grace_s=0))
    pipe.close()


async def test_a_note_that_cannot_be_finished_leaves_no_draft(tmp_path: Path) -> None:
    """A disk that is full for long would fill its folder with them."""
    obstacle = tmp_path / "run" / f"{MARK}.json"
    obstacle.mkdir(parents=True)
    child, pipe = await child_of(("sleep", "60"))
    RunFiles(tmp_path).add(child, model="a", command=[])
    assert list(obstacle.parent.iterdir()) == [obstacle]
    await end(child, Farewell(grace_s=0))
    pipe.close()


async def test_no_folder_no_leftovers(tmp_path: Path) -> None:
    """The first start ever."""
    assert await RunFiles(tmp_path / "new").end_leftovers() == 0


def test_where_the_files_are() -> None:
    """`--state-dir`, else XDG's place, else below the home directory."""
    assert state_folder({"XDG_STATE_HOME": "/s"}) == Path("/s/llmsnap")
    assert state_folder({"HOME": "/h"}) == Path("/h/.local/state/llmsnap")
    assert state_folder({"XDG_STATE_HOME": "/s"}, Path("/o")) == Path("/o")


@pytest.mark.parametrize("how", ["", "setsid "], ids=["same session", "own session"])
async def test_u61_grandchildren_of_a_killed_proxy_are_ended_at_the_next_start(
    tmp_path: Path, how: str
) -> None:
    """The wrapper dies with the proxy; what it started is found by the note and ended."""
    if not ON_LINUX:
        pytest.skip("the wrapper dies by PR_SET_PDEATHSIG")
    script = f"{how}sleep 60 & echo grandchild $!; wait"
    argv = [*PROXY_LIKE, loop_name(), str(tmp_path), "/bin/sh", "-c", script]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as proxy:  # noqa: ASYNC220
        assert proxy.stdout is not None
        lines = [await asyncio.to_thread(proxy.stdout.readline) for _ in range(2)]
        proxy.kill()
        pids = {word: int(pid) for word, pid in (line.split() for line in lines)}
        await eventually(lambda: not lives(pids["child"]))
        assert lives(pids["grandchild"])
        proxy.wait()
        assert await RunFiles(tmp_path).end_leftovers() == 1
        assert not lives(pids["grandchild"])
        assert list((tmp_path / "run").iterdir()) == []
