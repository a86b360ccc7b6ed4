"""Saves what the slots of one process hold: checked before it takes the place of anything."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from llmsnap.config.quantities import size_text
from llmsnap.sessions import files
from llmsnap.sessions.catalogue import Saved
from llmsnap.sessions.chain import Chain
from llmsnap.sessions.files import FileFault, Kept
from llmsnap.sessions.identity import Identity
from llmsnap.sessions.outcome import Outcome, Tell
from llmsnap.sessions.proof import Proofs
from llmsnap.sessions.slots import Lost, NotSupported, Refused, Server, Slot, Slots, SlotsFailed
from llmsnap.sessions.turns import SLACK, Turn, holders
from llmsnap.sessions.vault import Vault

logger = logging.getLogger(__name__)

_LIMIT_S: Final = 120.0
"""For one save; who has less time gives it up from outside."""
_GUESS_BYTES: Final = 32 * 1024
"""A token, before the first save has told."""
_PATIENCE_S: Final = 1.0
"""A save for which a request would have to wait longer isn't made."""
_LONGEST_S: Final = 3.0
"""After so long it is given up where a request waits for it."""


class Around(Protocol):
    """What is needed besides."""

    @property
    def slots(self) -> Slots: ...

    @property
    def vault(self) -> Vault: ...

    @property
    def tell(self) -> Tell: ...

    @property
    def now(self) -> Callable[[], float]: ...


@dataclass(frozen=True, slots=True)
class State:
    """One process at a moment: what it is, its slots, and the turns that they may hold."""

    who: Identity
    server: Server
    slots: Sequence[Slot]
    turns: Sequence[Turn]
    min_tokens: int

    @property
    def is_full(self) -> bool:
        """Whether another conversation takes the place of one."""
        return all(slot.id_task >= 0 for slot in self.slots)


@dataclass(frozen=True, slots=True)
class Saving:
    """A file that a server has written."""

    name: str
    tokens: int
    kept: Kept


class Saver:
    """Saves the conversations of one model."""

    def __init__(self, model: str, around: Around, proofs: Proofs) -> None:
        self._model = model
        self._around = around
        self._proofs = proofs
        self._token_bytes = 0.0
        """What a token takes in a file; 0: not seen yet."""
        self._token_s = 0.0
        self._complaint = ""

    async def save_displaced(self, state: State, *, least_new: int = 1) -> str:
        """Save what isn't before a request takes its place; returns as `save` does.

        Nothing is done where that takes too long; what does after all isn't waited for.
        """
        longest = max((turn.held for turn in state.turns if not turn.is_saved), default=0)
        if not longest or self.takes_s(longest) > _PATIENCE_S:
            return ""
        try:
            async with asyncio.timeout(_LONGEST_S):
                return await self.save(state, least_new=least_new)
        except TimeoutError:
            self._token_s = _LONGEST_S / longest
            self._failed(f"a request waits for its slot, and it takes over {_LONGEST_S:g} s")
            return ""

    def takes_s(self, tokens: int) -> float:
        """Return how long it takes to save so many, by the last save; 0: nobody knows."""
        return tokens * self._token_s

    async def is_due(
        self, turns: Iterable[Turn], who: Identity, *, least_new: int, min_tokens: int
    ) -> bool:
        """Say whether any of `turns` has grown by so many tokens since it was saved."""
        for turn in turns:
            if not turn.is_saved and turn.held >= min_tokens:
                chain = await turn.chain()
                if chain is not None and self._new(who, turn, chain) >= least_new:
                    return True
        return False

    async def save(self, state: State, *, least_new: int) -> str:
        """Save all slots whose conversations have grown by so many tokens since they were saved.

        Returns why there are to be no more saves; empty: there may be.
        """
        try:
            for slot, turn in holders(state.turns, state.slots).items():
                if not turn.is_saved and turn.held >= state.min_tokens:
                    await self._save(state, turn, slot, least_new)
        except NotSupported as error:
            reason = f"its server can't save slots: {error}"
            logger.warning("model %s: conversations aren't saved: %s", self._model, reason)
            return reason
        except Lost as error:
            self._failed(str(error))
            return self._proofs.died(state.who, "save a slot")
        except (SlotsFailed, FileFault) as error:
            self._failed(str(error))
        return ""

    async def _save(self, state: State, turn: Turn, slot: int, least_new: int) -> None:
        who, chain = state.who, await turn.chain()
        if chain is None:
            turn.is_saved = True  # it never will be
            return
        if self._new(who, turn, chain) < least_new:
            return
        earlier = self._superseded(who, turn, chain)
        vault = self._around.vault
        await vault.make_room(round(turn.held * (self._token_bytes or _GUESS_BYTES)))
        began = asyncio.get_running_loop().time()
        temporary = files.temporary_name()
        try:
            said = await self._around.slots.save(state.server, slot, temporary, _LIMIT_S)
            self._proofs.survived(who)
            if abs(said.n_saved - turn.held) > SLACK:
                raise FileFault(f"{said.n_saved} tokens were saved, and {turn.held} were there")
            name, kept = await vault.keep(temporary, said.n_written)
        except (Refused, FileFault) as error:
            if ailment := await asyncio.to_thread(files.ailment, vault.folder):
                raise FileFault(f"{error}; {ailment}") from error
            raise
        finally:
            files.remove(vault.folder, temporary)  # where it has become something, it's gone
        took_s = asyncio.get_running_loop().time() - began
        saved = self._entry(who, turn, chain, Saving(name, said.n_saved, kept))
        await vault.add(saved, instead_of=[old.name for old in earlier])
        turn.is_saved = True
        self._saved(saved, took_s)

    def _new(self, who: Identity, turn: Turn, chain: Chain) -> int:
        """Return how many tokens of `turn` no file has."""
        saved = [earlier.tokens for earlier in self._superseded(who, turn, chain)]
        return turn.held - max(saved, default=0)

    def _superseded(self, who: Identity, turn: Turn, chain: Chain) -> list[Saved]:
        """Return the saved states of the same conversation that this one goes on from."""
        return [
            saved
            for saved in self._around.vault.catalogue.of(self._model)
            if saved.scope == turn.scope
            and saved.facts == who.facts
            and chain.shared_with(saved.marks) == len(saved.marks)
        ]

    def _entry(self, who: Identity, turn: Turn, chain: Chain, saving: Saving) -> Saved:
        now, tokens = self._around.now(), turn.record.tokens
        return Saved(
            name=saving.name,
            model=self._model,
            facts=who.facts,
            engine=who.engine,
            scope=turn.scope,
            session=chain.session,
            marks=chain.marks,
            length=chain.length,
            tokens=saving.tokens,
            prompt_tokens=tokens.prompt or 0 if tokens is not None else 0,
            kept=saving.kept,
            made=now,
            used=now,
        )

    def _saved(self, saved: Saved, took_s: float) -> None:
        size = saved.kept.size
        self._token_bytes = size / saved.tokens
        self._token_s = took_s / saved.tokens
        self._complaint = ""
        self._around.tell(Outcome(self._model, "save", "saved", size))
        logger.info(
            "model %s: a conversation of %d tokens is saved (%s in %.2f s)",
            *(self._model, saved.tokens, size_text(size), took_s),
        )

    def _failed(self, complaint: str) -> None:
        """Say once what is wrong; what was saved before is still there."""
        self._around.tell(Outcome(self._model, "save", "failed"))
        if complaint != self._complaint:
            logger.warning("model %s: a conversation isn't saved: %s", self._model, complaint)
        self._complaint = complaint
