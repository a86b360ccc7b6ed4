"""The page's view of activity: it says what the API says, and the model's server itself."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.async_api import expect

from tests.browser.conftest import Open
from tests.e2e.conftest import Configure
from tests.helpers.fake_models import FakeModels
from tests.helpers.proxy_process import ProxyProcess, running_proxy
from tests.helpers.waiting import eventually

pytestmark = [pytest.mark.browser, pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session")]


async def row_of(proxy: ProxyProcess, id_: int) -> dict[str, object]:
    """What the API says of a request, once it does."""

    async def is_there() -> bool:
        return (await proxy.get(f"/api/activity/{id_}"))[0] == 200

    await eventually(is_there)
    return (await proxy.get(f"/api/activity/{id_}"))[1]


async def test_a23_why_it_was_slow_stands_under_each_request(
    opened: Open, configure: Configure, tmp_path: Path
) -> None:
    """The API's own sentence, as soon as the request has ended; phases and times on demand."""
    async with running_proxy(configure(), tmp_path) as proxy:
        async with opened(proxy, "activity") as window:
            page = window.page
            await proxy.chat("a")
            await proxy.chat("b", "tell me")
            known = await row_of(proxy, 2)
            request = page.locator('.request[data-request="2"]')
            await expect(request.locator(".why")).to_have_text(str(known["why"]))
            assert "to stop a" in str(known["why"])
            cells = await request.locator("tr").first.locator("td").all_text_contents()
            assert cells[1:3] == ["b", "200"]
            assert cells[5:8] == [str(known[name]) for name in ("computed", "cached", "generated")]

            await window.button("Details of request 2 for b").click()
            bar = request.get_by_role("img")
            label = re.compile("making room .*, starting .*, reading the prompt")
            await expect(bar).to_have_attribute("aria-label", label)
            await expect(request).to_contain_text("2: /v1/chat/completions")
            await window.button("Request and answer").click()
            dialog = page.get_by_role("dialog")
            await expect(dialog).to_contain_text("tell me")
            await window.button("Close").click()
            await expect(dialog).to_be_hidden()
            await window.button("Details of request 2 for b").click()
            await expect(bar).to_be_hidden()


async def test_requests_are_filtered_sorted_and_turned(opened: Open, tmp_path: Path) -> None:
    """By model and words; the longest first; a page after the other."""
    fake = FakeModels(tmp_path).add("a").add("b", "--gap 0.2 --chunks 3")
    async with running_proxy(fake.yaml, tmp_path) as proxy:
        for model in ["a"] * 26 + ["b"]:
            await proxy.post("/v1/completions", {"model": model, "prompt": "x", "stream": True})
        await row_of(proxy, 27)
        async with opened(proxy, "activity") as window:
            page = window.page
            requests = page.locator(".request")
            await expect(requests).to_have_count(25)
            await window.button("Next").click()
            await expect(requests).to_have_count(2)
            await window.button("Back").click()
            await expect(requests).to_have_count(25)
            await page.get_by_label("Rows on a page").select_option("100")
            await expect(requests).to_have_count(27)
            await page.get_by_label("Order").select_option("duration")
            await expect(requests.first.locator("td").nth(1)).to_have_text("b")
            await page.get_by_label("Filter these rows").fill("nothing has this")
            await expect(page.get_by_text("No row here has these words.")).to_be_visible()
            await page.get_by_label("Filter these rows").fill("")
            await page.get_by_label("Only requests for").select_option("b")
            await expect(requests).to_have_count(1)
            await expect(page.locator(".sums")).to_contain_text("requests1prompt")
            await page.get_by_label("Only requests for").select_option("all models")
            await expect(page.locator(".sums")).to_contain_text("requests27prompt")


async def test_where_nothing_is_kept_the_reason_is_told(opened: Open, tmp_path: Path) -> None:
    """It may be that nothing is to be."""
    fake = FakeModels(tmp_path, head="activity: {mode: off}").add("a")
    async with running_proxy(fake.yaml, tmp_path) as proxy, opened(proxy, "activity") as window:
        await proxy.post("/v1/completions", {"model": "a", "prompt": "x"})
        await expect(window.page.get_by_text("or activity is off")).to_be_visible()


async def test_a11_a12_looking_wakes_nothing_and_holds_nothing(
    opened: Open, tmp_path: Path
) -> None:
    """All parts of the page are looked at; a model goes when it is idle, and stays away."""
    fake = FakeModels(tmp_path).add("a", more="ttl: 1")
    async with running_proxy(fake.yaml, tmp_path) as proxy, opened(proxy) as window:
        await proxy.post("/v1/completions", {"model": "a", "prompt": "x"})
        await window.shows_state("a", "stopped")
        for place in ("activity", "logs/a", "playground", "models"):
            await window.go(place)
            await expect(window.page.locator("section:not([hidden]) h1")).to_be_visible()
        await window.shows_state("a", "stopped")
    assert fake.count("a", "start") == 1
