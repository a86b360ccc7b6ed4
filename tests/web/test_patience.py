"""How long a server may take, and whose turn it is."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from llmsnap.web.patience import Patience
from tests.web.handclock import HandClock


class Rung:
    """A patience of 10 s for the head and 20 s of silence, and what it has said."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.clock = HandClock()
        self.clock.keeps(monkeypatch, "patience")
        self.heard: list[str] = []
        self.patience = Patience(cast(asyncio.AbstractEventLoop, self.clock))
        self.patience.limit_header(10, lambda: self.heard.append("late"))
        self.patience.limit_silence(20, lambda: self.heard.append("silent"))

    def after(self, seconds: float) -> list[str]:
        """What was said once so much time had passed."""
        self.clock.advance(seconds)
        return self.heard


@pytest.fixture
def rung(monkeypatch: pytest.MonkeyPatch) -> Rung:
    """One that has just begun."""
    return Rung(monkeypatch)


def test_both_limits_ring(rung: Rung) -> None:
    """Each in its time."""
    assert rung.after(9.9) == []
    assert rung.after(0.1) == ["late"]
    assert rung.after(10) == ["late", "silent"]


def test_a_head_that_came_isnt_late(rung: Rung) -> None:
    """Of silence it says nothing."""
    rung.patience.begun()

    assert rung.after(20) == ["silent"]


def test_the_clients_time_isnt_the_servers(rung: Rung) -> None:
    """Both limits count anew from where the client is done."""
    rung.clock.advance(9)
    with rung.patience.clients_turn():
        assert rung.after(1000) == []
    assert rung.after(9.9) == []
    assert rung.after(0.1) == ["late"]
    assert rung.after(10) == ["late", "silent"]


def test_it_may_be_suspended_twice(rung: Rung) -> None:
    """A client that still sends while it reads too slowly."""
    rung.patience.suspend()
    with rung.patience.clients_turn():
        pass
    assert rung.after(1000) == []
    rung.patience.resume()

    assert rung.after(10) == ["late"]


def test_what_has_ended_says_nothing(rung: Rung) -> None:
    """Not even after a turn of the client's."""
    rung.patience.suspend()
    rung.patience.end()
    rung.patience.resume()

    assert rung.after(1000) == []
