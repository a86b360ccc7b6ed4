"""Who waits for a slot, over a server whose slots are as a test says."""

from __future__ import annotations

import asyncio
import json
from time import monotonic

import pytest

from llmsnap.errors import UpstreamLost
from llmsnap.sessions.slots import Late, Lost, Refused, Slot
from llmsnap.sessions.turns import Turn, holders
from llmsnap.telemetry.record import RequestRecord
from llmsnap.telemetry.tokens import Tokens
from tests.helpers.waiting import eventually
from tests.sessions.stage import TOKENS, Stage

BUSY = Slot(0, n_ctx=4096, is_processing=True, id_task=0, n_prompt_tokens=5)
IDLE = Slot(0, n_ctx=4096, is_processing=False, id_task=0, n_prompt_tokens=5)


def turn_of(text: str) -> Turn:
    """A request, not yet sent."""
    record = RequestRecord(model="a", path="", client="", arrived_at=1.0)
    body = json.dumps({"messages": [{"content": part} for part in text.split("|")]})
    return Turn(record=record, path="/v1/chat/completions", body=body.encode())


async def send(stage: Stage, turn: Turn) -> Turn:
    """Do with `turn` what is done before it is forwarded; it hasn't reached its slot then."""
    if stage.desk.begins(turn, stage.process):
        await stage.desk.make_ready(turn)
    assert isinstance(turn.record, RequestRecord)
    turn.record.forwarded_at = monotonic()
    return turn


def sending(stage: Stage, text: str) -> asyncio.Future[Turn]:
    """The same, beside."""
    return asyncio.ensure_future(send(stage, turn_of(text)))


def end(stage: Stage, turn: Turn, *, cached: int = 0) -> None:
    """Have it answered; its slot is at rest."""
    assert isinstance(turn.record, RequestRecord)
    turn.record.status, turn.record.ended_at = 200, monotonic()
    turn.record.tokens = Tokens(computed=TOKENS - cached, cached=cached, generated=1)
    task = stage.slots.slot.id_task
    stage.slots.slot = Slot(0, n_ctx=4096, id_task=task, n_prompt_tokens=TOKENS)
    stage.desk.answered(turn.record)


async def still(*waiting: asyncio.Future[Turn]) -> None:
    """See that they are kept waiting, for as long as takes many looks."""
    done, _ = await asyncio.wait(waiting, timeout=0.2)
    assert not done


@pytest.fixture
async def busy(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> Turn:
    """A long answer in the only slot, while a conversation is saved."""
    monkeypatch.setattr("llmsnap.sessions.desk._LOOK_S", 0.02)
    await stage.ask("one")
    await stage.stop()
    stage.start()
    stage.slots.orders.clear()
    answer = await send(stage, turn_of("at length"))
    stage.slots.slot = BUSY
    return answer


async def test_a_saved_conversation_waits_for_a_slot(stage: Stage, busy: Turn) -> None:
    """What it displaces is saved first; the wait is told apart from the restore."""
    waiting = sending(stage, "one|two")
    await still(waiting)
    assert stage.slots.orders == []
    end(stage, busy)
    turn = await waiting

    assert stage.slots.orders == ["save", "restore"]
    assert turn.waited_s >= 0.2
    end(stage, turn, cached=990)
    assert stage.outcomes[-1] == ("restore", "used")


async def test_nobody_overtakes_who_waits(stage: Stage, busy: Turn) -> None:
    """Neither what needs no restore, nor what goes on from what was last in the slot."""
    first = sending(stage, "one|two")
    await still(first)
    later, last = sending(stage, "another"), sending(stage, "at length|go on")
    await still(first, later, last)
    end(stage, busy)
    await first
    stage.slots.slot = BUSY
    await asyncio.gather(later, last)
    assert stage.slots.orders == ["save", "restore"]


async def test_nobody_takes_the_slot_that_was_just_filled(stage: Stage, busy: Turn) -> None:
    """Who comes next is sent once the one it was filled for is in there."""
    first = sending(stage, "one|two")
    end(stage, busy)
    await first
    later = sending(stage, "another")
    await still(later)
    stage.slots.slot = BUSY
    await later


async def test_who_leaves_while_waiting_leaves_nothing_behind(stage: Stage, busy: Turn) -> None:
    """The next one gets the slot; requests that need nothing are held no more."""
    leaving = sending(stage, "one|three")
    next_one = sending(stage, "one|two")
    await still(leaving, next_one)
    leaving.cancel()
    await asyncio.wait({leaving})
    await still(next_one)
    end(stage, busy)
    turn = await next_one
    assert stage.slots.restored == [0]
    end(stage, turn, cached=990)
    assert not stage.desk.begins(turn_of("one|two|three"), stage.process)


async def test_it_doesnt_wait_for_ever(
    stage: Stage, busy: Turn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then it goes on as it would have otherwise, to be read anew."""
    monkeypatch.setattr("llmsnap.sessions.desk._PATIENCE_S", 0.05)
    turn = await sending(stage, "one|two")
    assert turn.restored is None
    assert stage.slots.orders == []


async def test_it_doesnt_wait_for_a_process_that_is_going(stage: Stage, busy: Turn) -> None:
    """It is told so at once, and nothing is asked of that process."""
    turn = turn_of("one|two")
    waiting = asyncio.ensure_future(send(stage, turn))
    await still(waiting)
    stage.desk.give_up(turn, UpstreamLost("unloaded"))
    await waiting
    assert stage.slots.orders == []


async def test_a_server_too_busy_to_say_is_busy(stage: Stage, busy: Turn) -> None:
    """It lists its slots between two batches of a prompt only, which may take long."""
    stage.slots.list_says = Late("no answer to GET /slots within 5 s")
    waiting = sending(stage, "one|two")
    await still(waiting)
    stage.slots.list_says = None
    end(stage, busy)
    await waiting
    assert stage.slots.restored == [0]


async def test_a_client_that_reads_slowly_blocks_nobody(stage: Stage, busy: Turn) -> None:
    """Its answer isn't over, but its slot is at rest, also on a second look."""
    assert isinstance(busy.record, RequestRecord)
    busy.record.forwarded_at -= 10
    stage.slots.slot = IDLE
    await sending(stage, "one|two")
    assert stage.slots.orders[-1] == "restore"


async def held_up(
    stage: Stage, busy: Turn, monkeypatch: pytest.MonkeyPatch
) -> asyncio.Future[Turn]:
    """Send a request whose restore has been ordered and isn't answered within its time."""
    monkeypatch.setattr("llmsnap.sessions.restoring._LEAST_S", 0.01)
    monkeypatch.setattr("llmsnap.sessions.restoring._STEP_S", 0.01)
    end(stage, busy)
    stage.slots.may_restore.clear()
    waiting = sending(stage, "one|two")
    await eventually(lambda: "restore" in stage.slots.orders)
    return waiting


async def test_a_slot_that_a_stranger_took_is_waited_for(
    stage: Stage, busy: Turn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The order to restore had to wait for its end: that is no failure, and nothing is cut."""
    waiting = await held_up(stage, busy, monkeypatch)
    stage.slots.slot = BUSY
    await still(waiting)
    assert stage.restarts == []
    stage.slots.slot = IDLE
    stage.slots.may_restore.set()
    turn = await waiting
    assert turn.restored is not None


async def test_a_restore_may_take_longer_while_its_process_sleeps(
    stage: Stage, busy: Turn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was paused in the middle of that: it isn't ended for it, and goes on when it is awake."""
    waiting = await held_up(stage, busy, monkeypatch)
    stage.standing = "away"
    await still(waiting)
    stage.slots.may_restore.set()
    turn = await waiting
    assert turn.restored is not None
    assert stage.restarts == []


async def test_a_client_that_leaves_in_the_middle_hides_no_failure(
    stage: Stage, busy: Turn
) -> None:
    """A restore that fails half-way ends the process, though nobody waits for it any more."""
    end(stage, busy)
    stage.slots.may_restore.clear()
    stage.slots.restore_says = Refused("400: no")
    leaving = sending(stage, "one|two")
    await eventually(lambda: "restore" in stage.slots.orders)
    leaving.cancel()
    await still(leaving)
    stage.slots.may_restore.set()
    await asyncio.wait({leaving})
    assert leaving.cancelled()
    assert stage.restarts == [stage.process.generation]


async def test_a_process_that_is_ended_in_the_middle_takes_no_file_along(stage: Stage) -> None:
    """It was unloaded: neither the file nor the engine is at fault."""
    await stage.ask("one")
    await stage.stop()
    files = stage.files()
    stage.slots.restore_says, stage.standing = Lost("no answer"), "leaving"
    for _ in range(3):
        stage.start()
        await stage.ask("one|two")
    assert stage.files() == files
    assert stage.desk.refusal == ""


async def test_nothing_is_asked_of_a_process_that_sleeps(stage: Stage, busy: Turn) -> None:
    """It was paused in the middle of its answers; who waits for a slot waits on."""
    stage.standing = "away"
    stage.slots.list_says = AssertionError("it was asked")
    waiting = sending(stage, "one|two")
    await still(waiting)
    stage.standing, stage.slots.list_says = "up", None
    end(stage, busy)
    assert (await waiting).restored is not None


async def cut_off(stage: Stage, text: str, *, reached: int) -> None:
    """Ask, and leave when the server has read so many tokens."""
    turn = await send(stage, turn_of(text))
    assert isinstance(turn.record, RequestRecord)
    turn.record.status, turn.record.ended_at, turn.record.error = 200, monotonic(), "it left"
    task = stage.slots.slot.id_task + 1
    stage.slots.slot = Slot(0, n_ctx=4096, id_task=task, n_prompt_tokens=reached)
    stage.desk.answered(turn.record)


@pytest.mark.parametrize(("reached", "restores"), [(3000, 1), (100, 2)])
async def test_u134_e18_what_was_read_for_a_client_that_left_stays(
    stage: Stage, reached: int, restores: int
) -> None:
    """It asks again: its slot has more of that than what was saved, unless it left at once."""
    await stage.ask("a beginning that is long|one")
    await stage.stop()
    stage.start()
    stage.slots.orders.clear()
    await cut_off(stage, "a beginning that is long|another", reached=reached)
    await send(stage, turn_of("a beginning that is long|another"))
    assert stage.slots.orders == restores * ["restore"]


async def test_what_is_slower_than_reading_isnt_restored(stage: Stage) -> None:
    """As a little part of a long conversation on a fast machine, by what both took before."""
    await stage.ask("a beginning that is long|one")
    await stage.stop()
    stage.start()
    stage.desk._restorer._read_token_s, stage.desk._restorer._byte_s = 1e-4, 1.0
    await stage.ask("a beginning that is long|another")
    assert stage.slots.orders == ["save"]
    stage.desk._restorer._byte_s = 1e-6
    stage.start()
    await stage.ask("a beginning that is long|a third")
    assert stage.slots.orders == ["save", "restore"]


async def test_e16_a_save_that_hangs_is_given_up_for_who_waits_for_its_slot(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And isn't tried again for the next one."""
    monkeypatch.setattr("llmsnap.sessions.saving._PATIENCE_S", 0.1)
    monkeypatch.setattr("llmsnap.sessions.saving._LONGEST_S", 0.2)
    await stage.ask("one")
    stage.slots.may_save.clear()
    for text in ("another", "a third"):
        await asyncio.wait_for(stage.ask(text), 60)
    assert stage.slots.orders == ["save"]
    assert stage.outcomes == [("save", "failed")]


@pytest.mark.parametrize(
    ("times", "took_s", "is_known"),
    [([100.0, 100.1], 5.0, False), ([100.0, 102.0], 5.0, True), ([100.0, 100.1], 0.05, True)],
    ids=["at once", "later", "after the end"],
)
def test_of_two_that_are_alike_nobody_knows_which_slot_is_whose(
    times: list[float], took_s: float, is_known: bool
) -> None:
    """Sent at once, and as long: the server may have had the second one first."""
    turns = []
    for number, forwarded_at in enumerate(times):
        turn = turn_of(f"{number}")
        assert isinstance(turn.record, RequestRecord)
        turn.record.tokens = Tokens(computed=TOKENS, cached=0, generated=1)
        turn.record.forwarded_at, turn.record.ended_at = forwarded_at, forwarded_at + took_s
        turns.append(turn)
    slots = [Slot(number, 4096, False, number, TOKENS) for number in (0, 1)]
    assert holders(turns, slots) == ({0: turns[0], 1: turns[1]} if is_known else {})


LONG = "a conversation that is long enough " * 10


async def test_what_goes_on_from_the_last_one_stands_in_line_too(stage: Stage, busy: Turn) -> None:
    """Though it is in the slot: who came before is to have that, and must have reached it."""
    end(stage, busy)
    last = await send(stage, turn_of(LONG))
    stage.slots.slot = BUSY
    end(stage, last)
    assert not stage.desk.begins(turn_of(f"{LONG}|go on"), stage.process)

    stage.slots.slot = BUSY  # by somebody nobody knows
    waiting = sending(stage, "one|two")
    await still(waiting)
    assert stage.desk.begins(turn_of(f"{LONG}|go on"), stage.process)
    stage.slots.slot = IDLE
    turn = await waiting
    assert stage.desk.begins(turn_of(f"{LONG}|go on"), stage.process)
    end(stage, turn)
    assert not stage.desk.begins(turn_of("one|two|three"), stage.process)


async def test_a_slot_that_the_servers_own_queue_is_about_to_fill_isnt_free(
    stage: Stage, busy: Turn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was seen at rest between two requests, and isn't on a second look."""
    assert isinstance(busy.record, RequestRecord)
    busy.record.forwarded_at -= 10
    seen = iter([IDLE, BUSY])

    async def list_slots(server: object) -> list[Slot]:
        return [next(seen, stage.slots.slot)]

    monkeypatch.setattr(stage.slots, "list", list_slots)
    waiting = sending(stage, "one|two")
    await still(waiting)
    assert stage.slots.orders == []
    end(stage, busy)
    await waiting


async def test_the_end_of_a_request_is_news(
    stage: Stage, busy: Turn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who waits needn't look again and again."""
    monkeypatch.setattr("llmsnap.sessions.desk._LOOK_S", 600.0)
    waiting = sending(stage, "one|two")
    await still(waiting)
    end(stage, busy)
    await asyncio.wait_for(waiting, 60)


@pytest.mark.parametrize("when", ["before", "after"])
async def test_beside_others_nothing_is_said_of_restores(stage: Stage, when: str) -> None:
    """They may have taken the slot: then it isn't the restore that was of no use."""
    await stage.ask("one")
    await stage.stop()
    stage.start()
    stage.slots.beside = [Slot(1, n_ctx=4096, id_task=-1)]
    if when == "before":
        await send(stage, turn_of("another"))
        stage.slots.beside = [Slot(1, n_ctx=4096, id_task=0, is_processing=True)]
    turn = await send(stage, turn_of("one|two"))
    stage.slots.slot = BUSY
    if when == "after":
        await send(stage, turn_of("another"))
    end(stage, turn, cached=3)
    assert stage.outcomes == [("save", "saved")]


async def test_a_server_isnt_asked_where_nothing_is_due(stage: Stage) -> None:
    """Its conversation has grown by less than is worth a file."""
    await stage.ask("one")
    await stage.stop()
    await stage.ask("one|two", tokens=TOKENS + 10)
    stage.slots.list_says = AssertionError("it was asked")
    await stage.desk.save(stage.process, least_new=256, limit_s=10)
    assert stage.slots.orders == ["save"]


async def test_instead_of_a_file_that_is_lost_another_one_is_restored(stage: Stage) -> None:
    """What was saved of the same conversation by another proxy, or what has less of it."""
    await stage.ask(f"{LONG}|one")
    await stage.stop()
    (older,) = stage.files()
    stage.start()
    await stage.ask(f"{LONG}|another way", cached=950)
    await stage.stop()
    (newer,) = {*stage.files()} - {older}
    (stage.vault.folder / newer).unlink()
    stage.start()
    stage.slots.orders.clear()
    turn = await send(stage, turn_of(f"{LONG}|another way|go on"))
    assert stage.slots.orders == ["restore"]
    assert turn.restored is not None
    assert turn.restored.saved.name == older


async def test_who_asks_again_at_once_stands_in_line_again(stage: Stage, busy: Turn) -> None:
    """What was asked before never reached the server, though it has just ended."""
    turn = turn_of("one|two")
    leaving = asyncio.ensure_future(send(stage, turn))
    await still(leaving)
    leaving.cancel()
    await asyncio.wait({leaving})
    assert isinstance(turn.record, RequestRecord)
    turn.record.ended_at = monotonic()

    assert stage.desk.begins(turn_of("one|two"), stage.process)
