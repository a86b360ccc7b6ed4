"""The self-test: are restores of any use here? Tried in a slot that holds nothing.

A prompt of our own is read, saved, displaced by another one, restored, and asked for again.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeVar

from llmsnap.errors import Conflict
from llmsnap.sessions import files
from llmsnap.sessions.slots import NotSupported, Refused, Server, Slot, Slots, SlotsFailed
from llmsnap.sessions.subject import SlotSpoiled
from llmsnap.sessions.vault import Vault

T = TypeVar("T")
Word = Literal["used", "useless", "refused"]

_TOKENS: Final = 600
_MORE_TOKENS: Final = 10
_LEAST_TOKENS: Final = 200
"""Shorter prompts tell too little apart."""
_GOOD_PROMPT: Final = 64
"""So many tokens at most are read again where a restore is of use."""
_LIMIT_S: Final = 60.0
"""For one order, also on a slow processor."""
_FILE_BYTES_A_TOKEN: Final = 100
"""A file with less holds nothing."""
_WORDS: Final = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What a self-test has found."""

    word: Word | None
    """None: it is neither of use nor plainly useless."""
    reason: str
    tokens: int = 0
    """That were saved."""
    cached: int = 0
    """Of these, those that were found in the cache afterwards."""
    bytes: int = 0
    is_spoiled: bool = False
    """Whether a restore has failed half-way, so that the process can't be trusted any more."""


class Attempt:
    """A self-test that is under way, and gives way to whoever wants the server."""

    def __init__(self) -> None:
        self.is_unwanted = asyncio.Event()
        """Set when it is to end."""
        self.is_over = asyncio.Event()
        self.spoiled: SlotSpoiled | None = None
        """That its process was harmed, and is being ended."""

    async def give_way(self) -> None:
        """Have it ended; return when it is. Raises SlotSpoiled."""
        self.is_unwanted.set()
        await self.is_over.wait()
        if self.spoiled is not None:
            raise self.spoiled


def empty_slot(slots: Sequence[Slot]) -> Slot:
    """Return a slot that holds nothing, where a test displaces nothing. Raises Conflict.

    Slots may share one cache, in which a test must find room beside what the others hold.
    """
    empty = next((slot for slot in slots if slot.is_empty), None)
    if empty is None:
        raise Conflict("all its slots hold conversations; unload the model, and test it then")
    held = [slot.n_prompt_tokens for slot in slots if not slot.is_empty]
    if None in held or (held and sum(h or 0 for h in held) + 2 * _TOKENS > empty.n_ctx):
        raise Conflict("conversations might have to make room; unload the model, and test it then")
    return empty


class Trial:
    """One self-test of one server, in one slot, which holds nothing before and after."""

    def __init__(self, slots: Slots, server: Server, slot: Slot, vault: Vault) -> None:
        self._slots = slots
        self._server = server
        self._slot = slot
        self._vault = vault

    async def run(self) -> Found:
        """Try it. Raises SlotsFailed when the server doesn't answer, and Conflict.

        Who cancels this waits until an order that was begun is answered: none is cut half-way.
        """
        first, other = await self._prompt(), await self._prompt()
        temporary = files.temporary_name()
        try:
            return await self._try(first, other, temporary)
        except NotSupported as error:
            return Found(word="refused", reason=f"its server can't: {error}")
        finally:
            files.remove(self._vault.folder, temporary)

    async def _try(self, first: list[int], other: list[int], name: str) -> Found:
        slots, server, slot = self._slots, self._server, self._slot.id
        await slots.read(server, slot, first, _LIMIT_S)
        saved = await _whole(slots.save(server, slot, name, _LIMIT_S))
        if saved.n_saved < len(first) or saved.n_written < _FILE_BYTES_A_TOKEN * len(first):
            told = f"{saved.n_saved} tokens and {saved.n_written} bytes were saved"
            return Found(word="useless", reason=f"of {len(first)} tokens {told}")
        await slots.read(server, slot, other, _LIMIT_S)
        try:
            restored = await _whole(slots.restore(server, slot, name, _LIMIT_S))
        except Refused as error:
            return Found(word="refused", reason=str(error), is_spoiled=True)
        if restored.n_restored != saved.n_saved:
            told = f"{restored.n_restored} of {saved.n_saved} tokens came back"
            return Found(word="refused", reason=told, is_spoiled=True)
        read = await slots.read(server, slot, first + other[:_MORE_TOKENS], _LIMIT_S)
        await _whole(slots.erase(server, slot, _LIMIT_S))
        return _judged(len(first), read.prompt_n, read.cache_n, saved.n_written)

    async def _prompt(self) -> list[int]:
        """Return tokens that nobody has asked for before."""
        room = (self._slot.n_ctx or _TOKENS * 2) // 2
        wanted = min(_TOKENS, room)
        if wanted < _LEAST_TOKENS:
            raise Conflict(f"a slot holds {self._slot.n_ctx} tokens, too few for a test")
        text = " ".join(secrets.token_hex(4) for _ in range(_WORDS))
        tokens = await self._slots.tokens(self._server, text, _LIMIT_S)
        if len(tokens) < wanted:
            raise SlotsFailed(f"a text of {len(text)} letters has {len(tokens)} tokens only")
        return [*tokens[:wanted]]


async def _whole(order: Coroutine[Any, Any, T]) -> T:
    """Return what `order` gives, or raise what it raises, also when cancelled meanwhile."""
    task, cancelled = asyncio.ensure_future(order), False  # ends here
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:
            cancelled = True
    given = task.result()
    if cancelled:
        raise asyncio.CancelledError
    return given


def _judged(tokens: int, read: int, cached: int, size: int) -> Found:
    word: Word | None = None
    if read <= _GOOD_PROMPT:
        word, reason = "used", f"{cached} of {tokens} tokens were found in the cache"
    elif read >= tokens // 2:
        word = "useless"
        reason = f"restores are useless: of {tokens} tokens {cached} were found in the cache"
    else:
        reason = f"only {cached} of {tokens} tokens were found in the cache"
    return Found(word=word, reason=reason, tokens=tokens, cached=cached, bytes=size)
