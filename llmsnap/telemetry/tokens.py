"""How many tokens an answer cost and how long they took, read from its bytes as they pass.

llama-server says `timings`, OpenAI's and Anthropic's kind say `usage`: in the answer, or in the
first and the last events of a stream. So its beginning and its end are kept, as references to what
came, and read when the answer is over. What an answer doesn't say is None, not zero.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from typing import Annotated, Any, Final, TypeVar

import msgspec

END_BYTES: Final = 8 * 1024
"""Kept of an answer's beginning; of its end, up to twice that."""
_MOST_INFLATED: Final = 2**20
"""A compressed answer that grows by more in one go is no text, or a trap."""
_LONGEST_OBJECT: Final = 2 * 1024

_decoder: Final = json.JSONDecoder()


class Tokens(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What an answer says of its tokens."""

    computed: int | None = None
    """Of the prompt: those that weren't in the cache, or all, where nothing is said of a cache."""
    cached: int | None = None
    """Of the prompt: those that were in the cache."""
    generated: int | None = None
    prompt_s: float | None = None
    """What the computed ones of the prompt took."""
    generation_s: float | None = None
    drafted: int | None = None
    accepted: int | None = None
    """Of the drafted ones."""

    @property
    def prompt(self) -> int | None:
        """All tokens of the prompt."""
        return None if self.computed is None else self.computed + (self.cached or 0)


class Excerpt:
    """The beginning and the end of an answer's body."""

    _room = END_BYTES
    """What is free in the head."""
    _before: Sequence[bytes] = ()
    _last_bytes = 0
    _inflate: Any = None
    _is_lost = False

    def __init__(self, *, is_encoded: bool = False) -> None:
        self._head: list[bytes] = []
        self._last: list[bytes] = []
        if is_encoded:
            # 47: gzip or zlib, whichever it is. What is neither (br, zstd) can't be read.
            self._inflate = zlib.decompressobj(47)

    def feed(self, pieces: list[bytes]) -> None:
        """Take what came of the body."""
        if self._inflate is not None:
            pieces = self._inflated(pieces)
        size = len(pieces[0]) if len(pieces) == 1 else sum(map(len, pieces))
        if size <= self._room:
            self._head += pieces
            self._room -= size
            return
        if self._room:
            self._fill_head(pieces)
        elif size > END_BYTES:
            self._last = [b"".join(pieces)[-END_BYTES:]]
            self._last_bytes = END_BYTES
        else:
            self._last += pieces
            self._last_bytes += size
        if self._last_bytes >= END_BYTES:
            self._before, self._last, self._last_bytes = self._last, [], 0

    def tokens(self) -> Tokens | None:
        """Return what the body says; None: nothing."""
        if self._is_lost:
            return None
        head = b"".join(self._head)
        tail = b"".join((*self._before, *self._last))
        return _between(head, tail) if tail else tokens_of(head)

    def start(self) -> bytes:
        """Return how the body begins, as far as it is kept and can be read."""
        return b"".join(self._head)

    def _fill_head(self, pieces: list[bytes]) -> None:
        came = b"".join(pieces)
        self._head.append(came[: self._room])
        rest = came[self._room :][-END_BYTES:]
        self._room = 0
        self._last, self._last_bytes = [rest], len(rest)

    def _inflated(self, pieces: list[bytes]) -> list[bytes]:
        assert self._inflate is not None
        if self._is_lost:
            return []
        try:
            text = self._inflate.decompress(b"".join(pieces), _MOST_INFLATED)
        except zlib.error:
            self._is_lost = True
            return []
        self._is_lost = bool(self._inflate.unconsumed_tail)
        return [text]


Count = Annotated[int, msgspec.Meta(ge=0)]
Milliseconds = Annotated[float, msgspec.Meta(ge=0)]


class _Details(msgspec.Struct):
    """How many tokens of the prompt were cached, as OpenAI says it."""

    cached_tokens: Count | None = None


class _Usage(msgspec.Struct):
    """What OpenAI's and Anthropic's kind say."""

    prompt_tokens: Count | None = None
    completion_tokens: Count | None = None
    input_tokens: Count | None = None
    output_tokens: Count | None = None
    cache_read_input_tokens: Count | None = None
    cache_creation_input_tokens: Count | None = None
    prompt_tokens_details: _Details | None = None
    input_tokens_details: _Details | None = None


class _Timings(msgspec.Struct):
    """What llama-server says."""

    prompt_n: Count | None = None
    cache_n: Count | None = None
    predicted_n: Count | None = None
    prompt_ms: Milliseconds | None = None
    predicted_ms: Milliseconds | None = None
    draft_n: Count | None = None
    draft_n_accepted: Count | None = None


class _AllTimings(msgspec.Struct, gc=False):
    """What a llama-server of today says."""

    prompt_n: Count
    cache_n: Count
    predicted_n: Count
    prompt_ms: Milliseconds
    predicted_ms: Milliseconds
    draft_n: Count | None = None
    draft_n_accepted: Count | None = None


class _Inner(msgspec.Struct):
    """What OpenAI's `response` and Anthropic's `message` events hold."""

    usage: _Usage | None = None


class _Body(msgspec.Struct):
    """The parts of an answer that say something of its tokens."""

    usage: _Usage | None = None
    timings: _Timings | None = None
    response: _Inner | None = None
    message: _Inner | None = None


_bodies: Final = msgspec.json.Decoder(_Body)
_timings: Final = msgspec.json.Decoder(_AllTimings)
_TIMINGS: Final = b'"timings":'
_NO_USAGE: Final = _Usage()
_NO_TIMINGS: Final = _Timings()
_MUTE: Final = (_NO_USAGE, _NO_TIMINGS)
_SPEAKS: Final = re.compile(rb'"(?:usage|timings)"')
_NOTHING: Final = Tokens()


def tokens_of(body: bytes) -> Tokens | None:
    """Return what a whole answer says; None: nothing."""
    if (told := _last_words(body)) is not None:
        return told
    if (said := _decoded(body)) is not None:
        return _tokens(*said) if said is not _MUTE else None
    return _between(body, b"")


def _between(head: bytes, tail: bytes) -> Tokens | None:
    """Return what stands in the beginning and the end of an answer that isn't one object."""
    if not (_SPEAKS.search(head) or _SPEAKS.search(tail)):
        return None  # most streams
    usage = _object(head, b'"usage"', bytes.find) or {}
    later = _object(tail, b'"usage"', bytes.rfind) or _object(head, b'"usage"', bytes.rfind)
    # Anthropic's streams tell of the prompt in their first event, of the rest in a late one.
    usage |= {key: value for key, value in (later or {}).items() if value}
    timings = _object(tail, b'"timings"', bytes.rfind)
    timings = timings or _object(head, b'"timings"', bytes.rfind) or {}
    return _tokens(_lenient(_Usage, usage), _lenient(_Timings, timings))


def _last_words(body: bytes) -> Tokens | None:
    """Return what the `timings` say with which llama-server's answers end; None: others do not.

    The rest of the answer, which may be long, isn't read.
    """
    at = body.rfind(_TIMINGS)
    if at < 0 or not body.endswith(b"}}") or body.find(b"}", at) != len(body) - 2:
        return None
    try:
        told = _timings.decode(body[at + len(_TIMINGS) : -1])
    except msgspec.DecodeError:
        return None
    return Tokens(
        computed=told.prompt_n,
        cached=told.cache_n,
        generated=told.predicted_n,
        prompt_s=told.prompt_ms / 1e3,
        generation_s=told.predicted_ms / 1e3,
        drafted=told.draft_n,
        accepted=told.draft_n_accepted,
    )


def _decoded(body: bytes) -> tuple[_Usage, _Timings] | None:
    """Return what a whole answer says; None when it isn't one JSON object, or makes no sense."""
    if not body.startswith((b"{", b" ", b"\n")):
        return None
    try:
        said = _bodies.decode(body)
    except (msgspec.DecodeError, RecursionError):
        return None
    usage = said.usage
    if usage is None and (inner := said.response or said.message) is not None:
        usage = inner.usage
    if usage is None and said.timings is None:
        return _MUTE  # embeddings, audio, errors
    return usage or _NO_USAGE, said.timings or _NO_TIMINGS


def _object(
    text: bytes, key: bytes, seek: Callable[[bytes, bytes, int, int], int]
) -> dict[str, Any] | None:
    """Return the first (`bytes.find`) or last (`bytes.rfind`) object called `key`, if it is whole.

    In a JSON text within a JSON text the quotes are escaped, so that it isn't taken for one.
    """
    start, end = 0, len(text)
    while (at := seek(text, key, start, end)) >= 0:
        start, end = (at + 1, end) if seek is bytes.find else (start, at + len(key) - 1)
        rest = text[at + len(key) :][:_LONGEST_OBJECT].lstrip()
        if rest.startswith(b":") and text[at - 1 : at] != b"\\":
            try:
                value, _ = _decoder.raw_decode(rest[1:].decode("utf-8", "replace").lstrip())
            except (ValueError, RecursionError):
                continue
            if isinstance(value, dict):
                return value
    return None


_Said = TypeVar("_Said", bound=msgspec.Struct)


def _lenient(kind: type[_Said], said: Mapping[str, Any]) -> _Said:
    """Return what makes sense of `said`."""
    with suppress(msgspec.ValidationError):
        return msgspec.convert(said, kind)
    values = {}
    for name, type_ in _fields(kind):
        with suppress(msgspec.ValidationError, KeyError):
            values[name] = msgspec.convert(said[name], type_)
    return kind(**values)


@cache
def _fields(kind: type[msgspec.Struct]) -> tuple[tuple[str, Any], ...]:
    """Return names and types; to find them out takes longer than all else."""
    return tuple((field.name, field.type) for field in msgspec.structs.fields(kind))


def _tokens(usage: _Usage, timings: _Timings) -> Tokens | None:
    computed, cached = timings.prompt_n, timings.cache_n
    if computed is None or cached is None:
        whole, of_cache = _prompt(usage)
        computed, cached = _first(computed, whole), _first(cached, of_cache)
    generated, prompt_ms, predicted_ms = (
        timings.predicted_n,
        timings.prompt_ms,
        timings.predicted_ms,
    )
    if generated is None:
        generated = _first(usage.completion_tokens, usage.output_tokens)
    tokens = Tokens(
        computed=computed,
        cached=cached,
        generated=generated,
        prompt_s=None if prompt_ms is None else prompt_ms / 1e3,
        generation_s=None if predicted_ms is None else predicted_ms / 1e3,
        drafted=timings.draft_n,
        accepted=timings.draft_n_accepted,
    )
    return None if tokens == _NOTHING else tokens


def _prompt(usage: _Usage) -> tuple[int | None, int | None]:
    """Return the computed and the cached tokens of the prompt, as `usage` tells them."""
    if usage.cache_read_input_tokens is not None:  # Anthropic's `input_tokens` are the others
        new, written = usage.input_tokens, usage.cache_creation_input_tokens or 0
        return None if new is None else new + written, usage.cache_read_input_tokens
    whole = _first(usage.prompt_tokens, usage.input_tokens)
    details = usage.prompt_tokens_details or usage.input_tokens_details
    cached = None if details is None else details.cached_tokens
    return None if whole is None else max(0, whole - (cached or 0)), cached


def _first(*values: int | None) -> int | None:
    for value in values:
        if value is not None:
            return value
    return None
