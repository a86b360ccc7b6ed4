"""A sleepy server as a process, the driver's view of it, and what it wrote down."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from llmsnap.config.loader import loads
from llmsnap.runtime.plan import check_path
from llmsnap.sleep.driver import Target
from llmsnap.sleep.endpoints import EndpointsDriver
from llmsnap.sleep.recipe import Recipe, recipes_for
from tests.helpers.ports import free_port
from tests.helpers.waiting import eventually

VLLM = """
    sleepEndpoints:
      - {endpoint: "/sleep?level=1", timeout: 5}
    wakeEndpoints:
      - {endpoint: /wake_up, timeout: 5}
      - {endpoint: /reset_prefix_cache, timeout: 5}
    isAsleepEndpoint: /is_sleeping
"""
"""The keys of a model at vLLM's level 1."""


@dataclass
class Sleepy:
    """A server that runs, and its journal."""

    process: subprocess.Popen[bytes]
    port: int
    journal_path: Path
    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    base_path: str = ""
    generation: int = 1

    @property
    def target(self) -> Target:
        """It as drivers see it."""
        return Target(
            model="m",
            generation=self.generation,
            pid=self.process.pid,
            argv=self.argv,
            env=self.env,
            host="127.0.0.1",
            port=self.port,
            base_url=f"http://127.0.0.1:{self.port}{self.base_path}",
        )

    @property
    def journal(self) -> list[dict[str, Any]]:
        """What it wrote down, oldest first."""
        lines = self.journal_path.read_text().splitlines()
        return [json.loads(line) for line in lines]

    @property
    def calls(self) -> list[str]:
        """The paths that it was asked for, oldest first."""
        return [entry["path"] for entry in self.journal if entry["event"] == "request"]

    def requests(self, path: str) -> list[dict[str, Any]]:
        """What was asked of `path`."""
        return [entry for entry in self.journal if entry.get("path") == path]

    @property
    def lives(self) -> bool:
        """Whether it still runs."""
        return self.process.poll() is None

    def kill(self) -> None:
        """End it as an asleep process is ended."""
        self.process.kill()
        self.process.wait()


@asynccontextmanager
async def sleepy(
    folder: Path, options: Sequence[str] = (), *, base_path: str = ""
) -> AsyncIterator[Sleepy]:
    """Run a sleepy server with `options`."""
    server = _started(folder, options, base_path)
    try:
        await eventually(server.journal_path.exists, what="the sleepy server listens")
        yield server
    finally:
        server.kill()


def _started(folder: Path, options: Sequence[str], base_path: str) -> Sleepy:
    port = free_port()
    journal = folder / f"{port}.journal"
    argv = (
        *(sys.executable, "-m", "tests.helpers.sleepy_server"),
        *("--port", str(port), "--journal", str(journal)),
        *options,
    )
    return Sleepy(subprocess.Popen(argv), port, journal, argv, base_path=base_path)


def recipe(keys: str, *, above: str = "") -> Recipe:
    """Return what `keys`, the YAML of a model, mean as a recipe."""
    return recipes(keys, above=above)["m"]


def recipes(keys: str, *, above: str = "") -> dict[str, Recipe]:
    """Return the recipes of a configuration whose model `m` has `keys`."""
    text = f"{above}\nmodels:\n  m:\n    cmd: srv --port ${{PORT}}\n{keys}"
    return recipes_for(loads(text).config, check_path)


@asynccontextmanager
async def driving(keys: str = VLLM, *, above: str = "") -> AsyncIterator[EndpointsDriver]:
    """Open the driver for a model with `keys`."""
    driver = EndpointsDriver(recipes(keys, above=above))
    try:
        yield driver
    finally:
        await driver.aclose()
