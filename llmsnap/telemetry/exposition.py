"""Prometheus' text format and OpenMetrics, as far as they are needed here.

prometheus-client has writers of both, but needs a tenth of a second for fifty models with every
label seen, all of it with the interpreter in hand. These lines are put together ten times as fast.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from llmsnap.telemetry.catalogue import Metric
from llmsnap.telemetry.tally import Distribution, Labels


def number_lines(
    metric: Metric, numbers: Mapping[Labels, float], *, is_openmetrics: bool
) -> Iterator[str]:
    """Yield the lines of a counter or a gauge."""
    yield _head(metric, is_openmetrics)
    for labels, number in numbers.items():
        yield f"{metric.name}{{{_written(metric, labels)}}} {number!r}\n"


def distribution_lines(
    metric: Metric, distributions: Mapping[Labels, Distribution], *, is_openmetrics: bool
) -> Iterator[str]:
    """Yield the lines of a histogram."""
    yield _head(metric, is_openmetrics)
    name = metric.name
    bounds = [*(repr(float(bound)) for bound in metric.buckets), "+Inf"]
    for labels, distribution in distributions.items():
        written = _written(metric, labels)
        count = 0
        for bound, added in zip(bounds, distribution.counts, strict=True):
            count += added
            yield f'{name}_bucket{{{written},le="{bound}"}} {count}\n'
        yield f"{name}_count{{{written}}} {count}\n"
        yield f"{name}_sum{{{written}}} {distribution.total!r}\n"


def _head(metric: Metric, is_openmetrics: bool) -> str:
    name = metric.name.removesuffix("_total") if is_openmetrics else metric.name
    return f"# HELP {name} {metric.help}\n# TYPE {name} {metric.kind}\n"


def _written(metric: Metric, labels: Labels) -> str:
    pairs = zip(metric.labels, labels, strict=True)
    return ",".join(f'{name}="{_escaped(value)}"' for name, value in pairs)


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
