"""Which model a request names."""

from __future__ import annotations

import pytest
from aiohttp.test_utils import make_mocked_request

from llmsnap.errors import BadRequest, LlmsnapError, ModelNotFound
from llmsnap.web.select import CLASS, Wanted, in_json, wanted
from tests.web.bodies import held
from tests.web.stage import staged


async def asked(
    body: bytes = b"",
    content_type: str | None = "application/json",
    *,
    method: str = "POST",
    path: str = "/v1/chat/completions",
    **headers: str,
) -> Wanted:
    """What a request with that body asks for."""
    if content_type is not None:
        headers["Content-Type"] = content_type
    request = make_mocked_request(method, path, headers=headers)
    return await wanted(request, held(body))


@pytest.mark.parametrize(
    ("body", "model", "stream"),
    [
        (b'{"model":"a"}', "a", False),
        (b' {"stream" : true , "model" : "a b/c:d" }\r\n', "a b/c:d", True),
        (b'{"model":"a","model":"b","stream":true,"stream":false}', "b", False),
        (b'{"mod\\u0065l":"\\u00fcber"}', "über", False),
        (b'{"model":"a","stream":"true"}', "a", False),
        (b'{"model":"a","stream":1}', "a", False),
        (b'{"model":12.50}', "12.50", False),
        (b'{"model":true}', "true", False),
        (b'{"model":{"x" : 1}}', '{"x" : 1}', False),
        (b'{"model":"a","messages":[{"model":"inner"}]}', "a", False),
        (b'{"model":"a","text":"\xff"}', "a", False),
    ],
)
def test_a_json_body_names_it(body: bytes, model: str, stream: bool) -> None:
    """The last of equal keys counts, values that aren't text are taken as they are written."""
    found = in_json(body)

    assert (found.model, found.stream, found.json) == (model, stream, body)


@pytest.mark.parametrize(
    ("body", "error", "reason"),
    [
        (b"", ModelNotFound, "names no model"),
        (b"{}", ModelNotFound, "names no model"),
        (b"null", ModelNotFound, "names no model"),
        (b'["model"]', ModelNotFound, "names no model"),
        (b'{"model":""}', ModelNotFound, "names no model"),
        (b'{"model":null}', ModelNotFound, "names no model"),
        (b'{"model":"a"', BadRequest, "truncated"),
        (b'{"model":"a",}', BadRequest, "valid JSON"),
        (b"[1,", BadRequest, "valid JSON"),
        (b'{"model":"a"} x', BadRequest, "trailing"),
        (b'{"model":"\xff"}', BadRequest, "UTF-8"),
        (b'{"model":"\\ud800"}', BadRequest, "valid JSON"),
        (b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}", BadRequest, "nested"),
        (b"[" * 100_000 + b"]" * 100_000, BadRequest, "nested"),
    ],
)
def test_what_names_nothing_is_told(body: bytes, error: type[LlmsnapError], reason: str) -> None:
    """404 when there is no name, 400 when there is no JSON."""
    with pytest.raises(error, match=reason):
        in_json(body)


@pytest.mark.parametrize(
    "content_type", ["application/x-www-form-urlencoded", "text/plain", None], ids=str
)
async def test_json_is_json_whatever_it_is_called(content_type: str | None) -> None:
    """`curl -d` says that it sends a form."""
    found = await asked(b'\n {"model":"a","stream":true}', content_type)

    assert (found.model, found.stream) == ("a", True)
    assert found.json is not None


async def test_a_form_names_it_in_a_field() -> None:
    """The field's escapes are undone; a longer name that ends alike is another field."""
    found = await asked(b"submodel=no&model=org%2Fa+b&x=1", "application/x-www-form-urlencoded")

    assert found.model == "org/a b"
    assert found.json is None


async def test_a_form_may_leave_it_to_the_query() -> None:
    """As in Go, a POST's query counts too."""
    form = "application/x-www-form-urlencoded"

    assert (await asked(b"x=1", form, path="/v1/audio/voices?model=a")).model == "a"
    with pytest.raises(ModelNotFound):
        await asked(b"x=1", form)


async def test_p49_a_multipart_body_names_it_in_a_part() -> None:
    """Where that part is comes with it."""
    body = b'--B\r\nContent-Disposition: form-data; name="model"\r\n\r\nwhisper\r\n--B--\r\n'
    found = await asked(body, "multipart/form-data; boundary=B")

    assert found.model == "whisper"
    assert found.field is not None
    assert body[found.field.start : found.field.end] == b"whisper"


async def test_p50_a_get_names_it_in_the_query() -> None:
    """With `stream=true` it asks for a stream."""
    found = await asked(content_type=None, method="GET", path="/props?model=org%2Fa&stream=true")
    assert (found.model, found.stream) == ("org/a", True)

    with pytest.raises(ModelNotFound):
        await asked(content_type=None, method="GET", path="/v1/audio/voices")


async def test_an_encoded_body_is_refused() -> None:
    """What is inside can't be seen, and engines don't take it either."""
    with pytest.raises(BadRequest, match="gzip"):
        await asked(b"\x1f\x8b", **{"Content-Encoding": "gzip"})


async def test_identity_is_no_encoding() -> None:
    """Some clients say it of all that they send."""
    assert (await asked(b'{"model":"a"}', **{"Content-Encoding": "identity"})).model == "a"


@pytest.mark.parametrize(
    ("given", "meant"), [("", None), ("helper", True), ("Main", False), ("HELPER", True)]
)
async def test_a_request_may_say_what_it_is(given: str, meant: bool | None) -> None:
    """The scheduler hears of it; without a word the model's own class counts."""
    async with staged() as stage:
        async with stage.ask(headers={CLASS: given} if given else None) as answer:
            assert answer.status == 200
        assert stage.lender.classes == [meant]


async def test_there_are_two_classes() -> None:
    """Another word is a mistake."""
    async with staged() as stage:
        async with stage.ask(headers={CLASS: "vip"}) as answer:
            assert answer.status == 400
            message = (await answer.json())["error"]["message"]
            assert message == "X-Llmsnap-Class is 'vip'; write main or helper"
