"""Every test here runs on asyncio's loop and on uvloop, and none leaves a process behind."""

from __future__ import annotations

import asyncio
import os
import secrets
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import psutil
import pytest
import uvloop

from llmsnap.runtime import health
from tests.runtime.rig import Rig

_OURS = "LLMSNAP_TEST_PROCESS"
_PATIENCE_S = 20.0


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Both event loops that users may run."""
    return {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


@pytest.fixture(scope="session", autouse=True)
def no_process_is_left() -> Iterator[None]:
    """Whatever inherited our mark must be gone at the end, orphans and strangers' children too."""
    mark = os.environ[_OURS] = secrets.token_hex(8)
    yield
    del os.environ[_OURS]
    deadline = time.monotonic() + _PATIENCE_S
    while (left := _carriers(mark)) and time.monotonic() < deadline:
        time.sleep(0.1)  # what was killed a moment ago may still be on its way out
    for process in left:
        process.kill()
    assert not left, f"processes were left behind: {[process.info for process in left]}"


def _carriers(mark: str) -> list[psutil.Process]:
    return [p for p in psutil.process_iter(["pid", "cmdline"]) if _carries(p, mark)]


def _carries(process: psutil.Process, mark: str) -> bool:
    try:
        if process.status() == psutil.STATUS_ZOMBIE or process.pid == os.getpid():
            return False
        return process.environ().get(_OURS) == mark
    except psutil.Error:
        return False


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    """A supervisor with real children; what a test leaves running is ended."""
    rig = Rig(tmp_path)
    yield rig
    await rig.aclose()


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A probe has all the time it needs: for tests that ask just once."""
    monkeypatch.setattr(health, "_PROBE_S", 60.0)
