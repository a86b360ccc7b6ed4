"""Errors reach each kind of client in its own form, and never after an answer has begun."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import aiohttp
import anthropic
import openai
import pytest
from aiohttp import web

from llmsnap.errors import (
    ConcurrencyLimited,
    Forbidden,
    LlmsnapError,
    ModelNotFound,
    ShuttingDown,
    StartFailed,
    Unauthorized,
)
from llmsnap.web.envelope import error_body, error_response, render_errors
from tests.web.serving import Site, serving

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def app_with(handler: Handler, path: str = "/x") -> AsyncIterator[Site]:
    """Serve `handler` on POST `path` behind the middleware."""
    app = web.Application(middlewares=[render_errors])
    app.router.add_post(path, handler)
    app.router.add_get("/only-get", handler)
    async with serving(app) as site:
        yield site


def raising(error: Exception) -> Handler:
    """A handler that fails with `error`."""

    async def handler(_: web.Request) -> web.StreamResponse:
        raise error

    return handler


async def test_errors_are_json_by_default() -> None:
    """A client that accepts anything gets OpenAI's error object, with the source beside it."""
    async with app_with(raising(ModelNotFound("no model 'x'"))) as site:
        answer = await site.ask("/x", method="POST")

    assert answer.status == 404
    assert answer.json == {
        "src": "llmsnap",
        "error": {
            "message": "no model 'x'",
            "type": "invalid_request_error",
            "param": None,
            "code": "not_found",
        },
    }


@pytest.mark.parametrize(
    ("accept", "content_type", "text"),
    [
        ("text/plain", "text/plain", "llmsnap: no <b>\n"),
        ("text/html,*/*", "text/html", "<p>llmsnap: no &lt;b&gt;</p>"),
        ("application/json, text/plain, */*", "application/json", '"message":"no <b>"'),
        ("", "application/json", '"message":"no <b>"'),
    ],
)
def test_errors_come_in_the_form_that_is_accepted(
    accept: str, content_type: str, text: str
) -> None:
    """Text, an escaped page or JSON; JSON wins where it is named."""
    response = error_response(ModelNotFound("no <b>"), accept=accept)

    assert response.content_type == content_type
    assert response.charset == (None if content_type == "application/json" else "utf-8")
    assert text in (response.text or "")


def test_u22_too_many_requests_are_json_whatever_is_accepted() -> None:
    """A 429 is JSON with type, code and `Retry-After`, for browsers too."""
    response = error_response(ConcurrencyLimited("too many"), accept="text/html,text/plain")

    assert response.status == 429
    assert response.content_type == "application/json"
    assert response.headers["Retry-After"] == "1"
    assert '"type":"rate_limit_error"' in (response.text or "")
    assert '"code":"concurrency_limit"' in (response.text or "")


@pytest.mark.parametrize(
    ("error", "seconds"),
    [
        (ShuttingDown("going"), "5"),
        (ShuttingDown("going", retry_after_s=0.2), "1"),
        (StartFailed("exit code 1", retry_after_s=7.3), "8"),
        (ModelNotFound("no"), None),
    ],
)
def test_retry_after_is_whole_seconds_rounded_up(error: LlmsnapError, seconds: str | None) -> None:
    """Errors that pass say when to come back; the others don't."""
    assert error_response(error).headers.get("Retry-After") == seconds


def test_a_missing_key_is_answered_with_a_challenge() -> None:
    """The Basic challenge is what lets a browser ask for the key."""
    response = error_response(Unauthorized("no key"))

    assert response.headers["WWW-Authenticate"] == 'Basic realm="llmsnap"'


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (Unauthorized("x"), "authentication_error"),
        (Forbidden("x"), "permission_error"),
        (ModelNotFound("x"), "not_found_error"),
        (ConcurrencyLimited("x"), "rate_limit_error"),
        (ShuttingDown("x"), "overloaded_error"),
        (StartFailed("x"), "api_error"),
    ],
)
def test_anthropics_endpoints_speak_anthropics_types(error: LlmsnapError, kind: str) -> None:
    """Both shapes are in one body: `type: error` and their vocabulary, and the object itself."""
    body = error_body(error, "/v1/messages/count_tokens")

    assert body["type"] == "error"
    assert body["error"]["type"] == kind
    assert body["error"]["message"] == "x"


async def test_the_anthropic_client_raises_its_typed_exceptions() -> None:
    """A 404 of ours is their NotFoundError, with type and message."""
    failing = raising(ModelNotFound("no model 'x'"))
    async with app_with(failing, "/v1/messages") as site:
        client = anthropic.AsyncAnthropic(api_key="k", base_url=site.url)
        async with client:
            with pytest.raises(anthropic.NotFoundError) as caught:
                await client.messages.create(
                    model="x", max_tokens=1, messages=[{"role": "user", "content": "hi"}]
                )

    assert caught.value.type == "not_found_error"
    assert caught.value.api_message == "no model 'x'"


async def test_the_openai_client_raises_its_typed_exceptions() -> None:
    """A 404 of ours is their NotFoundError, with type, code and message."""
    failing = raising(ModelNotFound("no model 'x'"))
    async with app_with(failing, "/v1/chat/completions") as site:
        client = openai.AsyncOpenAI(api_key="k", base_url=f"{site.url}/v1")
        async with client:
            with pytest.raises(openai.NotFoundError) as caught:
                await client.chat.completions.create(
                    model="x", messages=[{"role": "user", "content": "hi"}]
                )

    assert caught.value.code == "not_found"
    assert caught.value.type == "invalid_request_error"
    assert "no model 'x'" in caught.value.message


async def test_p16_unknown_paths_and_wrong_methods_are_told_apart() -> None:
    """404 for a path that isn't there, 405 with `Allow` for a method that isn't."""
    async with app_with(raising(ModelNotFound("never"))) as site:
        missing = await site.ask("/nowhere")
        wrong = await site.ask("/only-get", method="POST")

    assert (missing.status, wrong.status) == (404, 405)
    assert wrong.headers["Allow"] == "GET,HEAD"
    assert missing.message == "no such path: '/nowhere'"
    assert "use GET, HEAD" in wrong.message


async def test_the_unexpected_is_a_500_whose_details_are_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A client hears a request number and nothing of our insides; the log has the traceback."""
    async with app_with(raising(ZeroDivisionError("secret detail"))) as site:
        answer = await site.ask("/x", method="POST")

    number = answer.message.rpartition(" ")[2]
    assert answer.status == 500
    assert "secret" not in answer.message
    record = next(record for record in caplog.records if number in record.getMessage())
    assert record.exc_info is not None
    assert record.exc_info[0] is ZeroDivisionError


async def test_redirects_of_aiohttp_pass() -> None:
    """Only failures are put into our form."""
    async with app_with(raising(web.HTTPFound("/elsewhere"))) as site:
        answer = await site.ask("/x", method="POST")

    assert (answer.status, answer.headers["Location"]) == (302, "/elsewhere")


@pytest.mark.parametrize("error", [StartFailed("died"), RuntimeError("bug")], ids=repr)
async def test_an_answer_that_has_begun_is_cut_and_nothing_is_added(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    """After `prepare` an error may only break the connection."""

    async def half(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"half")
        raise error

    async with app_with(half) as site:
        said = await site.exchange(b"POST /x HTTP/1.1\r\nHost: localhost\r\n\r\n")

    head, _, body = said.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 ")
    assert body == b"4\r\nhalf\r\n"
    assert "answer cut" in caplog.text


async def test_a_client_that_left_is_no_error_of_ours(caplog: pytest.LogCaptureFixture) -> None:
    """A write to nobody ends the request without a word above debug level."""
    caplog.set_level(logging.INFO)

    async def late(request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        request.transport.abort()
        raise ConnectionResetError("nobody there")

    async with app_with(late) as site:
        with pytest.raises(aiohttp.ClientError):
            await site.ask("/x", method="POST")

    assert not [record for record in caplog.records if record.name.startswith("llmsnap.web")]


@pytest.mark.parametrize("accept", ["*/*", "text/plain", "text/html"])
async def test_a_message_stays_short_whatever_it_quotes(accept: str) -> None:
    """A model's name may be as long as a body; the answer doesn't send it all back."""
    error = ModelNotFound(f"no model is called {'m' * 1_000_000!r}")
    async with app_with(raising(error)) as site:
        answer = await site.ask("/x", method="POST", headers={"Accept": accept})

    assert len(answer.text) < 5000
    assert "mmm…" in answer.text
