"""What is read from the person, and what is shown."""

from __future__ import annotations

import re
import sys
from contextlib import suppress
from typing import Final

_DIM: Final = "\x1b[2m"
_RED: Final = "\x1b[31m"
_PLAIN: Final = "\x1b[0m"
_WIPE: Final = "\r\x1b[K"
_FENCE: Final = '"""'
_CONTROLS: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


class Terminal:
    """Standard input, output and error; colours and passing notes only where a person looks."""

    def __init__(self) -> None:
        self.is_interactive = sys.stdin.isatty()
        self._is_seen = sys.stdout.isatty()
        self._is_noted = sys.stderr.isatty()
        self._passing = False
        if self.is_interactive:
            with suppress(ImportError):  # input() edits lines and remembers them with it
                import readline  # noqa: F401 - to be there is its use

    def question(self) -> str:
        """Return what was typed; between lines of three quotes it may go on. Raises EOFError."""
        line = self._line(">>> ")
        if not line.startswith(_FENCE):
            return line.strip()
        lines = [line.removeprefix(_FENCE)]
        while _FENCE not in lines[-1]:
            lines.append(self._line("... "))
        lines[-1] = lines[-1].partition(_FENCE)[0]
        return "\n".join(lines).strip()

    def everything(self) -> str:
        """Return all that is piped in."""
        return sys.stdin.buffer.read().decode(errors="replace").strip()

    def write(self, text: str, *, is_thought: bool = False) -> None:
        """Show some of an answer; a terminal gets none of the orders that text may hide."""
        self.wipe()
        if self._is_seen:
            text = _CONTROLS.sub("\N{REPLACEMENT CHARACTER}", text)
            text = f"{_DIM}{text}{_PLAIN}" if is_thought else text
        elif is_thought:
            return
        sys.stdout.write(text)
        sys.stdout.flush()

    def note(self, text: str) -> None:
        """Say something beside the conversation, dimly; only people hear it."""
        self.wipe()
        if self._is_noted:
            self._aside(f"{_DIM}{_harmless(text)}{_PLAIN}\n")

    def fault(self, text: str) -> None:
        """Say what went wrong."""
        self.wipe()
        told = f"llmsnap: {text}"
        self._aside(f"{_RED}{_harmless(told)}{_PLAIN}\n" if self._is_noted else f"{told}\n")

    def passing(self, text: str) -> None:
        """Show a note that goes when anything else comes."""
        if self._is_seen and self._is_noted:
            self._aside(f"{_DIM}{_harmless(text)}{_PLAIN}")
            self._passing = True

    def wipe(self) -> None:
        """Take the passing note away."""
        if self._passing:
            self._passing = False
            self._aside(_WIPE)

    def _line(self, prompt: str) -> str:
        if self._is_seen:
            return input(prompt)
        self._aside(prompt)  # standard output goes elsewhere, and gets answers alone
        line = sys.stdin.readline()
        if not line:
            raise EOFError
        return line.rstrip("\n")

    def _aside(self, text: str) -> None:
        sys.stderr.write(text)
        sys.stderr.flush()


def _harmless(text: str) -> str:
    """Return a text that may come from a model's server without the orders that it may hide."""
    return _CONTROLS.sub("", text)
