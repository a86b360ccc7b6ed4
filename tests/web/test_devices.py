"""`/api/devices`, and what `/api/models` says of memory."""

from __future__ import annotations

from dataclasses import replace

from llmsnap.memory.device import Vitals
from llmsnap.memory.footprints import Figure, Source
from llmsnap.runtime.devices import DeviceView, Freshness
from tests.memory.looks import GIB, reading
from tests.web.fleet import NOW, FakeMemory, config_of, front_of
from tests.web.serving import serving


async def test_each_device_as_it_was_seen() -> None:
    """With what is in the books, and who holds what."""
    memory = FakeMemory()
    card = replace(
        reading("gpu0", 9, name="RTX 4090", uuid="GPU-1", vitals=Vitals(power_w=21.5)),
        taken_at=NOW - 1.5,
    )
    memory.views = [
        DeviceView(
            reading=card,
            freshness=Freshness.FRESH,
            capacity_bytes=23 * GIB,
            reserve_bytes=GIB,
            foreign_bytes=GIB,
            models={"a": 8 * GIB},
        )
    ]
    memory.faults = ("gpu1: its memory can't be read",)
    async with serving(front_of(config_of("a"), memory=memory)) as site:
        answer = (await site.ask("/api/devices")).json

    (device,) = answer["devices"]
    assert (device["device"], device["name"], device["uuid"]) == ("gpu0", "RTX 4090", "GPU-1")
    assert (device["state"], device["age_s"]) == ("fresh", 1.5)
    assert (device["used_bytes"], device["free_bytes"]) == (9 * GIB, 15 * GIB)
    assert (device["capacity_bytes"], device["reserve_bytes"]) == (23 * GIB, GIB)
    assert (device["foreign_bytes"], device["models"]) == (GIB, {"a": 8 * GIB})
    assert (device["power_w"], device["temperature_c"]) == (21.5, None)
    assert answer["faults"] == ["gpu1: its memory can't be read"]
    assert "pss_bytes" not in answer


async def test_what_models_share_is_counted_when_asked_for() -> None:
    """The kernel takes its time for it."""
    async with serving(front_of(config_of("a"), memory=FakeMemory())) as site:
        assert (await site.ask("/api/devices?pss")).json["pss_bytes"] == {"a": 5}


async def test_where_a_models_bytes_are_and_which_figure_counts() -> None:
    """And why that one."""
    memory = FakeMemory()
    memory.held["a"] = {"host": GIB, "swap": 2}
    memory.figures["a"] = Figure(source=Source.LEARNED, bytes={"host": GIB}, why="seen")
    async with serving(front_of(config_of("a", "b"), memory=memory)) as site:
        first, second = (await site.ask("/api/models")).json["models"]

    assert first["bytes"] == {"host": GIB, "swap": 2}
    assert first["footprint"] == {"bytes": {"host": GIB}, "source": "learned", "why": "seen"}
    assert second["bytes"] == {}
    assert second["footprint"] == {"bytes": {}, "source": "unknown", "why": "never seen"}
