"""llama-server's slots over HTTP: what they hold, and the orders to save and restore them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar

import aiohttp
import msgspec

from llmsnap.errors import BadGateway

_LIST_S: Final = 5.0
_MOST_BYTES: Final = 4 * 2**20
_SAID_BYTES: Final = 200
_NOT_THERE: Final = frozenset({404, 405, 501})
"""It has no such order: then nothing was done."""


class SlotsFailed(BadGateway):
    """A server didn't do what it was asked with a slot."""


class NotSupported(SlotsFailed):
    """The server can't do this at all, and has changed nothing."""


class Refused(SlotsFailed):
    """The server said no."""


class Late(SlotsFailed):
    """The server hasn't answered in time; it may still do what it was told."""


class Lost(SlotsFailed):
    """The server was gone before it had answered."""


class Server(Protocol):
    """Where a llama-server listens."""

    @property
    def model(self) -> str: ...

    @property
    def host(self) -> str: ...

    @property
    def port(self) -> int: ...

    @property
    def base_path(self) -> str: ...

    @property
    def tls(self) -> bool: ...

    @property
    def key(self) -> str: ...


class Slot(msgspec.Struct, frozen=True):
    """One slot, as the server lists it."""

    id: int
    n_ctx: int = 0
    """How many tokens it can hold; 0: it isn't said."""
    is_processing: bool = False
    id_task: int = -1
    """The last request in it, numbered in the order of their arrival; -1: none."""
    n_prompt_tokens: int | None = None
    """How many tokens it holds; None: it isn't said, as after a restore."""

    @property
    def is_empty(self) -> bool:
        """Whether it holds nothing and is at rest."""
        return not self.is_processing and (self.id_task < 0 or self.n_prompt_tokens == 0)


class Saved(msgspec.Struct, frozen=True):
    """What a server says of a save."""

    n_saved: int = 0
    n_written: int = 0


class Restored(msgspec.Struct, frozen=True):
    """What a server says of a restore."""

    n_restored: int = 0


class Read(msgspec.Struct, frozen=True):
    """What a server had to do for a prompt."""

    prompt_n: int = 0
    """Tokens that were computed."""
    cache_n: int = 0
    """Tokens that were in the cache."""


class _Completed(msgspec.Struct, frozen=True):
    timings: Read


class _Tokenized(msgspec.Struct, frozen=True):
    tokens: list[int]


_Said = TypeVar("_Said")

_LIST: Final = msgspec.json.Decoder(list[Slot])
_SAVED: Final = msgspec.json.Decoder(Saved)
_RESTORED: Final = msgspec.json.Decoder(Restored)
_COMPLETED: Final = msgspec.json.Decoder(_Completed)
_TOKENIZED: Final = msgspec.json.Decoder(_Tokenized)


@dataclass(frozen=True, slots=True)
class _Answer:
    status: int
    body: bytes

    def __str__(self) -> str:
        try:
            said = msgspec.json.decode(self.body)["error"]["message"]
        except (msgspec.DecodeError, KeyError, TypeError):
            said = self.body[:_SAID_BYTES].decode(errors="replace").strip()
        return f"{self.status}: {str(said)[:_SAID_BYTES]}"


class Slots:
    """The client for all servers; one connection an order. All methods raise SlotsFailed."""

    def __init__(self) -> None:
        self._session: aiohttp.ClientSession | None = None

    async def aclose(self) -> None:
        """Close the client."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def list(self, server: Server) -> list[Slot]:
        """Return the server's slots."""
        answer = await self._ask(server, "GET", "/slots", None, _LIST_S)
        return _understood(_LIST, answer, "its list of slots")

    async def save(self, server: Server, slot: int, name: str, limit_s: float) -> Saved:
        """Have what `slot` holds written as the file `name` of the server's save path."""
        answer = await self._order(server, slot, "save", name, limit_s)
        return _understood(_SAVED, answer, "what it says of a save")

    async def restore(self, server: Server, slot: int, name: str, limit_s: float) -> Restored:
        """Have the file `name` read into `slot`."""
        answer = await self._order(server, slot, "restore", name, limit_s)
        return _understood(_RESTORED, answer, "what it says of a restore")

    async def erase(self, server: Server, slot: int, limit_s: float) -> None:
        """Empty `slot`. This gives no memory back."""
        await self._order(server, slot, "erase", "", limit_s)

    async def tokens(self, server: Server, text: str, limit_s: float) -> Sequence[int]:
        """Return the tokens of `text`."""
        body = msgspec.json.encode({"content": text, "model": server.model})
        answer = await self._ask(server, "POST", "/tokenize", body, limit_s)
        return _understood(_TOKENIZED, answer, "what it makes of a text").tokens

    async def read(self, server: Server, slot: int, prompt: Sequence[int], limit_s: float) -> Read:
        """Have `prompt`, which is tokens, read into `slot`, as far as it isn't there."""
        order = {
            "model": server.model,
            "prompt": prompt,
            "id_slot": slot,
            "n_predict": 1,
            "cache_prompt": True,
            "temperature": 0,
        }
        body = msgspec.json.encode(order)
        answer = await self._ask(server, "POST", "/completion", body, limit_s)
        return _understood(_COMPLETED, answer, "its answer to a prompt").timings

    async def _order(
        self, server: Server, slot: int, action: str, name: str, limit_s: float
    ) -> _Answer:
        # In router mode the server wants the model in the body; others don't look at it.
        order = {"filename": name, "model": server.model} if name else {"model": server.model}
        body = msgspec.json.encode(order)
        return await self._ask(server, "POST", f"/slots/{slot}?action={action}", body, limit_s)

    async def _ask(
        self, server: Server, method: str, path: str, body: bytes | None, limit_s: float
    ) -> _Answer:
        try:
            async with asyncio.timeout(limit_s):
                answer = await self._exchange(server, method, path, body)
        except TimeoutError:
            raise Late(f"no answer to {method} {path} within {limit_s:g} s") from None
        except (aiohttp.ClientError, OSError) as error:
            said = str(error) or type(error).__name__
            raise Lost(f"no answer to {method} {path}: {said}") from error
        if answer.status == 200:
            return answer
        kind = NotSupported if answer.status in _NOT_THERE else Refused
        raise kind(f"{method} {path} was answered with {answer}")

    async def _exchange(
        self, server: Server, method: str, path: str, body: bytes | None
    ) -> _Answer:
        headers = {"Content-Type": "application/json"} if body else {}
        if server.key:
            headers["Authorization"] = f"Bearer {server.key}"
        async with self._client().request(
            method, _url(server, path), data=body, headers=headers, allow_redirects=False
        ) as answer:
            return _Answer(answer.status, await _body(answer))

    def _client(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                timeout=aiohttp.ClientTimeout(total=None),  # each order has a limit of its own
                connector=aiohttp.TCPConnector(limit=0, force_close=True),
            )
        return self._session


def _url(server: Server, path: str) -> str:
    host = f"[{server.host}]" if ":" in server.host else server.host
    scheme = "https" if server.tls else "http"
    return f"{scheme}://{host}:{server.port}{server.base_path}{path}"


async def _body(answer: aiohttp.ClientResponse) -> bytes:
    """Return the body; one without end is cut."""
    data = bytearray()
    async for chunk in answer.content.iter_any():
        data += chunk
        if len(data) >= _MOST_BYTES:
            break
    return bytes(data[:_MOST_BYTES])


def _understood(decoder: msgspec.json.Decoder[_Said], answer: _Answer, what: str) -> _Said:
    try:
        return decoder.decode(answer.body)
    except msgspec.DecodeError as error:
        raise SlotsFailed(f"{what} can't be understood: {error}") from None
