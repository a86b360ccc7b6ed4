"""The yardstick: a relay as one writes it with aiohttp's server and client, and nothing else.

python -m tests.benchmarks.plain_relay --port 8081 --upstream 5800
"""

from __future__ import annotations

import argparse
import asyncio
from contextlib import suppress

import aiohttp
import uvloop
from aiohttp import web
from multidict import CIMultiDict, CIMultiDictProxy

_HOP_BY_HOP = {"connection", "keep-alive", "transfer-encoding", "te", "trailer", "upgrade", "host"}


def _end_to_end(headers: CIMultiDictProxy[str]) -> CIMultiDict[str]:
    return CIMultiDict((k, v) for k, v in headers.items() if k.lower() not in _HOP_BY_HOP)


def _relay_to(session: aiohttp.ClientSession, upstream: str) -> web.Application:
    async def relay(request: web.Request) -> web.StreamResponse:
        body = await request.read()
        headers = _end_to_end(request.headers)
        async with session.request(
            request.method, upstream + request.path_qs, data=body, headers=headers
        ) as answer:
            headers = _end_to_end(answer.headers)
            response = web.StreamResponse(status=answer.status, headers=headers)
            await response.prepare(request)
            async for chunk in answer.content.iter_any():
                await response.write(chunk)
            await response.write_eof()
            return response

    app = web.Application(client_max_size=2**30)
    app.router.add_route("*", "/{path:.*}", relay)
    return app


async def _serve(port: int, upstream_port: int) -> None:
    connector = aiohttp.TCPConnector(limit=0)
    timeout = aiohttp.ClientTimeout(total=None)
    async with aiohttp.ClientSession(
        connector=connector, timeout=timeout, auto_decompress=False
    ) as session:
        app = _relay_to(session, f"http://127.0.0.1:{upstream_port}")
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", port, backlog=2048).start()
        await asyncio.Event().wait()


def main() -> None:
    """Serve until killed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--upstream", type=int, required=True)
    parser.add_argument("--uvloop", action="store_true", help="not asyncio's own event loop")
    options = parser.parse_args()
    run = uvloop.run if options.uvloop else asyncio.run
    with suppress(KeyboardInterrupt):
        run(_serve(options.port, options.upstream))


if __name__ == "__main__":
    main()
