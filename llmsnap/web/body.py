"""What of a request's body must be held: in memory up to a limit, then in an unlinked file."""

from __future__ import annotations

import asyncio
import mmap
import os
import tempfile
from collections.abc import AsyncIterator, Callable
from typing import IO, Final, TypeVar

from aiohttp import web
from aiohttp.streams import EMPTY_PAYLOAD, StreamReader

from llmsnap.errors import (
    BadRequest,
    BodyTooLarge,
    LlmsnapError,
    RequestStalled,
    ServiceUnavailable,
)
from llmsnap.runtime.tasks import Background, settled

T = TypeVar("T")

Buffer = bytes | mmap.mmap
"""A whole body, to be read anywhere in it."""

MEMORY_BYTES: Final = 4 * 2**20
STALL_S: Final = 120.0
"""How long a client may pause within its body: one that stops for ever would keep its model."""
_WRITE_BYTES: Final = 2**20
_LONG_BYTES: Final = 256 * 1024
_LISTEN_S: Final = 0.25
"""Between two pieces of a waiting body that are taken: some 2 MiB/s in all."""


class HeldBody:
    """A request's body, of which as much is held as somebody asked to see.

    The rest waits in the socket, where TCP slows the client down. `max_bytes` is `maxBody`.
    """

    _listening: asyncio.Task[None] | None = None
    _trouble: LlmsnapError | None = None
    """What was wrong with the rest when a little of it was taken."""
    _shown = 0
    """Bytes of what is held that somebody has seen."""
    _file: IO[bytes] | None = None
    _unwritten = 0
    _taken = 0
    size = 0
    """Bytes held."""
    complete = False
    """Whether all of it is held, so that it can be sent twice."""

    @classmethod
    def of(cls, text: bytes) -> HeldBody:
        """Return a body that is all here."""
        body = cls(EMPTY_PAYLOAD, max_bytes=len(text), declared=None)
        body._parts, body.size, body.complete = [text], len(text), True
        return body

    @classmethod
    def of_request(cls, request: web.BaseRequest, max_bytes: int) -> HeldBody:
        """Return the body of one of aiohttp's requests. Raises BodyTooLarge."""
        return cls(request.content, max_bytes=max_bytes, declared=request.content_length)

    def __init__(self, content: StreamReader, *, max_bytes: int, declared: int | None) -> None:
        """`declared` is the request's `Content-Length`. Raises BodyTooLarge."""
        self._content = content
        self._max_bytes = max_bytes
        self._parts: list[bytes] = []
        if declared is not None and declared > max_bytes:
            raise _too_large(max_bytes)

    @property
    def at_hand(self) -> bytes | None:
        """The whole body, if it is all in memory and in one piece."""
        if self.complete and self._file is None and len(self._parts) == 1:
            return self._parts[0]
        return None

    async def whole(self) -> Buffer:
        """Hold all of it; return it. Raises BodyTooLarge and BadRequest."""
        while not self.complete and await self.more():
            pass
        return await self.view()

    async def more(self) -> bool:
        """Hold what comes next; False when there is no more to come."""
        piece = await self._next()
        # What came with the header is all there is, most of the time.
        self.complete = self._content.at_eof()
        self._parts.append(piece)
        self._unwritten += len(piece)
        self.size += len(piece)
        if self.size > MEMORY_BYTES and self._unwritten >= _WRITE_BYTES:
            await self._spool()
        return not self.complete

    def listen(self, background: Background) -> None:
        """Take a little of the rest now and then, until `stop_listening`.

        The news that a client has left comes behind all that it has sent, so who doesn't read any
        of it never hears that nobody waits any more.
        """
        self._listening = background.spawn(self._listen(), name="listen to a waiting client")

    def stop_listening(self) -> None:
        """Leave the rest in the socket."""
        if self._listening is not None:
            self._listening.cancel()

    async def rest(self) -> AsyncIterator[bytes]:
        """Yield what nobody has seen, as it comes."""
        if self._listening is not None:
            await asyncio.wait({self._listening})
        if self._trouble is not None:
            raise self._trouble
        if (start := self._shown) < self.size:
            held = await self.view()
            for at in range(start, len(held), _WRITE_BYTES):
                yield held[at : at + _WRITE_BYTES]
                unmap(held)
        while not self.complete and (piece := await self._next()):
            yield piece

    async def view(self) -> Buffer:
        """Return what is held so far."""
        self._shown = self.size
        if self._file is None:
            if len(self._parts) > 1:
                self._parts = [b"".join(self._parts)]
            return self._parts[0] if self._parts else b""
        await self._spool()
        return mmap.mmap(self._file.fileno(), self.size, access=mmap.ACCESS_READ)

    def close(self) -> None:
        """Let go of what is held."""
        listening = self._listening
        if listening is not None and not listening.done():
            listening.cancel()
            listening.add_done_callback(lambda _: self._let_go())
        else:
            self._let_go()

    def _let_go(self) -> None:
        self._parts = []
        if self._file is not None:
            self._file.close()
            self._file = None

    async def _listen(self) -> None:
        try:
            while not self.complete:
                await asyncio.sleep(_LISTEN_S)
                await self.more()
        except LlmsnapError as error:
            self._trouble = error
        except ConnectionError:
            return  # it has left, and its request is being ended

    async def _next(self) -> bytes:
        try:
            piece = self._content.read_nowait()
            if not piece and not self._content.at_eof():
                async with asyncio.timeout(STALL_S):
                    piece = await self._content.readany()
        except TimeoutError:
            raise RequestStalled(f"nothing more of the request came for {STALL_S:g} s") from None
        except web.RequestPayloadError as error:
            raise BadRequest(f"the request's body is malformed: {error}") from error
        self._count(piece)
        return piece

    def _count(self, piece: bytes) -> None:
        self._taken += len(piece)
        if self._taken > self._max_bytes:
            raise _too_large(self._max_bytes)

    async def _spool(self) -> None:
        """Move what is in memory to the file."""
        parts, self._parts, self._unwritten = self._parts, [], 0
        try:
            if self._file is None:
                self._file = tempfile.TemporaryFile(dir=_spool_folder())  # noqa: SIM115 - `close` does
            await _in_thread(self._file, parts)
        except OSError as error:
            raise ServiceUnavailable(
                f"the request's body can't be held in {_spool_folder()}: {error.strerror}; "
                "free some space there, or set TMPDIR"
            ) from error


async def _in_thread(file: IO[bytes], parts: list[bytes]) -> None:
    """Write `parts` without blocking the loop; to the end, however often cancelled meanwhile."""

    def write() -> None:
        file.writelines(parts)
        file.flush()

    writing = asyncio.get_running_loop().run_in_executor(None, write)
    cancelled, trouble = await settled(writing), writing.exception()
    if cancelled:
        raise asyncio.CancelledError
    if trouble is not None:
        raise trouble


def _spool_folder() -> str:
    """Return where bodies go that are too large for memory: `/tmp` often is memory itself."""
    if "TMPDIR" not in os.environ and os.access("/var/tmp", os.W_OK):
        return "/var/tmp"
    return tempfile.gettempdir()


def _too_large(max_bytes: int) -> BodyTooLarge:
    return BodyTooLarge(
        f"the request's body is larger than {max_bytes} bytes; raise maxBody in the configuration"
    )


def unmap(held: Buffer | memoryview) -> None:
    """Give back the memory of a body in a file that was read through; the file is still there."""
    text = held.obj if isinstance(held, memoryview) else held
    if isinstance(text, mmap.mmap):
        text.madvise(mmap.MADV_DONTNEED)


async def examine(body: Buffer, look: Callable[[], T]) -> T:
    """Return `look()`, which goes through `body` step by step; in a thread when that takes long."""
    if len(body) < _LONG_BYTES:
        return look()
    return await asyncio.to_thread(look)
