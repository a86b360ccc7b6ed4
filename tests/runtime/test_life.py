from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from llmsnap.core.lifecycle import Trigger
from llmsnap.runtime.adoption import Heirloom
from llmsnap.runtime.conversations import NoConversations
from llmsnap.runtime.lasting import can_last, inherited
from llmsnap.runtime.life import Life
from llmsnap.runtime.process import Child
from llmsnap.runtime.proctable import read_entry
from llmsnap.runtime.runfile import Will
from llmsnap.runtime.runner import Runner
from llmsnap.runtime.upstream import Upstream
from tests.runtime.rig import Rig, plan


class Heard(NoConversations):
    """Notes what it is told."""

    def __init__(self) -> None:
        self.met: list[tuple[int, bool]] = []

    def ready(
        self, process: Upstream, argv: Sequence[str], env: Mapping[str, str], *, adopted: bool
    ) -> None:
        """Note which generation, and whether it was adopted."""
        self.met.append((process.generation, adopted))


@pytest.mark.skipif(not can_last(), reason="needs pidfds")
async def test_conversations_hear_whether_a_process_is_new(rig: Rig) -> None:
    """What an earlier proxy left may hold some that nobody here knows."""
    heard = Heard()
    tools = replace(rig.tools(), conversations=heard)
    runner = rig.runners["a"] = Runner(plan(), tools)
    runner.start(1)
    await rig.reported(Trigger.READY)
    assert runner.pid is not None
    entry = read_entry(runner.pid)
    assert entry is not None
    child = Child(inherited(entry.pid, entry.started), "", {}, is_ours=False)
    will = Will(effect="", generation=7, state="ready", host="127.0.0.1")
    Life(plan(), 7, tools, heirloom=Heirloom(will=will, child=child))
    child.let_go()

    assert heard.met == [(1, False), (7, True)]
