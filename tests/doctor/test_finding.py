"""Findings, and which is the worst."""

from __future__ import annotations

import pytest

from llmsnap.doctor.finding import Finding, Status, worst


@pytest.mark.parametrize(
    ("statuses", "status"),
    [
        ([], Status.OK),
        ([Status.OK, Status.OK], Status.OK),
        ([Status.WARN, Status.OK], Status.WARN),
        ([Status.WARN, Status.FAIL, Status.OK], Status.FAIL),
    ],
)
def test_the_worst(statuses: list[Status], status: Status) -> None:
    """Of those there are."""
    assert worst(Finding("x", each, "") for each in statuses) is status


@pytest.mark.parametrize(
    ("fault", "found", "remedy"),
    [
        ("it is broken; mend it", "it is broken", "mend it"),
        ("a; b; c", "a", "b; c"),
        ("it is broken", "it is broken", ""),
    ],
)
def test_a_fault_with_its_remedy(fault: str, found: str, remedy: str) -> None:
    """Errors end with what to do."""
    assert Finding.of_fault("x", Status.WARN, fault) == Finding("x", Status.WARN, found, remedy)
