"""The line under an answer."""

from __future__ import annotations

import pytest

from llmsnap.chat.line import line_of
from llmsnap.client.stream import Figures
from llmsnap.telemetry.tokens import Tokens

TOKENS = Tokens(computed=18, cached=812, generated=10, generation_s=0.5)
CASES = [
    (
        Figures(
            model="m",
            total_s=2.0,
            first_s=1.31,
            phases_s={"evict": 0.3, "wake": 0.94, "prefill": 0.07},
            tokens=TOKENS,
        ),
        "swap 1.24 s (evict 0.30, wake 0.94) · 812 of 830 prompt tokens cached · "
        "first token 1.31 s · 20.0 tokens/s",
    ),
    (
        Figures(model="m", total_s=1.0, first_s=0.1, phases_s={"queue": 0.001, "prefill": 0.099}),
        "awake · first token 0.10 s",
    ),
    (
        Figures(model="", total_s=1.0, first_s=0.1, phases_s={}, tokens=Tokens(computed=3)),
        "3 prompt tokens · first token 0.10 s",
    ),
    (Figures(model="other", total_s=1.0, phases_s={"prefill": 0.1}), "other · awake"),
]


@pytest.mark.parametrize(("figures", "line"), CASES)
def test_the_line_says_what_is_known(figures: Figures, line: str) -> None:
    """And the model's own name, where it was asked by another."""
    assert line_of(figures, "m", is_stopped=False) == line


def test_an_answer_that_was_stopped_is_called_so() -> None:
    """At the end."""
    figures = Figures(model="m", total_s=1.0, phases_s={"prefill": 0.1})
    assert line_of(figures, "m", is_stopped=True) == "awake · stopped"
