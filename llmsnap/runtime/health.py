"""When a model server counts as ready: it answers 200, and it is ours that answers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import AbstractAsyncContextManager
from typing import Final, Self

import aiohttp

from llmsnap.runtime.plan import Endpoint
from llmsnap.runtime.ports import listens, local_addresses
from llmsnap.runtime.process import Child

_PROBE_S: Final = 5.0
"""Longest wait for one answer; a hung probe is given up and tried again."""
_FIRST_PAUSE_S: Final = 0.01
_LONGEST_PAUSE_S: Final = 1.0
_PAUSE_SHARE: Final = 0.025
_OUTSIDER_S: Final = 1.0
"""How long a listener outside the child's family must answer before it is believed.

A child whose port was taken from under it has ended by then."""


class Prober:
    """Asks model servers whether they are ready. One client session, one connection a question."""

    def __init__(self) -> None:
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the client."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def is_ready(self, url: str, *, key: str = "") -> bool:
        """Return whether a GET of `url` is answered with exactly 200, within the limit."""
        try:
            async with self._get(url, key) as answer:
                return answer.status == 200
        except (aiohttp.ClientError, OSError):
            return False

    async def fetch(self, url: str, *, key: str = "") -> bytes:
        """Return the body of a GET of `url`; empty when it isn't answered with 200 in time."""
        try:
            async with self._get(url, key) as answer:
                return await answer.read() if answer.status == 200 else b""
        except (aiohttp.ClientError, OSError):
            return b""

    def _get(self, url: str, key: str) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
        headers = {"Authorization": f"Bearer {key}"} if key else None
        return self._client().get(url, headers=headers, allow_redirects=False)

    def _client(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                timeout=aiohttp.ClientTimeout(total=_PROBE_S),
                connector=aiohttp.TCPConnector(limit=0, force_close=True),
                auto_decompress=False,
            )
        return self._session


async def until_ready(
    child: Child, endpoint: Endpoint, check_path: str | None, prober: Prober
) -> str:
    """Wait until the server of `child` is ready; return the host at which it answered.

    Never ends by itself while the server isn't ready. `check_path` None: ready at once.
    """
    if check_path is None:
        return endpoint.host
    loop = asyncio.get_running_loop()
    began = loop.time()
    ours = await local_addresses(endpoint.host)
    hosts = ours if endpoint.host == "localhost" and not endpoint.tls else (endpoint.host,)
    outsider_since: float | None = None
    while True:
        host = await _first_ready(hosts, endpoint, check_path, prober)
        if host is None:
            outsider_since = None
        elif not ours or listens(child.family(), ours, endpoint.port):
            return host
        elif outsider_since is None:
            outsider_since = loop.time()
        elif loop.time() - outsider_since >= _OUTSIDER_S:
            return host
        await asyncio.sleep(pause_s(loop.time() - began))


async def _first_ready(
    hosts: Iterable[str], endpoint: Endpoint, path: str, prober: Prober
) -> str | None:
    for host in hosts:
        if await prober.is_ready(endpoint.at(host).url(path), key=endpoint.key):
            return host
    return None


def pause_s(waited_s: float) -> float:
    """Return how long to pause before the next probe: a small share of what was waited so far."""
    return min(max(_PAUSE_SHARE * waited_s, _FIRST_PAUSE_S), _LONGEST_PAUSE_S)
