"""What an earlier proxy left: which processes this one can go on with. All others are ended."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from msgspec import json

from llmsnap.core.messages import Found
from llmsnap.errors import LlmsnapError, StartFailed
from llmsnap.memory.identity import telling
from llmsnap.runtime import ports
from llmsnap.runtime.health import Prober
from llmsnap.runtime.lasting import inherited
from llmsnap.runtime.plan import Plan
from llmsnap.runtime.process import Child
from llmsnap.runtime.proctable import boot_id, command_line
from llmsnap.runtime.rest import Chooses
from llmsnap.runtime.runfile import RunFiles, RunNote, Will
from llmsnap.sleep.choose import Choice

logger = logging.getLogger(__name__)

_ANSWER_S: Final = 10.0
"""How long an awake server may take to answer: it may be in the middle of something."""
_PAUSE_S: Final = 0.1


class Unfit(LlmsnapError):
    """A left-over can't be gone on with; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Heirloom:
    """A process of an earlier proxy, to be gone on with."""

    will: Will
    child: Child
    asleep: Choice | None = None
    """How it sleeps; None: it is awake."""

    def found(self, model: str) -> Found:
        """Return what the scheduler must know of it."""
        supported = self.asleep.supported if self.asleep else None
        if supported is None:
            return Found(model=model, generation=self.will.generation)
        return Found(
            model=model,
            generation=self.will.generation,
            tier=supported.tier,
            tier_bytes=supported.tier_bytes,
        )


class Adoption:
    """Looks at what dead proxies left, model by model."""

    def __init__(
        self,
        files: RunFiles,
        prober: Prober,
        plans: Mapping[str, Plan],
        choosers: Mapping[str, Chooses | None],
    ) -> None:
        self._files = files
        self._prober = prober
        self._plans = plans
        self._choosers = choosers

    async def find(self) -> dict[str, Heirloom]:
        """Return what can be gone on with, by model, once everything else is ended."""
        newest = sorted(self._files.leftovers(), key=_age, reverse=True)
        looked_at = await asyncio.gather(*(self._look_at(note, newest) for note in newest))
        return {note.model: one for note, one in zip(newest, looked_at, strict=True) if one}

    async def _look_at(self, note: RunNote, newest: Iterable[RunNote]) -> Heirloom | None:
        try:
            if note is not next(other for other in newest if other.model == note.model):
                raise Unfit("another process of its model is newer")
            heirloom = await self._take(note)
        except (Unfit, StartFailed) as why:
            await self._files.end(note, f"left by an earlier proxy: {why}")
            return None
        state = heirloom.will.state
        logger.info("model %s: going on with pid %d, which is %s", note.model, note.pid, state)
        return heirloom

    async def _take(self, note: RunNote) -> Heirloom:
        plan, will = self._plans.get(note.model), note.will
        if will is None:
            raise Unfit("it wasn't started with runtime.adopt")
        if plan is None:
            raise Unfit("its model isn't configured any more")
        if will.effect != effect_of(plan):
            raise Unfit("its command, environment or port is another now")
        if will.state not in ("ready", "asleep"):
            raise Unfit(f"it was {will.state} when that proxy ended")
        if note.boot_id != boot_id():
            raise Unfit("the machine was restarted")
        process = inherited(note.pid, note.started)
        try:
            child = Child(process, note.mark, plan.env, is_ours=False)
            if seen_of(note.pid) != will.seen:
                raise Unfit("it runs another command by now")
            await self._check_port(child, plan)
            asleep = await self._check_state(child, plan, will)
            self._files.claim(note)
            return Heirloom(will=will, child=child, asleep=asleep)
        except Unfit:
            process.let_go()
            raise

    async def _check_port(self, child: Child, plan: Plan) -> None:
        place = plan.endpoint
        addresses = await ports.local_addresses(place.host)
        if not await asyncio.to_thread(ports.listens, child.family(), addresses, place.port):
            raise Unfit(f"it doesn't listen on port {place.port} of {place.host}")

    async def _check_state(self, child: Child, plan: Plan, will: Will) -> Choice | None:
        """Return how it sleeps, by the driver's word; None: it is awake, and answers."""
        if will.state == "ready":
            await self._check_health(plan, will)
            return None
        chooser = self._choosers.get(plan.model)
        if chooser is None:
            raise Unfit("it is asleep, and its model isn't to sleep any more")
        target = plan.target(will.generation, child.pid, will.host)
        choice = await chooser.take_over(will.driver, target, will.memo)
        if choice.supported is None:
            reasons = "; ".join(f"{name}: {reason}" for name, reason in choice.refusals.items())
            raise Unfit(f"it can't be woken ({reasons})")
        return choice

    async def _check_health(self, plan: Plan, will: Will) -> None:
        if plan.check_path is None:
            return
        url = plan.endpoint.at(will.host).url(plan.check_path)
        with suppress(TimeoutError):
            async with asyncio.timeout(_ANSWER_S):
                # HTTP has no event for "ready": it can only be asked again.
                while not await self._prober.is_ready(url, key=plan.endpoint.key):  # noqa: ASYNC110
                    await asyncio.sleep(_PAUSE_S)
                return
        raise Unfit(f"{plan.check_path} didn't answer 200 within {_ANSWER_S:g} s")


def effect_of(plan: Plan) -> str:
    """Return what is another when a process of `plan` would be another one.

    Of the environment that is what the configuration adds, and what engines are known to go by: the
    rest differs between any two starts.
    """
    place = plan.endpoint
    env = sorted((telling(plan.env) | dict(plan.own_env)).items())
    return _digest([list(plan.argv), env, [place.host, place.port, place.base_path, place.tls]])


def seen_of(pid: int) -> str:
    """Return a digest of the command line of `pid`."""
    return _digest(command_line(pid))


def _digest(facts: Sequence[object]) -> str:
    return hashlib.sha256(json.encode(facts)).hexdigest()


def _age(note: RunNote) -> tuple[int, float]:
    return (note.will.generation if note.will else 0, note.started)
