"""Ports for tests that must name them before anything listens there."""

from __future__ import annotations

import random
import socket
from contextlib import ExitStack

_FIRST, _LAST = 10_000, 32_000
"""Below the ports that the kernel gives to clients: one of those may be taken at any moment."""

_random = random.Random()


def free_port() -> int:
    """Return a port that nothing listens on now."""
    return free_ports(1)


def free_ports(count: int) -> int:
    """Return the first of `count` neighbouring ports that nothing listens on now."""
    while True:
        first = _random.randrange(_FIRST, _LAST)
        try:
            with ExitStack() as held:
                for port in range(first, first + count):
                    held.enter_context(socket.create_server(("127.0.0.1", port)))
        except OSError:
            continue
        return first
