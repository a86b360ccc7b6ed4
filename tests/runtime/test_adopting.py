"""Other settings while processes run: runners, how models sleep, and the supervisor."""

from __future__ import annotations

import asyncio
import signal
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from llmsnap.core.constraints import Free
from llmsnap.core.lifecycle import State, Trigger
from llmsnap.core.messages import ModelSpec, ModelView, Reconfigured
from llmsnap.core.schedule import Schedule
from llmsnap.errors import ModelNotFound
from llmsnap.runtime.plan import Plan
from llmsnap.runtime.supervisor import Supervisor
from tests.helpers.waiting import eventually
from tests.runtime.resting import Chooser, Driver
from tests.runtime.rig import GIB, Rig, plan

SLOW = "--ready 0.5"


def new(*plans: Plan, outdated: str = "", **settings: Any) -> Reconfigured:
    """Other settings, which know the models of `plans`."""
    return Reconfigured(
        specs=tuple(ModelSpec(name=p.model, need={}, **settings) for p in plans),
        outdated=frozenset(outdated),
        capacity={},
        tiers={"ram": 64 * GIB},
        schedule=Schedule(),
        constraints=Free(),
    )


def adopt(rig: Rig, *plans: Plan, outdated: str = "", **settings: Any) -> None:
    """Have everything go by `plans`, as the program does it."""
    assert rig.supervisor is not None
    for each in plans:
        if runner := rig.runners.get(each.model):
            runner.adopt(each, None)
        else:
            rig.runner(each)
    runners = {each.model: rig.runners[each.model] for each in plans}
    rig.supervisor.adopt(runners, new(*plans, outdated=outdated, **settings))


async def served_at(supervisor: Supervisor, model: str) -> tuple[int, int]:
    """Use `model` once; return its generation and its port."""
    async with supervisor.lease(model) as lease:
        return lease.upstream.generation, lease.upstream.port


def moved_on(supervisor: Supervisor, before: ModelView) -> bool:
    """Whether the model isn't any more what it was."""
    now = supervisor.view(before.model)
    return (now.state, now.generation) != (before.state, before.generation)


# ---- one runner ----------------------------------------------------------------------------------


async def test_the_same_process_ends_by_the_new_plan(rig: Rig) -> None:
    """A stop signal may be set while it runs."""
    a = plan(options="--ignore-term")
    runner = rig.runner(a)
    runner.start(1)
    await rig.reported(Trigger.READY)
    runner.adopt(replace(a, stop_signal=signal.SIGINT, grace_s=9.0), None)
    assert runner.unload_timeout_s == 9.0
    runner.stop()
    async with asyncio.timeout(30):
        await rig.reported(Trigger.EXITED)


async def test_another_process_is_for_the_next_start(rig: Rig) -> None:
    """The present one is what it is."""
    old, other = plan(), plan()
    runner = rig.runner(old)
    runner.start(1)
    await rig.reported(Trigger.READY)
    runner.adopt(other, None)
    assert runner.upstream is not None
    assert runner.upstream.port == old.endpoint.port
    runner.stop()
    await rig.reported(Trigger.EXITED)
    runner.start(2)
    await rig.reported(Trigger.READY)
    assert runner.upstream is not None
    assert runner.upstream.port == other.endpoint.port


async def test_another_way_to_sleep_is_found_while_it_is_up(rig: Rig) -> None:
    """Until then none is shown. The same one isn't looked for again; none is a way, too."""
    one, other, a = Driver(), Driver(), plan()
    runner = rig.runner(a, driver=one)
    runner.start(1)
    await eventually(lambda: len(rig.abilities) == 1)
    chooser = Chooser(other)
    runner.adopt(a, chooser)
    assert (runner.rest.driver, runner.rest.is_sought) == (None, True)
    await eventually(lambda: len(rig.abilities) == 2)
    assert (runner.rest.driver, runner.rest.is_sought) == ("fake", False)
    runner.adopt(a, chooser)
    runner.sleep()
    await eventually(lambda: bool(other.calls))
    assert not one.calls
    assert len(rig.abilities) == 2


async def test_what_sleeps_wakes_by_the_way_that_it_went(rig: Rig) -> None:
    """And goes another way the next time."""
    one, other, a = Driver(), Driver(), plan()
    runner = rig.runner(a, driver=one)
    runner.start(1)
    await rig.reported(Trigger.READY)
    runner.sleep()
    await rig.reported(Trigger.SLEPT)
    runner.adopt(a, Chooser(other))
    runner.wake()
    await rig.reported(Trigger.WOKEN)
    assert [what for what, _ in one.calls] == ["sleep", "wake"]
    runner.sleep()
    await rig.reported(Trigger.SLEPT)
    assert [what for what, _ in other.calls] == ["sleep"]


async def test_sleep_can_be_turned_off_and_on(rig: Rig) -> None:
    """While the process runs."""
    a = plan()
    runner = rig.runner(a, driver=Driver())
    runner.start(1)
    await eventually(lambda: len(rig.abilities) == 1)
    runner.adopt(a, None)
    await eventually(lambda: len(rig.abilities) == 2)
    assert not rig.abilities[-1].can_sleep
    runner.adopt(a, Chooser(Driver()))
    await eventually(lambda: len(rig.abilities) == 3)
    assert rig.abilities[-1].can_sleep


async def test_one_that_never_slept_may_learn_to(rig: Rig) -> None:
    """It was started without."""
    a = plan()
    runner = rig.runner(a)
    runner.start(1)
    await rig.reported(Trigger.READY)
    runner.adopt(a, Chooser(Driver()))
    await eventually(lambda: [news.can_sleep for news in rig.abilities] == [True])


# ---- all of them ---------------------------------------------------------------------------------


async def test_an_outdated_model_is_replaced_when_its_last_answer_has_ended(rig: Rig) -> None:
    """Who comes meanwhile gets the new one."""
    old, other = plan(), plan()
    supervisor = rig.supervise(old)
    async with supervisor.lease("a") as lease:
        adopt(rig, other, outdated="a")
        later = asyncio.ensure_future(served_at(supervisor, "a"))
        assert lease.upstream.port == old.endpoint.port
        assert supervisor.view("a").unloading
    assert await later == (2, other.endpoint.port)


@pytest.mark.parametrize("state", [State.STARTING, State.READY, State.STOPPING])
async def test_a_reload_may_come_at_any_moment(rig: Rig, state: State) -> None:
    """Who waited then is served by what the new settings say."""
    old, other = plan(options=f"{SLOW} --ignore-term", grace_s=0.7), plan()
    supervisor = rig.supervise(old)
    first = asyncio.ensure_future(served_at(supervisor, "a"))
    if state is not State.STARTING:
        await first
    if state is State.STOPPING:
        gone = asyncio.ensure_future(supervisor.unload("a"))
        await rig.becomes("a", State.STOPPING)
    waiting = asyncio.ensure_future(served_at(supervisor, "a"))
    await asyncio.sleep(0)
    if state is State.READY:
        await waiting
    adopt(rig, other, outdated="a")
    later = await served_at(supervisor, "a")
    assert later[1] == other.endpoint.port
    if state is not State.READY:
        assert await waiting == later
    if state is State.STARTING:
        assert await first == later
    if state is State.STOPPING:
        await gone


async def test_reloads_that_follow_each_other_closely_lose_nobody(rig: Rig) -> None:
    """Each of them replaces the process, in whatever state the one before has left it."""
    supervisor = rig.supervise(plan(options=SLOW), plan("b"))
    for _ in range(4):
        asked = [asyncio.ensure_future(served_at(supervisor, name)) for name in "ab"]
        await eventually(lambda: supervisor.view("a").state is not State.STOPPED)
        before = supervisor.view("a")
        adopt(rig, plan(), plan("b"), outdated="ab")
        await eventually(partial(moved_on, supervisor, before))
        latest = plan(options="--ready 0.05")
        adopt(rig, latest, plan("b"), outdated="ab")
        asked.append(asyncio.ensure_future(served_at(supervisor, "a")))
        async with asyncio.timeout(30):
            served = await asyncio.gather(*asked)
        assert served[-1][1] == latest.endpoint.port


async def test_a_removed_model_is_gone_with_its_process(rig: Rig) -> None:
    """Nobody knows it any more; then it may come back."""
    a, b = plan(), plan("b")
    supervisor = rig.supervise(a, b)
    await served_at(supervisor, "a")
    adopt(rig, b)
    await eventually(lambda: [view.model for view in supervisor.views()] == ["b"])
    with pytest.raises(ModelNotFound):
        await served_at(supervisor, "a")
    with pytest.raises(ModelNotFound):
        supervisor.view("a")
    adopt(rig, a, b)
    assert await served_at(supervisor, "a") == (1, a.endpoint.port)


async def test_a_new_pinned_model_comes_up(rig: Rig) -> None:
    """As at the start."""
    supervisor = rig.supervise(plan())
    adopt(rig, plan("b"), pinned=True)
    await eventually(lambda: supervisor.view("b").state is State.READY)
