"""Conversations on disk, a file each, for their owner's eyes only."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Final

import msgspec

from llmsnap.chat.conversation import Conversation
from llmsnap.errors import LlmsnapError

_NAME: Final = re.compile(r"\w[\w.-]{0,99}")
_UNNAMED: Final = re.compile(r"\d{8}-\d{6}(-\d+)?")
_KEPT: Final = 100
"""So many conversations that nobody gave a name are kept."""


class Archive:
    """The conversations in one folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def new_name(self, now: datetime) -> str:
        """Return a name that no conversation has, after the time."""
        base = name = f"{now:%Y%m%d-%H%M%S}"
        number = 1
        while self._path(name).exists():
            number += 1
            name = f"{base}-{number}"
        return name

    def names(self) -> list[str]:
        """Return the names of all conversations, the last one first."""
        found: list[tuple[int, str]] = []
        for path in self._folder.glob("*.json"):
            with suppress(OSError):  # deleted just now
                found.append((path.stat().st_mtime_ns, path.stem))
        return [name for _, name in sorted(found, reverse=True)]

    def save(self, name: str, conversation: Conversation) -> None:
        """Write it, whole or not at all. Raises LlmsnapError."""
        path = self._path(name)
        draft = path.with_suffix(f".{os.getpid()}")
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            draft.unlink(missing_ok=True)
            with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(msgspec.json.encode(conversation))
            draft.replace(path)
            self._thin_out()
        except OSError as error:
            with suppress(OSError):
                draft.unlink()
            raise LlmsnapError(f"the conversation can't be kept in {path}: {error}") from error

    def load(self, name: str) -> Conversation:
        """Read it. Raises LlmsnapError."""
        path = self._path(name)
        try:
            return msgspec.json.decode(path.read_bytes(), type=Conversation)
        except FileNotFoundError:
            known = ", ".join(self.names()[:10]) or "none yet"
            raise LlmsnapError(f"no conversation is called {name!r}; there are: {known}") from None
        except (OSError, msgspec.DecodeError) as error:
            raise LlmsnapError(f"the conversation in {path} can't be read: {error}") from error

    def _path(self, name: str) -> Path:
        if not _NAME.fullmatch(name):
            raise LlmsnapError(
                f"{name!r} can't be the name of a conversation; "
                "take up to 100 letters, digits, points and dashes"
            )
        return self._folder / f"{name}.json"

    def _thin_out(self) -> None:
        unnamed = [name for name in self.names() if _UNNAMED.fullmatch(name)]
        for name in unnamed[_KEPT:]:
            self._path(name).unlink(missing_ok=True)
