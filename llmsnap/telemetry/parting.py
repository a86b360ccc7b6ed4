"""Where a prompt parted from the last one of its conversation, when it should have been cached.

A clock in the system prompt, tools in another order, an edited answer: whatever comes behind the
first difference has to be computed again. The newest prompts of each client are remembered as they
came, and are looked into only when an answer says that less was cached than there might have been.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import zip_longest
from typing import Final, NamedTuple

from msgspec import DecodeError, Raw, Struct, json

from llmsnap.telemetry.record import RequestRecord
from llmsnap.telemetry.recorder import MOST_RECORDS, Batch

MOST_BYTES: Final = 4 * 1024**2
"""Of all prompts that are remembered."""
_LARGEST: Final = 512 * 1024
_RECENT: Final = 6
"""Prompts a client and model: clients have several conversations, and ask for titles in between."""
_LEAST_TOKENS: Final = 32
_LEAST_SHARE: Final = 0.1
"""What is lost of the last prompt, to be worth a word."""


@dataclass(eq=False)
class Prompt:
    """What was asked, how many tokens it had, and how many of them were cached."""

    body: bytes
    tokens: int = 0
    cached: int = 0

    @cached_property
    def opening(self) -> int | None:
        """The hash of the user's first words, by which a conversation is known; None: no chat."""
        messages = _read(self.body).messages
        return next((hash(bytes(one.content)) for one in messages if one.role == "user"), None)


_NOTHING: Final = Raw()
_NULL: Final = Raw(b"null")


class _Message(Struct):
    """One message of a chat. Texts stay as they came: to build them takes ten times as long."""

    role: str = ""
    content: Raw = _NOTHING
    tool_calls: Raw = _NOTHING


class _Chat(Struct):
    """What comes before the answer, in OpenAI's form and in Anthropic's."""

    messages: list[_Message] = []
    system: Raw = _NOTHING
    tools: Raw = _NOTHING


class Part(NamedTuple):
    """A part of a prompt: what it is called, and its texts as they came."""

    name: str
    texts: tuple[bytes, ...] = ()


class Partings:
    """Compares prompts; `Recorder` hands it the batches, and records get what is found."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._taken = 0
        self._recent: OrderedDict[tuple[str, str], deque[Prompt]] = OrderedDict()

    def take(self, batch: Batch) -> None:
        """Look at each request whose prompt is here and whose answer tells of the cache."""
        prompts = [(record, prompt) for record in batch.requests if (prompt := _prompt_of(record))]
        size = sum(len(prompt.body) for _, prompt in prompts)
        if len(batch.requests) >= MOST_RECORDS or size > self._most_bytes:
            return  # nobody talks as fast, and to compare prompts takes longer than to pass them on
        for record, prompt in prompts:
            self._look(record, prompt)

    def _look(self, record: RequestRecord, prompt: Prompt) -> None:
        key = record.model, record.client
        recent = self._recent.get(key)
        if recent is None:
            recent = self._recent[key] = deque()
        else:
            self._recent.move_to_end(key)
            might_have = [before for before in recent if _is_missed(before, prompt.cached)]
            record.parting = parting(might_have, prompt)
        recent.appendleft(prompt)
        self._taken += len(prompt.body)
        if len(recent) > _RECENT:
            self._taken -= len(recent.pop().body)
        self._make_room()

    def _make_room(self) -> None:
        while self._taken > self._most_bytes and self._recent:
            _, oldest = self._recent.popitem(last=False)
            self._taken -= sum(len(prompt.body) for prompt in oldest)


def _prompt_of(record: RequestRecord) -> Prompt | None:
    """Return what was asked; None: it isn't here, or nothing was said of the cache."""
    tokens, capture = record.tokens, record.capture
    if capture is None or tokens is None or tokens.prompt is None or tokens.cached is None:
        return None
    if not 0 < len(capture.request) <= _LARGEST:
        return None
    return Prompt(capture.request, tokens.prompt, tokens.cached)


def _is_missed(before: Prompt, cached: int) -> bool:
    """Whether much of an earlier prompt wasn't in the cache any more."""
    return before.tokens - cached >= max(_LEAST_TOKENS, _LEAST_SHARE * before.tokens)


def parting(earlier: Iterable[Prompt], now: Prompt) -> str:
    """Say where a prompt parted from the last one of its conversation.

    That is the first of `earlier` which is of the same; empty: none is.
    """
    for before in earlier:
        if now.opening is not None and now.opening == before.opening:
            try:
                return _parted(_parts(before.body), _parts(now.body))
            except (DecodeError, RecursionError):  # in a text, which wasn't looked into before
                return ""
    return ""


def _parted(earlier: Sequence[Part], later: Sequence[Part]) -> str:
    for before, now in zip_longest(earlier, later, fillvalue=Part("")):
        if before == now:
            continue
        if not before.name:  # there was no more of it
            break
        if before.name != now.name:
            return f"the prompt parted from the last one at {before.name}"
        old, new = _text(before), _text(now)
        if old != new:  # and not only spelled in another way
            character = _shared(old, new) + 1
            return f"the prompt parted from the last one at {now.name}, character {character:,}"
    return "the prompt goes on from the last one, but what was cached of that was gone"


def _shared(old: str, new: str) -> int:
    """Return how many characters both begin with."""
    low, high = 0, min(len(old), len(new))
    while low < high:  # comparing slices is so fast that halving beats counting
        middle = (low + high + 1) // 2
        if old[low:middle] == new[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _read(body: bytes) -> _Chat:
    """Return what is asked; empty: it is no chat."""
    try:
        return json.decode(body, type=_Chat)
    except (DecodeError, RecursionError):
        return _Chat()


def _parts(body: bytes) -> list[Part]:
    """Return all that makes the prompt, in the order in which it is computed."""
    chat = _read(body)
    parts = [
        Part(f"message {number} ({message.role})", _texts(message.content, message.tool_calls))
        for number, message in enumerate(chat.messages, 1)
    ]
    if chat.system is not _NOTHING:
        parts.insert(0, Part("its system prompt", _texts(chat.system)))
    if chat.tools is not _NOTHING:
        parts.insert(0, Part("its tools", _texts(chat.tools)))
    return parts


def _texts(*values: Raw) -> tuple[bytes, ...]:
    return tuple(bytes(value) for value in values if value != _NULL)


def _text(part: Part) -> str:
    """Return the texts of a part as one. Raises DecodeError and RecursionError."""
    values = (json.decode(text) for text in part.texts if text)
    return "".join(
        value if isinstance(value, str) else json.encode(value).decode() for value in values
    )
