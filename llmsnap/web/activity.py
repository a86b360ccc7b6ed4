"""What was done so far, request by request and move by move: llmsnap's own API and llama-swap's."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any, Final, Protocol, get_args

from aiohttp import web
from multidict import MultiMapping

from llmsnap.errors import BadRequest, NotFound
from llmsnap.telemetry.captures import Captures
from llmsnap.telemetry.history import MOVE_SORTS, SORTS, Query, Stats
from llmsnap.telemetry.record import MoveKind
from llmsnap.telemetry.rows import MoveRow, RequestRow, recalled
from llmsnap.telemetry.story import why
from llmsnap.web.envelope import json_answer

_MOST_ROWS: Final = 999
_KINDS: Final[tuple[str, ...]] = get_args(MoveKind)
_UNKNOWN: Final = -1
_TOKENS: Final = (
    *("cache_tokens", "input_tokens", "output_tokens"),
    *("prompt_per_second", "tokens_per_second"),
)


class Remembers(Protocol):
    """What is needed of the history."""

    async def requests(self, query: Query) -> tuple[list[RequestRow], int]: ...

    async def told(self, query: Query) -> tuple[list[tuple[RequestRow, MoveRow | None]], int]: ...

    async def moves(self, query: Query) -> tuple[list[MoveRow], int]: ...

    async def request(self, id_: int) -> tuple[RequestRow, MoveRow | None] | None: ...

    async def stats(self, models: Sequence[str] = ()) -> Stats: ...


class ActivityRoutes:
    """Shows rows of activity, and the requests that are kept whole."""

    def __init__(self, history: Remembers, captures: Captures) -> None:
        self._history = history
        self._captures = captures

    def routes(self) -> list[web.RouteDef]:
        """Return the routes to mount."""
        return [
            web.get("/api/metrics", self.metrics),
            web.get("/api/metrics/activity", self.requests),
            web.get("/api/metrics/stats", self.stats),
            web.get("/api/activity", self.told),
            web.get("/api/activity/{row}", self.request),
            web.get("/api/swaps", self.moves),
            web.get("/api/captures/{row}", self.capture),
        ]

    async def requests(self, request: web.Request) -> web.Response:
        """List requests as llama-swap does, the newest first unless it is asked otherwise."""
        query = read_query(request.query)
        rows, total = await self._history.requests(query)
        return _page([self._peers_row(row) for row in rows], query, total)

    async def metrics(self, _: web.Request) -> web.Response:
        """List the answers as llmsnap (Go) does, the oldest first; it keeps no failures."""
        rows, _total = await self._history.requests(Query(limit=_MOST_ROWS))
        served = [self._peers_row(row) for row in reversed(rows) if row.status == HTTPStatus.OK]
        return json_answer([_flat(row) for row in served])

    async def stats(self, request: web.Request) -> web.Response:
        """Sum up, of one model or of all."""
        return json_answer(await self._history.stats(tuple(request.query.getall("model", ()))))

    async def request(self, request: web.Request) -> web.Response:
        """Show all that is known of one request, and why it took so long."""
        id_ = row_id(request)
        found = await self._history.request(id_)
        if found is None:
            raise NotFound(f"no request {id_} is kept; GET /api/activity lists those")
        return json_answer(self._told(*found))

    async def told(self, request: web.Request) -> web.Response:
        """List requests as `request` shows one of them."""
        query = read_query(request.query)
        rows, total = await self._history.told(query)
        return _page([self._told(*row) for row in rows], query, total)

    def _told(self, row: RequestRow, swap: MoveRow | None) -> dict[str, Any]:
        return {
            **_fields(row),
            "has_capture": row.id in self._captures,
            "why": why(recalled(row, swap)),
            "swap": swap and _fields(swap),
        }

    async def capture(self, request: web.Request) -> web.Response:
        """Show a request and its answer as they were. Raises NotFound."""
        id_ = row_id(request)
        kept = self._captures.get(id_)
        if kept is None:
            raise NotFound(f"request {id_} isn't kept whole; captureBuffer says how many are")
        return json_answer(kept.shown(id_))

    async def moves(self, request: web.Request) -> web.Response:
        """List how models came and went, the newest first, with phases and reasons."""
        query = read_query(request.query, MOVE_SORTS)
        rows, total = await self._history.moves(query)
        return _page([_fields(row) for row in rows], query, total)

    def _peers_row(self, row: RequestRow) -> dict[str, Any]:
        entry: dict[str, Any] = {
            "id": row.id,
            "timestamp": timestamp(row.at),
            "model": row.model,
            "req_path": row.path,
            "resp_content_type": row.kind,
            "resp_status_code": row.status,
            "tokens": {
                "cache_tokens": _known(row.cached),
                "draft_tokens": _known(row.drafted),
                "draft_acc_tokens": _known(row.accepted),
                "input_tokens": row.computed or 0,
                "output_tokens": row.generated or 0,
                "prompt_per_second": _speed(row.computed, row.prompt_s),
                "tokens_per_second": _speed(row.generated, row.generation_s),
            },
            "duration_ms": round(row.duration_s * 1000),
            "has_capture": row.id in self._captures,
        }
        if row.selector:
            entry["metadata"] = {"selector": row.selector}
        return entry | ({"error_msg": row.error} if row.error else {})


def _flat(row: Mapping[str, Any]) -> dict[str, Any]:
    kept = ("id", "timestamp", "model", "duration_ms", "has_capture")
    return {name: row[name] for name in kept} | {name: row["tokens"][name] for name in _TOKENS}


def read_query(given: MultiMapping[str], sorts: Collection[str] = tuple(SORTS)) -> Query:
    """Return which rows are wanted. Raises BadRequest, which names the parameter.

    `sorts` are what the rows may be sorted by.
    """
    start, end = moment(given, "start"), moment(given, "end")
    if start is not None and end is not None and start > end:
        raise BadRequest("start must not be after end")
    min_id, max_id = _number(given, "min_id"), _number(given, "max_id")
    if min_id is not None and max_id is not None and min_id > max_id:
        raise BadRequest("min_id must not be above max_id")
    kinds = tuple(given.getall("kind", ()))
    for kind in kinds:
        _one_of("kind", kind, _KINDS)
    return Query(
        models=tuple(given.getall("model", ())),
        start=None if start is None else start.timestamp(),
        end=None if end is None else end.timestamp(),
        min_id=min_id,
        max_id=max_id,
        kinds=kinds,
        limit=_number(given, "limit", most=_MOST_ROWS) or Query().limit,
        page=_number(given, "page") or 1,
        sort=_one_of("sort", given.get("sort", "id"), sorts),
        ascending=_one_of("order", given.get("order", "desc"), ("asc", "desc")) == "asc",
    )


def row_id(request: web.Request) -> int:
    """Return the id in the path. Raises BadRequest."""
    text = request.match_info["row"]
    if not text.isascii() or not text.isdigit() or len(text) > _MOST_DIGITS:
        raise BadRequest(f"id must be a number from 0 up, not {text!r}")
    return int(text)


_MOST_DIGITS: Final = 18
"""SQLite's numbers have 64 bits."""


def timestamp(at: float) -> str:
    """Return Unix seconds as RFC 3339 writes them."""
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds")


def _fields(row: RequestRow | MoveRow) -> dict[str, Any]:
    fields = {name: getattr(row, name) for name in row.__struct_fields__}
    return fields | {"timestamp": timestamp(row.at)}


def _page(rows: list[dict[str, Any]], query: Query, total: int) -> web.Response:
    return json_answer(
        {
            "data": rows,
            "page": query.page,
            "limit": query.limit,
            "total": total,
            "total_pages": math.ceil(total / query.limit),
        }
    )


def _known(count: int | None) -> int:
    return _UNKNOWN if count is None else count


def _speed(count: int | None, seconds: float | None) -> float:
    return round(count / seconds, 3) if count is not None and seconds else _UNKNOWN


def _one_of(name: str, value: str, known: Collection[str]) -> str:
    if value not in known:
        raise BadRequest(f"{name} must be one of {', '.join(known)}, not {value!r}")
    return value


def _number(given: MultiMapping[str], name: str, most: int | None = None) -> int | None:
    text = given.get(name)
    if text is None:
        return None
    number = int(text) if text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS else 0
    if number < 1 or (most is not None and number > most):
        span = f"from 1 to {most}" if most is not None else "from 1 up"
        raise BadRequest(f"{name} must be a number {span}, not {text!r}")
    return number


def moment(given: MultiMapping[str], name: str) -> datetime | None:
    """Return the time in parameter `name`; None: it isn't there. Raises BadRequest."""
    text = given.get(name)
    if text is None:
        return None
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        found = None
    if found is None or found.tzinfo is None:
        raise BadRequest(f"{name} must be a time such as 2026-01-31T12:00:00Z, not {text!r}")
    return found
