"""Scraped texts as they are understood, by prometheus-client's own readers."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client.metrics_core import Metric
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as read_openmetrics,
)
from prometheus_client.parser import text_string_to_metric_families as read_text

Figures = dict[tuple[str, frozenset[tuple[str, str]]], float]


def figures(body: bytes, *, is_openmetrics: bool = False) -> Figures:
    """Every sample by its name and labels; each must be there once."""
    return _samples((read_openmetrics if is_openmetrics else read_text)(body.decode()))


def _samples(families: Iterable[Metric]) -> Figures:
    found: Figures = {}
    for family in families:
        for sample in family.samples:
            key = (sample.name, frozenset(sample.labels.items()))
            assert key not in found, key
            found[key] = sample.value
    return found


def labelled(name: str, /, **labels: str) -> tuple[str, frozenset[tuple[str, str]]]:
    """The key of one sample."""
    return name, frozenset(labels.items())
