"""A report's samples as rows of a table: medians with the least and the most."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from llmsnap.bench.report import Machine, Report
from llmsnap.bench.samples import OURS, Case, Sample, Scene, Spread, by_case, good, ratio

COLUMNS: Final = (
    "model",
    "context",
    "state",
    "server",
    "n",
    "first token",
    "ready after",
    "prefill",
    "cached",
    "tokens/s",
    "moved",
    "against ours",
)


def table(report: Report) -> list[list[str]]:
    """Return a row a case, for people."""
    cases = by_case(report.samples)
    return [
        _row(case, samples, cases, report.machine)
        for case, samples in sorted(cases.items(), key=lambda item: item[0].place)
    ]


def _row(
    case: Case, samples: Sequence[Sample], cases: dict[Case, list[Sample]], machine: Machine
) -> list[str]:
    well = good(samples)
    ways = sorted({one.way for one in well if one.way} or filter(None, [case.by]))
    state = f"{case.scene} ({', '.join(ways)})" if ways else str(case.scene)
    if not well:
        return [case.model, str(case.length), state, case.server, "0", "failed"] + [""] * 6
    return [
        case.model,
        str(case.length),
        state,
        case.server,
        str(len(well)),
        seconds(Spread.of(one.first_s for one in well)),
        seconds(Spread.of(one.ready_s for one in well)),
        _prefill(well),
        _cached(well),
        _plain(Spread.of(one.tokens_per_s for one in well)),
        _moved(well, machine),
        _against(case, samples, cases),
    ]


def seconds(spread: Spread | None) -> str:
    """Return a spread of seconds: `1.24 s (1.20-1.31)`."""
    if spread is None:
        return ""
    return f"{spread.median:.3g} s ({spread.least:.3g}-{spread.most:.3g})"


def _plain(spread: Spread | None) -> str:
    return "" if spread is None else f"{spread.median:.1f}"


def _prefill(samples: Sequence[Sample]) -> str:
    """Return what the engine took for what wasn't cached, and how fast it read that."""
    rate = Spread.of(
        (one.prompt - one.cached) / one.prefill_s
        for one in samples
        if one.prompt and one.cached is not None and one.prefill_s
    )
    took = Spread.of(one.prefill_s for one in samples)
    if took is None:
        return ""
    return f"{took.median:.3g} s" + (f", {rate.median:.0f} tokens/s" if rate else "")


def _cached(samples: Sequence[Sample]) -> str:
    cached, prompt = Spread.of(s.cached for s in samples), Spread.of(s.prompt for s in samples)
    if prompt is None:
        return ""
    return f"{'?' if cached is None else f'{cached.median:.0f}'} of {prompt.median:.0f}"


def _moved(samples: Sequence[Sample], machine: Machine) -> str:
    amount = Spread.of(one.moved_bytes for one in samples)
    if amount is None:
        return ""
    rate = Spread.of(
        one.moved_bytes / one.moved_s if one.moved_bytes and one.moved_s else None
        for one in samples
    )
    speed = f", {rate.median / 1e9:.2f} GB/s" if rate else ""
    what, most = _road(samples[0], machine)
    if rate and most:
        speed += f" ({rate.median / most:.0%} of the {what})"
    return f"{amount.median / 1e9:.2f} GB{speed}"


def _road(sample: Sample, machine: Machine) -> tuple[str, float | None]:
    """Return by what the bytes came, and the most that it carries, as far as that is known."""
    if sample.scene is Scene.COLD:
        return "disk", machine.disk_bytes_per_s
    return "link", machine.link_bytes_per_s if sample.way == "cuda" else None


def _against(case: Case, samples: Sequence[Sample], cases: dict[Case, list[Sample]]) -> str:
    """Return how many times as long another server took, turn by turn."""
    if case.server == OURS:
        return ""
    mine = cases.get(Case(case.model, case.length, case.scene, OURS), [])
    times = ratio(mine, samples)
    return "" if times is None else f"{times.median:.2f} x ({times.least:.2f}-{times.most:.2f})"
