"""What is in the way of a model's start, found out before anybody has to leave for it.

A model whose file isn't there, or not to its end, can't say what it needs, so that it would load
alone: each try would put out everybody, and fail. Nor can one start whose port a stranger has.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final, Protocol

from llmsnap.config.engine import server_word
from llmsnap.core.lifecycle import State
from llmsnap.core.messages import Event, LackChanged, ModelView
from llmsnap.errors import LlmsnapError, ModelIncomplete, PortTaken, StartFailed
from llmsnap.memory.llama_files import cut_off, missing_files
from llmsnap.runtime.plan import Endpoint, Plan
from llmsnap.runtime.ports import is_written_as_ours, taken
from llmsnap.runtime.process import Command, find_program
from llmsnap.runtime.tasks import Background

logger = logging.getLogger(__name__)

Lacks = Mapping[str, LlmsnapError]
"""Why models can't start, by their names; others lack nothing that is known."""

_PATIENCE_S: Final = 2.0
"""How long a disk, or a port, may take to answer; what it doesn't say is as it was."""
_AGAIN_S: Final = 10.0
"""Between two looks at what is lacking while nobody asks: a pinned model is to load by itself."""


def lack_of(plan: Plan, *, headers: bool = True) -> LlmsnapError | None:
    """Return why a start is bound to fail, or None. Reads the disk.

    `headers`: whether those of model files are read, too, to see whether the files are whole.
    """
    try:
        program = find_program(Command(argv=plan.argv, env=plan.env))
    except StartFailed as error:
        return ModelIncomplete(f"model {plan.model!r} can't start: {error}")
    # Behind a wrapper, or in a script, paths may mean something else.
    if server_word(plan.argv) == plan.argv[0] and not _is_shell_script(program):
        for path in missing_files(plan.argv, plan.env):
            text = f"its file {path!r} isn't there; fetch it, or correct its path in `cmd`"
            return ModelIncomplete(f"model {plan.model!r} can't start: {text}")
        if headers and (fault := cut_off(plan.argv, plan.env)):
            return ModelIncomplete(f"model {plan.model!r} can't start: its file {fault}")
    return None


async def lacks_of(plans: Iterable[Plan]) -> Lacks:
    """Return which of `plans` are bound to fail; none where the disk doesn't answer in time.

    Whether their files are whole is left to be seen when they are wanted: many take long to read.
    """

    def look() -> dict[str, LlmsnapError]:
        lacks = ((plan.model, lack_of(plan, headers=False)) for plan in plans)
        return {model: lack for model, lack in lacks if lack is not None}

    try:
        async with asyncio.timeout(_PATIENCE_S):
            return await asyncio.to_thread(look)
    except TimeoutError:
        return {}


class Runs(Protocol):
    """What is needed of a runner."""

    @property
    def plan(self) -> Plan: ...

    @property
    def place(self) -> Endpoint: ...

    @property
    def alive(self) -> bool: ...


async def _nothing(_: str) -> None:
    pass


class Looks:
    """Looks at disk and port for each request whose model has no process; tells the scheduler.

    `runners` run the models, by name. `lacks` are known already.
    """

    def __init__(self, runners: Mapping[str, Runs], background: Background, lacks: Lacks) -> None:
        self._post: Callable[[Event], None] = lambda _: None
        self._found: Callable[[str], Awaitable[None]] = _nothing
        self._runners = runners
        self._background = background
        self._lacks: dict[str, LlmsnapError] = {}
        self._under_way: dict[str, asyncio.Task[None]] = {}
        self._watch: asyncio.Task[None] | None = None
        self.take(lacks)

    def report_to(
        self, post: Callable[[Event], None], found: Callable[[str], Awaitable[None]]
    ) -> None:
        """Have `post` take what changes; `found` is awaited when a model has what it lacked."""
        self._post, self._found = post, found

    def take(self, lacks: Lacks) -> None:
        """Take in what was found out of all models, which the scheduler knows already."""
        for model, lack in lacks.items():
            self._note(model, lack)
        self._lacks = dict(lacks)

    def before(self, model: str) -> Awaitable[object] | None:
        """Return what is to be waited for before `model` is asked for; None: it has a process."""
        runner = self._runners.get(model)
        if runner is None or runner.alive:
            return None
        return asyncio.wait([self._look(model)])

    def follow(self, view: ModelView, _: State) -> None:
        """Look why a start has failed: a pinned model isn't to try again and again in vain."""
        if view.state is State.FAILED:
            self._look(view.model)

    def _look(self, model: str) -> asyncio.Task[None]:
        """Return the look at `model` that is under way, or begin one."""
        look = self._under_way.get(model)
        if look is None:
            name = f"look for what {model} needs to start"
            look = self._under_way[model] = self._background.spawn(self._see(model), name=name)
            look.add_done_callback(lambda _: self._under_way.pop(model))
        return look

    async def _see(self, model: str) -> None:
        if (runner := self._runners.get(model)) is None:
            return
        try:
            async with asyncio.timeout(_PATIENCE_S):
                lack = await asyncio.to_thread(lack_of, runner.plan)
                if lack is None:
                    lack = await self._stranger(runner.plan)
        except TimeoutError:
            return
        if lack is not None:
            self._note(model, lack)
            self._post(LackChanged(model, lack))
        elif model in self._lacks:
            await self._found(model)
            logger.info("model %s: what was in its way is no longer", model)
            self._lacks.pop(model, None)
            self._post(LackChanged(model, None))

    async def _stranger(self, plan: Plan) -> LlmsnapError | None:
        """Return that another program has the port; only what certainly none of our own has."""
        place = plan.endpoint
        if not is_written_as_ours(place.host) or self._is_ours(place.port):
            return None
        trouble = await taken(place.host, place.port)
        if trouble is None or self._is_ours(place.port):  # one may have begun meanwhile
            return None
        return PortTaken(f"model {plan.model!r} can't start: {trouble}")

    def _is_ours(self, port: int) -> bool:
        """Whether a model with a process listens there, or may: it is gone by the time of need."""
        runners = self._runners.values()
        return any(one.alive and one.place.port == port for one in runners)

    def _note(self, model: str, lack: LlmsnapError) -> None:
        if str(lack) != str(self._lacks.get(model)):
            logger.warning("%s", lack)
        self._lacks[model] = lack
        if self._watch is None or self._watch.done():
            self._watch = self._background.spawn(self._look_again(), name="look again for lacks")

    async def _look_again(self) -> None:
        while self._lacks:
            await asyncio.sleep(_AGAIN_S)
            for model in list(self._lacks):
                if model not in self._runners:
                    del self._lacks[model]
                else:
                    await asyncio.wait([self._look(model)])


def _is_shell_script(program: str) -> bool:
    try:
        with open(program, "rb") as file:
            line = file.readline(128)
    except OSError:
        return False
    return line.startswith(b"#!") and b"sh" in line
