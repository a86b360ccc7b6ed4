"""Ports for tests that must name them before anything listens there."""

from __future__ import annotations

import socket
from contextlib import ExitStack


def free_port() -> int:
    """Return a port that nothing listens on now."""
    return free_ports(1)


def free_ports(count: int) -> int:
    """Return the first of `count` neighbouring ports that nothing listens on now."""
    while True:
        with ExitStack() as held, socket.socket() as first:
            first.bind(("127.0.0.1", 0))
            port = int(first.getsockname()[1])
            try:
                for number in range(port + 1, port + count):
                    held.enter_context(socket.create_server(("127.0.0.1", number)))
            except (OSError, OverflowError):
                continue
            return port
