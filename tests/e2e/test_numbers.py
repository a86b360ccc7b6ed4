"""Whoever tells of a request tells the same: header, API, database, metrics."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.crowd import CHAT, ask_at_random, configuration
from tests.helpers.proxy_process import ProxyProcess, running_proxy
from tests.helpers.waiting import eventually
from tests.telemetry.scraping import Figures, figures, labelled

pytestmark = pytest.mark.e2e

REQUESTS = 500
ROUNDED_S = 1e-6
"""Phases are kept to the microsecond."""
HEADER_S = 0.5e-4 + ROUNDED_S
"""Headers tell tenths of milliseconds."""


async def kept(proxy: ProxyProcess, path: str) -> dict[int, dict[str, Any]]:
    """The rows that the API lists under `path`, by id, once all requests have theirs."""
    page: dict[str, Any] = {}

    async def all_there() -> bool:
        nonlocal page
        _, page = await proxy.get(f"{path}?limit=999")
        return bool(page["total"] == REQUESTS)

    await eventually(all_there, what="a row of each request")
    return {row["id"]: row for row in page["data"]}


def in_the_file(path: Path) -> dict[int, dict[str, Any]]:
    """The rows as they are in the database."""
    database = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    database.row_factory = sqlite3.Row
    try:
        return {row["id"]: dict(row) for row in database.execute("SELECT * FROM requests")}
    finally:
        database.close()


async def scraped(proxy: ProxyProcess) -> Figures:
    """What a scraper reads, once all requests are in it."""
    found: Figures = {}

    async def all_there() -> bool:
        nonlocal found
        async with proxy.session.get("/metrics") as answer:
            found = figures(await answer.read())
        return sum(n for (name, _), n in found.items() if name == "llmsnap_requests_total") == (
            REQUESTS
        )

    await eventually(all_there, what="each request in the metrics")
    return found


async def test_five_tell_the_same_of_each_request(tmp_path: Path) -> None:
    """Phases sum to the first byte; header, both APIs, database and metrics agree on them."""
    async with running_proxy(configuration(tmp_path), tmp_path) as proxy:
        heard = await ask_at_random(proxy, REQUESTS, seed=55)
        rows = await kept(proxy, "/api/activity")
        peers = await kept(proxy, "/api/metrics/activity")
        written = in_the_file(proxy.state_dir / "llmsnap.db")
        read = await scraped(proxy)

    assert {row["client"] for row in rows.values()} == heard.keys()
    assert {row["start"] for row in rows.values()} == {"awake", "woken", "started"}
    assert rows.keys() == written.keys() == peers.keys()
    for id_, row in rows.items():
        client, phases = heard[row["client"]], row["phases"]
        assert sum(phases.values()) == pytest.approx(row["first_byte_s"], abs=8 * ROUNDED_S)
        assert row["first_byte_s"] <= client.waited_s
        assert client.timing == {
            name: pytest.approx(seconds, abs=HEADER_S) for name, seconds in phases.items()
        }
        assert json.loads(written[id_].pop("phases")) == phases
        assert written[id_] == {name: row[name] for name in written[id_]}
        assert peers[id_]["duration_ms"] == round(row["duration_s"] * 1000)
    agree(read, list(rows.values()))


def agree(read: Figures, rows: list[dict[str, Any]]) -> None:
    """Each sum that a scraper reads is that of the rows."""
    sums: Counter[tuple[str, frozenset[tuple[str, str]]]] = Counter()
    for row in rows:
        model = row["model"]
        sums[labelled("llmsnap_requests_total", model=model, path=CHAT, code="200")] += 1
        took = labelled("llmsnap_request_duration_seconds_sum", model=model)
        sums[took] += row["duration_s"]
        name = "llmsnap_time_to_first_token_seconds"
        sums[labelled(f"{name}_sum", model=model, start=row["start"])] += row["ttft_s"]
        sums[labelled(f"{name}_count", model=model, start=row["start"])] += 1
        for phase, seconds in row["phases"].items():
            name = "llmsnap_phase_duration_seconds"
            sums[labelled(f"{name}_sum", model=model, phase=phase)] += seconds
            sums[labelled(f"{name}_count", model=model, phase=phase)] += 1
        if row["generated"] is not None:
            sums[labelled("llmsnap_generated_tokens_total", model=model)] += row["generated"]
    for key, value in sums.items():
        assert read[key] == pytest.approx(value, abs=REQUESTS * ROUNDED_S), key
