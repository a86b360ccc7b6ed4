"""The conversation that lies on the desk, what goes along with its next question, and its name."""

from __future__ import annotations

from pathlib import Path

from llmsnap.chat.archive import Archive
from llmsnap.chat.conversation import Conversation
from llmsnap.errors import LlmsnapError


class Desk:
    """One conversation at a time, out of `archive` and back."""

    def __init__(self, archive: Archive, conversation: Conversation, name: str) -> None:
        self.archive = archive
        self.conversation = conversation
        self.name = name
        """By which it is kept."""
        self._enclosed: list[str] = []

    def enclose(self, path: Path) -> None:
        """Have the text of a file go along with the next question. Raises LlmsnapError."""
        try:
            text = path.expanduser().read_text("utf-8")
        except UnicodeDecodeError:
            raise LlmsnapError(f"{path} is no text (UTF-8)") from None
        except OSError as error:
            raise LlmsnapError(f"{path} can't be read: {error.strerror}") from error
        self._enclosed.append(f"{path.name}:\n\n```\n{text.rstrip()}\n```\n\n")

    def ask(self, question: str) -> None:
        """Put `question`, with what was enclosed before it."""
        self.conversation.ask("".join([*self._enclosed, question]))
        self._enclosed.clear()

    def keep(self) -> None:
        """Write the conversation down, once something was said. Raises LlmsnapError."""
        if any(message.role != "system" for message in self.conversation.messages):
            self.archive.save(self.name, self.conversation)

    def keep_as(self, name: str) -> None:
        """Write it down under `name`, now and from now on. Raises LlmsnapError."""
        self.archive.save(name, self.conversation)
        self.name = name

    def take(self, name: str) -> None:
        """Go on with the conversation called `name`. Raises LlmsnapError."""
        self.conversation = self.archive.load(name)
        self.name = name
        self._enclosed.clear()

    def clear(self, name: str) -> None:
        """Begin a new one with the same model and the same word about its part."""
        self.conversation = Conversation.begun(self.conversation.model, self.conversation.system)
        self.name = name
        self._enclosed.clear()
