"""A whole answer to a question of our own, in memory."""

from __future__ import annotations

import asyncio
from typing import Final

from llmsnap.errors import BadGateway
from llmsnap.web.headers import Answer
from llmsnap.web.upstream import UpstreamConnection

MOST_BYTES: Final = 4 * 2**20


class Question:
    """Takes a whole answer into memory."""

    def __init__(self, connection: UpstreamConnection) -> None:
        self.answered: asyncio.Future[tuple[Answer, bytes]]
        self.answered = asyncio.get_running_loop().create_future()
        self._connection = connection
        self._answer: Answer | None = None
        self._body = bytearray()

    def ask(self, head: bytes, *, is_head: bool = False) -> None:
        """Send a question that has no body; `is_head`: nor will its answer have one."""
        self._connection.begin(self, is_head=is_head)
        self._connection.transport.write(head)
        self._connection.sent()

    def receive(self, answer: Answer | None, pieces: list[bytes], complete: bool) -> None:
        """Take what came."""
        self._answer = answer or self._answer
        self._body += b"".join(pieces)
        if len(self._body) > MOST_BYTES:
            self.give_up(f"its answer is larger than {MOST_BYTES} bytes")
        elif complete and self._answer is not None and not self.answered.done():
            self.answered.set_result((self._answer, bytes(self._body)))

    def upgraded(self, answer: Answer, tail: bytes) -> None:
        """Refuse to switch protocols."""
        self.give_up("it switches protocols unasked")

    def lost(self, reason: str) -> None:
        """Fail whoever waits."""
        if not self.answered.done():
            self.answered.set_exception(BadGateway(f"the model's server can't say: {reason}"))

    def give_up(self, reason: str) -> None:
        """End a question that isn't answered; the connection of another one is others' already."""
        if not self.answered.done():
            self._connection.abandon()
            self.lost(reason)
            self.answered.exception()  # seen, should nobody wait
