"""What there is to see of memory."""

from __future__ import annotations

import os

from llmsnap.config.schema import MemoryConfig
from llmsnap.core.lifecycle import State
from llmsnap.memory.footprints import Footprints, Source, Subject
from llmsnap.memory.host import Host
from llmsnap.memory.identity import Command
from llmsnap.memory.machine import Machine, NoGpus
from llmsnap.runtime.devices import Freshness, Survey
from tests.memory.looks import GIB, gib, look, reading, tree
from tests.runtime.test_needs import Memory
from tests.runtime.watching import Stage


def survey_of(stage: Stage, config: MemoryConfig | None = None) -> Survey:
    """What there is to see of what happens on `stage`."""
    command = Command(argv=["serve"], env={}, own={}, port=1)
    footprints = Footprints({"a": Subject(command=command)}, Memory())
    machine = Machine(Host(), NoGpus())
    return Survey(stage.watch, config or MemoryConfig(), machine, footprints)


async def test_devices_with_their_books() -> None:
    """GPUs first, then RAM, then swap, which is no device of models."""
    stage = Stage({"gpu0": gib(23.5), "host": 15 * GIB})
    survey = survey_of(stage)
    await stage.shows(
        look(
            reading("swap", 1, total=4),
            reading("host", 3, total=16),
            reading("gpu0", 9, processes={10: 8}),
            a=tree(10, anonymous=1),
        ),
        a=State.READY,
    )
    gpu, host, swap = survey.devices()
    assert [view.reading.device for view in (gpu, host, swap)] == ["gpu0", "host", "swap"]
    assert (gpu.capacity_bytes, gpu.reserve_bytes) == (gib(23.5), GIB // 2)
    assert (gpu.foreign_bytes, gpu.models) == (GIB, {"a": 8 * GIB})
    assert (host.foreign_bytes, host.models) == (2 * GIB, {"a": GIB})
    assert (swap.capacity_bytes, swap.foreign_bytes) == (None, None)
    assert survey.held_by("a") == {"gpu0": 8 * GIB, "host": GIB}
    assert survey.held_by("b") == {}
    assert survey.figure("a").source is Source.UNKNOWN


async def test_a_budget_has_no_reserve() -> None:
    """It counts as it stands."""
    config = MemoryConfig(devices={"host": 3 * GIB})
    stage = Stage({"host": 3 * GIB}, config)
    survey = survey_of(stage, config)
    await stage.shows(look(reading("host", 3, total=16)))
    (host,) = survey.devices()
    assert (host.capacity_bytes, host.reserve_bytes) == (3 * GIB, None)


async def test_what_is_stale_and_what_is_lost() -> None:
    """Their last figures are shown, and only figures that are news are measured with."""
    stage = Stage({})
    survey = survey_of(stage)
    both = reading("gpu0", 1, processes={}), reading("gpu1", 2, processes={})
    await stage.shows(look(*both))
    assert [view.freshness for view in survey.devices()] == [Freshness.FRESH] * 2
    await stage.shows(look(both[0], stale="gpu0", faults=("gpu1 is lost",)))
    assert [view.freshness for view in survey.devices()] == [Freshness.STALE, Freshness.LOST]
    assert survey.readings() == []
    assert survey.faults == ("gpu1 is lost",)


async def test_shared_pages_are_counted_in_part() -> None:
    """By the kernel, on request."""
    stage = Stage({})
    await stage.shows(look(a=tree(os.getpid())))
    assert (await survey_of(stage).pss_bytes())["a"] > 0
