"""The command line run in this process: its exit code and what it prints."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import pytest

from llmsnap.cli import main


@dataclass
class Outcome:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """What it printed, decoded."""
        return json.loads(self.out)


Run = Callable[..., Outcome]
RunAside = Callable[..., Awaitable[Outcome]]


@pytest.fixture
def llmsnap(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    """Run `llmsnap` with some arguments."""
    for name in ("LLMSNAP_URL", "LLMSNAP_API_KEY"):
        monkeypatch.delenv(name, raising=False)

    def run(*argv: str) -> Outcome:
        monkeypatch.setattr(sys, "argv", ["llmsnap", *argv])
        code: object = 0
        try:
            main()
        except SystemExit as end:
            code = end.code or 0
        out, err = capfd.readouterr()
        if isinstance(code, str):  # what sys.exit prints when it is given a text
            code, err = 1, f"{err}{code}\n"
        assert isinstance(code, int)
        return Outcome(code, out, err)

    return run


@pytest.fixture
def llmsnap_aside(llmsnap: Run) -> RunAside:
    """Run it while this test's event loop goes on, with a proxy on it, say."""

    async def run(*argv: str) -> Outcome:
        return await asyncio.to_thread(llmsnap, *argv)

    return run
