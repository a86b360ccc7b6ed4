"""Brings saved conversations back into slots of one model's processes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Final

from llmsnap.sessions.catalogue import Saved
from llmsnap.sessions.chain import Chain
from llmsnap.sessions.choice import Wish, best_of
from llmsnap.sessions.identity import Identity, difference
from llmsnap.sessions.line import NotYet
from llmsnap.sessions.outcome import Outcome
from llmsnap.sessions.proof import Proofs
from llmsnap.sessions.saving import State
from llmsnap.sessions.slots import Late, Lost, NotSupported, Restored, Slot, SlotsFailed
from llmsnap.sessions.subject import Process, Shared, SlotSpoiled
from llmsnap.sessions.turns import Turn

logger = logging.getLogger(__name__)

_LEAST_S: Final = 10.0
_BYTES_PER_S: Final = 50 * 1024**2
"""A disk that is slower than that is given up on."""
_TELLING_TOKENS: Final = 64
"""A shorter prompt doesn't tell how long a token takes."""
_STEP_S: Final = 1.0
_NEVER_S: Final = 86400.0
_LATER_S: Final = 0.5


class Restorer:
    """Knows which saved conversation a request wants, and reads it."""

    def __init__(self, model: str, shared: Shared, proofs: Proofs) -> None:
        self._model = model
        self._shared = shared
        self._vault = shared.vault
        self._proofs = proofs
        self._read_token_s = 0.0
        """What the server takes to read a token of a prompt; 0: not seen yet."""
        self._byte_s = 0.0
        """The same for a byte of a saved conversation."""
        self._doubtful: set[str] = set()
        """Files that didn't come back beside what other slots held."""

    async def wish(
        self, turn: Turn, chain: Chain, who: Identity, held: Sequence[Turn], min_tokens: int
    ) -> Wish | None:
        """Return what should be in a slot for `turn` and isn't; None: nothing.

        `held`: what slots may hold.
        """
        catalogue = self._vault.catalogue
        mine = [s for s in catalogue.of(self._model) if s.scope == turn.scope]
        refusal_of = self._proofs.pair_refusal
        fitting = [s for s in mine if s.facts == who.facts and not refusal_of(who, s)]
        no_branches = self._proofs.branch_refusal_of(who)
        wish = best_of(fitting, chain, whole_only=bool(no_branches))
        if wish is None:
            if (other := best_of(mine, chain)) is not None:
                reason = difference(other.saved.facts, who.facts) or refusal_of(who, other.saved)
                self._refuse(other.saved, reason or no_branches)
            return None
        if wish.tokens < min_tokens or not self._is_worth_it(wish):
            return None
        return None if await self.are_like(turn, chain, held, wish) else wish

    async def are_like(self, turn: Turn, chain: Chain, others: Sequence[Turn], wish: Wish) -> bool:
        """Whether one of `others` has as much in common with `turn` as what it would have back."""
        for other in others:
            there = await other.chain() if other.scope == turn.scope else None
            if there is not None and chain.shared_with(there.marks) >= wish.shared:
                return True
        return False

    def learn(self, turn: Turn) -> None:
        """Take in how long the server took to read a prompt."""
        tokens = turn.record.tokens
        if tokens is not None and tokens.prompt_s and (tokens.computed or 0) >= _TELLING_TOKENS:
            self._read_token_s = tokens.prompt_s / (tokens.computed or 1)

    def _is_worth_it(self, wish: Wish) -> bool:
        """Whether to restore is quicker than to read, as far as anybody knows."""
        read_s = wish.tokens * self._read_token_s
        return not read_s or read_s > wish.saved.kept.size * self._byte_s

    async def is_fit(self, saved: Saved, slot: Slot, state: State) -> bool:
        """Say whether `saved` may be read into `slot`.

        What is broken is set aside. Raises NotYet then: something else may do.
        """
        is_risky = saved.engine != state.who.engine or saved.name in self._doubtful
        if is_risky and any(slot.is_processing for slot in state.slots):
            return False  # if it went wrong, their answers would be cut
        if slot.n_ctx and saved.tokens >= slot.n_ctx:
            self._refuse(saved, f"it has {saved.tokens} tokens, and a slot holds {slot.n_ctx}")
            return False
        if fault := await self._vault.fault_of(saved):
            await self._vault.set_aside(saved)
            self._tell(saved, "refused")
            logger.warning("model %s: a saved conversation is lost: %s", self._model, fault)
            await self._vault.look_again()  # another proxy may have put another in its place
            raise NotYet(0.0)
        return True

    async def read(self, process: Process, saved: Saved, slot: int, state: State) -> None:
        """Have `saved` read into `slot`.

        Raises NotSupported, NotYet when another request was there first, SlotSpoiled when the
        process has to be restarted, and Lost when it was told to end. Who cancels this waits for
        the server's answer, so that none goes unheard.
        """
        limit_s = _LEAST_S + saved.kept.size / _BYTES_PER_S
        reading = asyncio.ensure_future(self._read(process, saved, slot, state, limit_s))
        reading.add_done_callback(_seen_to)
        try:
            await asyncio.shield(reading)
        except asyncio.CancelledError:
            await asyncio.wait({reading}, timeout=limit_s)
            reading.cancel()
            raise

    async def _read(
        self, process: Process, saved: Saved, slot: int, state: State, limit_s: float
    ) -> None:
        try:
            began = asyncio.get_running_loop().time()
            found = await self._in_time(process, saved, slot, limit_s)
            self._byte_s = (asyncio.get_running_loop().time() - began) / max(1, saved.kept.size)
            self._proofs.survived(state.who)
            if found.n_restored != saved.tokens:
                raise SlotsFailed(f"{found.n_restored} of {saved.tokens} tokens came back")
        except NotSupported:
            raise
        except SlotsFailed as error:
            if isinstance(error, Lost) and self._is_leaving(process):
                raise  # that was no fault of the file's
            if isinstance(error, Late) and await self._is_taken(process, slot, state):
                raise NotYet(_LATER_S) from None
            is_alone = all(other.id == slot or not other.n_prompt_tokens for other in state.slots)
            raise await self._spoiled(process, saved, state.who, error, is_alone) from None
        self._vault.catalogue.use(saved, self._shared.now())
        logger.info(
            "model %s: %d tokens of a saved conversation are back in slot %d",
            *(self._model, saved.tokens, slot),
        )

    async def _in_time(self, process: Process, saved: Saved, slot: int, limit_s: float) -> Restored:
        """Give the order; the time in which the process sleeps doesn't count."""
        shared, left_s = self._shared, limit_s
        order = asyncio.ensure_future(shared.slots.restore(process, slot, saved.name, _NEVER_S))
        try:
            while not order.done() and left_s > 0:
                was_away = shared.is_away(process)
                await asyncio.wait({order}, timeout=_STEP_S)
                if not (was_away or shared.is_away(process)):
                    left_s -= _STEP_S
            if not order.done():
                raise Late(f"no answer to a restore within {limit_s:g} s")
            return order.result()
        finally:
            order.cancel()

    def _is_leaving(self, process: Process) -> bool:
        return self._shared.standing(process.model, process.generation) == "leaving"

    async def _is_taken(self, process: Process, slot: int, before: State) -> bool:
        """Whether a request nobody knew of is in `slot`, for whose end the order had to wait."""
        try:
            slots = await self._shared.slots.list(process)
        except SlotsFailed:
            return False
        tasks = {one.id: one.id_task for one in before.slots}
        return any(
            one.id == slot and (one.is_processing or one.id_task != tasks[slot]) for one in slots
        )

    async def _spoiled(
        self, process: Process, saved: Saved, who: Identity, error: SlotsFailed, is_alone: bool
    ) -> SlotSpoiled:
        """Have the process restarted; a file that is at fault is never tried again.

        It isn't where another build has written it, which only this one refuses, nor the first time
        where other slots held something: it may have lacked room.
        """
        self._proofs.refused(who, saved, str(error))
        if isinstance(error, Lost):
            self._proofs.died(who, "restore a slot")
        if saved.engine == who.engine and (is_alone or saved.name in self._doubtful):
            await self._vault.set_aside(saved)
        self._doubtful.add(saved.name)
        self._tell(saved, "failed")
        logger.warning(
            "model %s: a restore failed (%s); it is restarted before it serves",
            *(self._model, error),
        )
        return self._shared.spoiled(process, f"a conversation couldn't be restored: {error}")

    def _refuse(self, saved: Saved, reason: str) -> None:
        if self._proofs.is_news(saved, reason):
            self._tell(saved, "refused")
            logger.info("model %s: a saved conversation doesn't fit: %s", self._model, reason)

    def _tell(self, saved: Saved, result: str) -> None:
        self._shared.tell(Outcome(self._model, "restore", result))


def _seen_to(task: asyncio.Future[None]) -> None:
    """Take note of how `task` has ended: nobody may be left who waits for it."""
    if not task.cancelled():
        task.exception()
