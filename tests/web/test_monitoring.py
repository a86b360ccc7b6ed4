"""What monitors ask, answered without loading, waking or using a model."""

from __future__ import annotations

import asyncio

import pytest

from llmsnap.core.lifecycle import State
from tests.helpers.waiting import eventually
from tests.web.scripted import Line, Received, say_ok, whole
from tests.web.stage import Stage, staged

PATHS = ["health", "props", "slots", "metrics", "models", "v1/models"]


async def get(stage: Stage, path: str) -> tuple[int, str, str | None]:
    """Status, body and `Age` of what a monitor gets."""
    async with stage.site.session.get(f"/upstream/a/{path}") as answer:
        return answer.status, await answer.text(), answer.headers.get("Age")


@pytest.mark.parametrize("path", PATHS)
async def test_a_model_that_is_up_answers_itself(path: str) -> None:
    """Without a lease: it isn't kept from its rest."""
    async with staged() as stage:
        assert await get(stage, path) == (200, '{"ok":true}', None)
        assert stage.received.target == f"/{path}"
        assert stage.lender.arrived == []


async def test_each_answer_has_one_date() -> None:
    """The server's own, or else ours (RFC 9110, 6.6.1)."""
    own = b"HTTP/1.1 200 OK\r\nDate: Thu, 01 Jan 2026 00:00:00 GMT\r\nContent-Length: 0\r\n\r\n"

    async def script(received: Received, line: Line) -> None:
        await line.say(own if received.target == "/props" else whole(b"{}"))

    async with staged(script) as stage:
        for path, is_own in (("props", True), ("slots", False)):
            async with stage.site.session.get(f"/upstream/a/{path}") as answer:
                (date,) = answer.headers.getall("Date")
                assert (date == "Thu, 01 Jan 2026 00:00:00 GMT") is is_own


@pytest.mark.parametrize("state", [State.ASLEEP, State.STOPPED])
async def test_what_was_said_last_serves_while_it_is_down(state: State) -> None:
    """With its age; nothing reaches the server."""
    now = asyncio.get_running_loop().time
    async with staged() as stage:
        began = now()
        await get(stage, "props?x=1")
        stage.put_down(state=state)

        status, body, age = await get(stage, "props?x=1")
        assert (status, body) == (200, '{"ok":true}')
        assert age is not None
        assert 0 <= int(age) <= now() - began
        assert len(stage.server.received) == 1
        assert stage.lender.arrived == []


async def test_what_was_never_asked_is_a_conflict() -> None:
    """409, and the model stays as it is."""
    async with staged() as stage:
        await get(stage, "props")
        stage.put_down()

        assert (await get(stage, "slots"))[0] == 409
        assert (await get(stage, "props?other"))[0] == 409
        assert stage.lender.arrived == []


async def test_bad_answers_arent_remembered() -> None:
    """Only what was a 200."""

    async def script(_: Received, line: Line) -> None:
        await line.say(whole(b"loading", status="503 Busy"))

    async with staged(script) as stage:
        assert (await get(stage, "health"))[0] == 503
        stage.put_down()
        assert (await get(stage, "health"))[0] == 409


async def test_head_is_answered_without_a_body() -> None:
    """And isn't remembered as an answer to GET."""
    async with staged() as stage:
        async with stage.site.session.head("/upstream/a/health") as answer:
            assert (answer.status, await answer.read()) == (200, b"")
        stage.put_down()
        assert (await get(stage, "health"))[0] == 409


async def test_other_methods_are_requests_like_any_other() -> None:
    """They take a lease, outside the limit that is for inference."""
    async with staged() as stage:
        async with stage.site.session.post("/upstream/a/slots", data=b"x") as answer:
            assert answer.status == 200
        assert stage.lender.arrived == [("a", False)]


async def test_a_server_too_busy_to_say_is_answered_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a limit: with what it said last, or with a 504."""
    silent = asyncio.Event()

    async def script(received: Received, line: Line) -> None:
        if silent.is_set():
            await line.gone()
        else:
            await say_ok(received, line)

    async with staged(script) as stage:
        await get(stage, "slots")
        silent.set()
        monkeypatch.setattr("llmsnap.web.monitoring.LIMIT_S", 0.1)
        status, body, age = await get(stage, "slots")
        assert (status, body) == (200, '{"ok":true}')
        assert age is not None
        assert (await get(stage, "health"))[0] == 504


async def test_a_question_ends_when_its_model_goes_to_sleep() -> None:
    """Nothing may be on its way to a process that is put to sleep."""

    async def script(_: Received, line: Line) -> None:
        await line.gone()

    async with staged(script) as stage:
        asking = asyncio.ensure_future(get(stage, "slots"))
        await eventually(lambda: len(stage.server.received) == 1)
        stage.put_down(state=State.SLEEPING)

        assert (await asking)[0] == 502
        await eventually(lambda: stage.server.gone == 1)


async def test_an_answer_that_is_too_large_isnt_held(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory is bounded, whatever a server makes of `/metrics`."""
    monkeypatch.setattr("llmsnap.web.question.MOST_BYTES", 1000)

    async def script(_: Received, line: Line) -> None:
        await line.say(whole(b"x" * 5000))

    async with staged(script) as stage:
        assert (await get(stage, "metrics"))[0] == 502


async def test_only_so_many_answers_are_remembered() -> None:
    """Queries come in any number; the oldest goes."""
    async with staged() as stage:
        for n in range(20):
            await get(stage, f"props?n={n}")
        stage.put_down()

        assert (await get(stage, "props?n=0"))[0] == 409
        assert (await get(stage, "props?n=19"))[0] == 200
