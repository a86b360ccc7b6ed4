"""The hot path between a client and a scripted server, behind the real front."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import BinaryIO

import aiohttp
from aiohttp import web
from aiohttp.client import _RequestContextManager

from llmsnap.config.schema import Config, ModelConfig
from llmsnap.core.lifecycle import State
from llmsnap.runtime.logs import Logs
from llmsnap.runtime.peers import Network
from llmsnap.telemetry.record import RequestRecord
from llmsnap.telemetry.recorder import Recorder
from llmsnap.web.proxy import Proxy
from llmsnap.web.server import PARTS, build_app
from tests.helpers.waiting import eventually
from tests.web.fleet import FakeFleet
from tests.web.lender import FakeLender
from tests.web.scripted import Received, Script, Scripted, say_ok
from tests.web.serving import Site, serving

CHAT = "/v1/chat/completions"
PING_S = 0.1


@dataclass
class Stage:
    """Everything between a client and the server of model `a`."""

    lender: FakeLender
    fleet: FakeFleet
    server: Scripted
    proxy: Proxy
    site: Site
    recorder: Recorder
    records: list[RequestRecord]
    app: web.Application

    def adopt(self, config: Config) -> None:
        """Have everything go by another configuration, as the program does it."""
        lends = Network(self.lender, config.peers) if config.peers else self.lender
        self.proxy.adopt(config, lends)
        for part in self.app[PARTS]:
            part.adopt(config)

    async def recorded(self) -> list[RequestRecord]:
        """What was put down of the requests so far, once nobody is served any more."""
        await self.nobody_is_left()
        self.recorder.flush()
        return self.records

    def put_up(
        self, model: str = "a", *, generation: int = 1, base_path: str = "", key: str = ""
    ) -> None:
        """Let `model` be ready on the scripted server."""
        self.fleet.put(model, State.READY)
        self.lender.put_up(
            model, self.server.port, generation=generation, base_path=base_path, key=key
        )

    def put_down(self, model: str = "a", state: State = State.STOPPED) -> None:
        """Let `model` not be ready any more."""
        self.fleet.put(model, state)
        self.lender.put_down(model, state)

    def ask(
        self,
        body: bytes | BinaryIO = b'{"model":"a"}',
        path: str = CHAT,
        *,
        content_type: str = "application/json",
        headers: Mapping[str, str] | None = None,
    ) -> _RequestContextManager:
        """POST `body`; errors of the server are the test's to see."""
        return self.site.session.post(
            path, data=body, headers={"Content-Type": content_type, **(headers or {})}
        )

    async def text(self, body: bytes = b'{"model":"a"}', path: str = CHAT) -> str:
        """POST `body` and return the whole answer, which must be a 200."""
        async with self.ask(body, path) as answer:
            assert answer.status == 200, await answer.text()
            return await answer.text()

    @property
    def received(self) -> Received:
        """The last request that the server got."""
        return self.server.received[-1]

    async def nobody_is_left(self) -> None:
        """Wait until no client holds a place, waiting or served."""
        await eventually(lambda: not (self.lender.in_flight or self.lender.waiting))


@asynccontextmanager
async def staged(
    script: Script = say_ok,
    *,
    up: bool = True,
    ping_s: float = 3600.0,
    aliases: tuple[str, ...] = (),
    model: ModelConfig | None = None,
    config: Config | None = None,
    network: bool = False,
) -> AsyncIterator[Stage]:
    """Put a proxy in front of a scripted server; model `a` is `up`, or stopped.

    `network`: the models of peers are lent, too. Who wants pings says `ping_s=PING_S`: on a busy
    machine they would come before the answers of servers that answer at once.
    """
    if config is None:
        config = Config(models={"a": model or ModelConfig(cmd="serve a", aliases=aliases)})
    lender, fleet = FakeLender(), FakeFleet(*config.models)
    recorder, records = Recorder(), list[RequestRecord]()
    recorder.listen(lambda batch: records.extend(batch.requests))
    lends = Network(lender, config.peers) if network else lender
    proxy = Proxy(config, lends, recorder, ping_s=ping_s)
    clock = asyncio.get_running_loop().time
    app = build_app(config, fleet, proxy, Logs(), loopback=True, clock=clock)
    async with Scripted.running(script) as server, serving(app) as site:
        stage = Stage(lender, fleet, server, proxy, site, recorder, records, app)
        if up:
            stage.put_up()
        yield stage
        await stage.nobody_is_left()
    await proxy.aclose()


async def read_until(answer: aiohttp.ClientResponse, end: bytes) -> bytes:
    """Read an answer up to `end`."""
    async with asyncio.timeout(30):
        return await answer.content.readuntil(end)
