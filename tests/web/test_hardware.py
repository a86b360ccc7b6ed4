"""What the machine is made of, over HTTP."""

from __future__ import annotations

import os

from aiohttp.test_utils import TestClient, TestServer

from llmsnap.memory.device import Reading, Vitals
from llmsnap.telemetry.hardware import hardware
from llmsnap.web.hardware import HardwareRoute
from tests.web.fleet import config_of, front_of

KIND = "vendor_id\t: V\nmodel name\t: M 9\n"
TWO_SOCKETS = "\n\n".join(
    f"processor\t: {n}\n{KIND}physical id\t: {n % 2}\ncore id\t\t: {n // 4}" for n in range(8)
)


async def test_what_there_is_is_told() -> None:
    """Of this machine, with as many threads as the kernel counts."""
    app = front_of(config_of("a"), more=HardwareRoute(tuple).routes())
    async with TestClient(TestServer(app)) as client, client.get("/api/hardware") as answer:
        told = await answer.json()

    assert told["cpu"]["logical_thread_count"] == os.cpu_count()
    assert 1 <= told["cpu"]["socket_count"] <= told["cpu"]["physical_core_count"]
    assert (told["operating_system"], told["accelerators"]) == ("linux", [])


def test_cores_and_sockets_are_told_apart() -> None:
    """Threads of one core are one core."""
    cpu = hardware((), TWO_SOCKETS)["cpu"]

    assert cpu == {
        "vendor": "V",
        "model": "M 9",
        "socket_count": 2,
        "physical_core_count": 4,
        "logical_thread_count": 8,
    }


def test_gpus_and_memory_are_what_is_seen_of_them() -> None:
    """Swap is neither."""

    def reading(device: str, size: int) -> Reading:
        vitals = Vitals(power_limit_w=350.0)
        return Reading(
            device=device,
            total_bytes=size,
            free_bytes=0,
            taken_at=0.0,
            name=f"a {device}",
            vitals=vitals,
        )

    told = hardware([reading("host", 64), reading("swap", 9), reading("gpu0", 24)], "")

    assert told["memory"] == {"capacity_bytes": 64}
    (gpu,) = told["accelerators"]
    assert (gpu["index"], gpu["model"], gpu["power_limit_watts"]) == (0, "a gpu0", 350.0)
    assert gpu["memory"] == {"kind": "dedicated", "capacity_bytes": 24}
