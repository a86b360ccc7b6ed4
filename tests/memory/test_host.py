"""RAM and swap of this machine and of recorded ones, and what trees of processes hold."""

from __future__ import annotations

import asyncio
import os
import sys
from asyncio.subprocess import PIPE
from collections.abc import Mapping
from pathlib import Path

import psutil
import pytest

from llmsnap.memory.host import Host
from llmsnap.memory.kernel import Room, Usage
from tests.helpers.waiting import eventually
from tests.memory.recordings import (
    CONTAINER_1,
    CONTAINER_2,
    GIB,
    HYBRID,
    KIB,
    PAGED_OUT,
    SERVICE,
    STATUS,
    WITHOUT_SWAP,
    write,
)

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


def host(root: Path, meminfo: str, files: Mapping[str, str]) -> Host:
    """A machine with these files."""
    return Host(root=write(root, {"proc/meminfo": meminfo, **files}), clock=lambda: 7.0)


def test_a_container_has_what_its_limit_leaves(tmp_path: Path) -> None:
    """Of a machine with 24 GiB and swap, 4 GiB and no swap."""
    machine = host(tmp_path, PAGED_OUT, CONTAINER_2)
    assert machine.ram() == Room(4 * GIB, 3 * GIB + 4096)
    assert machine.swap() == Room(0, 0)


def test_a_container_of_version_1(tmp_path: Path) -> None:
    """Both of its limits are obeyed."""
    machine = host(tmp_path, PAGED_OUT, CONTAINER_1)
    assert machine.ram() == Room(2 * GIB, GIB + GIB // 2)
    assert machine.swap() == Room(GIB, GIB - GIB // 4)


def test_the_tightest_limit_on_the_way_up_counts(tmp_path: Path) -> None:
    """The slice leaves 3 GiB, though the service itself may take 15 more."""
    machine = host(tmp_path, PAGED_OUT, SERVICE)
    assert machine.ram() == Room(8 * GIB, 3 * GIB)
    assert machine.swap() == Room(2 * GIB, GIB)


def test_no_limits(tmp_path: Path) -> None:
    """Then the machine's own figures hold, also where it has no swap."""
    machine = host(tmp_path, WITHOUT_SWAP, HYBRID)
    assert machine.ram() == Room(24683652 * KIB, 23948692 * KIB)
    assert machine.swap() == Room(0, 0)


async def test_u122_what_another_process_may_take_is_up_to_its_own_cgroups(tmp_path: Path) -> None:
    """A model may have been started in a cgroup with a limit while we have none."""
    own = {**SERVICE, "proc/self/cgroup": "0::/\n", "proc/70/cgroup": SERVICE["proc/self/cgroup"]}
    machine = host(tmp_path, WITHOUT_SWAP, own)
    assert machine.ram().free_bytes == 23948692 * KIB
    assert await machine.room_for(70) == 3 * GIB


async def test_readings_are_of_ram_and_swap(tmp_path: Path) -> None:
    """Two devices, and the moment by the clock that was handed in."""
    readings = await host(tmp_path, WITHOUT_SWAP, HYBRID).read()
    assert readings.fault == ""
    assert [device.device for device in readings.devices] == ["host", "swap"]
    assert [device.total_bytes for device in readings.devices] == [24683652 * KIB, 0]
    assert {device.taken_at for device in readings.devices} == {7.0}


async def test_a_machine_that_cant_be_read_says_why(tmp_path: Path) -> None:
    """No exception leaves the probe."""
    readings = await Host(root=tmp_path).read()
    assert "meminfo" in readings.fault
    assert readings.devices == ()


def test_usage_of_several_processes(tmp_path: Path) -> None:
    """It is added up; who has gone holds nothing."""
    machine = host(tmp_path, WITHOUT_SWAP, {"proc/5/status": STATUS, "proc/6/status": STATUS})
    assert machine.usage([5, 6, 99]).rss_bytes == 2 * 1981504 * KIB
    assert machine.usage([99]) == Usage()


def test_a_tree_of_recorded_processes(tmp_path: Path) -> None:
    """All below a process, parents first, and nobody else."""
    parents = {10: 1, 11: 10, 12: 11, 13: 10, 20: 1, 21: 20}
    files = {f"proc/{pid}/stat": f"{pid} (x) S {parent} 0 0" for pid, parent in parents.items()}
    machine = host(tmp_path, WITHOUT_SWAP, files)
    assert machine.tree(10) == (10, 11, 13, 12)
    assert machine.tree(12) == (12,)
    assert machine.tree(99) == ()


async def test_a_living_tree() -> None:
    """A child and a grandchild of this process are found, and hold memory."""
    script = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'input()'])"
    child = await asyncio.create_subprocess_exec(sys.executable, "-c", script, stdin=PIPE)
    try:
        machine = Host()
        await eventually(lambda: len(machine.tree(child.pid)) == 2)
        tree = machine.tree(child.pid)
        assert tree[0] == child.pid
        assert set(tree) < set(machine.tree(os.getpid()))
        await eventually(lambda: machine.usage(tree).anonymous_bytes > 5 << 20)
        held = machine.usage(tree)
        assert held.rss_bytes == held.anonymous_bytes + held.file_bytes + held.shared_bytes
    finally:
        await child.communicate(b"\n")


def test_this_machine_is_as_psutil_sees_it() -> None:
    """Unless a cgroup limits us: the totals agree, and what is free lies between sane bounds."""
    machine = Host()
    before = psutil.swap_memory().total  # other tests add swap, and take it away
    ram, swap = machine.ram(), machine.swap()
    most = max(before, psutil.swap_memory().total)
    assert 0 < ram.free_bytes <= ram.total_bytes <= psutil.virtual_memory().total
    assert 0 <= swap.free_bytes <= swap.total_bytes <= most
