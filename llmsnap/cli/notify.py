"""Tells systemd that the proxy is ready, and from then on that it is alive (sd_notify(3))."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import MutableMapping
from contextlib import suppress

_MICRO = 1e-6


class Service:
    """The service manager that started us, if one did.

    What it passes on in `environ` is taken out, so that models' servers don't answer in our place.
    """

    def __init__(self, environ: MutableMapping[str, str]) -> None:
        self._address = environ.pop("NOTIFY_SOCKET", "")
        watched_pid = environ.pop("WATCHDOG_PID", "")
        limit_us = environ.pop("WATCHDOG_USEC", "")
        is_watched = limit_us.isdigit() and watched_pid in ("", str(os.getpid()))
        self.period_s = int(limit_us) * _MICRO / 2 if is_watched else 0.0
        """How often it wants to hear from us; 0: never."""

    def ready(self) -> None:
        """Say that requests are served, and keep saying so for as long as the event loop turns."""
        self.tell("READY=1")
        if self._address and self.period_s:
            self._reassure()

    def tell(self, state: str) -> None:
        """Send one message; nothing where nobody listens."""
        if not self._address:
            return
        address = "\0" + self._address[1:] if self._address.startswith("@") else self._address
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock:
            sock.setblocking(False)
            with suppress(OSError):  # it is gone, or busy: no reason to serve nobody
                sock.sendto(state.encode(), address)

    def _reassure(self) -> None:
        self.tell("WATCHDOG=1")
        asyncio.get_running_loop().call_later(self.period_s, self._reassure)
