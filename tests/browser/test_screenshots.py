"""Pictures of the page for the docs; `LLMSNAP_SCREENSHOTS=1` puts them there, of the demo's models.

Otherwise they are of tiny ones, and thrown away: then only the way to them is under test.
"""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import pytest
from playwright.async_api import FloatRect, expect

from llmsnap.cli.demo import find_gemma3, find_server, find_smollm2
from tests.browser.conftest import Open, Window
from tests.helpers.llama import server_argv, server_environment, tiny_gguf
from tests.helpers.ports import free_ports
from tests.helpers.proxy_process import ProxyProcess, running_proxy

pytestmark = [
    pytest.mark.browser,
    pytest.mark.e2e,
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.asyncio(loop_scope="session"),
]

IMAGES = Path(__file__).parents[2] / "docs" / "images"
WANTED = bool(os.environ.get("LLMSNAP_SCREENSHOTS"))
GOES_BACK = """() => {
    const first = document.querySelector('[data-lane="gemma3"] [data-look]');
    return first && parseFloat(first.style.left) < 80;
}"""
"""Whether the timeline shows what was before the page was opened."""
STORY = "The harbour lies still, and the boats are coming home one after the other. "


def configuration(folder: Path) -> str:
    """Two of four models fit; who makes room sleeps."""
    models = {
        **(talkers(folder) if WANTED else tiny_talkers()),
        "coder": (" ".join(server_argv(tiny_gguf(1))), "completes code"),
        "embed": (" ".join(server_argv(tiny_gguf(2))), "vectors for search"),
    }
    lines = ["memory: {devices: {host: 1GiB}}", "sleep: {after: 0}", f"startPort: {free_ports(4)}"]
    lines.append("models:")
    for name, (command, description) in models.items():
        lines += [f"  {name}:", f"    cmd: {command}", "    ram: 500MiB"]
        lines += [f"    description: {description}"]
    return "\n".join(lines)


def talkers(folder: Path) -> dict[str, tuple[str, str]]:
    """Two models that say something, as commands and descriptions."""
    server = f"{shlex.join(find_server())} --port ${{PORT}} -np 1 -c 4096 --model "
    return {
        "smollm2": (f"{server} {find_smollm2()}", "small talk"),
        "gemma3": (f"{server} {find_gemma3(folder)}", "a base model"),
    }


def tiny_talkers() -> dict[str, tuple[str, str]]:
    """Two others by their names."""
    return {
        "smollm2": (" ".join(server_argv(tiny_gguf(3))), "small talk"),
        "gemma3": (" ".join(server_argv(tiny_gguf(4))), "a base model"),
    }


async def work(proxy: ProxyProcess) -> None:
    """Have models come and go."""
    for name in ("smollm2", "coder", "gemma3", "smollm2", "coder", "gemma3"):
        await proxy.chat(name, STORY, max_tokens=8)


@pytest.mark.usefixtures("swap")
async def test_pictures(opened: Open, tmp_path: Path) -> None:
    """Light, dark and on a phone; a swap; requests with why they were slow; a conversation."""
    folder = IMAGES if WANTED else tmp_path / "images"
    folder.mkdir(exist_ok=True)
    async with running_proxy(configuration(tmp_path), tmp_path, env=server_environment()) as proxy:
        await work(proxy)
        for scheme in ("light", "dark"):
            async with opened(proxy, color_scheme=scheme) as window:
                await window.page.get_by_label("How far back").select_option("60")
                await settled(window)
                await window.page.screenshot(path=folder / f"models-{scheme}.png")
                if scheme == "light":
                    await others(window, folder)
        phone = {"width": 390, "height": 844}
        async with opened(proxy, viewport=phone, has_touch=True, is_mobile=True) as window:
            await settled(window)
            await window.page.screenshot(path=folder / "models-phone.png")
    assert min(picture.stat().st_size for picture in folder.glob("*.png")) > 10_000


async def settled(window: Window) -> None:
    """Wait until all is shown."""
    await window.shows_state("gemma3", "ready")
    await expect(window.page.locator("#link")).to_have_text("live")
    swap = window.page.locator(".swaps .swap b").first
    await expect(swap).to_have_text("gemma3")
    if WANTED:
        await window.page.wait_for_function(GOES_BACK)
    await window.page.evaluate("scrollTo(0, 0)")


async def others(window: Window, folder: Path) -> None:
    """Take the pictures of the other parts."""
    page = window.page
    swaps = page.locator("section", has=page.get_by_role("heading", name="Swaps")).last
    top, bottom = await page.locator(".timeline").bounding_box(), await swaps.bounding_box()
    assert top
    assert bottom
    height = bottom["y"] + bottom["height"] - top["y"]
    clip: FloatRect = {"x": top["x"], "y": top["y"], "width": top["width"], "height": height}
    await page.screenshot(path=folder / "swap.png", full_page=True, clip=clip)
    await window.go("activity")
    await expect(page.locator(".request")).to_have_count(6)
    await page.locator(".request button").first.click()
    await page.screenshot(path=folder / "activity.png")
    await window.go("playground")
    await page.get_by_label("Model", exact=True).select_option("smollm2")
    await page.get_by_text("Settings").click()
    await page.get_by_label("Most tokens").fill("120")
    await page.get_by_text("Settings").click()
    await page.get_by_label("Message", exact=True).fill("What is a lighthouse for?")
    await window.button("Send").click()
    await expect(page.locator(".cost").last).to_be_visible(timeout=240_000)
    await page.screenshot(path=folder / "playground.png")
    await window.go("models")
