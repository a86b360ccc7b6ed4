"""What a conversation is known by: a chain of hashes over its messages.

Each mark is a hash of everything up to the end of one message, so that two conversations share as
much as their marks do. Only what reaches the model's template counts: role, content, tool calls,
and the tools; not the order of keys, nor how JSON is written.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

MARK_BYTES: Final = 16
_MOST_MARKS: Final = 4096
_PIECE: Final = 256
"""Characters of a prompt without messages between two marks: as many as `minTokens` has tokens."""
_CHATS: Final = frozenset({"/v1/chat/completions", "/v1/messages"})
_PROMPTS: Final = frozenset({"/v1/completions", "/completion"})
PATHS: Final = _CHATS | _PROMPTS
"""Where conversations are asked for."""
_TOLD: Final = ("role", "content", "name", "tool_calls", "tool_call_id")


class _Body(msgspec.Struct):
    """What of a request's body reaches the template."""

    messages: Any = None
    system: Any = None
    tools: Any = None
    functions: Any = None
    chat_template_kwargs: Any = None
    prompt: Any = None
    session_id: Any = None


_BODY: Final = msgspec.json.Decoder(_Body)


@dataclass(frozen=True, slots=True)
class Chain:
    """One conversation, as far as it was asked."""

    marks: tuple[bytes, ...]
    lengths: tuple[int, ...]
    """Characters up to each mark."""
    session: str = ""
    """What the client calls it, hashed; empty: nothing."""

    @property
    def length(self) -> int:
        """Characters of all of it."""
        return self.lengths[-1]

    def shared_with(self, marks: Sequence[bytes]) -> int:
        """Return how many marks from the start are the same."""
        low, high = 0, min(len(self.marks), len(marks))
        while low < high:
            middle = (low + high + 1) // 2
            if self.marks[middle - 1] == marks[middle - 1]:
                low = middle
            else:
                high = middle - 1
        return low


def chain_of(path: str, body: bytes, session: str = "") -> Chain | None:
    """Return what is asked at `path` by `body`; None when that is no conversation.

    `session` is what a header calls it; else `session_id` in the body counts.
    """
    try:
        asked = _BODY.decode(body)
        named = session or (asked.session_id if isinstance(asked.session_id, str) else "")
        parts = _messages(asked) if path in _CHATS else _pieces(asked.prompt)
        marks, lengths = _marks(path, parts)
    except (msgspec.DecodeError, RecursionError, TypeError, ValueError):
        return None
    return Chain(marks, lengths, digest(named) if named else "") if marks else None


def digest(text: str) -> str:
    """Return a name for `text` that doesn't tell it."""
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def _marks(path: str, parts: Iterable[bytes]) -> tuple[tuple[bytes, ...], tuple[int, ...]]:
    kind = b"chat" if path in _CHATS else b"prompt"
    chain = hashlib.blake2b(kind, digest_size=MARK_BYTES)
    marks, lengths, length = [], [], 0
    for part in parts:
        length += len(part)
        chain.update(b"%d:%b" % (len(part), part))
        marks.append(chain.copy().digest())
        lengths.append(length)
        if len(marks) == _MOST_MARKS:
            break
    return tuple(marks), tuple(lengths)


def _messages(asked: _Body) -> Iterator[bytes]:
    """Yield the conversation message by message; the first one comes with what precedes it."""
    if not isinstance(asked.messages, list) or not asked.messages:
        return
    before = _canonical((asked.tools, asked.functions, asked.chat_template_kwargs))
    if asked.system is not None:
        before += _canonical(_content(asked.system))
    for message in asked.messages:
        if not isinstance(message, dict):
            raise TypeError("a message is no object")
        told = {key: message[key] for key in _TOLD if message.get(key) is not None}
        if "content" in told:
            told["content"] = _content(told["content"])
        yield before + _canonical(told)
        before = b""


def _content(content: Any) -> Any:
    """Return `content` in its short form: one part of text is that text."""
    match content:
        case [{"type": "text", "text": str(text)}]:
            return text
    return content


def _pieces(prompt: Any) -> Iterator[bytes]:
    """Yield whole pieces of a prompt; what is left at its end can't be told from its answer."""
    if isinstance(prompt, str):
        for start in range(0, len(prompt) - _PIECE + 1, _PIECE):
            yield prompt[start : start + _PIECE].encode("utf-8", "surrogatepass")


def _canonical(value: Any) -> bytes:
    return msgspec.json.encode(value, order="sorted")
