"""`sendLoadingState`: a model's way up, told in the reasoning text of a chat's stream."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

import msgspec

from llmsnap.core.lifecycle import State
from llmsnap.core.messages import ModelView

FIRST_S: Final = 0.1
"""What is refused at once gets a status, so nothing is said before."""
EVERY_S: Final = 0.75
CHAT: Final = b"/v1/chat/completions"
"""The path upstream whose streams have reasoning text."""

_LINE: Final = "━━━━━"
_DOING: Final = {
    State.STOPPED: "waiting for room",
    State.FAILED: "waiting for room",
    State.ASLEEP: "waiting for room",
    State.SLEEPING: "waiting until it is asleep",
    State.PAGING: "waiting for room",
    State.STOPPING: "waiting until its last process has ended",
    State.WAKING: "waking",
    State.STARTING: "starting",
    State.READY: "waiting for its turn",
}


class LoadingText:
    """Says now and then what the model is doing, until `done`.

    `say` gets whole events. Clients of every strictness get chunks as OpenAI's servers send them.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        model: str,
        view: Callable[[], ModelView],
        say: Callable[[bytes], None],
    ) -> None:
        self._loop = loop
        self._model = model
        self._view = view
        self._say = say
        self._began_at = loop.time()
        self._created = int(datetime.now(UTC).timestamp())
        self._told: State | None = None
        self._timer = loop.call_later(FIRST_S, self._begin)
        self._has_begun = False

    def done(self) -> None:
        """Say that the model is up, if anything was said before."""
        self.end()
        if self._has_begun:
            took_s = self._loop.time() - self._began_at
            self._tell(f"\nDone! ({took_s:.2f}s)\n{_LINE}\n \n")
            self._has_begun = False

    def end(self) -> None:
        """Say nothing more."""
        self._timer.cancel()

    def _begin(self) -> None:
        self._has_begun = True
        self._tell(f"{_LINE}\nllmsnap loading model: {self._model}\n")
        self._go_on()

    def _go_on(self) -> None:
        state = self._view().state
        if state is self._told:
            self._tell(".")
        else:
            self._tell(f"\n{_DOING[state]} " if self._told else f"{_DOING[state]} ")
            self._told = state
        self._timer = self._loop.call_later(EVERY_S, self._go_on)

    def _tell(self, text: str) -> None:
        chunk = {
            "id": "chatcmpl-loading",
            "object": "chat.completion.chunk",
            "created": self._created,
            "model": self._model,
            "choices": [
                {
                    "index": 0,
                    "delta": {"role": "assistant", "reasoning_content": text},
                    "finish_reason": None,
                }
            ],
        }
        self._say(b"data: %b\n\n" % msgspec.json.encode(chunk))
