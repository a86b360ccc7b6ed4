"""The servers that are measured: llmsnap, of which states can be ordered, and any other."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from llmsnap.bench.samples import OURS
from llmsnap.client.models import listed, views
from llmsnap.client.proxy import Client, NoProxy, Refused, model_path
from llmsnap.client.stream import COMPLETION_PATH, Figures, ask
from llmsnap.config.argv import split_command
from llmsnap.runtime.prefetch import files_of

_PATIENCE_S: Final = 5.0
"""It is found out that soon after a start whether and how a model sleeps."""


@dataclass(frozen=True)
class Answer:
    """What one question brought."""

    text: str
    figures: Figures


@dataclass(frozen=True)
class Server:
    """Any server that streams completions as OpenAI does; nothing is known but its address."""

    name: str
    client: Client
    names: Mapping[str, str] = field(default_factory=dict)
    """What it calls models that have another name here."""

    def complete(self, model: str, prompt: str, tokens: int) -> Answer:
        """Have it go on with a text, to its first `tokens`. Raises NoProxy or Refused."""
        body = {
            "model": self.names.get(model, model),
            "prompt": prompt,
            "max_tokens": tokens,
            "temperature": 0,
        }
        with ask(self.client, COMPLETION_PATH, body) as stream:
            text = "".join(piece.text for piece in stream)
            return Answer(text, stream.figures)

    def models(self) -> list[str]:
        """Return the names it lists. Raises NoProxy or Refused."""
        return listed(self.client)

    def engine(self, model: str) -> str:
        """Return what it says it is; empty where it doesn't. Raises NoProxy."""
        return _told(self.client, "/props", "build_info") or _told(
            self.client, "/api/version", "version"
        )


class Proxy(Server):
    """An llmsnap, whose models can be put into each state."""

    def views(self) -> dict[str, dict[str, Any]]:
        """Return what it says of its models, by every name. Raises NoProxy or Refused."""
        return views(self.client)

    def view(self, model: str) -> dict[str, Any]:
        """Return what it says of one model. Raises NoProxy or Refused."""
        return self.views()[model]

    def load(self, model: str) -> None:
        """Have it up. Raises NoProxy or Refused."""
        self.client.json("POST", model_path("/api/models/load", model))

    def unload(self, model: str) -> None:
        """Have its process gone. Raises NoProxy or Refused."""
        self.client.text("POST", model_path("/api/models/unload", model))

    @property
    def drivers(self) -> tuple[str, ...]:
        """The ways to sleep that it can be told to take, beside its own."""
        return ()

    def check_driver(self, model: str, driver: str) -> None:
        """Have it up. Raises Refused when it can't sleep by `driver`; empty: by any."""
        assert not driver, "only a proxy of our own can be told"
        self.load(model)

    def files(self, model: str) -> tuple[Path, ...]:
        """Have it up; return the files that its server reads when it starts."""
        self.load(model)
        running = self.client.json("GET", "/running")["running"]
        commands = [split_command(one["cmd"]) for one in running if one["model"] == model]
        return files_of(commands[0], {}) if commands else ()

    def sleep(self, model: str, driver: str = "") -> str:
        """Have it asleep; return by what. Raises Refused, with the reason, where it can't."""
        assert not driver, "only a proxy of our own can be told"
        self.load(model)
        self.settled_view(model)
        return str(self.client.json("POST", model_path("/api/models/sleep", model))["driver"])

    def settled_view(self, model: str) -> dict[str, Any]:
        """Return what it says of a model that is up, once it was found out how that sleeps."""
        return self.view_when(
            model, lambda view: view["driver"] is not None or bool(view["sleep_refusals"])
        )

    def view_when(self, model: str, holds: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Return what it says of a model as soon as that holds, or after some patience."""
        deadline = time.monotonic() + _PATIENCE_S
        while True:
            is_last = time.monotonic() >= deadline  # before it looks: it may take long to get to it
            view = self.view(model)
            if is_last or holds(view):
                return view
            time.sleep(0.05)

    def engine(self, model: str) -> str:
        """Return what its server says it is; empty where it doesn't, or isn't up."""
        return _told(self.client, f"{model_path('/upstream', model)}/props", "build_info")

    def rows_since(self, asked_at: str, models: Collection[str]) -> list[Mapping[str, Any]]:
        """Return the rows of requests for `models` since an instant, the oldest first."""
        rows: list[Mapping[str, Any]] = []
        page = 1
        while True:
            answer = self.client.json("GET", _rows_path(asked_at, page))
            rows += [row for row in answer["data"] if row["model"] in models]
            if page >= answer["total_pages"]:
                return rows
            page += 1


def _told(client: Client, path: str, key: str) -> str:
    """Return what stands at `key` of an answer; empty where there is none. Raises NoProxy."""
    try:
        return str(client.json("GET", path).get(key) or "")
    except Refused:
        return ""


def _rows_path(since: str, page: int) -> str:
    stamp = since.replace("+", "%2B")
    return f"/api/activity?start={stamp}&sort=id&order=asc&limit=500&page={page}"


def meet(url: str, key: str = "") -> Proxy:
    """Return the llmsnap at `url`. Raises NoProxy when none is there."""
    proxy = Proxy(OURS, Client(url, key))
    try:
        proxy.views()
    except (Refused, KeyError, TypeError) as error:
        raise NoProxy(f"{url} isn't llmsnap: {error}") from error
    return proxy
