"""Records reach their listeners in batches, off the path of the requests."""

from __future__ import annotations

from datetime import UTC, datetime

from llmsnap.telemetry.record import ExitRecord, RequestRecord
from llmsnap.telemetry.recorder import MOST_RECORDS, Batch, Recorder
from llmsnap.telemetry.tokens import Excerpt
from tests.helpers.waiting import eventually


def record(recorder: Recorder, model: str = "a") -> RequestRecord:
    """A request that came just now."""
    now = recorder.clock()
    return RequestRecord(model=model, path="/", client="::1", arrived_at=now, ended_at=now)


async def test_they_come_together_and_later() -> None:
    """Not in the call that ends a request."""
    recorder, batches = Recorder(), list[Batch]()
    recorder.listen(batches.append)
    recorder.request(record(recorder, "a"))
    recorder.request(record(recorder, "b"))
    recorder.exit(ExitRecord(model="a", generation=1, reason="crashed", at=recorder.clock()))
    assert not batches

    await eventually(lambda: bool(batches))
    assert [[request.model for request in batch.requests] for batch in batches] == [["a", "b"]]
    assert len(batches[0].exits) == 1


async def test_many_come_in_several_batches() -> None:
    """So that the loop isn't held; none is lost, and they stay in order."""
    recorder, batches = Recorder(), list[Batch]()
    recorder.listen(batches.append)
    for number in range(2 * MOST_RECORDS + 1):
        recorder.request(record(recorder, str(number)))

    await eventually(lambda: sum(len(b.requests) for b in batches) == 2 * MOST_RECORDS + 1)
    assert max(len(batch.requests) for batch in batches) == MOST_RECORDS
    models = [request.model for batch in batches for request in batch.requests]
    assert models == [str(number) for number in range(2 * MOST_RECORDS + 1)]


async def test_times_for_people_and_tokens_are_added() -> None:
    """Nobody needs them before."""
    recorder, batches = Recorder(), list[Batch]()
    recorder.listen(batches.append)
    request = record(recorder)
    request.excerpt = Excerpt()
    request.excerpt.feed([b'{"usage":{"completion_tokens":3}}'])
    recorder.request(request)
    recorder.flush()

    assert abs(request.arrived - datetime.now(UTC).timestamp()) < 5
    assert request.tokens is not None
    assert request.tokens.generated == 3
    assert request.excerpt is None


async def test_in_a_flood_nothing_is_captured() -> None:
    """It is again when the flood is over."""
    recorder = Recorder()
    recorder.capture_bytes = 1000
    batches = list[Batch]()
    recorder.listen(batches.append)
    for _ in range(MOST_RECORDS + 1):
        recorder.request(record(recorder))
    assert recorder.capture_limit == 1000  # it isn't known yet

    await eventually(lambda: len(batches) == 2)
    assert recorder.capture_limit == 0
    recorder.request(record(recorder))
    await eventually(lambda: recorder.capture_limit == 1000)


async def test_nothing_is_left_after_a_flush() -> None:
    """However much there is; and no empty batch follows."""
    recorder, batches = Recorder(), list[Batch]()
    recorder.listen(batches.append)
    for _ in range(MOST_RECORDS + 1):
        recorder.request(record(recorder))
    recorder.flush()

    assert [len(batch.requests) for batch in batches] == [MOST_RECORDS, 1]
