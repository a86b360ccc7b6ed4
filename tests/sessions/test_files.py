"""Files that are whole or not there, for their owner alone."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from llmsnap.sessions import files
from llmsnap.sessions.files import FileFault, Kept

NAME = "0123456789abcdef" * 2 + ".kv"
MIB = 2**20


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder that is fit for use."""
    path = tmp_path / "deep" / "sessions"
    files.prepare(path)
    return path


def written(folder: Path, data: bytes) -> str:
    """What a server writes under a name that isn't the last one."""
    name = files.temporary_name()
    (folder / name).write_bytes(data)
    return name


def kept(folder: Path, data: bytes = b"x" * 1000, name: str = NAME) -> Kept:
    """A file that was kept."""
    return files.promote(folder, written(folder, data), name, len(data))


def test_u131_e20_e22_the_folder_is_made_for_its_owner_alone(folder: Path) -> None:
    """With its parents, before anything is asked about its disk."""
    assert folder.stat().st_mode & 0o777 == 0o700
    assert files.room(folder).total > 0
    folder.chmod(0o755)
    files.prepare(folder)
    assert folder.stat().st_mode & 0o777 == 0o700
    assert [*folder.iterdir()] == []


def test_e22_a_link_in_place_of_the_folder_is_refused(tmp_path: Path, folder: Path) -> None:
    """And so is a file."""
    link, file = tmp_path / "link", tmp_path / "file"
    link.symlink_to(folder)
    file.write_text("")
    for place in (link, file):
        with pytest.raises(FileFault, match=r"sessions\.dir"):
            files.prepare(place)


def test_what_is_whole_gets_its_name(folder: Path) -> None:
    """It is readable by its owner alone, and the other name is gone."""
    found = kept(folder)

    assert [file.name for file in folder.iterdir()] == [NAME]
    assert (folder / NAME).stat().st_mode & 0o777 == 0o600
    assert files.fault_of(folder, NAME, found) == ""


@pytest.mark.parametrize("data", [b"", b"x" * 36, b"x" * 999])
def test_u123_e12_what_is_empty_or_short_takes_nothings_place(folder: Path, data: bytes) -> None:
    """The file that was good is still there."""
    found = kept(folder)
    with pytest.raises(FileFault):
        files.promote(folder, written(folder, data), NAME, 1000)

    assert files.fault_of(folder, NAME, found) == ""


def test_what_isnt_there_is_told(folder: Path) -> None:
    """The server said it had written it."""
    with pytest.raises(FileFault, match="No such file"):
        files.promote(folder, files.temporary_name(), NAME, 1000)


@pytest.mark.parametrize("size", [1000, 70 * MIB])
def test_what_was_changed_since_is_found_out(folder: Path, size: int) -> None:
    """Truncated, another file renamed into its place, a link, a second name, or gone."""
    path, data = folder / NAME, bytes(size)
    found = kept(folder, data)
    other = b"y" * 10 + data[10:]

    os.truncate(path, size - 1)
    assert "bytes, not" in files.fault_of(folder, NAME, found)
    path.write_bytes(other)
    assert files.fault_of(folder, NAME, found) == "its content is another"
    path.write_bytes(data[:-1] + b"z")
    assert files.fault_of(folder, NAME, found) == "its content is another"
    path.unlink()
    assert files.fault_of(folder, NAME, found)
    target = folder / "target"
    target.write_bytes(data)
    path.symlink_to(target)
    assert files.fault_of(folder, NAME, found)
    path.unlink()
    path.hardlink_to(target)
    assert files.fault_of(folder, NAME, found) == "it is no plain file"


def test_a_fifo_blocks_nobody(folder: Path) -> None:
    """It is no plain file."""
    os.mkfifo(folder / NAME)
    assert files.fault_of(folder, NAME, Kept(1000, "")) == "it is no plain file"


def test_e22_a_link_that_a_server_has_written_through_is_refused(
    folder: Path, tmp_path: Path
) -> None:
    """Its target isn't taken in."""
    target = tmp_path / "precious"
    target.write_bytes(b"x" * 1000)
    name = files.temporary_name()
    (folder / name).symlink_to(target)
    with pytest.raises(FileFault):
        files.promote(folder, name, NAME, 1000)
    assert target.read_bytes() == b"x" * 1000


def test_what_is_set_aside_is_out_of_use(folder: Path) -> None:
    """A file stays as `.bad`, a link goes."""
    kept(folder)
    files.set_aside(folder, NAME)
    assert [file.suffix for file in folder.iterdir()] == [".bad"]

    (folder / NAME).symlink_to("/etc/passwd")
    files.set_aside(folder, NAME)
    assert [file.suffix for file in folder.iterdir()] == [".bad"]
    assert Path("/etc/passwd").exists()


def test_only_old_files_that_are_ours_and_unknown_are_swept(folder: Path) -> None:
    """Not what somebody else has put there, nor what another proxy may just be writing."""
    kept(folder)
    for name in ("notes.txt", "f" * 32 + ".kv", "e" * 32 + ".part", "d" * 32 + ".bad"):
        (folder / name).write_bytes(b"x")
    now = (folder / NAME).stat().st_mtime

    def left() -> list[str]:
        return sorted(file.name[:1] for file in folder.iterdir())

    assert files.sweep(folder, {NAME}, older_than=now - 300, broken_before=now - 300) == 0
    assert files.sweep(folder, {NAME}, older_than=now + 300, broken_before=now - 300) == 2
    assert left() == ["0", "d", "n"]
    assert files.sweep(folder, {NAME}, older_than=now + 300, broken_before=now + 300) == 1
    assert left() == ["0", "n"]


def test_sizes_are_those_on_the_disk_and_links_are_nothing(folder: Path) -> None:
    """Ten thousand files are looked at in no time."""
    kept(folder, bytes(5000))
    (folder / ("a" * 32 + ".kv")).symlink_to("/etc/passwd")
    for number in range(10_000):
        (folder / f"{number:032x}.kv").touch()
    began = time.perf_counter()
    found = files.sizes(folder)

    assert time.perf_counter() - began < 30
    assert len(found) == 10_002
    assert 5000 <= sum(found.values()) < 20_000
