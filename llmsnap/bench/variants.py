"""One llama-server command with other settings of its cache."""

from __future__ import annotations

import shlex
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
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
_BARE: Final = {"-fa": ("on", "off", "auto", "1", "0")}
"""What may follow an option that was a switch once; anything else isn't its own."""
_WHOLE: Final = frozenset({"f32", "f16", "bf16"})
"""Types that need no flash attention; a cache of values of another type does."""


@dataclass(frozen=True)
class Variant:
    """A command under the name by which it is measured."""

    name: str
    argv: Sequence[str]
    room: str = ""
    """What it can hold, as far as that is varied: other rooms aren't better or worse."""

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
    """Yield the combinations that llama.cpp allows; no contexts, or slots: as `argv` has them.

    A type is that of keys and values, or `K/V`.
    """
    plain = _with(argv, "--port", "${PORT}")
    as_is: list[int | None] = [None]
    for type_, fa, context, parallel in product(
        types, flash, contexts or as_is, parallels or as_is
    ):
        keys, _, values = type_.partition("/")
        values = values or keys
        if values not in _WHOLE and fa == "off":
            continue
        settings = {"-ctk": keys, "-ctv": values, "-fa": fa, "-c": context, "-np": parallel}
        changed = plain
        for option, value in settings.items():
            if value is not None:
                changed = _with(changed, option, str(value))
        kinds = {"kv": keys} if keys == values else {"k": keys, "v": values}
        room = _named({"c": context, "np": parallel})
        name = "-".join(filter(None, [_named({**kinds, "fa": fa}), room]))
        yield Variant(name, changed, room)


def _named(settings: Mapping[str, object]) -> str:
    return "-".join(f"{what}-{value}" for what, value in settings.items() if value is not None)


def _with(argv: Sequence[str], option: str, value: str) -> list[str]:
    """Return `argv` with one value for an option, however it was spelled."""
    kept: list[str] = []
    words = deque(argv)
    while words:
        word = words.popleft()
        name, equals, _ = word.partition("=")
        if name not in _SPELLINGS[option]:
            kept.append(word)
        elif not equals and words and (option not in _BARE or words[0] in _BARE[option]):
            words.popleft()
    return [*kept, option, value]
