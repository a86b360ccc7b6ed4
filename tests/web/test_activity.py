"""What was done so far, over HTTP."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from aiohttp.test_utils import TestClient, TestServer

from llmsnap.telemetry.activity import Activity
from llmsnap.telemetry.captures import Captures, Kept
from llmsnap.telemetry.history import History
from llmsnap.web.activity import ActivityRoutes
from tests.helpers.waiting import eventually
from tests.telemetry.kept import CACHED, NOON, WAITED, batch, move, opened, request, wake
from tests.web.fleet import config_of, front_of

Client = TestClient[Any, Any]

PAGE = (Path(__file__).parents[2] / "docs" / "activity.md").read_text()
SWAP = wake(at=NOON - 4)
REQUESTS = (
    request("b", content_type=b"text/event-stream", selector="any"),
    request("a", at=NOON + 1, phases=WAITED, swap=SWAP, tokens=CACHED, forwarded_at=14.1),
    request("a", at=NOON + 2, status=503, error="it wasn't available"),
)


KEPT = Kept(
    "/v1/completions",
    ((b"Authorization", b"Bearer secret"),),
    b'{"prompt": "hi"}',
    b"Content-Type: application/json\r\n",
    b"{}",
)


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[Client]:
    """A client of a proxy with a past: three requests, of which the second waited for a wake."""
    async with opened(tmp_path) as store:
        history = History(store)
        Activity(store, rows=lambda: 0, days=0).take(
            batch(SWAP, move("b", "stop", error="it didn't"), *REQUESTS)
        )
        captures = Captures(10_000)
        captures.keep(2, KEPT)
        routes = ActivityRoutes(history, captures).routes()
        app = front_of(config_of("a", "b"), more=routes)
        async with TestClient(TestServer(app)) as client:

            async def all_there() -> bool:
                return len((await got(client, "/api/metrics/activity"))["data"]) == 3

            await eventually(all_there)
            yield client


async def got(client: Client, path: str) -> Any:
    """What a GET answers."""
    async with client.get(path) as answer:
        assert answer.status == 200, await answer.text()
        return await answer.json()


async def test_p53_rows_are_those_of_llama_swap(client: Client) -> None:
    """Names, units, and what stands for an unknown number."""
    page = await got(client, "/api/metrics/activity")
    known, unknown = page["data"][1], page["data"][2]

    assert {key: page[key] for key in page if key != "data"} == {
        "page": 1,
        "limit": 25,
        "total": 3,
        "total_pages": 1,
    }
    assert known == {
        "id": 2,
        "timestamp": "2027-01-15T08:00:01.000+00:00",
        "model": "a",
        "req_path": "/v1/completions",
        "resp_content_type": "application/json",
        "resp_status_code": 200,
        "tokens": {
            "cache_tokens": 31204,
            "draft_tokens": -1,
            "draft_acc_tokens": -1,
            "input_tokens": 56,
            "output_tokens": 410,
            "prompt_per_second": 224,
            "tokens_per_second": 50,
        },
        "duration_ms": 2000,
        "has_capture": True,
    }
    assert unknown["resp_content_type"] == "text/event-stream"
    assert unknown["tokens"]["cache_tokens"] == -1
    assert unknown["tokens"]["input_tokens"] == 0
    assert unknown["tokens"]["tokens_per_second"] == -1
    assert page["data"][0]["error_msg"] == "it wasn't available"


async def test_a_selector_is_told_beside_its_choice(client: Client) -> None:
    """As llama-swap's page shows it."""
    rows = (await got(client, "/api/metrics/activity"))["data"]

    assert [row.get("metadata") for row in rows] == [None, None, {"selector": "any"}]


async def test_llmsnap_gos_list_is_flat(client: Client) -> None:
    """The oldest first, and of answers alone."""
    first, second = await got(client, "/api/metrics")

    assert (first["id"], second["id"]) == (1, 2)
    assert second == {
        "id": 2,
        "timestamp": "2027-01-15T08:00:01.000+00:00",
        "model": "a",
        "cache_tokens": 31204,
        "input_tokens": 56,
        "output_tokens": 410,
        "prompt_per_second": 224,
        "tokens_per_second": 50,
        "duration_ms": 2000,
        "has_capture": True,
    }


async def test_pages_follow_each_other(client: Client) -> None:
    """With the number of all."""
    page = await got(client, "/api/metrics/activity?limit=2&page=2&order=asc")

    assert [row["id"] for row in page["data"]] == [3]
    assert (page["page"], page["limit"], page["total"], page["total_pages"]) == (2, 2, 3, 2)


@pytest.mark.parametrize(
    ("query", "ids"),
    [
        ("model=a", [3, 2]),
        ("model=a&model=b", [3, 2, 1]),
        ("start=2027-01-15T08:00:01Z", [3, 2]),
        ("end=2027-01-15T09:00:01%2B01:00", [2, 1]),
        ("min_id=2&max_id=2", [2]),
        ("sort=model&order=asc", [2, 3, 1]),
    ],
)
async def test_rows_are_chosen_and_sorted(client: Client, query: str, ids: Sequence[int]) -> None:
    """As llama-swap's page asks for them."""
    page = await got(client, f"/api/metrics/activity?{query}")

    assert [row["id"] for row in page["data"]] == ids


@pytest.mark.parametrize(
    ("path", "named"),
    [
        ("/api/metrics/activity?limit=0", "limit"),
        ("/api/metrics/activity?limit=1000", "limit"),
        ("/api/metrics/activity?limit=all", "limit"),
        ("/api/metrics/activity?page=0", "page"),
        ("/api/metrics/activity?page=-1", "page"),
        (f"/api/metrics/activity?page={'9' * 30}", "page"),
        ("/api/metrics/activity?min_id=\u0663", "min_id"),
        ("/api/metrics/activity?max_id=", "max_id"),
        ("/api/metrics/activity?min_id=2&max_id=1", "min_id"),
        ("/api/metrics/activity?start=yesterday", "start"),
        ("/api/metrics/activity?end=2027-01-15T08:00:01", "end"),
        ("/api/metrics/activity?start=2027-01-02T00:00:00Z&end=2027-01-01T00:00:00Z", "start"),
        ("/api/metrics/activity?sort=client", "sort"),
        ("/api/metrics/activity?order=up", "order"),
        ("/api/swaps?kind=nap", "kind"),
        ("/api/swaps?sort=prompt", "sort"),
        ("/api/activity/first", "id"),
        (f"/api/activity/{'9' * 30}", "id"),
    ],
)
async def test_parameters_that_make_no_sense_are_named(
    client: Client, path: str, named: str
) -> None:
    """400."""
    async with client.get(path) as answer:
        assert answer.status == 400
        assert named in (await answer.json())["error"]["message"]


async def test_p11_stats_sum_up(client: Client) -> None:
    """Of all models, or of one."""
    every = await got(client, "/api/metrics/stats")
    one = await got(client, "/api/metrics/stats?model=b")

    assert every["total_requests"] == 3
    assert every["total_cache_tokens"] == 31204
    assert every["gen_histogram"]["bins"] == [1]
    assert every["gen_histogram"]["binSize"] == 0
    assert one == {
        "total_requests": 1,
        "total_input_tokens": 0,
        "total_output_tokens": 0,
        "total_cache_tokens": 0,
        "prompt_histogram": None,
        "gen_histogram": None,
    }


async def test_a23_one_request_says_why_it_was_slow(client: Client) -> None:
    """In a sentence, with the numbers that it is made of."""
    row = await got(client, "/api/activity/2")

    assert row["why"].startswith(
        "waited 4.1 s: 0.2 s for b to finish, 0.9 s to put b to sleep, 3.0 s to wake a; "
    )
    assert "31,204 of 31,260 prompt tokens came from cache" in row["why"]
    assert row["phases"] == {"drain": 0.2, "evict": 0.9, "wake": 3.0}
    assert row["swap"]["departures"] == [{"model": "b", "kind": "sleep"}]
    assert row["has_capture"] is True


async def test_the_example_in_the_docs_is_whole(client: Client) -> None:
    """It has the keys that a request has, and says when that was in both ways."""
    (example,) = re.findall(r"`GET /api/activity/ID`:\n\n```json\n(.*?)```", PAGE, re.DOTALL)
    told = json.loads(example)

    assert told.keys() == (await got(client, "/api/activity/2")).keys()
    assert datetime.fromisoformat(told["timestamp"]).timestamp() == told["at"]


async def test_requests_are_listed_with_why_they_were_slow(client: Client) -> None:
    """Each as it is shown alone, and the swap that it waited for with it."""
    page = await got(client, "/api/activity")

    assert [row["id"] for row in page["data"]] == [3, 2, 1]
    assert (page["total"], page["total_pages"]) == (3, 1)
    assert page["data"][1] == await got(client, "/api/activity/2")
    assert page["data"][1]["swap"]["kind"] == "wake"
    assert [row["swap"] for row in page["data"][::2]] == [None, None]
    assert [row["id"] for row in (await got(client, "/api/activity?model=b"))["data"]] == [1]


async def test_u102_what_isnt_known_is_absent(client: Client) -> None:
    """And not zero."""
    row = await got(client, "/api/activity/1")

    assert (row["computed"], row["cached"], row["generated"], row["swap"]) == (None,) * 4


async def test_a_request_that_isnt_kept_is_not_found(client: Client) -> None:
    """404, with the list of those that are."""
    async with client.get("/api/activity/99") as answer:
        assert answer.status == 404
        assert "GET /api/activity lists" in (await answer.json())["error"]["message"]


async def test_a11_swaps_are_listed_with_phases_and_reasons(client: Client) -> None:
    """The newest first; one kind, where only that is wanted."""
    page = await got(client, "/api/swaps")
    wakes = await got(client, "/api/swaps?kind=wake")

    assert [(row["model"], row["kind"], row["reason"]) for row in page["data"]] == [
        ("b", "stop", "asked"),
        ("a", "wake", "requested"),
    ]
    assert page["data"][0]["error"] == "it didn't"
    (swap,) = wakes["data"]
    assert swap["phases"] == {"drain": 0.2, "evict": 0.9, "wake": 3.0}
    assert swap["swap_s"] == 3.9


async def test_a_request_that_is_kept_whole_is_shown(client: Client) -> None:
    """In llama-swap's form, with bodies in base64; another one isn't found."""
    assert await got(client, "/api/captures/2") == {
        "id": 2,
        "req_path": "/v1/completions",
        "req_headers": {"Authorization": "[REDACTED]"},
        "req_body": "eyJwcm9tcHQiOiAiaGkifQ==",
        "resp_headers": {"Content-Type": "application/json"},
        "resp_body": "e30=",
    }
    for id_, status in (("1", 404), ("x", 400)):
        async with client.get(f"/api/captures/{id_}") as answer:
            assert answer.status == status
