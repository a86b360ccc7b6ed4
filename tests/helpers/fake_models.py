"""Configurations over `fake_server`, and what it wrote down."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.helpers.ports import free_ports


@dataclass
class FakeModels:
    """A configuration under construction; each model keeps a journal in `folder`."""

    folder: Path
    head: str = ""
    entries: dict[str, str] = field(default_factory=dict)

    def add(self, name: str, options: str = "", *, more: str = "") -> FakeModels:
        """Add a model; `more` is further YAML of its entry, one key a line."""
        return self.add_command(name, self.command(name, options), more=more)

    def add_command(self, name: str, command: str, *, more: str = "") -> FakeModels:
        """Add a model with a command of its own."""
        lines = [f"  {json.dumps(name)}:", "    cmd: |", f"      {command}"]
        lines += [f"    {line}" for line in more.splitlines()]
        self.entries[name] = "\n".join(lines)
        return self

    def command(self, name: str, options: str = "") -> str:
        """The command line of a fake server with the journal of `name`."""
        journal = self._journal(name)
        python = f"{sys.executable} -m tests.helpers.fake_server"
        return f"{python} --port ${{PORT}} --journal {journal} {options}"

    @property
    def yaml(self) -> str:
        """The whole file, on ports of its own."""
        lines = [self.head, f"startPort: {free_ports(max(len(self.entries), 1))}"]
        if "memory:" not in self.head:
            lines.append("memory: {mode: off}")  # these models hold next to nothing
        if "sleep:" not in self.head:
            lines.append("sleep: {mode: off}")  # stopped is stopped, on a machine with swap too
        return "\n".join([*lines, "models:", *self.entries.values()])

    def journal(self, name: str) -> list[dict[str, Any]]:
        """What the server of `name` wrote down, oldest first."""
        path = self._journal(name)
        if not path.exists():
            return []
        return [json.loads(line) for line in path.read_text().splitlines()]

    def count(self, name: str, event: str) -> int:
        """How often `event` stands in the journal of `name`."""
        return sum(entry["event"] == event for entry in self.journal(name))

    def when(self, name: str, event: str) -> float:
        """When `event` came first in the journal of `name`, on the machine's monotonic clock."""
        found = (entry["at"] for entry in self.journal(name) if entry["event"] == event)
        return float(next(found))

    def _journal(self, name: str) -> Path:
        return self.folder / f"{name.replace('/', '_')}.journal"
