"""The line about the proxy as a whole."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.async_api import expect

from tests.browser.conftest import Open
from tests.helpers.fake_models import FakeModels
from tests.helpers.proxy_process import running_proxy

pytestmark = [pytest.mark.browser, pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session")]


async def test_a_mistake_in_the_configuration_is_on_the_page(opened: Open, tmp_path: Path) -> None:
    """For as long as it is there; and so is that all memory is given back."""
    text = FakeModels(tmp_path).add("a").yaml
    async with running_proxy(text, tmp_path) as proxy, opened(proxy) as window:
        line = window.page.locator("#condition")
        await expect(line).to_be_hidden()
        (tmp_path / "config.yaml").write_text("models: [")
        assert (await proxy.post("/api/config/reload"))[0] == 400
        await expect(line).to_contain_text("not valid YAML")
        (tmp_path / "config.yaml").write_text(text)
        assert (await proxy.post("/api/config/reload"))[0] == 200
        await expect(line).to_be_hidden()
        await proxy.post("/api/release")
        await expect(line).to_contain_text("All memory is given back until somebody resumes")
        await proxy.post("/api/resume")
        await expect(line).to_be_hidden()
