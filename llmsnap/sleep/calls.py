"""HTTP calls to a model's server around its sleep: bounded in time, failures told in words."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import urljoin, urlsplit

import aiohttp

from llmsnap.config.schema import SleepStep
from llmsnap.config.secrets import blank, secret_values
from llmsnap.errors import SleepFailed, WakeFailed
from llmsnap.sleep.driver import Target

_EXCERPT: Final = 200
_MOST_BYTES: Final = 256 * 1024
_PAUSE_S: Final = 0.05
_KEY_VARIABLES: Final = ("VLLM_API_KEY", "LLAMA_API_KEY")

Failure = type[SleepFailed] | type[WakeFailed]


@dataclass(frozen=True, slots=True)
class Ask:
    """One call; `key` is where the configuration asks for it."""

    key: str
    url: str
    method: str
    limit_s: float
    body: str = ""
    """JSON, or nothing."""

    def __str__(self) -> str:
        parts = urlsplit(self.url)
        query = f"?{parts.query}" if parts.query else ""
        return f"{self.key} ({self.method} {parts.path or '/'}{query})"


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back, as far as anybody reads it."""

    status: int
    text: str

    def __str__(self) -> str:
        text = self.text.strip()
        return f"{self.status}: {text[:_EXCERPT]!r}" if text else f"{self.status} and no text"


class Calls:
    """The HTTP client for all servers; one connection a call."""

    def __init__(self) -> None:
        self._client: aiohttp.ClientSession | None = None

    def to(self, target: Target, failure: Failure, setting: str) -> Conversation:
        """Begin to talk to a server; what goes wrong is a `failure`.

        `setting` is the key that sets how long an answer may take.
        """
        if self._client is None:
            self._client = aiohttp.ClientSession(
                timeout=aiohttp.ClientTimeout(total=None),  # each call has a limit of its own
                connector=aiohttp.TCPConnector(limit=0, force_close=True),
            )
        return Conversation(self._client, target, failure, setting)

    async def aclose(self) -> None:
        """Close the client."""
        if self._client is not None:
            await self._client.close()
            self._client = None


class Conversation:
    """Talks to one server for the length of a sleep or a wake."""

    def __init__(
        self, client: aiohttp.ClientSession, target: Target, failure: Failure, setting: str
    ) -> None:
        self._client = client
        self._target = target
        self._failure = failure
        self._setting = setting

    def below(self, path: str) -> str:
        """Return the URL of `path` as requests reach it, below the path that `proxy` has."""
        return f"{self._target.base_url}/{path.lstrip('/')}"

    def beside(self, reference: str) -> str:
        """Return the URL of a path or URL that is resolved against `proxy`, as browsers do it."""
        return urljoin(f"{self._target.base_url}/", reference.strip())

    async def run(self, key: str, steps: Sequence[SleepStep]) -> None:
        """Make the calls under `key` in order; each must be answered with 200."""
        for index, step in enumerate(steps):
            url = self.beside(step.endpoint)
            ask = Ask(f"{key}[{index}]", url, step.method, step.timeout_s, step.body)
            answer = await self.ask(ask)
            if answer.status != 200:
                raise self.refused(ask, answer)

    async def ask(self, ask: Ask) -> Answer:
        """Return the answer, whatever its status."""
        try:
            async with asyncio.timeout(ask.limit_s):
                return await self._exchange(ask)
        except TimeoutError:
            raise self._no_answer(ask) from None

    async def until(self, ask: Ask, holds: Callable[[Answer], bool]) -> None:
        """Ask again until `holds` is true of an answer; the limit is for all of it."""
        answer: Answer | None = None
        try:
            async with asyncio.timeout(ask.limit_s):
                while not holds(answer := await self._exchange(ask)):  # noqa: ASYNC110 - HTTP
                    await asyncio.sleep(_PAUSE_S)
        except TimeoutError:
            if answer is None:
                raise self._no_answer(ask) from None
            waited = f"after {ask.limit_s:g} s; raise {self._setting}?"
            raise self.failure(f"{ask} still answered {answer} {waited}") from None

    def refused(self, ask: Ask, answer: Answer) -> SleepFailed | WakeFailed:
        """Return the error of a status that isn't right."""
        remedy = f"`llmsnap logs {self._target.model}` may say why"
        if answer.status in (404, 405):
            remedy = (
                "is the server's sleep turned on? vLLM wants --enable-sleep-mode and "
                "VLLM_SERVER_DEV_MODE=1, SGLang --enable-memory-saver"
            )
        return self.failure(f"{ask} answered {answer}; {remedy}")

    def failure(self, text: str) -> SleepFailed | WakeFailed:
        """Return the error that says `text`, without the server's secrets."""
        environment = [f"{name}={value}" for name, value in self._target.env.items()]
        secrets = secret_values(self._target.argv, environment)
        return self._failure(blank(text, secrets))

    def _no_answer(self, ask: Ask) -> SleepFailed | WakeFailed:
        text = f"{ask} gave no answer within {ask.limit_s:g} s; raise its timeout"
        return self.failure(f"{text} or {self._setting}")

    async def _exchange(self, ask: Ask) -> Answer:
        try:
            async with self._client.request(
                ask.method,
                ask.url,
                data=ask.body.encode() or None,
                headers=self._headers(ask),
                allow_redirects=False,
            ) as answer:
                return Answer(answer.status, await _text(answer))
        except (aiohttp.ClientError, OSError, ValueError) as error:
            reason = str(error) or type(error).__name__
            raise self.failure(f"{ask} got no answer: {reason}; does the server run?") from error

    def _headers(self, ask: Ask) -> dict[str, str]:
        headers = {"Content-Type": "application/json"} if ask.body else {}
        key = server_key(self._target)
        if key and urlsplit(ask.url).netloc == urlsplit(self._target.base_url).netloc:
            headers["Authorization"] = f"Bearer {key}"
        return headers


def server_key(target: Target) -> str:
    """Return a key that the server was told to ask for; empty: none."""
    for index, word in enumerate(target.argv):
        option, equals, value = word.partition("=")
        if option == "--api-key":
            keys = value if equals else "".join(target.argv[index + 1 : index + 2])
            return keys.split(",")[0]
    return next(filter(None, (target.env.get(name) for name in _KEY_VARIABLES)), "")


async def _text(answer: aiohttp.ClientResponse) -> str:
    """Return the body as text; one without end is cut."""
    data = bytearray()
    async for chunk in answer.content.iter_any():
        data += chunk
        if len(data) >= _MOST_BYTES:
            break
    return data[:_MOST_BYTES].decode(errors="replace")
