"""What the kernel says of processes that it has ended for lack of memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from llmsnap.memory.oomkills import oom_kills
from tests.memory.recordings import CONTAINER_2, HYBRID, SERVICE, write


def test_kernels_that_tell_nothing(tmp_path: Path) -> None:
    """None, which isn't the same as none."""
    assert oom_kills(tmp_path) is None
    assert oom_kills(write(tmp_path, CONTAINER_2)) is None


@pytest.mark.parametrize(
    ("files", "counts", "expected"),
    [
        (SERVICE, {"proc/vmstat": "nr_free_pages 7\noom_kill 3\n"}, 3),
        (
            SERVICE,
            {
                "proc/vmstat": "oom_kill 3\n",
                "sys/fs/cgroup/models.slice/llmsnap.service/memory.events": "oom 9\noom_kill 1\n",
            },
            4,
        ),
        (
            HYBRID,
            {
                "sys/fs/cgroup/memory/user/one/memory.oom_control": "under_oom 0\noom_kill 2\n",
                "sys/fs/cgroup/memory/user/memory.oom_control": "oom_kill_disable 0\n",
            },
            2,
        ),
    ],
    ids=["machine", "service", "version 1"],
)
def test_what_is_counted(
    tmp_path: Path, files: dict[str, str], counts: dict[str, str], expected: int
) -> None:
    """On the machine, and in each cgroup that we are in."""
    assert oom_kills(write(tmp_path, {**files, **counts})) == expected


def test_this_machine() -> None:
    """Whatever it says, nothing is raised, and it never goes down."""
    before, after = oom_kills(), oom_kills()

    assert (before is None) is (after is None)
    assert (after or 0) >= (before or 0)
