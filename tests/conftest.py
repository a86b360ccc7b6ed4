"""What holds for every test."""

from __future__ import annotations

import gc
import logging
import os
import signal
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

# The same examples each time, however slow the machine is: what fails is what has changed.
settings.register_profile(
    "steady", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("steady")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # As in the background of a script; all that the tests start would inherit it.
    signal.signal(signal.SIGINT, signal.default_int_handler)


class _Losses(logging.Handler):
    """Notes errors that no code has looked at, and tasks that nobody waited for."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.noted: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        when = os.environ.get("PYTEST_CURRENT_TEST", "afterwards")
        self.noted.append(f"{when}: {self.format(record)}")


@pytest.fixture(scope="session", autouse=True)
def nothing_is_lost() -> Iterator[None]:
    """No error of a task or future goes unseen; which test was running then is a hint, no more."""
    losses, logger = _Losses(), logging.getLogger("asyncio")
    logger.addHandler(losses)
    yield
    gc.collect()
    logger.removeHandler(losses)
    assert not losses.noted, "\n".join(losses.noted)
