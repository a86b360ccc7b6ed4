"""What a request's head says, whoever has parsed it: aiohttp, or we for the common form."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Final, Protocol

from aiohttp import HttpVersion, HttpVersion11, hdrs

from llmsnap.web.headers import RawHeaders

_MOST_BYTES: Final = 16 * 1024
_MOST_HEADERS: Final = 100
_TOKEN: Final = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_COMMON: Final = re.compile(
    rb"POST (/[!-\"$->@-~]*) HTTP/1\.1\r\n((?:%b:[\t -~]*\r\n)+)\r\n" % _TOKEN
)
_FIELD: Final = re.compile(rb"([^:]+):[\t ]*(.*?)[\t ]*\r\n")
_LENGTH: Final = re.compile(rb"\r\n[Cc]ontent-[Ll]ength: ?([0-9]{1,9})\r\n")
_CONNECTIONS: Final = {"": True, "keep-alive": True, "close": False}
_UNCOMMON: Final = frozenset({"transfer-encoding", "expect", "upgrade"})


class Headers(Protocol):
    """Values by names in any case; of several of one name the first."""

    def get(self, key: str, default: str, /) -> str: ...

    def __contains__(self, key: object, /) -> bool: ...


class Head(Protocol):
    """The head of a request; aiohttp's requests are such."""

    @property
    def method(self) -> str: ...

    @property
    def raw_path(self) -> str: ...

    @property
    def path(self) -> str: ...

    @property
    def query(self) -> Mapping[str, str]: ...

    @property
    def version(self) -> HttpVersion: ...

    @property
    def headers(self) -> Headers: ...

    @property
    def raw_headers(self) -> RawHeaders: ...

    @property
    def remote(self) -> str | None: ...


class Fields:
    """Headers of which no two have the same name."""

    __slots__ = ("_values",)

    def __init__(self, raw: RawHeaders) -> None:
        self._values = {name.decode().lower(): value.decode() for name, value in raw}

    def __len__(self) -> int:
        """How many there are."""
        return len(self._values)

    def get(self, key: str, default: str = "", /) -> str:
        """Return the value, or `default` without one."""
        return self._values.get(key.lower(), default)

    def __contains__(self, key: object, /) -> bool:
        return isinstance(key, str) and key.lower() in self._values


class CommonHead:
    """The head of a POST with a plain path and headers of printable ASCII, each of them once."""

    __slots__ = ("client", "headers", "keep_alive", "path", "raw_headers", "raw_path", "remote")

    method: Final = hdrs.METH_POST
    version: Final = HttpVersion11
    query: Final[Mapping[str, str]] = {}

    def __init__(
        self, path: str, raw_headers: RawHeaders, headers: Fields, remote: str, keep_alive: bool
    ) -> None:
        self.path = self.raw_path = path
        self.raw_headers = raw_headers
        self.headers = headers
        self.remote = remote
        self.client = _nearest(headers, remote)
        """Who asks; see `client_ip`."""
        self.keep_alive = keep_alive
        """Whether the client wants to ask again on this connection."""


def client_ip(request: Head) -> str:
    """Return who asks, as the nearest proxy in front of us says, else the peer's address."""
    if isinstance(request, CommonHead):
        return request.client
    return _nearest(request.headers, request.remote)


def _nearest(headers: Headers, remote: str | None) -> str:
    if forwarded := headers.get("X-Forwarded-For", ""):
        return forwarded.partition(",")[0].strip()
    return headers.get("X-Real-IP", "") or (remote or "-").removeprefix("::ffff:")


def read_common(data: bytes, remote: str) -> tuple[CommonHead, int, int] | None:
    """Return the head that `data` begins with, and where its body begins and ends.

    None when it isn't of the common form with a length, or not whole: then it takes a real parser
    to say what it is.
    """
    begin = data.find(b"\r\n\r\n") + 4
    if not 4 <= begin <= _MOST_BYTES or (length := _LENGTH.search(data, 0, begin)) is None:
        return None
    start, end = length.span(1)
    head = _common(data[:start] + data[end:begin], remote)
    return (head, begin, begin + int(length[1])) if head is not None else None


@lru_cache(maxsize=256)
def _common(text: bytes, remote: str) -> CommonHead | None:
    """Read a head of which the length is cut out, so that a client's next one is the same."""
    found = _COMMON.fullmatch(text)
    if found is None:
        return None
    raw = tuple(_FIELD.findall(found[2]))
    fields = Fields(raw)
    keep_alive = _CONNECTIONS.get(fields.get("connection").lower())
    if (
        len(fields) != len(raw)
        or len(raw) > _MOST_HEADERS
        or hdrs.HOST not in fields
        or keep_alive is None
        or any(name in fields for name in _UNCOMMON)
    ):
        return None
    return CommonHead(found[1].decode(), raw, fields, remote, keep_alive)


def forget_heads() -> None:
    """Have every head read anew, so that none counts as one that was let through before."""
    _common.cache_clear()
