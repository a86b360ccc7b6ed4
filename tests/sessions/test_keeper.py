"""When conversations are saved, on virtual time."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from llmsnap.sessions.desk import Desk
from llmsnap.sessions.keeper import Habits, Keeper
from llmsnap.sessions.subject import Process, Shared, Subject
from tests.helpers.virtualtime import run
from tests.sessions.stage import Process as Started


class Noting(Desk):
    """Says when it is told to save, and how much must be new."""

    def __init__(self) -> None:
        self.saves: list[tuple[float, int]] = []
        self.min_tokens = 256
        self.refusal = ""
        self.busy = False
        self.settled = False
        self.unsaved = True
        self.guess_s = self.save_s = 0.0

    @property
    def is_serving(self) -> bool:
        """As the test says."""
        return self.busy

    @property
    def process(self) -> Process:
        """Up from the start."""
        return Started(1)

    def meet(self, process: Process, subject: Subject) -> None:
        """It is known already."""

    def answered(self, record: object) -> bool:
        """All are."""
        return True

    def worthless(self) -> list[str]:
        """None."""
        return []

    def has_unsaved(self, process: Process) -> bool:
        """As the test says."""
        return self.unsaved

    async def is_settled(self) -> bool:
        """As the test says."""
        return self.settled

    def takes_s(self, process: Process) -> float:
        """As the test says."""
        return self.guess_s

    async def save(self, process: Process, *, least_new: int, limit_s: float) -> None:
        """Note it, and take as long as the test says, but no longer than `limit_s`."""
        self.saves.append((asyncio.get_running_loop().time(), least_new))
        await asyncio.sleep(min(self.save_s, limit_s))


@dataclass
class Answered:
    """One request."""

    model: str = "a"


@dataclass
class Scene:
    """A keeper of one model, which is up."""

    habits: Habits
    desk: Noting = field(default_factory=Noting)
    tests: list[float] = field(default_factory=list)
    is_up: bool = True
    is_awaited: bool = False

    def keeper(self) -> Keeper:
        """Return it; to be called in the loop."""
        tasks: set[asyncio.Future[None]] = set()

        def spawn(coro: Coroutine[Any, Any, None], *, name: str) -> None:
            task = asyncio.ensure_future(coro)
            tasks.add(task)

        async def test(model: str) -> None:
            self.tests.append(asyncio.get_running_loop().time())

        shared: Shared = None  # type: ignore[assignment]  # the desk is ours
        made = Keeper(
            shared,
            self.habits,
            spawn=spawn,
            is_up=lambda *_: self.is_up,
            is_awaited=lambda: self.is_awaited,
            test=test,
        )
        made._desks["a"] = self.desk
        return made


def told(scene: Scene, answers: Sequence[float], until_s: float) -> None:
    """Have requests end at those moments, the model being busy until the last one."""

    async def story() -> None:
        keeper, began = scene.keeper(), 0.0
        keeper.ready(Started(1), Subject(argv=(), env={}, min_tokens=256))
        scene.desk.busy = bool(answers)
        for moment in answers:
            await asyncio.sleep(moment - began)
            began = moment
            scene.desk.busy = moment != answers[-1]
            keeper.took([Answered()])
        await asyncio.sleep(until_s - began)

    run(story())


def test_an_idle_model_is_saved_ten_seconds_after_its_last_answer() -> None:
    """Once, and then tested, if nothing is known of it."""
    scene = Scene(Habits())
    told(scene, [5.0, 30.0], 200.0)

    ((moment, least_new),) = scene.desk.saves
    assert moment == pytest.approx(40.0, abs=1.1)
    assert least_new == 256
    assert scene.tests == [pytest.approx(40.0, abs=1.1)]


def test_a_model_of_which_all_is_known_isnt_tested() -> None:
    """Nor is one that is asleep, or gone."""
    known, gone = Scene(Habits()), Scene(Habits(), is_up=False)
    known.desk.settled = True
    for scene in (known, gone):
        told(scene, [5.0], 60.0)

    assert known.tests == gone.tests == []
    assert len(known.desk.saves) == 1
    assert gone.desk.saves == []


def test_a_model_that_was_only_loaded_is_tested() -> None:
    """Before anybody wants it."""
    scene = Scene(Habits(snapshots="off"))
    told(scene, [], 60.0)

    assert scene.tests == [pytest.approx(10.0, abs=1.1)]
    assert scene.desk.saves == []


@pytest.mark.parametrize(("snapshots", "in_use"), [("interval", 3), ("idle", 0), ("off", 0)])
def test_a_model_in_use_is_saved_once_a_minute_if_that_is_wanted(
    snapshots: Any, in_use: int
) -> None:
    """And once more when it is idle."""
    scene = Scene(Habits(snapshots=snapshots))
    told(scene, [*range(5, 206, 5)], 400.0)

    before = [when for when, _ in scene.desk.saves if when < 205]
    assert len(before) == in_use
    assert len(scene.desk.saves) == in_use + (snapshots != "off")
    assert all(late - early >= 60 for early, late in itertools.pairwise(before))


@pytest.mark.parametrize(
    ("snapshots", "loses", "least_new"),
    [("idle", False, [256]), ("off", False, []), ("idle", True, [1]), ("off", True, [1])],
)
async def test_before_a_sleep_is_saved_what_would_be_lost(
    snapshots: Any, loses: bool, least_new: list[int]
) -> None:
    """All of it if its cache is; else what may be lost with the process, as when it is idle."""
    scene = Scene(Habits(snapshots=snapshots))
    await scene.keeper().before_sleep(Started(1), loses_cache=loses)

    assert [least for _, least in scene.desk.saves] == least_new


@pytest.mark.parametrize(
    ("guess_s", "save_s", "awaited_from_s", "held_up_s"),
    [
        (0.0, 0.5, 0.0, 0.5),
        (3.0, 3.0, None, 3.0),
        (0.0, 60.0, None, 5.0),
        (0.0, 60.0, 0.0, 1.0),
        (0.0, 60.0, 2.0, 3.0),
        (3.0, 3.0, 0.0, 0.0),
        (3.0, 3.0, 0.5, 1.5),
    ],
    ids=["short", "long", "hung", "hung, awaited", "awaited later", "long, awaited", "found out"],
)
def test_a_save_that_only_insures_holds_up_nobody_for_long(
    guess_s: float, save_s: float, awaited_from_s: float | None, held_up_s: float
) -> None:
    """A second, once somebody waits; what is known to take longer isn't begun then."""
    scene = Scene(Habits(), is_awaited=awaited_from_s == 0.0)
    scene.desk.guess_s, scene.desk.save_s = guess_s, save_s

    async def story() -> float:
        loop = asyncio.get_running_loop()
        if awaited_from_s:
            loop.call_later(awaited_from_s, setattr, scene, "is_awaited", True)
        began = loop.time()
        await scene.keeper().before_sleep(Started(1), loses_cache=False)
        return loop.time() - began

    assert run(story()) == pytest.approx(held_up_s, abs=0.25)


async def test_a_pause_in_the_middle_of_answers_waits_for_no_save() -> None:
    """A server saves a slot only once it is at rest."""
    scene = Scene(Habits())
    scene.desk.busy = True
    await scene.keeper().before_sleep(Started(1), loses_cache=False)

    assert scene.desk.saves == []


@pytest.mark.parametrize(("wakes", "unsaved"), [(True, True), (True, False), (False, True)])
async def test_what_sleeps_is_worth_waking_only_for_something(wakes: bool, unsaved: bool) -> None:
    """And only if that is wanted."""
    scene = Scene(Habits(wakes_to_save=wakes))
    scene.desk.unsaved = unsaved

    assert scene.keeper().is_worth_waking(Started(1)) == (wakes and unsaved)
