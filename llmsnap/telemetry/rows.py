"""The tables of activity, and what stands in their rows."""

from __future__ import annotations

from typing import Final

from msgspec import Struct, convert, json

from llmsnap.core.cause import ASKED
from llmsnap.core.messages import NO_WAIT, Phases
from llmsnap.store.schema import Schema
from llmsnap.telemetry.record import (
    PHASES,
    Departure,
    MoveKind,
    MoveRecord,
    Pauses,
    RequestRecord,
    Result,
    phases_spent,
)
from llmsnap.telemetry.tokens import Tokens

SCHEMA: Final = Schema(
    "activity",
    (
        (
            "CREATE TABLE requests (id INTEGER PRIMARY KEY AUTOINCREMENT, at REAL NOT NULL, "
            "model TEXT NOT NULL, path TEXT NOT NULL, client TEXT NOT NULL, kind TEXT NOT NULL, "
            "status INTEGER NOT NULL, is_stream INTEGER NOT NULL, start TEXT NOT NULL, "
            "computed INTEGER, cached INTEGER, generated INTEGER, drafted INTEGER, "
            "accepted INTEGER, prompt_s REAL, generation_s REAL, duration_s REAL NOT NULL, "
            "first_byte_s REAL NOT NULL, ttft_s REAL, phases TEXT NOT NULL, "
            "pauses INTEGER NOT NULL, paused_s REAL NOT NULL, error TEXT NOT NULL, swap_at REAL)",
            "CREATE TABLE moves (id INTEGER PRIMARY KEY AUTOINCREMENT, at REAL NOT NULL, "
            "model TEXT NOT NULL, kind TEXT NOT NULL, driver TEXT NOT NULL, "
            "generation INTEGER NOT NULL, reason TEXT NOT NULL, result TEXT NOT NULL, "
            "error TEXT NOT NULL, duration_s REAL NOT NULL, swap_s REAL, phases TEXT NOT NULL, "
            "departures TEXT NOT NULL, paused INTEGER NOT NULL, bytes TEXT NOT NULL)",
            "CREATE INDEX moves_model ON moves (model, at)",
        ),
        ("ALTER TABLE requests ADD COLUMN parting TEXT NOT NULL DEFAULT ''",),
        ("ALTER TABLE requests ADD COLUMN selector TEXT NOT NULL DEFAULT ''",),
    ),
)

Value = str | int | float | None


class RequestRow(Struct, frozen=True, kw_only=True):
    """One request, as it is kept; times in seconds, moments in Unix seconds."""

    id: int = 0
    at: float
    model: str
    path: str
    client: str
    kind: str
    """The content type of the answer."""
    status: int
    is_stream: bool
    start: str
    """How the model was found: awake, woken, started, resumed."""
    computed: int | None = None
    cached: int | None = None
    generated: int | None = None
    drafted: int | None = None
    accepted: int | None = None
    prompt_s: float | None = None
    generation_s: float | None = None
    duration_s: float
    first_byte_s: float
    ttft_s: float | None = None
    phases: dict[str, float]
    pauses: int = 0
    """How often its answer stood still because the model was put to sleep."""
    paused_s: float = 0.0
    error: str = ""
    swap_at: float | None = None
    """When the way up that it waited for began."""
    parting: str = ""
    """Where its prompt parted from the last one of its conversation, in words."""
    selector: str = ""
    """Which selector has chosen the model."""


class MoveRow(Struct, frozen=True, kw_only=True):
    """One way of a model up or down, as it is kept; times in seconds, moments in Unix seconds."""

    id: int = 0
    at: float
    model: str
    kind: MoveKind
    driver: str
    generation: int
    reason: str
    result: Result
    error: str
    duration_s: float
    swap_s: float | None
    """Of a wake and a start: from the first order to make room until the model was up."""
    phases: dict[str, float]
    departures: list[Departure]
    """Who made room for it."""
    paused: int
    bytes: dict[str, int]


REQUEST_COLUMNS: Final = RequestRow.__struct_fields__
MOVE_COLUMNS: Final = MoveRow.__struct_fields__
_NO_TOKENS: Final = Tokens()
_ARRIVED_AT: Final = 1.0
"""Of recalled requests, on a clock of their own; 0 means never."""
_WRITTEN_AS_JSON: Final = frozenset({"phases", "departures", "bytes"})


def _insert(table: str, columns: tuple[str, ...]) -> str:
    names = columns[1:]  # the database gives the ids
    return f"INSERT INTO {table} ({', '.join(names)}) VALUES ({', '.join('?' * len(names))})"


INSERT_REQUEST: Final = _insert("requests", REQUEST_COLUMNS)
INSERT_MOVE: Final = _insert("moves", MOVE_COLUMNS)


def request_values(record: RequestRecord) -> tuple[Value, ...]:
    """Return what `INSERT_REQUEST` takes."""
    tokens = record.tokens or _NO_TOKENS
    return (
        record.arrived,
        record.model,
        record.path,
        record.client,
        record.content_type.decode("latin-1"),
        record.status,
        record.is_stream,
        record.start,
        tokens.computed,
        tokens.cached,
        tokens.generated,
        tokens.drafted,
        tokens.accepted,
        tokens.prompt_s,
        tokens.generation_s,
        record.duration_s,
        record.first_byte_s,
        record.ttft_s,
        _text(_rounded(record.spent())),
        record.pauses.count if record.pauses is not None else 0,
        record.pauses.ended_s if record.pauses is not None else 0.0,
        record.error,
        record.swap.began if record.swap is not None else None,
        record.parting,
        record.selector,
    )


def move_values(move: MoveRecord) -> tuple[Value, ...]:
    """Return what `INSERT_MOVE` takes."""
    return (
        move.began,
        move.model,
        move.kind,
        move.driver,
        move.generation,
        str(move.cause),
        move.result,
        move.error,
        move.duration_s,
        move.swap_s if move.is_swap else None,
        _text(_rounded(phases_spent(move.phases))),
        _text(move.departures),
        move.paused,
        _text(move.moved_bytes),
    )


def request_row(values: tuple[object, ...]) -> RequestRow:
    """Return the row whose columns are `REQUEST_COLUMNS`. Raises ValidationError."""
    return convert(_fields(REQUEST_COLUMNS, values), RequestRow, strict=False)


def move_row(values: tuple[object, ...]) -> MoveRow:
    """Return the row whose columns are `MOVE_COLUMNS`. Raises ValidationError."""
    return convert(_fields(MOVE_COLUMNS, values), MoveRow, strict=False)


def recalled(row: RequestRow, swap: MoveRow | None) -> RequestRecord:
    """Return `row` as the record that it was made of; `swap` is the way up that it waited for."""
    waits = {f"{name}_s": row.phases[name] for name in PHASES if name in row.phases}
    paused_before_s = row.phases.get("pause", 0.0)
    prefill_s = row.phases.get("prefill")
    answered = row.first_byte_s < row.duration_s
    return RequestRecord(
        model=row.model,
        path=row.path,
        client=row.client,
        arrived_at=_ARRIVED_AT,
        arrived=row.at,
        phases=Phases(**waits) if waits else NO_WAIT,
        pauses=Pauses(row.pauses, row.paused_s) if row.pauses else None,
        paused_before_s=paused_before_s,
        forwarded_at=0.0 if prefill_s is None else _ARRIVED_AT + row.first_byte_s - prefill_s,
        first_byte_at=_ARRIVED_AT + row.first_byte_s if answered else 0.0,
        ended_at=_ARRIVED_AT + row.duration_s,
        status=row.status,
        is_stream=row.is_stream,
        error=row.error,
        swap=_recalled_move(swap) if swap is not None else None,
        tokens=Tokens(**{name: getattr(row, name) for name in Tokens.__struct_fields__}),
        parting=row.parting,
    )


def _recalled_move(row: MoveRow) -> MoveRecord:
    return MoveRecord(
        model=row.model,
        kind=row.kind,
        generation=row.generation,
        cause=ASKED,
        began_at=row.at,
        result=row.result,
        departures=tuple(row.departures),
    )


def _fields(columns: tuple[str, ...], values: tuple[object, ...]) -> dict[str, object]:
    return {
        name: json.decode(str(value)) if name in _WRITTEN_AS_JSON else value
        for name, value in zip(columns, values, strict=True)
    }


def _rounded(spent: dict[str, float]) -> dict[str, float]:
    return {name: round(seconds, 6) for name, seconds in spent.items()}


def _text(value: object) -> str:
    return json.encode(value).decode()
