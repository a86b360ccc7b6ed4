"""Requests that name models, from a client to a server and back."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import psutil
import pytest

from llmsnap.config.schema import Config, ModelConfig
from llmsnap.config.sections import Filters
from tests.helpers.waiting import eventually
from tests.web.scripted import Line, Received, whole
from tests.web.stage import CHAT, Stage, staged

JSON = {"Content-Type": "application/json"}


async def test_p08_an_alias_goes_upstream_as_it_came() -> None:
    """The very bytes of the body."""
    async with staged(aliases=("small",)) as stage:
        await stage.text(b'{ "model" : "small" }')
        assert stage.received.body == b'{ "model" : "small" }'
        assert stage.lender.arrived == [("a", True)]


async def test_p09_the_server_sees_its_own_name() -> None:
    """In JSON and in multipart bodies."""
    async with staged(model=ModelConfig(cmd="serve a", use_model_name="X")) as stage:
        await stage.text(b'{"model":"a", "n":1.0}')
        assert stage.received.body == b'{"model":"X", "n":1.0}'

        form = aiohttp.FormData()
        form.add_field("file", sound := bytes(range(256)) * 100, filename="a.wav")
        form.add_field("model", "a")
        async with stage.site.session.post("/v1/audio/transcriptions", data=form) as answer:
            assert answer.status == 200
        body = stage.received.body
        assert sound in body
        assert b'name="model"\r\n\r\nX\r\n' in body
        assert int(stage.received["content-length"]) == len(body)


async def test_p10_filters_change_what_they_are_told() -> None:
    """And not a byte more."""
    filters = Filters(
        strip_params=("temperature",),
        set_params={"top_k": 5},
        set_params_by_id={"fast": {"top_k": 1}},
    )
    model = ModelConfig(cmd="serve a", filters=filters, aliases=("fast",))
    async with staged(model=model) as stage:
        await stage.text(b'{ "model":"a",  "temperature": 0.70, "x": 1.50 }')
        assert stage.received.body == b'{ "model":"a", "x": 1.50 ,"top_k":5}'
        await stage.text(b'{"model":"fast"}')
        assert stage.received.body == b'{"model":"fast","top_k":1}'


async def test_a_filter_that_cant_be_applied_is_a_clear_error() -> None:
    """The model isn't loaded for it."""
    model = ModelConfig(cmd="serve a", filters=Filters(set_params={"stop.x": 1}))
    async with staged(model=model, up=False) as stage:
        async with stage.ask(b'{"model":"a","stop":["."]}') as answer:
            assert answer.status == 500
            assert "filters" in (await answer.json())["error"]["message"]
        assert stage.lender.arrived == []


@pytest.mark.parametrize("name", ["m", "a-much-longer-name-than-it-had"])
async def test_p12_u85_u86_one_right_framing_after_a_rewrite(name: str) -> None:
    """A chunked request whose model name changes length gets one length."""

    async def chunks() -> AsyncIterator[bytes]:
        yield b'{"model":'
        yield b' "a", "x": 1}'

    async with staged(model=ModelConfig(cmd="serve a", use_model_name=name)) as stage:
        async with stage.site.session.post(CHAT, data=chunks(), headers=JSON) as answer:
            assert answer.status == 200
        body = stage.received.body
        assert json.loads(body) == {"model": name, "x": 1}
        assert stage.received["content-length"] == str(len(body))
        assert stage.received.all("transfer-encoding") == []


async def test_p28_u87_raw_paths_reach_the_server() -> None:
    """Escapes and query as the client wrote them."""
    async with staged() as stage:
        await stage.site.raw("GET /upstream/a/x%2Fy/%7E?q=%20+&&z")
        assert stage.received.target == "/x%2Fy/%7E?q=%20+&&z"
        await stage.site.raw("GET http://localhost/upstream/a/v1/x%2Fy?q=1")
        assert stage.received.target == "/v1/x%2Fy?q=1"


@pytest.mark.parametrize(
    ("path", "target"),
    [
        ("/v/chat/completions", "/chat/completions"),
        ("/audioapi/v1/tasks/run", "/v1/tasks/run"),
        ("/v1/completions?x=1", "/v1/completions?x=1"),
    ],
)
async def test_prefixes_of_ours_stay_here(path: str, target: str) -> None:
    """They only tell the proxy's routes apart."""
    async with staged() as stage:
        await stage.text(path=path)
        assert stage.received.target == target


async def test_p49_a_transcription_arrives_to_the_byte() -> None:
    """Found in the form, with nothing changed on the way."""
    body = (
        b'--B\r\nContent-Disposition: form-data; name="file"; filename="a.wav"\r\n'
        b"Content-Type: audio/wav\r\n\r\n" + bytes(range(256)) * 20_000 + b"\r\n"
        b'--B\r\nContent-Disposition: form-data; name="model"\r\n\r\na\r\n--B--\r\n'
    )
    async with staged() as stage:
        async with stage.ask(
            io.BytesIO(body),
            "/v1/audio/transcriptions",
            content_type="multipart/form-data; boundary=B",
        ) as answer:
            assert answer.status == 200
        assert stage.received.body == body
        assert stage.received["content-type"] == "multipart/form-data; boundary=B"


async def test_p50_a_get_names_its_model_in_the_query() -> None:
    """And is passed on with it; without a model it is a 404."""
    async with staged() as stage:
        async with stage.site.session.get("/v1/audio/voices?model=a&x=1") as answer:
            assert answer.status == 200
        assert stage.received.target == "/v1/audio/voices?model=a&x=1"
        assert stage.received.all("content-length") == []
        async with stage.site.session.get("/v1/audio/voices") as answer:
            assert answer.status == 404


@pytest.mark.parametrize(
    ("body", "status"), [(b'{"model":"b"}', 404), (b"{}", 404), (b'{"model":"a"', 400)]
)
async def test_p13_p14_who_names_no_model_is_told(body: bytes, status: int) -> None:
    """In the form that OpenAI's clients know."""
    async with staged() as stage, stage.ask(body) as answer:
        assert answer.status == status
        assert (await answer.json())["error"]["type"] == "invalid_request_error"


@pytest.mark.parametrize("headers", [{"Authorization": "Bearer k1"}, {"x-api-key": "k1"}])
async def test_u107_the_proxys_keys_stop_here(headers: dict[str, str]) -> None:
    """Without keys in the configuration the header is the server's."""
    models = {"a": ModelConfig(cmd="serve a")}
    (name,) = headers
    async with staged(config=Config(models=models, api_keys=("k1",))) as stage:
        async with stage.ask(headers=headers) as answer:
            assert answer.status == 200
        assert stage.received.all(name.lower()) == []
    async with staged() as stage:
        async with stage.ask(headers=headers) as answer:
            assert answer.status == 200
        assert stage.received[name.lower()] == headers[name]


@pytest.mark.parametrize(
    ("keys", "sent"), [(("k1",), "Bearer k2"), ((), "Bearer k1")], ids=["ours", "none"]
)
async def test_u107_a_server_gets_the_key_that_it_asks_for(
    keys: tuple[str, ...], sent: str
) -> None:
    """In the place of ours; where clients need none of ours, theirs is for the server."""
    models = {"a": ModelConfig(cmd="serve a")}
    headers = {"Authorization": "Bearer k1"}
    async with staged(config=Config(models=models, api_keys=keys), up=False) as stage:
        stage.put_up(key="k2")
        for path in ("/v1/completions", "/upstream/a/x", "/upstream/a/props"):
            method = "GET" if path.endswith("props") else "POST"
            async with stage.site.session.request(
                method, path, data=b'{"model":"a"}', headers=headers
            ) as answer:
                assert answer.status == 200
            assert stage.received.all("authorization") == [sent]


@pytest.mark.parametrize(
    ("method", "path", "limited"),
    [
        ("POST", "/v1/chat/completions", True),
        ("POST", "/rerank", True),
        ("POST", "/tokenize", False),
        ("GET", "/", False),
        ("GET", "/style.css", False),
    ],
)
async def test_u23_the_limit_is_for_inference(method: str, path: str, limited: bool) -> None:
    """Below `/upstream` as elsewhere."""
    async with staged() as stage:
        async with stage.site.session.request(method, f"/upstream/a{path}") as answer:
            assert answer.status == 200
        assert stage.lender.arrived == [("a", limited)]


async def test_nothing_is_filtered_below_upstream() -> None:
    """The server is there as it is."""
    model = ModelConfig(
        cmd="serve a", use_model_name="X", filters=Filters(strip_params=("x",)), aliases=("b",)
    )
    async with staged(model=model) as stage:
        await stage.text(b'{"model":"b","x":1}', "/upstream/b/v1/chat/completions")
        assert stage.received.body == b'{"model":"b","x":1}'


# ---- large bodies ------------------------------------------------------------------------------


async def test_u94_a_phones_photo_passes_and_the_limit_is_named() -> None:
    """16 MiB of base64 in JSON; what is larger than `maxBody` hears which key to raise."""
    photo = b"A" * (16 * 2**20)
    models = {"a": ModelConfig(cmd="serve a", use_model_name="inner")}
    async with staged(config=Config(models=models, max_body_bytes=20 * 2**20)) as stage:
        body = b'{"image":"' + photo + b'","model":"a"}'
        async with stage.ask(io.BytesIO(body)) as answer:
            assert answer.status == 200
        assert stage.received.body == body.replace(b'"model":"a"', b'"model":"inner"')

        async with stage.ask(io.BytesIO(body + photo)) as answer:
            assert answer.status == 413
            assert "maxBody" in (await answer.json())["error"]["message"]
        assert len(stage.server.received) == 1


@pytest.mark.slow
@pytest.mark.parametrize("as_form", [False, True], ids=["json", "form"])
async def test_u95_uploads_during_a_load_stay_bounded(
    as_form: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten clients with 50 MiB each wait for a load: JSON waits on disk, forms in the socket."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    size = 50 * 2**20

    async def count(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        left = int(head.lower().partition(b"content-length:")[2].split()[0])
        while left:
            left -= len(await reader.read(2**18))
        writer.write(whole(b"{}"))
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(count, "127.0.0.1", 0)
    async with staged(up=False) as stage, server:
        own = psutil.Process()
        before = own.memory_info().rss
        sending = [asyncio.ensure_future(_upload(stage, size, as_form)) for _ in range(10)]
        await eventually(lambda: len(stage.lender.waiting) == 10, timeout_s=30)
        waiting = own.memory_info().rss - before
        stage.lender.put_up("a", server.sockets[0].getsockname()[1])
        statuses = await asyncio.gather(*sending)

    assert statuses == [b"200"] * 10
    assert waiting < 120 * 2**20


async def _upload(stage: Stage, size: int, as_form: bool) -> bytes:
    """Send that many bytes from nowhere; return the status."""
    start, end, kind = b'{"model":"a","x":"', b'"}', "application/json"
    if as_form:
        start = b'--B\r\nContent-Disposition: form-data; name="model"\r\n\r\na\r\n--B\r\n\r\n'
        end, kind = b"\r\n--B--\r\n", "multipart/form-data; boundary=B"
    reader, writer = await asyncio.open_connection(stage.site.host, stage.site.port)
    length = len(start) + size + len(end)
    head = f"POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {kind}\r\n"
    writer.write(f"{head}Content-Length: {length}\r\n\r\n".encode() + start)
    piece = b"A" * 2**16
    for _ in range(size // len(piece)):
        writer.write(piece)
        await writer.drain()
    writer.write(end)
    answer = await reader.readuntil(b"\r\n\r\n")
    writer.close()
    return answer.split(b" ")[1]


# ---- the client's connection -------------------------------------------------------------------


async def test_requests_on_one_connection_are_answered_in_order() -> None:
    """Also those that were sent before the first answer came."""

    async def script(received: Received, line: Line) -> None:
        await line.say(whole(received.body))

    async with staged(script) as stage:
        sent = b""
        for n in range(5):
            body = b'{"model":"a","n":%d}' % n
            last = b"Connection: close\r\n" if n == 4 else b""
            sent += b"POST %b HTTP/1.1\r\nHost: localhost\r\n%bContent-Length: %d\r\n\r\n%b" % (
                CHAT.encode(),
                last,
                len(body),
                body,
            )
        said = await stage.site.exchange(sent)

    assert [int(part[:1]) for part in said.split(b'"n":')[1:]] == [0, 1, 2, 3, 4]


async def test_errors_leave_the_connection_usable() -> None:
    """A 404 isn't the end of it."""
    async with staged() as stage:
        bad = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}"
        good = bad.replace(b"Content-Length: 2\r\n\r\n{}", b"Content-Length: 13\r\n") + (
            b'Connection: close\r\n\r\n{"model":"a"}'
        )
        said = await stage.site.exchange(bad + good)

    assert said.startswith(b"HTTP/1.1 404 ")
    assert b"HTTP/1.1 200 OK" in said


async def test_a_chunked_body_that_breaks_is_a_400() -> None:
    """And the model isn't asked."""
    async with staged() as stage:
        said = await stage.site.exchange(
            b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n"
            b'\r\n5\r\n{"mod\r\nzz\r\n'
        )
        assert said.split()[1] == b"400"
        assert stage.server.received == []


async def test_parts_of_a_page_are_no_use_of_an_awake_model() -> None:
    """Its server answers them; what is said to it over a WebSocket is another matter."""
    async with staged() as stage:
        for path in ("/app.js", "/", "/app.js?v=2"):
            async with stage.site.session.get(f"/upstream/a{path}") as answer:
                assert answer.status == 200
        upgrade = {"Connection": "Upgrade", "Upgrade": "websocket"}
        async with stage.site.session.get("/upstream/a/app.js", headers=upgrade) as answer:
            assert answer.status == 200
    assert stage.lender.uses == [False, True, False, True]
