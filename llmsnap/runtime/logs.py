"""What children and the proxy itself print: our own pipe, bounded buffers, subscribers."""

from __future__ import annotations

import asyncio
import logging
import os
import re
from collections import deque
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Final, Literal, Self

from llmsnap.runtime.logtime import timestamp

Sink = Callable[[bytes], None]
"""Takes bytes and never blocks."""

HISTORY_BYTES: Final = 100 * 1024
_PENDING_BYTES: Final = 256 * 1024
_READ_BYTES: Final = 64 * 1024
_LAST_READ_BYTES: Final = 1024**2

_LEVEL_NAMES: Final = {
    logging.DEBUG: "DEBUG",
    logging.INFO: "INFO",
    logging.WARNING: "WARN",
    logging.ERROR: "ERROR",
    logging.CRITICAL: "ERROR",
}


class LogPipe:
    """A pipe whose write end children get as their output, read whenever there is something.

    Ours and not `subprocess.PIPE`: asyncio waits for the end of those, and any grandchild that
    holds one keeps it waiting.
    """

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._read_end, self.write_end = os.pipe()
        os.set_blocking(self._read_end, False)
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._read_end, self._read)

    def close_write_end(self) -> None:
        """Give up our copy of the write end, once the child has its own."""
        if self.write_end >= 0:
            os.close(self.write_end)
            self.write_end = -1

    def close(self) -> None:
        """Take what is still in the pipe, then close it, whoever may still hold its other end."""
        self.close_write_end()
        taken = 0
        while self._read_end >= 0 and taken < _LAST_READ_BYTES:
            if not (count := self._read()):
                break
            taken += count
        self._close_read_end()

    def _read(self) -> int:
        """Pass on what is there and return its size; at the end of the pipe, close it."""
        try:
            data = os.read(self._read_end, _READ_BYTES)
        except BlockingIOError:
            return 0
        if data:
            self._sink(data)
        else:
            self._close_read_end()
        return len(data)

    def _close_read_end(self) -> None:
        if self._read_end >= 0:
            self._loop.remove_reader(self._read_end)
            os.close(self._read_end)
            self._read_end = -1


class SecretFilter:
    """Blanks secrets in a stream of bytes, also where one is cut in two by the way it arrives."""

    def __init__(self, secrets: Iterable[str], sink: Sink) -> None:
        self._secrets = sorted((s.encode() for s in secrets if s), key=len, reverse=True)
        self._pattern = re.compile(b"|".join(map(re.escape, self._secrets)))
        self._sink = sink
        self._held = b""

    def write(self, data: bytes) -> None:
        """Pass `data` on, without the secrets and without what may become one."""
        if not self._secrets:
            self._sink(data)
            return
        text = self._held + data
        cut = len(text) - self._may_begin_a_secret(text)
        for match in self._pattern.finditer(text):
            if match.start() < cut < match.end():
                cut = match.start()
        self._held = text[cut:]
        self._pass_on(text[:cut])

    def flush(self) -> None:
        """Pass on what was held back."""
        text, self._held = self._held, b""
        self._pass_on(text)

    def _pass_on(self, text: bytes) -> None:
        if text:
            self._sink(self._pattern.sub(b"***", text) if self._secrets else text)

    def _may_begin_a_secret(self, text: bytes) -> int:
        """Return the length of the longest end of `text` with which a secret may begin."""
        most = min(len(self._secrets[0]) - 1, len(text))
        for length in range(most, 0, -1):
            end = text[-length:]
            if any(len(s) > length and s.startswith(end) for s in self._secrets):
                return length
        return 0


class LogBuffer:
    """The last bytes of a log, and whoever follows it."""

    def __init__(self, limit: int = HISTORY_BYTES) -> None:
        self._limit = limit
        self._kept = bytearray()
        self._subscriptions: set[Subscription] = set()
        self._closed = False

    def write(self, data: bytes) -> None:
        """Append `data`; never blocks and never fails."""
        self._kept += data[-self._limit :]
        if len(self._kept) > 2 * self._limit:
            del self._kept[: -self._limit]
        for subscription in self._subscriptions:
            subscription.put(data)

    def history(self) -> bytes:
        """Return at most the last `limit` bytes."""
        return bytes(self._kept[-self._limit :])

    def subscribe(self) -> Subscription:
        """Return an iterator over what is written from now on; close it when done."""
        subscription = Subscription(self._subscriptions.discard)
        if self._closed:
            subscription.close()
        else:
            self._subscriptions.add(subscription)
        return subscription

    def close(self) -> None:
        """End all subscriptions, present and to come; writing goes on."""
        self._closed = True
        for subscription in list(self._subscriptions):
            subscription.close()


class Subscription:
    """An async iterator of bytes. A reader too slow for it is told how many bytes it missed."""

    def __init__(self, on_close: Callable[[Subscription], None]) -> None:
        self._on_close = on_close
        self._pending: deque[bytes] = deque()
        self._pending_bytes = 0
        self._dropped = 0
        self._closed = False
        self._news = asyncio.Event()

    def put(self, data: bytes) -> None:
        """Add `data`, or count it as dropped when too much is waiting."""
        if self._dropped or self._pending_bytes + len(data) > _PENDING_BYTES:
            self._dropped += len(data)
        else:
            self._pending.append(data)
            self._pending_bytes += len(data)
        self._news.set()

    def close(self) -> None:
        """End the iteration, after what is still pending."""
        self._closed = True
        self._news.set()
        self._on_close(self)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        while not self._pending and not self._dropped:
            if self._closed:
                raise StopAsyncIteration
            self._news.clear()
            await self._news.wait()
        data = b"".join(self._pending)
        if self._dropped:
            data += b"\n[llmsnap: %d bytes dropped, the reader is too slow]\n" % self._dropped
        self._pending.clear()
        self._pending_bytes = self._dropped = 0
        return data


class Logs:
    """All logs of one proxy."""

    def __init__(
        self,
        *,
        to_stdout: Literal["proxy", "upstream", "both", "none"] = "none",
        stdout: Sink = lambda _: None,
    ) -> None:
        self.proxy = LogBuffer()
        self.upstream = LogBuffer()
        self.combined = LogBuffer()
        """What goes to standard output, by `logToStdout`."""
        self._models: dict[str, LogBuffer] = {}
        self._stdout = stdout
        self._closed = False
        self.show(to_stdout)

    def show(self, whose: Literal["proxy", "upstream", "both", "none"]) -> None:
        """Send to standard output, and to the combined log, what `logToStdout` says."""
        self._proxy_is_shown = whose in ("proxy", "both")
        self._upstream_is_shown = whose in ("upstream", "both")

    def model(self, model: str) -> LogBuffer:
        """Return the log of `model`; it outlives the model's processes."""
        if model not in self._models:
            self._models[model] = LogBuffer()
            if self._closed:
                self._models[model].close()
        return self._models[model]

    def history(self, model: str) -> bytes:
        """Return what the processes of `model` have printed, as far as it is kept."""
        return self.model(model).history()

    def write_proxy(self, data: bytes) -> None:
        """Add lines of the proxy itself."""
        self.proxy.write(data)
        if self._proxy_is_shown:
            self._show(data)

    def write_upstream(self, model: str, data: bytes) -> None:
        """Add output of a process of `model`, as raw as it came."""
        self.model(model).write(data)
        self.upstream.write(data)
        if self._upstream_is_shown:
            self._show(data)

    def close(self) -> None:
        """End all subscriptions, present and to come."""
        self._closed = True
        for buffer in (self.proxy, self.upstream, self.combined, *self._models.values()):
            buffer.close()

    def _show(self, data: bytes) -> None:
        self.combined.write(data)
        self._stdout(data)


class ProxyLog(logging.Handler):
    """Writes log records as `[LEVEL] text`, after the time when `layout` names one."""

    def __init__(
        self, logs: Logs, *, layout: str = "", blank: Callable[[str], str] = lambda text: text
    ) -> None:
        super().__init__()
        self._logs = logs
        self.layout = layout
        self._blank = blank
        self._loop: asyncio.AbstractEventLoop | None = None

    def emit(self, record: logging.LogRecord) -> None:
        """Write `record`; from another thread, by way of the loop's own."""
        line = self._line(record)
        try:
            self._loop = asyncio.get_running_loop()
        except RuntimeError:
            if self._loop is not None and not self._loop.is_closed():
                self._loop.call_soon_threadsafe(self._logs.write_proxy, line)
                return
        self._logs.write_proxy(line)

    def _line(self, record: logging.LogRecord) -> bytes:
        level = _LEVEL_NAMES.get(record.levelno, record.levelname)
        when = datetime.fromtimestamp(record.created)
        return proxy_line(self._blank(self.format(record)), level, self.layout, when)


def proxy_line(text: str, level: str, layout: str, when: datetime | None = None) -> bytes:
    """Return `text` as a line of the proxy's log, after the time when `layout` names one.

    `when` is local time; None: now.
    """
    return f"{_before(level, layout, when)}{text}\n".encode(errors="replace")


def proxy_lines(texts: str, level: str, layout: str) -> bytes:
    """Return what `texts` holds, one on each line, as lines of now."""
    before = _before(level, layout, None)
    texts = texts.replace("\n", f"\n{before}")
    return f"{before}{texts}\n".encode(errors="replace")


def _before(level: str, layout: str, when: datetime | None) -> str:
    time = f"{timestamp(layout, (when or datetime.now()).astimezone())} " if layout else ""
    return f"{time}[{level}] "


def level_named(name: str) -> int:
    """Return the level for `logLevel`; an unknown name means info."""
    levels = {"debug": logging.DEBUG, "warn": logging.WARNING, "error": logging.ERROR}
    return levels.get(name.strip().lower(), logging.INFO)


def last_lines(output: bytes, *, lines: int = 5, limit: int = 1024) -> str:
    """Return the last lines of `output` that aren't blank, at most `limit` bytes of them."""
    text = output.decode(errors="replace")
    kept = [line.rstrip() for line in text.splitlines() if line.strip()][-lines:]
    return "\n".join(kept).encode()[-limit:].decode(errors="ignore")
