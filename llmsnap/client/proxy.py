"""Questions to a running proxy, or to any other server that speaks as OpenAI does."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote, urlsplit

from llmsnap import __version__
from llmsnap.errors import LlmsnapError

DEFAULT_URL: Final = "http://127.0.0.1:8080"
_CHUNK_BYTES: Final = 64 * 1024


class NoProxy(LlmsnapError):
    """No llmsnap answers where it should."""


class Refused(LlmsnapError):
    """The proxy answered with an error."""


@dataclass(frozen=True, slots=True)
class Client:
    """One proxy: its base URL and a key for it, which may be empty."""

    url: str
    key: str = ""
    timeout_s: float | None = None
    """How long it may be silent; None: for ever, as it waits for models."""

    def json(self, method: str, path: str, body: object = None) -> dict[str, Any]:
        """Send `body` as JSON; return the decoded answer. Raises NoProxy or Refused."""
        with self.ask(method, path, body) as answer:
            return self._decoded(answer.read())

    def text(self, method: str, path: str) -> str:
        """Return the answer as text. Raises NoProxy or Refused."""
        with self.ask(method, path) as answer:
            return answer.read().decode(errors="replace")

    def chunks(self, path: str) -> Iterator[bytes]:
        """Yield the answer as it comes. Raises NoProxy or Refused."""
        with self.ask("GET", path) as answer:
            try:
                while chunk := answer.read1(_CHUNK_BYTES):
                    yield chunk
            except (OSError, http.client.HTTPException) as error:
                raise NoProxy(f"the connection to {self.url} broke: {error}") from error

    @contextmanager
    def ask(
        self, method: str, path: str, body: object = None
    ) -> Iterator[http.client.HTTPResponse]:
        """Lend an answer whose head is there; `body` is sent as JSON. Raises NoProxy or Refused."""
        connection, base = self._connection()
        with closing(connection):
            answer = self._answer(connection, method, base + path, body)
            if answer.status >= 400:
                raise Refused(self._complaint(answer.status, answer.read()))
            yield answer

    def _answer(
        self, connection: http.client.HTTPConnection, method: str, path: str, body: object
    ) -> http.client.HTTPResponse:
        headers = {
            "Accept": "application/json",
            "Connection": "close",
            "User-Agent": f"llmsnap/{__version__}",
        }
        if body is not None:
            headers["Content-Type"] = "application/json"
        if self.key:
            headers["Authorization"] = f"Bearer {self.key}"
        try:
            connection.request(method, path, _encoded(body), headers)
            return connection.getresponse()
        except ConnectionRefusedError as error:
            raise NoProxy(
                f"nothing listens on {self.url}; start it with `llmsnap --config config.yaml`, "
                "or say with --url where it is"
            ) from error
        except (OSError, http.client.HTTPException) as error:
            raise NoProxy(f"{self.url} doesn't answer as a proxy: {error}") from error

    def _connection(self) -> tuple[http.client.HTTPConnection, str]:
        """Return a connection that isn't open yet, and what every path begins with."""
        kinds = {"http": http.client.HTTPConnection, "https": http.client.HTTPSConnection}
        try:
            parts = urlsplit(self.url)
            kind, host, port = kinds[parts.scheme], parts.hostname or "", parts.port
        except (KeyError, ValueError):
            host = ""
        if not host:
            raise NoProxy(f"{self.url!r} isn't the URL of a proxy; one is {DEFAULT_URL}")
        return kind(host, port, timeout=self.timeout_s), parts.path.rstrip("/")

    def _complaint(self, status: int, body: bytes) -> str:
        try:
            said = str(self._decoded(body)["error"]["message"])
        except (KeyError, TypeError, NoProxy):
            return f"{self.url} answered {status}; is it llmsnap?"
        if status == http.HTTPStatus.UNAUTHORIZED:
            return f"{said}; give one with --key, or in LLMSNAP_API_KEY"
        return said

    def _decoded(self, body: bytes) -> dict[str, Any]:
        try:
            value = json.loads(body)
        except ValueError:
            value = None
        if not isinstance(value, dict):
            raise NoProxy(f"{self.url} doesn't answer as llmsnap does; say with --url where it is")
        return value


def _encoded(body: object) -> bytes | None:
    return None if body is None else json.dumps(body).encode()


def model_path(prefix: str, model: str) -> str:
    """Return the path of `model` below `prefix`."""
    return f"{prefix}/{quote(model)}"
