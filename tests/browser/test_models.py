"""The page's view of models: every button, and what happens seen as it happens."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path

import pytest
from playwright.async_api import expect

from tests.browser.conftest import Open
from tests.e2e.conftest import Configure
from tests.helpers.fake_models import FakeModels
from tests.helpers.llama import server_environment
from tests.helpers.proxy_process import running_proxy
from tests.helpers.waiting import eventually

pytestmark = [pytest.mark.browser, pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session")]

TO_MAKE_ROOM = "{after: 0}"


async def test_a_swap_is_watched_live(opened: Open, configure: Configure, tmp_path: Path) -> None:
    """States, memory, the lane of each model and the row of the swap, without a reload."""
    async with running_proxy(configure(), tmp_path) as proxy, opened(proxy) as window:
        for name in "ab":
            await window.shows_state(name, "stopped")
        await proxy.chat("a")
        await window.shows_state("a", "ready")
        await expect(window.model("a")).to_contain_text(re.compile(r"MiB RAM · 400 MiB declared"))
        await proxy.chat("b")
        await window.shows_state("b", "ready")
        await window.shows_state("a", "stopped")

        swap = window.page.locator(".swaps .swap").first
        await expect(swap).to_contain_text("b started")
        await expect(swap).to_contain_text("requested · a stopped")
        bar = swap.get_by_role("img")
        await expect(bar).to_have_attribute("aria-label", re.compile(r"making room .*, starting"))
        for name in "ab":
            lane = window.page.locator(f'[data-lane="{name}"]')
            await expect(lane.locator('[data-look="ready"]').first).to_be_visible()
            await expect(lane.locator('[data-look="starting"]').first).to_be_attached()
        await expect(window.page.locator("#models-summary")).to_have_text(
            "2 models: 1 up, 0 asleep"
        )
        loads = await window.page.evaluate("performance.getEntriesByType('navigation').length")
        assert loads == 1


async def test_who_waits_and_who_answers_is_seen(opened: Open, tmp_path: Path) -> None:
    """While it lasts; and an operator ends it, with the button of the request."""
    fake = FakeModels(tmp_path).add("a", "--gap 0.2 --chunks 500")
    async with running_proxy(fake.yaml, tmp_path) as proxy, opened(proxy) as window:
        body = {"model": "a", "stream": True, "messages": []}
        asking = asyncio.ensure_future(proxy.post("/v1/chat/completions", body))
        await expect(window.model("a").locator(".clients")).to_have_text("1 answering")
        lane = window.page.locator('[data-lane="a"]')
        await expect(lane.locator('[data-look="answering"]').first).to_be_attached()
        await window.go("activity")
        await expect(window.page.locator("#view-activity .pill").first).to_have_text("answering")
        await window.button("Cancel the request /v1/chat/completions for a").click()
        await asking
        await expect(window.page.get_by_text("Under way")).to_be_hidden()


@pytest.mark.usefixtures("swap")
async def test_every_order_is_a_button(opened: Open, configure: Configure, tmp_path: Path) -> None:
    """Load, sleep, wake, unload, each as soon as it makes sense; and unload for all."""
    config = configure(sleep=TO_MAKE_ROOM)
    async with (
        running_proxy(config, tmp_path, env=server_environment()) as proxy,
        opened(proxy) as window,
    ):
        await expect(window.button("Sleep a")).to_be_hidden()
        await window.button("Load a").click()
        await window.shows_state("a", "ready")
        await expect(window.button("Load a")).to_be_hidden()
        await window.button("Sleep a").click()
        await window.shows_state("a", "asleep")
        assert await proxy.state("a") == "asleep"
        await expect(window.model("a")).to_contain_text("back in about")
        await window.button("Wake a").click()
        await window.shows_state("a", "ready")
        await window.button("Unload a").click()
        await window.shows_state("a", "stopped")

        await window.button("Load b").click()
        await window.shows_state("b", "ready")
        await window.button("Unload all").click()
        await window.shows_state("b", "stopped")
        await expect(window.page.locator(".swaps").last).to_contain_text("by hand")
        await window.page.get_by_label("Only starts and wakes").uncheck()
        await expect(window.page.locator(".swaps").last).to_contain_text(
            "a put to sleep by pageout"
        )


async def test_why_a_model_failed_is_said(opened: Open, tmp_path: Path) -> None:
    """In its row, in a notice that can be closed, and the button is there again."""
    fake = FakeModels(tmp_path).add_command("a", "sh -c 'echo no such file: ${PORT}; exit 3'")
    async with (
        running_proxy(fake.yaml, tmp_path) as proxy,
        opened(proxy, may_fail=True) as window,
    ):
        await window.button("Load a").click()
        await window.shows_state("a", "failed")
        await expect(window.model("a").locator(".complaint")).to_contain_text("exit code 3")
        await expect(window.page.locator(".swaps .swap").first).to_contain_text("a start failed")
        await expect(window.page.get_by_role("alert")).to_contain_text("no such file")
        await window.button("Close this notice").click()
        await expect(window.page.get_by_role("alert")).to_have_count(0)
        await expect(window.button("Load a")).to_be_enabled()


async def test_details_and_devices(opened: Open, configure: Configure, tmp_path: Path) -> None:
    """What is known beyond the row unfolds under it; the RAM is a bar with words for all parts."""
    async with running_proxy(configure(), tmp_path) as proxy, opened(proxy) as window:
        await proxy.chat("a")
        await window.button("Details of a").click()
        facts = window.model("a").locator(".facts")
        await expect(facts).to_contain_text("declared: the configuration says so")
        await expect(facts).to_contain_text(re.compile(r"process\d+ \(number 1\)"))
        ram = window.page.locator(".device").first
        await expect(ram).to_contain_text("600 MiB for models")
        label = re.compile(r"RAM: a \d+ MiB, other programs .*, free \d")
        await expect(ram.get_by_role("img")).to_have_attribute("aria-label", label)
        await window.button("Details of a").click()
        await expect(facts).to_be_hidden()


async def test_other_machines_are_shown(opened: Open, tmp_path: Path) -> None:
    """With the states of their models, and how long their last swaps took."""
    (tmp_path / "there").mkdir()
    there = FakeModels(tmp_path / "there").add("b").add("c")
    async with running_proxy(there.yaml, tmp_path / "there") as far:
        box, den = f"proxy: '{far.url}', models: [b]", "proxy: 'http://127.0.0.1:1', models: [z]"
        here = FakeModels(tmp_path, head=f"peers: {{box: {{{box}}}, den: {{{den}}}}}").add("a")
        async with running_proxy(here.yaml, tmp_path) as near, opened(near) as window:
            await near.chat("b")
            shown = window.page.locator('[data-peer="box"]')
            await expect(shown).to_contain_text(re.compile(r"box/b.*started in .* s at .*ready"))
            await expect(shown).to_contain_text(re.compile(r"box/c.*stopped"))
            await expect(shown).to_contain_text("1 request")
            gone = window.page.locator('[data-peer="den"]')
            await expect(gone).to_contain_text("can't be reached")


async def test_profiles_are_switched(opened: Open, tmp_path: Path) -> None:
    """Here and by others; it is the same everywhere at once."""
    profiles = "profiles:\n  work: {pins: {chat: a}}\n  home: {pins: {chat: b}}"
    fake = FakeModels(tmp_path, head=profiles).add("a").add("b")
    async with running_proxy(fake.yaml, tmp_path) as proxy, opened(proxy) as window:

        async def is_active() -> bool:
            _, answer = await proxy.get("/api/profiles")
            return bool(answer["active"] == "work")

        choice = window.page.get_by_label("Profile")
        await choice.select_option("work")
        await eventually(is_active)
        await proxy.session.put("/api/profiles/active", json={"name": "home"})
        await expect(choice).to_have_value("home")


async def test_the_page_comes_back_with_its_proxy(
    opened: Open, configure: Configure, tmp_path: Path
) -> None:
    """It says that the line is lost, and is live again without a reload."""
    folder = tmp_path / "again"
    folder.mkdir()
    async with running_proxy(configure(), tmp_path) as first:
        port = first.url.rpartition(":")[2]
        async with opened(first, may_fail=True) as window:
            link = window.page.locator("#link")
            await expect(link).to_have_text("live")
            await first.stop()
            await expect(link).to_have_text("reconnecting")
            args = ("--listen", f"127.0.0.1:{port}")
            async with running_proxy(configure(), folder, args=args) as second:
                await expect(link).to_have_text("live")
                await second.chat("b")
                await window.shows_state("b", "ready")


async def test_a_swap_that_is_written_late_is_shown(
    opened: Open, configure: Configure, tmp_path: Path
) -> None:
    """Nothing tells of it then: the page looks again for a while."""
    async with running_proxy(configure(), tmp_path) as proxy:
        await proxy.chat("a")
        async with opened(proxy, "logs") as window:
            late = json.dumps({"data": [], "page": 1, "limit": 60, "total": 0, "total_pages": 0})
            await window.page.route("**/api/swaps*", lambda route: route.fulfill(body=late))
            await window.go("models")
            await window.shows_state("a", "ready")
            await expect(window.page.get_by_text("No model has come or gone yet")).to_be_visible()
            await window.page.unroute("**/api/swaps*")
            await expect(window.page.locator(".swaps .swap b").first).to_have_text("a")


async def test_without_events_the_page_asks(
    opened: Open, configure: Configure, tmp_path: Path
) -> None:
    """As behind a proxy that holds streams back."""
    async with running_proxy(configure(), tmp_path) as proxy:
        async with opened(proxy, "logs", may_fail=True) as window:
            await window.page.route("**/api/events*", lambda route: route.abort())
            await window.page.reload()
            await window.go("models")
            await expect(window.page.locator("#link")).to_have_text("reconnecting")
            await proxy.chat("a")
            await window.shows_state("a", "ready")
