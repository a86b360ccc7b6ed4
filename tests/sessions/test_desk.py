"""One model's conversations, over a server that misbehaves as the engine can't be made to."""

from __future__ import annotations

import asyncio
import json

import pytest

from llmsnap.errors import LlmsnapError
from llmsnap.sessions.slots import Lost, NotSupported, Refused, Restored, Saved, Slot
from llmsnap.sessions.subject import SlotSpoiled
from llmsnap.sessions.turns import Turn
from llmsnap.telemetry.record import RequestRecord
from tests.helpers.waiting import eventually
from tests.sessions.stage import TOKENS, Stage


async def test_what_is_saved_comes_back_and_is_proved(stage: Stage) -> None:
    """By the tokens of the next answer."""
    await stage.ask("one")
    await stage.stop()
    stage.start()
    await stage.ask("one|two", cached=990)

    assert stage.slots.orders == ["save", "restore"]
    assert stage.outcomes == [("save", "saved"), ("restore", "used")]


@pytest.mark.parametrize(
    "said",
    [Saved(0, 36), Saved(0, 0), Saved(TOKENS + 100, 5), Saved(500, 500), Refused("disk full")],
    ids=["empty", "nothing", "cut off", "another", "refused"],
)
async def test_u123_e06_e12_a_save_that_went_wrong_takes_nothings_place(
    stage: Stage, said: Saved | LlmsnapError
) -> None:
    """Idle slots may be cleared, and disks full; what was good is still there."""
    await stage.ask("one")
    await stage.stop()
    before = stage.files()
    await stage.ask("one|two", tokens=TOKENS + 100)
    stage.slots.save_says = said
    await stage.stop()

    assert stage.files() == before
    assert stage.outcomes[-1] == ("save", "failed")


async def test_u126_e01_a_useless_restore_ends_the_saving(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    """The server said it was restored, and read everything again. It is said once."""
    await stage.ask("one")
    await stage.stop()
    stage.start()
    await stage.ask("one|two", cached=3)
    await stage.stop()
    stage.start()
    await stage.ask("one|two|three")
    await stage.stop()

    assert stage.outcomes == [("save", "saved"), ("restore", "useless")]
    assert stage.slots.orders == ["save", "restore"]
    assert caplog.text.count("restores are useless") == 1
    assert "restores are useless" in stage.desk.refusal


async def test_only_what_has_turned_out_to_be_useless_is_worthless(stage: Stage) -> None:
    """Not what was saved with another option, with which restores may well be of use."""
    await stage.ask("other")
    await stage.stop()
    others = stage.files()
    stage.start("llama-server -np 1 -fa off")
    await stage.ask("one")
    await stage.stop()
    (mine,) = {*stage.files()} - {*others}
    stage.start("llama-server -np 1 -fa off")
    await stage.ask("one|two", cached=3)

    assert stage.desk.worthless() == [mine]


async def test_e15_a_prompt_that_began_otherwise_says_little_of_restores(stage: Stage) -> None:
    """A template that tells the date, at midnight: where they were of use before, three count."""
    await stage.ask("one")
    await stage.stop()
    stage.start()
    await stage.ask("one|two", cached=990)
    for strike in (1, 2, 3):
        assert stage.desk.refusal == ""
        await stage.stop()
        stage.start()
        await stage.ask("one|two" + "|more" * strike, tokens=TOKENS + strike, cached=3)
    assert "restores are useless" in stage.desk.refusal


BEGINNING = "a beginning that is long " * 20
"""Most of what is saved with it."""


async def test_e02_what_parts_from_a_saved_conversation_is_judged_by_itself(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    """Where nothing of it is in the cache, only what goes on from a saved one is restored."""
    await stage.ask(f"{BEGINNING}|one")
    await stage.stop()
    stage.start()
    await stage.ask(f"{BEGINNING}|another", cached=3)
    assert stage.outcomes == [("save", "saved"), ("restore", "useless")]
    stage.start()
    await stage.ask(f"{BEGINNING}|a third")
    assert stage.slots.orders == ["save", "restore"]
    assert caplog.text.count("restores are useless for what parts") == 1
    stage.start()
    await stage.ask(f"{BEGINNING}|one|two", cached=990)
    assert stage.slots.orders == ["save", "restore", "restore"]
    assert stage.outcomes[-1] == ("restore", "used")
    assert stage.desk.refusal == ""


@pytest.mark.parametrize("cached", [100, 400])
async def test_e15_a_part_of_a_guess_says_nothing(stage: Stage, cached: int) -> None:
    """How many tokens are in a part of a conversation isn't known."""
    await stage.ask(f"{BEGINNING}|one")
    await stage.stop()
    for third in ("another", "a third"):
        stage.start()
        await stage.ask(f"{BEGINNING}|{third}", cached=cached)
    assert stage.slots.orders == ["save", "restore", "restore"]
    assert stage.outcomes == [("save", "saved")]


async def test_e02_a_part_that_was_in_the_cache_proves_restores(stage: Stage) -> None:
    """After that three in vain are needed."""
    await stage.ask(f"{BEGINNING}|one")
    await stage.stop()
    for found in (900, 3, 3, 3, 3):
        stage.start()
        await stage.ask(f"{BEGINNING}|{found}", cached=found)
    assert stage.slots.orders == ["save"] + 4 * ["restore"]
    assert stage.outcomes[1:5] == [("restore", "used")] + 3 * [("restore", "useless")]


async def test_e02_nothing_is_said_of_a_slot_that_may_be_another(stage: Stage) -> None:
    """`/v1/messages` can't name it: the server takes the one that it likes best."""
    await stage.ask(f"{BEGINNING}|one")
    await stage.stop()
    stage.start()
    stage.slots.beside = [Slot(1, n_ctx=4096)]
    await stage.ask(f"{BEGINNING}|another", cached=3)
    assert stage.slots.orders == ["save", "restore"]
    assert stage.outcomes == [("save", "saved")]


async def test_e16_a_long_save_isnt_made_while_a_request_waits(stage: Stage) -> None:
    """What took long once isn't saved on the way of a request that takes its slot; idle, it is."""
    await stage.ask("one")
    await stage.stop()
    stage.desk._saver._token_s = 1.0
    await stage.ask("another")
    await stage.ask("a third")
    assert stage.slots.orders == ["save"]
    await stage.stop()
    assert stage.slots.orders == ["save", "save"]


async def test_e17_one_order_a_server_at_a_time(stage: Stage) -> None:
    """A save that is under way is waited for before anything is restored."""
    await stage.ask("one")
    await stage.stop()
    stage.start()
    await stage.ask("another")
    stage.slots.may_save.clear()
    saving = asyncio.ensure_future(stage.stop())
    await eventually(lambda: stage.slots.orders == ["save", "save"])
    asking = asyncio.ensure_future(stage.ask("one|two", cached=990))
    done, _ = await asyncio.wait({asking}, timeout=0.2)  # enough to be overtaken in
    assert not done
    stage.slots.may_save.set()
    await asyncio.gather(saving, asking)
    assert stage.slots.orders == ["save", "save", "restore"]


async def test_e23_a_server_that_cant_list_its_slots_makes_nothing_worthless(stage: Stage) -> None:
    """It may have been told not to, and be told otherwise tomorrow."""
    await stage.ask("one")
    await stage.stop()
    stage.start()
    stage.slots.list_says = NotSupported("501: start it with --slots")
    await stage.ask("one|two")

    assert "--slots" in stage.desk.refusal
    assert stage.desk.worthless() == []
    assert len(stage.files()) == 1


@pytest.mark.parametrize("said", [Refused("400: no"), Restored(0), Restored(400)])
async def test_u125_e11_a_failed_restore_restarts_the_process(
    stage: Stage, said: Restored | LlmsnapError
) -> None:
    """Before anything is served from it; and that file is never tried again."""
    await stage.ask("one")
    await stage.stop()
    stage.start()
    stage.slots.restore_says = said
    with pytest.raises(SlotSpoiled):
        await stage.ask("one|two")

    assert stage.restarts == [stage.process.generation]
    assert stage.outcomes[-1] == ("restore", "failed")
    assert [name[-4:] for name in stage.files()] == [".bad"]
    stage.start()
    await stage.ask("one|two")


async def test_e08_a_file_may_have_lacked_room_beside_others(stage: Stage) -> None:
    """It is kept the first time, and tried once more by the next process."""
    await stage.ask("one")
    await stage.stop()
    (good,) = stage.files()
    stage.start()
    stage.slots.beside = [Slot(1, n_ctx=4096, id_task=3, n_prompt_tokens=3500)]
    stage.slots.restore_says = Refused("400: no available space")
    for left in ([good], [good.replace(".kv", ".bad")]):
        with pytest.raises(SlotSpoiled):
            await stage.ask("one|two")
        assert stage.files() == left
        stage.start()


async def test_e09_a_file_that_another_build_refuses_is_kept(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is of use again once the engine is what it was; until then it isn't offered again."""
    await stage.ask("one")
    await stage.stop()
    (good,) = stage.files()
    monkeypatch.setattr("llmsnap.sessions.identity._engine", lambda argv, env: "another")
    stage.start()
    stage.slots.beside = [Slot(1, n_ctx=4096, id_task=3, is_processing=True)]
    await stage.ask("one|two")
    assert stage.slots.orders == ["save"]  # nobody's answer is put at risk for a trial
    stage.start()
    stage.slots.beside = []
    stage.slots.restore_says = Refused("400: no")
    with pytest.raises(SlotSpoiled):
        await stage.ask("one|two")
    stage.start()
    await stage.ask("one|two")
    assert stage.slots.orders == ["save", "restore"]
    assert stage.files() == [good]

    monkeypatch.undo()
    stage.slots.restore_says = None
    stage.start()
    await stage.ask("one|two", cached=990)
    assert stage.outcomes[-1] == ("restore", "used")


@pytest.mark.parametrize("order", ["save", "restore"])
async def test_e05_a_server_that_dies_of_an_order_gets_no_more_of_them(
    stage: Stage, order: str
) -> None:
    """Twice in a row may be chance no longer; what is saved stays."""
    await stage.ask("one")
    await stage.stop()
    for _ in range(2):
        stage.start()
        if order == "save":
            stage.slots.save_says = Lost("no answer")
            await stage.ask("another")
            await stage.stop()
        else:
            stage.slots.restore_says = Lost("no answer")
            stage.slots.beside = [Slot(1, n_ctx=4096, id_task=3, n_prompt_tokens=3500)]
            with pytest.raises(SlotSpoiled):
                await stage.ask("one|two")
    orders = len(stage.slots.orders)
    stage.start()
    await stage.ask("another")
    await stage.stop()

    assert len(stage.slots.orders) == orders
    assert f"ended while it was to {order} a slot, 2 times in a row" in stage.desk.refusal
    assert stage.desk.worthless() == []


async def test_e04_a_server_that_cant_is_left_alone(stage: Stage) -> None:
    """501, as with pictures in older builds: nothing was done, so nothing is restarted."""
    await stage.ask("one")
    stage.slots.save_says = NotSupported("501: not supported")
    await stage.stop()
    await stage.stop()

    assert stage.slots.orders == ["save"]
    assert "501" in stage.desk.refusal
    assert stage.files() == []


async def test_u134_e18_a_slot_with_half_an_answer_isnt_saved(stage: Stage) -> None:
    """The client left."""
    await stage.ask("one", whole=False)
    await stage.stop()

    assert stage.slots.orders == []


async def test_e07_a_slot_that_somebody_else_has_used_isnt_saved(stage: Stage) -> None:
    """What it holds isn't what was asked here."""
    await stage.ask("one")
    stage.slots.slot = Slot(0, n_ctx=4096, id_task=9, n_prompt_tokens=TOKENS + 50)
    await stage.stop()

    assert stage.slots.orders == []


async def test_u130_e10_only_the_context_must_be_large_enough(stage: Stage) -> None:
    """It may be another, but not smaller than what was saved."""
    await stage.ask("one")
    await stage.stop()
    stage.start("llama-server -np 1 -c 512")
    stage.slots.slot = Slot(0, n_ctx=512)
    await stage.ask("one|two")
    assert stage.outcomes[-1] == ("restore", "refused")

    stage.start("llama-server -np 1 -c 2048 --port 9")
    await stage.ask("one|two", cached=990)
    assert stage.outcomes[-1] == ("restore", "used")


async def test_e09_another_option_is_refused_before_the_engine_is_asked(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    """With the reason."""
    caplog.set_level("INFO", "llmsnap")
    await stage.ask("one")
    await stage.stop()
    stage.start("llama-server -np 1 -fa off")
    await stage.ask("one|two")

    assert stage.outcomes[-1] == ("restore", "refused")
    assert stage.slots.orders == ["save"]
    assert "--flash-attn was not there and is off" in caplog.text


async def test_e13_what_isnt_new_isnt_saved_again(stage: Stage) -> None:
    """Nor is what is short."""
    await stage.ask("one")
    await stage.stop()
    await stage.stop()
    assert stage.slots.orders == ["save"]
    stage.desk.min_tokens = TOKENS + 1
    await stage.ask("another")
    await stage.stop()
    assert stage.slots.orders == ["save"]


async def test_an_awake_model_with_its_conversation_in_the_slot_is_asked_nothing(
    stage: Stage,
) -> None:
    """Nor are its messages looked at: one comparison of bytes tells."""
    long = "a conversation that is long enough " * 10
    await stage.ask(long)
    await stage.ask(f"{long}|go on")
    record = RequestRecord(model="a", path="", client="", arrived_at=1.0)
    body = json.dumps({"messages": [{"content": part} for part in (long, "go on", "and on")]})
    turn = Turn(record=record, path="/v1/chat/completions", body=body.encode())

    assert not stage.desk.begins(turn, stage.process)
    assert turn._chain is None
    assert stage.slots.orders == []


@pytest.mark.parametrize("held", [TOKENS + 500, TOKENS, 300, None])
async def test_what_an_adopted_process_holds_isnt_overwritten(
    stage: Stage, held: int | None
) -> None:
    """It may be newer than what is saved, or somebody else's; an answer says what it is now."""
    await stage.ask("one")
    await stage.stop()
    stage.adopt(Slot(0, n_ctx=4096, id_task=0, n_prompt_tokens=held))
    await stage.ask("one|two", cached=990)
    assert stage.slots.orders == ["save"]

    await stage.ask("another")
    await stage.ask("one|two|three", cached=990)
    assert stage.slots.orders[-1] == "restore"


@pytest.mark.parametrize("slot", [Slot(0, n_ctx=4096), Slot(0, 4096, False, 7, 0)])
async def test_an_empty_slot_of_an_adopted_process_is_as_good_as_any(
    stage: Stage, slot: Slot
) -> None:
    """Nothing is lost there, whether it was never used or has been emptied."""
    await stage.ask("one")
    await stage.stop()
    stage.adopt(slot)
    await stage.ask("one|two", cached=990)

    assert stage.slots.orders == ["save", "restore"]
    assert stage.outcomes[-1] == ("restore", "used")


async def test_beside_what_an_adopted_process_holds_an_empty_slot_is_filled(stage: Stage) -> None:
    """Where what is there is too short to be what is saved, or to go on from it."""
    await stage.ask("one")
    await stage.stop()
    stage.adopt(Slot(1, n_ctx=4096, id_task=3, n_prompt_tokens=300))
    stage.slots.beside = [Slot(0, n_ctx=4096)]
    await stage.ask("one|two", cached=990)

    assert stage.slots.restored == [0]


async def test_what_has_just_ended_counts_before_its_tokens_are_known(stage: Stage) -> None:
    """Of two such conversations in turn, one slot holds the later one only."""
    first, second = ("a conversation that is long enough " * 10, "another one, as long " * 20)

    def turn(*parts: str) -> Turn:
        record = RequestRecord(model="a", path="", client="", arrived_at=1.0)
        body = json.dumps({"messages": [{"content": part} for part in parts]})
        return Turn(record=record, path="/v1/chat/completions", body=body.encode())

    for text in (first, second):
        begun = turn(text)
        stage.desk.begins(begun, stage.process)
        assert isinstance(begun.record, RequestRecord)
        begun.record.forwarded_at, begun.record.ended_at = 1.0, 2.0

    assert not stage.desk.begins(turn(second, "go on"), stage.process)
    assert stage.desk.begins(turn(first, "go on"), stage.process)
