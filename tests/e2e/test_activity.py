"""What real requests and swaps leave behind."""

from __future__ import annotations

import json
import re
from base64 import b64decode
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import Configure
from tests.helpers.proxy_process import ProxyProcess, running_proxy
from tests.helpers.waiting import eventually

pytestmark = pytest.mark.e2e


async def rows(proxy: ProxyProcess, path: str = "/api/metrics/activity?order=asc") -> list[Any]:
    """What `path` lists."""
    _, page = await proxy.get(path)
    return list(page["data"])


async def have(
    proxy: ProxyProcess, count: int, *, each: Callable[[Any], bool] = lambda _: True
) -> list[Any]:
    """The rows, once there are so many of which `each` holds."""
    found: list[Any] = []

    async def there() -> bool:
        found[:] = filter(each, await rows(proxy))
        return len(found) == count

    await eventually(there)
    return found


async def test_p53_a_streamed_answer_leaves_its_timings(
    configure: Configure, tmp_path: Path
) -> None:
    """Tokens and speeds are the engine's own; the second time the prompt comes from its cache."""
    body = {"model": "a", "prompt": "Once upon a time", "stream": True, "max_tokens": 8}
    async with running_proxy(configure(names="a"), tmp_path) as proxy:
        for _ in range(2):
            await proxy.post("/v1/completions", body)
        first, second = await have(proxy, 2)
        _, one = await proxy.get(f"/api/activity/{second['id']}")

    assert first["tokens"]["output_tokens"] == second["tokens"]["output_tokens"] == 8
    assert first["tokens"]["cache_tokens"] == 0
    assert first["tokens"]["input_tokens"] > second["tokens"]["input_tokens"] > 0
    assert second["tokens"]["cache_tokens"] > 0
    assert second["tokens"]["tokens_per_second"] > 0
    assert first["resp_content_type"].startswith("text/event-stream")
    assert re.search(r"\d+ of \d+ prompt tokens came from cache", one["why"])
    assert one["start"] == "awake"
    assert one["ttft_s"] >= one["first_byte_s"] > 0


async def test_a_swap_is_told_by_the_request_that_waited_for_it(
    configure: Configure, tmp_path: Path
) -> None:
    """Row, sentence, list of swaps and Server-Timing say the same."""
    async with running_proxy(configure(), tmp_path) as proxy:
        await proxy.post("/v1/completions", {"model": "a", "prompt": "x", "max_tokens": 1})
        async with proxy.session.post(
            "/v1/completions", json={"model": "b", "prompt": "x", "max_tokens": 1}
        ) as answer:
            header = answer.headers["Server-Timing"]
        rows_ = await have(proxy, 2)
        _, one = await proxy.get(f"/api/activity/{rows_[1]['id']}")
        moves = await rows(proxy, "/api/swaps?order=asc")

    told = {name: float(ms) for name, ms in re.findall(r"(\w+);dur=([\d.]+)", header)}
    kept = {name: seconds * 1000 for name, seconds in one["phases"].items()}
    assert kept == pytest.approx(told, abs=0.11)
    assert sum(one["phases"].values()) == pytest.approx(one["first_byte_s"], abs=1e-3)
    assert "to stop a" in one["why"]
    assert "to start b" in one["why"]
    assert [(move["model"], move["kind"], move["reason"]) for move in moves[:3]] == [
        ("a", "start", "requested"),
        ("a", "stop", "evicted by b"),
        ("b", "start", "requested"),
    ]
    assert moves[2]["departures"] == [{"model": "a", "kind": "stop"}]
    assert one["swap"]["id"] == moves[2]["id"]


async def test_rows_outlive_the_proxy(configure: Configure, tmp_path: Path) -> None:
    """Also those that were written just before its end."""
    text = configure(names="a")
    async with running_proxy(text, tmp_path) as proxy:
        await proxy.post("/v1/completions", {"model": "a", "prompt": "x", "max_tokens": 1})
        assert await proxy.stop() == 0
    async with running_proxy(text, tmp_path) as proxy:
        assert [row["model"] for row in await have(proxy, 1)] == ["a"]
        kinds = [move["kind"] for move in await rows(proxy, "/api/swaps?order=asc")]

    assert kinds == ["start", "stop"]


async def test_refused_requests_leave_rows_too(configure: Configure, tmp_path: Path) -> None:
    """With what the server said, and with what the proxy did."""
    bad = "sh -c 'sleep 0.5; exit 1'"
    text = configure(names="a") + f'\n  bad: {{cmd: "{bad}", proxy: "http://127.0.0.1:1"}}'
    async with running_proxy(text, tmp_path) as proxy:
        await proxy.post("/v1/completions", {"model": "a", "max_tokens": 1})
        await proxy.post("/v1/completions", {"model": "bad", "prompt": "x"})
        engines, ours = await have(proxy, 2)
        _, one = await proxy.get(f"/api/activity/{ours['id']}")

    assert engines["resp_status_code"] == 400
    assert "prompt" in engines["error_msg"]
    assert ours["resp_status_code"] == 502
    assert "exit code 1" in ours["error_msg"]
    assert ours["tokens"]["output_tokens"] == 0
    assert one["phases"]["start"] >= 0.5
    assert "starting bad, which failed" in one["why"]
    assert sum(one["phases"].values()) == pytest.approx(one["first_byte_s"], abs=1e-3)
    assert one["swap"]["result"] == "failed"
    assert one["swap"]["departures"] == [{"model": "a", "kind": "stop"}]


async def test_nothing_is_kept_when_it_is_off(configure: Configure, tmp_path: Path) -> None:
    """Neither of requests nor of models."""
    head = "memory: {devices: {host: 600MiB}}\nactivity: {mode: off}"
    async with running_proxy(configure(head, names="a"), tmp_path) as proxy:
        await proxy.post("/v1/completions", {"model": "a", "prompt": "x", "max_tokens": 1})
        _, stats = await proxy.get("/api/metrics/stats")

        assert stats["total_requests"] == 0
        assert await rows(proxy, "/api/swaps") == []


async def test_requests_are_kept_whole_in_memory_alone(
    configure: Configure, tmp_path: Path
) -> None:
    """What went to the server and what came back, streamed or not, without the key."""
    text = configure(
        "captureBuffer: 1\napiKeys: [k1]\nmemory: {devices: {host: 600MiB}}", names="a"
    )
    async with running_proxy(text, tmp_path) as proxy:
        proxy.session.headers["Authorization"] = "Bearer k1"
        body = {"model": "a", "prompt": "Once", "stream": True, "max_tokens": 3}
        async with proxy.session.post("/v1/completions", json=body) as answer:
            came = await answer.read()
        large = BytesIO(json.dumps({"model": "a", "prompt": "x" * 2_000_000}).encode())
        async with proxy.session.post("/v1/completions", data=large):
            pass
        await have(proxy, 2)
        await have(proxy, 1, each=lambda row: row["has_capture"])  # a moment after its row
        first, second = await have(proxy, 2)
        _, kept = await proxy.get(f"/api/captures/{first['id']}")

    assert (first["has_capture"], second["has_capture"]) == (True, False)
    assert json.loads(b64decode(kept["req_body"])) == body
    assert b64decode(kept["resp_body"]) == came
    assert kept["req_headers"]["Authorization"] == "[REDACTED]"
    assert kept["resp_headers"]["Content-Type"].startswith("text/event-stream")
    assert b"Once" not in (tmp_path / "state" / "llmsnap.db").read_bytes()


async def test_no_requests_are_kept_whole_where_nobody_wants_it(
    configure: Configure, tmp_path: Path
) -> None:
    """`captureBuffer: 0`."""
    text = configure("captureBuffer: 0\nmemory: {devices: {host: 600MiB}}", names="a")
    async with running_proxy(text, tmp_path) as proxy:
        await proxy.post("/v1/completions", {"model": "a", "prompt": "x", "max_tokens": 1})
        (row,) = await have(proxy, 1)
        status, _ = await proxy.get(f"/api/captures/{row['id']}")

    assert (row["has_capture"], status) == (False, 404)


async def test_a23_a_clock_in_the_system_prompt_is_found(
    configure: Configure, tmp_path: Path
) -> None:
    """The real server computes all behind it again, and its row says where; no text is kept."""
    question = {"role": "user", "content": "tell me more of that, please " * 5}
    async with running_proxy(configure(names="a"), tmp_path) as proxy:
        for minute in (1, 2):
            clock = {"role": "system", "content": f"It is 12:0{minute}. Be kind."}
            body = {"model": "a", "messages": [clock, question], "max_tokens": 2}
            assert (await proxy.post("/v1/chat/completions", body))[0] == 200
        _, second = await have(proxy, 2)
        _, one = await proxy.get(f"/api/activity/{second['id']}")

    assert "parted from the last one at message 1 (system), character 11" in one["why"]
    assert "Be kind" not in json.dumps(one)
