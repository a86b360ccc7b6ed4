"""The self-test, over a server that misbehaves as the engine can't be made to."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from llmsnap.errors import Conflict, LlmsnapError
from llmsnap.sessions.slots import Lost, NotSupported, Read, Refused, Restored, Saved, Server, Slot
from llmsnap.sessions.subject import SlotSpoiled
from llmsnap.sessions.trial import Attempt, empty_slot
from tests.helpers.waiting import eventually
from tests.sessions.stage import FakeSlots, Stage


class TriedSlots(FakeSlots):
    """Reads prompts; a restored one as the test says."""

    def __init__(self, *args: object) -> None:
        super().__init__(*args)  # type: ignore[arg-type]  # as they were given
        self.reads: list[int] = []
        self.cached = 600
        self.holds_on = asyncio.Event()
        self.holds_on.set()

    async def tokens(self, server: Server, text: str, limit_s: float) -> Sequence[int]:
        """One a letter."""
        return [ord(letter) for letter in text]

    async def read(self, server: Server, slot: int, prompt: Sequence[int], limit_s: float) -> Read:
        """Read it, when the test lets it."""
        await self.holds_on.wait()
        self.orders.append("read")
        self.slot = Slot(0, n_ctx=4096, id_task=len(self.orders), n_prompt_tokens=len(prompt))
        cached = self.cached if self.orders.count("read") == 3 else 0
        return Read(len(prompt) - cached, cached)

    async def erase(self, server: Server, slot: int, limit_s: float) -> None:
        """Empty it."""
        self.orders.append("erase")
        self.slot = Slot(0, n_ctx=4096, id_task=self.slot.id_task, n_prompt_tokens=0)

    async def save(self, server: Server, slot: int, name: str, limit_s: float) -> Saved:
        """A token takes 1 kB."""
        found = await super().save(server, slot, name, limit_s)
        return found if self.save_says else Saved(found.n_saved, found.n_saved * 1000)


@pytest.fixture
def tried(stage: Stage) -> TriedSlots:
    """The server of `stage`."""
    assert isinstance(stage.slots, TriedSlots)
    return stage.slots


@pytest.fixture
def slots_kind() -> type[FakeSlots]:
    """Which server there is."""
    return TriedSlots


async def test_it_leaves_the_slot_empty_and_remembers_what_it_found(
    stage: Stage, tried: TriedSlots
) -> None:
    """No file is left either, and nobody counts it as a restore."""
    found = await stage.desk.test(stage.process, Attempt())

    assert tried.orders == ["read", "save", "read", "restore", "read", "erase"]
    assert (found.word, found.tokens, found.cached) == ("used", 600, 600)
    assert tried.slot.is_empty
    assert (stage.files(), stage.outcomes) == ([], [])
    assert await stage.desk.is_settled()
    assert not stage.desk.refusal


@pytest.mark.parametrize(
    ("cached", "word", "is_refused"),
    [(0, "useless", True), (300, "useless", True), (500, None, False)],
)
async def test_how_much_is_read_again_is_the_verdict(
    stage: Stage, tried: TriedSlots, cached: int, word: str | None, is_refused: bool
) -> None:
    """What is neither good nor bad decides nothing."""
    tried.cached = cached
    found = await stage.desk.test(stage.process, Attempt())

    assert found.word == word
    assert bool(stage.desk.refusal) == is_refused
    stage.start()
    assert await stage.desk.is_settled() == is_refused


async def test_another_command_is_another_matter(stage: Stage, tried: TriedSlots) -> None:
    """With other options it may be of use."""
    tried.cached = 0
    await stage.desk.test(stage.process, Attempt())
    stage.start("llama-server -np 1 --swa-full")

    assert not await stage.desk.is_settled()
    assert not stage.desk.refusal


@pytest.mark.parametrize("said", [Saved(0, 36), Saved(600, 36), Saved(20, 60_000)])
async def test_a_save_of_nothing_is_useless(stage: Stage, tried: TriedSlots, said: Saved) -> None:
    """Nothing is restored of it."""
    tried.save_says = said
    assert (await stage.desk.test(stage.process, Attempt())).word == "useless"
    assert "restore" not in tried.orders


async def test_a_server_that_cant_is_refused_and_goes_on(stage: Stage, tried: TriedSlots) -> None:
    """501: nothing was done to it."""
    tried.save_says = NotSupported("501: not here")
    assert (await stage.desk.test(stage.process, Attempt())).word == "refused"
    assert stage.restarts == []
    stage.start()
    assert await stage.desk.is_settled()
    assert "501" in stage.desk.refusal


@pytest.mark.parametrize("said", [Refused("400: no"), Restored(10)])
async def test_a_restore_that_fails_restarts_the_process(
    stage: Stage, tried: TriedSlots, said: Restored | LlmsnapError
) -> None:
    """What it computes now can't be trusted."""
    tried.restore_says = said
    assert (await stage.desk.test(stage.process, Attempt())).word == "refused"
    assert stage.restarts == [stage.process.generation]
    assert stage.desk.attempt is None


async def test_a_conversation_is_never_tested_over(stage: Stage, tried: TriedSlots) -> None:
    """Not where it would have to share a cache that is nearly full either."""
    await stage.ask("one")
    with pytest.raises(Conflict, match="unload"):
        await stage.desk.test(stage.process, Attempt())
    assert tried.orders == []
    with pytest.raises(Conflict, match="make room"):
        empty_slot([Slot(0, 4096, False, 3, 3500), Slot(1, 4096)])
    with pytest.raises(Conflict, match="make room"):
        empty_slot([Slot(0, 4096, False, 3), Slot(1, 4096)])
    assert empty_slot([Slot(0, 4096, False, 3, 500), Slot(1, 4096)]).id == 1


async def test_whoever_wants_the_server_is_let_through(stage: Stage, tried: TriedSlots) -> None:
    """The test is over when they go on, and no verdict is kept."""
    tried.holds_on.clear()
    attempt = Attempt()
    test = asyncio.ensure_future(stage.desk.test(stage.process, attempt))
    await eventually(lambda: stage.desk.attempt is not None, what="it is tested")
    way = asyncio.ensure_future(attempt.give_way())
    await eventually(attempt.is_unwanted.is_set, what="it is told to end")
    assert not way.done()
    test.cancel()
    await way

    assert stage.desk.attempt is None
    assert not await stage.desk.is_settled()
    assert stage.files() == []


async def test_a_restore_that_fails_under_a_request_is_told_to_it(
    stage: Stage, tried: TriedSlots, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that the request is served by another process."""
    begun, goes_on = asyncio.Event(), asyncio.Event()

    async def restore(*_: object) -> Restored:
        begun.set()
        await goes_on.wait()
        raise Refused("400: no")

    monkeypatch.setattr(tried, "restore", restore)
    attempt = Attempt()
    test = asyncio.ensure_future(stage.desk.test(stage.process, attempt))
    await begun.wait()
    way = asyncio.ensure_future(attempt.give_way())
    await attempt.is_unwanted.wait()
    test.cancel()
    goes_on.set()
    with pytest.raises(SlotSpoiled):
        await way
    assert (await test).is_spoiled


async def test_a_server_that_dies_of_tests_is_tested_no_more(
    stage: Stage, tried: TriedSlots
) -> None:
    """Twice in a row may be chance no longer."""
    tried.save_says = Lost("no answer")
    for settled in (False, True):
        with pytest.raises(Lost):
            await stage.desk.test(stage.process, Attempt())
        stage.start()
        assert await stage.desk.is_settled() == settled
