"""One model's server: each generation of it is one task."""

from __future__ import annotations

import asyncio
from functools import partial

from llmsnap.core.lifecycle import Trigger
from llmsnap.core.messages import ModelChanged, ModelGoing
from llmsnap.errors import LlmsnapError, StartFailed
from llmsnap.runtime.adoption import Heirloom
from llmsnap.runtime.life import Life, Outcome, Tools
from llmsnap.runtime.plan import Endpoint, Plan
from llmsnap.runtime.rest import Chooses, RestView
from llmsnap.runtime.sayings import Sayings
from llmsnap.runtime.upstream import Upstream


class Runner:
    """Runs one model's server.

    The task lives as long as the process: to start is to spawn it, to stop is to cancel it.
    Whichever way it ends, it reports EXITED once, when nothing of the process is left.
    """

    def __init__(self, plan: Plan, tools: Tools, *, chooser: Chooses | None = None) -> None:
        self.plan = plan
        self._tools = tools
        self._chooser = chooser
        self._life: Life | None = None
        self._task: asyncio.Task[Outcome] | None = None
        self._rest = RestView()
        self._said = Sayings(plan.model)
        self._blame: LlmsnapError | None = None
        """Why the task was cancelled, when not by an order to stop."""

    @property
    def unload_timeout_s(self) -> float:
        """How long running answers may go on when the model is unloaded."""
        return self.plan.grace_s

    @property
    def end_timeout_s(self) -> float:
        """How long its process may take to end."""
        return self.plan.grace_s + self._tools.conversations.before_stop_s

    @property
    def upstream(self) -> Upstream | None:
        """Where the present generation listens; None until it is ready."""
        return self._life.upstream if self._life else None

    @property
    def place(self) -> Endpoint:
        """Where the present process is to listen, or else the next one."""
        plan = self._life.plan if self._life else self.plan
        return plan.endpoint

    @property
    def pid(self) -> int | None:
        """The present process; None when there is none."""
        return self._life.pid if self._life else None

    @property
    def rest(self) -> RestView:
        """How the present generation sleeps, or else the last one did."""
        rest = self._life.rest if self._life else None
        return rest.view if rest else self._rest

    @property
    def alive(self) -> bool:
        """Whether a generation has begun whose EXITED hasn't been reported."""
        return self._task is not None

    @property
    def outlives_us(self) -> bool:
        """Whether the present process can be left to the next proxy."""
        return self._life is not None and self._life.outlives_us

    def adopt(self, plan: Plan, chooser: Chooses | None) -> None:
        """Go by other settings: for the present process if it is as they say, else for the next."""
        self.plan, self._chooser = plan, chooser
        if self._life is not None and self._life.plan.same_process(plan):
            self._life.adopt(plan, chooser)

    def start(self, generation: int, heirloom: Heirloom | None = None) -> None:
        """Begin generation number `generation`, or go on with it where an earlier proxy ended."""
        assert self._task is None, f"{self.plan.model}: two generations at once"
        self._blame = None
        self._life = Life(self.plan, generation, self._tools, self._chooser, heirloom, self._said)
        name = f"{self.plan.model}#{generation}"
        self._task = self._tools.background.spawn(self._life.run(), name=name)
        self._task.add_done_callback(partial(self._ended, generation))

    def stop(self, *, now: bool = False) -> None:
        """End the present generation; `now` skips the grace, or what is left of it."""
        if self._task is None or self._life is None:
            return
        if now:
            self._life.hurried = True
        if now or not self._task.cancelling():
            self._task.cancel()

    def leave(self) -> None:
        """Have done with the present process, which goes on without us; nothing is reported."""
        if self._task is not None and self._life is not None:
            self._life.is_left = True
            self._task.cancel()

    def fail(self, error: LlmsnapError) -> None:
        """End the present generation because of `error`, which its EXITED carries."""
        if self._task is None or self._life is None or self._task.cancelling():
            return
        self._blame = error
        self._life.is_sound = False
        self._task.cancel()
        self._tools.report(ModelGoing(self.plan.model, self._life.generation, error))

    def sleep(self, *, anyway: bool = True) -> None:
        """Put the process to sleep; SLEPT follows, WOKEN when it stays up, or EXITED.

        Not `anyway`: it stays up if a stop and a start bring it back quicker.
        """
        if self._life is not None:
            self._life.sleep(partial(self._fail_of, self._life), anyway=anyway)

    def page_out(self) -> None:
        """Move the sleeping process on to the lower tier; PAGED follows, SLEPT, or EXITED."""
        if self._life is not None:
            self._life.page_out(partial(self._fail_of, self._life))

    def wake(self) -> None:
        """Wake the process; WOKEN follows, SLEPT when it sleeps on, or EXITED when that fails."""
        if self._life is not None:
            self._life.wake(partial(self._fail_of, self._life))

    def _fail_of(self, life: Life, error: LlmsnapError) -> None:
        if life is self._life:  # else the word is of a process that is gone
            self.fail(error)

    def _ended(self, generation: int, task: asyncio.Task[Outcome]) -> None:
        # A done callback, not a `finally`: a task cancelled before its first step has none.
        self._task = None
        life, model = self._life, self.plan.model
        self._rest = self.rest
        if life is not None and life.is_left:
            return
        if task.cancelled():
            outcome = Outcome((life.spared if life else None) or self._blame)
        elif (bug := task.exception()) is not None:
            outcome = Outcome(StartFailed(f"model {model!r}: {type(bug).__name__}: {bug}"))
        else:
            outcome = task.result()
        self._tools.report(
            ModelChanged(
                model,
                generation,
                Trigger.EXITED,
                outcome.error,
                oom=outcome.oom,
                exit_code=outcome.exit_code,
            )
        )
        if self._life is life:  # else the report has begun the next one
            self._life = None
