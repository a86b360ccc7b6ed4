"""Two machines, which here are two processes, as one service."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import openai
import pytest

from tests.helpers.certificates import self_signed
from tests.helpers.fake_models import FakeModels
from tests.helpers.llama import server_argv, server_environment, tiny_gguf
from tests.helpers.ports import free_ports
from tests.helpers.proxy_process import ProxyProcess, running_proxy
from tests.helpers.waiting import eventually

pytestmark = pytest.mark.e2e

NOBODY = "http://127.0.0.1:1"


@asynccontextmanager
async def machine(
    folder: Path,
    fake: FakeModels,
    peers: str,
    *,
    port: int = 0,
    keys: str = "",
) -> AsyncIterator[ProxyProcess]:
    """Run one; `peers` is the flow mapping under `peers`."""
    folder.mkdir(exist_ok=True)
    fake.head = f"peers: {peers}\n{keys}"
    args = ["--listen", f"127.0.0.1:{port}"]
    async with running_proxy(fake.yaml, folder, args=args) as proxy:
        yield proxy


def models(folder: Path, *names: str) -> FakeModels:
    """Fake servers of one machine."""
    folder.mkdir()
    fake = FakeModels(folder)
    for name in names:
        fake.add(name)
    return fake


def listed(url: str) -> str:
    """What `llmsnap ps --peers` prints."""
    command = [sys.executable, "-m", "llmsnap", "ps", "--peers", "--url", url]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def phase_ms(timings: str, phase: str) -> float:
    """The milliseconds of a phase in `Server-Timing`."""
    found = re.search(rf"{phase};dur=([0-9.]+)", timings)
    assert found, timings
    return float(found[1])


async def test_p46_a_peers_model_is_used_through_us(tmp_path: Path) -> None:
    """By its full and its bare name; the peer's own swap timings are seen; its key is sent."""
    there, here = models(tmp_path / "there"), models(tmp_path / "here", "a")
    there.add("b", "--ready 0.3")
    async with machine(tmp_path / "there", there, "{}", keys="apiKeys: [k2]") as far:
        far.session.headers["Authorization"] = "Bearer k2"
        peer = f"{{box: {{proxy: '{far.url}', models: [b], apiKey: k2}}}}"
        async with machine(tmp_path / "here", here, peer) as near:
            for name in ("box/b", "b"):
                body = f'{{"model":"{name}"}}'
                kind = {"Content-Type": "application/json"}
                path = "/v1/chat/completions"
                async with near.session.post(path, data=body, headers=kind) as answer:
                    assert answer.status == 200
                    received = await answer.json()
                    assert received["model"] == "b"
                    assert answer.headers["X-Llmsnap-Model"] == "box/b"
                    timings = ",".join(answer.headers.getall("Server-Timing"))
                    if name == "box/b":
                        assert phase_ms(timings, "start") >= 300
                    assert ("start;dur=" in timings) == (name == "box/b")
            assert await far.state("b") == "ready"
            headers = received["seen"]["headers"]
            assert "k2" not in str(headers)
            assert headers["via"].count("llmsnap-") == 1
            _, listed = await near.get("/v1/models")
            assert [record["id"] for record in listed["data"]] == ["a", "box/b"]


async def test_p46_a_peer_that_is_down_is_a_502_that_names_it(tmp_path: Path) -> None:
    """Models here go on."""
    here = models(tmp_path / "here", "a")
    peer = f"{{box: {{proxy: '{NOBODY}', models: [b]}}}}"
    async with machine(tmp_path / "here", here, peer) as near:
        status, refused = await near.post("/v1/chat/completions", {"model": "b"})
        assert status == 502
        assert "'box/b' at 127.0.0.1:1 can't be reached" in refused["error"]["message"]
        await near.chat("a")


async def test_two_that_list_each_other_never_go_round(tmp_path: Path) -> None:
    """A model that neither has ends with a 508, once; one that one has is served."""
    there, here = models(tmp_path / "there", "b"), models(tmp_path / "here", "a")
    port = free_ports(1)
    back = f"{{home: {{proxy: 'http://127.0.0.1:{port}', models: [a, lost]}}}}"
    async with machine(tmp_path / "there", there, back) as far:
        peer = f"{{box: {{proxy: '{far.url}', models: [b, lost]}}}}"
        async with machine(tmp_path / "here", here, peer, port=port) as near:
            status, refused = await near.post("/v1/chat/completions", {"model": "lost"})
            assert status == 508, refused
            assert "came back to the machine that it started from" in refused["error"]["message"]
            assert (await far.chat("a"))["model"] == "a"
            assert (await near.chat("b"))["model"] == "b"


async def test_the_models_of_all_machines_are_shown_together(tmp_path: Path) -> None:
    """With their states; one that can't be reached is said to be so."""
    there, here = models(tmp_path / "there", "b", "c"), models(tmp_path / "here", "a")
    port = free_ports(1)
    back = f"{{home: {{proxy: 'http://127.0.0.1:{port}', models: [a]}}}}"
    async with machine(tmp_path / "there", there, back) as far:
        peers = (
            f"{{box: {{proxy: '{far.url}', models: [b]}}, den: {{proxy: '{NOBODY}', models: [z]}}}}"
        )
        async with machine(tmp_path / "here", here, peers, port=port) as near:
            await asyncio.gather(near.chat("b"), near.chat("a"))

            async def is_told() -> bool:
                _, shown = await near.get("/api/models?peers=1")
                return bool(shown["peers"][0]["swaps"])

            await eventually(is_told)
            _, shown = await near.get("/api/models?peers=1")
            _, alone = await near.get("/api/models")
            table = await asyncio.to_thread(listed, near.url)

    rows = [line.split()[:2] for line in table.splitlines()[1:]]
    assert rows[:3] == [["a", "ready"], ["box/b", "ready"], ["box/c", "stopped"]]
    assert "den/z" in table
    assert "can't be reached" in table
    assert [model["id"] for model in shown["models"]] == ["a"]
    assert "peers" not in alone
    box, den = shown["peers"]
    assert (box["id"], box["reachable"]) == ("box", True)
    assert {model["id"]: model["state"] for model in box["models"]} == {
        "b": "ready",
        "c": "stopped",
    }
    (swap,) = box["swaps"]
    assert (swap["model"], swap["kind"]) == ("b", "start")
    assert swap["swap_s"] > 0
    assert box["metrics"]["total_requests"] == 1
    assert (den["id"], den["reachable"]) == ("den", False)
    assert "can't be reached" in den["error"]
    assert den["models"] == [{"id": "z", "state": None}]


async def test_p46_a_real_model_behind_https_answers_as_it_does_alone(tmp_path: Path) -> None:
    """A stream through both proxies, with its usage; a certificate that nobody knows is a 502."""
    for name in ("there", "here", "stranger"):
        (tmp_path / name).mkdir()
    cert, key = self_signed(tmp_path)
    command = json.dumps(" ".join(server_argv(tiny_gguf())))
    models_there = f"models: {{b: {{cmd: {command}}}}}"
    config = f"startPort: {free_ports(1)}\nsleep: {{mode: off}}\n{models_there}\n"
    tls = ["-tls-cert-file", str(cert), "-tls-key-file", str(key)]
    trust = {"SSL_CERT_FILE": str(cert)}
    there = running_proxy(
        config, tmp_path / "there", args=tls, env=server_environment(), trusted=cert
    )
    async with there as far:
        peers = f"peers: {{box: {{proxy: '{far.url}', models: [b]}}}}\n"
        async with running_proxy(peers, tmp_path / "here", env=trust) as near:
            client = openai.AsyncOpenAI(base_url=f"{near.url}/v1", api_key="none")
            async with client:
                stream = await client.chat.completions.create(
                    model="b",
                    messages=[{"role": "user", "content": "hi"}],
                    temperature=0,
                    max_tokens=16,
                    stream=True,
                )
                text = "".join([part.choices[0].delta.content or "" async for part in stream])
            alone = await far.chat("b")
            assert text == alone["choices"][0]["message"]["content"] != ""
        async with running_proxy(peers, tmp_path / "stranger") as stranger:
            status, refused = await stranger.post("/v1/chat/completions", {"model": "b"})
            assert status == 502
            assert "certificate" in refused["error"]["message"]
