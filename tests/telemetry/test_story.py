"""Why a request was slow, in words."""

from __future__ import annotations

from typing import Any

import pytest

from llmsnap.core.cause import Cause, Why
from llmsnap.core.messages import Phases
from llmsnap.telemetry.record import Departure, MoveKind, MoveRecord, Pauses, RequestRecord, Result
from llmsnap.telemetry.story import tell_move, why
from llmsnap.telemetry.tokens import Tokens

BEGAN = 100.0
CACHED = Tokens(computed=56, cached=31_204)


def request(phases: Phases, *departures: Departure, **more: Any) -> RequestRecord:
    """A request that was forwarded after `phases`; its first byte came at once."""
    swap = MoveRecord(
        model="a",
        kind="wake",
        generation=1,
        cause=Cause(Why.REQUESTED),
        began_at=0,
        phases=phases,
        departures=departures,
    )
    there = BEGAN + phases.total_s
    said = {"phases": phases, "forwarded_at": there, "first_byte_at": there, "swap": swap} | more
    return RequestRecord(model="a", path="/", client="", arrived_at=BEGAN, **said)  # type: ignore[arg-type]


def test_a_swap_in_words() -> None:
    """Each phase with its part, and what the cache saved."""
    waited = Phases(drain_s=0.2, evict_s=0.9, wake_s=3.0)

    assert why(request(waited, Departure("b", "sleep"), tokens=CACHED)) == (
        "waited 4.1 s: 0.2 s for b to finish, 0.9 s to put b to sleep, 3.0 s to wake a; "
        "31,204 of 31,260 prompt tokens came from cache"
    )


def test_several_victims() -> None:
    """Each with its way out."""
    waited = Phases(queue_s=0.04, evict_s=12, start_s=75)
    gone = Departure("b", "stop"), Departure("c", "sleep"), Departure("d", "stop")

    assert why(request(waited, *gone)) == (
        "waited 87 s: 40 ms in the queue, 12 s to put c to sleep and stop b and d, 75 s to start a"
    )


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({}, "didn't wait"),
        ({"first_byte_at": BEGAN + 0.004, "is_stream": True}, "didn't wait"),
        ({"first_byte_at": BEGAN + 2, "is_stream": True}, "didn't wait; 2.0 s to read the prompt"),
        ({"first_byte_at": BEGAN + 2}, "didn't wait"),
        (
            {"tokens": Tokens(computed=900, cached=0, prompt_s=1.5)},
            "didn't wait; 1.5 s to read 900 tokens of the prompt; none of 900 prompt tokens came "
            "from cache",
        ),
        ({"tokens": Tokens(computed=1, prompt_s=0.001)}, "didn't wait"),
        (
            {"tokens": Tokens(computed=1, cached=0)},
            "didn't wait; none of 1 prompt token came from cache",
        ),
    ],
)
def test_a_model_that_was_awake(more: dict[str, Any], said: str) -> None:
    """What took long is the prompt, or nothing; an answer in one piece tells of it itself."""
    assert why(request(Phases(), swap=None, **more)) == said


@pytest.mark.parametrize(
    ("cached", "said"),
    [
        (0, "none of 900 prompt tokens came from cache, so the restore was of no use"),
        (896, "896 of 900 prompt tokens came from cache"),
    ],
)
def test_a23_what_a_restore_was_worth(cached: int, said: str) -> None:
    """The answer shows it: what came back is what its server didn't read again."""
    tokens = Tokens(computed=900 - cached, cached=cached)
    restored = request(Phases(start_s=2, restore_s=0.3), swap=None, tokens=tokens)
    assert why(restored) == (
        f"waited 2.3 s: 2.0 s to start a, 0.3 s to restore its conversation; {said}"
    )


def test_pauses() -> None:
    """Before the first byte and behind it are different things for who waits."""
    paused = request(
        Phases(),
        swap=None,
        first_byte_at=BEGAN + 5,
        paused_before_s=5.0,
        pauses=Pauses(count=2, ended_s=9.0),
    )

    assert why(paused) == (
        "waited 9.0 s: 5.0 s paused before its first byte, "
        "4.0 s paused in the middle (2 times in all)"
    )


def test_who_wasnt_served() -> None:
    """The whole time was spent in the queue, and for what is said."""
    refused = request(
        Phases(), swap=None, forwarded_at=0, first_byte_at=0, ended_at=BEGAN + 600, error="no room"
    )
    assert why(refused) == "waited 600 s in the queue; failed: no room"


@pytest.mark.parametrize(
    ("result", "said"),
    [("failed", "3.0 s starting a, which failed"), (None, "3.0 s starting a")],
)
def test_who_waited_for_a_start_that_came_to_nothing(result: Result | None, said: str) -> None:
    """It wasn't the queue that took the time; a client may leave before the end of it."""
    phases = Phases(evict_s=1, start_s=3)
    waited = request(phases, Departure("b", "stop"), forwarded_at=0, first_byte_at=0, error="no")
    waited.ended_at = BEGAN + 4
    if result is None:
        waited.swap = None
    else:
        assert waited.swap is not None
        waited.swap.result = result
    room = "stop b" if result else "make room"
    assert why(waited) == f"waited 4.0 s: 1.0 s to {room}, {said}; failed: no"


def test_an_answer_that_was_cut() -> None:
    """It had begun."""
    cut = request(Phases(), swap=None, first_byte_at=BEGAN + 0.001, error="the client left")
    assert why(cut) == "didn't wait; was cut short: the client left"


def test_without_a_swap_nobody_is_named() -> None:
    """It isn't known any more who it was."""
    waited = Phases(drain_s=1, evict_s=1, wake_s=1)
    assert why(request(waited, swap=None)) == (
        "waited 3.0 s: 1.0 s for other models to finish, 1.0 s to make room, 1.0 s to wake a"
    )


def way(kind: MoveKind, **more: Any) -> MoveRecord:
    """A way of `a` up or down that took 3 s."""
    settings: dict[str, Any] = {"cause": Cause(Why.REQUESTED), "began_at": 0, "ended_at": 3} | more
    return MoveRecord(model="a", kind=kind, generation=1, **settings)


@pytest.mark.parametrize(
    ("move", "said"),
    [
        (way("start"), "started in 3.0 s (requested)"),
        (way("wake", driver="cuda"), "woken in 3.0 s by cuda (requested)"),
        (
            way(
                "wake",
                driver="cuda",
                phases=Phases(queue_s=5, drain_s=0.2, evict_s=0.001, wake_s=3),
                departures=(Departure("b", "stop"),),
            ),
            "woken after 8.2 s: 5.0 s in the queue, 0.2 s for b to finish, 1 ms to stop b, "
            "3.0 s to wake by cuda (requested)",
        ),
        (way("start", result="failed"), "start failed in 3.0 s (requested)"),
        (
            way(
                "sleep",
                driver="pageout",
                cause=Cause(Why.IDLE, idle_s=300),
                moved_bytes={"swap": 2**30, "ram": -(2**30)},
                paused=2,
            ),
            "put to sleep in 3.0 s by pageout (idle 300 s), 1 GiB to swap, 2 answers paused",
        ),
        (
            way("stop", result="cancelled", cause=Cause(Why.SHUTDOWN)),
            "stop cancelled in 3.0 s (shutdown)",
        ),
    ],
)
def test_a_move_in_a_line(move: MoveRecord, said: str) -> None:
    """How long, by what, for whom and why."""
    assert tell_move(move) == said
