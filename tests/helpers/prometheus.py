"""A real Prometheus, where Debian's package is installed."""

from __future__ import annotations

import asyncio
import math
import shutil
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.helpers.ports import free_port
from tests.helpers.waiting import eventually

CONFIG = """
global: {{scrape_interval: 1s, evaluation_interval: 1s}}
rule_files: ["{rules}"]
scrape_configs:
  - job_name: llmsnap
    static_configs: [{{targets: ["{target}"]}}]
    authorization: {{credentials: "{key}"}}
"""


def program(name: str) -> str:
    """Return the path of `prometheus` or `promtool`; skip the test where it isn't installed."""
    path = shutil.which(name)
    if path is None:
        pytest.skip(f"{name} isn't installed; Debian's package prometheus has it")
    return path


@dataclass
class Prometheus:
    """A server that scrapes one target each second."""

    session: aiohttp.ClientSession

    async def ask(self, expression: str) -> list[float]:
        """Return what an expression is now, without what is no number; it must be valid."""
        answer = await self._get("/api/v1/query", query=expression)
        assert answer["status"] == "success", f"{expression}: {answer}"
        values = [float(series["value"][1]) for series in answer["data"]["result"]]
        return [value for value in values if not math.isnan(value)]

    async def rules(self) -> dict[str, str]:
        """Return the health of each rule by its name."""
        groups = (await self._get("/api/v1/rules"))["data"]["groups"]
        return {rule["name"]: rule["health"] for group in groups for rule in group["rules"]}

    async def _get(self, path: str, **params: str) -> dict[str, Any]:
        async with self.session.get(path, params=params) as answer:
            decoded: dict[str, Any] = await answer.json()
            return decoded


@asynccontextmanager
async def running_prometheus(
    target: str, folder: Path, *, rules: Path, key: str = "none"
) -> AsyncIterator[Prometheus]:
    """Run one that scrapes `target` (host and port); end it afterwards."""
    argv = [program("prometheus"), "--config.file", str(folder / "prometheus.yml")]
    port = free_port()
    (folder / "prometheus.yml").write_text(CONFIG.format(rules=rules, target=target, key=key))
    argv += ["--storage.tsdb.path", str(folder / "tsdb"), "--log.level", "warn"]
    argv += ["--web.listen-address", f"127.0.0.1:{port}"]
    with (folder / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(argv, stdout=log, stderr=log)  # noqa: ASYNC220 - it goes on
    try:
        async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session:
            server = Prometheus(session)

            async def scrapes() -> bool:
                try:
                    return await server.ask('up{job="llmsnap"}') == [1]
                except aiohttp.ClientError:
                    assert process.poll() is None, (folder / "prometheus.log").read_text()
                    return False

            await eventually(scrapes, timeout_s=60, what="Prometheus scrapes")
            yield server
    finally:
        process.terminate()
        await asyncio.to_thread(process.wait, 30)
