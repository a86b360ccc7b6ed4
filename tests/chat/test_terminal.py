"""What is shown at a terminal."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable

import pytest

from llmsnap.chat.terminal import Terminal


class Screen(io.StringIO):
    """A terminal, as far as one can be asked."""

    def isatty(self) -> bool:
        """It is one."""
        return True


@pytest.mark.parametrize("show", [Terminal.fault, Terminal.note, Terminal.passing])
def test_what_servers_say_gives_the_terminal_no_orders(
    show: Callable[[Terminal, str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last lines of one that failed to start may have colours, or worse."""
    screen = Screen()
    for stream in ("stdout", "stderr"):
        monkeypatch.setattr(sys, stream, screen)
    show(Terminal(), "first\n\x1b]0;title\x07second\x9b2J")

    said = screen.getvalue()
    assert "first\n]0;titlesecond2J" in said
    assert "\x9b" not in said
    assert "\x1b]" not in said
