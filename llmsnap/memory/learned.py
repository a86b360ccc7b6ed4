"""What models turned out to need, while the proxy runs."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

_NOTICEABLE: Final = 16 * 1024**2


class Learned:
    """Remembers the most that each model was seen to hold while it was awake.

    `declared` are models whose need the file says: what they really hold isn't learned.
    """

    def __init__(self, declared: Collection[str]) -> None:
        self._declared = frozenset(declared)
        self._most: dict[str, dict[str, int]] = {}

    def saw(self, model: str, held: Mapping[str, int]) -> Mapping[str, int] | None:
        """Take in what an awake model holds a device; return its need if that is another now."""
        if model in self._declared:
            return None
        before = self._most.get(model)
        grown = {d: size for d, size in held.items() if _is_more(size, (before or {}).get(d))}
        if before is not None and not grown:
            return None
        most = self._most[model] = {**(before or {}), **grown}
        return most


def _is_more(size: int, before: int | None) -> bool:
    return before is None or size >= before + max(_NOTICEABLE, before // 64)
