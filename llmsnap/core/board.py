"""What the scheduler remembers, and the moves that change it.

The rules (`admission`, `news`, `dispatch`, …) decide; every change they make is one of the moves
here, which keep slots, queue and tickets in step and note the orders that go out.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import inf

from llmsnap.core.cause import Cause
from llmsnap.core.constraints import Constraints
from llmsnap.core.ledger import Ledger
from llmsnap.core.lifecycle import Trigger
from llmsnap.core.messages import (
    NO_WAIT,
    Abort,
    Action,
    Admit,
    PageOut,
    Phases,
    Reject,
    Sleep,
    Start,
    Stop,
    Wake,
)
from llmsnap.core.placement import Share
from llmsnap.core.schedule import Schedule
from llmsnap.core.slot import NOWHERE, SLUMBER, Call, Entry, Slot, Ticket
from llmsnap.core.timeline import Phase
from llmsnap.errors import LlmsnapError


@dataclass(frozen=True, slots=True)
class Release:
    """For how long nothing may load, on the clock."""

    until: float
    cut_at: float
    """End of the running answers' time."""
    refuses: bool
    """Whether those who come meanwhile are refused; else they wait."""


def waited(ticket: Ticket, now: float) -> Phases:
    """Return how a waiting client has spent its wait up to `now`."""
    if ticket.arrived >= now:
        return NO_WAIT
    return ticket.slot.timeline.split(ticket.arrived, now)


class Board:
    """Slots, queue and books at one moment, and the orders given in it."""

    def __init__(
        self, slots: Iterable[Slot], ledger: Ledger, schedule: Schedule, constraints: Constraints
    ) -> None:
        self.ledger = ledger
        self.slots: dict[str, Slot] = {}
        """By name, in that order."""
        self.pinned: list[Slot] = []
        self.default: Slot | None = None
        """The model that comes back by itself (R11)."""
        self.timed: list[Slot] = []
        """Those that timers may move (R12)."""
        self.outdated: list[Slot] = []
        """Those whose process is to be replaced, or to end."""
        self.take(slots)
        self.go_by(schedule, constraints)
        self.queue: dict[int, Entry] = {}
        """By `seq`, in the order of `since`."""
        self.tickets: dict[int, Ticket] = {}
        """By number: all that wait or are served."""
        self.unloading: list[Slot] = []
        """Those that serve their last answers before an administrator's stop."""
        self.release: Release | None = None
        """While an administrator wants all memory back; None: nobody does."""
        self.shutdown_at = inf
        """End of the grace time; infinite while nobody has asked for a shutdown."""
        self.staying: frozenset[str] = frozenset()
        """Models whose processes are handed over to the next proxy."""
        self.now = -inf
        self.alarm = inf
        self.actions: list[Action] = []
        self._entries = 0

    def take(self, slots: Iterable[Slot]) -> None:
        """Have these models from now on, with what their specs say."""
        in_order = sorted(slots, key=lambda slot: slot.name)
        self.slots = {slot.name: slot for slot in in_order}
        self.pinned = [slot for slot in in_order if slot.spec.pinned]
        self.default = next((slot for slot in in_order if slot.spec.is_default), None)
        self.timed = [
            slot
            for slot in in_order
            if slot.asked_to_sleep
            or slot.kept_s is not None
            or min(slot.spec.sleep_after_s, slot.spec.ttl_s) < inf
        ]
        self.outdated = [slot for slot in in_order if slot.is_outdated or slot.is_removed]

    def go_by(self, schedule: Schedule, constraints: Constraints) -> None:
        """Have these settings from now on."""
        self.schedule = schedule
        self.max_wait_s = schedule.max_wait_s or inf
        self.constraints = constraints

    def begin(self, now: float) -> list[Action]:
        """Open a new moment; return the list that its orders will be in."""
        self.now = now
        self.alarm = inf
        self.actions = []
        return self.actions

    def due(self, at: float) -> bool:
        """Whether `at` has come; if not, the scheduler will be woken then (R13)."""
        if at <= self.now:
            return True
        self.alarm = min(self.alarm, at)
        return False

    @property
    def is_shutting_down(self) -> bool:
        """Whether a shutdown was asked for."""
        return self.shutdown_at < inf

    # ---- places in the queue -------------------------------------------------------------------

    def enqueue(
        self,
        number: int,
        slot: Slot,
        *,
        limited: bool,
        is_helper: bool = False,
        is_use: bool = True,
    ) -> None:
        """Give a client a place in the queue."""
        since, seq = self.now - slot.spec.head_start_s, self._next_seq()
        ticket = Ticket(since, seq, slot, number, limited, is_helper, is_use, self.now)
        self.tickets[number] = ticket
        self._line_up(ticket)
        slot.waiting += 1
        slot.limited += limited

    def enqueue_call(self, slot: Slot) -> None:
        """Give the model itself a place in the queue."""
        slot.call = Call(self.now - slot.spec.head_start_s, self._next_seq(), slot)
        self._line_up(slot.call)

    def drop_call(self, slot: Slot) -> None:
        """Take the model's own place out of the queue, if it has one."""
        if slot.call is not None:
            del self.queue[slot.call.seq]
            slot.call = None

    def admit(self, ticket: Ticket) -> None:
        """Let a waiting client through to its model, which is READY."""
        slot = ticket.slot
        phases = waited(ticket, self.now)
        self._leave_queue(ticket)
        slot.serving[ticket.number] = ticket
        if ticket.is_use:
            slot.asked_to_sleep = False
        else:
            slot.onlookers += 1
        self.actions.append(Admit(ticket.number, phases))

    def reject(self, ticket: Ticket, error: LlmsnapError) -> None:
        """Refuse a waiting client."""
        phases = waited(ticket, self.now)
        self._leave_queue(ticket)
        self._forget(ticket)
        self.actions.append(Reject(ticket.number, error, phases))

    def admit_waiting(self, slot: Slot) -> None:
        """Let all who wait for `slot` through to it."""
        for ticket in self._waiting_for(slot):
            self.admit(ticket)

    def reject_waiting(self, slot: Slot, error: LlmsnapError) -> None:
        """Refuse all who wait for `slot`."""
        for ticket in self._waiting_for(slot):
            self.reject(ticket, copy.copy(error))

    def abort_serving(self, slot: Slot, error: LlmsnapError) -> None:
        """End all answers of `slot`, running or paused."""
        for ticket in list(slot.serving.values()):
            self.finish(ticket)
            self.actions.append(Abort(ticket.number, copy.copy(error)))

    def finish(self, ticket: Ticket) -> None:
        """Forget a client, wherever it is (R3)."""
        slot = ticket.slot
        if ticket.number in slot.serving:
            del slot.serving[ticket.number]
            if not ticket.is_use:
                slot.onlookers -= 1
            elif slot.is_unused:
                slot.used_at = self.now
            if not slot.serving and not slot.spec.pinned:
                self.drop_call(slot)
        else:
            self._leave_queue(ticket)
        self._forget(ticket)

    # ---- orders --------------------------------------------------------------------------------

    def load(self, slot: Slot, share: Share, cause: Cause) -> None:
        """Bring `slot` up: wake it if it sleeps, else start its next generation."""
        slot.share, slot.booked, slot.let_be = share, share.bytes, frozenset()
        slot.need_is_news = slot.dismissed = False
        slot.pace.begin(self.now)
        if slot.state in SLUMBER:
            slot.move(Trigger.WAKE)
            slot.timeline.enter(Phase.WAKE, self.now)
            self.actions.append(Wake(slot.name, slot.generation, cause))
        else:
            slot.generation += 1
            slot.error = None
            slot.refused_wakes, slot.wake_at = 0, -inf
            slot.move(Trigger.START)
            slot.timeline.enter(Phase.START, self.now)
            self.actions.append(Start(slot.name, slot.generation, cause))

    def sleep(self, slot: Slot, cause: Cause) -> None:
        """Put `slot` to sleep; if it serves, it is paused and waits for its turn again (R1)."""
        slot.move(Trigger.SLEEP)
        slot.tier_held, slot.bound_for = (slot.spec.tier, slot.spec.tier_bytes), NOWHERE
        slot.asked_to_sleep = False
        slot.pace.begin(self.now)
        if slot.serving:
            self.enqueue_call(slot)
        self.actions.append(Sleep(slot.name, slot.generation, cause))

    def page_out(self, slot: Slot, cause: Cause) -> None:
        """Move `slot`, which is asleep, on to its lower tier; it holds both until it is there."""
        slot.move(Trigger.PAGE)
        slot.bound_for = (slot.spec.lower_tier, slot.spec.lower_bytes)
        self.actions.append(PageOut(slot.name, slot.generation, cause))

    def stop(self, slot: Slot, cause: Cause | None) -> None:
        """End the process of `slot`, which serves nobody; without a cause it ends by itself."""
        slot.stopped_from = slot.state
        slot.move(Trigger.STOP)
        slot.asked_to_sleep = False
        slot.timeline.enter(Phase.QUEUE, self.now)
        slot.pace.begin(self.now)
        if cause is not None:
            self.actions.append(Stop(slot.name, slot.generation, cause))

    def end(self, slot: Slot, error: Callable[[str], LlmsnapError], cause: Cause | None) -> None:
        """End the process of `slot`, with whatever answers it still owes."""
        self.abort_serving(slot, error(slot.name))
        self.drop_call(slot)
        if slot in self.unloading:
            self.unloading.remove(slot)
        self.stop(slot, cause)

    # ---- inner ---------------------------------------------------------------------------------

    def _next_seq(self) -> int:
        self._entries += 1
        return self._entries

    def _line_up(self, entry: Entry) -> None:
        if not self.queue:
            self.queue[entry.seq] = entry
            return
        last = next(reversed(self.queue.values()))
        self.queue[entry.seq] = entry
        if entry.since < last.since:  # it has a head start, or the last one has the opposite
            in_order = sorted(self.queue.values(), key=lambda entry: (entry.since, entry.seq))
            self.queue = {entry.seq: entry for entry in in_order}

    def _waiting_for(self, slot: Slot) -> list[Ticket]:
        if not slot.waiting:
            return []
        return [e for e in self.queue.values() if e.slot is slot and isinstance(e, Ticket)]

    def _leave_queue(self, ticket: Ticket) -> None:
        slot = ticket.slot
        del self.queue[ticket.seq]
        slot.waiting -= 1
        if not slot.waiting:
            slot.timeline.forget()

    def _forget(self, ticket: Ticket) -> None:
        del self.tickets[ticket.number]
        ticket.slot.limited -= ticket.limited
