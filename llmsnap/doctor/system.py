"""What the system allows: capabilities, ptrace, swap, and memory within its limits."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from llmsnap.config.quantities import size_text
from llmsnap.doctor.finding import Finding, Status
from llmsnap.memory import kernel
from llmsnap.memory.host import Host
from llmsnap.memory.kernel import Room

_SYS_PTRACE: Final = 19
_SYS_NICE: Final = 23
_SPARE_SWAP: Final = 1024**3
"""Less free swap than this is as good as none."""

_PTRACE: Final = {
    0: (Status.OK, "0: our own processes are ours"),
    1: (Status.OK, "1: our children are ours"),
    2: (Status.WARN, "2: only for administrators"),
    3: (Status.WARN, "3: for nobody"),
}


def system(root: Path, *, wanted_swap: int) -> list[Finding]:
    """Return what Linux allows us; `root` is where its `proc` and `sys` are.

    `wanted_swap` is how many bytes the largest model on the CPU would take there.
    """
    proc = root / "proc"
    findings = [_nice(proc), _ptrace(proc)]
    try:
        host = Host(root=root)
        machine = kernel.ram(kernel.sizes((proc / "meminfo").read_text()))
        findings += [_swap(host.swap(), wanted_swap), _memory(host.ram(), machine)]
    except (OSError, KeyError, ValueError) as error:
        findings.append(Finding("memory", Status.WARN, f"it can't be read: {error}", "mount /proc"))
    return findings


def swap_room(root: Path) -> Room:
    """Return the swap that there is; none where that can't be read."""
    try:
        return Host(root=root).swap()
    except (OSError, KeyError, ValueError):
        return Room(0, 0)


def pageout_fault(root: Path, swap: Room) -> str:
    """Return why no model's memory can be paged out here; empty when nothing speaks against it."""
    if not _has_capability(root / "proc", _SYS_NICE):
        return "CAP_SYS_NICE isn't there"
    return "" if swap.total_bytes else "there is no swap"


def _nice(proc: Path) -> Finding:
    check = "sleep by pageout"
    if _has_capability(proc, _SYS_NICE):
        return Finding(check, Status.OK, "CAP_SYS_NICE is there")
    remedy = (
        "give the service AmbientCapabilities=CAP_SYS_NICE (systemd), or run llmsnap as root; "
        "only models on the CPU need it"
    )
    return Finding(check, Status.WARN, "CAP_SYS_NICE isn't there", remedy)


def _ptrace(proc: Path) -> Finding:
    check = "ptrace"
    text = _text(proc / "sys/kernel/yama/ptrace_scope").strip()
    if not text.isdecimal():
        return Finding(check, Status.OK, "not restricted")
    status, meaning = _PTRACE.get(int(text), (Status.WARN, text))
    if status is Status.OK or _has_capability(proc, _SYS_PTRACE):
        return Finding(check, Status.OK, f"scope {meaning}")
    remedy = "sleep by cuda may be refused; `sysctl kernel.yama.ptrace_scope=1`"
    return Finding(check, status, f"scope {meaning}", remedy)


def _swap(swap: Room, wanted: int) -> Finding:
    if swap.total_bytes == 0:
        remedy = (
            "`fallocate -l 16G /swapfile && chmod 600 /swapfile && mkswap /swapfile && "
            "swapon /swapfile`, or zram; only models on the CPU sleep there"
        )
        return Finding("swap", Status.WARN, "none", remedy)
    if swap.free_bytes >= max(wanted, _SPARE_SWAP):
        return Finding("swap", Status.OK, _left(swap))
    remedy = "add some; the largest model on the CPU can't sleep"
    return Finding("swap", Status.WARN, _left(swap), remedy)


def _memory(allowed: Room, machine: Room) -> Finding:
    if allowed.total_bytes >= machine.total_bytes:
        return Finding("memory", Status.OK, f"{_left(machine)}, no limit by a control group")
    found = f"{_left(allowed)}, a limit by a control group; the machine has {_left(machine)}"
    remedy = "models asleep in RAM count there too: raise it, or set sleep.ramBudget well below it"
    return Finding("memory", Status.WARN, found, remedy)


def _left(room: Room) -> str:
    return f"{size_text(room.free_bytes)} of {size_text(room.total_bytes)} free"


def _has_capability(proc: Path, number: int) -> bool:
    found = re.search(r"^CapEff:\s*([0-9a-f]+)$", _text(proc / "self/status"), re.MULTILINE)
    return found is not None and bool(int(found[1], 16) >> number & 1)


def _text(path: Path) -> str:
    """Return what stands in a file of the kernel's; empty when it isn't there."""
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
