"""The small process that shows whether a driver really can."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator

import pytest

from llmsnap.sleep.cuda_client import CudaClient
from llmsnap.sleep.cuda_selftest import self_test
from llmsnap.sleep.cuda_steps import Limits
from tests.sim.gauge import Gauge
from tests.sim.world import MIB, World


@pytest.fixture
async def client(world: World) -> AsyncIterator[CudaClient]:
    """The calls."""
    client = CudaClient(environ=world.environ())
    yield client
    await client.aclose()


async def run(world: World, client: CudaClient) -> str:
    limits = Limits(checkpoint_s=0.5, lowest_rate=1e12)
    uuid = world.cards[0].uuid
    return await self_test(client, environ=world.environ(), gpu_uuid=uuid, limits=limits)


async def test_a_driver_that_can_has_no_fault(
    world: World, client: CudaClient, gauge: Gauge
) -> None:
    """A whole cycle, and nothing is left behind on the GPU."""
    assert await run(world, client) == ""
    (reading,) = (await gauge.read()).devices
    assert reading.used_bytes == world.knobs.reserved_mib * MIB


@pytest.mark.parametrize(
    ("operation", "fault", "words"),
    [
        ("lock", 304, "can't lock it"),
        ("checkpoint", 801, "NOT_SUPPORTED"),
        ("restore", 1, "INVALID_VALUE"),
        ("unlock", 304, "can.t unlock it"),
    ],
)
async def test_says_what_goes_wrong(
    world: World, client: CudaClient, operation: str, fault: int, words: str
) -> None:
    """At each of the four calls."""
    world.plan(operation, *[fault] * 3)
    assert re.search(words, await run(world, client))


async def test_a_gpu_that_is_full_is_said_to_be(world: World, client: CudaClient) -> None:
    """The process can't even begin."""
    world.turn(context_mib=30_000)
    assert await run(world, client) == "the test process can't use the GPU"
