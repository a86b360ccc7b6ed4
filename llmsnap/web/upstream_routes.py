"""`/upstream/MODEL/…` and `/comfyui/…`: a model's own server, as it is."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final, Protocol
from urllib.parse import unquote

from aiohttp import hdrs, web

from llmsnap.config.schema import Config
from llmsnap.core.lifecycle import State
from llmsnap.core.messages import ModelView
from llmsnap.errors import Conflict, Forbidden, ModelNotFound
from llmsnap.web.head import Head

QUIET_PATHS: Final = frozenset({"/health", "/props", "/slots", "/metrics", "/models", "/v1/models"})
"""What monitors poll with GET: never a reason to load a model or to keep it; see `monitoring`."""

REFUSED_PATHS: Final = frozenset(
    {
        *("/sleep", "/wake_up", "/collective_rpc"),
        *("/release_memory_occupation", "/resume_memory_occupation"),
    }
)
"""Ways of vLLM and SGLang to change a model behind the scheduler's back."""

COMFYUI: Final = "comfyui_auto"

_READS: Final = frozenset({hdrs.METH_GET, hdrs.METH_HEAD})


class Forwarding(Protocol):
    """What the routes need of the proxy."""

    async def forward(
        self, request: web.Request, model: str, path: str, *, is_use: bool = True
    ) -> web.StreamResponse: ...


class UpstreamRoutes:
    """Finds the model that a path begins with and passes the rest of the path on."""

    def __init__(
        self,
        names: Callable[[], Mapping[str, str]],
        local: Collection[str],
        ignore_paths: Sequence[str],
        view: Callable[[str], ModelView],
        proxy: Forwarding,
    ) -> None:
        """`names` returns what names mean now; `local` are the ids of models of this machine."""
        self._names = names
        self._local = frozenset(local)
        self._ignore(ignore_paths)
        self._view = view
        self._proxy = proxy

    def adopt(self, config: Config) -> None:
        """Go by another configuration from now on."""
        self._local = frozenset(config.models)
        self._ignore(config.upstream.ignore_paths)

    def _ignore(self, patterns: Sequence[str]) -> None:
        self._ignored = [re.compile(pattern) for pattern in patterns]

    def routes(self) -> list[web.RouteDef]:
        """Return the routes to mount."""
        return [
            web.get("/upstream", self.index),
            web.route("*", "/upstream/{rest:.*}", self.upstream),
            web.route("*", "/comfyui", self.comfyui),
            web.route("*", "/comfyui/{rest:.*}", self.comfyui),
        ]

    async def index(self, _: web.Request) -> web.Response:
        """Send browsers to the page that lists the models."""
        return web.Response(status=302, headers={"Location": "/ui/#models"})

    async def upstream(self, request: web.Request) -> web.StreamResponse:
        """Forward to the model whose name is the longest one that the path begins with."""
        raw, query = raw_target(request)
        model, path = split_model(self._names(), raw.partition("/upstream/")[2])
        if not path:
            return _with_slash(request, raw, query)
        plain = plain_path(path)
        if plain in REFUSED_PATHS:
            raise Forbidden(f"{plain} of {model!r} would go behind the scheduler's back")
        is_use = True
        if model in self._local and any(pattern.search(path) for pattern in self._ignored):
            self._require_ready(model, path)
            # A page that is left open in a browser asks for its parts again and again.
            is_use = request.method not in _READS
        return await self._proxy.forward(request, model, path + query, is_use=is_use)

    async def comfyui(self, request: web.Request) -> web.StreamResponse:
        """Forward to the model `comfyui_auto`; only its first page may load it."""
        if COMFYUI not in self._local:
            raise ModelNotFound(f"no model is called {COMFYUI!r}")
        raw, query = raw_target(request)
        path = raw.removeprefix("/comfyui")
        if not path:
            return _with_slash(request, raw, query)
        if path != "/":
            self._require_ready(COMFYUI, path)
        return await self._proxy.forward(request, COMFYUI, path + query)

    def _require_ready(self, model: str, path: str) -> None:
        # What is asked next of the scheduler follows without an await, so that it sees this state.
        state = self._view(model).state
        if state is not State.READY:
            raise Conflict(f"{model!r} is {state}, and {path} is no reason to load it")


def raw_target(request: Head) -> tuple[str, str]:
    """Return path and query (with its `?`) as they were received, escapes and all.

    A fragment is no part of what is asked for: servers drop it, so a comparison must not see it.
    """
    raw = request.raw_path
    if not raw.startswith("/"):  # a whole URL, as for a proxy
        raw = "/" + raw.partition("://")[2].partition("/")[2]
    path, mark, query = raw.partition("#")[0].partition("?")
    return path, mark + query


def split_model(names: Mapping[str, str], rest: str) -> tuple[str, str]:
    """Return the model that the leading segments of `rest` name, and the raw path after it.

    The longest match wins; the path is empty when there isn't even a slash. Raises ModelNotFound.
    """
    segments = rest.split("/")
    for end in range(len(segments), 0, -1):
        if model := names.get(unquote("/".join(segments[:end]))):
            return model, "/".join(["", *segments[end:]])
    raise ModelNotFound(f"no model or alias begins {unquote(rest)!r}; see /v1/models")


def plain_path(path: str) -> str:
    """Return `path` unescaped and without what servers commonly ignore, for comparing."""
    return posixpath.normpath("/" + unquote(path).lstrip("/"))


def _with_slash(request: web.Request, path: str, query: str) -> web.Response:
    status = 301 if request.method in _READS else 308
    return web.Response(status=status, headers={"Location": f"{path}/{query}"})
