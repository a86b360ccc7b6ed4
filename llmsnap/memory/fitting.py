"""llama-server's `--fit`: a model is made smaller when less memory is free than it would like.

What such a model holds says what was free, not what it needs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Flag, auto
from typing import Final

from llmsnap.memory.llama_flags import read_flags

_BEGINS: Final = "load_model: loading model"

_SHRUNK: Final = re.compile(
    r"context size reduced from|cannot (meet|fulfill) (free memory target|margin)"
    r"|need to reduce \w+ memory|failed to fit params|trying to fit params"
)
_ALL_FITS: Final = re.compile(r"no changes needed")
_OFFLOADED: Final = re.compile(r"offloaded (\d+)/(\d+) layers to GPU")


class Fit(Flag):
    """What is left to llama-server, which takes as much of it as happens to be free."""

    NOTHING = 0
    CONTEXT = auto()
    LAYERS = auto()


def fit_of(argv: Sequence[str], env: Mapping[str, str]) -> Fit:
    """Return what a llama-server with this command fits to the memory that is free."""
    flags = read_flags(argv, env)
    if not flags.fit:
        return Fit.NOTHING
    fit = Fit.NOTHING
    if not flags.context:
        fit |= Fit.CONTEXT
    if flags.layers is None:
        fit |= Fit.LAYERS
    return fit


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """What a fitted server shows of how it started."""

    log: str
    context: int | None = None
    """`n_ctx`, tokens a slot; None: it doesn't say."""
    trained: int | None = None
    """`n_ctx_train`, tokens that the model was made for."""


def came_whole(fit: Fit, start: Start, *, on_gpu: bool) -> bool:
    """Whether `start` shows that nothing was taken from the model. Where nothing shows it: no.

    `on_gpu`: layers may have been left out of a GPU.
    """
    log = start.log[max(0, start.log.rfind(_BEGINS)) :]  # earlier starts are of no interest
    offloaded = _OFFLOADED.findall(log)
    if _SHRUNK.search(log) or any(done != all_ for done, all_ in offloaded):
        return False
    if _ALL_FITS.search(log):
        return True
    known = start.context is not None and start.trained is not None
    has_context = known and (start.context or 0) >= (start.trained or 0)
    has_layers = bool(offloaded) or not on_gpu
    return (has_context or Fit.CONTEXT not in fit) and (has_layers or Fit.LAYERS not in fit)
