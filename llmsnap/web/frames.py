"""Where the frames of a WebSocket end, so that one of our own may follow (RFC 6455, 5.2)."""

from __future__ import annotations

from typing import Final

GOING_AWAY: Final = b"\x88\x02\x03\xe9"
"""A server's Close frame with code 1001."""

_SHORT: Final = 2
_LENGTHS: Final = {126: 2, 127: 8}
_MASK_BYTES: Final = 4


class Frames:
    """Follows the bytes of one direction; begins between two frames."""

    def __init__(self) -> None:
        self._head = b""
        """As much as has come of a frame's head that isn't whole yet."""
        self._left = 0
        """Bytes of the present frame's payload that are to come."""

    @property
    def is_between(self) -> bool:
        """Whether all frames that have begun are whole."""
        return not self._head and not self._left

    def take(self, data: bytes) -> int:
        """Follow `data`; return how many of its bytes there are up to the last end of a frame."""
        at, end = 0, 0
        while at < len(data):
            if self._left:
                taken = min(self._left, len(data) - at)
                self._left -= taken
                at += taken
            else:
                self._head += data[at : at + 1]
                at += 1
                self._read_head()
            if self.is_between:
                end = at
        return end

    def _read_head(self) -> None:
        head = self._head
        if len(head) < _SHORT:
            return
        short, is_masked = head[1] & 0x7F, head[1] >> 7
        more = _LENGTHS.get(short, 0)
        if len(head) == _SHORT + more + _MASK_BYTES * is_masked:
            self._left = int.from_bytes(head[_SHORT : _SHORT + more]) if more else short
            self._head = b""
