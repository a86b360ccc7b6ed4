"""What a scraper reads is what was recorded."""

from __future__ import annotations

import asyncio
import gzip
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from llmsnap.core.cause import Cause, Why
from llmsnap.core.lifecycle import State
from llmsnap.core.messages import ModelView, Phases
from llmsnap.telemetry import catalogue, metrics
from llmsnap.telemetry.metrics import Metrics, Sources
from llmsnap.telemetry.record import ExitRecord, MoveRecord, Pauses, RequestRecord
from llmsnap.telemetry.recorder import Batch
from llmsnap.telemetry.tally import Tally
from llmsnap.telemetry.tokens import Tokens
from tests.helpers.views import view_of
from tests.telemetry.scraping import Figures, figures, labelled

CHAT = "/v1/chat/completions"
DOCS = Path(__file__).parents[2] / "docs" / "metrics.md"


@dataclass
class Vitals:
    """How a GPU fares."""

    utilisation: float | None = 0.5
    power_w: float | None = 100.0
    power_limit_w: float | None = 350.0
    temperature_c: float | None = 60.0
    pcie_generation: int | None = 4
    pcie_width: int | None = None


@dataclass
class Device:
    """A device."""

    device: str = "gpu0"
    name: str = "H200"
    uuid: str = "GPU-1"
    total_bytes: int = 1000
    free_bytes: int = 300
    reserved_bytes: int | None = 20
    vitals: Vitals = field(default_factory=Vitals)


class Stage:
    """Metrics over records that a test makes."""

    def __init__(self) -> None:
        self.now = 100.0
        self.views: list[ModelView] = []
        self.devices: list[Device] = []
        self.held: dict[str, dict[str, int]] = {}
        self.tally = Tally([CHAT])
        sources = Sources(
            views=lambda: self.views, held=lambda: self.held, devices=lambda: self.devices
        )
        self.metrics = Metrics(self.tally, sources, lambda: self.now)

    def take(self, *records: RequestRecord | MoveRecord | ExitRecord) -> None:
        """Take them in."""
        self.tally.take(
            Batch(
                [each for each in records if isinstance(each, RequestRecord)],
                [each for each in records if isinstance(each, MoveRecord)],
                [each for each in records if isinstance(each, ExitRecord)],
            )
        )

    async def read(self, accept: str = "") -> Figures:
        """What a scraper reads."""
        text = await self.metrics.text(accept, zipped=False)
        return figures(text.body, is_openmetrics="openmetrics" in text.content_type)


@pytest.fixture
async def stage() -> Stage:
    """Nothing has happened."""
    return Stage()


def request(**more: Any) -> RequestRecord:
    """A request that came at second 10."""
    said = {"model": "a", "path": CHAT, "client": "::1", "status": 200} | more
    return RequestRecord(arrived_at=10.0, **said)  # type: ignore[arg-type]


def swap(**more: Any) -> MoveRecord:
    """A start of a second."""
    said = {"model": "a", "kind": "start", "cause": Cause(Why.REQUESTED)} | more
    return MoveRecord(generation=1, began_at=10.0, ended_at=11.0, **said)  # type: ignore[arg-type]


async def test_a_request(stage: Stage) -> None:
    """Counted, timed, split into its phases; its tokens counted."""
    stage.take(
        request(
            phases=Phases(queue_s=0.25, start_s=1.0),
            forwarded_at=11.25,
            first_byte_at=12.0,
            content_at=12.5,
            ended_at=14.0,
            is_stream=True,
            tokens=Tokens(computed=5, cached=90, generated=7, prompt_s=0.5, generation_s=1.5),
        )
    )
    read = await stage.read()

    assert read[labelled("llmsnap_requests_total", model="a", path=CHAT, code="200")] == 1
    assert read[labelled("llmsnap_request_duration_seconds_sum", model="a")] == 4
    ttft = "llmsnap_time_to_first_token_seconds"
    assert read[labelled(f"{ttft}_sum", model="a", start="started")] == 2.5
    assert read[labelled(f"{ttft}_bucket", model="a", start="started", le="2.0")] == 0
    assert read[labelled(f"{ttft}_bucket", model="a", start="started", le="5.0")] == 1
    for phase, seconds in {"queue": 0.25, "start": 1.0, "prefill": 0.75}.items():
        name = "llmsnap_phase_duration_seconds_sum"
        assert read[labelled(name, model="a", phase=phase)] == seconds
    assert labelled("llmsnap_phase_duration_seconds_sum", model="a", phase="wake") not in read
    for source, count in {"computed": 5, "cached": 90}.items():
        assert read[labelled("llmsnap_prompt_tokens_total", model="a", source=source)] == count
    assert read[labelled("llmsnap_generated_tokens_total", model="a")] == 7
    assert read[labelled("llmsnap_prompt_seconds_total", model="a")] == 0.5
    assert read[labelled("llmsnap_generation_seconds_total", model="a")] == 1.5


async def test_pauses_are_counted_whole(stage: Stage) -> None:
    """Those behind the first byte too, which aren't part of the way to it."""
    stage.take(
        request(
            forwarded_at=10.0,
            first_byte_at=15.0,
            ended_at=30.0,
            paused_before_s=3.0,
            pauses=Pauses(count=2, ended_s=8.0),
        )
    )
    read = await stage.read()

    phases = "llmsnap_phase_duration_seconds_sum"
    assert read[labelled(phases, model="a", phase="pause")] == 8
    assert read[labelled(phases, model="a", phase="prefill")] == 2


async def test_u102_what_isnt_said_isnt_zero(stage: Stage) -> None:
    """No child is made for it."""
    stage.take(request(ended_at=11.0, tokens=Tokens(computed=5)))
    read = await stage.read()

    assert not [name for name, _ in read if name.startswith("llmsnap_generat")]
    assert labelled("llmsnap_prompt_tokens_total", model="a", source="cached") not in read


async def test_paths_are_bounded(stage: Stage) -> None:
    """A client can't make a label of whatever it asks for."""
    stage.take(request(path="/v1/%63hat"), request(path="/v1/%63h%61t"))
    read = await stage.read()

    assert read[labelled("llmsnap_requests_total", model="a", path="other", code="200")] == 2


async def test_swaps(stage: Stage) -> None:
    """Failed ones are counted, and not timed; making room is part of a swap."""
    stage.take(
        swap(phases=Phases(queue_s=9, evict_s=0.5, start_s=1)),
        swap(result="failed"),
        swap(kind="wake", driver="cuda"),
    )
    read = await stage.read()

    start = {"model": "a", "kind": "start", "driver": "none"}
    assert read[labelled("llmsnap_swaps_total", **start, result="ok")] == 1
    assert read[labelled("llmsnap_swaps_total", **start, result="failed")] == 1
    assert read[labelled("llmsnap_swap_duration_seconds_sum", **start)] == 1.5
    wake = {"model": "a", "kind": "wake", "driver": "cuda"}
    assert read[labelled("llmsnap_swap_duration_seconds_count", **wake)] == 1


async def test_ways_down_and_ends(stage: Stage) -> None:
    """Why a model went, how long its sleep took, whether it was in the middle of answers."""
    room = Cause(Why.ROOM, "b")
    stage.take(
        swap(kind="sleep", driver="cuda", cause=room),
        swap(kind="sleep", driver="cuda", cause=room, paused=2),
        swap(kind="stop", cause=Cause(Why.IDLE, idle_s=300)),
        swap(kind="page_out", driver="cuda", cause=Cause(Why.TIER, "b")),
        swap(kind="sleep", driver="cuda", cause=room, result="refused"),
        ExitRecord(model="a", generation=1, reason="crashed", at=1.0),
    )
    read = await stage.read()

    assert read[labelled("llmsnap_evictions_total", model="a", reason="room")] == 2
    assert read[labelled("llmsnap_evictions_total", model="a", reason="idle")] == 1
    assert read[labelled("llmsnap_preemptions_total", model="a")] == 1
    assert read[labelled("llmsnap_sleep_duration_seconds_count", model="a", driver="cuda")] == 2
    assert read[labelled("llmsnap_upstream_exits_total", model="a", reason="crashed")] == 1


async def test_gauges(stage: Stage) -> None:
    """Of models and devices, as they are now."""
    stage.views = [view_of("a", state=State.READY, in_flight=2, waiting=1)]
    stage.held = {"a": {"gpu0": 500}}
    stage.devices = [Device()]
    read = await stage.read()

    states = {labels: n for (name, labels), n in read.items() if name == "llmsnap_model_state"}
    assert len(states) == len(State)
    assert [dict(labels)["state"] for labels, n in states.items() if n] == ["ready"]
    assert read[labelled("llmsnap_inflight_requests", model="a")] == 2
    assert read[labelled("llmsnap_queued_requests", model="a")] == 1
    assert read[labelled("llmsnap_model_memory_bytes", model="a", device="gpu0")] == 500
    device = {"device": "gpu0", "name": "H200", "uuid": "GPU-1"}
    for what, amount in {"total": 1000, "used": 700, "free": 300, "reserved": 20}.items():
        assert read[labelled(f"llmsnap_device_memory_{what}_bytes", **device)] == amount
    assert read[labelled("llmsnap_gpu_utilization_ratio", **device)] == 0.5
    assert read[labelled("llmsnap_pcie_link_generation", **device)] == 4
    assert labelled("llmsnap_pcie_link_width", **device) not in read


async def test_both_formats_say_the_same(stage: Stage) -> None:
    """With names that need to be escaped; prometheus-client's strict readers take both."""
    names = ['a"b\\c\nd', "ü", "a", *(f"m{n}" for n in range(60))]
    stage.views = [view_of(name) for name in names]
    stage.take(*(request(model=name, ended_at=11.0) for name in names))
    stage.take(*(swap(model=name) for name in names))
    text = ours(await stage.read())
    stage.now += 2
    openmetrics = ours(await stage.read("application/openmetrics-text;version=1.0.0,*/*;q=0.1"))

    assert text == openmetrics
    assert labelled("llmsnap_requests_total", model=names[0], path=CHAT, code="200") in text


def ours(read: Figures) -> Figures:
    """Without the figures of the process itself, which change."""
    return {key: number for key, number in read.items() if key[0].startswith("llmsnap_")}


async def test_zipped(stage: Stage) -> None:
    """The same, smaller."""
    stage.take(*(request(model=f"m{n}", ended_at=11.0) for n in range(50)))
    plain = await stage.metrics.text("", zipped=False)
    zipped = await stage.metrics.text("", zipped=True)

    assert ours(figures(gzip.decompress(zipped.body))) == ours(figures(plain.body))
    assert len(zipped.body) < len(plain.body) / 10


async def test_once_a_second(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many ask, and all at once."""
    renders: list[object] = []
    render = metrics.render

    def counted(*args: Any, **kwargs: Any) -> metrics.Exposition:
        renders.append(args)
        return render(*args, **kwargs)

    monkeypatch.setattr(metrics, "render", counted)
    await asyncio.gather(*(stage.metrics.text("", zipped=False) for _ in range(20)))
    assert len(renders) == 1
    stage.now += 1
    await stage.metrics.text("", zipped=False)
    assert len(renders) == 2


async def test_the_loop_goes_on_meanwhile(stage: Stage) -> None:
    """The text is made elsewhere, from figures that don't change under it."""
    stage.take(*(request(model=f"m{n}", ended_at=11.0) for n in range(50)))
    scrape = asyncio.ensure_future(stage.metrics.text("", zipped=False))
    turns = 0
    while not scrape.done():
        await asyncio.sleep(0)
        turns += 1
        stage.take(request(model=f"new{turns}", ended_at=11.0))

    assert turns > 10
    names = {dict(labels).get("model") for _, labels in figures((await scrape).body)}
    assert len([name for name in names if name and name.startswith("new")]) <= 1


# ---- the page about them -----------------------------------------------------------------------


def documented() -> dict[str, tuple[str, ...]]:
    """Name to kind, labels and meaning, out of the page's tables."""
    row = re.compile(r"^\| `(llmsnap_\w+)` \| (\w+) \| (.*?) \| (.*) \|$", re.MULTILINE)
    return {name: tuple(rest) for name, *rest in row.findall(DOCS.read_text())}


def written(metric: catalogue.Metric) -> tuple[str, ...]:
    """How the page says it."""
    return metric.kind, ", ".join(f"`{label}`" for label in metric.labels), metric.help


def test_every_metric_is_documented() -> None:
    """With its kind, its labels and its meaning; and none that isn't there."""
    assert documented() == {metric.name: written(metric) for metric in catalogue.ALL}


def test_names_are_as_prometheus_wants_them() -> None:
    """Units are spelled out, counters end in `_total`, helps are sentences without a point."""
    for metric in catalogue.ALL:
        assert metric.name.endswith("_total") == (metric.kind == "counter"), metric.name
        assert bool(metric.buckets) == (metric.kind == "histogram")
        assert sorted(metric.buckets) == list(metric.buckets)
        assert not metric.help.endswith(".")
        assert not set(metric.help) & set('\\"\n'), "it would have to be escaped"


def test_two_seconds_is_an_edge() -> None:
    """So that the share of swaps below it is exact."""
    assert 2 in catalogue.SWAP_DURATION.buckets
    assert min(catalogue.SWAP_DURATION.buckets) == 0.05
    assert max(catalogue.SWAP_DURATION.buckets) == 120


def test_the_tally_feeds_every_counter_and_histogram() -> None:
    """And gauges the rest, in whatever state things are."""
    tally = Tally([])
    fed = [
        *(counter.metric for counter in tally.counters()),
        *(histogram.metric for histogram in tally.histograms()),
        *(metric for metric, _ in metrics.gauges(Sources(views=list))),
    ]
    assert sorted(m.name for m in fed) == sorted(m.name for m in catalogue.ALL)
