"""Which left-over processes can be gone on with, and why the others are ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from msgspec import json

from llmsnap.runtime import adoption
from llmsnap.runtime.adoption import Adoption, Heirloom, effect_of, seen_of
from llmsnap.runtime.health import Prober
from llmsnap.runtime.lasting import can_last
from llmsnap.runtime.plan import Endpoint, Plan
from llmsnap.runtime.proctable import MARK_VARIABLE, boot_id, read_entry
from llmsnap.runtime.rest import Chooses
from llmsnap.runtime.runfile import RunFiles
from llmsnap.sleep.driver import Supported, Unsupported
from tests.helpers.ports import free_port
from tests.helpers.processes import lives
from tests.helpers.waiting import eventually
from tests.runtime.resting import Chooser, Driver

pytestmark = pytest.mark.skipif(not can_last(), reason="needs pidfds")

DEAD_PID = 2**22 + 1


@dataclass
class Estate:
    """What a dead proxy left: one server and the note about it."""

    folder: Path
    plan: Plan
    pid: int
    mark: str
    will: dict[str, Any] = field(default_factory=dict)
    note: dict[str, Any] = field(default_factory=dict)

    @property
    def path(self) -> Path:
        """The note's file."""
        return self.folder / "run" / f"{self.mark}.json"

    def write(self) -> None:
        """Write the note as that proxy would have."""
        entry = read_entry(self.pid)
        assert entry is not None
        will = {
            "effect": effect_of(self.plan),
            "seen": seen_of(self.pid),
            "generation": 3,
            "state": "ready",
            "host": "127.0.0.1",
            **self.will,
        }
        note = {
            "model": "a",
            "command": list(self.plan.argv),
            "pid": self.pid,
            "started": entry.started,
            "pgid": self.pid,
            "sid": self.pid,
            "mark": self.mark,
            "owner_pid": DEAD_PID,
            "owner_started": 1.0,
            "boot_id": boot_id(),
            "written_at": "2026-01-01T00:00:00+00:00",
            "will": will,
            **self.note,
        }
        self.path.parent.mkdir(exist_ok=True)
        self.path.write_bytes(json.encode(note))

    async def found(
        self, *, plans: dict[str, Plan] | None = None, chooser: Chooses | None = None
    ) -> dict[str, Heirloom]:
        """Look at what was left, as the next proxy does."""
        plans = {"a": self.plan} if plans is None else plans
        async with Prober() as prober:
            files = RunFiles(self.folder)
            return await Adoption(files, prober, plans, {"a": chooser}).find()


Leaves = Callable[..., Estate]


@pytest.fixture
def leaves(tmp_path: Path) -> Iterator[Leaves]:
    """Leave a server, in a session of its own, with a note about it that isn't written yet."""
    left: list[subprocess.Popen[bytes]] = []

    def leave(*options: str) -> Estate:
        port, mark = free_port(), os.urandom(16).hex()
        argv = [sys.executable, "-m", "tests.helpers.fake_server", "--port", str(port), *options]
        env = {**os.environ, MARK_VARIABLE: mark}
        left.append(subprocess.Popen(argv, env=env, start_new_session=True))
        plan = Plan(model="a", argv=argv, env=env, endpoint=Endpoint(host="127.0.0.1", port=port))
        return Estate(tmp_path, plan, left[-1].pid, mark)

    yield leave
    for process in left:
        process.kill()
        process.wait()


async def up(estate: Estate) -> None:
    """Wait until its server answers."""
    async with Prober() as prober:
        url = estate.plan.endpoint.url("/v1/models")
        await eventually(lambda: prober.is_ready(url, key=""), what="the server is up")


async def test_one_that_is_as_it_was_is_gone_on_with(leaves: Leaves) -> None:
    """Its note is ours from then on, so that no other proxy takes it."""
    estate = leaves()
    await up(estate)
    estate.write()
    heirloom = (await estate.found())["a"]

    assert (heirloom.child.pid, heirloom.asleep) == (estate.pid, None)
    assert heirloom.found("a").generation == 3
    assert json.decode(estate.path.read_bytes())["owner_pid"] == os.getpid()
    assert await estate.found() == {}
    assert lives(estate.pid)
    heirloom.child.let_go()


def _without_will(estate: Estate) -> None:
    estate.note["will"] = None


def _another_command(estate: Estate) -> None:
    estate.will["effect"] = effect_of(replace(estate.plan, argv=[*estate.plan.argv, "-x"]))


def _another_variable(estate: Estate) -> None:
    env = {**estate.plan.env, "CUDA_VISIBLE_DEVICES": "1"}
    estate.will["effect"] = effect_of(replace(estate.plan, env=env))


def _another_word_in_proc(estate: Estate) -> None:
    estate.will["seen"] = seen_of(os.getpid())


def _another_port(estate: Estate) -> None:
    estate.plan = replace(estate.plan, endpoint=Endpoint(host="127.0.0.1", port=free_port()))


def _starting(estate: Estate) -> None:
    estate.will["state"] = "starting"


def _moving(estate: Estate) -> None:
    estate.will["state"] = "moving"


def _asleep(estate: Estate) -> None:
    estate.will["state"] = "asleep"


def _not_healthy(estate: Estate) -> None:
    estate.plan = replace(estate.plan, check_path="/health")


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (_without_will, "it wasn't started with runtime.adopt"),
        (_another_command, "its command, environment or port is another now"),
        (_another_variable, "its command, environment or port is another now"),
        (_another_word_in_proc, "it runs another command by now"),
        (_another_port, "it doesn't listen on port"),
        (_starting, "it was starting when that proxy ended"),
        (_moving, "it was moving when that proxy ended"),
        (_asleep, "it is asleep, and its model isn't to sleep any more"),
        (_not_healthy, "/health didn't answer 200 within 0.2 s"),
    ],
)
async def test_what_doesnt_match_is_ended(
    leaves: Leaves,
    change: Callable[[Estate], None],
    why: str,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The log says why, and its note is gone."""
    monkeypatch.setattr(adoption, "_ANSWER_S", 0.2)
    estate = leaves("--ready", "1000")
    estate.plan = replace(estate.plan, check_path=None)
    await up(estate)
    change(estate)
    estate.write()

    assert await estate.found() == {}
    assert f"ending pid {estate.pid}, left by an earlier proxy: {why}" in caplog.text
    assert not lives(estate.pid)
    assert not estate.path.exists()


async def test_a_model_that_isnt_configured_any_more_is_ended(
    leaves: Leaves, caplog: pytest.LogCaptureFixture
) -> None:
    """Nobody could ask for it."""
    estate = leaves()
    estate.write()
    assert await estate.found(plans={}) == {}
    assert "its model isn't configured any more" in caplog.text
    assert not lives(estate.pid)


@pytest.mark.parametrize("what", ["another start", "another boot"])
async def test_u62_a_pid_that_means_another_process_is_let_be(leaves: Leaves, what: str) -> None:
    """Only the note goes: the process has nothing to do with us."""
    estate = leaves()
    estate.note = {"started": 1.0, "sid": 1, "pgid": 1, "mark": "0" * 32}
    if what == "another boot":
        estate.note = {"boot_id": "another"}
    estate.mark = estate.note.get("mark", estate.mark)
    estate.write()
    assert await estate.found() == {}
    assert lives(estate.pid)
    assert not estate.path.exists()


async def test_of_two_processes_of_a_model_the_newer_one_counts(
    leaves: Leaves, caplog: pytest.LogCaptureFixture
) -> None:
    """By their generations; the other one is ended."""
    old, new = leaves(), leaves()
    await up(new)
    old.will["generation"] = 2
    old.write()
    new.write()
    heirloom = (await new.found())["a"]

    assert heirloom.child.pid == new.pid
    assert f"ending pid {old.pid}, left by an earlier proxy: another process" in caplog.text
    assert not lives(old.pid)
    heirloom.child.let_go()


async def test_what_sleeps_is_gone_on_with_by_its_drivers_word(leaves: Leaves) -> None:
    """Its health isn't asked, and what its sleep takes is known to the books."""
    estate = leaves("--ready", "1000")
    await up(estate)
    estate.will = {"state": "asleep", "driver": "fake", "memo": {"pid": estate.pid}}
    estate.write()
    driver = Driver()
    driver.verdict = Supported(tier="ram", tier_bytes=1000)
    heirloom = (await estate.found(chooser=Chooser(driver)))["a"]

    found = heirloom.found("a")
    assert (found.tier, found.tier_bytes) == ("ram", 1000)
    heirloom.child.let_go()


async def test_what_sleeps_and_cant_be_woken_is_killed(
    leaves: Leaves, caplog: pytest.LogCaptureFixture
) -> None:
    """Without being asked first: what sleeps can't obey, and may be held by a signal."""
    estate = leaves("--ready", "1000", "--ignore-term")
    await up(estate)
    os.kill(estate.pid, signal.SIGSTOP)
    estate.will = {"state": "asleep", "driver": "fake"}
    estate.write()
    driver = Driver()
    driver.verdict = Unsupported("swap is gone")

    assert await estate.found(chooser=Chooser(driver)) == {}
    assert "it can't be woken (fake: swap is gone)" in caplog.text
    assert not lives(estate.pid)


async def test_two_proxies_that_start_at_once_dont_both_take_it(leaves: Leaves) -> None:
    """A note that another living proxy has claimed is none of ours."""
    estate = leaves()
    await up(estate)
    owner = read_entry(os.getppid())
    assert owner is not None
    estate.note = {"owner_pid": os.getppid(), "owner_started": owner.started}
    estate.write()
    assert await estate.found() == {}
    assert lives(estate.pid)
    assert estate.path.exists()
