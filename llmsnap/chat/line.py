"""The dim line under an answer: what it took."""

from __future__ import annotations

from llmsnap.client.stream import Figures, waits_of

_WORTH_SAYING_S = 0.005


def line_of(figures: Figures, asked: str, *, is_stopped: bool) -> str:
    """Return it; `asked` is the name by which the model was asked."""
    parts = [_swap(figures), _prompt(figures), _first(figures), _rate(figures)]
    if figures.model not in ("", asked):
        parts.insert(0, figures.model)
    if is_stopped:
        parts.append("stopped")
    return " · ".join(part for part in parts if part)


def _swap(figures: Figures) -> str:
    if not figures.phases_s:
        return ""  # it isn't llmsnap that answers
    if figures.waited_s < _WORTH_SAYING_S:
        return "awake"
    waits = waits_of(figures.phases_s).items()
    made_of = (f"{name} {seconds:.2f}" for name, seconds in waits if seconds >= _WORTH_SAYING_S)
    return f"swap {figures.waited_s:.2f} s ({', '.join(made_of)})"


def _prompt(figures: Figures) -> str:
    tokens = figures.tokens
    if tokens is None or tokens.prompt is None:
        return ""
    if tokens.cached is None:
        return f"{tokens.prompt} prompt tokens"
    return f"{tokens.cached} of {tokens.prompt} prompt tokens cached"


def _first(figures: Figures) -> str:
    return "" if figures.first_s is None else f"first token {figures.first_s:.2f} s"


def _rate(figures: Figures) -> str:
    rate = figures.tokens_per_s
    return "" if rate is None else f"{rate:.1f} tokens/s"
