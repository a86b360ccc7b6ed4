"""One llama-server command with other settings of its cache."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Final

_SPELLINGS: Final = {
    "-ctk": ("-ctk", "--cache-type-k"),
    "-ctv": ("-ctv", "--cache-type-v"),
    "-fa": ("-fa", "--flash-attn"),
    "-c": ("-c", "--ctx-size"),
    "-np": ("-np", "--parallel"),
    "--port": ("--port",),
}
_WHOLE: Final = frozenset({"f32", "f16", "bf16"})
"""Types that need no flash attention; a cache of values of another type does."""


@dataclass(frozen=True)
class Variant:
    """A command under the name by which it is measured."""

    name: str
    argv: Sequence[str]

    @property
    def command(self) -> str:
        """As it stands in a configuration."""
        return shlex.join(self.argv).replace("'${PORT}'", "${PORT}")


def variants(
    argv: Sequence[str],
    *,
    types: Sequence[str],
    flash: Sequence[str],
    contexts: Sequence[int],
    parallels: Sequence[int],
) -> Iterator[Variant]:
    """Yield the combinations that llama.cpp allows; no contexts, or slots: as `argv` has them."""
    plain = _with(argv, "--port", "${PORT}")
    as_is: list[int | None] = [None]
    for type_, fa, context, parallel in product(
        types, flash, contexts or as_is, parallels or as_is
    ):
        if type_ not in _WHOLE and fa == "off":
            continue
        settings = {"-ctk": type_, "-ctv": type_, "-fa": fa, "-c": context, "-np": parallel}
        changed = plain
        for option, value in settings.items():
            if value is not None:
                changed = _with(changed, option, str(value))
        said = {"kv": type_, "fa": fa, "c": context, "np": parallel}
        name = "-".join(f"{what}-{value}" for what, value in said.items() if value is not None)
        yield Variant(name, changed)


def _with(argv: Sequence[str], option: str, value: str) -> list[str]:
    """Return `argv` with one value for an option, however it was spelled."""
    kept: list[str] = []
    words = iter(argv)
    for word in words:
        if word in _SPELLINGS[option]:
            next(words, None)
        else:
            kept.append(word)
    return [*kept, option, value]
