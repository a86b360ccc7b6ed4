"""Ports for tests that must name them before anything listens there."""

from __future__ import annotations

import itertools
import os
import random
import socket
from collections.abc import Iterator
from contextlib import ExitStack

_FIRST, _LAST = 10_000, 21_000
"""Below those that `llmsnap bench kv` looks for, and those that the kernel gives to clients."""


def free_port() -> int:
    """Return a port that nothing listens on now."""
    return free_ports(1)


def free_ports(count: int) -> int:
    """Return the first of `count` neighbouring ports that nothing listens on now.

    None of them is named again by this process before all others were, nor by another process of
    the same run: a model that isn't up yet can't lose its port to another test.
    """
    while True:
        ports = list(itertools.islice(_ports, count))
        if ports[-1] - ports[0] == count - 1 and _are_free(ports):
            return ports[0]


def _are_free(ports: list[int]) -> bool:
    try:
        with ExitStack() as held:
            for port in ports:
                held.enter_context(socket.create_server(("127.0.0.1", port)))
    except OSError:
        return False
    return True


def _own_ports() -> Iterator[int]:
    """Those of this process, where pytest-xdist runs several; over and over, from anywhere."""
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    number = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % workers
    share = (_LAST - _FIRST) // workers
    own = range(_FIRST + number * share, _FIRST + (number + 1) * share)
    start = random.randrange(share)
    return itertools.cycle([*own[start:], *own[:start]])


_ports = _own_ports()
