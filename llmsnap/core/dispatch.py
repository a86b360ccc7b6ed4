"""R5, R6: one walk over the queue, which decides what happens now.

Every event ends in it, so that a request that came, a model that became idle and a process that
died can't disagree. Plans aren't kept: each walk works them out anew.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from llmsnap.core import reasons
from llmsnap.core.board import Board
from llmsnap.core.cause import ASKED, Cause, Why
from llmsnap.core.lifecycle import State
from llmsnap.core.placement import Share, fits, shortage
from llmsnap.core.slot import COMING, LEAVING, Call, Entry, Slot, Ticket
from llmsnap.core.timeline import Phase
from llmsnap.core.victims import Want, find_victims, is_pausable
from llmsnap.core.wayout import put_out


def excluded_by(board: Board, slot: Slot) -> list[Slot]:
    """Return the models that groups don't allow beside `slot` and that aren't gone yet (R6a)."""
    up = [other.name for other in board.slots.values() if other.is_on_devices]
    names = board.constraints.forced_out(slot.name, up)
    return [board.slots[name] for name in sorted(names)] if names else []


def may_load_now(board: Board, slot: Slot, share: Share) -> bool:
    """Whether nothing that is still held keeps `slot` from loading (R6b), nor a refused wake."""
    ledger = board.ledger
    return (
        board.due(slot.wake_at)
        and fits(share, ledger.held(), ledger.room)
        and not excluded_by(board, slot)
    )


def admit_only_one(board: Board) -> bool:
    """Admit the only one who waits if its model is up, as a walk would; say whether it was so."""
    if len(board.queue) != 1 or board.unloading:
        return False
    (entry,) = board.queue.values()
    if not isinstance(entry, Ticket) or entry.slot.state is not State.READY:
        return False
    board.admit(entry)
    return True


class Walk:
    """One walk over the queue, oldest entry first, helpers last.

    What older entries claim isn't there for younger ones, and the models that older entries closed
    take no younger tickets.
    """

    def __init__(self, board: Board) -> None:
        self._board = board
        self.closed: set[Slot] = set(board.unloading)
        self._seen: set[Slot] = set()
        self._claims: Counter[str] = Counter()
        self._claimed: list[Slot] = []

    def run(self) -> None:
        """Admit who can be admitted, and do for the others what can be done now (R5)."""
        board = self._board
        # Sorting keeps the order of those that are alike.
        for entry in sorted(board.queue.values(), key=_comes_last):
            slot = entry.slot
            is_ready = slot.state is State.READY
            if entry.seq not in board.queue:
                continue  # refused together with an older one of its model
            if isinstance(entry, Ticket):
                if is_ready and slot not in self.closed:
                    board.admit(entry)
                    continue
                if not entry.is_use:
                    board.reject(entry, reasons.no_use(slot))
                    continue
                if board.due(entry.arrived + board.max_wait_s):
                    board.reject(entry, reasons.waited_too_long(board, entry, self.closed))
                    continue
            if not is_ready and slot not in self._seen:
                self._seen.add(slot)
                self._want(entry, slot)

    def _want(self, entry: Entry, slot: Slot) -> None:
        """Bring `slot` up, or nearer to it (R5c-e, R6)."""
        if slot.state in COMING:
            return
        board, ledger = self._board, self._board.ledger
        if (lack := slot.lack) is not None:
            board.drop_call(slot)
            board.reject_waiting(slot, lack)
            return
        is_fair = board.due(entry.since + board.schedule.fair_after_s)
        share = ledger.share_of(slot)
        if slot.state in LEAVING:
            if is_fair:
                self._claim(slot, share)
            return
        if not slot.servable:
            self._give_up(slot)
            return
        short = shortage(share, ledger.staying(self.closed), self._claims, ledger.room)
        if short and not ledger.could_fit(slot, share):
            return  # other programs are in the way: nobody has to leave, nothing is kept
        in_the_way = excluded_by(board, slot)
        must_go = [other for other in self._ready_in(in_the_way) if other not in self.closed]
        want = Want(entry, short, must_go, is_fair)
        if self._must_wait(slot, in_the_way):
            if is_fair:
                self._claim(slot, share)
        elif short or want.excluded:
            self._make_room(want, share)
        elif may_load_now(board, slot, share):
            board.load(slot, share, _cause(entry))
        else:
            self._claim(slot, share)

    def _make_room(self, want: Want, share: Share) -> None:
        """Close the models that must go for `want`, and put out those that can go now (R6e)."""
        board, slot = self._board, want.entry.slot
        victims = find_victims(board, want, self.closed)
        if victims is None:
            if slot.timeline.phase is Phase.DRAIN:
                slot.timeline.enter(Phase.QUEUE, board.now)
            if want.is_fair and not want.is_helpers:
                self._claim(slot, share)
            return
        self.closed.update(victims)
        if slot.timeline.phase is Phase.QUEUE:
            slot.timeline.enter(Phase.DRAIN, board.now)
        room = Cause(Why.ROOM, slot.name)
        # A paused model gains nothing while another one has to finish its answers first.
        pause = all(is_pausable(board, victim, want) for victim in victims if victim.serving)
        for victim in sorted(victims, key=lambda victim: victim.name):
            if (pause or not victim.serving) and put_out(board, victim, room):
                slot.timeline.enter(Phase.EVICT, board.now)
        # They may have been in the way of an older claim only, which isn't held yet.
        if self._ready_in(victims) or not may_load_now(board, slot, share):
            self._claim(slot, share)
        else:
            board.load(slot, share, _cause(want.entry))

    def _must_wait(self, slot: Slot, in_the_way: Iterable[Slot]) -> bool:
        """Whether groups make `slot` wait for what can't be hurried.

        That is a model on its way up, which serves those it was loaded for first, or an older entry
        whose model doesn't allow `slot` beside it.
        """
        if any(other.state in COMING for other in in_the_way):
            return True
        forced_out = self._board.constraints.forced_out
        return any(forced_out(older.name, [slot.name]) for older in self._claimed)

    @staticmethod
    def _ready_in(slots: Iterable[Slot]) -> list[Slot]:
        return [slot for slot in slots if slot.state is State.READY]

    def _claim(self, slot: Slot, share: Share) -> None:
        """Keep what `slot` needs for it, against all younger entries."""
        self._claims.update(share.bytes)
        self._claimed.append(slot)

    def _give_up(self, slot: Slot) -> None:
        """Its need was learned to be more than it can ever get: refuse all who wait (R6d)."""
        board = self._board
        board.reject_waiting(slot, reasons.does_not_fit(board, slot))
        if slot.is_paused:
            board.end(slot, lambda _: reasons.lost(slot), Cause(Why.MISFIT))


def _comes_last(entry: Entry) -> bool:
    """Whether `entry` is a helper's, who takes what others leave."""
    return isinstance(entry, Ticket) and entry.is_helper


def _cause(entry: Entry) -> Cause:
    """Return why the model of `entry` is loaded."""
    match entry:
        case Ticket():
            return Cause(Why.REQUESTED) if entry.limited else ASKED
        case Call(is_pause=True):
            return Cause(Why.RESUMED)
        case _:
            return Cause(Why.PINNED)
