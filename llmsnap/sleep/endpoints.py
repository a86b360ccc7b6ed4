"""Sleep by HTTP: the calls that engines with a sleep of their own want, and the proof after them.

A 200 alone proves little. A server that can say whether it sleeps is asked, and after a wake it
must be healthy and compute something before a client's request reaches it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final

from llmsnap.errors import SleepFailed, SleepRefused, WakeFailed
from llmsnap.sleep.calls import Answer, Ask, Calls, Conversation
from llmsnap.sleep.canary import Canaries, completion, decoded
from llmsnap.sleep.driver import Memo, Moved, Supported, Target, Unsupported, Verdict
from llmsnap.sleep.recipe import Recipe

_SAYS_ASLEEP: Final = ("is_sleeping", "is_asleep", "sleeping", "asleep")


class EndpointsDriver:
    """Sleeps and wakes servers by endpoints of their own. The KV cache is lost on the way."""

    name: Final = "endpoints"
    keeps_state: Final = False
    kill_only: Final = False
    below: Final = None

    def __init__(self, recipes: Mapping[str, Recipe]) -> None:
        self._recipes = recipes
        self._slept_by: dict[str, Recipe] = {}
        self._calls = Calls()
        self._canaries = Canaries()

    def adopt(self, recipes: Mapping[str, Recipe]) -> None:
        """Go by other recipes; a server for which there is none any more wakes by its last one."""
        self._recipes = recipes

    async def probe(self, target: Target) -> Verdict:
        """Return whether the model has steps for both ways; the server isn't asked."""
        recipe = self._recipes.get(target.model)
        if recipe is None:
            return Unsupported("sleepEndpoints and wakeEndpoints aren't set")
        return Supported(tier="ram", tier_bytes=recipe.tier_bytes)

    def wake_s(self, target: Target) -> float | None:
        """Predict nothing: what its last wake took says more than could be known here."""
        return None

    async def sleep(self, target: Target) -> Moved:
        """Run the sleep steps; raise SleepFailed unless each is answered with 200 in time.

        Raises SleepRefused, before any step, when the canary isn't answered.
        """
        clock = asyncio.get_running_loop().time
        began = clock()
        recipe = self._slept_by[target.model] = self._recipes[target.model]
        talk = self._calls.to(target, SleepFailed, "sleepRequestTimeout")
        if recipe.canary:
            before = self._calls.to(target, SleepRefused, "sleepRequestTimeout")
            await self._canaries.hear(before, target, recipe)
        await talk.run("sleepEndpoints", recipe.sleep)
        if recipe.is_asleep:
            await _until_it_says(talk, recipe.is_asleep, True, recipe.sleep_limit_s)
        return Moved(seconds=clock() - began)

    async def wake(self, target: Target) -> Moved:
        """Run the wake steps, then let the server prove itself; raise WakeFailed if it doesn't."""
        clock = asyncio.get_running_loop().time
        began = clock()
        recipe = self._recipes.get(target.model) or self._slept_by[target.model]
        talk = self._calls.to(target, WakeFailed, "wakeRequestTimeout")
        await talk.run("wakeEndpoints", recipe.wake)
        if recipe.is_asleep:
            await _until_it_says(talk, recipe.is_asleep, False, recipe.wake_limit_s)
        if recipe.check_path is not None:
            url = talk.below(recipe.check_path)
            health = Ask("checkEndpoint", url, "GET", recipe.wake_limit_s)
            await talk.until(health, lambda answer: answer.status == 200)
        if recipe.canary:
            await self._canaries.compare(talk, target, recipe)
        else:
            await _compute_something(talk, recipe)
        return Moved(seconds=clock() - began)

    def memo(self, target: Target) -> Memo:
        """Return nothing: the server itself knows."""
        return {}

    async def take_over(self, target: Target, memo: Memo) -> Verdict:
        """Take charge of a server that says it sleeps; where it can't say so, it is believed."""
        recipe = self._recipes.get(target.model)
        if recipe is None:
            return Unsupported("sleepEndpoints and wakeEndpoints aren't set any more")
        if recipe.is_asleep:
            talk = self._calls.to(target, WakeFailed, "wakeRequestTimeout")
            try:
                ask = _question(talk, recipe.is_asleep, recipe.wake_limit_s)
                if not _meaning(talk, ask, await talk.ask(ask)):
                    return Unsupported("it says that it doesn't sleep")
            except WakeFailed as failure:
                return Unsupported(str(failure))
        return Supported(tier="ram", tier_bytes=recipe.tier_bytes)

    async def aclose(self) -> None:
        """Close the client; sleeping servers stay as they are."""
        await self._calls.aclose()


def says_asleep(text: str) -> bool | None:
    """Return what an answer means: `true`, `false`, or an object with `is_sleeping`; None: neither.

    `is_asleep`, `sleeping` and `asleep` will do as well.
    """
    value = decoded(text)
    if isinstance(value, dict):
        value = next((value[key] for key in _SAYS_ASLEEP if key in value), None)
    return value if isinstance(value, bool) else None


async def _until_it_says(talk: Conversation, path: str, asleep: bool, limit_s: float) -> None:
    """Ask until the server agrees: some answer a step before they are done with it."""
    ask = _question(talk, path, limit_s)
    await talk.until(ask, lambda answer: _meaning(talk, ask, answer) is asleep)


def _question(talk: Conversation, path: str, limit_s: float) -> Ask:
    return Ask("isAsleepEndpoint", talk.beside(path), "GET", limit_s)


def _meaning(talk: Conversation, ask: Ask, answer: Answer) -> bool:
    """Return whether the server says that it sleeps; raise when it says neither."""
    if answer.status != 200:
        raise talk.refused(ask, answer)
    said = says_asleep(answer.text)
    if said is None:
        raise talk.failure(
            f"{ask} answered {answer}, which is neither true nor false, nor has it "
            "is_sleeping; take isAsleepEndpoint out"
        )
    return said


async def _compute_something(talk: Conversation, recipe: Recipe) -> None:
    """Let the server compute one token; one that serves something else says so, and it's fine."""
    if recipe.probe.endpoint.strip() == "none":
        return
    body = recipe.probe.body or completion(recipe, "a", 1)
    url = talk.below(recipe.probe.endpoint)
    ask = Ask("wakeProbe", url, "POST", recipe.wake_limit_s, body)
    answer = await talk.ask(ask)
    if answer.status != 200 and not 400 <= answer.status < 500 and answer.status != 501:
        raise talk.refused(ask, answer)
