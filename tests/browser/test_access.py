"""Whoever can't see well, or has no mouse: names, roles, contrast and focus, by axe and by us."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Page, expect

from tests.browser.conftest import Open, Window, script
from tests.browser.scene import PLACES, full, unfold
from tests.helpers.proxy_process import running_proxy

pytestmark = [pytest.mark.browser, pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session")]

PILLS = """() => {
    for (const tone of ["ready", "moving", "asleep", "failed", "stopped"]) {
        const pill = document.createElement("span");
        pill.className = "pill";
        pill.dataset.tone = tone;
        pill.textContent = tone;
        document.querySelector("#main").append(pill);
    }
}"""
TABLES_TOO_WIDE = """() => [...document.querySelectorAll(".scroll")]
    .filter((node) => node.scrollWidth > node.clientWidth).length"""
PHONE = {"width": 360, "height": 740}


async def violations(page: Page) -> list[str]:
    """What axe says is wrong, all of its rules and best practices taken."""
    found = await Axe().run(page)
    return [
        f"{rule['id']}: {rule['help']}: {node['html'][:200]} ({node['failureSummary'][:300]})"
        for rule in found.response["violations"]
        for node in rule["nodes"]
    ]


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_nothing_is_wrong_anywhere(opened: Open, tmp_path: Path, scheme: Any) -> None:
    """By axe's rules; all has a name, and all texts stand out by 4.5 to 1 (WCAG AA)."""
    async with (
        full(tmp_path) as proxy,
        opened(proxy, may_fail=True, color_scheme=scheme) as window,
    ):
        wrong: dict[str, list[str]] = {}
        for place in PLACES:
            await unfold(window, place)
            wrong[place] = await looked_at(window.page)
        await window.go("activity")
        await window.button("Request and answer").click()
        wrong["capture"] = await looked_at(window.page)
    assert {place: found for place, found in wrong.items() if found} == {}


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_each_state_can_be_read(opened: Open, tmp_path: Path, scheme: Any) -> None:
    """Also those that last for a moment only."""
    async with (
        running_proxy("models: {}\n", tmp_path) as proxy,
        opened(proxy, color_scheme=scheme) as window,
    ):
        await expect(window.page.get_by_text("No models are configured.")).to_be_visible()
        await window.page.evaluate(PILLS)
        assert await look(window.page, "faint") == []


async def looked_at(page: Page) -> list[str]:
    """All that is wrong with what is shown now."""
    own = [f"{name}: {each}" for name in ("nameless", "faint") for each in await look(page, name)]
    return [*await violations(page), *own]


async def look(page: Page, name: str) -> list[str]:
    """What one of our own scripts finds."""
    found: list[str] = await page.evaluate(script(name))
    return found


async def test_nothing_is_wrong_on_a_phone(opened: Open, tmp_path: Path) -> None:
    """Where other rules count for tables and buttons; and nothing scrolls sideways."""
    async with (
        full(tmp_path) as proxy,
        opened(proxy, may_fail=True, viewport=PHONE, has_touch=True, is_mobile=True) as window,
    ):
        wrong: dict[str, list[str]] = {}
        for place in PLACES:
            await unfold(window, place)
            found = [*await looked_at(window.page), *await look(window.page, "small")]
            wrong[place] = found + await look(window.page, "wide")
            if place == "models":
                await window.page.evaluate("scrollTo(0, document.body.scrollHeight)")
                await window.button("Close this notice").click()
            if place == "activity":
                cancel = window.page.get_by_role("button", name="Cancel the request")
                await cancel.scroll_into_view_if_needed()
                await expect(cancel).to_be_in_viewport(ratio=1)
    assert {place: found for place, found in wrong.items() if found} == {}


@pytest.mark.parametrize("width", [320, 820, 1280])
async def test_long_names_leave_room_for_the_rest(opened: Open, tmp_path: Path, width: int) -> None:
    """Neither the page nor a table has to be scrolled sideways, be it a phone, a tablet or a PC."""
    viewport = {"width": width, "height": 900}
    async with full(tmp_path) as proxy, opened(proxy, may_fail=True, viewport=viewport) as window:
        for place in PLACES:
            await unfold(window, place)
            assert await look(window.page, "wide") == []
            assert await window.page.evaluate(TABLES_TOO_WIDE) == 0


@pytest.mark.parametrize("place", PLACES)
async def test_tab_reaches_all_that_can_be_used(opened: Open, tmp_path: Path, place: str) -> None:
    """In the order in which it stands there, and each shows that it has the focus."""
    async with full(tmp_path) as proxy, opened(proxy, may_fail=True) as window:
        await unfold(window, place)
        wanted = await look(window.page, "usable")
        reached = await tabbed_through(window)
    assert [name for name in wanted if name not in reached] == []
    assert sorted(wanted, key=reached.index) == wanted


async def tabbed_through(window: Window) -> list[str]:
    """What gets the focus, press by press, from the top of the page to its end."""
    while await tabbed(window):
        pass
    reached: list[str] = []
    while name := await tabbed(window):
        reached.append(name)
    return reached


async def tabbed(window: Window) -> str:
    """Press Tab; return what has the focus then, which it must show; empty: the page is left."""
    await window.page.keyboard.press("Tab")
    name, outline = await window.page.evaluate(script("focused"))
    assert not name or outline >= 2, f"{name} doesn't show that it has the focus"
    return str(name)
