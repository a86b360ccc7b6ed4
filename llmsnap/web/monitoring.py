"""What monitors ask of a model's server, answered without loading, waking or using the model."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final

from aiohttp import hdrs

from llmsnap.core.lifecycle import State
from llmsnap.core.messages import NO_WAIT, ModelView
from llmsnap.errors import Conflict, GatewayTimeout, LlmsnapError
from llmsnap.runtime.upstream import Upstream
from llmsnap.web.delivery import Manner
from llmsnap.web.headers import Answer, timings
from llmsnap.web.order import Order
from llmsnap.web.outlet import Outlet
from llmsnap.web.question import Question
from llmsnap.web.serving import Lender
from llmsnap.web.upstream_pool import Pools

LIMIT_S: Final = 5.0
"""A server may be deaf to such questions while it computes."""
_MOST_TARGETS: Final = 16


@dataclass(frozen=True, slots=True)
class Seen:
    """A whole answer, and how it came to be."""

    answer: Answer
    body: bytes
    took_s: float
    at_s: float
    """On the loop's clock."""


class Monitoring:
    """Asks models that are up, and remembers what they said for when they aren't."""

    def __init__(self, lender: Lender, pools: Pools) -> None:
        self.lender = lender
        self._pools = pools
        self._loop = asyncio.get_running_loop()
        self._seen: dict[str, dict[bytes, Seen]] = {}
        self._asking: dict[str, set[Question]] = {}

    async def answer(self, order: Order, outlet: Outlet, manner: Manner) -> None:
        """Answer with what the model says now, else with what it said last.

        Without either it raises Conflict when the model isn't up, BadGateway or GatewayTimeout when
        it is.
        """
        model = manner.model
        trouble: LlmsnapError = Conflict(
            f"model {model!r} isn't up, and this is no reason to load it"
        )
        if (upstream := self.lender.upstream(model)) is not None:
            try:
                seen = await self._ask(order, upstream)
            except LlmsnapError as error:
                trouble = error
            else:
                self._keep(order, model, seen)
                _deliver(order, outlet, manner, seen)
                return
        last = self._seen.get(model, {}).get(order.target)
        if last is None:
            raise trouble
        _deliver(order, outlet, manner, last, age_s=self._loop.time() - last.at_s)

    def follow(self, view: ModelView, _: State) -> None:
        """Give up on a model that isn't ready any more: nothing may reach it while it sleeps."""
        if view.state is not State.READY:
            for question in self._asking.get(view.model, ()):
                question.give_up("it isn't ready any more")

    async def _ask(self, order: Order, upstream: Upstream) -> Seen:
        began = self._loop.time()
        question = Question(await self._pools.of(upstream).connect())
        asking = self._asking.setdefault(upstream.model, set())
        asking.add(question)
        try:
            question.ask(order.head(upstream), is_head=order.request.method == hdrs.METH_HEAD)
            async with asyncio.timeout(LIMIT_S):
                answer, body = await question.answered
        except TimeoutError:
            raise GatewayTimeout(f"model {upstream.model!r} is too busy to say") from None
        finally:
            question.give_up("nobody waits any more")
            asking.discard(question)
        now = self._loop.time()
        return Seen(answer, body, now - began, now)

    def _keep(self, order: Order, model: str, seen: Seen) -> None:
        if seen.answer.status != 200 or order.request.method != hdrs.METH_GET:
            return
        of_model = self._seen.setdefault(model, {})
        of_model.pop(order.target, None)
        of_model[order.target] = seen
        if len(of_model) > _MOST_TARGETS:  # queries come in any number
            del of_model[next(iter(of_model))]


def _deliver(
    order: Order, outlet: Outlet, manner: Manner, seen: Seen, *, age_s: float | None = None
) -> None:
    """Write an answer out; `age_s` for one that was given so long ago."""
    is_head = order.request.method == hdrs.METH_HEAD
    timing = timings(NO_WAIT, seen.took_s)
    lines = [seen.answer.lines, manner.model_line, b"Server-Timing: ", timing, b"\r\n"]
    if b"date" not in seen.answer.noted:
        lines.append(manner.dates.line())
    if age_s is not None:
        lines.append(b"Age: %d\r\n" % age_s)
    outlet.open(
        (seen.answer.status, seen.answer.reason),
        b"".join(lines),
        size=len(seen.body),
        has_body=not is_head,
        pieces=[] if is_head else [seen.body],
        complete=True,
    )
