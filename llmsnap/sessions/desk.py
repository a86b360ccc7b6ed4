"""One model's conversations: what is in the slots of its process, and what came back or is kept."""

from __future__ import annotations

import asyncio
import itertools
import logging
from functools import partial
from typing import Final

from llmsnap.errors import Conflict, LlmsnapError
from llmsnap.sessions.catalogue import Saved
from llmsnap.sessions.choice import (
    Wish,
    are_settled,
    free_slot,
    fresh_turns,
    may_be_left,
    may_hold,
    unknown_slots,
)
from llmsnap.sessions.identity import Identity, identity_of
from llmsnap.sessions.line import Line, NoRoom, NotYet
from llmsnap.sessions.pool import empties_idle, is_shared, slot_count, to_empty
from llmsnap.sessions.proof import Proofs
from llmsnap.sessions.restoring import Restorer
from llmsnap.sessions.saving import Saver, State
from llmsnap.sessions.slots import Late, Lost, NotSupported, Slot, SlotsFailed
from llmsnap.sessions.subject import Process, Shared, Subject
from llmsnap.sessions.traffic import Traffic
from llmsnap.sessions.trial import Attempt, Found, Trial, empty_slot
from llmsnap.sessions.turns import Restore, Turn, holders, likely_tokens

logger = logging.getLogger(__name__)

_ERASE_S: Final = 10.0
"""More time than a server takes to empty a slot."""
_PATIENCE_S: Final = 600.0
"""How long a request waits for a slot; its server would let it wait as well."""
_LOOK_S: Final = 0.5
"""Between two looks at slots that are all in use: not every request is known here."""
_GLANCE_S: Final = 0.05
"""The same while a request is on its way into one of them."""


class Desk:
    """Follows one model. Of one order to its server after the other none begins before its time."""

    def __init__(self, model: str, shared: Shared) -> None:
        self.refusal = ""
        """Why nothing is saved or restored for this process; empty: it is."""
        self.attempt: Attempt | None = None
        """The self-test that is under way, which has to give way to a request."""
        self.min_tokens = 1
        self._model = model
        self._shared = shared
        self._vault = shared.vault
        self._lock = asyncio.Lock()
        self._line = Line()
        self._process: Process | None = None
        self._subject = Subject(argv=(), env={}, min_tokens=1)
        self._identity: Identity | None = None
        self._slot_count = 1
        self._empties_idle = False
        self._inherited: dict[int, int] | None = {}
        """The last request in each slot that was in use when it was met; None: not seen yet."""
        self._traffic = Traffic()
        self._turns: list[Turn] = []
        """Those that have ended, in the order of their beginning; the slots hold some of them."""
        self._cut: list[Turn] = []
        """Those that ended before their answers did, whose prompts slots may hold, too."""
        self._proofs = Proofs(model, shared.vault, shared.tell, shared.now)
        self._saver = Saver(model, shared, self._proofs)
        self._restorer = Restorer(model, shared, self._proofs)

    @property
    def is_serving(self) -> bool:
        """Whether a request is under way, so that a slot may change any time."""
        return self._traffic.is_serving

    @property
    def process(self) -> Process | None:
        """The process that was heard of last."""
        return self._process

    def meet(self, process: Process, subject: Subject) -> None:
        """Take in that a process is up; its slots are empty, unless it was adopted."""
        self.refusal = ""
        self.min_tokens = subject.min_tokens
        self._process, self._subject, self._identity = process, subject, None
        self._slot_count = slot_count(subject.argv, subject.env)
        self._empties_idle = empties_idle(subject.argv, subject.env)
        self._turns, self._cut, self._traffic = [], [], Traffic()
        self._inherited = None if subject.is_adopted else {}

    # ---- requests ------------------------------------------------------------------------------

    def begins(self, turn: Turn, process: Process) -> bool:
        """Take in that `turn` goes to `process` next; say whether `make_ready` must come before.

        It needn't where the conversation is in a slot already, nor where nothing is saved.
        """
        if self.refusal or self._vault.fault or not self._is_of(process):
            return False
        is_busy = self.is_serving
        self._traffic.begin(turn)
        if not self._line.is_empty or self._traffic.is_expected:
            return True
        seen = itertools.chain(self._traffic.ended(), reversed(self._turns))
        for place, earlier in enumerate(itertools.islice(seen, self._slot_count)):
            if turn.continues(earlier):
                is_due = place > 0 and not is_busy and self._empties_idle and self._has_unsaved()
                break
        else:
            is_due = self._has_unsaved() or self._vault.catalogue.has(process.model)
        if not is_due:
            self._traffic.go(turn)
        return is_due

    async def make_ready(self, turn: Turn) -> int | None:
        """Put the conversation of `turn` into a slot if it is saved, and return that slot.

        What would be displaced is saved first. It waits for a slot, and for those who came before.
        None: there is no choice of slots, or nothing to put there. Raises SlotSpoiled when the
        process has to be restarted.
        """
        began = asyncio.get_running_loop().time()
        while True:
            try:
                async with self._line.first(turn):
                    slot = await self._wait_for_slot(turn, began)
                    self._traffic.go(turn)
                    return slot
            except NoRoom as error:
                await self._line.news(error.look_s)

    async def _wait_for_slot(self, turn: Turn, began: float) -> int | None:
        """Return the slot, as `make_ready` does. Raises NoRoom."""
        loop = asyncio.get_running_loop()
        while not turn.is_off:
            self._line.settle()
            try:
                async with self._lock:
                    turn.waited_s = loop.time() - began
                    return await self._prepare(turn)
            except NotYet as error:
                if turn.waited_s > _PATIENCE_S:
                    logger.info("model %s: no slot is free for a saved conversation", self._model)
                    break
                if isinstance(error, NoRoom):
                    raise
                await self._line.news(error.look_s)
        return None

    async def _prepare(self, turn: Turn) -> int | None:
        """Do as `make_ready` says. Raises NotYet where that may still be done, but not now."""
        if (process := self._process) is not None and self._shared.is_away(process):
            raise NotYet(_LOOK_S)  # it was put to sleep in the middle of its answers
        self._shared.flush()
        chain, who = await turn.chain(), await self._who()
        if chain is None or self.refusal:
            return None
        wish = await self._restorer.wish(turn, chain, who, self._turns, self.min_tokens)
        state = await self._state(waits=wish is not None)
        if state is None or self.refusal:
            return None
        if wish is not None and await self._restorer.are_like(turn, chain, self._cut, wish):
            ours = holders(state.turns, state.slots)
            wish = None if may_be_left(state.slots, ours, wish) else wish
        slot = self._choose(turn, wish, state)
        if state.is_full or self._empties_idle:
            least = 1 if state.is_full else self.min_tokens
            self.refusal = await self._saver.save_displaced(state, least_new=least)
        if wish is None or slot is None:
            return None
        return await self._restore(turn, wish, slot, state)

    def give_up(self, turn: Turn, error: LlmsnapError) -> None:
        """Take in that the process of `turn` is going: it isn't worth waiting for a slot."""
        turn.is_off = True
        self._line.stir()

    def answered(self, record: object) -> bool:
        """Take in that a request has ended; say whether it was one of this model's turns."""
        turn = self._traffic.end(record)
        if turn is None:
            return False
        self._line.stir()
        if not turn.is_whole and turn.record.forwarded_at:
            self._cut = [*self._cut, turn][-self._slot_count :]
        if turn.is_whole:
            self._restorer.learn(turn)
            self._turns = fresh_turns(self._turns, turn, self._slot_count)
            if turn.restored is not None and self._identity is not None:
                self.refusal = self._proofs.prove(turn, turn.restored, self._identity)
        return True

    def worthless(self) -> list[str]:
        """Return the files that are of no use, as it has turned out for what runs now."""
        who = self._identity
        if not self.refusal or who is None or not self._proofs.uselessness_of(who):
            return []
        saved = self._vault.catalogue.of(self._model)
        return [one.name for one in saved if one.facts == who.facts]

    # ---- saving --------------------------------------------------------------------------------

    def has_unsaved(self, process: Process) -> bool:
        """Whether something of what `process` holds could be saved and isn't."""
        if self.refusal or self._vault.fault or not self._is_of(process):
            return False
        self._shared.flush()
        return self._has_unsaved()

    def forget(self, process: Process) -> None:
        """Take in that the slots of `process` are empty."""
        if self._is_of(process):
            self._turns, self._cut, self._inherited = [], [], {}
            self._traffic.forget()

    def takes_s(self, process: Process) -> float:
        """Return how long it will take to save what isn't; 0: nothing, or nobody knows."""
        if not self.has_unsaved(process):
            return 0.0
        return self._saver.takes_s(sum(turn.held for turn in self._turns if not turn.is_saved))

    async def save(self, process: Process, *, least_new: int, limit_s: float) -> None:
        """Save what the slots hold and no file does, if that is `least_new` tokens or more."""
        if not self.has_unsaved(process):
            return
        try:
            async with asyncio.timeout(limit_s), self._lock:
                state = await self._state() if await self._is_due(least_new) else None
                if state is not None and not self.refusal:
                    self.refusal = await self._saver.save(state, least_new=least_new)
        except TimeoutError:
            logger.warning(
                "model %s: its conversations weren't saved within %g s", process.model, limit_s
            )

    # ---- self-tests ----------------------------------------------------------------------------

    async def is_settled(self) -> bool:
        """Whether it is known what restores are worth for what runs now, or nothing can be."""
        return self._proofs.is_settled(await self._who()) or bool(self.refusal or self._vault.fault)

    async def test(self, process: Process, attempt: Attempt) -> Found:
        """Find out what restores are worth, in a slot that holds nothing.

        To be cancelled once `attempt.is_unwanted`. Raises Conflict and SlotsFailed.
        """
        self.attempt = attempt
        try:
            async with self._lock:
                if self.is_serving or not self._is_of(process):
                    raise Conflict(f"model {self._model!r} isn't idle any more; try again")
                state = await self._state()
                if state is None:
                    raise Conflict(self.refusal or "its slots can't be seen; the log says why")
                slot = empty_slot(state.slots)
                found = await Trial(self._shared.slots, process, slot, self._vault).run()
                self.refusal = self._proofs.tried(state.who, found)
                if found.is_spoiled:
                    why = f"a self-test failed: {found.reason}"
                    attempt.spoiled = self._shared.spoiled(process, why)
                return found
        except Lost:
            self.refusal = self._proofs.died(await self._who(), "be tested")
            raise
        finally:
            self.attempt = None
            attempt.is_over.set()

    # ---- for all ------------------------------------------------------------------------------

    def _is_of(self, process: Process) -> bool:
        """Whether `process` is the one that was met last."""
        return self._process is not None and self._process.generation == process.generation

    def _has_unsaved(self) -> bool:
        least = self.min_tokens
        return any(not turn.is_saved and turn.held >= least for turn in self._turns) or any(
            len(turn.body) >= least
            for turn in self._traffic.ended()  # a token is a byte at least
        )

    async def _is_due(self, least_new: int) -> bool:
        """Whether the server need be asked at all, to save what has grown by so many tokens."""
        who, least, turns = await self._who(), self.min_tokens, self._turns
        return await self._saver.is_due(turns, who, least_new=least_new, min_tokens=least)

    async def _who(self) -> Identity:
        """Return what the process is; looked up once, as files may be replaced while it runs."""
        if self._identity is None:
            subject = self._subject
            self._identity = await asyncio.to_thread(identity_of, subject.argv, subject.env)
            self.refusal = self._proofs.refusal_of(self._identity)
        return self._identity

    async def _state(self, *, waits: bool = False) -> State | None:
        """Return what its server says of itself; None: nothing.

        `waits`: raises NotYet where it is only too busy to say.
        """
        process = self._process
        assert process is not None
        try:
            slots = await self._shared.slots.list(process)
        except NotSupported as error:
            self.refusal = f"its server doesn't list its slots: {error}"
            logger.warning("model %s: conversations aren't saved: %s", process.model, self.refusal)
            return None
        except SlotsFailed as error:
            if waits and isinstance(error, Late) and self._traffic.under_way():
                raise NotYet(_LOOK_S) from None
            logger.warning("model %s: its conversations can't be seen: %s", process.model, error)
            return None
        self._slot_count = max(1, len(slots))
        self._turns = self._turns[-self._slot_count :]
        if self._inherited is None:
            self._inherited = {slot.id: slot.id_task for slot in slots if slot.id_task >= 0}
        return State(await self._who(), process, slots, self._turns, self.min_tokens)

    def _choose(self, turn: Turn, wish: Wish | None, state: State) -> Slot | None:
        """Return the slot for what `turn` wishes; None: it had better go without.

        Raises NotYet where all are in use, or another request might still come into that slot.
        """
        if wish is None and not self._traffic.is_expected:
            return None
        under_way = self._traffic.under_way()
        if not are_settled(state.slots, under_way, asyncio.get_running_loop().time()):
            raise NotYet(_GLANCE_S)
        unknown = self._unknown(state)
        if wish is None or any(may_hold(slot, wish.saved) for slot in unknown):
            return None  # it may be there already, and further on than the file
        slot = free_slot(state.slots, [slot.id for slot in unknown])
        if slot is None and not all(slot.is_processing for slot in unknown):
            return None  # its server would take that one
        # One that its server lets wait may be about to get what looks free.
        is_sure = len(under_way) < len(state.slots) or state.slots == turn.glimpse
        turn.glimpse = state.slots
        if slot is None or not is_sure:
            raise NotYet(_LOOK_S if slot is None else _GLANCE_S)
        return slot

    async def _restore(self, turn: Turn, wish: Wish, slot: Slot, state: State) -> int | None:
        saved = wish.saved
        assert self._process is not None
        if not await self._restorer.is_fit(saved, slot, state) or turn.is_off:
            return None
        if not await self._make_way(state, slot, saved):
            return None
        try:
            await self._restorer.read(self._process, saved, slot.id, state)
        except NotSupported as error:
            self.refusal = f"its server can't restore slots: {error}"
            logger.warning("model %s: %s", self._model, self.refusal)
            return None
        except Lost:
            return None
        turn.restored = Restore(saved, slot.id, wish.tokens, wish.is_whole)
        turn.is_placed = len(state.slots) == 1
        self._traffic.fill(turn)
        return slot.id if len(state.slots) > 1 else None

    async def _make_way(self, state: State, target: Slot, saved: Saved) -> bool:
        """Empty idle slots of a common cache where `saved` wouldn't fit; say whether it does.

        Raises NoRoom where it will later: now its server would fail all that are under way.
        """
        if not is_shared(self._subject.argv, self._subject.env):
            return True
        held = self._traffic.filled()
        coming = likely_tokens(self._traffic.under_way(), self._turns)
        taken = [*held, *(slot.id for slot in self._unknown(state))]
        fits = partial(to_empty, state.slots, target, saved.tokens, held=held, taken=taken)
        going = fits(coming=coming)
        if fits() is None and any(slot.is_processing for slot in state.slots):
            raise NoRoom(_LOOK_S)
        if going:
            self.refusal = await self._saver.save_displaced(state)
        ours = holders(state.turns, state.slots)
        leaving = [ours[slot.id] for slot in going or () if slot.id in ours]
        if going is None or any(t.held >= self.min_tokens and not t.is_saved for t in leaving):
            return False
        try:
            for slot in going:
                await self._shared.slots.erase(state.server, slot.id, _ERASE_S)
        except SlotsFailed as error:
            logger.info("model %s: a slot can't be emptied: %s", self._model, error)
            return False
        finally:
            self._turns = [turn for turn in self._turns if turn not in leaving]
        return True

    def _unknown(self, state: State) -> list[Slot]:
        """Return the slots that still hold what an earlier proxy's requests left there."""
        ours = holders(state.turns, state.slots)
        return unknown_slots(state.slots, self._inherited or {}, ours)
