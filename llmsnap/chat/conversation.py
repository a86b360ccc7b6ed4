"""What was said so far, and by whom."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct, field


class Message(Struct, frozen=True):
    """One turn, as OpenAI's clients write it."""

    role: Literal["system", "user", "assistant"]
    content: str


class Conversation(Struct):
    """A model and what was said to it and by it; another model may go on with it."""

    model: str
    messages: list[Message] = field(default_factory=list)
    open_question: str = ""
    """Asked, and left without an answer; it isn't among the messages."""

    @classmethod
    def begun(cls, model: str, system: str = "") -> Conversation:
        """Return one in which nothing was asked yet."""
        conversation = cls(model)
        conversation.instruct(system)
        return conversation

    @property
    def system(self) -> str:
        """What the model was told about its part; empty: nothing."""
        first = self.messages[:1]
        return first[0].content if first and first[0].role == "system" else ""

    def instruct(self, text: str) -> None:
        """Tell the model about its part, in place of what it was told; empty: nothing."""
        rest = self.messages[1:] if self.system else self.messages
        self.messages = [Message("system", text), *rest] if text else rest

    def ask(self, question: str) -> None:
        """Put a question."""
        self.open_question = question

    def asked(self) -> list[Message]:
        """Return what the model is to go on from: all messages and the open question."""
        return [*self.messages, Message("user", self.open_question)]

    def answer(self, text: str) -> None:
        """Take the answer to the open question. Without any text the question stays open.

        Many chat templates refuse two questions in a row, so that one without an answer is no
        message.
        """
        if text:
            self.messages += [Message("user", self.open_question), Message("assistant", text)]
            self.open_question = ""

    def retry(self) -> bool:
        """Open the last question again; False: there is none."""
        if not self.open_question and self.messages and self.messages[-1].role == "assistant":
            self.messages.pop()
            self.open_question = self.messages.pop().content
        return bool(self.open_question)
