"""The canary: a prompt whose answer shows whether a server is what it was before it slept."""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from typing import Any, Final

from llmsnap.sleep.calls import Ask, Conversation
from llmsnap.sleep.driver import Target
from llmsnap.sleep.recipe import Recipe

logger = logging.getLogger(__name__)

COMPLETIONS: Final = "/v1/completions"
_TOKENS: Final = 8
_SHOWN: Final = 80
_SLOWER: Final = 0.85
"""Of the speed before: one layer less on the GPU has cost a fifth."""
_TRIES: Final = 3
"""A single answer may be slow for any reason."""


@dataclass(frozen=True, slots=True)
class Said:
    """How a server completed the canary, which is always the same if all is well."""

    text: str
    tokens_per_s: float | None
    """None: it doesn't tell."""


class Canaries:
    """Compares what servers say after a wake with what they said before their first sleep."""

    def __init__(self) -> None:
        self._first: dict[str, tuple[int, Said]] = {}
        """By model: a generation, and its first answer."""

    async def hear(self, talk: Conversation, target: Target, recipe: Recipe) -> None:
        """Note the answer before the first sleep; raise when there is none."""
        if self._before(target) is None:
            said = await _ask(talk, recipe, recipe.sleep_limit_s)
            self._first[target.model] = (target.generation, said)

    async def compare(self, talk: Conversation, target: Target, recipe: Recipe) -> None:
        """Raise unless the answer is the one of before; warn when it comes slower."""
        before = self._before(target)
        said = await _ask(talk, recipe, recipe.wake_limit_s)
        if before is None:
            return
        if said.text != before.text:
            raise talk.failure(
                f"wakeCanary was answered with {before.text[:_SHOWN]!r} before it slept and is now "
                f"with {said.text[:_SHOWN]!r}: its weights or its cache are wrong; let "
                "wakeEndpoints reload them, or sleep at another level"
            )
        if before.tokens_per_s is not None:
            await _watch_speed(talk, target, recipe, before.tokens_per_s, said.tokens_per_s)

    def _before(self, target: Target) -> Said | None:
        generation, said = self._first.get(target.model, (None, None))
        return said if generation == target.generation else None


async def _watch_speed(
    talk: Conversation, target: Target, recipe: Recipe, before: float, now: float | None
) -> None:
    """Warn when none of a few answers is nearly as fast as before."""
    best = now or 0.0
    for _ in range(1, _TRIES):
        if best >= before * _SLOWER:
            return
        said = await _ask(talk, recipe, recipe.wake_limit_s)
        best = max(best, said.tokens_per_s or 0.0)
    if best < before * _SLOWER:
        logger.warning(
            "model %s: writes %.3g tokens/s since it woke, %.3g before it slept: has it put fewer "
            "layers on the GPU? say how many in its command (`-ngl`)",
            target.model,
            best,
            before,
        )


async def _ask(talk: Conversation, recipe: Recipe, limit_s: float) -> Said:
    body = completion(recipe, recipe.canary, _TOKENS)
    ask = Ask("wakeCanary", talk.below(COMPLETIONS), "POST", limit_s, body)
    answer = await talk.ask(ask)
    match decoded(answer.text) if answer.status == 200 else None:
        case {"choices": [{"text": str(text)}, *_], "timings": {"predicted_per_second": speed}}:
            return Said(text, float(speed) if isinstance(speed, int | float) else None)
        case {"choices": [{"text": str(text)}, *_]}:
            return Said(text, None)
    raise talk.failure(f"{ask} answered {answer}, which completes nothing; take wakeCanary out")


def completion(recipe: Recipe, prompt: str, tokens: int) -> str:
    """Return the body that asks for `prompt` to be completed by so many tokens."""
    named = {"model": recipe.model_name} if recipe.model_name else {}
    return json.dumps({**named, "prompt": prompt, "max_tokens": tokens, "temperature": 0})


def decoded(text: str) -> Any:
    """Return what `text` is in JSON; None when it is none."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
