"""One generation of one model's server: a process from launch to exit."""

from __future__ import annotations

import asyncio
import secrets
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from llmsnap.config.secrets import blank_argv
from llmsnap.core.lifecycle import Trigger
from llmsnap.core.messages import AbilityChanged, ModelChanged, ModelGoing
from llmsnap.errors import LlmsnapError, StartFailed, UpstreamLost
from llmsnap.memory.oomkills import oom_kills
from llmsnap.runtime.health import Prober, until_ready
from llmsnap.runtime.logs import LogBuffer, LogPipe, SecretFilter, last_lines
from llmsnap.runtime.oom import ran_out_of_memory
from llmsnap.runtime.plan import Plan
from llmsnap.runtime.ports import Holder, holder, local_addresses
from llmsnap.runtime.process import Child, Command, Farewell, describe_exit, end, launch
from llmsnap.runtime.rest import NEVER, Chooses, Rest, Start
from llmsnap.runtime.runfile import RunFiles
from llmsnap.runtime.tasks import Background, race
from llmsnap.runtime.upstream import Upstream
from llmsnap.sleep.driver import Target
from llmsnap.telemetry.contexts import Context

_TAIL_BYTES: Final = 8 * 1024
_SHOWN_COMMAND: Final = 200


class Conversations(Protocol):
    """What is to be done about them when a process is up, and before it ends."""

    @property
    def before_stop_s(self) -> float: ...

    def ready(self, process: Upstream, argv: Sequence[str], env: Mapping[str, str]) -> None: ...

    async def before_stop(self, process: Upstream) -> None: ...


class NoConversations:
    """Lets them go."""

    before_stop_s = 0.0

    def ready(self, process: Upstream, argv: Sequence[str], env: Mapping[str, str]) -> None:
        """Do nothing."""

    async def before_stop(self, process: Upstream) -> None:
        """Do nothing."""


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


@dataclass(frozen=True, slots=True)
class Outcome:
    """Why a generation ended; no error when it was told to."""

    error: LlmsnapError | None = None
    oom: bool = False


class Life:
    """Runs one process. Who cancels `run` ends it; who cancels again skips the grace."""

    def __init__(
        self, plan: Plan, generation: int, tools: Tools, chooser: Chooses | None = None
    ) -> None:
        self.plan = plan
        self.generation = generation
        self.pid: int | None = None
        self.upstream: Upstream | None = None
        """Where it listens, from READY on."""
        self.hurried = False
        """Set to end it without a grace."""
        self.is_sound = True
        """Cleared when something is wrong with it, so that nothing of it is worth keeping."""
        self.rest: Rest | None = None
        """How it sleeps, from READY on; None: not at all."""
        self._tools = tools
        self._chooser = chooser
        self._kills_before: int | None = None
        self._launched_at = 0.0
        self._mark = secrets.token_hex(16)
        self._tail = LogBuffer(_TAIL_BYTES)
        self._log = SecretFilter(plan.secrets, self._write_log)

    async def run(self) -> Outcome:
        """Run the process from launch to exit; return why it ended by itself."""
        code: int | None = None
        pipe = LogPipe(self._log.write)
        try:
            await self._claim_port()
            child = await self._launch(pipe)
            try:
                self._introduce(child)
                error, code = await self._serve(child)
            finally:
                await self._end(child)
        except StartFailed as failure:
            error = StartFailed(f"model {self.plan.model!r} can't start: {failure}")
        finally:
            pipe.close()
            self._log.flush()
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

    async def _claim_port(self) -> None:
        endpoint = self.plan.endpoint
        addresses = await local_addresses(endpoint.host)
        if (other := await holder(addresses, endpoint.port)) is not None:
            raise StartFailed(
                f"port {endpoint.port} is taken by {_describe(other)}; end that process, "
                "or give the model another port (`startPort`, `proxy`)"
            )

    async def _launch(self, pipe: LogPipe) -> Child:
        plan = self.plan
        self._kills_before = self._tools.oom_kills()
        self._launched_at = asyncio.get_running_loop().time()
        child = await launch(
            Command(argv=plan.argv, env=plan.env),
            output=pipe.write_end,
            mark=self._mark,
            death_signal=signal.SIGKILL if plan.kill else plan.stop_signal,
        )
        pipe.close_write_end()
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
        )

    async def _serve(self, child: Child) -> tuple[LlmsnapError, int | None]:
        """Report READY in time; return how it ended, with the code if by itself."""
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
        place = self.plan.endpoint
        self.upstream = Upstream(
            model=model,
            generation=self.generation,
            host=host,
            port=place.port,
            base_path=place.base_path,
            tls=place.tls,
            pid=child.pid,
            key=place.key,
        )
        self._tools.conversations.ready(self.upstream, self.plan.argv, self.plan.env)
        self._tools.report(ModelChanged(model, self.generation, Trigger.READY))
        self._find_rest(child.pid, host)
        code = await child.wait()
        error = UpstreamLost(f"model {model!r} ended by itself: {describe_exit(code)}")
        # What is left of its group may take its time to end: nobody is to be sent there meanwhile.
        self._tools.report(ModelGoing(model, self.generation, error))
        return error, code

    def _find_rest(self, pid: int, host: str) -> None:
        if self._chooser is None:
            return
        plan, tools = self.plan, self._tools
        target = Target(
            model=plan.model,
            generation=self.generation,
            pid=pid,
            argv=tuple(plan.argv),
            env=plan.env,
            host=host,
            port=plan.endpoint.port,
            base_url=plan.endpoint.at(host).url(""),
        )
        start = Start(asyncio.get_running_loop().time() - self._launched_at, tools.context)
        self.rest = Rest(target, self._chooser, tools.background, tools.report, start=start)

    async def _ready_host(self, child: Child) -> str | None:
        plan = self.plan
        return await until_ready(child, plan.endpoint, plan.check_path, self._tools.prober)

    async def _end(self, child: Child) -> None:
        try:
            await self._keep_conversations(child)
        finally:  # also when told again to hurry
            await self._end_now(child)

    async def _keep_conversations(self, child: Child) -> None:
        """Let what it has in its cache be saved, if it is as it should be and awake."""
        sleeps = self.rest is not None and self.rest.must_be_killed
        if self.upstream is None or child.exit_code is not None:
            return
        if self.is_sound and not self.hurried and not sleeps:
            await self._tools.conversations.before_stop(self.upstream)

    async def _end_now(self, child: Child) -> None:
        plan, at_once = self.plan, self.hurried
        if self.rest is not None:
            # What sleeps can't obey a signal, nor tidy up: only SIGKILL reaches it.
            at_once = at_once or self.rest.must_be_killed
            self.rest.close()
        await end(
            child,
            Farewell(
                grace_s=0 if at_once and plan.kill else plan.grace_s,
                signum=plan.stop_signal,
                kill=plan.kill,
                stop_argv=plan.stop_argv,
                output=self._log.write,
            ),
        )
        self._tools.files.remove(self._mark)

    def _outcome(self, error: LlmsnapError, code: int | None) -> Outcome:
        output = self._tail.history()
        oom = code is not None and ran_out_of_memory(
            code, output.decode(errors="replace"), kernel_kills=self._kernel_kills()
        )
        if tail := last_lines(output):
            error = type(error)(f"{error}; last output:\n{tail}")
        return Outcome(error, oom)

    def _kernel_kills(self) -> int | None:
        """Return how many processes the kernel has ended since the launch; None: unknown."""
        now = self._tools.oom_kills()
        return None if now is None or self._kills_before is None else now - self._kills_before

    def _write_log(self, data: bytes) -> None:
        self._tail.write(data)
        self._tools.write_log(self.plan.model, data)


async def _exit_of(child: Child) -> None:
    await child.wait()


def _describe(other: Holder) -> str:
    if other.pid is None:
        return "a process that can't be seen from here"
    command = " ".join(blank_argv(other.argv))
    return f"pid {other.pid} ({command[:_SHOWN_COMMAND]})"
