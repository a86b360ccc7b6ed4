"""How much each model has in its KV cache, and how fast it reads, as its answers tell."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Final

from llmsnap.telemetry.recorder import Batch, Recorder
from llmsnap.telemetry.tokens import Tokens

_LEAST_TOKENS: Final = 32
"""A shorter prompt says more of what each request costs than of how fast it is read."""
_WEIGHT: Final = 0.3
"""Of the newest figure in the moving average."""


@dataclass(frozen=True, slots=True)
class Context:
    """What is known of one model; None: nothing."""

    tokens: int | None = None
    """The longest conversation since it was started, with its answer."""
    tokens_per_s: float | None = None
    """How fast it reads what of a prompt isn't in the cache."""


@dataclass(slots=True)
class _Known:
    """A `Context` that grows: one is too much for each answer."""

    tokens: int | None = None
    tokens_per_s: float | None = None


class Contexts:
    """Follows what answers say of their tokens."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._known: defaultdict[str, _Known] = defaultdict(_Known)
        recorder.listen(self._take)

    def of(self, model: str) -> Context:
        """Return what is known of `model` by now."""
        self._recorder.flush()
        known = self._known.get(model)
        return Context() if known is None else Context(known.tokens, known.tokens_per_s)

    def _take(self, batch: Batch) -> None:
        for move in batch.moves:
            if move.kind == "start":  # with an empty cache
                self._known[move.model].tokens = None
        for record in batch.requests:
            if record.tokens is not None:
                self._learn(self._known[record.model], record.tokens)

    @staticmethod
    def _learn(known: _Known, told: Tokens) -> None:
        computed = told.computed
        if computed is None:
            return
        if computed >= _LEAST_TOKENS and told.prompt_s:
            seen, rate = computed / told.prompt_s, known.tokens_per_s
            known.tokens_per_s = seen if rate is None else rate + _WEIGHT * (seen - rate)
        size = computed + (told.cached or 0) + (told.generated or 0)
        if size > (known.tokens or 0):
            known.tokens = size
