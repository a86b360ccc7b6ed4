"""The pump, over a scheduler that says what the test tells it to. Real ones: test_user_rows.py."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field, replace

import pytest

from llmsnap.core.cause import Cause, Why
from llmsnap.core.lifecycle import State, Trigger
from llmsnap.core.messages import (
    NO_WAIT,
    AbilityChanged,
    Abort,
    Action,
    Admit,
    Event,
    ModelChanged,
    ModelDeaf,
    ModelView,
    Phases,
    Reject,
    ReleaseRequested,
    RequestArrived,
    RequestFinished,
    ShutdownRequested,
    Sleep,
    SleepRequested,
    Start,
    Stop,
    Tick,
    UnloadRequested,
    Wake,
)
from llmsnap.errors import Conflict, LlmsnapError, ModelNotFound, ServiceUnavailable, StartFailed
from llmsnap.runtime.release import release
from llmsnap.runtime.rest import RestView
from llmsnap.runtime.supervisor import Supervisor, Upstream
from llmsnap.runtime.tasks import Background
from tests.helpers.views import view_of
from tests.helpers.waiting import eventually

Rule = Callable[[Event], Sequence[Action]]


class Scripted:
    """A scheduler that answers each event by the test's rule."""

    def __init__(self) -> None:
        self.rule: Rule = lambda event: ()
        self.shown = {"a": view_of("a"), "b": view_of("b")}
        self.history: list[tuple[float, Event, Sequence[Action]]] = []
        self.next_deadline = math.inf
        self.held: tuple[float, bool] | None = None

    @property
    def idle(self) -> bool:
        return all(v.state is State.STOPPED for v in self.shown.values())

    @property
    def events(self) -> list[Event]:
        return [event for _, event, _ in self.history]

    def handle(self, event: Event) -> list[Action]:
        actions = list(self.rule(event))
        self.history.append((0.0, event, actions))
        if isinstance(event, ModelChanged):
            after = State.READY if event.trigger is Trigger.READY else State.STOPPED
            self.show(event.model, after)
        for action in actions:
            if isinstance(action, Start):
                self.show(action.model, State.STARTING, action.generation)
            if isinstance(action, Stop):
                self.show(action.model, State.STOPPING)
        return actions

    def show(self, model: str, state: State, generation: int | None = None) -> None:
        old = self.shown[model]
        self.shown[model] = replace(
            old, state=state, generation=old.generation if generation is None else generation
        )

    @property
    def released(self) -> tuple[float, bool] | None:
        return self.held

    def waited(self, ticket: int) -> Phases:
        return NO_WAIT

    def view(self, model: str) -> ModelView:
        return self.shown[model]

    def views(self) -> list[ModelView]:
        return list(self.shown.values())


@dataclass
class FakeRunner:
    """Writes down its orders; reports what the test wants."""

    model: str
    orders: list[object] = field(default_factory=list)
    upstream: Upstream | None = None
    pid: int | None = None
    alive: bool = False
    outlives_us: bool = False
    unload_timeout_s: float = 3.0
    rest: RestView = field(default_factory=RestView)

    @property
    def end_timeout_s(self) -> float:
        return self.unload_timeout_s

    def start(self, generation: int) -> None:
        self.orders.append(("start", generation))
        self.alive = True

    def stop(self, *, now: bool = False) -> None:
        self.orders.append("kill" if now else "stop")

    def leave(self) -> None:
        self.orders.append("leave")

    def fail(self, error: LlmsnapError) -> None:
        self.orders.append(error)

    def sleep(self, *, anyway: bool) -> None:
        self.orders.append("sleep anyway" if anyway else "sleep")

    def page_out(self) -> None:
        self.orders.append("page out")

    def wake(self) -> None:
        self.orders.append("wake")


@dataclass
class Stage:
    """A supervisor between a scripted scheduler and fake runners."""

    scheduler: Scripted
    supervisor: Supervisor
    runners: dict[str, FakeRunner]
    background: Background
    may_fail: bool = False

    def ready(self, model: str, generation: int = 1) -> None:
        """The process of `model` is up."""
        runner = self.runners[model]
        runner.pid = 42
        runner.upstream = Upstream(model, generation, "127.0.0.1", 80, "", False, 42)
        self.supervisor.post(ModelChanged(model, generation, Trigger.READY))

    def exited(self, model: str, generation: int = 1, error: LlmsnapError | None = None) -> None:
        """The process of `model` is gone."""
        runner = self.runners[model]
        runner.alive, runner.pid, runner.upstream = False, None, None
        self.supervisor.post(ModelChanged(model, generation, Trigger.EXITED, error))

    def start(self, model: str, generation: int = 1) -> None:
        """Have the scheduler start `model`."""
        self.scheduler.rule = lambda event: [Start(model, generation)]
        self.supervisor.post(Tick())
        self.scheduler.rule = lambda event: ()


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    """Two models, nothing running."""
    scheduler, background = Scripted(), Background()
    supervisor = Supervisor(scheduler, background)
    runners = {model: FakeRunner(model) for model in ("a", "b")}
    supervisor.supervise(runners)
    stage = Stage(scheduler, supervisor, runners, background)
    yield stage
    await background.aclose()
    assert supervisor.fatal.done() is stage.may_fail


async def test_a_lease_from_arrival_to_finish(stage: Stage) -> None:
    """Admitted with the upstream of the generation that is up, and with the phases."""
    stage.start("a")
    stage.ready("a")
    stage.scheduler.rule = lambda event: (
        [Admit(event.ticket, Phases(queue_s=1))] if isinstance(event, RequestArrived) else ()
    )
    async with stage.supervisor.lease("a", limited=False) as lease:
        assert lease.upstream is stage.runners["a"].upstream
        assert lease.phases.queue_s == 1
    assert stage.scheduler.events[-2:] == [RequestArrived(1, "a", False), RequestFinished(1)]


@pytest.mark.parametrize(
    ("why", "clients", "order"),
    [
        (Why.ROOM, 0, "sleep"),
        (Why.ROOM, 1, "sleep anyway"),
        (Why.IDLE, 0, "sleep anyway"),
        (Why.ASKED, 0, "sleep anyway"),
    ],
)
async def test_only_who_makes_room_while_idle_may_be_better_stopped(
    stage: Stage, why: Why, clients: int, order: str
) -> None:
    """A paused answer would be lost, and elsewhere no stop is in question."""
    stage.start("a", 3)
    shown = stage.scheduler.shown
    shown["a"] = replace(shown["a"], in_flight=clients)
    stage.scheduler.rule = lambda event: [Sleep("a", 3, Cause(why, "b"))]
    stage.supervisor.post(Tick())
    assert stage.runners["a"].orders == [("start", 3), order]


async def test_actions_reach_the_runners(stage: Stage) -> None:
    """Each action is one order."""
    stage.start("a", 3)
    stage.scheduler.rule = lambda event: [Sleep("a", 3), Wake("a", 3), Stop("a", 3)]
    stage.supervisor.post(Tick())
    assert stage.runners["a"].orders == [("start", 3), "sleep anyway", "wake", "stop"]
    assert stage.runners["b"].orders == []


async def test_reject_and_abort_reach_the_clients(stage: Stage) -> None:
    """A waiting client is refused; a holder is told."""
    error = StartFailed("no")
    stage.scheduler.rule = lambda event: (
        [Reject(event.ticket, error)] if isinstance(event, RequestArrived) else ()
    )
    with pytest.raises(StartFailed):
        await stage.supervisor.load("a")
    stage.start("a")
    stage.ready("a")
    stage.scheduler.rule = lambda event: (
        [Admit(event.ticket)] if isinstance(event, RequestArrived) else [Abort(2, error)]
    )
    async with stage.supervisor.lease("a") as lease:
        stage.supervisor.post(Tick())
        assert lease.aborted is error


async def test_what_is_posted_meanwhile_comes_afterwards(stage: Stage) -> None:
    """An action that leads to an event at once doesn't re-enter the scheduler."""
    inside = False

    def rule(event: Event) -> Sequence[Action]:
        nonlocal inside
        assert not inside
        inside = True
        actions: list[Action] = []
        if isinstance(event, RequestArrived):
            actions = [Admit(event.ticket)]
        elif isinstance(event, Tick):
            actions = [Abort(1, StartFailed("x"))]
        inside = False
        return actions

    stage.start("a")
    stage.ready("a")
    stage.scheduler.rule = rule
    async with stage.supervisor.lease("a") as lease:

        def on_abort(_: LlmsnapError) -> None:
            stage.supervisor.post(UnloadRequested("b", 1))
            assert stage.scheduler.events[-1] == Tick()

        lease.on_abort = on_abort
        stage.supervisor.post(Tick())
        assert stage.scheduler.events[-2:] == [Tick(), UnloadRequested("b", 1)]


async def test_the_scheduler_is_called_at_its_deadline(stage: Stage) -> None:
    """One Tick, not before the time; none when there is no deadline."""
    loop = asyncio.get_running_loop()
    ticked: list[float] = []

    def rule(event: Event) -> Sequence[Action]:
        if isinstance(event, Tick):
            ticked.append(loop.time())
            stage.scheduler.next_deadline = math.inf
        return ()

    stage.scheduler.rule = rule
    due = stage.scheduler.next_deadline = loop.time() + 0.1
    stage.supervisor.post(RequestFinished(0))
    await eventually(lambda: bool(ticked))
    assert ticked[0] >= due
    await asyncio.sleep(0.05)
    assert len(ticked) == 1


async def test_a_deadline_that_moves_is_followed(stage: Stage) -> None:
    """Further away: the early ring asks again; nearer: it rings earlier."""
    loop = asyncio.get_running_loop()
    ticked: list[float] = []

    def rule(event: Event) -> Sequence[Action]:
        if isinstance(event, Tick):
            ticked.append(loop.time())
            stage.scheduler.next_deadline = math.inf
        return ()

    stage.scheduler.rule = rule
    for delay_s in (0.05, 0.2, 0.15):
        due = stage.scheduler.next_deadline = loop.time() + delay_s
        stage.supervisor.post(RequestFinished(0))
    await eventually(lambda: bool(ticked))
    assert ticked[0] >= due
    assert len(ticked) == 1


async def test_a_pinned_model_is_loaded_without_a_request(stage: Stage) -> None:
    """A deadline that stands when the runners arrive is obeyed."""
    scheduler = Scripted()
    scheduler.next_deadline = 0.0

    def rule(event: Event) -> Sequence[Action]:
        scheduler.next_deadline = math.inf
        return [Start("a", 1)]

    scheduler.rule = rule
    runners = {"a": FakeRunner("a"), "b": FakeRunner("b")}
    Supervisor(scheduler, stage.background).supervise(runners)
    await eventually(lambda: runners["a"].orders == [("start", 1)])


async def test_watchers_see_each_change_once(stage: Stage) -> None:
    """View after and state before, also of two steps in one event; until they unwatch."""
    seen: list[tuple[str, State, State]] = []
    unwatch = stage.supervisor.watch(lambda v, before: seen.append((v.model, before, v.state)))
    stage.start("a")
    stage.ready("a")
    stage.scheduler.rule = lambda event: [Start("a", 2)] if isinstance(event, ModelChanged) else ()
    stage.exited("a")
    await asyncio.sleep(0)
    assert seen == [
        ("a", State.STOPPED, State.STARTING),
        ("a", State.STARTING, State.READY),
        ("a", State.READY, State.STOPPED),
        ("a", State.STOPPED, State.STARTING),
    ]
    unwatch()
    unwatch()
    stage.exited("a", 2)
    await asyncio.sleep(0)
    assert len(seen) == 4


async def test_upstream_and_pid(stage: Stage) -> None:
    """An upstream only while ready; the pid whenever there is a process."""
    assert stage.supervisor.upstream("a") is None
    assert stage.supervisor.pid("a") is None
    assert stage.supervisor.pid("nobody") is None
    stage.start("a")
    stage.ready("a")
    assert stage.supervisor.upstream("a") is stage.runners["a"].upstream
    assert stage.supervisor.pid("a") == 42
    stage.scheduler.show("a", State.ASLEEP)
    assert stage.supervisor.upstream("a") is None


@pytest.mark.parametrize("ask", ["view", "upstream"])
async def test_unknown_models(stage: Stage, ask: str) -> None:
    """A 404, not a KeyError."""
    with pytest.raises(ModelNotFound):
        getattr(stage.supervisor, ask)("nobody")
    with pytest.raises(ModelNotFound):
        await stage.supervisor.unload("nobody")


async def test_unload_returns_when_the_process_is_gone(stage: Stage) -> None:
    """With the model's own timeout by default; at once when there is none."""
    await stage.supervisor.unload("a")
    assert stage.scheduler.events == [UnloadRequested("a", 3.0)]
    stage.start("a")
    stage.ready("a")
    unloads = [
        asyncio.ensure_future(stage.supervisor.unload("a", timeout)) for timeout in (None, 0)
    ]
    await asyncio.sleep(0)
    assert stage.scheduler.events[-2:] == [UnloadRequested("a", 3.0), UnloadRequested("a", 0)]
    assert not any(unload.done() for unload in unloads)
    unloads.pop().cancel()
    await asyncio.sleep(0)
    # It is gone for a moment, though the next one starts at once.
    stage.scheduler.rule = lambda event: [Start("a", 2)]
    stage.exited("a")
    await unloads[0]


async def test_unload_all(stage: Stage) -> None:
    """All that have a process, at once."""
    stage.start("a")
    stage.ready("a")
    stage.start("b")
    unloading = asyncio.ensure_future(stage.supervisor.unload_all())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert stage.scheduler.events[-2:] == [UnloadRequested("a", 3.0), UnloadRequested("b", 3.0)]
    stage.exited("b")
    stage.exited("a")
    await unloading


async def test_a_sleep_waits_until_it_is_known_how(stage: Stage) -> None:
    """That takes a moment after a start: `load` and `sleep` may follow each other."""
    stage.start("a")
    stage.ready("a")
    stage.runners["a"].rest = RestView(is_sought=True)
    sleeping = asyncio.ensure_future(stage.supervisor.sleep("a"))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    stage.runners["a"].rest = RestView(refusals={"pageout": "there is no swap"})
    stage.supervisor.post(AbilityChanged("a", False, False, "", 0))

    with pytest.raises(Conflict, match="there is no swap"):
        await sleeping


async def test_a_sleep_of_what_never_sleeps_is_refused_at_once(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is looked for where `sleepMode` is off."""
    monkeypatch.setattr("llmsnap.runtime.supervisor._ABILITY_S", 3600.0)
    stage.start("a")
    stage.ready("a")
    with pytest.raises(Conflict, match="sleepMode is off"):
        await stage.supervisor.sleep("a")


async def test_a_stalled_process_is_ended(stage: Stage) -> None:
    """Only the generation that stalled, and only while it is ready."""
    stage.start("a")
    stage.supervisor.stalled("a", 1)
    stage.ready("a")
    stage.supervisor.stalled("a", 0)
    assert stage.runners["a"].orders == [("start", 1)]
    stage.supervisor.stalled("a", 1)
    error = stage.runners["a"].orders[-1]
    assert isinstance(error, LlmsnapError)
    assert "stallTimeout" in str(error)


async def test_a_deaf_process_is_told_of(stage: Stage) -> None:
    """Only the generation that is, and only while it is ready."""
    stage.start("a")
    stage.supervisor.deaf("a", 1)
    stage.ready("a")
    stage.supervisor.deaf("a", 0)
    assert not any(isinstance(event, ModelDeaf) for event in stage.scheduler.events)
    stage.supervisor.deaf("a", 1)
    assert stage.scheduler.events[-1] == ModelDeaf("a", 1)


async def test_shutdown_returns_when_every_child_is_gone(stage: Stage) -> None:
    """Not before, and it ends the background tasks."""
    stage.start("a")
    stage.ready("a")
    stage.background.spawn(asyncio.sleep(60), name="x")
    closing = asyncio.ensure_future(stage.supervisor.shutdown(5))
    await eventually(lambda: stage.scheduler.events[-1] == ShutdownRequested(5))
    assert not closing.done()
    stage.exited("a")
    await closing
    assert len(stage.background) == 0


async def test_u66_a_second_shutdown_means_now(stage: Stage) -> None:
    """The grace is over, and every child is killed."""
    stage.start("a")
    stage.ready("a")
    first = asyncio.ensure_future(stage.supervisor.shutdown(60))
    await asyncio.sleep(0)
    assert stage.runners["a"].orders == [("start", 1)]
    second = asyncio.ensure_future(stage.supervisor.shutdown(60))
    await asyncio.sleep(0)
    assert stage.scheduler.events[-1] == ShutdownRequested(0)
    assert stage.runners["a"].orders[-1] == "kill"
    stage.exited("a")
    await first
    await second


async def test_what_never_ends_is_left_behind_in_the_end(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Shutdown is bounded; the log names the process."""
    monkeypatch.setattr("llmsnap.runtime.supervisor._LAST_KILL_S", 0.05)
    stage.runners["a"].unload_timeout_s = stage.runners["b"].unload_timeout_s = 0
    stage.start("a")
    stage.ready("a")
    async with asyncio.timeout(30):
        await stage.supervisor.shutdown(0)
    assert stage.runners["a"].orders[-1] == "kill"
    assert "pid [42]" in caplog.text


async def test_a_bug_ends_everything_in_order(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    """History in the log, clients told, processes ended, `fatal` set, shutdown still works."""
    stage.may_fail = True
    stage.start("a")
    stage.ready("a")
    waiter = asyncio.ensure_future(stage.supervisor.load("b"))
    unloader = asyncio.ensure_future(stage.supervisor.unload("a"))
    await asyncio.sleep(0)

    def broken(event: Event) -> Sequence[Action]:
        raise AssertionError("books don't match")

    stage.scheduler.rule = broken
    with caplog.at_level(logging.CRITICAL):
        stage.supervisor.post(Tick())
    assert str(stage.supervisor.fatal.result()) == "books don't match"
    assert "RequestArrived" in caplog.text
    assert "Traceback" in caplog.text
    for task in (waiter, unloader):
        with pytest.raises(ServiceUnavailable, match="internal error"):
            await task
    assert stage.runners["a"].orders[-1] == "stop"
    with pytest.raises(ServiceUnavailable):
        await stage.supervisor.load("a")
    closing = asyncio.ensure_future(stage.supervisor.shutdown(5))
    await asyncio.sleep(0)
    stage.exited("a")
    await closing


async def test_orders_that_wait_for_a_state_end_with_a_bug(stage: Stage) -> None:
    """No state changes any more: `release` and `sleep` are answered, also when asked only now."""
    stage.may_fail = True
    stage.start("a")
    stage.ready("a")
    stage.runners["a"].rest = RestView(driver="cuda")
    stage.scheduler.held = math.inf, False

    def falls_asleep(event: Event) -> Sequence[Action]:
        if isinstance(event, SleepRequested):
            stage.scheduler.show("a", State.SLEEPING)
        return ()

    stage.scheduler.rule = falls_asleep
    releasing = asyncio.ensure_future(release(stage.supervisor, ReleaseRequested()))
    sleeping = asyncio.ensure_future(stage.supervisor.sleep("a"))
    await asyncio.sleep(0)
    stage.scheduler.rule = lambda event: [Stop("nobody", 1)]
    stage.supervisor.post(Tick())
    late = asyncio.ensure_future(release(stage.supervisor, ReleaseRequested()))
    for order in (releasing, sleeping, late):
        with pytest.raises(ServiceUnavailable, match="internal error"):
            await asyncio.wait_for(order, 30)


async def test_an_action_that_fails_is_a_bug_too(stage: Stage) -> None:
    """An order for a model without a runner can't be carried out."""
    stage.may_fail = True
    stage.scheduler.rule = lambda event: [Stop("nobody", 1)]
    stage.supervisor.post(Tick())
    assert isinstance(stage.supervisor.fatal.result(), KeyError)
