"""What is remembered of a request adds up."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from llmsnap.core.messages import NO_WAIT, Phases
from llmsnap.telemetry.record import CLIENT_LEFT, MoveRecord, Pauses, RequestRecord, StartKind
from llmsnap.telemetry.tokens import Tokens


@dataclass
class Right:
    """A right to a model, as a lease gives it."""

    phases: Phases = NO_WAIT
    swap: MoveRecord | None = None
    pauses: Pauses | None = None


def record(**more: Any) -> RequestRecord:
    """A request that came at second 10."""
    return RequestRecord(model="a", path="/completion", client="::1", arrived_at=10.0, **more)


@pytest.mark.parametrize(
    ("phases", "paused_s", "kind"),
    [
        (NO_WAIT, 0.0, "awake"),
        (Phases(queue_s=1), 0.0, "awake"),
        (Phases(queue_s=1, wake_s=1), 0.0, "woken"),
        (Phases(wake_s=1, start_s=1), 0.0, "started"),
        (Phases(start_s=1), 2.0, "resumed"),
    ],
)
def test_how_the_model_was_found(phases: Phases, paused_s: float, kind: StartKind) -> None:
    """The last thing that had to happen names it; a pause before the first byte most of all."""
    assert record(phases=phases, paused_before_s=paused_s).start == kind


def test_the_phases_add_up_to_the_first_byte() -> None:
    """Prefill is what is left of the time; a pause in it is told apart."""
    served = record(phases=Phases(queue_s=0.5, wake_s=1), forwarded_at=11.5, first_byte_at=14.0)
    served.paused_before_s = 0.75

    assert served.spent() == {"queue": 0.5, "wake": 1, "prefill": 1.75, "pause": 0.75}
    assert sum(served.spent().values()) == served.first_byte_s == 4.0


def test_all_of_a_wait_for_nothing_is_queue() -> None:
    """Refused, or given up, before the model was there."""
    refused = record(ended_at=13.0, status=503)

    assert refused.spent() == {"queue": 3.0}
    assert refused.prefill_s == 0
    assert refused.ttft_s is None


def test_a_wait_that_ends_in_a_refusal_keeps_its_phases() -> None:
    """Those of its place, which it lost; what is missing of the time was queue."""
    refused = record(held=Right(Phases(evict_s=1, start_s=1.5)))
    refused.end(is_whole=False)
    refused.ended_at = 13.0

    assert list(refused.spent().items()) == [("queue", 0.5), ("evict", 1), ("start", 1.5)]
    assert refused.start == "started"


def test_the_first_token_of_a_whole_answer_is_reckoned() -> None:
    """It comes when the last token is there; that of a stream comes by itself."""
    whole = record(content_at=14.0, tokens=Tokens(generation_s=3.0))
    assert whole.ttft_s == 1.0
    whole.tokens = None
    assert whole.ttft_s == 4.0
    stream = record(content_at=14.0, is_stream=True, tokens=Tokens(generation_s=3.0))
    assert stream.ttft_s == 4.0


def test_comments_of_a_stream_are_no_content() -> None:
    """A server may send them while it still reads the prompt."""
    stream = record()
    stream.begin(200, is_stream=True, excerpt=None)
    stream.feed([b": wait\n\n"])
    stream.feed([])
    assert stream.content_at == 0
    stream.feed([b": wait\n\ndata: {}\n\n"])
    assert stream.content_at >= stream.first_byte_at


def test_pauses_before_and_behind_the_first_byte() -> None:
    """Those before it are part of the way to it, all are told."""
    pauses = Pauses()
    request = record()
    request.forwarded(Right(pauses=pauses))
    pauses.begin(5.0)
    pauses.end(7.0)
    request.begin(200, is_stream=True, excerpt=None)
    pauses.begin(10.0)
    pauses.end(11.0)
    request.end(is_whole=True)

    assert request.paused_before_s == 2.0
    assert request.pauses == Pauses(count=2, ended_s=3.0)


def test_an_end_in_the_middle_of_a_pause_ends_it() -> None:
    """The client left, or the model was ended."""
    pauses = Pauses()
    request = record()
    request.forwarded(Right(pauses=pauses))
    pauses.begin(request.forwarded_at)
    request.end(is_whole=False)

    assert pauses.since is None
    assert pauses.ended_s == pytest.approx(request.ended_at - request.forwarded_at)


def test_a_client_who_leaves() -> None:
    """Before the answer it has a status of its own; later it keeps the answer's."""
    early, late = record(), record()
    early.end(is_whole=False)
    late.begin(200, is_stream=True, excerpt=None)
    late.end(is_whole=False)

    assert (early.status, late.status) == (CLIENT_LEFT, 200)
    assert early.error == late.error == "the client left"
