"""A model server with a sleep of its own, and its ways to go wrong, for the `endpoints` driver.

    python -m tests.helpers.sleepy_server --port 5800 --journal FILE --fail /wake_up

It has vLLM's endpoints (/sleep, /wake_up, /is_sleeping, /collective_rpc, /reset_prefix_cache) and
SGLang's (/release_memory_occupation, /resume_memory_occupation), with their rules: level 2 loses
the weights until they are reloaded, `?tags=` wakes in parts, and a prompt that comes while it
sleeps kills it. What it can't show is memory and time: nothing is moved anywhere.

`--journal FILE` gets one JSON line an event: start, request (with path, body, pid, asleep), killed.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import socket
import threading
import time
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.helpers.fake_server import Journal

PARTS = frozenset({"weights", "kv_cache"})
KILLED_BY_PROMPT = 11
"""Exit code after a prompt while asleep."""


class Engine:
    """What is loaded, and what the server answers."""

    def __init__(self, options: argparse.Namespace, journal: Journal) -> None:
        self.options = options
        self.journal = journal
        self.asleep: set[str] = set()
        self.weights_lost = False
        self._calls: Counter[str] = Counter()
        self._lock = threading.Lock()

    def answer(self, path: str, query: dict[str, list[str]], body: bytes) -> tuple[int, Any]:
        """Return status and JSON for one request."""
        with self._lock:
            self._calls[path] += 1
            self.journal.add(
                "request", path=path, query=query, body=body.decode(), asleep=sorted(self.asleep)
            )
            if path == self.options.die_on:
                os._exit(1)
            if path == self.options.fail and self._calls[path] in self._failing():
                return self.options.status, {"error": self.options.text}
            pause_s = self.options.slow_s if path == self.options.slow else 0.0
        time.sleep(pause_s)
        with self._lock:
            return self._act(path, query, body)

    def _failing(self) -> range:
        """Which calls of the path that fails do so."""
        return range(self.options.fail_from, self.options.fail_from + self.options.fail_times)

    def _act(self, path: str, query: dict[str, list[str]], body: bytes) -> tuple[int, Any]:
        match path:
            case "/health":
                return 200, {"status": "ok"}
            case "/sleep" | "/release_memory_occupation":
                self._sleep(query.get("level", ["1"])[0])
                return 200, None
            case "/wake_up" | "/resume_memory_occupation":
                self._wake(frozenset(query.get("tags", PARTS)))
                return 200, None
            case "/is_sleeping":
                return 200, {"is_sleeping": bool(self.asleep)}
            case "/collective_rpc":
                self.weights_lost &= json.loads(body)["method"] != "reload_weights"
                return 200, {"results": [None]}
            case "/reset_prefix_cache":
                return 200, {}
            case "/v1/completions" | "/v1/chat/completions":
                return 200, self._complete(body)
        return 404, {"error": f"no {path} here"}

    def _sleep(self, level: str) -> None:
        if not self.options.never_sleeps:
            self.asleep = set(PARTS)
        self.weights_lost = level == "2" or self.options.no_backup

    def _wake(self, parts: frozenset[str]) -> None:
        if not self.options.never_wakes:
            self.asleep -= parts

    def _complete(self, body: bytes) -> dict[str, Any]:
        if self.asleep:
            self.journal.add("killed")
            os._exit(KILLED_BY_PROMPT)
        prompt = json.dumps(json.loads(body).get("prompt"))
        text = "!!!!!!!!" if self.weights_lost else hashlib.sha256(prompt.encode()).hexdigest()[:8]
        message = {"role": "assistant", "content": text}
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        choice = {"index": 0, "text": text, "message": message, "finish_reason": "length"}
        answer = {"id": "sleepy-1", "pid": os.getpid(), "choices": [choice], "usage": usage}
        if self.options.speeds:
            speed = self.options.speeds.pop(0)
            answer["timings"] = {"predicted_n": 1, "predicted_per_second": speed}
        return answer


class Front(BaseHTTPRequestHandler):
    """HTTP around an engine."""

    protocol_version = "HTTP/1.1"
    engine: Engine

    def do_GET(self) -> None:
        """Answer."""
        self._answer()

    def do_POST(self) -> None:
        """Answer."""
        self._answer()

    def log_message(self, format: str, *args: object) -> None:
        """Keep quiet; there is a journal."""

    def _answer(self) -> None:
        parts = urlsplit(self.path)
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        key = self.engine.options.api_key
        if key and self.headers.get("Authorization") != f"Bearer {key}":
            status, value = 401, {"error": f"not the key: {self.headers.get('Authorization')}"}
        elif body and self.headers.get("Content-Type") != "application/json":
            status, value = 415, {"error": "JSON is wanted"}
        else:
            status, value = self.engine.answer(parts.path, parse_qs(parts.query), body)
        data = b"" if status == 204 else json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        if status == 302:
            self.send_header("Location", "/health")
        self.end_headers()
        self.wfile.write(data)


class Server(ThreadingHTTPServer):
    """Threads that end with the process."""

    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of clients that went away."""

    def server_bind(self) -> None:
        """Bind without asking DNS for a name, which may take seconds."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_name, self.server_port = "localhost", self.socket.getsockname()[1]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--journal")
    parser.add_argument("--journal-tag", default="")
    parser.add_argument("--fail", metavar="PATH", help="answer this path with --status")
    parser.add_argument("--fail-from", type=int, default=1, help="from that call on")
    parser.add_argument("--fail-times", type=int, default=10**9)
    parser.add_argument("--status", type=int, default=500)
    parser.add_argument("--text", default="out of memory")
    parser.add_argument("--slow", metavar="PATH", help="answer this path after --slow-s")
    parser.add_argument("--slow-s", type=float, default=3600.0)
    parser.add_argument("--die-on", metavar="PATH", help="exit when this path is asked for")
    parser.add_argument("--never-sleeps", action="store_true", help="/sleep says 200, that is all")
    parser.add_argument("--never-wakes", action="store_true", help="/wake_up says 200, that is all")
    parser.add_argument("--no-backup", action="store_true", help="each sleep loses the weights")
    parser.add_argument("--api-key", default="")
    parser.add_argument(
        "--speeds", type=float, nargs="*", help="tokens a second that answers tell of, in turn"
    )
    return parser.parse_args()


def main() -> None:
    """Serve until a signal."""
    options = _options()
    journal = Journal(options.journal)
    Front.engine = Engine(options, journal)
    server = Server(("127.0.0.1", options.port), Front)
    journal.add("start", tag=options.journal_tag)
    server.serve_forever()


if __name__ == "__main__":
    main()
