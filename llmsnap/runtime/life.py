"""One generation of one model's server: a process from launch to exit."""

from __future__ import annotations

import asyncio
import logging
import secrets
import signal
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any, Final

from llmsnap.config.secrets import blank_argv
from llmsnap.core.lifecycle import Trigger
from llmsnap.core.messages import AbilityChanged, ModelChanged, ModelGoing
from llmsnap.errors import LlmsnapError, StartFailed, UpstreamLost
from llmsnap.memory.oomkills import oom_kills
from llmsnap.runtime.adoption import Heirloom, effect_of, seen_of
from llmsnap.runtime.conversations import Conversations, NoConversations, Talks
from llmsnap.runtime.health import Prober, until_ready
from llmsnap.runtime.logfile import LogFile, Output
from llmsnap.runtime.logs import LogBuffer, LogPipe, SecretFilter, last_lines
from llmsnap.runtime.oom import ran_out_of_memory
from llmsnap.runtime.plan import Plan
from llmsnap.runtime.ports import taken
from llmsnap.runtime.process import Child, Command, Farewell, describe_exit, end, gave_code, launch
from llmsnap.runtime.rest import Chooses, Rest, Start
from llmsnap.runtime.runfile import RunFiles, Will
from llmsnap.runtime.sayings import Sayings
from llmsnap.runtime.tasks import Background, race
from llmsnap.runtime.upstream import Upstream
from llmsnap.sleep.choose import NEVER, Choice
from llmsnap.telemetry.contexts import Context

logger = logging.getLogger(__name__)

_TAIL_BYTES: Final = 8 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Tools:
    """What all runners of one proxy share."""

    report: Callable[[ModelChanged | ModelGoing | AbilityChanged], None]
    background: Background
    prober: Prober
    files: RunFiles
    write_log: Callable[[str, bytes], None]
    """Takes a model's id and what its process printed."""
    oom_kills: Callable[[], int | None] = oom_kills
    """Counts the processes that the kernel has ended because memory ran out."""
    context: Callable[[str], Context] = lambda _: Context()
    """What a model has in its KV cache, as far as is known."""
    conversations: Conversations = field(default_factory=NoConversations)
    lasting: bool = False
    """Whether processes are to outlive this proxy."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """Why a generation ended; no error when it was told to."""

    error: LlmsnapError | None = None
    oom: bool = False
    exit_code: int | None = None
    """As the process gave it; None: a signal ended it, or nobody was told."""


class Life:
    """Runs one process. Who cancels `run` ends it; who cancels again skips the grace."""

    def __init__(
        self,
        plan: Plan,
        generation: int,
        tools: Tools,
        chooser: Chooses | None = None,
        heirloom: Heirloom | None = None,
        said: Sayings | None = None,
    ) -> None:
        """With an `heirloom` it is up, or asleep, from the start."""
        self.plan = plan
        self.generation = generation
        self.pid: int | None = None
        self.upstream: Upstream | None = None
        """Where it listens, from READY on."""
        self.hurried = False
        """Set to end it without a grace."""
        self.is_sound = True
        """Cleared when something is wrong with it, so that nothing of it is worth keeping."""
        self.is_left = False
        """Set to leave its process to the next proxy when `run` is cancelled."""
        self.spared: LlmsnapError | None = None
        """Set when `run` was cancelled before its process had ended, which mustn't be killed."""
        self.rest: Rest | None = None
        """How it sleeps, from READY on; None: not at all."""
        self.outlives_us = False
        """Whether its process goes on when this one ends."""
        self._tools = tools
        self._chooser = chooser
        self._said = said
        self._kills_before: int | None = None
        self._launched_at = 0.0
        self._start_s = 0.0
        """From launch to ready."""
        self._heirloom = heirloom
        self._mark = heirloom.child.mark if heirloom else secrets.token_hex(16)
        self._tail = LogBuffer(_TAIL_BYTES)
        self._log = SecretFilter(plan.secrets, self._write_log)
        if heirloom is not None:
            self._inherit(heirloom)

    async def run(self) -> Outcome:
        """Run the process from launch to exit; return why it ended by itself."""
        code: int | None = None
        output = self._output()
        try:
            child = await self._child(output)
            try:
                if self._heirloom is None:
                    self._introduce(child)
                error, code = await self._serve(child)
            finally:
                await self._end(child)
        except StartFailed as failure:
            error = StartFailed(f"model {self.plan.model!r} can't start: {failure}")
        finally:
            output.close()
            self._log.flush()
            if self.pid is None:  # it never came to be, but its log did
                self._tools.files.remove(self._mark)
        return self._outcome(error, code)

    def adopt(self, plan: Plan, chooser: Chooses | None) -> None:
        """Go by other settings, of how it sleeps, ends and the like."""
        self.plan, self._chooser = plan, chooser
        if self.rest is not None:
            self.rest.adopt(chooser or NEVER)
        elif self.upstream is not None and self.pid is not None:
            self._find_rest(self.pid, self.upstream.host)

    def sleep(self, failed: Callable[[LlmsnapError], None], *, anyway: bool) -> None:
        """Begin to put the process to sleep: SLEPT or WOKEN is reported, or `failed` is called.

        Not `anyway`: only if that is worth it.
        """
        assert self.rest is not None
        self.rest.sleep(failed, anyway=anyway)

    def page_out(self, failed: Callable[[LlmsnapError], None]) -> None:
        """Begin to page out what sleeps: PAGED or SLEPT is reported, or `failed` is called."""
        assert self.rest is not None
        self.rest.page_out(failed)

    def wake(self, failed: Callable[[LlmsnapError], None]) -> None:
        """Begin to wake the process: WOKEN or SLEPT is reported, or `failed` is called."""
        assert self.rest is not None
        self.rest.wake(failed)

    def _inherit(self, heirloom: Heirloom) -> None:
        child, will = heirloom.child, heirloom.will
        self.pid, self.outlives_us = child.pid, True
        self._kills_before = self._tools.oom_kills()
        self._come_up(child, will.host)
        self._start_s = will.start_s
        self._find_rest(child.pid, will.host, heirloom.asleep)

    def _output(self) -> Output:
        """Return what the process prints to: a file, if it is to outlive us."""
        if self._tools.lasting or self._heirloom is not None:
            try:
                file = LogFile(self._tools.files.log_path(self._mark), self._log.write)
            except OSError as error:
                text = "its process won't outlive llmsnap, because its log can't be made"
                logger.warning("model %s: %s: %s", self.plan.model, text, error)
            else:
                self.outlives_us = True
                return file
        return LogPipe(self._log.write)

    async def _child(self, output: Output) -> Child:
        """Return the running process."""
        if self._heirloom is not None:
            output.close_write_end()
            return self._heirloom.child
        await self._claim_port()
        return await self._launch(output)

    async def _claim_port(self) -> None:
        endpoint = self.plan.endpoint
        if (trouble := await taken(endpoint.host, endpoint.port)) is not None:
            raise StartFailed(trouble)

    async def _launch(self, output: Output) -> Child:
        plan = self.plan
        self._kills_before = self._tools.oom_kills()
        self._launched_at = asyncio.get_running_loop().time()
        child = await launch(
            Command(argv=plan.argv, env=plan.env),
            output=output.write_end,
            mark=self._mark,
            death_signal=signal.SIGKILL if plan.kill else plan.stop_signal,
            lasting=self.outlives_us,
        )
        output.close_write_end()
        return child

    def _introduce(self, child: Child) -> None:
        """Make the new process known, here and to the proxy that comes after us."""
        plan, tools = self.plan, self._tools
        self.pid = child.pid
        if self._chooser is not None:
            tools.background.spawn(self._chooser.prepare(), name=f"{plan.model} prepares to sleep")
        tools.files.add(
            child,
            model=plan.model,
            command=blank_argv(plan.argv),
            stop_signal=plan.stop_signal,
            kill=plan.kill,
            will=Will(effect=effect_of(plan), generation=self.generation)
            if self.outlives_us
            else None,
        )
        self.outlives_us = self.outlives_us and tools.files.is_noted(self._mark)

    async def _serve(self, child: Child) -> tuple[LlmsnapError, int | None]:
        """Report READY in time; return how it ended, with the code if by itself."""
        model = self.plan.model
        if self._heirloom is None and (failed := await self._start(child)) is not None:
            return failed
        code = await child.wait()
        error = UpstreamLost(f"model {model!r} ended by itself: {describe_exit(code)}")
        # What is left of its group may take its time to end: nobody is to be sent there meanwhile.
        self._tools.report(ModelGoing(model, self.generation, error))
        return error, code

    async def _start(self, child: Child) -> tuple[StartFailed, int | None] | None:
        """Report READY in time, or return why it doesn't come to that."""
        model, limit_s = self.plan.model, self.plan.start_timeout_s
        try:
            async with asyncio.timeout(limit_s or None):
                host = await race(self._ready_host(child), _exit_of(child))
        except TimeoutError:
            text = f"not ready after {limit_s:g} s: {self.plan.check_path} never answered 200"
            return StartFailed(f"model {model!r}: {text}; raise `startTimeout`?"), None
        if host is None or child.exit_code is not None:
            code = await child.wait()
            text = f"{describe_exit(code)} before it was ready"
            return StartFailed(f"model {model!r}: {text}"), code
        self._start_s = asyncio.get_running_loop().time() - self._launched_at
        self._come_up(child, host)
        if self.outlives_us:
            self._record(state="ready", host=host, start_s=self._start_s, seen=seen_of(child.pid))
        self._tools.report(ModelChanged(model, self.generation, Trigger.READY))
        self._find_rest(child.pid, host)
        return None

    def _come_up(self, child: Child, host: str) -> None:
        plan, place = self.plan, self.plan.endpoint
        self.upstream = Upstream(
            model=plan.model,
            generation=self.generation,
            host=host,
            port=place.port,
            base_path=place.base_path,
            tls=place.tls,
            pid=child.pid,
            key=place.key,
        )
        adopted = self._heirloom is not None
        self._tools.conversations.ready(self.upstream, plan.argv, plan.env, adopted=adopted)

    def _find_rest(self, pid: int, host: str, asleep: Choice | None = None) -> None:
        if self._chooser is None or self.upstream is None:
            return
        tools = self._tools
        self.rest = Rest(
            self.plan.target(self.generation, pid, host),
            self._chooser,
            tools.background,
            tools.report,
            start=Start(self._start_s, tools.context),
            record=self._record,
            talks=Talks(tools.conversations, self.upstream),
            said=self._said,
            asleep=asleep,
        )

    def _record(self, **changes: Any) -> None:
        """Take down how its process is, for the next proxy."""
        self._tools.files.change(self._mark, **changes)

    async def _ready_host(self, child: Child) -> str | None:
        plan = self.plan
        return await until_ready(child, plan.endpoint, plan.check_path, self._tools.prober)

    async def _end(self, child: Child) -> None:
        if self.is_left:
            if self.rest is not None:
                self.rest.close()
            child.let_go()
            return
        try:
            await self._keep_conversations(child)
        finally:  # also when told again to hurry
            await self._end_now(child)

    async def _keep_conversations(self, child: Child) -> None:
        """Let what it has in its cache be saved, if it is as it should be and awake."""
        process, conversations = self.upstream, self._tools.conversations
        if process is None or child.exit_code is not None or not self.is_sound or self.hurried:
            return
        is_awake = self.rest is None or self.rest.stay_up()
        if not is_awake and self.rest is not None and conversations.is_worth_waking(process):
            is_awake = await self.rest.wake_once_more(conversations.wake_s)
        if is_awake:
            await conversations.before_stop(process)

    async def _end_now(self, child: Child) -> None:
        plan, at_once = self.plan, self.hurried
        if self.rest is not None:
            # What sleeps can't obey a signal, nor tidy up: only SIGKILL reaches it.
            at_once = at_once or self.rest.must_be_killed
            self.rest.close()
        how = Farewell(
            grace_s=0 if at_once and plan.kill else plan.grace_s,
            signum=plan.stop_signal,
            kill=plan.kill,
            stop_argv=plan.stop_argv,
            output=self._log.write,
        )
        try:
            await end(child, how)
        finally:
            if not plan.kill and (pids := child.family()):
                self.spared = _spared(plan, pids)
        self._tools.files.remove(self._mark)

    def _outcome(self, error: LlmsnapError, code: int | None) -> Outcome:
        output = self._tail.history()
        oom = code is not None and ran_out_of_memory(
            code, output.decode(errors="replace"), kernel_kills=self._kernel_kills()
        )
        if tail := last_lines(output):
            error = type(error)(f"{error}; last output:\n{tail}")
        return Outcome(error, oom, code if code is not None and gave_code(code) else None)

    def _kernel_kills(self) -> int | None:
        """Return how many processes the kernel has ended since the launch; None: unknown."""
        now = self._tools.oom_kills()
        return None if now is None or self._kills_before is None else now - self._kills_before

    def _write_log(self, data: bytes) -> None:
        self._tail.write(data)
        self._tools.write_log(self.plan.model, data)


async def _exit_of(child: Child) -> None:
    await child.wait()


def _spared(plan: Plan, pids: Collection[int]) -> LlmsnapError:
    named = ", ".join(map(str, sorted(pids)))
    return UpstreamLost(
        f"model {plan.model!r}: pid {named} doesn't end, and `kill: false` spares it: it keeps its "
        f"memory and port {plan.endpoint.port} until you end it"
    )
