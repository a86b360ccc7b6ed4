"""Another configuration, from one request to the next."""

from __future__ import annotations

import asyncio

from msgspec import structs

from llmsnap.config.schema import Config, ModelConfig, UpstreamConfig
from llmsnap.config.sections import (
    Filters,
    PeerConfig,
    ProfileConfig,
    SelectorConfig,
    SelectorSettings,
    Timeouts,
)
from llmsnap.core.lifecycle import State
from llmsnap.web.standins import StandIns
from tests.helpers.waiting import eventually
from tests.web.fleet import FakeFleet
from tests.web.scripted import Line, Received, Scripted, say_ok
from tests.web.stage import staged

A = ModelConfig(cmd="serve a")
ONE = Config(models={"a": A})


def with_a(**settings: object) -> Config:
    """The configuration with other settings of model a."""
    return structs.replace(ONE, models={"a": structs.replace(A, **settings)})


async def test_names_come_and_go() -> None:
    """Aliases, on the same connection."""
    async with staged(config=ONE) as stage:
        await stage.text()
        stage.adopt(with_a(aliases=("first",)))
        await stage.text(b'{"model":"first"}')
        assert (await stage.site.ask("/api/models")).json["models"][0]["aliases"] == ["first"]
        stage.adopt(ONE)
        async with stage.ask(b'{"model":"first"}') as answer:
            assert answer.status == 404


async def test_filters_count_from_the_next_request_on() -> None:
    """The one under way was sent by the old ones."""
    async with staged(config=ONE) as stage:
        await stage.text()
        assert stage.received.json == {"model": "a"}
        stage.adopt(with_a(filters=Filters(set_params={"seed": 7})))
        await stage.text()
        assert stage.received.json == {"model": "a", "seed": 7}


async def test_keys_and_hosts_count_on_open_connections() -> None:
    """What was let in before is looked at again."""
    async with staged(config=ONE) as stage:
        await stage.text()
        stage.adopt(structs.replace(ONE, api_keys=("key",)))
        async with stage.ask() as answer:
            assert answer.status == 401
        async with stage.ask(headers={"x-api-key": "key"}) as answer:
            assert answer.status == 200
        stage.adopt(ONE)
        await stage.text()
        assert (await stage.site.ask("/health", headers={"Host": "box"})).status == 403
        stage.adopt(structs.replace(ONE, allowed_hosts=("box",)))
        assert (await stage.site.ask("/health", headers={"Host": "box"})).status == 200


async def test_clients_keys_are_kept_from_servers_once_there_are_some() -> None:
    """They are the proxy's own then."""
    key = {"Authorization": "Bearer key"}
    async with staged(config=ONE) as stage:
        async with stage.ask(headers=key) as answer:
            await answer.read()
        assert stage.received["authorization"] == "Bearer key"
        stage.adopt(structs.replace(ONE, api_keys=("key",)))
        async with stage.ask(headers=key) as answer:
            await answer.read()
        assert stage.received.all("authorization") == []


async def test_the_limit_of_bodies_is_the_new_one() -> None:
    """For short and for long ones."""
    async with staged(config=ONE) as stage:
        stage.adopt(structs.replace(ONE, max_body_bytes=20))
        async with stage.ask(b'{"model":"a", "more": "xxxxxxxxxxxxx"}') as answer:
            assert answer.status == 413


async def test_peers_come_and_move_and_go() -> None:
    """With the next request; connections that were kept don't lead to the old place."""
    async with staged(config=ONE) as stage, Scripted.running(say_ok) as other:

        def peered(port: int) -> Config:
            peer = PeerConfig(proxy=f"http://127.0.0.1:{port}", models=("m",))
            return structs.replace(ONE, peers={"box": peer})

        stage.adopt(peered(stage.server.port))
        await stage.text(b'{"model":"box/m"}')
        assert stage.received.json == {"model": "m"}
        stage.adopt(peered(other.port))
        await stage.text(b'{"model":"box/m"}')
        assert len(other.received) == 1
        stage.adopt(ONE)
        async with stage.ask(b'{"model":"box/m"}') as answer:
            assert answer.status == 404
        await stage.text()


async def test_who_waits_for_a_removed_model_is_served() -> None:
    """By its old settings; it isn't listed any more."""
    async with staged(config=ONE, up=False) as stage:
        waiting = asyncio.ensure_future(stage.text())
        await eventually(lambda: bool(stage.lender.waiting))
        stage.adopt(Config(models={"b": ModelConfig(cmd="serve b")}))
        listed = (await stage.site.ask("/v1/models")).json["data"]
        assert [record["id"] for record in listed] == ["b"]
        stage.put_up()
        await waiting
        shown = (await stage.site.ask("/api/models")).json["models"]
        assert [model["id"] for model in shown] == ["a"]  # what the supervisor still has


async def test_an_answer_under_way_goes_on() -> None:
    """Whatever is changed meanwhile."""
    go_on = asyncio.Event()

    async def slowly(received: Received, line: Line) -> None:
        await go_on.wait()
        await say_ok(received, line)

    async with staged(slowly, config=ONE) as stage:
        answer = asyncio.ensure_future(stage.text())
        await eventually(lambda: bool(stage.server.received))
        stage.adopt(with_a(timeouts=Timeouts(connect=1), aliases=("x",)))
        go_on.set()
        assert await answer


async def test_paths_that_are_no_reason_to_load_are_the_new_ones() -> None:
    """Of a model's own server."""
    async with staged(config=ONE, up=False) as stage:
        stage.adopt(structs.replace(ONE, upstream=UpstreamConfig(ignore_paths=("/quiet",))))
        assert (await stage.site.ask("/upstream/a/quiet")).status == 409


async def test_logs_go_by_the_new_names() -> None:
    """Of models that are new."""
    async with staged(config=ONE) as stage:
        stage.adopt(with_a(aliases=("first",)))
        answer = await stage.site.ask("/logs/stream/first?no-follow")
        assert answer.status == 200


def test_the_active_profile_stays_active_with_its_new_pins() -> None:
    """Unless it is gone."""
    config = structs.replace(ONE, profiles={"p": ProfileConfig(pins={"x": "a"})})
    names = StandIns(config, FakeFleet("a").view)
    names.activate("p")
    names.adopt(structs.replace(ONE, profiles={"p": ProfileConfig(pins={"y": "a"})}))
    assert names.active == "p"
    assert names.names == {"y"}
    names.adopt(ONE)
    assert names.active is None
    assert not names.names


def test_a_selector_knows_its_requests_under_way() -> None:
    """So that a model isn't taken for idle because the file was read again."""
    models = {name: ModelConfig(cmd="x") for name in "ab"}
    settings = SelectorSettings(spillover=1)
    selector = SelectorConfig(strategy="spillover", targets=("a", "b"), settings=settings)
    config = Config(models=models, selectors={"s": selector})
    fleet = FakeFleet("a", "b")
    fleet.put("a", State.READY)
    names = StandIns(config, fleet.view)
    with names.standing_in("s") as first:
        names.adopt(structs.replace(config, selectors={"s": structs.replace(selector, name="S")}))
        with names.standing_in("s") as second:
            assert (first, second) == ("a", "b")
    assert not any(names.selectors["s"].in_flight.values())


async def test_connections_follow_their_limits() -> None:
    """A pool goes by the limits that it was made with, so it is made anew."""
    async with staged(config=ONE) as stage:
        await stage.text()
        stage.adopt(with_a(timeouts=replace_timeouts(connect=7)))
        await stage.text()
        pool = stage.proxy._pools.of(stage.lender.upstream("a"))  # type: ignore[arg-type]
        assert pool._timeouts.connect == 7


def replace_timeouts(**changes: int) -> Timeouts:
    """The usual limits with changes."""
    return structs.replace(Timeouts(), **changes)
