"""Keys that nothing honours yet: who sets one is told where."""

from __future__ import annotations

import pytest

from tests.config.reading import loaded


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("performance: {every: 1m}", "performance"),
    ],
)
def test_a_key_without_effect_is_told(text: str, path: str) -> None:
    """Once, with line and path."""
    assert loaded(text).warnings == (f"config.yaml:1: {path}: not supported yet and ignored",)


@pytest.mark.parametrize(
    "text",
    [
        "metricsMaxInMemory: 5",
        "captureBuffer: 10",
        "store: {path: activity.db}",
        "performance: {every: 5s}",
    ],
)
def test_what_changes_nothing_is_not(text: str) -> None:
    """A default, or a feature turned off, is honoured by doing nothing."""
    assert loaded(text).warnings == ()
