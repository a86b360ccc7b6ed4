"""A proxy with all that the page can show at once, for whoever looks whether it can be seen."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from playwright.async_api import expect

from tests.browser.conftest import Window
from tests.helpers.fake_models import FakeModels
from tests.helpers.proxy_process import ProxyProcess, running_proxy

PLACES = ("models", "activity", "logs/talker", "playground")
LONG = "AModelWhoseNameGoesOnAndOnWithoutAPlaceToBreak" * 4
_MEMBERS = f"talker, stopped, slow, bad, {LONG}"
_HEAD = f"""profiles: {{work: {{pins: {{chat: talker}}}}}}
groups: {{all: {{swap: false, exclusive: false, members: [{_MEMBERS}]}}}}"""
_COLOURS = "".join(rf"\033[{code}mcolour {code}\033[0m\n" for code in (*range(30, 38), 1, 2, 4))


@asynccontextmanager
async def full(folder: Path) -> AsyncIterator[ProxyProcess]:
    """Models that are up, stopped and failed, past requests, and one that is being answered."""
    fake = FakeModels(folder, head=_HEAD)
    talks = f"sh -c 'printf \"{_COLOURS}\"; exec {fake.command('talker')}'"
    fake.add_command("talker", talks, more="description: says things in colours\naliases: [t]")
    fake.add("stopped").add("slow", "--gap 0.1 --chunks 5000").add(LONG)
    fake.add_command("bad", "sh -c 'echo no such file: ${PORT}; exit 3'")
    async with running_proxy(fake.yaml, folder) as proxy:
        for model in ("talker", LONG, "bad"):
            await proxy.post("/v1/completions", {"model": model, "prompt": "x"})
        body = {"model": "slow", "prompt": "x", "stream": True}
        asking = asyncio.ensure_future(proxy.post("/v1/completions", body))
        try:
            yield proxy
        finally:
            asking.cancel()


async def unfold(window: Window, place: str) -> None:
    """Go to a part of the page and open what can be opened there."""
    page = window.page
    await window.go(place)
    await expect(page.locator("section:not([hidden]) h1")).to_be_visible()
    await expect(page.locator("#link")).to_have_text("live")
    match place.partition("/")[0]:
        case "models":
            await window.shows_state("slow", "ready")
            await expect(window.model("bad").locator(".complaint")).to_be_visible()
            await window.button("Details of talker").click()
            await window.button("Load bad").click()
            await expect(page.get_by_role("alert")).to_be_visible()
            await window.shows_state("bad", "failed")  # and not any more that it starts
            await expect(window.button("Unload bad")).to_be_hidden()
        case "activity":
            await expect(page.locator(".underway .pill")).to_have_text("answering")
            await page.locator(".request button").first.click()
        case "logs":
            await expect(page.locator(".row", has_text="colour 37")).to_be_visible()
            await page.get_by_label("Search the log").fill("colour 3")
        case "playground":
            await page.get_by_text("Settings").click()
            await page.get_by_label("Model", exact=True).select_option("talker")
            await page.get_by_label("Message", exact=True).fill("hello")
            await window.button("Send").click()
            await expect(page.locator('.message[data-state="done"] .cost')).to_be_visible()
