"""What one look at the machine found."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Self


class Status(StrEnum):
    """How bad it is, from good to bad."""

    OK = "ok"
    WARN = "warn"
    """llmsnap runs, but something of it doesn't work here."""
    FAIL = "fail"
    """llmsnap, or one of the models, can't run."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report."""

    check: str
    status: Status
    found: str
    remedy: str = ""
    """What to do about it, in words; empty when all is well."""

    @classmethod
    def of_fault(cls, check: str, status: Status, fault: str) -> Self:
        """Return the finding that `fault` tells, whose remedy stands behind a semicolon."""
        found, _, remedy = fault.partition("; ")
        return cls(check, status, found, remedy)


def worst(findings: Iterable[Finding]) -> Status:
    """Return the worst status there is; `ok` when there are no findings."""
    order = list(Status)
    return max((finding.status for finding in findings), key=order.index, default=Status.OK)
