"""The chat: question, answer, what the answer took, and the next question."""

from __future__ import annotations

from dataclasses import dataclass

from msgspec import to_builtins

from llmsnap.chat.commands import Floor, Then, obey
from llmsnap.chat.line import line_of
from llmsnap.chat.models import what_it_takes
from llmsnap.client.stream import CHAT_PATH, Figures, Stream, ask
from llmsnap.errors import LlmsnapError


@dataclass
class _Answer:
    text: str = ""
    figures: Figures | None = None
    """None: not even its head came."""


class Room:
    """One person, one conversation at a time."""

    def __init__(self, floor: Floor, *, keeps: bool = True) -> None:
        """`keeps`: whether the conversation is written down after each answer."""
        self._floor = floor
        self._keeps = keeps
        self._terminal = floor.terminal

    def run(self) -> None:
        """Talk until the person leaves."""
        model = self._floor.desk.conversation.model
        self._terminal.note(f"{model}; /help shows the commands, Ctrl-D leaves")
        then = Then.NEXT_LINE
        while then is not Then.LEAVE:
            try:
                then = self._line()
                if then is Then.ANSWER:
                    self.answer()
            except KeyboardInterrupt:
                self._terminal.note("\nCtrl-D leaves")
            except EOFError:
                self._terminal.note("")
                return
            except LlmsnapError as error:
                self._terminal.fault(error.message)

    def answer(self) -> bool:
        """Have the open question answered; False: Ctrl-C ended it. Raises LlmsnapError."""
        conversation, answer, is_stopped = self._floor.desk.conversation, _Answer(), False
        try:
            self._listen(answer)
        except KeyboardInterrupt:
            is_stopped = True
        finally:
            conversation.answer(answer.text)
            self._terminal.wipe()
            if answer.text:
                self._terminal.write("\n")
            if self._keeps:
                self._keep()
        if answer.figures is None or (is_stopped and not answer.text):
            self._terminal.note("\nstopped before an answer began; /retry asks again")
        else:
            line = line_of(answer.figures, conversation.model, is_stopped=is_stopped)
            self._terminal.note(line)
        return not is_stopped

    def _line(self) -> Then:
        line = self._terminal.question()
        if line.startswith("/"):
            return obey(self._floor, line)
        if not line:
            return Then.NEXT_LINE
        self._floor.desk.ask(line)
        return Then.ANSWER

    def _listen(self, answer: _Answer) -> None:
        """Show the answer as it comes, and put it down in `answer`."""
        conversation = self._floor.desk.conversation
        self._say_what_it_waits_for()
        body = {"model": conversation.model, "messages": to_builtins(conversation.asked())}
        with ask(self._floor.client, CHAT_PATH, body) as stream:
            try:
                self._show(stream, answer)
            finally:
                answer.figures = stream.figures

    def _show(self, stream: Stream, answer: _Answer) -> None:
        was_thought = False
        for piece in stream:
            if was_thought and not piece.is_thought:
                self._terminal.write("\n\n", is_thought=True)
            was_thought = piece.is_thought
            if not piece.is_thought:
                answer.text += piece.text  # before it is shown: Ctrl-C must find whatever was seen
            self._terminal.write(piece.text, is_thought=piece.is_thought)

    def _say_what_it_waits_for(self) -> None:
        if not self._terminal.is_interactive:
            return
        wait = what_it_takes(self._floor.client, self._floor.desk.conversation.model)
        if wait:
            self._terminal.passing(wait)

    def _keep(self) -> None:
        """Keep the conversation; what is in the way is said, and is no reason to stop."""
        try:
            self._floor.desk.keep()
        except LlmsnapError as error:
            self._terminal.fault(error.message)
