"""Who may read the database's files, who has claimed them, and what broken ones are called."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from llmsnap.store.files import Claim, inode, make_private, set_aside


def test_a_claim_is_held_by_one(tmp_path: Path) -> None:
    """Until it is given up."""
    path = tmp_path / "x.db"
    with closing(Claim.on(path)) as first:
        assert first.held
        with closing(Claim.on(path)) as second:
            assert not second.held
    with closing(Claim.on(path)) as third:
        assert third.held
        third.close()


def test_a_claim_needs_a_folder(tmp_path: Path) -> None:
    """It doesn't make one."""
    with pytest.raises(OSError, match="no-folder"):
        Claim.on(tmp_path / "no-folder" / "x.db")


def test_files_that_all_could_read_become_private(tmp_path: Path) -> None:
    """Those of an earlier time; what is in them stays."""
    path, wal = tmp_path / "x.db", tmp_path / "x.db-wal"
    path.write_text("kept")
    wal.touch()
    for file in (path, wal):
        file.chmod(0o644)
    make_private(path)

    assert path.read_text() == "kept"
    assert {file.stat().st_mode & 0o777 for file in (path, wal)} == {0o600}


def test_broken_files_keep_what_belongs_to_them(tmp_path: Path) -> None:
    """The log beside the file goes where the file goes, under the next free number."""
    path = tmp_path / "x.db"
    for number in (1, 2):
        path.write_text("main")
        path.with_name("x.db-wal").write_text("log")
        aside = set_aside(path)

        assert aside == tmp_path / f"x.db.corrupt-{number}"
        assert aside.read_text() == "main"
        assert aside.with_name(f"{aside.name}-wal").read_text() == "log"
    assert inode(path) is None
