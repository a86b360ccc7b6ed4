"""The checks that every other test relies on do find what is wrong."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from llmsnap.core import invariants
from llmsnap.core.board import Board
from llmsnap.core.cause import ASKED
from llmsnap.core.lifecycle import State
from tests.core.play import GIB, Play, arrive, model, ready


def board() -> Board:
    """a serves ticket 1 and is 20 of 24 GiB, b waits with ticket 2."""
    play = Play(model("a", can_pause=True), model("b"), ram=30)
    play.at(0, arrive(1, "a"))
    play.at(0, ready("a"))
    play.at(1, arrive(2, "b"))
    return play.scheduler._board


def lose_a_ticket(board: Board) -> None:
    """Served and forgotten."""
    board.slots["a"].serving.clear()


def double_a_ticket(board: Board) -> None:
    """Served, and in the queue as well."""
    ticket = board.tickets[1]
    board.queue = {ticket.seq: ticket} | board.queue


def disorder(board: Board) -> None:
    """An older one behind a younger one."""
    board.enqueue(3, board.slots["b"], limited=True)
    board.tickets[3].since = 0.5


def overcommit(board: Board) -> None:
    """Both loaded where one fits."""
    board.load(board.slots["b"], board.ledger.share_of(board.slots["b"]), ASKED)


def overfill_the_tier(board: Board) -> None:
    """More asleep than the tier holds."""
    for slot in board.slots.values():
        slot.state, slot.tier_held = State.ASLEEP, ("ram", 20 * GIB)


def pause_without_a_place(board: Board) -> None:
    """Put to sleep with an answer, and not in the queue."""
    board.sleep(board.slots["a"], ASKED)
    board.drop_call(board.slots["a"])


def serve_without_a_process(board: Board) -> None:
    """Stopped while it answers."""
    board.stop(board.slots["a"], ASKED)


def miscount(board: Board) -> None:
    """A limit that nobody reaches any more."""
    board.slots["a"].limited = 5


def ring_in_the_past(board: Board) -> None:
    """An alarm that would ring for ever."""
    board.alarm = board.now


@pytest.mark.parametrize(
    "harm",
    [
        lose_a_ticket,
        double_a_ticket,
        disorder,
        overcommit,
        overfill_the_tier,
        pause_without_a_place,
        serve_without_a_process,
        miscount,
        ring_in_the_past,
    ],
)
def test_harm_is_found(harm: Callable[[Board], None]) -> None:
    """Each of these is caught, and only because of the harm."""
    one = board()
    invariants.check(one)
    harm(one)
    with pytest.raises(AssertionError):
        invariants.check(one)
