"""What a server says when it doesn't do what it was asked."""

from __future__ import annotations

import json
from http import HTTPStatus
from typing import Any, Final

_LONGEST: Final = 500
_PLACES: Final = (("error", "message"), ("error",), ("message",), ("detail",))
"""Where servers put it, in the order in which it is looked for."""


def refusal(status: int, body: bytes) -> str:
    """Return why an answer with `status` was none, by its body's beginning or else its status."""
    text = next(filter(None, (_at(_decoded(body), place) for place in _PLACES)), "")
    if len(text) > _LONGEST:
        return f"{text[:_LONGEST]}…"
    return text or f"{status} {_phrase(status)}".rstrip()


def _decoded(body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None


def _at(value: Any, place: tuple[str, ...]) -> str:
    for key in place:
        value = value.get(key) if isinstance(value, dict) else None
    return value.strip() if isinstance(value, str) else ""


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return ""
