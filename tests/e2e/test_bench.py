"""`llmsnap bench swap` with real llama-servers, behind llmsnap and beside it."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from tests.benchmarks.engine import Engine, client, end
from tests.helpers.llama import server_argv, server_environment, tiny_gguf
from tests.helpers.ports import free_port, free_ports
from tests.helpers.proxy_process import ProxyProcess, running_proxy
from tests.helpers.swap import swap
from tests.helpers.waiting import eventually

__all__ = ["swap"]

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

SHORT = ("--lengths", "100", "--turns", "1", "--tokens", "4")


def config() -> str:
    """Two models and room for one, no sleep, no saved slots; one doesn't start, one is pinned."""
    command = json.dumps(" ".join(server_argv(tiny_gguf())))
    return f"""
memory: {{devices: {{host: 1GiB}}}}
schedule: {{hold: 0}}
sleep: {{mode: 'off'}}
sessions: {{mode: 'off'}}
startPort: {free_ports(4)}
models:
  a: {{cmd: {command}, ram: 800MiB, aliases: [first]}}
  b: {{cmd: {command}, ram: 800MiB}}
  broken: {{cmd: "false", proxy: "http://127.0.0.1:1", ram: 10MiB}}
  pinned: {{cmd: {command}, ram: 10MiB, pinned: true}}
"""


@pytest.fixture
async def proxy(tmp_path: Path) -> AsyncIterator[ProxyProcess]:
    """A running one."""
    async with running_proxy(config(), tmp_path, env=server_environment()) as proxy:
        yield proxy


def start(*argv: str) -> subprocess.Popen[str]:
    """Start a benchmark."""
    return subprocess.Popen(
        [sys.executable, "-m", "llmsnap", "bench", *argv],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=server_environment(),
    )


async def bench(*argv: str) -> tuple[int, str, str]:
    """Run one; return its exit code and both outputs."""
    process = start(*argv)
    out, err = await asyncio.to_thread(process.communicate)
    return process.returncode, out, err


@pytest.fixture
async def peer() -> AsyncIterator[str]:
    """A llama-server by itself, which calls its model `theirs`."""
    port = free_port()
    engine = Engine(server_argv(tiny_gguf())[0])
    process = await engine.start(port, "--model", str(tiny_gguf()), "--alias", "theirs")
    yield f"http://127.0.0.1:{port}"
    await end(process)


async def test_a_running_proxy_is_measured_beside_another_server(
    proxy: ProxyProcess, peer: str, tmp_path: Path
) -> None:
    """Samples of both, in pairs; the proxy's own figures agree; every form is written."""
    forms = ("json", "csv", "markdown", "html")
    files = [word for form in forms for word in (f"--{form}", str(tmp_path / f"r.{form}"))]
    names = ("--against", peer, "--against-models", "a=theirs")
    code, out, err = await bench("swap", "first", "--url", proxy.url, *SHORT, *names, *files)

    report = json.loads((tmp_path / "r.json").read_text())
    by_scene = {(one["scene"], one["server"]): one for one in report["samples"]}
    assert code == 3, err  # it doesn't sleep, as the configuration wants it
    (left_out,) = report["left_out"]
    assert "asleep" in left_out
    assert {scene for scene, _ in by_scene} == {"page cache", "awake"}
    assert by_scene["page cache", "llmsnap"]["phases_s"]["start"] > 0
    assert by_scene["page cache", "llmsnap"]["cached"] == 0
    assert by_scene["awake", "llmsnap"]["cached"] > 50
    assert by_scene["awake", peer.removeprefix("http://")]["first_s"] > 0
    assert "benchmark and proxy " in out
    assert all((tmp_path / f"r.{form}").stat().st_size for form in forms)
    assert (await bench("compare", *[str(tmp_path / "r.json")] * 2))[0] == 0


async def test_a_run_of_its_own_needs_no_proxy(tmp_path: Path) -> None:
    """With two models there are swaps; nothing is left of it."""
    (tmp_path / "config.yaml").write_text(config())
    result = tmp_path / "r.json"
    places = ("--config", str(tmp_path / "config.yaml"), "--json", str(result))
    code, _, err = await bench("swap", "a", "b", *SHORT, *places)

    assert code == 3, err
    samples = json.loads(result.read_text())["samples"]
    swaps = [one for one in samples if one["scene"] == "swap"]
    assert {one["model"] for one in swaps} == {"a", "b"}
    assert all(one["phases_s"]["evict"] > 0 for one in swaps)
    assert {one["way"] for one in swaps} == {"stopped"}


def listens(port: int) -> bool:
    """Whether somebody does."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


async def ollama_models(_: web.Request) -> web.Response:
    """A list as Ollama's."""
    return web.json_response({"object": "list", "data": [{"id": "theirs:latest"}]})


async def ollama_version(_: web.Request) -> web.Response:
    """What Ollama says it is."""
    return web.json_response({"version": "0.12.3"})


async def ollama_completion(request: web.Request) -> web.StreamResponse:
    """Two words, then the usage: that is all that Ollama tells."""
    assert (await request.json())["model"] == "theirs:latest"
    answer = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await answer.prepare(request)
    for text in ("well", " then"):
        event = {"choices": [{"index": 0, "text": text}]}
        await answer.write(f"data: {json.dumps(event)}\n\n".encode())
    usage = {"prompt_tokens": 120, "completion_tokens": 2, "total_tokens": 122}
    last = {"choices": [], "usage": usage}
    await answer.write(f"data: {json.dumps(last)}\n\ndata: [DONE]\n\n".encode())
    return answer


@pytest.fixture
async def ollama() -> AsyncIterator[str]:
    """A server that answers as Ollama does."""
    app = web.Application()
    app.router.add_get("/v1/models", ollama_models)
    app.router.add_get("/api/version", ollama_version)
    app.router.add_post("/v1/completions", ollama_completion)
    async with TestServer(app) as server:
        yield str(server.make_url("")).rstrip("/")


async def test_a_server_like_ollama_is_measured(
    proxy: ProxyProcess, ollama: str, tmp_path: Path
) -> None:
    """By its own name for the model; what it doesn't tell stays empty."""
    result = tmp_path / "r.json"
    names = ("--against", ollama, "--against-models", "a=theirs:latest")
    code, _, err = await bench(
        "swap", "a", "--url", proxy.url, *SHORT, *names, "--json", str(result)
    )

    assert code == 3, err
    report = json.loads(result.read_text())
    (theirs,) = [one for one in report["samples"] if one["server"] != "llmsnap"]
    assert (theirs["scene"], theirs["prompt"], theirs["generated"]) == ("awake", 120, 2)
    assert (theirs["cached"], theirs["phases_s"]) == (None, {})
    assert report["engines"][theirs["server"]] == "0.12.3"


async def test_a_server_without_timings_is_measured(tmp_path: Path) -> None:
    """By the clock; a note says what can't be known."""
    mute = f"{sys.executable} -m tests.helpers.fake_server --port ${{PORT}}"
    (tmp_path / "config.yaml").write_text(
        f"startPort: {free_port()}\nmodels: {{mute: {{cmd: {json.dumps(mute)}}}}}"
    )
    result = tmp_path / "r.json"
    places = ("--config", str(tmp_path / "config.yaml"), "--json", str(result))
    code, out, err = await bench("swap", "mute", *SHORT, *places)

    assert code in (0, 3), err  # where there is no swap, it doesn't sleep
    assert "llmsnap tells neither timings nor usage" in out
    samples = json.loads(result.read_text())["samples"]
    assert all(one["first_s"] > 0 and one["prompt"] is None for one in samples)


@pytest.mark.usefixtures("swap")
async def test_each_driver_that_works_is_measured(tmp_path: Path) -> None:
    """By a proxy of its own, which wakes models by the way that they went."""
    server = f"{sys.executable} -m tests.helpers.sleepy_server --port ${{PORT}}"
    (tmp_path / "config.yaml").write_text(f"""
startPort: {free_port()}
models:
  m:
    cmd: {json.dumps(server)}
    sleepEndpoints: [{{endpoint: /sleep}}]
    wakeEndpoints: [{{endpoint: /wake_up}}]
    isAsleepEndpoint: /is_sleeping
""")
    result = tmp_path / "r.json"
    places = ("--config", str(tmp_path / "config.yaml"), "--json", str(result))
    code, out, err = await bench("swap", "m", *SHORT, *places)

    assert code == 0, err
    asleep = [one for one in json.loads(result.read_text())["samples"] if one["scene"] == "asleep"]
    assert {(one["by"], one["way"]) for one in asleep} == {
        ("", "endpoints"),
        ("pageout", "pageout"),
    }
    assert all(one["phases_s"]["wake"] > 0 for one in asleep)
    assert "asleep (endpoints)" in out


async def test_less_memory_than_asked_is_told(tmp_path: Path) -> None:
    """Of a model, and of a copy with a larger context; the copies that fit are measured."""
    command = json.dumps(" ".join(server_argv(tiny_gguf())))
    (tmp_path / "config.yaml").write_text(f"""
memory: {{devices: {{host: 1GiB}}}}
sleep: {{mode: 'off'}}
startPort: {free_ports(2)}
models:
  a: {{cmd: {command}}}
  huge: {{cmd: {command}, ram: 3GiB}}
""")
    place = ("--config", str(tmp_path / "config.yaml"))
    code, out, err = await bench("swap", "huge", *SHORT, *place)
    assert code == 1, err
    assert "'huge' needs 3 GiB of host, where 1 GiB of 1 GiB are available" in out

    settings = ("--types", "f16", "--flash", "on", "--contexts", "4096,40000000")
    code, out, err = await bench("kv", "--model", "a", *SHORT, *settings, *place)
    assert code == 3, err
    assert "'kv-f16-fa-on-c-40000000' needs" in out
    assert "take for c-4096: cmd: " in out


async def test_what_cant_be_is_told_in_a_line(proxy: ProxyProcess, peer: str) -> None:
    """With exit code 1, and 2 where the command line makes no sense."""
    here = ("--url", proxy.url)
    cases = [
        (("a", "--url", "http://127.0.0.1:1"), 1, "nothing listens on http://127.0.0.1:1"),
        (("c", *here), 1, "no model is called 'c'; there are: a, first, b, broken, pinned"),
        (("pinned", *here), 1, "pinned is pinned, and measuring would put it out; --force"),
        (("broken", *SHORT, *here), 1, "nothing could be measured"),
        (("a", *here, "--against", "http://127.0.0.1:1"), 1, ":1 can't be measured: [Errno 111]"),
        (("a", *here, "--against", peer), 1, "has no model 'a'; say what it calls it with"),
        (("a", *here, "--lengths", "many"), 2, "isn't a list of numbers of tokens"),
        (("a", *here, "--lengths-of", "a"), 2, "'a' isn't MODEL=LENGTHS"),
        (("a", *here, "--json", "/nowhere/r.json"), 2, "'/nowhere/r.json' can't be written"),
        (("a", *here, "--time", "0"), 2, "Invalid value for '--time'"),
        (("a", *here, "--against-models", "a"), 2, "isn't OUR_NAME=THEIR_NAME"),
        (("a", "--config", "/nowhere.yaml"), 1, "didn't start"),
    ]
    for argv, expected, words in cases:
        code, _, err = await bench("swap", *argv)
        assert (code, words in err) == (expected, True), err


@pytest.fixture
async def silent() -> AsyncIterator[str]:
    """A server that takes requests and never answers."""
    port = free_port()
    argv = ("-m", "tests.helpers.fake_server", "--port", str(port), "--hang")
    process = await asyncio.create_subprocess_exec(sys.executable, *argv)
    await eventually(lambda: listens(port))
    yield f"http://127.0.0.1:{port}"
    await end(process)


async def test_a_server_that_never_answers_is_given_up(proxy: ProxyProcess, silent: str) -> None:
    """After the time that the run was to take."""
    places = ("--url", proxy.url, "--against", silent)
    code, _, err = await bench("swap", "a", "--time", "1", *places)

    assert code == 1
    assert f"{silent} can't be measured: timed out" in err


async def test_a_context_that_is_too_small_is_told(proxy: ProxyProcess) -> None:
    """By the server's own words, once; what fits is measured."""
    code, out, err = await bench("swap", "a", "--url", proxy.url, *SHORT, "--lengths", "100,9000")

    assert code == 3, err
    assert "exceeds the available context size" in out
    assert out.count("9000") == 1


@pytest.mark.parametrize("stop_signal", [signal.SIGINT, signal.SIGTERM])
async def test_an_interrupted_run_is_reported(
    proxy: ProxyProcess, tmp_path: Path, stop_signal: signal.Signals
) -> None:
    """What was measured until then; exit code 130."""
    result = tmp_path / "r.json"
    argv = ("swap", "a", "--url", proxy.url, "--lengths", "100", "--turns", "500")
    process = start(*argv, "--json", str(result))
    async with client(proxy.url) as session:

        async def some_were_asked() -> bool:
            async with session.get("/api/activity") as answer:
                return bool((await answer.json())["total"] > 8)

        await eventually(some_were_asked, timeout_s=60)
    process.send_signal(stop_signal)
    _, err = await asyncio.to_thread(process.communicate)

    assert process.returncode == 130, err
    report = json.loads(result.read_text())
    assert report["ended"] == "interrupted"
    assert report["samples"]


async def test_settings_of_the_cache_are_compared(tmp_path: Path) -> None:
    """In copies of a model; the command to take comes with a reason."""
    (tmp_path / "config.yaml").write_text(config())
    result = tmp_path / "r.json"
    places = ("--config", str(tmp_path / "config.yaml"), "--json", str(result))
    settings = ("--types", "f16,f32", "--flash", "on")
    code, out, err = await bench("kv", "--model", "a", *SHORT, *settings, *places)

    assert code in (0, 3), err  # where there is no swap, they don't sleep
    report = json.loads(result.read_text())
    models = {one["model"] for one in report["samples"] if one["scene"] == "new text"}
    assert models == {"kv-f16-fa-on", "kv-f32-fa-on"}
    sizes = report["settings"]["kv_bytes"]
    assert sizes["kv-f32-fa-on"] == 2 * sizes["kv-f16-fa-on"]
    assert "advice: take: cmd: " in out
    assert "advice: why: " in out
    code, _, err = await bench("kv", "--model", "broken", *places)
    assert (code, "isn't run by a llama-server" in err) == (1, True), err
