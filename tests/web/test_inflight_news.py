"""News of requests under way: made once, however many follow."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest

from llmsnap.runtime.lease import Lease
from llmsnap.telemetry.events import Events, Follower
from llmsnap.telemetry.record import RequestRecord
from llmsnap.web.inflight import InFlight
from llmsnap.web.inflight_news import InFlightNews
from tests.helpers.waiting import eventually


class FakeLease(Lease):
    """A lease that nobody has given yet."""

    def __init__(self) -> None:
        self.granted = False


class FakeAnswer:
    """An answer that has just begun."""

    body_bytes = 0


class Scene:
    """Requests that come and go, and all who are told."""

    def __init__(self) -> None:
        self.inflight, self.events = InFlight(), Events()
        self.asked = count()
        """How often the time was asked for: once an entry that is made."""
        self.news = InFlightNews(self.inflight, self.events, lambda: float(next(self.asked)))
        self.followers: list[Follower] = []

    def follow(self) -> list[str]:
        """Begin to follow; return the ids of what there is already."""
        known = self.news.snapshot()
        self.followers.append(self.events.follow())
        return [entry["id"] for entry in known]

    def arrive(self, model: str = "a") -> FakeLease:
        """Let a request come."""
        lease = FakeLease()
        record = RequestRecord(model=model, path="/v1/x", client="::1", arrived_at=0.0)
        self.answer = FakeAnswer()
        self.inflight.add(record, "POST", (), lease, self.answer)
        return lease

    async def heard(self, follower: Follower) -> list[tuple[str, str, str]]:
        """What one is told next: what happened to which request, and its state then."""
        async with asyncio.timeout(30):
            told = await anext(follower)
        datas = (line[5:] for line in told.splitlines() if line.startswith(b"data:"))
        return [_happening(json.loads(json.loads(data)["data"])) for data in datas]


def _happening(data: dict[str, Any]) -> tuple[str, str, str]:
    request = data.get("request", data)
    return data["operation"], request["id"], request.get("state", "")


@pytest.fixture
def scene() -> Iterator[Scene]:
    """Nobody follows yet; at the end nobody does."""
    scene = Scene()
    yield scene
    for follower in scene.followers:
        follower.close()


async def test_all_who_follow_are_told_the_same(scene: Scene) -> None:
    """When a request comes, is answered, and has gone."""
    scene.follow(), scene.follow()
    lease = scene.arrive()
    for follower in scene.followers:
        assert await scene.heard(follower) == [("upsert", "1", "waiting")]
    lease.granted = True
    for follower in scene.followers:
        assert await scene.heard(follower) == [("upsert", "1", "answering")]
    scene.inflight.running.clear()
    for follower in scene.followers:
        assert await scene.heard(follower) == [("remove", "1", "")]


async def test_bytes_are_told_as_they_go(scene: Scene) -> None:
    """Of an answer that goes on, as often as anybody looks."""
    scene.follow()
    scene.arrive()
    for size in (0, 10, 20):
        scene.answer.body_bytes = size
        assert await scene.heard(scene.followers[0]) == [("upsert", "1", "waiting")]


async def test_an_entry_is_made_once_for_all(scene: Scene) -> None:
    """A hundred pages cost what one does."""
    for _ in range(100):
        scene.follow()
    asked = next(scene.asked)
    scene.arrive()
    for follower in scene.followers:
        await scene.heard(follower)

    assert next(scene.asked) == asked + 2


async def test_who_comes_later_hears_nothing_twice(scene: Scene) -> None:
    """What it is told at first isn't news to it; it is to those who were there before."""
    assert scene.follow() == []
    scene.arrive()
    assert scene.follow() == ["1"]
    scene.arrive()

    first, second = [await scene.heard(follower) for follower in scene.followers]
    assert first == [("upsert", "1", "waiting")]
    assert second == [("upsert", "2", "waiting")]


async def test_nobody_looks_for_nobody(scene: Scene) -> None:
    """The last one to leave ends it; the next one to come begins it anew."""
    scene.follow()
    scene.followers.pop().close()
    await eventually(lambda: scene.news._timer is None)
    scene.arrive()
    assert scene.follow() == ["1"]
    scene.inflight.running.clear()

    assert await scene.heard(scene.followers[0]) == [("remove", "1", "")]
