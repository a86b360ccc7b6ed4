"""A real Chromium in front of a real proxy."""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Browser, BrowserContext, Locator, Page, async_playwright, expect

from tests.e2e.conftest import configure, models
from tests.helpers.proxy_process import ProxyProcess
from tests.helpers.swap import swap

__all__ = ["configure", "models", "swap"]

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
PATIENCE_MS = 40_000
"""The machine has few cores and other work."""


@dataclass
class Window:
    """A page of a proxy's, and what went wrong in it."""

    page: Page
    url: str
    faults: list[str] = field(default_factory=list)

    async def go(self, place: str) -> None:
        """Show a part of the page."""
        await self.page.goto(f"{self.url}/ui/#{place}")

    def model(self, name: str) -> Locator:
        """The row of a model."""
        return self.page.locator(f'.model[data-model="{name}"]')

    def button(self, name: str) -> Locator:
        """The button called `name`, which is in sight."""
        return self.page.get_by_role("button", name=name, exact=True)

    async def shows_state(self, model: str, state: str) -> None:
        """Wait until the row of `model` says that it is in `state`."""
        await expect(self.model(model).locator(".pill")).to_have_text(state)


def script(name: str) -> str:
    """A function that is to look around in the page."""
    return Path(__file__).with_name(f"{name}.js").read_text()


Open = Callable[..., AbstractAsyncContextManager[Window]]


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    """Debian's Chromium, started once: each window is a context of its own, which knows nothing."""
    if CHROMIUM is None:
        pytest.skip("Chromium isn't there (apt-get install chromium)")
    expect.set_options(timeout=PATIENCE_MS)
    async with async_playwright() as playwright:
        args = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = await playwright.chromium.launch(
            executable_path=CHROMIUM, args=args, ignore_default_args=["--hide-scrollbars"]
        )
        try:
            yield browser
        finally:
            await browser.close()


@pytest.fixture
def opened(browser: Browser, request: pytest.FixtureRequest) -> Open:
    """Opens the page of a proxy; at the end, nothing must have gone wrong in it."""
    mark = request.node.get_closest_marker("asyncio")
    assert mark.kwargs == {"loop_scope": "session"}, "a test must share the loop of its browser"

    @asynccontextmanager
    async def window(
        proxy: ProxyProcess, place: str = "models", *, may_fail: bool = False, **looks: Any
    ) -> AsyncIterator[Window]:
        context = await browser.new_context(
            **{"viewport": {"width": 1280, "height": 900}, "color_scheme": "light", **looks}
        )
        page = await context.new_page()
        page.set_default_timeout(PATIENCE_MS)
        window = Window(page, proxy.url)
        watch(page, window.faults, may_fail=may_fail)
        await only_from(context, proxy.url)
        await window.go(place)
        try:
            yield window
            assert window.faults == []
        finally:
            await context.close()

    return window


def watch(page: Page, faults: list[str], *, may_fail: bool) -> None:
    """Note errors of scripts, and complaints of the browser such as of a broken policy.

    `may_fail`: answers that are errors are no fault.
    """
    page.on("pageerror", lambda error: faults.append(str(error)))

    def note(kind: str, text: str) -> None:
        if kind == "error" and not (may_fail and "Failed to load resource" in text):
            faults.append(text)

    page.on("console", lambda message: note(message.type, message.text))


async def only_from(context: BrowserContext, url: str) -> None:
    """Let the page ask nobody but its proxy."""

    async def decide(route: Any) -> None:
        assert route.request.url.startswith((url, "data:", "blob:")), route.request.url
        await route.continue_()

    await context.route(lambda asked: not asked.startswith(url), decide)
