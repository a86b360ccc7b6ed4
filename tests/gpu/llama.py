"""A real llama-server with its model on a GPU, put to sleep and woken in a conversation."""

from __future__ import annotations

import asyncio
import json
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from llmsnap.sleep.cuda import CudaDriver
from tests.helpers.ports import free_port
from tests.helpers.waiting import eventually


class Server:
    """Its HTTP, as far as it is wanted here."""

    def __init__(self, port: int) -> None:
        self.port = port

    async def ready(self) -> bool:
        """Whether it has loaded its model."""
        try:
            await asyncio.to_thread(self._fetch, "/health", None)
        except urllib.error.URLError:
            return False
        return True

    async def complete(self, prompt: str) -> dict[str, Any]:
        """Return the answer to `prompt`, always the same one."""
        wanted = {"prompt": prompt, "temperature": 0, "n_predict": 32, "cache_prompt": True}
        return await asyncio.to_thread(self._fetch, "/completion", json.dumps(wanted).encode())

    def _fetch(self, path: str, body: bytes | None) -> dict[str, Any]:
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", body)
        with urllib.request.urlopen(request, timeout=60) as answer:
            content: dict[str, Any] = json.load(answer)
            return content


async def conversation(driver: CudaDriver, binary: Path, model: Path, count: int) -> dict[str, Any]:
    """Prefill a long prompt, then sleep, wake and ask again: same text, everything cached."""
    from tests.gpu.steps import target_of

    server = Server(free_port())
    options = ["-ngl", "99", "-np", "1", "-c", "16384", "--port", str(server.port)]
    process = await asyncio.create_subprocess_exec(
        str(binary), "-m", str(model), *options, stdout=asyncio.subprocess.DEVNULL
    )
    try:
        await eventually(server.ready, timeout_s=90, what="llama-server is ready")
        prompt = "The quick brown fox jumps over the lazy dog. " * 160
        first = await server.complete(prompt)
        target = target_of(process.pid, {}, server.port)
        verdict = await driver.probe(target)
        rows = []
        for _ in range(count):
            slept, woken = await driver.sleep(target), await driver.wake(target)
            again = await server.complete(prompt)
            rows.append(
                {
                    "sleep_s": round(slept.seconds, 3),
                    "wake_s": round(woken.seconds, 3),
                    "bytes": woken.bytes,
                    "same_text": again["content"] == first["content"],
                    "timings": again["timings"],
                }
            )
        return {"verdict": repr(verdict), "first": first["timings"], "cycles": rows}
    finally:
        process.kill()
        await process.wait()
