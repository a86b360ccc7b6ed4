"""How much each model has in its KV cache, and how fast it reads, as its answers tell."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from llmsnap.telemetry.record import RequestRecord
from llmsnap.telemetry.recorder import Batch, Recorder

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


class Contexts:
    """Follows what answers say of their tokens."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._contexts: dict[str, Context] = {}
        recorder.listen(self._take)

    def of(self, model: str) -> Context:
        """Return what is known of `model` by now."""
        self._recorder.flush()
        return self._contexts.get(model, Context())

    def _take(self, batch: Batch) -> None:
        for move in batch.moves:
            if move.kind == "start":  # with an empty cache
                rate = self._contexts.get(move.model, Context()).tokens_per_s
                self._contexts[move.model] = Context(tokens_per_s=rate)
        for record in batch.requests:
            self._learn(record)

    def _learn(self, record: RequestRecord) -> None:
        tokens = record.tokens
        if tokens is None or tokens.prompt is None:
            return
        known = self._contexts.get(record.model, Context())
        rate = known.tokens_per_s
        computed, took_s = tokens.computed or 0, tokens.prompt_s
        if computed >= _LEAST_TOKENS and took_s:
            seen = computed / took_s
            rate = seen if rate is None else rate + _WEIGHT * (seen - rate)
        size = tokens.prompt + (tokens.generated or 0)
        longest = max(size, known.tokens or 0)
        if longest != known.tokens or rate != known.tokens_per_s:
            self._contexts[record.model] = Context(longest, rate)
