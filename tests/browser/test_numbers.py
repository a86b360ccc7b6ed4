"""The page's figures are those of the API and of the answers' own headers."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Locator, Page, expect

from tests.browser.conftest import Open
from tests.helpers.crowd import Heard, ask_at_random, configuration
from tests.helpers.proxy_process import running_proxy
from tests.helpers.waiting import eventually

pytestmark = [pytest.mark.browser, pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session")]

REQUESTS = 80
UNFOLDED = 20
UNKNOWN = "\N{EN DASH}"
WORDS = {
    "in the queue": "queue",
    "others finish": "drain",
    "making room": "evict",
    "waking": "wake",
    "starting": "start",
    "reading the prompt": "prefill",
}


def read_out(text: str) -> Any:
    """The seconds in `40 ms`, `0.2 s` or `12 s`, as exact as that is."""
    number, unit = text.split()
    digits = len(number.partition(".")[2])
    scale = {"ms": 1e-3, "s": 1.0}[unit]
    return pytest.approx(float(number) * scale, abs=0.51 * 10**-digits * scale)


async def phases_shown(request: Locator) -> dict[str, Any]:
    """What the bar of a request says to those who don't see it, the answer itself aside."""
    label = await request.get_by_role("img").get_attribute("aria-label")
    assert label
    parts = [re.fullmatch(r"(\D+) (\S+ m?s)", part) for part in label.split(", ")]
    told = {part[1]: read_out(part[2]) for part in parts if part}
    assert len(told) == len(parts), label
    told.pop("answering", None)
    return {WORDS[words]: seconds for words, seconds in told.items()}


async def test_the_page_says_what_the_headers_said(opened: Open, tmp_path: Path) -> None:
    """Each row has the API's figures; what unfolds under it has the header's phases."""
    async with running_proxy(configuration(tmp_path), tmp_path) as proxy:
        heard = await ask_at_random(proxy, REQUESTS, seed=7)
        async with opened(proxy, "activity") as window:
            page = window.page
            await page.get_by_label("Rows on a page").select_option("100")
            await page.get_by_label("Order").select_option("duration")
            await expect(page.locator(".request")).to_have_count(REQUESTS)
            _, listed = await proxy.get(f"/api/activity?limit={REQUESTS}&sort=duration")
            await in_order(page, [str(row["id"]) for row in listed["data"]])
            requests = await page.locator(".request").all()
            for request, row in zip(requests, listed["data"], strict=True):
                await agree(request, row)
            for request, row in list(zip(requests, listed["data"], strict=True))[:UNFOLDED]:
                await request.get_by_role("button").click()
                await tells_of_its_header(request, row, heard[row["client"]])


async def in_order(page: Page, ids: list[str]) -> None:
    """Wait until the rows are these."""

    async def are_these() -> bool:
        shown = await page.locator(".request").evaluate_all(
            "all => all.map(x => x.dataset.request)"
        )
        return bool(shown == ids)

    await eventually(are_these)


async def agree(request: Locator, row: dict[str, Any]) -> None:
    """The cells of one row are those of the API."""
    assert await request.get_attribute("data-request") == str(row["id"])
    cells = await request.locator("tr").first.locator("td").all_text_contents()
    _, model, status, took, first_token, *counts, speed, _ = cells
    assert (model, status) == (row["model"], str(row["status"]))
    assert row["duration_s"] == read_out(took)
    assert row["ttft_s"] == read_out(first_token)
    known = [row[name] for name in ("computed", "cached", "generated")]
    assert counts == [UNKNOWN if one is None else str(one) for one in known]
    assert speed == UNKNOWN  # none of these servers tells of its speed
    assert await request.locator(".why").text_content() == row["why"]


async def tells_of_its_header(request: Locator, row: dict[str, Any], client: Heard) -> None:
    """Its phases are those that its client was told, and so is their sum."""
    assert await phases_shown(request) == client.timing
    label = "until the first byte"
    facts = await request.locator(".facts div", has_text=label).locator("dd").text_content()
    assert facts
    whole = facts.partition(":")[0]
    assert sum(client.timing.values()) == read_out(whole)
    assert row["client"] in await request.locator(".facts").inner_text()
