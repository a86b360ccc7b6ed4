"""The real command line, started as users start it, for end-to-end tests."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import psutil

from tests.helpers.waiting import eventually

STOP_LIMIT_S = 60


@dataclass
class ProxyProcess:
    """A running llmsnap and a client session to talk to it."""

    process: subprocess.Popen[bytes]
    url: str
    session: aiohttp.ClientSession
    log_path: Path
    state_dir: Path

    @property
    def log(self) -> str:
        """What it printed so far."""
        return self.log_path.read_text(errors="replace")

    async def logs(self, text: str, *, times: int = 0) -> None:
        """Wait until it has printed `text`, which it does a moment after what that tells of.

        `times`: so often, and no more; 0: once at least.
        """
        await eventually(lambda: self.log.count(text) >= (times or 1), what=f"{text!r} in the log")
        assert not times or self.log.count(text) == times, self.log

    async def chat(self, model: str, text: str = "hi", **more: Any) -> dict[str, Any]:
        """Ask `model` at temperature 0; the answer must be a 200."""
        status, answer = await self.post(
            "/v1/chat/completions",
            {
                "model": model,
                "messages": [{"role": "user", "content": text}],
                "temperature": 0,
                "max_tokens": 16,
                **more,
            },
        )
        assert status == 200, answer
        return answer

    async def post(
        self, path: str, body: Mapping[str, Any] | None = None
    ) -> tuple[int, dict[str, Any]]:
        """POST JSON; return status and decoded answer (text under `text` when it isn't JSON)."""
        async with self.session.post(path, json=body) as answer:
            return answer.status, _decoded(await answer.text())

    async def get(self, path: str) -> tuple[int, dict[str, Any]]:
        """GET; return status and decoded answer (text under `text` when it isn't JSON)."""
        async with self.session.get(path) as answer:
            return answer.status, _decoded(await answer.text())

    async def models(self) -> dict[str, dict[str, Any]]:
        """Return `/api/models` by id."""
        _, answer = await self.get("/api/models")
        return {model["id"]: model for model in answer["models"]}

    async def state(self, model: str) -> str:
        """Return the state of `model`."""
        return str((await self.models())[model]["state"])

    async def becomes(self, model: str, state: str, *, timeout_s: float = 60) -> None:
        """Wait until `model` is in `state`."""

        async def reached() -> bool:
            return await self.state(model) == state

        await eventually(reached, timeout_s=timeout_s, what=f"{model} {state}")

    def children(self) -> list[psutil.Process]:
        """Every living process below the proxy."""
        return psutil.Process(self.process.pid).children(recursive=True)

    async def stop(self, signum: signal.Signals = signal.SIGTERM) -> int:
        """End it and return its exit code."""
        self.process.send_signal(signum)
        return await asyncio.to_thread(self.process.wait, STOP_LIMIT_S)


@asynccontextmanager
async def running_proxy(
    config: str,
    folder: Path,
    *,
    args: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
    headers: Mapping[str, str] | None = None,
    trusted: Path | None = None,
) -> AsyncIterator[ProxyProcess]:
    """Run llmsnap on a port of its own over `config`; end it and its children afterwards.

    `trusted`: the certificate of a proxy that serves HTTPS.
    """
    config_path, log_path, state_dir = folder / "config.yaml", folder / "log", folder / "state"
    config_path.write_text(config)
    places = ["--config", str(config_path), "--state-dir", str(state_dir)]
    process = _start([*places, "--listen", "127.0.0.1:0", *args], env or {}, log_path)
    try:
        url = await _url(process, log_path)
        # A limit of its own, so that a lost request fails the test and not the whole run.
        timeout = aiohttp.ClientTimeout(total=120)
        context = ssl.create_default_context(cafile=trusted) if trusted else True
        connector = aiohttp.TCPConnector(limit=0, ssl=context)
        async with aiohttp.ClientSession(
            url, headers=headers, timeout=timeout, connector=connector
        ) as session:
            yield ProxyProcess(process, url, session, log_path, state_dir)
    finally:
        await _end(process)


def _start(args: list[str], env: Mapping[str, str], log_path: Path) -> subprocess.Popen[bytes]:
    with log_path.open("wb") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "llmsnap", *args],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env={**os.environ, **env},
        )


async def _url(process: subprocess.Popen[bytes], log_path: Path) -> str:
    def listening() -> bool:
        assert process.poll() is None, log_path.read_text()
        return bool(re.search(r"https?://127\.0\.0\.1:\d+", log_path.read_text()))

    await eventually(listening, timeout_s=60, what="llmsnap listens")
    found = re.search(r"https?://127\.0\.0\.1:\d+", log_path.read_text())
    assert found
    return found[0]


async def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        left = psutil.Process(process.pid).children(recursive=True)
        process.terminate()
        try:
            await asyncio.to_thread(process.wait, STOP_LIMIT_S)
        finally:
            process.kill()
            process.wait()
        _, alive = await asyncio.to_thread(psutil.wait_procs, left, 30)
        for child in alive:
            child.kill()
        assert not alive, f"left behind: {alive}"


def _decoded(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError:
        return {"text": text}
    return value if isinstance(value, dict) else {"value": value}
