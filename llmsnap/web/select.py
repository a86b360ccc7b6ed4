"""Which model a request names, and whether it wants its answer as a stream."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote_to_bytes

import msgspec
from aiohttp import hdrs

from llmsnap.errors import BadRequest, ModelNotFound
from llmsnap.web.body import Buffer, HeldBody
from llmsnap.web.head import Head
from llmsnap.web.multipart import Field, find_field

_FORM_MODEL: Final = re.compile(rb"(?:^|&)model=([^&]*)")
CLASS: Final = "X-Llmsnap-Class"
_CLASSES: Final = frozenset({"main", "helper"})
_BLANK: Final = b" \t\r\n"
_QUOTE: Final = b'"'


class _Named(msgspec.Struct):
    """The two keys that matter; `Raw`, for clients send them in every type there is."""

    model: msgspec.Raw = msgspec.Raw()
    stream: msgspec.Raw = msgspec.Raw()


class _Usual(msgspec.Struct):
    """The same in the types that nearly all clients send."""

    model: str = ""
    stream: bool = False


_USUAL: Final = msgspec.json.Decoder(_Usual)
_NAMED: Final = msgspec.json.Decoder(_Named)
_TEXT: Final = msgspec.json.Decoder(str)
_ANYTHING: Final = msgspec.json.Decoder(msgspec.Raw)


@dataclass(slots=True)
class Wanted:
    """What a request asks for."""

    model: str
    """As the client names it; not empty."""
    stream: bool = False
    json: Buffer | None = None
    """The whole body, when it is JSON."""
    field: Field | None = None
    """Where the body names the model, when it is a form."""
    is_encoded: bool = False
    """Whether the form is URL-encoded, as the value in `field` then is."""
    stand_in: str = ""
    """The name that is served in place of `model`; empty: `model` itself."""


async def wanted(request: Head, body: HeldBody) -> Wanted:
    """Find out what `request` asks for; hold no more of its body than that takes.

    Raises BadRequest when the body can't be understood, ModelNotFound when it names no model.
    """
    if request.method in (hdrs.METH_GET, hdrs.METH_HEAD):
        query = request.query
        return Wanted(_given(query.get("model", "")), query.get("stream") == "true")
    content_type = request.headers.get(hdrs.CONTENT_TYPE, "")
    encoding = request.headers.get(hdrs.CONTENT_ENCODING, "")
    if encoding and encoding.lower() != "identity":
        raise BadRequest(f"the body is encoded as {encoding!r}; send it as it is")
    if "json" in content_type.lower():
        return in_json(body.at_hand or await body.whole())
    if "multipart/form-data" in content_type.lower():
        field = await find_field(body, content_type, b"model")
        return Wanted(_given(_text(field.value) if field else ""), field=field)
    # `curl -d` declares every body a form, so what looks like JSON is taken for JSON.
    held = await body.whole()
    if held[:256].lstrip(_BLANK)[:1] == b"{":
        return in_json(held)
    form = _FORM_MODEL.search(held)
    if form is None:
        return Wanted(_given(request.query.get("model", "")))
    name = _text(unquote_to_bytes(form[1].replace(b"+", b" ")))
    field = Field(*form.span(1), form[1])
    named = _given(name or request.query.get("model", ""))
    return Wanted(named, field=field, is_encoded=True)


def class_of(request: Head) -> bool | None:
    """Return whether the request says that it is a helper's; None: it doesn't say.

    Raises BadRequest for other words than there are.
    """
    given = request.headers.get(CLASS, "")
    if not given:
        return None
    if given.lower() not in _CLASSES:
        raise BadRequest(f"{CLASS} is {given!r}; write main or helper")
    return given.lower() == "helper"


def in_json(held: Buffer) -> Wanted:
    """Read model and stream out of a JSON body, without building the rest of it.

    20 MB take some 6 ms. A thread wouldn't help: msgspec doesn't let go of the interpreter's lock.
    """
    if not held:
        raise _nameless()
    try:
        try:
            usual = _USUAL.decode(held)
        except msgspec.ValidationError:
            model, stream = _in_odd_json(held)
        else:
            model, stream = usual.model, usual.stream
    except msgspec.DecodeError as error:
        raise BadRequest(f"the body isn't valid JSON: {_reason(error)}") from None
    except RecursionError:
        raise BadRequest("the body's JSON is nested too deeply") from None
    return Wanted(_given(model), stream, json=held)


def _in_odd_json(held: Buffer) -> tuple[str, bool]:
    """Return model and stream where they aren't text and a boolean."""
    try:
        named = _NAMED.decode(held)
    except msgspec.ValidationError:
        _ANYTHING.decode(held)
        raise _nameless() from None  # JSON, but no object
    return _name(bytes(named.model)), bytes(named.stream) == b"true"


def _name(raw: bytes) -> str:
    """Return a JSON value as the name that llama-swap takes it for: text, or what was written."""
    if raw[:1] != _QUOTE:
        return "" if raw == b"null" else _text(raw)
    if b"\\" not in raw:
        return _text(raw[1:-1])
    try:
        return _TEXT.decode(raw)
    except msgspec.DecodeError as error:
        raise BadRequest(f"`model` isn't valid JSON: {_reason(error)}") from None


def _text(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise BadRequest(f"the model's name {value[:80]!r} isn't valid UTF-8") from None


def _given(name: str) -> str:
    if not name:
        raise _nameless()
    return name


def _nameless() -> ModelNotFound:
    return ModelNotFound("the request names no model; put its name into `model`")


def _reason(error: msgspec.DecodeError) -> str:
    return str(error).removeprefix("JSON is malformed: ")
