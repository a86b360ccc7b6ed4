"""The moves on the board keep it in step with itself."""

from __future__ import annotations

from math import inf

from llmsnap.core.board import Board
from llmsnap.core.cause import ASKED
from llmsnap.core.constraints import Free
from llmsnap.core.ledger import Ledger
from llmsnap.core.lifecycle import State
from llmsnap.core.messages import Abort, Admit, Reject
from llmsnap.core.pace import Pace
from llmsnap.core.reasons import unloaded
from llmsnap.core.schedule import Schedule
from llmsnap.core.slot import Slot
from llmsnap.core.timeline import Phase
from llmsnap.errors import UpstreamLost
from tests.core.play import GIB, model


def board_with(name: str) -> tuple[Board, Slot]:
    """A board with one model that is ready."""
    spec = model(name)
    slot = Slot(spec, spec.need, None, Pace(8.0), state=State.READY, generation=1)
    ledger = Ledger([slot], {"gpu0": 24 * GIB}, {})
    board = Board([slot], ledger, Schedule(), Free())
    board.begin(10.0)
    return board, slot


def test_due_is_the_only_alarm() -> None:
    """What has come is due; what hasn't rings, the earliest first (R13)."""
    board, _ = board_with("a")
    assert board.due(10.0)
    assert board.alarm == inf
    assert not board.due(12.0)
    assert not board.due(11.0)
    assert board.alarm == 11.0
    board.begin(11.0)
    assert board.alarm == inf


def test_a_ticket_moves_from_the_queue_to_the_model_and_away() -> None:
    """It is always in one place, and its model counts it there."""
    board, slot = board_with("a")
    board.enqueue(1, slot, limited=True)
    assert (slot.waiting, slot.limited, len(board.queue)) == (1, 1, 1)
    board.admit(board.tickets[1])
    assert (slot.waiting, slot.limited, len(board.queue)) == (0, 1, 0)
    board.finish(board.tickets[1])
    assert (slot.limited, board.tickets, slot.serving) == (0, {}, {})
    assert slot.used_at == 10.0
    assert board.actions == [Admit(1)]


def test_the_last_who_leaves_takes_the_past_along() -> None:
    """What was done for those who waited is nothing to those who come later."""
    board, slot = board_with("a")
    board.enqueue(1, slot, limited=True)
    board.enqueue(2, slot, limited=True)
    slot.timeline.enter(Phase.EVICT, 11.0)
    board.finish(board.tickets[1])
    assert slot.timeline.phase == "evict"
    board.finish(board.tickets[2])
    assert slot.timeline.phase == "queue"


def test_each_refused_client_gets_an_error_of_its_own() -> None:
    """One exception raised in many tasks would grow the same traceback."""
    board, slot = board_with("a")
    board.enqueue(1, slot, limited=True)
    board.enqueue(2, slot, limited=False)
    board.reject_waiting(slot, UpstreamLost("gone", retry_after_s=7))
    first, second = board.actions
    assert isinstance(first, Reject)
    assert isinstance(second, Reject)
    assert first.error is not second.error
    assert (str(second.error), second.error.retry_after_s) == ("gone", 7)


def test_an_end_comes_after_the_answers_it_cuts() -> None:
    """First every answer is ended, then the process."""
    board, slot = board_with("a")
    board.enqueue(1, slot, limited=True)
    board.admit(board.tickets[1])
    board.begin(11.0)
    board.end(slot, unloaded, ASKED)
    abort, stop = board.actions
    assert isinstance(abort, Abort)
    assert abort.ticket == 1
    assert type(stop).__name__ == "Stop"
    assert slot.state is State.STOPPING


def test_one_that_is_put_to_sleep_with_answers_waits_for_its_turn() -> None:
    """Its place in the queue is as old as the pause, and goes with its last client (R1)."""
    board, slot = board_with("a")
    board.enqueue(1, slot, limited=True)
    board.admit(board.tickets[1])
    board.begin(30.0)
    board.sleep(slot, ASKED)
    assert [entry.since for entry in board.queue.values()] == [30.0]
    assert slot.is_paused
    board.finish(board.tickets[1])
    assert not board.queue
