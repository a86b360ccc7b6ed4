"""The page's view of GPUs, on the simulated driver: who holds what, and how the cards fare."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.async_api import Locator, expect

from tests.browser.conftest import Open, Window
from tests.gpu.holder import Holder
from tests.gpu.swaps import config_for, knows_how_to_sleep
from tests.helpers.proxy_process import running_proxy
from tests.helpers.waiting import eventually
from tests.sim.fixtures import libraries, make_world, world
from tests.sim.gauge import with_repository
from tests.sim.world import World, card

__all__ = ["libraries", "make_world", "world"]

pytestmark = [pytest.mark.browser, pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session")]


WIDTH = """bar => {
    const widths = [...bar.children].map((part) => part.getBoundingClientRect().width);
    return widths.reduce((sum, width) => sum + width, 0) / bar.getBoundingClientRect().width;
}"""
BOTH_CARDS = "sleep: {multiGpu: true}"


def gpu(window: Window, index: int) -> Locator:
    """The card with that number."""
    return window.page.locator(".device", has_text=f"GPU {index} ")


async def says(device: Locator, *parts: str) -> None:
    """Wait until the bar says that a card is made of these parts, in this order."""
    label = re.compile(", ".join(parts))
    await expect(device.get_by_role("img")).to_have_attribute("aria-label", label)


async def test_each_card_shows_who_holds_it(
    opened: Open, make_world: Callable[..., World], tmp_path: Path
) -> None:
    """As models come, sleep and go, and as other programs do; a card nobody uses is free."""
    world = make_world(card(0), card(1, 12_288, "Simulated 3060"))
    world.turn(gpu_percent=37, power_mw=120_400, celsius=61)
    env = with_repository(world.environment)
    config = config_for(512, extra=[BOTH_CARDS])
    async with running_proxy(config, tmp_path, env=env) as proxy, opened(proxy) as window:
        first, second = gpu(window, 0), gpu(window, 1)
        await expect(first.get_by_role("heading")).to_have_text("GPU 0 · Simulated 4090")
        await expect(second.get_by_role("heading")).to_have_text("GPU 1 · Simulated 3060")
        await expect(first).to_contain_text(re.compile(r"37 % busy · 120 W · 61 °C"))
        await proxy.chat("first")
        await knows_how_to_sleep(proxy, "first")
        await says(first, r"GPU 0: first \d+ MiB", r"other programs \d+ MiB", ".*free 2[23]")
        await expect(window.model("first")).to_contain_text(re.compile(r"\d+ MiB GPU 0"))
        await proxy.chat("second")
        await window.shows_state("first", "asleep")
        await says(first, r"GPU 0: second \d+ MiB", "other programs")
        await expect(window.model("first")).to_contain_text(re.compile(r"\d+ MiB RAM"))
        await says(second, r"GPU 1: other programs \d+ MiB", r".*free 1[12]( GiB|\.)")
        glutton = await Holder.start(world.environ())
        try:
            await glutton.do("fill", keep_mib=4096)
            await says(first, r"GPU 0: second \d+ MiB", r"other programs 1\d GiB")
        finally:
            await glutton.kill()
        await says(first, r"GPU 0: second \d+ MiB", r"other programs \d+ MiB")
        await widths_add_up(first)


async def widths_add_up(device: Locator) -> None:
    """Wait until what is drawn is as wide as what is said: shares of all that the card has."""
    used = await device.locator("p").inner_text()
    part, whole = re.findall(r"([\d.]+ [MG]iB)", used)[:2]
    share = pytest.approx(mebibytes(part) / mebibytes(whole), abs=0.02)

    async def adds_up() -> bool:
        return bool(await device.get_by_role("img").evaluate(WIDTH) == share)

    await eventually(adds_up)


def mebibytes(text: str) -> float:
    """`1.5 GiB` as a number."""
    number, unit = text.split()
    return float(number) * {"MiB": 1, "GiB": 1024}[unit]


async def test_a_driver_that_says_nothing_more(opened: Open, world: World, tmp_path: Path) -> None:
    """The last reading stays, and is called old; then it is as it was."""
    env = {**os.environ, **with_repository(world.environment)}
    async with running_proxy(config_for(128), tmp_path, env=env) as proxy, opened(proxy) as window:
        card = gpu(window, 0)
        await expect(card).to_contain_text("41 °C")
        world.turn(nvml_stall=1)
        await expect(card).to_contain_text("reading is old")
        world.turn(nvml_stall=0)
        await expect(card).not_to_contain_text("reading is old")
