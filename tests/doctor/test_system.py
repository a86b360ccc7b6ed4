"""What is read of the system's limits."""

from __future__ import annotations

from pathlib import Path

import pytest

from llmsnap.doctor.finding import Finding, Status
from llmsnap.doctor.system import system
from tests.doctor.places import GIB, meminfo, write

ALL = "CapEff:\t000001ffffffffff\n"
NONE = "CapEff:\t0000000000000000\n"
NICE = "CapEff:\t0000000000800000\n"
ABOVE_NICE = "CapEff:\t0000000001000000\n"
PTRACE = "CapEff:\t0000000000080000\n"


MOUNTS = "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n"


def group(folder: Path, name: str, limit: str) -> None:
    """Make a control group that uses 1 GiB."""
    path = folder / "sys/fs/cgroup" / name
    path.mkdir(parents=True, exist_ok=True)
    (path / "memory.max").write_text(f"{limit}\n")
    (path / "memory.current").write_text(f"{GIB}\n")


def look(folder: Path, *, wanted_swap: int = 0) -> dict[str, Finding]:
    """Return the findings by check, below `folder`."""
    write(folder / "proc", self__mountinfo=MOUNTS)
    if not (folder / "proc/meminfo").exists():
        write(folder / "proc", meminfo=meminfo())
    found = system(folder, wanted_swap=wanted_swap)
    return {finding.check: finding for finding in found}


@pytest.mark.parametrize(
    ("status", "is_fine"),
    [(ALL, True), (NICE, True), (NONE, False), (PTRACE, False), (ABOVE_NICE, False), ("", False)],
)
def test_paging_out_needs_a_capability(tmp_path: Path, status: str, is_fine: bool) -> None:
    """CAP_SYS_NICE alone will do."""
    write(tmp_path / "proc", self__status=f"Name:\tx\n{status}Seccomp:\t0\n")

    found = look(tmp_path)["sleep by pageout"]

    assert (found.status is Status.OK) == is_fine
    assert is_fine or "AmbientCapabilities=CAP_SYS_NICE" in found.remedy


@pytest.mark.parametrize(
    ("scope", "capabilities", "status"),
    [
        (None, NONE, Status.OK),
        ("0\n", NONE, Status.OK),
        ("1\n", NONE, Status.OK),
        ("2\n", NONE, Status.WARN),
        ("3\n", NONE, Status.WARN),
        ("3\n", PTRACE, Status.OK),
        ("nonsense", NONE, Status.OK),
    ],
)
def test_ptrace(tmp_path: Path, scope: str | None, capabilities: str, status: Status) -> None:
    """Restricted to children is still enough for us."""
    write(tmp_path / "proc", self__status=capabilities)
    if scope is not None:
        write(tmp_path / "proc", sys__kernel__yama__ptrace_scope=scope)

    found = look(tmp_path)["ptrace"]

    assert found.status is status
    assert bool(found.remedy) == (status is Status.WARN)


@pytest.mark.parametrize(
    ("swap_gib", "free_gib", "wanted_gib", "status", "says"),
    [
        (0, 0, 0, Status.WARN, "none"),
        (16, 12, 0, Status.OK, "12 GiB of 16 GiB free"),
        (16, 12, 12, Status.OK, "12 GiB of 16 GiB free"),
        (16, 12, 13, Status.WARN, "12 GiB of 16 GiB free"),
        (16, 0.5, 0, Status.WARN, "512 MiB of 16 GiB free"),
    ],
)
def test_swap(
    tmp_path: Path, swap_gib: float, free_gib: float, wanted_gib: int, status: Status, says: str
) -> None:
    """There must be room for the largest model on the CPU, and for something anyway."""
    write(tmp_path / "proc", meminfo=meminfo(swap_gib=swap_gib, free_gib=free_gib))

    found = look(tmp_path, wanted_swap=wanted_gib * GIB)["swap"]

    assert (found.status, found.found) == (status, says)
    assert bool(found.remedy) == (status is Status.WARN)


def test_memory_without_a_limit(tmp_path: Path) -> None:
    """Neither without control groups nor with groups that don't limit."""
    fine = Finding("memory", Status.OK, "32 GiB of 64 GiB free, no limit by a control group")
    assert look(tmp_path)["memory"] == fine

    write(tmp_path / "proc", self__cgroup="0::/user/me\n")
    group(tmp_path, "user/me", "max")
    assert look(tmp_path)["memory"] == fine


@pytest.mark.parametrize("limited", ["user/me", "user"])
def test_memory_below_a_limit(tmp_path: Path, limited: str) -> None:
    """Of our own group, or of one around it."""
    write(tmp_path / "proc", self__cgroup="1:name=systemd:/x\n0::/user/me\n")
    group(tmp_path, "user/me", "max")
    group(tmp_path, limited, str(16 * GIB))

    found = look(tmp_path)["memory"]

    assert found.status is Status.WARN
    assert found.found == (
        "15 GiB of 16 GiB free, a limit by a control group; the machine has 32 GiB of 64 GiB free"
    )
    assert "sleep.ramBudget" in found.remedy


@pytest.mark.parametrize("text", [None, "", "MemTotal: x\n"])
def test_memory_that_cant_be_read(tmp_path: Path, text: str | None) -> None:
    """Other checks go on."""
    if text is not None:
        write(tmp_path / "proc", meminfo=text)

    found = system(tmp_path, wanted_swap=0)

    assert [finding.check for finding in found] == ["sleep by pageout", "ptrace", "memory"]
    assert found[-1].status is Status.WARN


def test_this_very_system_can_be_read() -> None:
    """Whatever it allows."""
    found = system(Path("/"), wanted_swap=0)

    assert [finding.check for finding in found] == ["sleep by pageout", "ptrace", "swap", "memory"]
