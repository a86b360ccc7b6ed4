"""The playground: a real model answers, and what it cost is what the server says."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from playwright.async_api import expect

from tests.browser.conftest import Open
from tests.e2e.conftest import Configure
from tests.helpers.fake_models import FakeModels
from tests.helpers.proxy_process import running_proxy

pytestmark = [pytest.mark.browser, pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session")]


async def test_a_chat_is_streamed_and_measured(
    opened: Open, configure: Configure, tmp_path: Path
) -> None:
    """First token, speed, and that the second turn's beginning came out of the cache."""
    async with running_proxy(configure(), tmp_path) as proxy:
        async with opened(proxy, "playground") as window:
            page = window.page
            await page.get_by_label("Model", exact=True).select_option("b")
            await page.get_by_text("Settings").click()
            await page.get_by_label("Most tokens").fill("12")
            await page.get_by_label("Temperature").fill("0")
            message = page.get_by_label("Message", exact=True)
            await message.fill("hi")
            await window.button("Send").click()
            costs = page.locator('.message[data-state="done"] .cost')
            await expect(costs.first).to_contain_text(re.compile(r"first token\d.*written12"))
            await expect(costs.first).to_contain_text(re.compile(r"from cache0 of \d+"))
            start = costs.first.get_by_role("img")
            await expect(start).to_have_attribute("aria-label", re.compile("starting"))
            said = page.locator('.message[data-role="assistant"] .text').last
            plain = await proxy.chat("b", max_tokens=12)
            await expect(said).to_have_text(str(plain["choices"][0]["message"]["content"]))

            await message.fill("and more")
            await message.press("Enter")
            await expect(costs).to_have_count(2)
            cost = await costs.last.inner_text()
            cached = re.search(r"from cache\s*(\d+) of (\d+)", cost)
            assert cached, cost
            assert 0 < int(cached[1]) < int(cached[2])
            await window.button("New conversation").click()
            await expect(costs).to_have_count(0)


async def test_an_answer_is_stopped(opened: Open, tmp_path: Path) -> None:
    """What came of it stays, and the model is asked no more."""
    fake = FakeModels(tmp_path).add("a", "--gap 0.1 --chunks 5000")
    async with running_proxy(fake.yaml, tmp_path) as proxy:
        async with opened(proxy, "playground") as window:
            await window.page.get_by_label("Message", exact=True).fill("hi")
            await window.button("Send").click()
            answer = window.page.locator('.message[data-role="assistant"]')
            await expect(answer.locator(".text").last).not_to_be_empty()
            await window.button("Stop").click()
            await expect(answer).to_contain_text("stopped by you")
            await expect(window.button("Stop")).to_be_hidden()
            await window.go("models")
            await expect(window.model("a").locator(".clients")).to_have_text("no requests")


async def test_a_failure_is_said(opened: Open, tmp_path: Path) -> None:
    """In the proxy's words, where the answer would have been."""
    fake = FakeModels(tmp_path).add_command("a", "sh -c 'echo nope ${PORT}; exit 3'")
    async with (
        running_proxy(fake.yaml, tmp_path) as proxy,
        opened(proxy, "playground", may_fail=True) as window,
    ):
        await window.page.get_by_label("Message", exact=True).fill("hi")
        await window.button("Send").click()
        await expect(window.page.get_by_role("alert")).to_contain_text("exit code 3")


async def test_a_question_without_an_answer_isnt_said_again(opened: Open, tmp_path: Path) -> None:
    """Models whose template wants both in turns would refuse all that comes after it."""
    fake = FakeModels(tmp_path).add("good").add_command("bad", "sh -c 'exit 3' ${PORT}")
    async with (
        running_proxy(fake.yaml, tmp_path) as proxy,
        opened(proxy, "playground", may_fail=True) as window,
    ):
        page = window.page
        message, model = (page.get_by_label(name, exact=True) for name in ("Message", "Model"))
        done = page.locator('.message[data-state="done"]')
        for name, text in (("good", "one"), ("bad", "two"), ("good", "three")):
            await model.select_option(name)
            await message.fill(text)
            async with page.expect_request("**/v1/chat/completions") as asked:
                await message.press("Enter")
            await expect(window.button("Stop")).to_be_hidden()
        await expect(done).to_have_count(2)
        said = json.loads((await asked.value).post_data or "")["messages"]
        assert [one["role"] for one in said] == ["user", "assistant", "user"]
        assert [said[0]["content"], said[2]["content"]] == ["one", "three"]
