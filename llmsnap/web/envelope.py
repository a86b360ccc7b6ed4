"""The form of our own answers: JSON, and errors as each kind of client expects them."""

from __future__ import annotations

import html
import logging
import math
import secrets
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec
from aiohttp import web

from llmsnap.errors import (
    BadRequest,
    BodyTooLarge,
    ConcurrencyLimited,
    LlmsnapError,
    MethodNotAllowed,
    NotFound,
    Unauthorized,
)
from llmsnap.web.head import Head

logger = logging.getLogger(__name__)

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

SRC: Final = "llmsnap"
ANTHROPIC_PATHS: Final = ("/v1/messages", "/v/messages")
LONGEST_MESSAGE: Final = 4000
"""Characters; messages quote what clients sent, which may be a name of megabytes."""

_ANTHROPIC_TYPES: Final = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    409: "conflict_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}


def json_answer(value: object, *, status: int = 200) -> web.Response:
    """Return an answer with `value` as JSON."""
    body = msgspec.json.encode(value)
    return web.Response(status=status, body=body, content_type="application/json")


def error_body(error: LlmsnapError, path: str = "") -> dict[str, Any]:
    """Return the error as OpenAI's clients expect it, for an answer or an event of a stream.

    For Anthropic's endpoints the same object is theirs too: `"type": "error"` beside it, and a
    `type` of their vocabulary in it.
    """
    body: dict[str, Any] = {
        "src": SRC,
        "error": {
            "message": _told(error),
            "type": error.type,
            "param": None,
            "code": error.code,
        },
    }
    if path.startswith(ANTHROPIC_PATHS):
        fallback = "api_error" if error.status >= 500 else "invalid_request_error"
        body["type"] = "error"
        body["error"]["type"] = _ANTHROPIC_TYPES.get(error.status, fallback)
    return body


def _told(error: LlmsnapError) -> str:
    message = error.message
    return message if len(message) <= LONGEST_MESSAGE else f"{message[:LONGEST_MESSAGE]}…"


@dataclass(frozen=True, slots=True)
class ErrorAnswer:
    """An error as it is sent, whoever sends it."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def lines(self) -> bytes:
        """The headers, each with its end; no framing."""
        return "".join(f"{name}: {value}\r\n" for name, value in self.headers.items()).encode()


def error_answer(error: LlmsnapError, *, accept: str = "", path: str = "") -> ErrorAnswer:
    """Return what tells a client who accepts `accept` of `error`."""
    body, content_type = _rendered(error, accept, path)
    headers = {"Content-Type": content_type}
    if error.retry_after_s is not None:
        headers["Retry-After"] = str(max(1, math.ceil(error.retry_after_s)))
    if isinstance(error, Unauthorized):
        # The challenge is what makes a browser ask for the key.
        headers["WWW-Authenticate"] = f'Basic realm="{SRC}"'
    return ErrorAnswer(error.status, headers, body)


def error_response(error: LlmsnapError, *, accept: str = "", path: str = "") -> web.Response:
    """Return the same for aiohttp to send."""
    answer = error_answer(error, accept=accept, path=path)
    return web.Response(status=answer.status, headers=answer.headers, body=answer.body)


def _rendered(error: LlmsnapError, accept: str, path: str) -> tuple[bytes, str]:
    # JSON wins where it is named at all: axios accepts `application/json, text/plain, */*`.
    wants_json = "application/json" in accept or isinstance(error, ConcurrencyLimited)
    if not wants_json and "text/plain" in accept:
        return f"{SRC}: {_told(error)}\n".encode(), "text/plain; charset=utf-8"
    if not wants_json and "text/html" in accept:
        return _page(error).encode(), "text/html; charset=utf-8"
    return msgspec.json.encode(error_body(error, path)), "application/json"


def _page(error: LlmsnapError) -> str:
    title = f"{error.status} {error.code.replace('_', ' ')}"
    return (
        f"<!doctype html><meta charset=utf-8><title>{title}</title>"
        f"<h1>{title}</h1><p>{SRC}: {html.escape(_told(error))}</p>\n"
    )


@web.middleware
async def render_errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Answer with the error that `handler` raises, unless its answer has begun: then cut it.

    This is the root of every request: what nobody expected ends here as a 500, with its traceback
    in the log.
    """
    try:
        return await handler(request)
    except web.HTTPException as answer:
        return _from_aiohttp(request, answer)
    except Exception as error:  # the root of every request
        if isinstance(error, ConnectionError) and client_gone(request):
            raise
        failure = failure_of(request, error)
    if has_begun(request):
        logger.warning("%s %s: answer cut: %s", request.method, request.path, failure)
        raise ConnectionAbortedError(failure.message) from failure
    return _answer(request, failure)


def client_gone(request: web.BaseRequest) -> bool:
    """Whether the client has closed its connection."""
    return request.transport is None or request.transport.is_closing()


def has_begun(request: web.BaseRequest) -> bool:
    """Whether an answer was prepared, so that nothing but the connection can tell of an error.

    aiohttp holds a prepared header back until the first byte of the body.
    """
    writer = request.writer
    return writer.output_size > 0 or bool(getattr(writer, "_headers_buf", None))


def _answer(request: web.Request, error: LlmsnapError) -> web.Response:
    return error_response(error, accept=request.headers.get("Accept", ""), path=request.path)


def _from_aiohttp(request: web.Request, answer: web.HTTPException) -> web.StreamResponse:
    """Put aiohttp's own refusals into our form; its redirects are answers as they are."""
    if answer.status < 400:
        return web.Response(status=answer.status, headers=answer.headers, body=answer.body)
    error: LlmsnapError
    match answer:
        case web.HTTPNotFound():
            error = NotFound(f"no such path: {request.path!r}")
        case web.HTTPMethodNotAllowed():
            allowed = ", ".join(sorted(answer.allowed_methods))
            error = MethodNotAllowed(f"{request.method} isn't for {request.path!r}; use {allowed}")
        case web.HTTPRequestEntityTooLarge():
            error = BodyTooLarge(str(answer.text))
        case _:
            error = BadRequest(str(answer.text))
    response = _answer(request, error)
    if "Allow" in answer.headers:
        response.headers["Allow"] = answer.headers["Allow"]
    return response


def failure_of(request: Head, error: Exception) -> LlmsnapError:
    """Return what the client is to be told; what nobody expected goes to the log."""
    if isinstance(error, LlmsnapError):
        return error
    number = secrets.token_hex(4)
    logger.error("%s %s: request %s failed", request.method, request.path, number, exc_info=error)
    return LlmsnapError(f"internal error; the log says more under request {number}")
