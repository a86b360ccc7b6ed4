"""Which weights a processor gets a second copy of; the sums are in test_gguf.py."""

from __future__ import annotations

import pytest

from llmsnap.memory.weights import repacked_by, repacked_types


@pytest.mark.parametrize(
    ("abilities", "some", "others"),
    [
        ("fpu sse4_2", "", "Q4_0 Q8_0 F16"),
        ("avx avx2", "Q4_0 Q4_K IQ4_NL", "Q8_0 Q6_K Q2_K"),
        ("avx2 avx512f", "Q4_0 Q2_K", "Q8_0"),
        ("avx2 amx_int8", "Q4_0 Q8_0 Q6_K IQ4_XS", "Q3_K"),
        ("fp asimd asimddp", "Q4_0 Q8_0", "Q4_1"),
    ],
)
def test_the_processor_decides(abilities: str, some: str, others: str) -> None:
    """By its kind of vector instructions; F16 is never copied."""
    found = repacked_by(abilities.split())

    assert set(some.split()) <= found
    assert found.isdisjoint([*others.split(), "F16"])


def test_this_machine_s_processor_is_one_of_them() -> None:
    """Whatever it is."""
    assert "F16" not in repacked_types()
