"""The router's API over fakes; `tests/e2e/test_router.py` compares it with a real router's."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest

from llmsnap.config.schema import Config, ModelConfig
from llmsnap.config.sections import PeerConfig, SelectorConfig
from llmsnap.core.lifecycle import State
from llmsnap.errors import StartFailed
from llmsnap.web.router import WORDS, status_of
from llmsnap.web.server import PARTS
from tests.helpers.views import view_of
from tests.helpers.waiting import eventually
from tests.web.fleet import FakeFleet, config_of, front_of
from tests.web.scripted import Line, Received, whole
from tests.web.serving import Site, serving
from tests.web.stage import staged


@asynccontextmanager
async def listed(config: Config, fleet: FakeFleet) -> AsyncIterator[Site]:
    """The application over `fleet`."""
    async with serving(front_of(config, fleet)) as site:
        yield site


async def told(stream: aiohttp.ClientResponse) -> dict[str, Any]:
    """The next event of a stream."""
    while True:
        line = await stream.content.readline()
        assert line, "the stream has ended"
        if line.startswith(b"data: "):
            event: dict[str, Any] = json.loads(line.removeprefix(b"data: "))
            return event


def test_every_state_has_a_word() -> None:
    """So that none can be forgotten."""
    assert set(WORDS) == set(State)
    assert set(WORDS.values()) == {"loaded", "loading", "sleeping", "unloaded", "failed"}


def test_an_end_that_nobody_ordered_has_an_exit_code() -> None:
    """By which the web page tells a failure from an unload."""
    died = view_of("a", error="killed")
    assert status_of(view_of("a"), key="status") == {"status": "unloaded", "exit_code": 0}
    failed = {"exit_code": 1, "failed": True}
    assert status_of(died, key="status") == {"status": "unloaded", **failed}
    assert status_of(died) == {"value": "unloaded", **failed}
    assert status_of(view_of("a")) == {"value": "unloaded"}
    gone = view_of("a", state=State.FAILED, error="no such file", exit_code=3)
    assert status_of(gone) == {"value": "failed", "exit_code": 3, "failed": True}


async def test_one_record_has_both_sides_fields() -> None:
    """The router's state in `/models`, llama-swap's two words in `/v1/models`, and no command."""
    config = config_of("b", a=ModelConfig(cmd="serve --secret", aliases=("x",)))
    fleet = FakeFleet("a", "b")
    fleet.put("a", State.ASLEEP)
    async with listed(config, fleet) as site:
        theirs = (await site.ask("/models")).json["data"]
        ours = (await site.ask("/v1/models")).json["data"]

    assert [record["status"] for record in ours] == [{"value": "loaded"}, {"value": "unloaded"}]
    assert theirs[0]["status"] == {"value": "sleeping"}
    assert theirs[0]["aliases"] == ["x"]
    assert theirs[0]["meta"] == ours[0]["meta"]
    assert theirs[0]["architecture"]["input_modalities"] == ["text"]
    assert "secret" not in json.dumps(theirs)


async def test_aliases_peers_and_selectors_are_listed_too() -> None:
    """An alias has its model's state."""
    config = Config(
        models={"a": ModelConfig(cmd="serve", aliases=("x",))},
        include_aliases_in_list=True,
        peers={"far": PeerConfig(proxy="http://far.test", models=("m",))},
        selectors={"s": SelectorConfig(strategy="warm", targets=("a",))},
    )
    fleet = FakeFleet("a")
    fleet.put("a", State.STARTING)
    async with listed(config, fleet) as site:
        records = (await site.ask("/models")).json["data"]

    states = {record["id"]: record["status"]["value"] for record in records}
    assert states["a"] == states["x"] == "loading"
    assert states["far/m"] == "unloaded"
    assert "s" in states


async def test_a_load_is_told_of_as_it_goes() -> None:
    """The order is answered at once, the rest is in the stream."""
    fleet = FakeFleet("a")
    async with (
        listed(config_of("a"), fleet) as site,
        site.session.get("/models/sse") as stream,
    ):
        assert stream.content_type == "text/event-stream"
        reply = await site.ask("/models/load", method="POST", data=b'{"model":"a"}')
        assert (reply.status, reply.json) == (200, {"success": True})
        loaded = await told(stream)
        again = await site.ask("/models/load", method="POST", data=b'{"model":"a"}')
        fleet.put("a", State.SLEEPING)
        fleet.put("a", State.ASLEEP)
        asleep = await told(stream)
        await site.ask("/models/unload", method="POST", data=b'{"model":"a"}')
        gone = await told(stream)

    assert (loaded["model"], loaded["event"]) == ("a", "status_change")
    assert loaded["data"]["status"] == "loaded"
    assert loaded["data"]["info"]["id"] == "a"
    assert again.status == 400
    assert asleep["data"] == {"status": "sleeping"}
    assert gone["data"] == {"status": "unloaded", "exit_code": 0}


async def test_a_start_has_a_begin_and_an_end() -> None:
    """In the router's form for how far a load is; a wake is only begun."""
    fleet = FakeFleet("a")
    async with (
        listed(config_of("a"), fleet) as site,
        site.session.get("/models/sse") as stream,
    ):
        for state in (State.STARTING, State.READY, State.ASLEEP, State.WAKING, State.READY):
            fleet.put("a", state)
        events = [await told(stream) for _ in range(7)]

    said = [(event["event"], event["data"]["status"]) for event in events]
    assert said == [
        ("model_status", "loading"),
        *[("status_change", word) for word in ("loading", "loading", "loaded", "sleeping")],
        ("model_status", "loading"),
        ("status_change", "loaded"),
    ]
    assert [event["data"]["progress"]["value"] for event in events[1:3]] == [0.0, 1.0]


async def test_a_load_that_fails_is_told_of_too(caplog: pytest.LogCaptureFixture) -> None:
    """And the log says why."""
    fleet = FakeFleet("a")
    fleet.refusal = StartFailed("model 'a': no such file")
    async with (
        listed(config_of("a"), fleet) as site,
        site.session.get("/models/sse") as stream,
    ):
        await site.ask("/models/load", method="POST", data=b'{"model":"a"}')
        await eventually(lambda: "no such file" in caplog.text)
        fleet.put("a", State.FAILED)
        failed = await told(stream)

    assert failed["data"] == {"status": "failed", "exit_code": 1, "failed": True}


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/models/load", b'{"model":"nope"}', 404),
        ("/models/load", b"{}", 404),
        ("/models/load", b"x", 400),
        ("/models/load", b'{"model":"' + b"x" * 70_000 + b'"}', 413),
        ("/models/unload", b'{"model":"nope"}', 404),
    ],
)
async def test_bad_orders_are_refused(path: str, body: bytes, status: int) -> None:
    """With a reason."""
    async with listed(config_of("a"), FakeFleet("a")) as site:
        reply = await site.ask(path, method="POST", data=body)

    assert reply.status == status
    assert reply.message


async def test_a_reload_is_told_and_changes_names() -> None:
    """The page then asks for the list again."""
    app = front_of(config_of("a"), FakeFleet("a", "b"))
    async with serving(app) as site, site.session.get("/models/sse") as stream:
        for part in app[PARTS]:
            part.adopt(config_of("b"))
        assert await told(stream) == {"model": "*", "event": "models_reload"}
        listed = (await site.ask("/models")).json["data"]
        gone = await site.ask("/models/load", method="POST", data=b'{"model":"a"}')

    assert [record["id"] for record in listed] == ["b"]
    assert gone.status == 404


async def test_streams_end_with_the_proxy() -> None:
    """So that they don't hold up its end."""
    async with aiohttp.ClientSession() as session:
        async with listed(config_of("a"), FakeFleet("a")) as site:
            stream = await session.get(f"{site.url}/models/sse")
            await stream.content.readline()
        assert not (await stream.read()).strip()


@pytest.mark.parametrize("path", ["/slots", "/lora-adapters"])
async def test_what_a_question_lacks_is_said(path: str) -> None:
    """Which model, namely."""
    async with listed(config_of("a"), FakeFleet("a")) as site:
        reply = await site.ask(path)

    assert reply.status == 400
    assert f"{path}?model=NAME" in reply.message


async def test_u101_props_without_a_model_are_the_proxys_own() -> None:
    """It is a router, which is how the web page knows that there are several models."""
    async with listed(config_of("a"), FakeFleet("a")) as site:
        reply = await site.ask("/props?autoload=false")

    assert reply.json["role"] == "router"


@pytest.mark.parametrize("path", ["/props", "/slots", "/lora-adapters"])
async def test_looks_at_a_model_never_load_it(path: str) -> None:
    """What it said last is better than nothing."""

    async def say(_: Received, line: Line) -> None:
        await line.say(whole(b'{"is":"so"}'))

    async with staged(say, up=False, aliases=("x",)) as stage:
        path += "?model=x&autoload=false"
        assert (await stage.site.ask(path)).status == 409
        stage.put_up()
        assert (await stage.site.ask(path)).json == {"is": "so"}
        stage.put_down(state=State.ASLEEP)
        last = await stage.site.ask(path)
        assert last.json == {"is": "so"}
        assert "Age" in last.headers
        assert len(stage.server.received) == 1
        assert not stage.records
