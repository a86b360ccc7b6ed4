"""What an operator might change in the commands of models, judged by their estimates."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from llmsnap.config.memory import HOST
from llmsnap.config.quantities import size_text
from llmsnap.memory.gguf import Estimate

Declared = Mapping[str, int] | None
"""Bytes a device that the configuration says a model needs; None: it says nothing."""

_WORTH_SAVING_BYTES: Final = 64 * 1024**2
_WORTH_SAVING_SHARE: Final = 10


def advice_for(
    estimates: Mapping[str, tuple[Estimate, Declared]], ram_bytes: int | None = None
) -> Iterator[str]:
    """Yield what could be better, a sentence each, naming the models that it is for.

    `ram_bytes` are there for models; None: that isn't known.
    """
    for model, (estimate, declared) in estimates.items():
        yield from _of_one(model, estimate, declared)
    unbounded = [model for model, (estimate, _) in estimates.items() if not estimate.is_bounded]
    if unbounded:
        yield (
            f"{', '.join(unbounded)}: llama-server keeps past conversations in RAM, up to 8 GiB in "
            "each server, besides what is estimated; bound it by --cache-ram (MiB) in the command"
        )
    later = sum(estimate.growth.get(HOST, 0) for estimate, _ in estimates.values())
    if ram_bytes is not None and later > ram_bytes:
        yield (
            f"all models together may come to keep {size_text(later)} of past conversations, and "
            f"there are {size_text(ram_bytes)} of RAM; write smaller --cache-ram (MiB)"
        )


def _of_one(model: str, estimate: Estimate, declared: Declared) -> Iterator[str]:
    saved, ram = estimate.saved_by_no_mmap, estimate.need[HOST]
    on_host = estimate.need.keys() == {HOST}
    if on_host and saved > max(_WORTH_SAVING_BYTES, ram // _WORTH_SAVING_SHARE):
        yield (
            f"{model}: --no-mmap saves about {size_text(saved)} of RAM: llama.cpp lays these "
            "weights out anew for the processor, and the file stays mapped beside them"
        )
    if estimate.unset and declared is None:
        yield (
            f"{model}: write {' and '.join(estimate.unset)} into the command: else llama-server "
            "takes what is free when it starts, and what it needs can't be learned"
        )
    for device, sure in estimate.certain.items():
        said = (declared or {}).get(device, sure)
        if said < sure:
            yield (
                f"{model}: {size_text(said)} of {device!r} are declared, but its weights alone are "
                f"{size_text(sure)}"
            )
