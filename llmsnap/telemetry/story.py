"""Why a request was slow, in a sentence for people: a pure function of its record."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from llmsnap.config.quantities import seconds_text, size_text
from llmsnap.telemetry.record import MoveKind, MoveRecord, RequestRecord, phases_spent

_LEAST_S: Final = 0.01
"""What is shorter isn't worth a word."""


def why(record: RequestRecord) -> str:
    """Return what `record` waited for, what came from the cache, and how it ended if not well."""
    parts = [_waits(record), _prefill(record), _cache(record), record.parting, _failure(record)]
    return "; ".join(part for part in parts if part)


def _waits(record: RequestRecord) -> str:
    waits = [(seconds, text) for seconds, text in _wait_parts(record) if seconds >= _LEAST_S]
    if not waits:
        return "didn't wait"
    told = ", ".join(f"{seconds_text(seconds)} {text}" for seconds, text in waits)
    if len(waits) == 1:
        return f"waited {told}"
    return f"waited {seconds_text(sum(seconds for seconds, _ in waits))}: {told}"


def _wait_parts(record: RequestRecord) -> Iterator[tuple[float, str]]:
    model, swap = record.model, record.swap
    spent = record.spent()
    spent.pop("prefill", None)
    words = {
        "queue": "in the queue",
        "drain": f"for {_victims(swap)} to finish",
        "evict": f"to {_ways_out(swap)}",
        "wake": f"to wake {model}",
        "start": _start(record),
        "restore": "to restore its conversation",
        "pause": "paused before its first byte",
    }
    for phase, seconds in spent.items():
        yield seconds, words.get(phase, phase)
    if record.pauses is not None:
        later_s = record.pauses.ended_s - record.paused_before_s
        times = record.pauses.count
        yield later_s, f"paused in the middle ({times} time{'' if times == 1 else 's'} in all)"


def _start(record: RequestRecord) -> str:
    if record.forwarded_at:
        return f"to start {record.model}"
    failed = record.swap is not None and record.swap.result == "failed"
    return f"starting {record.model}{', which failed' if failed else ''}"


def _victims(swap: MoveRecord | None) -> str:
    if swap is None or not swap.departures:
        return "other models"
    return _listed([departure.model for departure in swap.departures])


_WAYS_OUT: Final[dict[MoveKind, str]] = {"sleep": "put {} to sleep", "stop": "stop {}"}


def _ways_out(swap: MoveRecord | None) -> str:
    ways = []
    for kind, words in _WAYS_OUT.items():
        gone = [d.model for d in swap.departures if d.kind == kind] if swap is not None else []
        if gone:
            ways.append(words.format(_listed(gone)))
    return _listed(ways) or "make room"


def _prefill(record: RequestRecord) -> str:
    """Say how long the prompt took, where the server tells or the first byte of a stream shows."""
    tokens = record.tokens
    seconds = tokens.prompt_s if tokens and tokens.prompt_s is not None else None
    if seconds is None and record.is_stream:
        seconds = record.prefill_s
    if seconds is None or seconds < _LEAST_S:
        return ""
    if tokens is None or tokens.computed is None:
        return f"{seconds_text(seconds)} to read the prompt"
    return f"{seconds_text(seconds)} to read {counted(tokens.computed, 'token')} of the prompt"


def _cache(record: RequestRecord) -> str:
    tokens = record.tokens
    if tokens is None or tokens.prompt is None or tokens.cached is None:
        return ""
    share = f"{tokens.cached:,}" if tokens.cached else "none"
    worth = (
        ", so the restore was of no use" if record.phases.restore_s and not tokens.cached else ""
    )
    return f"{share} of {counted(tokens.prompt, 'prompt token')} came from cache{worth}"


def _failure(record: RequestRecord) -> str:
    if not record.error:
        return ""
    verb = "was cut short" if record.first_byte_at else "failed"
    return f"{verb}: {record.error}"


def tell_move(move: MoveRecord) -> str:
    """Return in a line how a model came or went: how long each part took, for whom, and why."""
    if not move.is_swap:
        return _down(move)
    waits = phases_spent(move.phases) or {move.kind: move.duration_s}
    words = {
        "queue": "in the queue",
        "drain": f"for {_victims(move)} to finish",
        "evict": f"to {_ways_out(move)}",
        "wake": f"to wake{_by(move)}",
        "start": "to start",
    }
    told = [
        f"{seconds_text(seconds)} {words[phase]}"
        for phase, seconds in waits.items()
        if seconds >= _LEAST_S or phase == move.kind or (phase == "evict" and move.departures)
    ]
    verb = _VERBS[move.kind] if move.result == "ok" else f"{move.kind} {move.result}"
    total = seconds_text(sum(waits.values()))
    if len(told) == 1:
        return f"{verb} in {total}{_by(move)} ({move.cause})"
    return f"{verb} after {total}: {', '.join(told)} ({move.cause})"


_VERBS: Final[dict[MoveKind, str]] = {
    "start": "started",
    "wake": "woken",
    "sleep": "put to sleep",
    "page_out": "paged out",
    "stop": "stopped",
}


def _down(move: MoveRecord) -> str:
    moved = ", ".join(
        f"{size_text(n)} to {place}" for place, n in move.moved_bytes.items() if n > 0
    )
    verb = _VERBS[move.kind] if move.result == "ok" else f"{move.kind} {move.result}"
    parts = [f"{verb} in {seconds_text(move.duration_s)}{_by(move)} ({move.cause})", moved]
    if move.paused:
        parts.append(f"{counted(move.paused, 'answer')} paused")
    return ", ".join(part for part in parts if part)


def _by(move: MoveRecord) -> str:
    return f" by {move.driver}" if move.driver else ""


def counted(number: int, what: str) -> str:
    """Return `1 token`, `31,260 tokens`."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _listed(names: Sequence[str]) -> str:
    """Return `a`, `a and b`, `a, b and c`."""
    *first, last = names or [""]
    return f"{', '.join(first)} and {last}" if first else last
