"""What `llmsnap bench kv` comes to: whether caches came back, and which command to take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from llmsnap.bench.report import Report
from llmsnap.bench.samples import OURS, Case, Sample, Scene, Spread, by_case, good
from llmsnap.bench.variants import Variant

_CLOSE: Final = 1.1
"""What is at most so many times as slow as the best is as good."""
_USED: Final = 0.5
"""A cache that came back has at least that share of the prompt."""
_ANSWER_TOKENS: Final = 256
"""An answer as people get them: reading and writing both count."""
_UNKNOWN: Final = 1 << 62


@dataclass(frozen=True)
class Pace:
    """How fast a variant is with the longest text."""

    variant: Variant
    first_s: float
    """To the first token of a new text."""
    tokens_per_s: float | None
    """How fast it writes, with all of the text in its cache."""
    kv_bytes: int | None

    @property
    def answer_s(self) -> float:
        """Seconds to the end of an answer."""
        return self.first_s + (_ANSWER_TOKENS / self.tokens_per_s if self.tokens_per_s else 0.0)


def advise(report: Report, variants: Sequence[Variant], kv: Mapping[str, int | None]) -> None:
    """Add to the report which came back with their cache, and the command to take."""
    sizes = [f"{name} {_mib(size)}" for name, size in kv.items() if size]
    if sizes:
        report.notes.append(f"the cache takes, by what its file tells: {', '.join(sizes)}")
    cases = by_case(report.samples)
    for case, samples in sorted(cases.items()):
        if case.scene in (Scene.RESTORED, Scene.ASLEEP) and (well := good(samples)):
            report.advice.append(_verdict(case, well))
    lengths = [case.length for case, samples in cases.items() if good(samples)]
    for room in dict.fromkeys(variant.room for variant in variants):
        here = [variant for variant in variants if variant.room == room]
        if lengths and (paces := _paces(here, max(lengths), cases, kv)):
            report.advice += _choice(paces, max(lengths), room)


def _paces(
    variants: Sequence[Variant],
    length: int,
    cases: Mapping[Case, Sequence[Sample]],
    kv: Mapping[str, int | None],
) -> list[Pace]:
    found = []
    for variant in variants:
        samples = good(cases.get(Case(variant.name, length, Scene.NEW, OURS), ()))
        first = Spread.of(one.first_s for one in samples)
        rate = Spread.of(one.tokens_per_s for one in samples)
        if first is not None:
            tokens_per_s = rate.median if rate else None
            found.append(Pace(variant, first.median, tokens_per_s, kv.get(variant.name)))
    return found


def _choice(paces: Sequence[Pace], length: int, room: str) -> list[str]:
    """Return the command to take, and why: of those about as quick as the quickest the smallest."""
    quickest = min(paces, key=lambda pace: pace.answer_s)
    near = [pace for pace in paces if pace.answer_s <= quickest.answer_s * _CLOSE]
    choice = min(near, key=lambda pace: (pace.kv_bytes or _UNKNOWN, pace.answer_s))
    rate = choice.tokens_per_s
    others = f"; the quickest, {quickest.variant.name}: {quickest.answer_s:.2f} s"
    why = [
        f"{choice.first_s:.2f} s to the first token of {length} new tokens"
        + (f" and {rate:.1f} tokens/s after it" if rate else ""),
        f"{choice.answer_s:.2f} s to the end of an answer of {_ANSWER_TOKENS}"
        + (others if choice is not quickest else ", the quickest"),
    ]
    if choice.kv_bytes:
        why.append(f"of those within a tenth of that the smallest cache, {_mib(choice.kv_bytes)}")
    why.append("whether its answers are as good isn't measured")
    where = f" for {room}" if room else ""
    return [f"take{where}: cmd: {choice.variant.command}", f"why: {'; '.join(why)}"]


def _verdict(case: Case, samples: Sequence[Sample]) -> str:
    shares = Spread.of(
        one.cached / one.prompt if one.prompt and one.cached is not None else None
        for one in samples
    )
    what = f"{case.model}, {case.length} tokens, {case.scene}"
    if shares is None:
        return f"{what}: its server doesn't say what was cached"
    word = "used" if shares.median >= _USED else "useless"
    return f"{what}: the cache was {word} ({shares.median:.0%} of the prompt)"


def _mib(amount: int) -> str:
    return f"{amount / 2**20:.0f} MiB"
