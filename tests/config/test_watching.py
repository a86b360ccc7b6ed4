"""Whether files are still the ones that were read."""

from __future__ import annotations

import os
from pathlib import Path

from llmsnap.config.sources import files_of
from llmsnap.config.watching import Marks, Source, marks_of


def marks(path: Path) -> Marks | None:
    """The marks of one file."""
    return marks_of(lambda: [path])


def test_u82_a_file_put_in_its_place_is_another_one(tmp_path: Path) -> None:
    """Even with the same size and time, as backup tools and editors leave them."""
    path, new = tmp_path / "c.yaml", tmp_path / "new"
    path.write_text("a")
    before = marks(path)
    assert before is not None
    new.write_text("b")
    os.utime(new, ns=(before[0].changed_ns, before[0].changed_ns))
    new.replace(path)
    assert marks(path) != before


def test_u82_a_link_further_up_that_leads_elsewhere_is_noticed(tmp_path: Path) -> None:
    """As Kubernetes swaps `..data`, with files of the same size and time in both folders."""
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "c.yaml").write_text(name)
    data, path = tmp_path / "..data", tmp_path / "c.yaml"
    data.symlink_to("one")
    path.symlink_to(Path("..data") / "c.yaml")
    before = marks(path)
    (tmp_path / "new").symlink_to("two")
    (tmp_path / "new").replace(data)
    assert marks(path) != before


def test_a_file_that_is_written_in_place_is_noticed(tmp_path: Path) -> None:
    """By its size and time."""
    path = tmp_path / "c.yaml"
    path.write_text("a")
    before = marks(path)
    assert marks(path) == before
    path.write_text("ab")
    assert marks(path) != before


def test_what_isnt_there_has_no_marks(tmp_path: Path) -> None:
    """Nor has a link that leads nowhere, or a folder without files."""
    (tmp_path / "link").symlink_to("nowhere")
    assert marks(tmp_path / "c.yaml") is None
    assert marks(tmp_path / "link") is None
    assert marks_of(lambda: files_of(None, tmp_path)) is None


def test_a_folder_changes_with_the_files_in_it(tmp_path: Path) -> None:
    """One more, or one less."""
    (tmp_path / "a.yaml").write_text("a")
    source = Source.at(lambda: files_of(None, tmp_path), watched=True)
    assert source.first == marks_of(source.files)
    (tmp_path / "b.yaml").write_text("b")
    assert source.first != marks_of(source.files)
