"""What the proxy says of its requests: header, record and metric, over real swaps."""

from __future__ import annotations

import asyncio
import gzip
import random
import re
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import pytest

from llmsnap.config.schema import Config, ModelConfig
from llmsnap.runtime.logs import Logs
from llmsnap.telemetry.metrics import Metrics, Sources
from llmsnap.telemetry.record import RequestRecord
from llmsnap.telemetry.recorder import Recorder
from llmsnap.telemetry.tally import Tally
from llmsnap.web.metrics import MetricsRoute
from llmsnap.web.proxy import INFERENCE_PATHS, Proxy
from llmsnap.web.server import build_app
from tests.helpers.waiting import eventually
from tests.runtime.resting import Driver
from tests.runtime.rig import OneAtATime, Rig, plan
from tests.telemetry.scraping import Figures, figures, labelled
from tests.web.scripted import STREAM_HEAD, Line, Received, say_ok, whole
from tests.web.serving import Site, serving
from tests.web.stage import CHAT, staged

REQUESTS = 500
AT_ONCE = 24
MODELS = ("a", "b", "c")


@dataclass
class House:
    """A whole proxy over real processes of small servers, and what it puts down."""

    site: Site
    recorder: Recorder
    records: list[RequestRecord]

    def put_down(self) -> int:
        """How many requests were put down so far: each a moment after its answer."""
        self.recorder.flush()
        return len(self.records)

    async def scrape(self, **headers: str) -> Figures:
        """What a scraper reads now."""
        self.recorder.flush()
        async with self.site.session.get("/metrics", headers=headers) as answer:
            assert answer.status == 200
            return figures(await answer.read())


@asynccontextmanager
async def housed(folder: Path) -> AsyncIterator[House]:
    """One of three models at a time; `b` sleeps, the others stop."""
    rig, recorder, records = Rig(folder), Recorder(), list[RequestRecord]()
    recorder.listen(lambda batch: records.extend(batch.requests))
    tally = Tally(INFERENCE_PATHS)
    recorder.listen(tally.take)
    plans = [plan(name) for name in MODELS]
    supervisor = rig.supervise(
        *plans, constraints=OneAtATime(), drivers={"b": Driver()}, recorder=recorder
    )
    config = Config(models={name: ModelConfig(cmd=f"serve {name}") for name in MODELS})
    proxy = Proxy(config, supervisor, recorder)
    clock = asyncio.get_running_loop().time
    route = MetricsRoute(Metrics(tally, Sources(views=supervisor.views), clock), proxy.monitor)
    app = build_app(
        config, supervisor, proxy, Logs(), loopback=True, clock=clock, more=route.routes()
    )
    try:
        async with serving(app) as site:
            yield House(site, recorder, records)
        await proxy.aclose()
    finally:
        await rig.aclose()


def server_timing(answer: aiohttp.ClientResponse) -> dict[str, float]:
    """The phases in an answer's header, in seconds."""
    found = re.findall(r"(\w+);dur=([\d.]+)", answer.headers["Server-Timing"])
    return {name: float(milliseconds) / 1e3 for name, milliseconds in found}


async def test_the_numbers_add_up(tmp_path: Path) -> None:
    """Of 500 requests at random: phases sum to the first byte; header, record and metric agree.

    And the client, by its own clock, waited for at least as long.
    """
    rng = random.Random(5)
    seen: dict[str, tuple[float, dict[str, float]]] = {}
    async with housed(tmp_path) as house:

        async def client(number: int) -> None:
            for turn in range(number, REQUESTS, AT_ONCE):
                body = b'{"model":"%b"}' % rng.choice(MODELS).encode()
                name = f"client-{turn}"
                began = time.monotonic()
                async with house.site.session.post(
                    CHAT, data=body, headers={"X-Forwarded-For": name}
                ) as answer:
                    waited_s = time.monotonic() - began
                    assert answer.status == 200, await answer.text()
                    seen[name] = waited_s, server_timing(answer)
                    await answer.read()
                await asyncio.sleep(rng.random() / 20)

        await asyncio.gather(*(client(number) for number in range(AT_ONCE)))
        await eventually(lambda: house.put_down() == REQUESTS)
        read = await house.scrape()

    for record in house.records:
        waited_s, timing = seen[record.client]
        spent = record.spent()
        assert sum(spent.values()) == pytest.approx(record.first_byte_s, abs=1e-9)
        # The scheduler's clock and the proxy's agree on when the model was there.
        assert record.phases.total_s <= record.forwarded_at - record.arrived_at + 0.002
        assert record.first_byte_s <= waited_s
        assert {n: s for n, s in timing.items() if s} == {
            n: pytest.approx(s, abs=1e-4) for n, s in spent.items() if round(s, 4)
        }
    assert {record.start for record in house.records} == {"awake", "woken", "started"}
    agree(read, house.records)


def agree(read: Figures, records: list[RequestRecord]) -> None:
    """What a scraper reads is the sum of the records."""
    requests: Counter[str] = Counter()
    phases: Counter[tuple[str, str]] = Counter()
    for record in records:
        requests[record.model] += 1
        for phase, seconds in record.spent().items():
            phases[record.model, phase] += seconds  # type: ignore[assignment]
    for model, number in requests.items():
        key = labelled("llmsnap_requests_total", model=model, path=CHAT, code="200")
        assert read[key] == number
    for (model, phase), seconds in phases.items():
        key = labelled("llmsnap_phase_duration_seconds_sum", model=model, phase=phase)
        assert read[key] == pytest.approx(seconds)
    swaps = sum(n for (name, _), n in read.items() if name == "llmsnap_swaps_total")
    assert swaps >= len(MODELS)


async def test_a11_scraping_touches_no_model(tmp_path: Path) -> None:
    """None is loaded for it, and none is used by it."""
    async with housed(tmp_path) as house:
        read = await house.scrape()
        states = {
            dict(labels)["state"] for (name, labels), n in read.items() if n and "state" in name
        }
        assert states == {"stopped"}
        assert not house.records


async def test_formats_and_codings(tmp_path: Path) -> None:
    """As asked for; `HEAD` has no body."""
    async with housed(tmp_path) as house:
        ask = house.site.session.get
        async with ask("/metrics", headers={"Accept-Encoding": "identity"}) as answer:
            assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
            assert figures(await answer.read())
        async with ask(
            "/metrics",
            headers={
                "Accept": "application/openmetrics-text; version=1.0.0, text/plain;q=0.5",
                "Accept-Encoding": "gzip",
            },
            auto_decompress=False,
        ) as answer:
            assert answer.headers["Content-Type"].startswith("application/openmetrics-text")
            assert answer.headers["Content-Encoding"] == "gzip"
            body = gzip.decompress(await answer.read())
            assert body.endswith(b"# EOF\n")
            assert figures(body, is_openmetrics=True)


# ---- records of what goes wrong ----------------------------------------------------------------


async def test_a_stream_that_breaks_off() -> None:
    """Its status is the answer's; the record says what happened."""

    async def break_off(received: Received, line: Line) -> None:
        await line.say(STREAM_HEAD)
        await line.chunk(b"data: {}\n\n")
        line.reset()

    async with staged(break_off) as stage:
        async with stage.ask(b'{"model":"a","stream":true}') as answer:
            await answer.text()
        (record,) = await stage.recorded()

    assert record.status == 200
    assert record.is_stream
    assert "broke its answer off" in record.error


async def test_a_client_who_leaves_while_it_waits() -> None:
    """It has nginx's status for that."""
    async with staged(up=False) as stage:
        asking = asyncio.ensure_future(stage.text())
        await eventually(lambda: bool(stage.lender.waiting))
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        (record,) = await stage.recorded()

    assert record.status == 499
    assert list(record.spent()) == ["queue"]


async def test_a_server_that_is_gone() -> None:
    """Our own status, with its reason."""

    async def drop(received: Received, line: Line) -> None:
        line.drop()

    async with staged(drop) as stage:
        async with stage.ask() as answer:
            assert answer.status == 502
        (record,) = await stage.recorded()

    assert record.status == 502
    assert record.error
    assert record.first_byte_at == 0


async def test_what_isnt_inference_isnt_recorded() -> None:
    """A page of a model's own server, polls, and models that there aren't."""
    async with staged(say_ok) as stage:
        await stage.site.ask("/upstream/a/index.html")
        await stage.site.ask("/upstream/a/props")
        async with stage.ask(b'{"model":"none"}') as answer:
            assert answer.status == 404
        await stage.site.ask(f"/upstream/a{CHAT}?x=1", method="POST", data=b"{}")
        (record,) = await stage.recorded()

    assert (record.model, record.path) == ("a", CHAT)


async def test_p53_tokens_of_an_answer_that_passes() -> None:
    """They are read; the client gets the answer as it is."""
    body = b'{"usage":{"prompt_tokens":3,"completion_tokens":2}}'

    async def answer(received: Received, line: Line) -> None:
        await line.say(whole(body))

    async with staged(answer) as stage:
        assert await stage.text() == body.decode()
        (record,) = await stage.recorded()

    assert record.tokens is not None
    assert (record.tokens.computed, record.tokens.generated) == (3, 2)
