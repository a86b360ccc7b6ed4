"""Estimates beside what real llama-servers hold; the whole table is in docs/memory.md."""

from __future__ import annotations

import pytest

from tests.benchmarks.estimates import EXPERTS, Q4, Row, estimated, gemma, measured_bytes
from tests.helpers.llama import tiny_gguf

pytestmark = pytest.mark.e2e


@pytest.mark.parametrize(
    "row",
    [
        Row("plain", tiny_gguf, "-c 512 -np 1"),
        Row("several slots", tiny_gguf, "-c 1024 -np 2 -ub 256 -fa off --cache-ram 0"),
        Row("experts", EXPERTS, "-c 512 -np 1 --no-mmap"),
        Row("a cache of fewer bits", tiny_gguf, "-c 512 -np 1 -ctk q8_0 -ctv q8_0", True),
        Row("weights of fewer bits", Q4, "-c 256 -np 1 --no-repack", True),
        Row("windows", gemma, "-c 256 -np 1 --no-repack", True),
    ],
    ids=lambda row: row.model,
)
def test_an_estimate_is_never_below_and_little_above(row: Row) -> None:
    """At most 15 %, the process itself included."""
    guess, measured = estimated(row).need["host"], measured_bytes(row)

    assert measured <= guess <= 1.15 * measured, f"{guess >> 20} MiB for {measured >> 20} MiB"
