"""Samples of the machine, and for how long they are kept."""

from __future__ import annotations

from datetime import timedelta

import pytest
from msgspec import json

from llmsnap.memory.device import Reading, Vitals
from llmsnap.runtime.tasks import Background
from llmsnap.telemetry.performance import Performance
from tests.helpers.waiting import eventually

GIB = 1024**3
VITALS = Vitals(utilisation=0.5, power_w=120.0, temperature_c=60.0)


def reading(device: str, vitals: Vitals = VITALS) -> Reading:
    """A device of 24 GiB, a quarter of it used."""
    return Reading(
        device=device,
        total_bytes=24 * GIB,
        free_bytes=18 * GIB,
        taken_at=1.0,
        name="card",
        uuid="GPU-1",
        vitals=vitals,
    )


async def test_a_sample_is_of_this_machine() -> None:
    """Whatever it is, what must be there is, and it adds up."""
    performance = Performance(5.0, list)
    await performance.sample()
    (system,) = performance.system()

    assert len(system.cpu_util_per_core) >= 1
    assert system.mem_total_mb > 100
    assert system.mem_total_mb == pytest.approx(system.mem_used_mb + system.mem_free_mb, abs=2)
    assert system.load_avg_1 >= 0
    assert performance.gpus() == []


async def test_gpus_are_those_that_were_seen_last() -> None:
    """In llama-swap's words; RAM and swap are no GPUs, and -1 is what isn't known."""
    devices = [reading("gpu0"), reading("gpu1", Vitals()), reading("host"), reading("swap")]
    performance = Performance(5.0, lambda: devices)
    await performance.sample()
    first, second = performance.gpus()

    assert json.decode(json.encode(first)) == {
        "timestamp": first.timestamp.isoformat().replace("+00:00", "Z"),
        "id": 0,
        "name": "card",
        "uuid": "GPU-1",
        "temp_c": 60,
        "vram_temp_c": -1,
        "gpu_util_pct": 50,
        "mem_util_pct": 25,
        "mem_used_mb": 6 * 1024,
        "mem_total_mb": 24 * 1024,
        "fan_speed_pct": -1,
        "power_draw_w": 120,
    }
    assert (second.id, second.temp_c, second.gpu_util_pct, second.power_draw_w) == (1, -1, -1, -1)


async def test_samples_of_an_hour_are_kept() -> None:
    """The oldest go."""
    performance = Performance(1200.0, lambda: [reading("gpu0")])
    for _ in range(5):
        await performance.sample()

    assert len(performance.system()) == len(performance.gpus()) == 3


async def test_only_newer_ones_are_listed() -> None:
    """A page asks for what it hasn't got."""
    performance = Performance(5.0, lambda: [reading("gpu0")])
    for _ in range(2):
        await performance.sample()
    first, second = performance.system()

    assert performance.system(first.timestamp) == [second]
    assert len(performance.gpus(first.timestamp)) == 1
    assert performance.system(second.timestamp + timedelta(seconds=1)) == []


async def test_it_goes_on_after_a_failure(caplog: pytest.LogCaptureFixture) -> None:
    """A driver that is gone for a moment."""
    calls = []

    def devices() -> list[Reading]:
        calls.append(1)
        if len(calls) == 1:
            raise OSError("gone")
        return []

    performance = Performance(0.01, devices)
    background = Background()
    background.spawn(performance.run(), name="samples")
    await eventually(lambda: len(calls) > 2)
    await background.aclose()

    assert "can't be read" in caplog.text
