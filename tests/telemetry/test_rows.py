"""The tables and what is read of them are the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from llmsnap.core.messages import Phases
from llmsnap.telemetry.record import Departure, Pauses, RequestRecord
from llmsnap.telemetry.rows import (
    MOVE_COLUMNS,
    REQUEST_COLUMNS,
    move_row,
    move_values,
    recalled,
    request_row,
    request_values,
)
from llmsnap.telemetry.story import why
from tests.telemetry.kept import CACHED, WAITED, opened, request, wake

SWAP = wake(departures=(Departure("b", "sleep"), Departure("c", "stop")))


@pytest.mark.parametrize(
    ("table", "columns"), [("requests", REQUEST_COLUMNS), ("moves", MOVE_COLUMNS)]
)
async def test_a_table_has_the_columns_of_its_rows(
    tmp_path: Path, table: str, columns: tuple[str, ...]
) -> None:
    """A field without a column, or a column without a field, is a migration that is missing."""
    async with opened(tmp_path) as store:
        found = await store.read(f"SELECT name FROM pragma_table_info('{table}')")

    assert {name for (name,) in found} == set(columns)
    assert columns[0] == "id"


@pytest.mark.parametrize(
    "made",
    [
        request(),
        request(is_stream=True),
        request(phases=WAITED, swap=SWAP, forwarded_at=14.1, first_byte_at=14.5, ended_at=20.0),
        request(phases=WAITED, forwarded_at=14.1, first_byte_at=14.5, ended_at=20.0),
        request(tokens=CACHED, is_stream=True),
        request(pauses=Pauses(2, 1.5), paused_before_s=0.25),
        request(
            phases=Phases(queue_s=1, start_s=1),
            forwarded_at=12.0,
            first_byte_at=12.2,
            ended_at=13.0,
        ),
        request(forwarded_at=0.0, first_byte_at=0.0, status=503, error="not now"),
        request(error="the client left"),
    ],
)
def test_a_row_tells_what_its_record_told(made: RequestRecord) -> None:
    """The same sentence, the same phases, long after."""
    row = request_row((1, *request_values(made)))
    its_swap = None if made.swap is None else move_row((1, *move_values(made.swap)))
    again = recalled(row, its_swap)

    assert why(again) == why(made)
    assert again.spent() == pytest.approx(made.spent())
    assert _seen(again) == pytest.approx(_seen(made))


def _seen(record: RequestRecord) -> Any:
    return [record.first_byte_s, record.duration_s, record.prefill_s]
