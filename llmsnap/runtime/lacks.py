"""What a model lacks on disk, found out before anybody has to leave for it.

A model whose file isn't there can't say what it needs, so that it would load alone: each try would
put out everybody, and fail.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final, Protocol

from llmsnap.config.engine import server_word
from llmsnap.core.messages import Event, LackChanged
from llmsnap.errors import LlmsnapError, ModelIncomplete, StartFailed
from llmsnap.memory.llama_files import missing_files
from llmsnap.runtime.plan import Plan
from llmsnap.runtime.process import Command, find_program
from llmsnap.runtime.tasks import Background

logger = logging.getLogger(__name__)

Lacks = Mapping[str, LlmsnapError]
"""Why models can't start, by their names; others lack nothing that is known."""

_PATIENCE_S: Final = 2.0
"""How long a disk may take to say what is there; what it doesn't say is as it was."""
_AGAIN_S: Final = 10.0
"""Between two looks at what is lacking while nobody asks: a pinned model is to load by itself."""


def lack_of(plan: Plan) -> LlmsnapError | None:
    """Return why a start is bound to fail, or None. Reads the disk."""
    try:
        program = find_program(Command(argv=plan.argv, env=plan.env))
    except StartFailed as error:
        return ModelIncomplete(f"model {plan.model!r} can't start: {error}")
    # Behind a wrapper, or in a script, paths may mean something else.
    if server_word(plan.argv) == plan.argv[0] and not _is_shell_script(program):
        for path in missing_files(plan.argv, plan.env):
            text = f"its file {path!r} isn't there; fetch it, or correct its path in `cmd`"
            return ModelIncomplete(f"model {plan.model!r} can't start: {text}")
    return None


async def lacks_of(plans: Iterable[Plan]) -> Lacks:
    """Return which of `plans` are bound to fail; none where the disk doesn't answer in time."""

    def look() -> dict[str, LlmsnapError]:
        return {plan.model: lack for plan in plans if (lack := lack_of(plan)) is not None}

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
    def alive(self) -> bool: ...


async def _nothing(_: str) -> None:
    pass


class Looks:
    """Looks at the disk for each request whose model has no process, and tells the scheduler.

    `runner` returns what runs a model; None: there is no such model. `lacks` are known already.
    """

    def __init__(
        self, runner: Callable[[str], Runs | None], background: Background, lacks: Lacks
    ) -> None:
        self._post: Callable[[Event], None] = lambda _: None
        self._found: Callable[[str], Awaitable[None]] = _nothing
        self._runner = runner
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
        runner = self._runner(model)
        if runner is None or runner.alive:
            return None
        return asyncio.wait([self._look(model)])

    def _look(self, model: str) -> asyncio.Task[None]:
        """Return the look at `model` that is under way, or begin one."""
        look = self._under_way.get(model)
        if look is None:
            name = f"look for the files of {model}"
            look = self._under_way[model] = self._background.spawn(self._see(model), name=name)
            look.add_done_callback(lambda _: self._under_way.pop(model))
        return look

    async def _see(self, model: str) -> None:
        if (runner := self._runner(model)) is None:
            return
        try:
            async with asyncio.timeout(_PATIENCE_S):
                lack = await asyncio.to_thread(lack_of, runner.plan)
        except TimeoutError:
            return
        if lack is not None:
            self._note(model, lack)
            self._post(LackChanged(model, lack))
        elif model in self._lacks:
            await self._found(model)
            logger.info("model %s: what it lacked is there now", model)
            self._lacks.pop(model, None)
            self._post(LackChanged(model, None))

    def _note(self, model: str, lack: LlmsnapError) -> None:
        if str(lack) != str(self._lacks.get(model)):
            logger.warning("%s", lack)
        self._lacks[model] = lack
        if self._watch is None or self._watch.done():
            self._watch = self._background.spawn(self._look_again(), name="look for files")

    async def _look_again(self) -> None:
        while self._lacks:
            await asyncio.sleep(_AGAIN_S)
            for model in list(self._lacks):
                if self._runner(model) is None:
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
