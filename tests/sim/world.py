"""One simulated machine: its cards, its knobs, and what its driver was asked to do."""

from __future__ import annotations

import os
import struct
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

MIB: Final = 1024**2

_RECORD: Final = struct.Struct("=6i q 4d 8Q")
"""`struct sim_record` of gpusim.h."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Knobs:
    """What the libraries look up before each thing they do; changes count at once."""

    driver: str = "580.159.03"
    cuda: int = 13000
    """What cuDriverGetVersion answers."""
    cu_init: int = 0
    """A result code that cuInit answers with, when not 0."""
    init_ms: int = 0
    persistence: int = 1
    """0: a restore needs a caller that has called cuInit."""
    context_mib: int = 64
    reserved_mib: int = 400
    fixed_ms: int = 5
    """What each checkpoint and restore takes beside the bytes."""
    checkpoint_mibps: int = 4000
    restore_mibps: int = 7000
    memset_mibps: int = 100_000
    lock_ms: int = 2
    unlock_ms: int = 2
    late_ms: int = 0
    """How long NVML goes on counting memory that was given back."""
    leak_percent: int = 33
    """What a restore out of memory leaves taken."""
    managed_breaks: int = 0
    """1: the context is dead after a refused checkpoint, as on 595."""
    host_room_mib: int = 0
    """RAM that the target's cgroup leaves for the copy; 0: enough."""
    mig: int = 0
    """1: the card is split; -1: it can't be."""
    processes: str = "all"
    """`unknown` (no bytes), `unsupported` or `denied` (no list)."""
    pid_offset: int = 0
    """Added to each listed pid, as another pid namespace would."""
    nvml_init: int = 0
    nvml_stall: int = 0
    """1: every NVML call hangs until it is 0 again."""
    driver_loads: int = 0
    """A new number: the driver was unloaded and loaded again."""
    lost_gpu: int = -1
    memory_unsupported: int = 0
    gpu_percent: int = 0
    """This and the next: what NVML tells of the card's state; negative: it doesn't."""
    power_mw: int = 21_500
    power_limit_mw: int = 450_000
    celsius: int = 41
    pcie_generation: int = 1
    pcie_width: int = 16
    pcie_max_generation: int = 4
    pcie_max_width: int = 16


@dataclass(frozen=True, slots=True)
class Card:
    """One simulated GPU."""

    uuid: str
    mib: int
    bus: str
    name: str


def card(index: int, mib: int = 24_576, name: str = "Simulated 4090") -> Card:
    """Return a card that differs from others by its `index`."""
    uuid = f"GPU-{index:08x}-5151-4242-8383-{index:012x}"
    return Card(uuid, mib, f"00000000:{index + 1:02X}:00.0", name)


@dataclass(frozen=True, slots=True)
class Record:
    """What the simulated driver knows of one process."""

    state: int
    next_state: int
    poisoned: bool
    bytes: tuple[int, ...]


class World:
    """The folder that the simulated libraries of all processes share."""

    def __init__(self, folder: Path, libraries: Path, *cards: Card) -> None:
        self.folder = folder
        self.libraries = libraries
        self.cards = cards or (card(0),)
        for name in ("records", "operations", "faults"):
            (folder / name).mkdir(parents=True)
        self.plug(*self.cards)
        self.knobs = Knobs()
        self.turn()

    @property
    def environment(self) -> dict[str, str]:
        """What a process needs in its environment to live in this world."""
        return {"LD_LIBRARY_PATH": str(self.libraries), "LLMSNAP_GPU_SIM": str(self.folder)}

    def environ(self, extra: Mapping[str, str] | None = None) -> dict[str, str]:
        """Return the whole environment of a process that lives in this world."""
        return {**os.environ, **self.environment, **(extra or {})}

    def plug(self, *cards: Card) -> None:
        """Let these be the cards; libraries that are initialised notice when they are anew."""
        lines = [f"{c.uuid} {c.mib} {c.bus} {c.name}\n" for c in cards]
        (self.folder / "gpus").write_text("".join(lines))

    def turn(self, **knobs: Any) -> None:
        """Change some knobs; the others stay."""
        self.knobs = replace(self.knobs, **knobs)
        lines = [f"{key} {getattr(self.knobs, key)}\n" for key in Knobs.__slots__]
        fresh = self.folder / "knobs.new"
        fresh.write_text("".join(lines))
        fresh.replace(self.folder / "knobs")

    def plan(self, operation: str, *faults: int | str) -> None:
        """Let the next calls of `operation` give a result code (0: as usual), `hang` or `crash`."""
        (self.folder / "faults" / operation).write_text("".join(f"{fault}\n" for fault in faults))

    def calls(self, pid: int) -> list[tuple[str, int]]:
        """Return the checkpoint calls about `pid` that have ended, with their results."""
        try:
            lines = (self.folder / "calls").read_text().splitlines()
        except FileNotFoundError:
            return []
        words = (line.split() for line in lines)
        return [(op, int(result)) for op, whose, result in words if int(whose) == pid]

    def record(self, pid: int) -> Record | None:
        """Return what the driver last wrote down about `pid`; None: it has no context."""
        try:
            fields = _RECORD.unpack((self.folder / "records" / str(pid)).read_bytes())
        except FileNotFoundError:
            return None
        return Record(fields[1], fields[2], bool(fields[4]), fields[-8:])
