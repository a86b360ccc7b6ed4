"""What a chat says of a model before it answers."""

from __future__ import annotations

from typing import Any

import pytest

from llmsnap.chat import models
from llmsnap.client.proxy import Client


@pytest.mark.parametrize(
    ("view", "said"),
    [
        ({"state": "ready", "back_s": 1.0}, ""),
        ({"state": "asleep", "back_s": 0.31}, "a is asleep, back in about 0.3 s …"),
        ({"state": "failed", "back_s": 2.0}, "a has failed, back in about 2.0 s …"),
        ({"state": "starting", "back_s": None}, "a is starting …"),
    ],
)
def test_why_the_answer_will_be_late(
    monkeypatch: pytest.MonkeyPatch, view: dict[str, Any], said: str
) -> None:
    """Nothing, when the model is up."""
    monkeypatch.setattr(models, "views", lambda _: {"alias": {"id": "a", **view}})
    assert models.what_it_takes(Client("http://localhost"), "alias") == said
