"""A model's own page that stays open in a browser: neither loads the model nor keeps it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helpers.fake_models import FakeModels
from tests.helpers.proxy_process import running_proxy
from tests.helpers.waiting import eventually

pytestmark = pytest.mark.e2e


async def test_an_open_page_doesnt_keep_its_model(tmp_path: Path) -> None:
    """Its parts are served while the model is up, which goes by its `ttl` all the same."""
    fake = FakeModels(tmp_path).add("a", more="ttl: 3")
    async with running_proxy(fake.yaml, tmp_path) as proxy:
        await proxy.chat("a")
        served = 0

        async def page_is_refused() -> bool:
            nonlocal served
            async with proxy.session.get("/upstream/a/app.js") as answer:
                served += answer.status == 200
                return answer.status == 409

        await eventually(page_is_refused)
        assert served > 1
        await proxy.becomes("a", "stopped")
