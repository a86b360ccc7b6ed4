"""Every test here that needs an event loop runs on asyncio's and on uvloop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
import uvloop


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Both event loops that users may run."""
    return {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


@pytest.fixture(autouse=True)
def connections_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not for some milliseconds only, in which a busy machine doesn't come to the next request."""
    monkeypatch.setattr("llmsnap.web.upstream_pool.BRIEF_IDLE_S", 60.0)
