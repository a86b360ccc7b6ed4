"""The sums over all records since the start. A child of a metric is made when it is first seen."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterator
from typing import Final, Literal, Protocol

from llmsnap.telemetry import catalogue
from llmsnap.telemetry.catalogue import Metric
from llmsnap.telemetry.record import ExitRecord, MoveRecord, RequestRecord
from llmsnap.telemetry.recorder import Batch
from llmsnap.telemetry.tokens import Tokens

Labels = tuple[str, ...]

NO_DRIVER: Final = "none"
"""For the label of a start, which no sleep driver has a part in."""
OTHER_PATH: Final = "other"
"""For the label of a path that isn't one of those that are known."""


class KeptSession(Protocol):
    """What became of one save or restore of a conversation."""

    @property
    def model(self) -> str: ...

    @property
    def op(self) -> Literal["save", "restore"]: ...

    @property
    def result(self) -> str: ...

    @property
    def bytes(self) -> int: ...


class Counter:
    """One number a combination of labels."""

    def __init__(self, metric: Metric) -> None:
        self.metric = metric
        self.values: dict[Labels, float] = {}

    def add(self, amount: float, *labels: str) -> None:
        """Count `amount` more."""
        self.values[labels] = self.values.get(labels, 0) + amount


class Distribution:
    """How many values were in each bucket, the last one without a bound, and their sum."""

    __slots__ = ("counts", "total")

    def __init__(self, counts: list[int], total: float = 0.0) -> None:
        self.counts = counts
        self.total = total


class Histogram:
    """One distribution a combination of labels."""

    def __init__(self, metric: Metric) -> None:
        self.metric = metric
        self.values: dict[Labels, Distribution] = {}
        self._bounds = metric.buckets

    def observe(self, value: float, *labels: str) -> None:
        """Count one more value."""
        child = self.values.get(labels)
        if child is None:
            child = self.values[labels] = Distribution([0] * (len(self._bounds) + 1))
        child.counts[bisect_left(self._bounds, value)] += 1
        child.total += value

    def copy(self) -> dict[Labels, Distribution]:
        """Return what there is, to be read while this goes on."""
        return {
            labels: Distribution(child.counts.copy(), child.total)
            for labels, child in self.values.items()
        }


class Told:
    """What the answers of one model say of their tokens, added up; None: none said it."""

    __slots__ = ("cached", "computed", "generated", "generation_s", "prompt_s")

    def __init__(self) -> None:
        self.computed: int | None = None
        self.cached: int | None = None
        self.generated: int | None = None
        self.prompt_s: float | None = None
        self.generation_s: float | None = None

    def add(self, tokens: Tokens) -> None:
        """Add what one answer says."""
        if (computed := tokens.computed) is not None:
            self.computed = computed + (self.computed or 0)
        if (cached := tokens.cached) is not None:
            self.cached = cached + (self.cached or 0)
        if (generated := tokens.generated) is not None:
            self.generated = generated + (self.generated or 0)
        if (prompt_s := tokens.prompt_s) is not None:
            self.prompt_s = prompt_s + (self.prompt_s or 0.0)
        if (generation_s := tokens.generation_s) is not None:
            self.generation_s = generation_s + (self.generation_s or 0.0)


class Tally:
    """Adds up what records say. `paths` are those that get a label of their own."""

    def __init__(self, paths: Collection[str]) -> None:
        self._paths = frozenset(paths)
        self._requests = Counter(catalogue.REQUESTS)
        self._durations = Histogram(catalogue.REQUEST_DURATION)
        self._first_tokens = Histogram(catalogue.FIRST_TOKEN)
        self._phases = Histogram(catalogue.PHASE_DURATION)
        self._prompt_tokens = Counter(catalogue.PROMPT_TOKENS)
        self._generated_tokens = Counter(catalogue.GENERATED_TOKENS)
        self._prompt_s = Counter(catalogue.PROMPT_SECONDS)
        self._generation_s = Counter(catalogue.GENERATION_SECONDS)
        self._swaps = Counter(catalogue.SWAPS)
        self._swap_s = Histogram(catalogue.SWAP_DURATION)
        self._sleep_s = Histogram(catalogue.SLEEP_DURATION)
        self._evictions = Counter(catalogue.EVICTIONS)
        self._preemptions = Counter(catalogue.PREEMPTIONS)
        self._exits = Counter(catalogue.EXITS)
        self._saves = Counter(catalogue.SESSION_SAVES)
        self._restores = Counter(catalogue.SESSION_RESTORES)
        self._session_bytes = Counter(catalogue.SESSION_BYTES)

    def counters(self) -> Iterator[Counter]:
        """Return all counters."""
        return (part for part in vars(self).values() if isinstance(part, Counter))

    def histograms(self) -> Iterator[Histogram]:
        """Return all histograms."""
        return (part for part in vars(self).values() if isinstance(part, Histogram))

    def take(self, batch: Batch) -> None:
        """Add a batch of records."""
        self._take_requests(batch.requests)
        for move in batch.moves:
            self._take_move(move)
        for end in batch.exits:
            self._take_exit(end)

    def take_session(self, kept: KeptSession) -> None:
        """Add a save or a restore."""
        results = self._saves if kept.op == "save" else self._restores
        results.add(1, kept.model, kept.result)
        if kept.bytes:
            self._session_bytes.add(kept.bytes, kept.model, kept.op)

    def _take_requests(self, requests: list[RequestRecord]) -> None:
        counts: dict[tuple[str, str, int], int] = {}
        told: dict[str, Told] = {}
        for request in requests:
            model = request.model
            what = model, request.path, request.status
            counts[what] = counts.get(what, 0) + 1
            self._take_times(request)
            if request.tokens is not None:
                if (of_model := told.get(model)) is None:
                    of_model = told[model] = Told()
                of_model.add(request.tokens)
        for (model, path, status), count in counts.items():
            known = path if path in self._paths else OTHER_PATH
            self._requests.add(count, model, known, str(status))
        for model, of_model in told.items():
            self._take_tokens(model, of_model)

    def _take_times(self, request: RequestRecord) -> None:
        model = request.model
        self._durations.observe(request.duration_s, model)
        if (ttft_s := request.ttft_s) is not None:
            self._first_tokens.observe(ttft_s, model, request.start)
        for phase, seconds in request.spent().items():
            if phase != "pause":
                self._phases.observe(seconds, model, phase)
        if request.pauses is not None:  # all of them, not only those before the first byte
            self._phases.observe(request.pauses.ended_s, model, "pause")

    def _take_tokens(self, model: str, told: Told) -> None:
        if told.computed is not None:
            self._prompt_tokens.add(told.computed, model, "computed")
        if told.cached is not None:
            self._prompt_tokens.add(told.cached, model, "cached")
        if told.generated is not None:
            self._generated_tokens.add(told.generated, model)
        if told.prompt_s is not None:
            self._prompt_s.add(told.prompt_s, model)
        if told.generation_s is not None:
            self._generation_s.add(told.generation_s, model)

    def _take_move(self, move: MoveRecord) -> None:
        model, driver = move.model, move.driver or NO_DRIVER
        if move.is_swap:
            self._swaps.add(1, model, move.kind, driver, move.result)
            if move.result == "ok":
                self._swap_s.observe(move.swap_s, model, move.kind, driver)
        elif move.result == "ok" and move.kind != "page_out":
            self._evictions.add(1, model, str(move.cause.why))
            if move.paused:
                self._preemptions.add(1, model)
            if move.kind == "sleep":
                self._sleep_s.observe(move.duration_s, model, driver)

    def _take_exit(self, end: ExitRecord) -> None:
        self._exits.add(1, end.model, end.reason)
