"""Whoever looks, and whoever attacks: keys, keyboards, phones, darkness, markup in names."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from playwright.async_api import Page, Route, expect

from tests.browser.conftest import Open, script
from tests.browser.scene import LONG
from tests.helpers.fake_models import FakeModels
from tests.helpers.proxy_process import running_proxy

pytestmark = [pytest.mark.browser, pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session")]

PLACES = ("models", "activity", "logs", "playground")
MARKUP = "<img src=x onerror=window.hurt=1><script>window.hurt=1</script>"


async def test_markup_is_a_text_wherever_it_comes_from(opened: Open, tmp_path: Path) -> None:
    """A model's name and description, a line of its log, a prompt and its answer, an error."""
    says = tmp_path / "says"
    says.write_text(MARKUP + "\n")
    fake = FakeModels(tmp_path)
    name = "<b onclick=1>a"
    command = f"sh -c 'cat {says}; exec {fake.command('a')}'"
    fake.add_command(name, command, more=f"description: {json.dumps(MARKUP)}")
    async with running_proxy(fake.yaml, tmp_path) as proxy, opened(proxy) as window:
        page = window.page
        await expect(page.locator(".model h3")).to_have_text(name)
        await expect(page.locator(".model .about")).to_contain_text(MARKUP)
        await page.get_by_role("button", name=f"Load {name}").click()
        await expect(page.locator(".model .pill")).to_have_text("ready")
        await window.go("logs/upstream")
        await expect(page.locator(".row", has_text=MARKUP)).to_be_visible()
        await window.go("playground")
        await page.route("**/v1/chat/completions", says_markup)
        await page.get_by_label("Message", exact=True).fill(MARKUP)
        await window.button("Send").click()
        await expect(page.locator('.message[data-role="user"]')).to_contain_text(MARKUP)
        answer = page.locator('.message[data-role="assistant"]')
        await expect(answer.locator(".text").last).to_have_text(MARKUP)
        await expect(answer.locator(".cost")).to_be_visible()
        await page.unroute("**/v1/chat/completions")
        await proxy.post("/v1/completions", {"model": name, "prompt": MARKUP})
        await window.go("activity")
        await expect(page.locator(".request")).to_contain_text(name)
        await page.locator(".request button").click()
        await window.button("Request and answer").click()
        await expect(page.get_by_role("dialog")).to_contain_text(MARKUP)
        assert await page.evaluate("window.hurt") is None
        assert await page.locator("main img, main script").count() == 0


async def says_markup(route: Route) -> None:
    """Answer a chat as a model would that was told to."""
    delta = {"choices": [{"delta": {"content": MARKUP, "reasoning_content": MARKUP}}]}
    body = f"data: {json.dumps(delta)}\n\ndata: [DONE]\n\n"
    await route.fulfill(body=body, content_type="text/event-stream")


async def test_a_key_is_asked_for_once(opened: Open, tmp_path: Path) -> None:
    """A wrong one is refused, the right one opens all; the tab remembers it, or the browser."""
    fake = FakeModels(tmp_path, head="apiKeys: [right]").add("a")
    headers = {"Authorization": "Bearer right"}
    async with (
        running_proxy(fake.yaml, tmp_path, headers=headers) as proxy,
        opened(proxy, may_fail=True) as window,
    ):
        page = window.page
        key = page.get_by_label("API key", exact=True)
        await expect(key).to_be_visible()
        await expect(page.get_by_text("No models are configured.")).to_be_hidden()
        await key.fill("wrong")
        await key.press("Enter")
        await expect(page.get_by_role("alert")).to_contain_text("isn't one of this proxy's")
        await key.fill("right")
        await window.button("Go on").click()
        await window.shows_state("a", "stopped")
        await expect(page.locator("#link")).to_have_text("live")
        await window.button("Load a").click()
        await window.shows_state("a", "ready")
        await page.reload()
        await window.shows_state("a", "ready")
        await expect(page.get_by_role("dialog")).to_have_count(0)
        assert await keys_kept(page) == ["right", None]
        await page.evaluate("sessionStorage.clear()")
        await page.reload()
        await page.get_by_label("Keep it in this browser").check()
        await key.fill("right")
        await window.button("Go on").click()
        await window.shows_state("a", "ready")
        assert await keys_kept(page) == [None, "right"]


async def keys_kept(page: Page) -> list[str | None]:
    """The key as the tab keeps it, and as the browser does."""
    kept: list[str | None] = await page.evaluate(
        "[sessionStorage, localStorage].map((store) => store.getItem('llmsnap.key'))"
    )
    return kept


async def test_all_is_done_with_the_keyboard(opened: Open, tmp_path: Path) -> None:
    """Tab reaches the order, Enter gives it, and focus is shown and stays where it was."""
    fake = FakeModels(tmp_path).add("a")
    async with running_proxy(fake.yaml, tmp_path) as proxy, opened(proxy) as window:
        page = window.page
        await window.shows_state("a", "stopped")
        await page.keyboard.press("Tab")
        await expect(page.get_by_text("Skip to content")).to_be_focused()
        await page.keyboard.press("Enter")
        await expect(page.locator("main")).to_be_focused()
        await tab_to(page, "Details of a")
        width = await page.evaluate("getComputedStyle(document.activeElement).outlineWidth")
        assert width == "2px"
        await page.keyboard.press("Enter")
        await expect(window.model("a").locator(".facts")).to_be_visible()
        await proxy.post("/api/models/load/a")
        await window.shows_state("a", "ready")
        await expect(window.button("Details of a")).to_be_focused()
        await tab_to(page, "Unload a")
        await page.keyboard.press("Enter")
        await window.shows_state("a", "stopped")


async def test_an_address_that_is_none_shows_the_models(opened: Open, tmp_path: Path) -> None:
    """Whatever stands behind the hash."""
    fake = FakeModels(tmp_path).add("a")
    async with (
        running_proxy(fake.yaml, tmp_path) as proxy,
        opened(proxy, "constructor") as window,
    ):
        await window.shows_state("a", "stopped")


async def tab_to(page: Page, name: str) -> None:
    """Press Tab until the button called `name` has the focus."""
    for _ in range(40):
        await page.keyboard.press("Tab")
        if await page.evaluate("document.activeElement.getAttribute('aria-label')") == name:
            return
    raise AssertionError(f"Tab never reaches {name!r}")


@pytest.mark.parametrize("place", PLACES)
async def test_a_phone_is_wide_enough(opened: Open, tmp_path: Path, place: str) -> None:
    """Nothing makes the page scroll sideways, not even long names; buttons are large enough."""
    fake = FakeModels(tmp_path).add(LONG, more="description: and as much said of it as one can")
    viewport = {"width": 360, "height": 740}
    async with (
        running_proxy(fake.yaml, tmp_path) as proxy,
        opened(proxy, place, viewport=viewport, has_touch=True) as window,
    ):
        page = window.page
        await proxy.post("/v1/completions", {"model": LONG, "prompt": "x"})
        if place == "activity":
            await expect(page.locator(".request")).to_have_count(1)
            await page.locator(".request button").click()
        if place == "playground":
            await page.get_by_label("Message", exact=True).fill("hello")
            await window.button("Send").click()
            await expect(page.locator('.message[data-role="user"]')).to_be_in_viewport()
            await expect(page.locator('.message[data-state="done"] .cost')).to_be_in_viewport(
                ratio=1
            )
        await expect(page.locator("section:not([hidden]) h1")).to_be_visible()
        widths = "[document.documentElement.scrollWidth, document.documentElement.clientWidth]"
        scroll, client = await page.evaluate(widths)
        assert scroll <= client
        assert await page.evaluate(script("small")) == []


async def test_the_dark_follows_the_system_until_told_otherwise(
    opened: Open, tmp_path: Path
) -> None:
    """Three looks, one after the other; the choice is kept."""
    async with running_proxy("models: {}\n", tmp_path) as proxy:
        async with opened(proxy, color_scheme="dark") as window:
            page = window.page
            assert await brightness(page) < 60
            await page.locator("#theme").click()
            assert await brightness(page) > 200
            await page.reload()
            await expect(page.locator("#theme")).to_have_attribute("title", "Colours: light")
            assert await brightness(page) > 200
            await page.locator("#theme").click()
            assert await brightness(page) < 60
            await page.locator("#theme").click()
            await expect(page.locator("#theme")).to_have_attribute("title", "Colours: system")


async def brightness(page: Page) -> int:
    """How bright the background is, of 255."""
    colour = await page.evaluate("getComputedStyle(document.body).backgroundColor")
    return int(colour.removeprefix("rgb(").split(",")[0])
