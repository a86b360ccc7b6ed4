"""Many clients with requests at random for models that have to make room for each other."""

from __future__ import annotations

import asyncio
import random
import re
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from tests.helpers.fake_models import FakeModels
from tests.helpers.proxy_process import ProxyProcess

CHAT = "/v1/chat/completions"
MODELS = ("sleeps", "naps", "stops")
_AT_ONCE = 24
_SLEEPS = """sleepMode: enable
sleepEndpoints: [{endpoint: "/sleep?level=1"}]
wakeEndpoints: [{endpoint: /wake_up}]
isAsleepEndpoint: /is_sleeping"""
_HEAD = "sleep: {after: 0}\nschedule: {fairAfter: 100ms, minAwake: 0}"


@dataclass(frozen=True)
class Heard:
    """What a client knows of its request."""

    waited_s: float
    """Until the answer began, by its own clock."""
    timing: dict[str, float]
    """The seconds of each phase, as the answer told."""


def configuration(folder: Path) -> str:
    """Three models, one of which may be up: two on engines that sleep, one that is stopped."""
    fake = FakeModels(folder, head=_HEAD)
    for name in MODELS[:2]:
        command = f"{sys.executable} -m tests.helpers.sleepy_server --port ${{PORT}}"
        fake.add_command(name, command, more=_SLEEPS)
    return fake.add(MODELS[2], "--chunks 3 --gap 0.002").yaml


async def ask_at_random(proxy: ProxyProcess, count: int, *, seed: int) -> dict[str, Heard]:
    """Send `count` requests, some streamed; return what was heard, by the client's address."""
    rng = random.Random(seed)
    heard: dict[str, Heard] = {}

    async def client(number: int) -> None:
        for turn in range(number, count, _AT_ONCE):
            name = f"client-{turn}"
            heard[name] = await _ask(proxy, name, rng.choice(MODELS), stream=rng.random() < 0.5)
            await asyncio.sleep(rng.random() / 20)

    await asyncio.gather(*(client(number) for number in range(_AT_ONCE)))
    return heard


async def _ask(proxy: ProxyProcess, client: str, model: str, *, stream: bool) -> Heard:
    body = {"model": model, "messages": [], "stream": stream}
    headers = {"X-Forwarded-For": client}
    began = time.monotonic()
    async with proxy.session.post(CHAT, json=body, headers=headers) as answer:
        waited_s = time.monotonic() - began
        text = await answer.text()
        assert answer.status == 200, text
    return Heard(waited_s, timings(answer.headers["Server-Timing"]))


def timings(header: str) -> dict[str, float]:
    """The seconds of each phase in a `Server-Timing`."""
    found = re.findall(r"(\w+);dur=([\d.]+)", header)
    return {name: float(milliseconds) / 1e3 for name, milliseconds in found}
