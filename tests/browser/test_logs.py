"""The page's view of logs: long ones, fast ones, in colours, searched."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Page, expect

from tests.browser.conftest import Open
from tests.helpers.fake_models import FakeModels
from tests.helpers.proxy_process import running_proxy

pytestmark = [pytest.mark.browser, pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session")]

LINES = 10_000
TALK = f"""
import sys, time
for number in range({LINES}):
    print(f"\\x1b[3{{number % 8}}mline {{number}}\\x1b[0m of a server that says much", flush=True)
    if number % 500 == 0:
        time.sleep(0.02)
"""
"""What a model's server says before it is up."""

WATCH_GAPS = """() => {
    window.longestGap = 0;
    let last = performance.now();
    const look = () => {
        const now = performance.now();
        window.longestGap = Math.max(window.longestGap, now - last);
        last = now;
        setTimeout(look, 10);
    };
    look();
}"""
FREEZE_MS = 1_000
"""Nobody would call a shorter one a freeze; the machine has few cores and other work."""


def talking(folder: Path) -> str:
    """A configuration with a model that says many lines when it starts."""
    script = folder / "talk.py"
    script.write_text(TALK)
    fake = FakeModels(folder)
    command = f"sh -c '{sys.executable} {script}; exec {fake.command('a')}'"
    return fake.add_command("a", command).yaml


async def rows(page: Page) -> int:
    """How many lines are in the page itself."""
    return await page.locator(".row").count()


async def test_ten_thousand_lines_dont_freeze_the_page(opened: Open, tmp_path: Path) -> None:
    """All are kept and can be reached; few are in the page; it answers all the while."""
    async with running_proxy(talking(tmp_path), tmp_path) as proxy:
        async with opened(proxy, "logs/a") as window:
            page = window.page
            await page.evaluate(WATCH_GAPS)
            await proxy.post("/api/models/load/a")
            await expect(page.get_by_text(re.compile(r"1\d,\d{3} lines"))).to_be_visible()
            await expect(page.locator(".row", has_text=f"line {LINES - 1} of")).to_be_visible()
            assert await rows(page) < 200
            await page.get_by_label("Follow").uncheck()
            await page.locator(".window").evaluate("node => { node.scrollTop = 0 }")
            await expect(page.locator(".row", has_text="line 3 of")).to_be_visible()
            assert await rows(page) < 200
            assert await page.evaluate("window.longestGap") < FREEZE_MS


async def test_colours_are_shown_and_sequences_arent(opened: Open, tmp_path: Path) -> None:
    """Foreground, bold, 256 colours, and whatever else a terminal would have done."""
    text = r"\033[31mred\033[0m \033[1;38;5;208morange\033[0m \033]0;title\007 plain \033[2K"
    fake = FakeModels(tmp_path)
    fake.add_command("a", f"sh -c 'printf \"{text}\\n\"; exec {fake.command('a')}'")
    async with running_proxy(fake.yaml, tmp_path) as proxy, opened(proxy, "logs/a") as window:
        await proxy.post("/api/models/load/a")
        row = window.page.locator(".row", has_text="orange")
        await expect(row).to_have_text("red orange  plain ")
        await expect(row.locator(".front-1")).to_have_text("red")
        orange = row.locator(".bold")
        await expect(orange).to_have_text("orange")
        await expect(orange).to_have_css("color", "rgb(255, 135, 0)")


async def test_lines_are_found(opened: Open, tmp_path: Path) -> None:
    """Marked, counted, stepped through with Enter, alone if wished; then saved."""
    async with running_proxy(talking(tmp_path), tmp_path) as proxy:
        async with opened(proxy, "logs/a") as window:
            page = window.page
            await proxy.post("/api/models/load/a")
            await expect(page.locator(".row", has_text=f"line {LINES - 1} of")).to_be_visible()
            search = page.get_by_label("Search the log")
            await search.fill("LINE 77")
            found = page.locator(".found")
            await expect(found).to_have_text("111 found")
            await search.press("Enter")
            await expect(found).to_have_text("1 of 111 found")
            await expect(page.locator(".row.current")).to_contain_text("line 77 of")
            await window.button("Match after").click()
            await expect(page.locator(".row.current")).to_contain_text("line 770 of")
            await window.button("Match before").click()
            await search.press("Shift+Enter")
            await expect(page.locator(".row.current")).to_contain_text("line 7799 of")
            await expect(page.locator(".row.current mark")).to_have_text("line 77")
            await page.get_by_label("Only matches").check()
            await expect(page.locator(".row").nth(1)).to_contain_text("line 77")
            assert await saved(page, window.button("Save")) == 111
            await window.button("Clear").click()
            await expect(page.locator(".row")).to_have_count(0)


async def saved(page: Page, button: Any) -> int:
    """How many lines the file has that a click on `button` saves."""
    async with page.expect_download() as download:
        await button.click()
    path = await (await download.value).path()
    return len(Path(path).read_text().splitlines())


async def test_which_log_is_chosen(opened: Open, tmp_path: Path) -> None:
    """The proxy's own says what it did; reading upwards ends following, and the end begins it."""
    async with running_proxy(talking(tmp_path), tmp_path) as proxy:
        async with opened(proxy, "logs") as window:
            page = window.page
            await proxy.post("/api/models/load/a")
            choice = page.get_by_label("Which log")
            await choice.select_option("proxy")
            await expect(page.locator(".window")).to_contain_text("model a: started in ")
            await choice.select_option("model:a")
            await expect(page.locator(".row", has_text=f"line {LINES - 1} of")).to_be_visible()
            assert page.url.endswith("#logs/a")
            follow = page.get_by_label("Follow")
            await page.locator(".window").hover()
            await page.mouse.wheel(0, -900)
            await expect(follow).not_to_be_checked()
            await page.mouse.wheel(0, 9000)
            await expect(follow).to_be_checked()
