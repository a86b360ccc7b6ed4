"""Inference past aiohttp's router and middlewares: the same gate, the same errors, for less.

Finding the route and calling through the middlewares is a sixth of what a short request costs.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection

from aiohttp import hdrs, web

from llmsnap.web.envelope import Handler, render_errors
from llmsnap.web.gate import Gate

Serve = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


class Shortcut:
    """Takes POSTs to certain paths; everything else, and whatever is unusual, goes the long way."""

    def __init__(self, paths: Collection[str], serve: Handler, gate: Gate) -> None:
        self._paths = frozenset(paths)
        self._serve = serve
        self._gate = gate

    def before(self, rest: Serve) -> Serve:
        """Return a handler for a whole server, whose long way is `rest`."""

        async def handle(request: web.BaseRequest) -> web.StreamResponse:
            if (
                request.method == hdrs.METH_POST
                and request.raw_path in self._paths
                and hdrs.EXPECT not in request.headers
                and isinstance(request, web.Request)
            ):
                return await render_errors(request, self._checked)
            return await rest(request)

        return handle

    async def _checked(self, request: web.Request) -> web.StreamResponse:
        self._gate.check(request)
        return await self._serve(request)


SHORTCUT = web.AppKey("shortcut", Shortcut)
