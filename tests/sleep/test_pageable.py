"""What stands in the way of paging a process out, and what is to be done about it."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import pytest

from llmsnap.memory.kernel import Room, Usage
from llmsnap.sleep import pageable
from llmsnap.sleep.driver import Target
from tests.sleep.holder import holding, target

MIB = 2**20
HELD = Usage(rss_bytes=500 * MIB, anonymous_bytes=300 * MIB, shared_bytes=100 * MIB)


def process(proc: Path, pid: int, *opened: str, mapped: str = "") -> None:
    """A process with these files open, and one mapped."""
    folder = proc / str(pid)
    (folder / "fd").mkdir(parents=True)
    for number, path in enumerate(opened):
        (folder / "fd" / str(number)).symlink_to(path)
    maps = f"1000-2000 rw-s 00000000 00:05 5                    {mapped}\n" if mapped else ""
    (folder / "maps").write_text(maps)
    (folder / "comm").write_text("llama-server\n")


@pytest.mark.parametrize(
    "path",
    ["/dev/nvidia0", "/dev/nvidiactl", "/dev/kfd", "/dev/dri/renderD128", "/dev/accel/accel0"],
)
def test_a_process_on_a_gpu(tmp_path: Path, path: str) -> None:
    """Any of its processes, any GPU; it is named."""
    process(tmp_path, 70, "/dev/null")
    process(tmp_path, 71, "socket:[12]", path)
    assert path in pageable.gpu_fault([70, 71], tmp_path)
    assert "llama-server" in pageable.gpu_fault([70, 71], tmp_path)


def test_a_gpu_may_be_mapped_though_its_file_is_closed(tmp_path: Path) -> None:
    """Then only the mappings tell."""
    process(tmp_path, 70, "/dev/null", mapped="/dev/nvidia0")
    assert "/dev/nvidia0" in pageable.gpu_fault([70], tmp_path)


def test_no_gpu(tmp_path: Path) -> None:
    """Other devices don't matter, nor do processes that have ended."""
    process(tmp_path, 70, "/dev/null", "/dev/urandom", "/models/nvidia.gguf", mapped="/dev/zero")
    assert pageable.gpu_fault([70, 99], tmp_path) == ""


def test_locked_memory() -> None:
    """A little of it does no harm, as programs lock their secrets; a locked model does."""
    assert pageable.lock_fault(Usage(rss_bytes=100 * MIB, locked_bytes=MIB)) == ""
    fault = pageable.lock_fault(Usage(rss_bytes=100 * MIB, locked_bytes=90 * MIB))
    assert "90 MiB" in fault
    assert "--mlock" in fault


def test_swap_must_take_what_has_no_file() -> None:
    """Anonymous and shared memory, not files; the figures are in the reason."""
    assert pageable.swap_fault(HELD, Room(900 * MIB, 400 * MIB)) == ""
    fault = pageable.swap_fault(HELD, Room(900 * MIB, 399 * MIB))
    assert "400 MiB are to go there, 399 MiB of 900 MiB are left" in fault


def test_what_is_promised_to_others_isnt_left() -> None:
    """Two sleeps at once may not count on the same swap."""
    room = Room(900 * MIB, 700 * MIB)
    assert pageable.swap_fault(HELD, room, promised=300 * MIB) == ""
    assert "300 MiB of 900 MiB" in pageable.swap_fault(HELD, room, promised=400 * MIB)
    assert "0 B of" in pageable.swap_fault(HELD, room, promised=800 * MIB)


def test_no_swap_at_all() -> None:
    """The remedy is another one then."""
    assert "make a swap file" in pageable.swap_fault(HELD, Room(0, 0))


def listening(*holders: int) -> pageable.Listens:
    """Who listens, whatever the place."""

    async def listens(pids: Collection[int], host: str, port: int) -> bool:
        assert (host, port) == ("127.0.0.1", 5800)
        return bool(set(pids) & set(holders))

    return listens


TARGET: Target = target(70, 5800)


async def test_the_server_may_be_any_process_of_the_tree() -> None:
    """A shell around it is fine."""
    assert await pageable.listener_fault(TARGET, [70, 71], listening(71)) == ""


async def test_a_server_elsewhere() -> None:
    """What we started isn't what answers, so it would be the wrong one to stop."""
    fault = await pageable.listener_fault(TARGET, [70, 71], listening(99))
    assert "127.0.0.1:5800" in fault


@pytest.mark.parametrize("name", ["ssh", "kubectl", "docker-proxy"])
async def test_a_process_that_only_passes_on(name: str) -> None:
    """It listens, but what it would free is nothing."""
    async with holding(1, "--name", name) as holder:
        fault = await pageable.listener_fault(TARGET, [holder.pid], listening(holder.pid))
        assert name in fault
