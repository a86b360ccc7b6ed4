"""The composition root: what is refused before anything starts, and the order of the end."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import platform
import resource
import signal
import socket
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from llmsnap import app
from llmsnap.app import Signals, refuse_own_port, serve
from llmsnap.config.loader import Loaded, loads
from llmsnap.config.schema import Config, ModelConfig
from llmsnap.errors import ConfigError, ListenFailed
from llmsnap.journal import Journal
from llmsnap.web.address import Address
from tests.helpers.fake_models import FakeModels
from tests.helpers.pagecache import drop, resident_bytes, write_file
from tests.helpers.waiting import eventually

HERE = Address("127.0.0.1", 8080)


class Running:
    """A proxy on this test's event loop."""

    def __init__(self, text: str, folder: Path) -> None:
        self._where: asyncio.Future[Address] = asyncio.get_running_loop().create_future()
        self.state_dir = folder / "state"
        self.ended = asyncio.ensure_future(
            serve(
                loads(text),
                Address("127.0.0.1", 0),
                self._where.set_result,
                state_dir=self.state_dir,
            )
        )

    async def url(self) -> str:
        """Where it listens, once it does."""
        either: list[asyncio.Future[Any]] = [self._where, self.ended]
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if self.ended.done():
            self.ended.result()
        return self._where.result().url(tls=False)

    async def state(self, session: aiohttp.ClientSession, model: str) -> str:
        """The state of `model`."""
        async with session.get("/api/models") as answer:
            models = (await answer.json())["models"]
        return next(str(entry["state"]) for entry in models if entry["id"] == model)


def listens(url: str) -> bool:
    """Whether a new client finds somebody there."""
    host, _, port = url.removeprefix("http://").partition(":")
    try:
        socket.create_connection((host, int(port))).close()
    except OSError:
        return False
    return True


@pytest.fixture
def told() -> Callable[[], None]:
    """Send this process the signal that ends a proxy."""
    return lambda: os.kill(os.getpid(), signal.SIGTERM)


# ---- what is refused -----------------------------------------------------------------------------


def configured(proxy: str) -> Loaded:
    """One model at `proxy`."""
    return Loaded(Config(models={"a": ModelConfig(proxy=proxy)}), (), "c.yaml")


@pytest.mark.parametrize(
    ("proxy", "here"),
    [
        ("http://localhost:8080", HERE),
        ("http://127.0.0.1:8080/base", HERE),
        ("http://[::1]:8080", HERE),
        ("http://127.0.0.1:8080", Address("", 8080)),
        ("http://box.lan:8080", Address("box.lan", 8080)),
        ("http://localhost", Address("127.0.0.1", 80)),
    ],
)
def test_u39_a_model_on_the_proxys_own_port_is_refused(proxy: str, here: Address) -> None:
    """It would be proxied to itself for ever; the message names model, URL and remedy."""
    with pytest.raises(ConfigError) as caught:
        refuse_own_port(configured(proxy), here)

    assert caught.value.message.startswith(f"c.yaml: models.a.proxy: {proxy!r} ")
    assert "startPort" in caught.value.message


@pytest.mark.parametrize(
    "proxy", ["http://localhost:8081", "http://box.lan:8080", "http://192.0.2.1:8080"]
)
def test_other_ports_and_machines_are_no_matter(proxy: str) -> None:
    """The same port elsewhere is another server."""
    refuse_own_port(configured(proxy), HERE)


async def test_a_taken_port_is_told_before_anything_starts(tmp_path: Path) -> None:
    """And nothing is written to the state folder."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = Address("127.0.0.1", other.getsockname()[1])
        with pytest.raises(ListenFailed, match="has the port"):
            await serve(loads("models: {}"), address, print, state_dir=tmp_path / "state")

    assert not (tmp_path / "state").exists()


def test_the_limit_of_open_files_is_raised_as_far_as_allowed() -> None:
    """Never lowered; the hard limit is left alone."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(512, hard), hard))
        app.raise_file_limit()
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (min(hard, 65536), hard)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


_LARGE_BODIES = """
import psutil
from llmsnap.app import return_large_blocks

return_large_blocks()
before = psutil.Process().memory_info().rss
b"x" * 30_000_000  # as such a block is freed, glibc would begin to keep those up to its size
bodies, kept = [], []
for _ in range(60):
    bodies.append(b"x" * 1_000_000)
    kept.append(b"x" * 10_000)
bodies.clear()
print((psutil.Process().memory_info().rss - before) / 1e6)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="others have no such habit")
def test_the_memory_of_large_bodies_is_given_back() -> None:
    """What lives beside them doesn't hold it."""
    argv = [sys.executable, "-c", _LARGE_BODIES]
    left = subprocess.run(argv, check=True, capture_output=True, text=True).stdout
    assert float(left) < 20


# ---- logs ----------------------------------------------------------------------------------------


async def test_known_secrets_are_blank_in_the_log(capfd: pytest.CaptureFixture[str]) -> None:
    """Keys of clients and of models, on standard output and over HTTP."""
    model = ModelConfig(cmd="serve --api-key upstream-secret")
    config = Config(api_keys=("client-secret",), models={"a": model})
    with Journal.opened(config) as journal:
        logging.getLogger("llmsnap.test").info("with client-secret and upstream-secret")
        history = journal.logs.combined.history()

    assert history == b"[INFO] with *** and ***\n"
    assert capfd.readouterr().out == history.decode()


@pytest.mark.parametrize(("level", "shown"), [("debug", 3), ("info", 2), ("warn", 1), ("x", 2)])
async def test_the_log_level_is_the_configured_one(level: str, shown: int) -> None:
    """An unknown one is info."""
    log = logging.getLogger("llmsnap.test")
    with Journal.opened(Config(log_level=level, log_to_stdout="none")) as journal:
        log.debug("1")
        log.info("2")
        log.warning("3")
        lines = journal.logs.proxy.history().splitlines()

    assert len(lines) == shown
    assert logging.getLogger("llmsnap").level == logging.NOTSET


# ---- a whole life --------------------------------------------------------------------------------


@pytest.mark.e2e
async def test_it_listens_before_it_preloads(tmp_path: Path, told: Callable[[], None]) -> None:
    """A model that takes its time doesn't keep the proxy from answering."""
    models = FakeModels(tmp_path, head="hooks: {on_startup: {preload: [a, b]}}")
    models.add("a", "--exit 3").add("b", "--ready 3")
    running = Running(models.yaml, tmp_path)
    async with aiohttp.ClientSession(await running.url()) as session:

        async def is_(model: str, state: str) -> bool:
            return await running.state(session, model) == state

        async with session.get("/health") as answer:
            assert answer.status == 200
        assert not await is_("b", "ready")
        await eventually(lambda: is_("b", "ready"))
        assert await is_("a", "failed")
    told()

    assert await running.ended == 0
    assert models.count("b", "term") == 1


@pytest.mark.e2e
async def test_answers_end_before_the_models_do(tmp_path: Path, told: Callable[[], None]) -> None:
    """After a signal no new request is taken, and the running one is served whole."""
    models = FakeModels(tmp_path).add("a", "--gap 0.1 --chunks 10")
    running = Running(models.yaml, tmp_path)
    body = {"model": "a", "stream": True, "messages": []}
    url = await running.url()
    async with (
        aiohttp.ClientSession(url) as session,
        session.post("/v1/chat/completions", json=body) as answer,
    ):
        text = await answer.content.readany()
        told()
        await eventually(lambda: not listens(url))
        text += await answer.content.read()

    assert b"[DONE]" in text
    assert await running.ended == 0


@pytest.mark.e2e
@pytest.mark.parametrize("prefetch", [True, False])
async def test_whether_files_are_read_ahead_is_configured(
    tmp_path: Path, told: Callable[[], None], prefetch: bool
) -> None:
    """b is asked for while a answers; what b's command names is in the page cache, or isn't."""
    file = write_file(tmp_path / "model", 20 * 1024**2)
    drop(file)
    if resident_bytes(file):
        pytest.skip(f"{tmp_path} is in memory itself; set TMPDIR to a place on a disk")
    models = FakeModels(tmp_path, head=f"memory: {{mode: off, prefetch: {json.dumps(prefetch)}}}")
    models.add("a", "--gap 0.15 --chunks 20")
    models.add_command("b", f"sh -c 'shift; exec \"$@\"' sh {file} {models.command('b')}")
    running = Running(models.yaml, tmp_path)
    async with aiohttp.ClientSession(await running.url()) as session:
        body = {"stream": True, "messages": []}
        async with session.post("/v1/chat/completions", json={"model": "a", **body}) as first:
            await first.content.readany()
            async with session.post("/v1/chat/completions", json={"model": "b", **body}) as second:
                assert second.status == 200
                assert b"[DONE]" in await second.content.read()
            assert b"[DONE]" in await first.content.read()
    told()

    assert await running.ended == 0
    assert (resident_bytes(file) > 0) is prefetch


@pytest.mark.e2e
async def test_u66_a_second_signal_skips_the_grace(
    tmp_path: Path, told: Callable[[], None]
) -> None:
    """Whoever is still being served hears of it by a cut answer."""
    models = FakeModels(tmp_path).add("a", "--hang-after 1")
    running = Running(models.yaml, tmp_path)
    body = {"model": "a", "stream": True, "messages": []}
    async with aiohttp.ClientSession(await running.url()) as session:
        async with session.post("/v1/chat/completions", json=body) as answer:
            await answer.content.readany()
            told()
            await asyncio.sleep(0)
            told()
            async with asyncio.timeout(30):
                assert await running.ended == 0


@pytest.mark.e2e
async def test_readers_of_logs_dont_hold_up_the_end(
    tmp_path: Path, told: Callable[[], None]
) -> None:
    """They see the last lines, and their answers end whole."""
    running = Running("models: {}", tmp_path)
    async with (
        aiohttp.ClientSession(await running.url()) as session,
        session.get("/logs/stream/proxy") as answer,
    ):
        told()
        text = await answer.content.read()

    assert b"SIGTERM: shutting down" in text
    async with asyncio.timeout(30):
        assert await running.ended == 0


async def test_u81_a_hang_up_isnt_the_end() -> None:
    """SIGHUP is for reloading."""
    with Signals.caught() as signals:
        next_one: Awaitable[signal.Signals] = asyncio.ensure_future(signals.next())
        os.kill(os.getpid(), signal.SIGHUP)
        await eventually(signals.hangups.is_set)
        os.kill(os.getpid(), signal.SIGINT)

        assert await next_one is signal.SIGINT


@pytest.mark.e2e
@pytest.mark.parametrize("path", [None, "elsewhere.db"])
async def test_the_database_is_open_while_it_serves(
    tmp_path: Path, told: Callable[[], None], path: str | None
) -> None:
    """In the state folder or where `store.path` says; afterwards nothing lies beside it."""
    head = f"store: {{path: {tmp_path / path}}}\n" if path else ""
    running = Running(f"{head}models: {{}}", tmp_path)
    file = tmp_path / (path or "state/llmsnap.db")
    await running.url()
    await eventually(file.exists)
    told()

    assert await running.ended == 0
    assert file.exists()
    assert not file.with_name(f"{file.name}-wal").exists()


@pytest.mark.e2e
async def test_it_serves_with_a_state_folder_that_cant_be_used(
    tmp_path: Path, told: Callable[[], None]
) -> None:
    """A file is in its place: rows are kept in memory, models run all the same."""
    (tmp_path / "state").write_text("in the way")
    models = FakeModels(tmp_path).add("a")
    running = Running(models.yaml, tmp_path)
    async with (
        aiohttp.ClientSession(await running.url()) as session,
        session.post("/v1/chat/completions", json={"model": "a", "messages": []}) as answer,
    ):
        assert answer.status == 200
    told()

    assert await running.ended == 0
