"""Which cgroups limit a process, and to what."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from llmsnap.memory import cgroup
from tests.memory.recordings import CONTAINER_1, CONTAINER_2, GIB, HYBRID, SERVICE, write

MEMBERSHIP, MOUNTS = "proc/self/cgroup", "proc/self/mountinfo"


def places(files: Mapping[str, str]) -> list[tuple[str, int]]:
    """Path and version of each cgroup, the own one first."""
    found = cgroup.folders(files[MEMBERSHIP], files[MOUNTS])
    return [(str(folder.path), folder.version) for folder in found]


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        pytest.param(CONTAINER_2, [("/sys/fs/cgroup", 2)], id="container, version 2"),
        pytest.param(CONTAINER_1, [("/sys/fs/cgroup/memory", 1)], id="container, version 1"),
        pytest.param(
            SERVICE,
            [
                ("/sys/fs/cgroup/models.slice/llmsnap.service", 2),
                ("/sys/fs/cgroup/models.slice", 2),
                ("/sys/fs/cgroup", 2),
            ],
            id="service in a slice",
        ),
        pytest.param(
            HYBRID,
            [
                ("/sys/fs/cgroup/memory/user/one", 1),
                ("/sys/fs/cgroup/memory/user", 1),
                ("/sys/fs/cgroup/memory", 1),
                ("/sys/fs/cgroup/unified", 2),
            ],
            id="both versions",
        ),
    ],
)
def test_every_level_up_to_the_mount_counts(
    files: Mapping[str, str], expected: list[tuple[str, int]]
) -> None:
    """A limit may be set on any of them."""
    assert places(files) == expected


def test_a_cgroup_outside_of_what_is_mounted_is_judged_by_the_mount() -> None:
    """So it looks from inside a container whose cgroup has been moved."""
    mounts = "33 24 0:28 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"
    folders = list(cgroup.folders("0::/../sibling\n", mounts))
    assert [str(folder.path) for folder in folders] == ["/sys/fs/cgroup"]


def test_a_mount_point_may_hold_blanks() -> None:
    """The kernel writes them as octal numbers."""
    mounts = "33 24 0:28 / /mnt/my\\040cgroups rw - cgroup2 cgroup2 rw\n"
    folders = list(cgroup.folders("0::/\n", mounts))
    assert [str(folder.path) for folder in folders] == ["/mnt/my cgroups"]


def test_pages_of_files_are_left_of_a_limit(tmp_path: Path) -> None:
    """3 of 4 GiB are in use, but 2 of these are cached files: 3 are to be had."""
    folder = write(tmp_path, CONTAINER_2) / "sys/fs/cgroup"
    level = cgroup.read_level(folder, 2)
    assert level.limit_bytes == 4 * GIB
    assert level.free_bytes == 3 * GIB + 4096
    assert (level.swap_limit_bytes, level.swap_free_bytes) == (0, 0)


def test_version_1_limits_memory_and_swap_together(tmp_path: Path) -> None:
    """What its second limit is above the first is swap; figures of those below count."""
    folder = write(tmp_path, CONTAINER_1) / "sys/fs/cgroup/memory"
    level = cgroup.read_level(folder, 1)
    assert (level.limit_bytes, level.free_bytes) == (2 * GIB, GIB + GIB // 2)
    assert (level.swap_limit_bytes, level.swap_free_bytes) == (GIB, GIB - GIB // 4)


@pytest.mark.parametrize("version", [1, 2])
def test_a_folder_without_files_sets_no_limit(tmp_path: Path, version: int) -> None:
    """The topmost cgroup has none, and the controller may be with the other version."""
    level = cgroup.read_level(tmp_path, version)
    assert (level.limit_bytes, level.swap_limit_bytes) == (None, None)
