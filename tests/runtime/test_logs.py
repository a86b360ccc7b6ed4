from __future__ import annotations

import asyncio
import logging
import os
import sys
import threading
from collections.abc import Iterator
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmsnap.runtime.logs import (
    HISTORY_BYTES,
    LogBuffer,
    LogPipe,
    Logs,
    ProxyLog,
    SecretFilter,
    Subscription,
    last_lines,
    level_named,
    proxy_lines,
)
from tests.helpers.waiting import eventually

MIB = 1024**2


async def test_a_pipe_passes_on_what_is_written() -> None:
    """Whatever comes, as it comes."""
    got = bytearray()
    pipe = LogPipe(got.extend)
    os.write(pipe.write_end, b"no newline")
    await eventually(lambda: got == b"no newline")
    pipe.close()


async def test_a_mebibyte_without_a_newline_never_blocks_the_writer() -> None:
    """Bounded memory: the buffer keeps the end."""
    buffer = LogBuffer()
    pipe = LogPipe(buffer.write)
    writer = threading.Thread(target=os.write, args=(pipe.write_end, b"a" * MIB + b"the end"))
    writer.start()
    await eventually(lambda: buffer.history().endswith(b"the end"))
    writer.join()
    assert len(buffer.history()) == HISTORY_BYTES
    pipe.close()


async def test_closing_takes_what_is_left_and_no_more() -> None:
    """Last words are kept although the loop hadn't come to them; other holders don't matter."""
    got = bytearray()
    pipe = LogPipe(got.extend)
    other = os.dup(pipe.write_end)
    os.write(other, b"last words")
    pipe.close()
    assert got == b"last words"
    with pytest.raises(BrokenPipeError):
        os.write(other, b"x")
    os.close(other)
    pipe.close()


async def test_the_end_of_the_pipe_ends_the_reading() -> None:
    """Nothing spins when all writers are gone."""
    pipe = LogPipe(lambda _: None)
    pipe.close_write_end()
    await eventually(lambda: pipe._read_end == -1)
    pipe.close()


@given(
    text=st.text(alphabet="abcxy\n", max_size=60),
    cuts=st.lists(st.integers(0, 60), max_size=8),
    secrets=st.lists(st.text(alphabet="abc", min_size=1, max_size=5), max_size=3),
)
def test_secrets_are_blanked_however_they_are_cut(
    text: str, cuts: list[int], secrets: list[str]
) -> None:
    """Cut anywhere, the outcome holds no secret, and nothing else is lost or left over."""
    whole, parts = bytearray(), bytearray()
    at_once = SecretFilter(secrets, whole.extend)
    at_once.write(text.encode())
    at_once.flush()
    in_pieces = SecretFilter(secrets, parts.extend)
    bounds = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    for begin, end in pairwise(bounds):
        in_pieces.write(text[begin:end].encode())
    in_pieces.flush()
    assert parts == whole
    assert not any(secret.encode() in whole for secret in secrets)


def test_only_what_may_become_a_secret_is_held_back() -> None:
    """Progress dots come out at once."""
    got = bytearray()
    log = SecretFilter(["s3cret"], got.extend)
    log.write(b"loading ....")
    assert got == b"loading ...."
    log.write(b" key s3c")
    assert got == b"loading .... key "
    log.write(b"ret!")
    assert got == b"loading .... key ***!"


def test_a_buffer_keeps_the_end() -> None:
    """At most `limit` bytes, the last ones."""
    buffer = LogBuffer(limit=10)
    for n in range(100):
        buffer.write(b"%02d" % n)
    assert buffer.history() == b"9596979899"
    buffer.write(b"x" * 50)
    assert buffer.history() == b"x" * 10


async def next_of(subscription: Subscription) -> bytes:
    """The next chunk, soon."""
    async with asyncio.timeout(30):
        return await anext(subscription)


async def test_a_follower_gets_what_comes_after_the_history() -> None:
    """History and what follows fit together without a gap or an overlap."""
    buffer = LogBuffer()
    buffer.write(b"a")
    history, subscription = buffer.history(), buffer.subscribe()
    buffer.write(b"b")
    buffer.write(b"c")
    assert history + await next_of(subscription) == b"abc"
    reading = asyncio.ensure_future(next_of(subscription))
    await asyncio.sleep(0)
    buffer.write(b"d")
    assert await reading == b"d"
    subscription.close()
    with pytest.raises(StopAsyncIteration):
        await anext(subscription)


async def test_a_slow_follower_is_told_how_many_bytes_it_missed() -> None:
    """Its memory is bounded, the writer goes on, and the follower catches up with the present."""
    buffer = LogBuffer()
    subscription = buffer.subscribe()
    for _ in range(10):
        buffer.write(b"x" * 100_000)
    data = await next_of(subscription)
    assert data.startswith(b"x" * 200_000)
    assert data.endswith(b"\n[llmsnap: 800000 bytes dropped, the reader is too slow]\n")
    buffer.write(b"now")
    assert await next_of(subscription) == b"now"
    subscription.close()


async def test_closing_the_logs_ends_every_follower() -> None:
    """Also those who come later; what is pending is still delivered."""
    logs = Logs()
    followers = [logs.proxy.subscribe(), logs.model("a").subscribe()]
    logs.write_proxy(b"bye")
    logs.close()
    assert [data async for data in followers[0]] == [b"bye"]
    assert [data async for data in followers[1]] == []
    assert [data async for data in logs.model("b").subscribe()] == []


@pytest.mark.parametrize(
    ("to_stdout", "shown"),
    [("proxy", b"P"), ("upstream", b"U"), ("both", b"PU"), ("none", b"")],
)
def test_what_goes_where(to_stdout: str, shown: bytes) -> None:
    """`logToStdout` decides about standard output and the combined log, nothing else."""
    out = bytearray()
    logs = Logs(to_stdout=to_stdout, stdout=out.extend)  # type: ignore[arg-type]
    logs.write_proxy(b"P")
    logs.write_upstream("a", b"U")
    assert out == logs.combined.history() == shown
    assert logs.proxy.history() == b"P"
    assert logs.upstream.history() == logs.model("a").history() == b"U"
    assert logs.model("b").history() == b""


@pytest.fixture
def logger() -> Iterator[logging.Logger]:
    """A logger that nobody else knows of."""
    logger = logging.Logger("llmsnap.test", logging.DEBUG)
    yield logger
    logger.handlers.clear()


def test_proxy_lines_carry_level_and_time(logger: logging.Logger) -> None:
    """`[LEVEL] text`, after the time if a layout is set; secrets are blanked."""
    logs = Logs()
    plain = ProxyLog(logs, blank=lambda text: text.replace("s3cret", "***"))
    logger.addHandler(plain)
    logger.warning("key %s", "s3cret")
    logger.critical("over")
    assert logs.proxy.history() == b"[WARN] key ***\n[ERROR] over\n"
    logger.handlers = [ProxyLog(logs, layout="kitchen")]
    logger.info("timed")
    line = logs.proxy.history().splitlines()[-1].decode()
    assert line.endswith("M [INFO] timed")
    assert ":" in line


def test_several_lines_of_one_moment_each_have_their_beginning() -> None:
    """As if they had been written one by one."""
    assert proxy_lines("a\nb", "INFO", "") == b"[INFO] a\n[INFO] b\n"
    first, second = proxy_lines("a\nb", "INFO", "kitchen").decode().splitlines()
    assert first.endswith("M [INFO] a")
    assert second == first[:-1] + "b"


async def test_lines_from_other_threads_reach_followers(logger: logging.Logger) -> None:
    """A follower waits in the loop; a thread may wake it."""
    logs = Logs()
    logger.addHandler(ProxyLog(logs))
    logger.info("first")
    subscription = logs.proxy.subscribe()
    reading = asyncio.ensure_future(next_of(subscription))
    await asyncio.sleep(0)
    thread = threading.Timer(0.05, logger.info, args=("from afar",))
    thread.start()
    assert await reading == b"[INFO] from afar\n"
    thread.join()
    subscription.close()


@pytest.mark.parametrize(
    ("name", "level"),
    [
        ("debug", logging.DEBUG),
        ("info", logging.INFO),
        ("WARN", logging.WARNING),
        ("error", logging.ERROR),
        ("loud", logging.INFO),
    ],
)
def test_levels(name: str, level: int) -> None:
    """An unknown name means info, without an error."""
    assert level_named(name) == level


def test_the_last_lines() -> None:
    """At most five that aren't blank, and at most a KiB of them, the end."""
    assert last_lines(b"") == ""
    assert last_lines(b"1\n2\n\n3\r\n4\n5\n \n6") == "2\n3\n4\n5\n6"
    assert last_lines("é".encode() * 5000) == "é" * 512
    assert len(last_lines(b"x" * 400 + b"\n" + b"y" * 900)) == 1024
    assert sys.getsizeof(last_lines(os.urandom(9000))) < 5000
