"""Conversations on disk."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

import pytest

from llmsnap.chat.archive import Archive
from llmsnap.chat.conversation import Conversation
from llmsnap.errors import LlmsnapError

NOW = datetime(2026, 11, 30, 12, 0, 5, tzinfo=UTC)


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    """An empty one, whose folder isn't there yet."""
    return Archive(tmp_path / "chats")


def said(text: str) -> Conversation:
    """A conversation of one question."""
    conversation = Conversation.begun("m")
    conversation.ask(text)
    conversation.answer("ho")
    return conversation


def test_what_is_kept_comes_back(archive: Archive, tmp_path: Path) -> None:
    """From a file that only its owner may read, in a folder likewise; no draft is left."""
    archive.save("mine", said("hi"))

    assert archive.load("mine") == said("hi")
    (path,) = (tmp_path / "chats").iterdir()
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700


def test_the_last_one_comes_first(archive: Archive, tmp_path: Path) -> None:
    """By when it was last written."""
    for age, name in enumerate(("new", "old")):
        archive.save(name, said("hi"))
        os.utime(tmp_path / "chats" / f"{name}.json", (1000 - age, 1000 - age))

    assert archive.names() == ["new", "old"]


def test_names_after_the_time_differ(archive: Archive) -> None:
    """Two chats may begin in one second."""
    first = archive.new_name(NOW)
    archive.save(first, said("hi"))

    assert (first, archive.new_name(NOW)) == ("20261130-120005", "20261130-120005-2")


def test_so_many_without_a_name_are_kept(archive: Archive) -> None:
    """Those that somebody gave a name stay."""
    archive.save("mine", said("hi"))
    for _ in range(105):
        archive.save(archive.new_name(NOW), said("hi"))

    names = archive.names()
    assert len(names) == 101
    assert "mine" in names


@pytest.mark.parametrize("name", ["", "../mine", "a/b", ".hidden", "x" * 101])
def test_names_stay_in_the_folder(archive: Archive, name: str) -> None:
    """What isn't a plain name is refused."""
    with pytest.raises(LlmsnapError, match="can't be the name"):
        archive.save(name, said("hi"))


def test_what_cant_be_read_is_told(archive: Archive, tmp_path: Path) -> None:
    """A name that there isn't, with those that there are; a file that is none of ours."""
    archive.save("mine", said("hi"))
    with pytest.raises(LlmsnapError, match="'other'; there are: mine"):
        archive.load("other")
    (tmp_path / "chats" / "mine.json").write_text("{")
    with pytest.raises(LlmsnapError, match="can't be read"):
        archive.load("mine")


def test_a_folder_that_cant_be_made_is_told(tmp_path: Path) -> None:
    """Where a file is in the way, say."""
    (tmp_path / "chats").write_text("")
    with pytest.raises(LlmsnapError, match="can't be kept"):
        Archive(tmp_path / "chats").save("mine", said("hi"))
