"""Writes that wait for each other until the end of the loop's turn."""

from __future__ import annotations

import asyncio

from llmsnap.web.outbox import Outbox


class Noted(asyncio.Transport):
    """A transport that notes what is written to it."""

    def __init__(self, log: list[tuple[str, bytes]], name: str) -> None:
        super().__init__()
        self._log = log
        self._name = name
        self.closing = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self._log.append((self._name, bytes(data)))

    def is_closing(self) -> bool:
        return self.closing


async def test_writes_are_made_together_and_in_order() -> None:
    """At the end of the turn, before what was asked for afterwards."""
    log: list[tuple[str, bytes]] = []
    a, b = Noted(log, "a"), Noted(log, "b")
    loop = asyncio.get_running_loop()
    outbox = Outbox(loop)

    outbox.write(a, [b"1"])
    loop.call_soon(log.append, ("", b"later"))
    outbox.write(b, [b"2", memoryview(b"3")])
    outbox.write(a, [b"4"])
    assert log == []
    await asyncio.sleep(0)

    assert log == [("a", b"1"), ("b", b"23"), ("a", b"4"), ("", b"later")]


async def test_a_flush_is_now_and_once() -> None:
    """For whoever goes on to write directly."""
    log: list[tuple[str, bytes]] = []
    outbox = Outbox(asyncio.get_running_loop())
    outbox.write(Noted(log, "a"), [b"1"])
    outbox.flush()
    assert log == [("a", b"1")]
    await asyncio.sleep(0)

    assert log == [("a", b"1")]


async def test_who_left_gets_nothing_more() -> None:
    """Its transport would only complain."""
    log: list[tuple[str, bytes]] = []
    gone, here = Noted(log, "gone"), Noted(log, "here")
    outbox = Outbox(asyncio.get_running_loop())
    outbox.write(gone, [b"1"])
    outbox.write(here, [b"2"])
    gone.closing = True
    outbox.flush()

    assert log == [("here", b"2")]


async def test_much_is_written_at_once() -> None:
    """A reader who is slow is only noticed once something is written to him."""
    log: list[tuple[str, bytes]] = []
    outbox = Outbox(asyncio.get_running_loop())
    a, b = Noted(log, "a"), Noted(log, "b")
    outbox.write(a, [b"1"])
    for _ in range(4):
        outbox.write(b, [b"x" * 20_000])

    assert [name for name, _ in log] == ["a", "b", "b", "b", "b"]
    await asyncio.sleep(0)
    assert len(log) == 5
