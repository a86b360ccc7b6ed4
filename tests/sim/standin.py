"""A stand-in for llama-server on the simulated GPU: its weights and its KV cache are GPU memory.

    python -m tests.sim.standin --port PORT [--host HOST] [--mib 256] [--filled] [--managed]
        [--load-s 0]

What a request asks of the GPU it asks in llama-server's order, so one that comes while the process
is asleep crashes it. `/health`, `/props`, `/slots`, `/metrics` and `/v1/models` ask nothing of the
GPU. SIGTERM frees the model first, as llama-server does.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import signal
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

from llmsnap.sleep.cuda_selftest import Device

_MIB: Final = 1024**2
_CACHE_BYTES: Final = 64 * 1024
_TOKENS_PER_MS: Final = 10
"""What it says of its speed."""


class Engine:
    """One model with one slot; a token is a byte."""

    def __init__(self, mib: int, *, filled: bool, managed: bool) -> None:
        self._device = Device()
        self._weights = self._device.take(mib * _MIB)
        for part in range(mib if filled else 0):
            self._device.write(self._weights + part * _MIB, os.urandom(_MIB))
        self._cache = self._device.take(_CACHE_BYTES)
        self._turn = threading.Lock()
        if managed:
            address, size = ctypes.c_uint64(), ctypes.c_size_t(_MIB)
            self._device.call("cuMemAllocManaged", ctypes.byref(address), size, ctypes.c_uint(1))

    def complete(self, prompt: str) -> dict[str, Any]:
        """Answer a prompt; what it has in common with the last one is in the cache."""
        tokens = prompt.encode()[: _CACHE_BYTES - 2]
        with self._turn:
            self.synchronise()
            cached = _common(tokens, self._read())
            self._device.write(self._cache, len(tokens).to_bytes(2, "little") + tokens)
        computed = len(tokens) - cached
        took_ms = computed / _TOKENS_PER_MS
        timings = {"cache_n": cached, "prompt_n": computed, "prompt_ms": took_ms, "predicted_n": 1}
        return {"content": f"{len(tokens)} tokens", "timings": timings}

    def synchronise(self) -> None:
        """Wait for the GPU: of an asleep process this is the last thing it does."""
        self._device.attach()
        self._device.call("cuStreamSynchronize", None)

    def _read(self) -> bytes:
        content = self._device.read(self._cache, _CACHE_BYTES)
        return content[2 : 2 + int.from_bytes(content[:2], "little")]


def _common(left: bytes, right: bytes) -> int:
    pairs = enumerate(zip(left, right, strict=False))
    return next((place for place, (a, b) in pairs if a != b), min(len(left), len(right)))


class Requests(BaseHTTPRequestHandler):
    """What comes by HTTP."""

    protocol_version = "HTTP/1.1"
    engine: Engine

    def do_GET(self) -> None:
        """Answer what needs no GPU."""
        self._answer({"status": "ok", "path": self.path, "pid": os.getpid()})

    def do_POST(self) -> None:
        """Generate."""
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        messages = body.get("messages", ())
        prompt = body.get("prompt") or "".join(message["content"] for message in messages)
        answer = self.engine.complete(prompt)
        if messages:
            message = {"role": "assistant", "content": answer["content"]}
            answer["choices"] = [{"index": 0, "message": message, "finish_reason": "stop"}]
        self._answer(answer)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""

    def _answer(self, content: dict[str, Any]) -> None:
        body = json.dumps(content).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def main() -> None:
    """Load the model, then serve until SIGTERM."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--mib", type=int, default=256)
    parser.add_argument("--filled", action="store_true", help="write to all of the memory")
    parser.add_argument("--managed", action="store_true")
    parser.add_argument("--load-s", type=float, default=0.0)
    options = parser.parse_args()

    time.sleep(options.load_s)
    engine = Requests.engine = Engine(options.mib, filled=options.filled, managed=options.managed)
    server = ThreadingHTTPServer((options.host, options.port), Requests)
    asked_to_end = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: asked_to_end.set())
    threading.Thread(target=server.serve_forever, daemon=True).start()
    while not asked_to_end.wait(1.0):
        pass  # as idle as llama-server: no call into CUDA
    engine.synchronise()


if __name__ == "__main__":
    main()
