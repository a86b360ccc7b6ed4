"""Everybody who follows is told; nobody is waited for."""

from __future__ import annotations

import json

import pytest

from llmsnap.telemetry.events import Events, Follower, frame


def test_an_event_is_json_within_json() -> None:
    """As llama-swap's clients take it apart."""
    made = frame("modelStatus", [{"id": 'a"b\n'}])
    line = made.removeprefix(b"event:message\ndata:").removesuffix(b"\n\n")
    outer = json.loads(line)

    assert b"\n" not in line
    assert outer["type"] == "modelStatus"
    assert json.loads(outer["data"]) == [{"id": 'a"b\n'}]


async def test_all_who_follow_are_told() -> None:
    """From then on, and in order."""
    events = Events()
    events.publish("x", lambda: 0)
    first, second = events.follow(), events.follow()
    events.publish("x", lambda: 1)
    second.close()
    events.publish("x", lambda: 2)
    first.close()

    assert [part async for part in first] == [frame("x", 1) + frame("x", 2)]
    assert [part async for part in second] == [frame("x", 1)]


def test_nothing_is_worked_out_for_nobody() -> None:
    """It costs nothing while no page is open."""

    def never() -> object:
        raise AssertionError

    Events().publish("x", never)


async def test_who_is_too_slow_misses_the_newest(caplog: pytest.LogCaptureFixture) -> None:
    """Memory doesn't grow; it is said once, and afterwards it goes on."""
    events = Events()
    follower = events.follow()
    for number in range(1030):
        events.publish("x", lambda number=number: number)  # type: ignore[misc]
    first = await anext(follower)
    events.publish("x", lambda: "later")

    assert first.count(b"event:message") == 1024
    assert await anext(follower) == frame("x", "later")
    assert caplog.text.count("too slow") == 1


async def test_who_is_too_slow_for_large_events_misses_them_sooner() -> None:
    """A model that prints without end would else fill memory, in 1,024 pieces of its log."""
    events = Events()
    follower = events.follow()
    for _ in range(100):
        events.publish("logData", lambda: "x" * 2**20)
    first = await anext(follower)
    events.publish("x", lambda: "later")

    assert 4 * 2**20 < len(first) < 6 * 2**20
    assert await anext(follower) == frame("x", "later")


async def test_silence_is_filled_with_comments() -> None:
    """By which it shows that the client is gone."""
    follower = Follower(lambda _: None, quiet_s=0.01)

    assert (await anext(follower)).startswith(b":")
