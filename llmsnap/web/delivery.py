"""What a client gets: an upstream's head and body, and comments and errors of our own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from aiohttp import hdrs

from llmsnap.core.messages import ModelView
from llmsnap.errors import BadGateway, LlmsnapError
from llmsnap.web import sse
from llmsnap.web.head import Head
from llmsnap.web.headers import Answer, Dates
from llmsnap.web.loading import LoadingText
from llmsnap.web.outlet import Outlet
from llmsnap.web.renaming import Renamer

_MOST_COLLECTED_BYTES: Final = 64 * 1024
_WITHOUT_BODY: Final = frozenset({204, 304})


@dataclass(frozen=True, slots=True)
class Manner:
    """How the answers of one model are delivered."""

    model: str
    model_line: bytes
    """The header that names it."""
    dates: Dates
    ping_s: float = sse.PING_S


class Delivery:
    """One answer for one client.

    Mostly it is the upstream's, untouched. A client who asked for a stream may get the head before
    the upstream has answered: then whatever isn't a stream becomes an error event.
    """

    _renamer: Renamer | None = None
    _events: sse.EventEnds | None = None
    _pings: sse.Silence | None = None
    _loading: LoadingText | None = None
    _refusal: list[bytes] | None = None
    _refused_with = 0

    def __init__(
        self, request: Head, outlet: Outlet, manner: Manner, *, rename_to: str = ""
    ) -> None:
        """`rename_to`: the model's name for the answer; empty: as the upstream says."""
        self.outlet = outlet
        self._request = request
        self._manner = manner
        self._rename_to = rename_to

    @property
    def has_begun(self) -> bool:
        """Whether the client has heard anything, so that no error can be its answer any more."""
        return self.outlet.head_sent

    def keep_company(self) -> None:
        """Fill the silence from now on with comments: the client asked for a stream."""
        self._pings = sse.Silence(asyncio.get_running_loop(), self._manner.ping_s, self._ping)

    def show_loading(self, name: str, view: Callable[[], ModelView]) -> None:
        """Tell the client of the model's way up, in the text of its chat, until `loaded`."""
        self._loading = LoadingText(asyncio.get_running_loop(), name, view, self._say)

    def loaded(self) -> None:
        """Note that the model is up."""
        if self._loading is not None:
            self._loading.done()

    def begin(self, answer: Answer, timing: bytes, pieces: list[bytes], complete: bool) -> None:
        """Deliver the head, in one go with what came of the body with it.

        `timing` is the value of `Server-Timing`.
        """
        is_stream = answer.is_event_stream and not answer.is_encoded
        if self._rename_to and (is_stream or answer.is_json) and not answer.is_encoded:
            self._renamer = Renamer(self._rename_to, is_event_stream=is_stream)
        if not self.has_begun:
            self._open(answer, timing, pieces, complete)
            return
        if is_stream and answer.status == 200:
            self.outlet.send([sse.comment(b"server-timing " + timing)], complete=False)
        else:
            self._refusal, self._refused_with = [], answer.status
        self.more(pieces, complete)

    def more(self, pieces: list[bytes], complete: bool) -> None:
        """Deliver what came of the body; `complete`: that was all."""
        if self._refusal is not None:
            self._refuse(pieces, complete)
            return
        if self._renamer is not None:
            pieces = self._renamer.feed(pieces, complete)
        if self._events is not None:
            self._events.follow(pieces)
            assert self._pings is not None
            self._pings.note()
        self.outlet.send(pieces, complete)

    def fail(self, error: LlmsnapError) -> None:
        """End an answer that has begun with an error event, or cut it where that can't be."""
        if self._events is None:
            self.outlet.cut()
        else:
            self._end_stream(sse.error_event(error, self._request.path))

    def close(self) -> None:
        """Send no more of our own."""
        if self._loading is not None:
            self._loading.end()
        if self._pings is not None:
            self._pings.end()

    def _open(self, answer: Answer, timing: bytes, pieces: list[bytes], complete: bool) -> None:
        lines = [answer.lines, self._manner.model_line, b"Server-Timing: ", timing, b"\r\n"]
        if b"date" not in answer.noted:
            lines.append(self._manner.dates.line())
        if answer.is_event_stream:
            lines.append(sse.head_lines(answer.noted))
        if self._renamer is not None:
            pieces = self._renamer.feed(pieces, complete)
        has_body = not (self._request.method == hdrs.METH_HEAD or answer.status in _WITHOUT_BODY)
        size = answer.length
        if complete and has_body:
            size = sum(map(len, pieces))
        elif answer.is_event_stream or self._renamer is not None:
            size = None  # it may grow under way
        if answer.is_event_stream and not (complete or answer.is_encoded):
            self._follow_events(pieces)
        elif self._pings is not None:
            self._pings.end()
        self.outlet.open(
            (answer.status, answer.reason),
            b"".join(lines),
            size=size,
            has_body=has_body,
            pieces=pieces,
            complete=complete,
        )

    def _follow_events(self, pieces: list[bytes]) -> None:
        self._events = sse.EventEnds()
        self._events.follow(pieces)
        if self._pings is None:
            self.keep_company()
        else:
            self._pings.note()

    def _ping(self) -> None:
        if self.outlet.is_blocked:
            return
        if self._events is None:
            self._open_early(sse.PING)
        elif self._events.between:
            self.outlet.send([sse.PING], complete=False)

    def _say(self, event: bytes) -> None:
        """Send an event of our own before the upstream has answered."""
        if self._events is None:
            self._open_early(event)
        elif not self.outlet.is_blocked:
            self.outlet.send([event], complete=False)
        if self._pings is not None:
            self._pings.note()

    def _open_early(self, first: bytes) -> None:
        """Send the head of an event stream before the upstream has answered."""
        self._events = sse.EventEnds()
        lines = (sse.EARLY_HEAD, self._manner.model_line, self._manner.dates.line())
        self.outlet.open((200, b"OK"), b"".join(lines), size=None, pieces=[first], complete=False)

    def _refuse(self, pieces: list[bytes], complete: bool) -> None:
        """Turn an answer that is no stream into an event, once enough of it is here."""
        assert self._refusal is not None
        self._refusal += pieces
        if not complete and sum(map(len, self._refusal)) < _MOST_COLLECTED_BYTES:
            return
        event = sse.foreign_error_event(b"".join(self._refusal), self._request.path)
        self._end_stream(event or sse.error_event(self._no_stream(), self._request.path))
        self._refusal = []

    def _no_stream(self) -> LlmsnapError:
        model, status = self._manner.model, self._refused_with
        return BadGateway(f"model {model!r} answered {status} and no event stream")

    def _end_stream(self, event: bytes) -> None:
        assert self._events is not None
        parted = [] if self._events.between else [b"\n\n"]
        self.outlet.send([*parted, event], complete=True)
        self.close()
