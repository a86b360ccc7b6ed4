"""Behaviour that llama-swap's users count on, through the real command line; one row a test."""

from __future__ import annotations

import asyncio
import base64
import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp
import psutil
import pytest

from tests.helpers.fake_models import FakeModels
from tests.helpers.processes import lives
from tests.helpers.proxy_process import ProxyProcess, running_proxy
from tests.helpers.waiting import eventually

pytestmark = pytest.mark.e2e


@pytest.fixture
def fake(tmp_path: Path) -> FakeModels:
    """An empty configuration over fake servers."""
    return FakeModels(tmp_path)


def seen(answer: dict[str, Any]) -> dict[str, Any]:
    """What the fake server received."""
    received: dict[str, Any] = answer["seen"]
    return received


def started(fake: FakeModels, name: str) -> Callable[[], bool]:
    """A condition: the server of `name` has been started."""
    return lambda: fake.count(name, "start") > 0


async def running(proxy: ProxyProcess) -> list[str]:
    """The models in `/running`."""
    _, answer = await proxy.get("/running")
    return [model["model"] for model in answer["running"]]


async def stream_all(proxy: ProxyProcess, model: str) -> bytes:
    """The whole of a streamed answer."""
    body = {"model": model, "stream": True, "messages": []}
    async with proxy.session.post("/v1/chat/completions", json=body) as answer:
        assert answer.status == 200
        return await answer.read()


async def test_p01_a_is_fully_gone_before_b_starts(fake: FakeModels, tmp_path: Path) -> None:
    """Chat with a, then b: a's process, slow to end, has ended before b is started."""
    fake.add("a", "--slow-term 0.5").add("b")
    async with running_proxy(fake.yaml, tmp_path) as proxy:
        first = seen(await proxy.chat("a"))["pid"]
        await proxy.chat("b")

        assert await running(proxy) == ["b"]
        assert not lives(first)
        assert fake.when("b", "start") - fake.when("a", "term") >= 0.5
        await eventually(lambda: "to stop a, " in proxy.log)


async def test_p02_two_first_requests_start_one_process(fake: FakeModels, tmp_path: Path) -> None:
    """Both clients of a cold model get their answer from one process."""
    fake.add("a", "--ready 0.3")
    async with running_proxy(fake.yaml, tmp_path) as proxy:
        answers = await asyncio.gather(proxy.chat("a"), proxy.chat("a"))

        assert seen(answers[0])["pid"] == seen(answers[1])["pid"]
        assert fake.count("a", "start") == 1


async def test_p04_a_stream_is_never_cut_by_a_swap(fake: FakeModels, tmp_path: Path) -> None:
    """b waits until a's slow answer is whole."""
    fake.add("a", "--chunks 10 --gap 0.1").add("b")
    async with running_proxy(fake.yaml, tmp_path) as proxy:
        streaming = asyncio.ensure_future(stream_all(proxy, "a"))
        await eventually(lambda: fake.count("a", "request") == 1)
        await proxy.chat("b")

        assert fake.when("a", "answered") < fake.when("b", "start")
        assert (await streaming).endswith(b"data: [DONE]\n\n")


async def test_p05_a_group_without_swap_keeps_both(fake: FakeModels, tmp_path: Path) -> None:
    """Members of a `swap: false` group run side by side."""
    fake.head = "groups: {g: {swap: false, members: [a, b]}}"
    fake.add("a").add("b")
    async with running_proxy(fake.yaml, tmp_path) as proxy:
        await proxy.chat("a")
        await proxy.chat("b")

        assert await running(proxy) == ["a", "b"]


async def test_p06_a_persistent_group_is_not_put_out(fake: FakeModels, tmp_path: Path) -> None:
    """A request to an exclusive group leaves a persistent one alone."""
    fake.head = "groups: {p: {persistent: true, members: [a]}, x: {members: [c]}}"
    fake.add("a").add("c")
    async with running_proxy(fake.yaml, tmp_path) as proxy:
        await proxy.chat("a")
        await proxy.chat("c")

        assert await running(proxy) == ["a", "c"]


async def test_p08_an_alias_goes_upstream_as_it_came(fake: FakeModels, tmp_path: Path) -> None:
    """Without `useModelName` the server sees the alias."""
    fake.add("a", more="aliases: [small]")
    async with running_proxy(fake.yaml, tmp_path) as proxy:
        assert json.loads(seen(await proxy.chat("small"))["body"])["model"] == "small"


async def test_p09_use_model_name_is_what_the_server_sees(fake: FakeModels, tmp_path: Path) -> None:
    """In JSON and in multipart bodies."""
    fake.add("a", more="useModelName: X")
    async with running_proxy(fake.yaml, tmp_path) as proxy:
        assert json.loads(seen(await proxy.chat("a"))["body"])["model"] == "X"
        form = aiohttp.FormData({"model": "a"})
        form.add_field("file", b"RIFF\x00\xff", filename="a.wav")
        async with proxy.session.post("/v1/audio/transcriptions", data=form) as answer:
            body = seen(await answer.json())["body"]

    assert 'name="model"\r\n\r\nX\r\n' in body
    assert "RIFF" in body


async def test_p10_stripped_keys_leave_every_other_byte(fake: FakeModels, tmp_path: Path) -> None:
    """`stripParams` removes its keys, never `model`, and reformats nothing."""
    fake.add("a", more="filters: {stripParams: 'temperature, model, stream'}")
    sent = '{ "model" : "a",\n  "temperature": 0.5, "x": [1,  2], "stream":false }'
    async with running_proxy(fake.yaml, tmp_path) as proxy:
        async with proxy.session.post(
            "/v1/completions", data=sent, headers={"Content-Type": "application/json"}
        ) as answer:
            body = seen(await answer.json())["body"]

    assert json.loads(body) == {"model": "a", "x": [1, 2]}
    assert body.startswith('{ "model" : "a",')
    assert '"x": [1,  2]' in body


async def test_p12_content_length_is_that_of_the_new_body(fake: FakeModels, tmp_path: Path) -> None:
    """After a rewrite there is one framing, and it is right."""
    fake.add("a", more="useModelName: a-much-longer-name-than-it-had")
    async with running_proxy(fake.yaml, tmp_path) as proxy:
        received = seen(await proxy.chat("a"))

    assert int(received["headers"]["content-length"]) == len(received["body"])
    assert "transfer-encoding" not in received["headers"]


@pytest.mark.parametrize("body", [{"model": "nope"}, {}], ids=["p13_unknown", "p14_missing"])
async def test_p13_p14_no_such_model(
    body: dict[str, Any], fake: FakeModels, tmp_path: Path
) -> None:
    """404 with the error object that OpenAI's clients expect."""
    fake.add("a")
    async with running_proxy(fake.yaml, tmp_path) as proxy:
        status, answer = await proxy.post("/v1/chat/completions", body)

    assert status == 404
    assert answer["src"] == "llmsnap"
    assert answer["error"]["type"] == "invalid_request_error"
    assert answer["error"]["code"] == "not_found"


async def test_p16_unknown_path_and_wrong_method(fake: FakeModels, tmp_path: Path) -> None:
    """404, and 405 that says what is allowed."""
    fake.add("a")
    async with running_proxy(fake.yaml, tmp_path) as proxy:
        assert (await proxy.get("/nope"))[0] == 404
        async with proxy.session.get("/v1/chat/completions") as answer:
            assert answer.status == 405
            assert "POST" in answer.headers["Allow"]


async def test_p17_preflight_echoes_what_is_a_token(fake: FakeModels, tmp_path: Path) -> None:
    """OPTIONS anywhere is answered by the proxy, without key and without a model."""
    fake.head = "apiKeys: [k]"
    fake.add("a")
    asked = {"Access-Control-Request-Headers": "X-A, bad header, X-B"}
    async with running_proxy(fake.yaml, tmp_path) as proxy:
        async with proxy.session.options("/v1/anything", headers=asked) as answer:
            assert answer.status == 204
            assert answer.headers["Access-Control-Allow-Headers"] == "X-A, X-B"
            assert answer.headers["Access-Control-Allow-Origin"] == "*"
    assert fake.journal("a") == []


async def test_p18_keys_in_three_places(fake: FakeModels, tmp_path: Path) -> None:
    """Bearer, Basic password and `x-api-key` open the gate; none reaches the server."""
    fake.head = "apiKeys: [sesame]"
    fake.add("a")
    basic = base64.b64encode(b"anyone:sesame").decode()
    async with running_proxy(fake.yaml, tmp_path) as proxy:
        for headers in ({}, {"Authorization": "Bearer wrong"}):
            async with proxy.session.get("/v1/models", headers=headers) as answer:
                assert answer.status == 401
                assert answer.headers["WWW-Authenticate"] == 'Basic realm="llmsnap"'
        for headers in (
            {"Authorization": "Bearer sesame"},
            {"Authorization": f"Basic {basic}"},
            {"x-api-key": "sesame"},
        ):
            async with proxy.session.post(
                "/v1/completions", json={"model": "a"}, headers=headers
            ) as answer:
                assert answer.status == 200
                assert "sesame" not in json.dumps(await answer.json())


async def test_p20_models_are_listed_sorted_with_origin(fake: FakeModels, tmp_path: Path) -> None:
    """`/v1/models` echoes the origin and leaves out what is unlisted."""
    fake.add("b").add("a").add("hidden", more="unlisted: true")
    async with running_proxy(fake.yaml, tmp_path) as proxy:
        async with proxy.session.get("/v1/models", headers={"Origin": "http://x"}) as answer:
            listed = await answer.json()
            assert answer.headers["Access-Control-Allow-Origin"] == "http://x"

    assert [model["id"] for model in listed["data"]] == ["a", "b"]


async def test_p21_aliases_are_listed_when_asked(fake: FakeModels, tmp_path: Path) -> None:
    """`includeAliasesInList` makes a record of each alias."""
    fake.head = "includeAliasesInList: true"
    fake.add("a", more="aliases: [small]")
    async with running_proxy(fake.yaml, tmp_path) as proxy:
        _, listed = await proxy.get("/v1/models")

    meta = {model["id"]: model["meta"]["llamaswap"] for model in listed["data"]}
    assert meta["small"]["type"] == "alias"
    assert meta["small"]["modelID"] == "a"
    assert meta["a"]["type"] == "model"


async def test_p22_status_follows_the_model(fake: FakeModels, tmp_path: Path) -> None:
    """Loaded after a request, unloaded after an unload."""
    fake.add("a")
    async with running_proxy(fake.yaml, tmp_path) as proxy:

        async def status() -> str:
            _, listed = await proxy.get("/v1/models")
            return str(listed["data"][0]["status"]["value"])

        assert await status() == "unloaded"
        await proxy.chat("a")
        assert await status() == "loaded"
        await proxy.get("/unload")
        assert await status() == "unloaded"


async def test_p24_unload_answers_when_the_process_is_gone(
    fake: FakeModels, tmp_path: Path
) -> None:
    """200 `OK`, and nothing left of it."""
    fake.add("a", "--slow-term 0.3")
    async with running_proxy(fake.yaml, tmp_path) as proxy:
        pid = seen(await proxy.chat("a"))["pid"]
        status, answer = await proxy.get("/unload")

        assert (status, answer["text"]) == (200, "OK")
        assert not lives(pid)
        assert await running(proxy) == []


async def test_p25_unload_of_one_model_by_name(fake: FakeModels, tmp_path: Path) -> None:
    """A name with a slash; only that one goes; an unknown one is a 404."""
    fake.head = "groups: {g: {swap: false, members: [author/model, b]}}"
    fake.add("author/model").add("b")
    async with running_proxy(fake.yaml, tmp_path) as proxy:
        await proxy.chat("author/model")
        await proxy.chat("b")

        assert (await proxy.post("/api/models/unload/author/model"))[0] == 200
        assert await running(proxy) == ["b"]
        assert (await proxy.post("/api/models/unload/nope"))[0] == 404


async def test_p26_upstream_takes_names_with_slashes(fake: FakeModels, tmp_path: Path) -> None:
    """`/upstream/author/model/…` passes the rest of the path and the query on."""
    fake.add("author/model")
    async with running_proxy(fake.yaml, tmp_path) as proxy:
        _, answer = await proxy.get("/upstream/author/model/test?x=1")

    assert seen(answer)["path"] == "/test?x=1"


async def test_p28_upstream_keeps_percent_escapes(fake: FakeModels, tmp_path: Path) -> None:
    """The server sees the path as the client wrote it."""
    fake.add("a")
    async with running_proxy(fake.yaml, tmp_path) as proxy:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(proxy.url.split(":")[2]))
        request = "GET /upstream/a/x%2Fy HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        writer.write(request.encode())
        answer = await reader.read()
        writer.close()

    assert b'"path": "/x%2Fy"' in answer


async def test_p29_browser_assets_never_load_a_model(fake: FakeModels, tmp_path: Path) -> None:
    """409 while it is stopped, proxied once it is ready."""
    fake.add("a")
    async with running_proxy(fake.yaml, tmp_path) as proxy:
        assert (await proxy.get("/upstream/a/app.js"))[0] == 409
        assert fake.journal("a") == []
        await proxy.chat("a")
        assert (await proxy.get("/upstream/a/app.js"))[0] == 200


async def test_p30_the_limit_counts_who_waits_too(fake: FakeModels, tmp_path: Path) -> None:
    """429 with `Retry-After: 1`, also while the first only waits for the start."""
    fake.add("a", "--ready 3", more="concurrencyLimit: 1")
    async with running_proxy(fake.yaml, tmp_path) as proxy:
        first = asyncio.ensure_future(proxy.chat("a"))
        await eventually(started(fake, "a"))
        async with proxy.session.post("/v1/completions", json={"model": "a"}) as answer:
            assert answer.status == 429
            assert answer.headers["Retry-After"] == "1"
            assert (await answer.json())["error"]["code"] == "concurrency_limit"
        await first


async def test_p32_a_command_that_exits_at_once_is_a_502(fake: FakeModels, tmp_path: Path) -> None:
    """With `Retry-After`, the last output, and another try at the next request."""
    fake.add("a", "--exit 3 --stderr 'no such file: model.gguf'")
    async with running_proxy(fake.yaml, tmp_path) as proxy:
        for _ in range(2):
            async with proxy.session.post("/v1/completions", json={"model": "a"}) as answer:
                message = (await answer.json())["error"]["message"]
                assert answer.status == 502
                assert int(answer.headers["Retry-After"]) >= 1
                assert "no such file: model.gguf" in message
                assert "exit code 3" in message
        assert await proxy.state("a") == "failed"
        _, listed = await proxy.get("/models")
        failed = {"value": "failed", "failed": True, "exit_code": 3}
        assert listed["data"][0]["status"] == failed


async def test_p33_a_start_that_takes_too_long_is_ended(fake: FakeModels, tmp_path: Path) -> None:
    """An error after the limit, and the process is gone."""
    fake.add("a", "--ready 60", more="startTimeout: 2s")
    async with running_proxy(fake.yaml, tmp_path) as proxy:
        status, answer = await proxy.post("/v1/completions", {"model": "a"})
        assert status == 502
        assert "startTimeout" in answer["error"]["message"]
        assert not lives(fake.journal("a")[0]["pid"])


async def test_p34_without_a_check_it_is_ready_at_once(fake: FakeModels, tmp_path: Path) -> None:
    """`checkEndpoint: none` asks nothing."""
    fake.add("a", "--ready 60", more="checkEndpoint: none")
    async with running_proxy(fake.yaml, tmp_path) as proxy:
        assert (await proxy.post("/api/models/load/a"))[0] == 200
        assert await proxy.state("a") == "ready"


async def test_p36_who_ignores_sigterm_is_killed(fake: FakeModels, tmp_path: Path) -> None:
    """SIGKILL when the grace is over."""
    fake.add("a", "--ignore-term", more="unloadTimeout: 1")
    async with running_proxy(fake.yaml, tmp_path) as proxy:
        pid = seen(await proxy.chat("a"))["pid"]
        assert (await proxy.post("/api/models/unload/a"))[0] == 200

        assert not lives(pid)
        assert fake.count("a", "term") == 1


async def test_p37_a_shell_that_forks_takes_its_server_with_it(
    fake: FakeModels, tmp_path: Path
) -> None:
    """Both are gone, and nothing listens any more."""
    fake.add_command("a", f"sh -c '{fake.command('a')} & wait'")
    async with running_proxy(fake.yaml, tmp_path) as proxy:
        pid = seen(await proxy.chat("a"))["pid"]
        parent = psutil.Process(pid).ppid()
        await proxy.get("/unload")

        assert parent != proxy.process.pid
        assert not lives(pid)
        assert not lives(parent)


async def test_p38_cmd_stop_gets_the_pid_and_the_environment(
    fake: FakeModels, tmp_path: Path
) -> None:
    """`cmdStop` runs with `${PID}` replaced, in the model's environment."""
    out = tmp_path / "stopped"
    stop = f"""cmdStop: sh -c 'echo "$FAKE_X ${{PID}}" > {out}; kill ${{PID}}'"""
    fake.add("a", more=f"{stop}\nenv: [FAKE_X=yes]")
    async with running_proxy(fake.yaml, tmp_path) as proxy:
        pid = seen(await proxy.chat("a"))["pid"]
        await proxy.get("/unload")

        assert out.read_text() == f"yes {pid}\n"
        assert not lives(pid)


async def test_p40_event_streams_are_not_buffered(fake: FakeModels, tmp_path: Path) -> None:
    """The header tells proxies in front, and chunks arrive one by one."""
    fake.add("a", "--gap 0.5 --chunks 5")
    async with running_proxy(fake.yaml, tmp_path) as proxy:
        body = {"model": "a", "stream": True}
        async with proxy.session.post("/v1/chat/completions", json=body) as answer:
            assert answer.headers["X-Accel-Buffering"] == "no"
            first = await answer.content.readuntil(b"\n\n")
            assert fake.count("a", "answered") == 0
            rest = await answer.read()

    assert first.startswith(b"data: ")
    assert rest.endswith(b"data: [DONE]\n\n")


async def test_p44_unload_turns_away_who_waits_for_a_start(
    fake: FakeModels, tmp_path: Path
) -> None:
    """They get an error at once."""
    fake.add("a", "--ready 60")
    async with running_proxy(fake.yaml, tmp_path) as proxy:
        waiting = asyncio.ensure_future(proxy.post("/v1/completions", {"model": "a"}))
        await eventually(started(fake, "a"))
        await proxy.post("/api/models/unload/a")
        status, answer = await waiting

    assert status == 503
    assert "unloaded" in answer["error"]["message"]


async def test_p45_preload_makes_ready_without_a_request(fake: FakeModels, tmp_path: Path) -> None:
    """`hooks.on_startup.preload` loads its models once the proxy listens."""
    fake.head = "hooks: {on_startup: {preload: [a]}}"
    fake.add("a")
    async with running_proxy(fake.yaml, tmp_path) as proxy:
        await proxy.becomes("a", "ready")

        assert fake.count("a", "request") == 0


async def test_p48_a_local_model_is_used_before_a_peer(fake: FakeModels, tmp_path: Path) -> None:
    """A peer that lists the same name doesn't get the request."""
    fake.head = "peers: {box: {proxy: 'http://127.0.0.1:1', models: [a]}}"
    fake.add("a")
    async with running_proxy(fake.yaml, tmp_path) as proxy:
        assert seen(await proxy.chat("a"))["path"] == "/v1/chat/completions"


async def test_p49_a_transcription_arrives_whole(fake: FakeModels, tmp_path: Path) -> None:
    """The model is found in the form, and the form reaches the server byte for byte."""
    fake.add("a")
    sound = bytes(range(256)) * 4096
    form = aiohttp.FormData()
    form.add_field("file", sound, filename="a.wav", content_type="audio/wav")
    form.add_field("model", "a")
    async with running_proxy(fake.yaml, tmp_path) as proxy:
        async with proxy.session.post("/v1/audio/transcriptions", data=form) as answer:
            assert answer.status == 200
            received = seen(await answer.json())

    text = sound.decode("utf-8", "backslashreplace")
    assert text in received["body"]
    assert received["headers"]["content-type"].startswith("multipart/form-data; boundary=")


async def test_p50_a_get_names_its_model_in_the_query(fake: FakeModels, tmp_path: Path) -> None:
    """`/v1/audio/voices?model=a` is passed on; without a model it is a 404."""
    fake.add("a")
    async with running_proxy(fake.yaml, tmp_path) as proxy:
        status, answer = await proxy.get("/v1/audio/voices?model=a")
        assert status == 200
        assert seen(answer)["path"] == "/v1/audio/voices?model=a"
        assert (await proxy.get("/v1/audio/voices"))[0] == 404


async def test_p52_a_server_that_dies_mid_stream(fake: FakeModels, tmp_path: Path) -> None:
    """The stream ends without `[DONE]`, the proxy lives on, the model counts as stopped."""
    fake.add("a", "--die-mid 2")
    async with running_proxy(fake.yaml, tmp_path) as proxy:
        body = await stream_all(proxy, "a")
        await proxy.becomes("a", "stopped")

        assert b"[DONE]" not in body
        assert body.count(b"chat.completion.chunk") == 2
        assert b'"error"' in body
        assert (await proxy.chat("a"))["model"] == "a"


async def test_shutdown_waits_for_running_answers(fake: FakeModels, tmp_path: Path) -> None:
    """SIGTERM lets a stream end, turns new requests away, leaves nothing behind, exits 0."""
    fake.add("a", "--chunks 10 --gap 0.1")
    async with running_proxy(fake.yaml, tmp_path) as proxy:
        streaming = asyncio.ensure_future(stream_all(proxy, "a"))
        await eventually(lambda: fake.count("a", "request") == 1)
        code = await proxy.stop(signal.SIGTERM)

        assert code == 0
        assert (await streaming).endswith(b"data: [DONE]\n\n")
        assert not lives(fake.journal("a")[0]["pid"])
