"""What of a body is held, and where."""

from __future__ import annotations

import asyncio
import io
import mmap
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from llmsnap.errors import BadRequest, BodyTooLarge, RequestStalled, ServiceUnavailable
from llmsnap.web import body
from llmsnap.web.body import MEMORY_BYTES, HeldBody, examine
from tests.web.bodies import Tap, held, reader

PIECE = bytes(range(256)) * 1024


async def test_a_small_body_is_taken_without_waiting() -> None:
    """What came with the header is all there is: the same bytes, no copy."""
    body = held(b'{"model":"a"}')

    assert await body.whole() == b'{"model":"a"}'
    assert body.complete


async def test_no_body_is_an_empty_one() -> None:
    """Nothing to wait for."""
    body = held()

    assert await body.whole() == b""
    assert body.complete


async def test_a_large_body_goes_to_a_file_that_has_no_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beyond 4 MiB it is on disk, readable at any place, and leaves nothing behind."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    pieces = [PIECE] * 24
    body = held(*pieces)
    whole = await body.whole()

    assert isinstance(whole, mmap.mmap)
    assert whole[:] == b"".join(pieces)
    assert list(tmp_path.iterdir()) == []
    body.close()
    assert whole[-1] == 255  # what was given out stays readable


async def test_what_nobody_asked_to_see_waits_in_the_socket() -> None:
    """The client is slowed down until the rest is taken."""
    tap = Tap()
    content = reader(*[PIECE] * 2, eof=False, tap=tap)
    assert tap.paused
    body = HeldBody(content, max_bytes=2**30, declared=None)

    await body.more()
    await body.view()
    assert not tap.paused
    content.feed_data(PIECE)
    assert tap.paused
    content.feed_eof()

    assert b"".join([piece async for piece in body.rest()]) == PIECE
    assert body.size == 2 * len(PIECE)


async def test_the_limit_is_told_before_anything_is_read() -> None:
    """A declared length that is too large is refused at once, naming the key."""
    with pytest.raises(BodyTooLarge, match="maxBody"):
        held(b"", declared=11, max_bytes=10)


async def test_the_limit_holds_for_undeclared_lengths() -> None:
    """A chunked body is cut off where it grows beyond the limit."""
    with pytest.raises(BodyTooLarge, match="10 bytes"):
        await held(b"123456", b"7890", b"x", max_bytes=10).whole()


async def test_the_limit_holds_for_what_is_passed_on() -> None:
    """What was held before counts."""
    content = reader(b"123456", eof=False)
    body = HeldBody(content, max_bytes=10, declared=None)
    await body.more()
    await body.view()
    content.feed_data(b"78901")

    with pytest.raises(BodyTooLarge, match="10 bytes"):
        await anext(body.rest())


async def test_broken_framing_is_a_bad_request() -> None:
    """What the parser has against the body is told to the client."""
    content = reader(b"abc", eof=False)
    content.set_exception(web.RequestPayloadError("bad chunk size"))

    with pytest.raises(BadRequest, match="bad chunk size"):
        await HeldBody(content, max_bytes=10, declared=None).whole()


async def test_a_client_that_stops_half_way_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would keep its model for ever; what had come by then is no reason to wait on."""
    monkeypatch.setattr(body, "STALL_S", 0.02)

    with pytest.raises(RequestStalled, match=r"nothing more of the request came for 0\.02 s"):
        await held(b"half", eof=False).whole()


async def test_a_full_disk_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the folder and what to do."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.TemporaryFile", _full)
    body = held(*[PIECE] * 24)

    with pytest.raises(ServiceUnavailable, match="TMPDIR"):
        await body.whole()


def _full(**_: object) -> None:
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize("cancellations", [1, 3])
async def test_a_cancelled_write_is_finished_first(
    cancellations: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file isn't closed under a thread that writes to it, as a shutdown's second try might."""
    writing = threading.Event()

    class SlowFile(io.BytesIO):
        def writelines(self, lines: Iterable[Any], /) -> None:
            assert writing.wait(30)
            super().writelines(lines)

    monkeypatch.setattr("tempfile.TemporaryFile", lambda **_: SlowFile())
    body = held(*[PIECE] * 24)
    reading = asyncio.ensure_future(body.whole())
    await asyncio.sleep(0)
    for _ in range(cancellations):
        reading.cancel()
        await asyncio.sleep(0)
    assert not reading.done()
    writing.set()
    with pytest.raises(asyncio.CancelledError):
        await reading
    body.close()


async def test_long_looks_are_taken_in_a_thread() -> None:
    """The loop goes on meanwhile; a short look needs no thread."""
    here = threading.get_ident()

    assert await examine(b"x", threading.get_ident) == here
    assert await examine(b"x" * MEMORY_BYTES, threading.get_ident) != here
