"""Requests and answers kept whole, for a look at them: the newest ones, in memory alone."""

from __future__ import annotations

import zlib
from base64 import b64encode
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import Any, Final

from msgspec import Struct

from llmsnap.config.secrets import speaks_of_secret

RawHeaders = Sequence[tuple[bytes, bytes]]

_CREDENTIALS: Final = frozenset({"authorization", "proxy-authorization", "cookie", "set-cookie"})
"""Beside those that are called a key, a token or the like."""
_BLANK: Final = "[REDACTED]"
_HEADERS_ONLY: Final = frozenset({"/v1/images/edits", "/sdapi/v1/img2img"})
_WITHOUT_ANSWER: Final = frozenset(
    {"/v1/audio/speech", "/v1/images/generations", "/sdapi/v1/txt2img"}
)
_WITHOUT_REQUEST: Final = frozenset({"/v1/audio/voices", "/v1/audio/transcriptions"})
"""What is sound or a picture isn't kept; the same choice as llama-swap's."""


_EITHER: Final = 47
"""gzip or zlib, whichever it is."""
_MOST_INFLATED: Final = 16 * 1024**2
_OVERHEAD: Final = 1024
"""Of the request's headers, and of Python."""


class Capture:
    """One request and its answer while they pass; what is over `limit` bytes is let go."""

    __slots__ = ("_answer", "_headers", "_lines", "_path", "_request", "_room")

    def __init__(self, path: str, headers: RawHeaders, limit: int) -> None:
        self._path = path
        self._headers = headers
        self._request = b""
        self._lines = b""
        self._answer: list[bytes] = []
        self._room = limit

    def asked(self, body: Iterable[bytes | bytearray | memoryview], size: int | None) -> None:
        """Take the request's body, of `size` bytes if that is known; copies it."""
        if self._path in _WITHOUT_REQUEST or self._path in _HEADERS_ONLY or not size:
            return
        self._room -= size
        if self._room >= 0:
            self._request = b"".join(body)

    @property
    def request(self) -> bytes:
        """The request's body; empty where it isn't kept."""
        return self._request

    def begin(self, lines: bytes) -> None:
        """Take the lines of the answer's head."""
        self._lines = lines

    def feed(self, pieces: Sequence[bytes]) -> None:
        """Take what came of the answer's body."""
        if self._room < 0 or self._path in _WITHOUT_ANSWER or self._path in _HEADERS_ONLY:
            return
        self._room -= sum(map(len, pieces))
        if self._room < 0:
            self._answer.clear()
        else:
            self._answer += pieces

    def kept(self, *, failed: bool) -> Kept | None:
        """Return what is to be kept; None: it is too large. Of a failure the answer isn't."""
        if self._room < 0:
            return None
        answer = b"" if failed else b"".join(self._answer)
        return Kept(self._path, self._headers, self._request, self._lines, answer)


class Kept(Struct, frozen=True, gc=False):
    """One request and its answer; what of it is secret isn't shown.

    It holds nothing but bytes and tuples of them, so that thousands of them needn't be searched for
    garbage.
    """

    path: str
    headers: RawHeaders
    """The request's; those of a client's requests are mostly the same object."""
    request: bytes
    lines: bytes
    """Those of the answer's headers."""
    response: bytes

    @property
    def size(self) -> int:
        """Bytes that it takes, roughly."""
        return len(self.request) + len(self.lines) + len(self.response) + _OVERHEAD

    def shown(self, id_: int) -> dict[str, Any]:
        """Return it in llama-swap's form; bodies in base64, and not compressed."""
        headers, response = _decoded(redacted(_pairs(self.lines)), self.response)
        return {
            "id": id_,
            "req_path": self.path,
            # Of a length that differs from request to request the shared headers have no value.
            "req_headers": redacted(header for header in self.headers if header[1]),
            "req_body": b64encode(self.request).decode(),
            "resp_headers": headers,
            "resp_body": b64encode(response).decode(),
        }


class Captures:
    """The newest ones, as many as go into `limit` bytes, by the ids of their rows."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._taken = 0
        self._kept: OrderedDict[int, Kept] = OrderedDict()

    def __contains__(self, id_: object) -> bool:
        return id_ in self._kept

    def keep(self, id_: int, kept: Kept) -> None:
        """Keep one; the oldest make room for it."""
        size = kept.size
        if size > self._limit:
            return
        self._kept[id_] = kept
        self._taken += size
        while self._taken > self._limit:
            _, oldest = self._kept.popitem(last=False)
            self._taken -= oldest.size

    def get(self, id_: int) -> Kept | None:
        """Return one; None: it isn't there any more."""
        return self._kept.get(id_)


def redacted(headers: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    """Return `headers` without what gives access to something, one value a name."""
    texts = ((name.decode("latin-1"), value.decode("latin-1")) for name, value in headers)
    return {name: _BLANK if _is_credential(name) else value for name, value in texts}


def _is_credential(header: str) -> bool:
    return header.lower() in _CREDENTIALS or speaks_of_secret(header)


def _pairs(lines: bytes) -> list[tuple[bytes, bytes]]:
    split = (line.partition(b":") for line in lines.split(b"\r\n") if line)
    return [(name.strip(), value.strip()) for name, _, value in split]


def _decoded(headers: dict[str, str], body: bytes) -> tuple[dict[str, str], bytes]:
    """Return a body as it was before it was compressed, if that can be, with fitting headers."""
    encodings = [value for name, value in headers.items() if name.lower() == "content-encoding"]
    if not body or encodings not in (["gzip"], ["deflate"]):
        return headers, body
    inflate = zlib.decompressobj(_EITHER)
    try:
        plain = inflate.decompress(body, _MOST_INFLATED)
    except zlib.error:
        return headers, body
    if inflate.unconsumed_tail:
        return headers, body
    left = {name: value for name, value in headers.items() if name.lower() != "content-encoding"}
    return left, plain
