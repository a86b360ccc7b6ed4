"""What holds for a model from one process to the next is said once."""

from __future__ import annotations

import logging

import pytest

from llmsnap.runtime.sayings import Sayings


def test_only_news_is_said(caplog: pytest.LogCaptureFixture) -> None:
    """Other figures are no news; another topic is, and what has changed back, too."""
    caplog.set_level(logging.INFO)
    said = Sayings("a")
    said.say("way", "no swap for its 14.7 MiB")
    said.say("way", "no swap for its 15 MiB")
    said.say("fit", "no swap for its 15 MiB")
    said.say("way", "sleeps")
    said.say("way", "no swap for its 1,024 MiB")
    assert caplog.messages == [
        "model a: no swap for its 14.7 MiB",
        "model a: no swap for its 15 MiB",
        "model a: sleeps",
        "model a: no swap for its 1,024 MiB",
    ]
    caplog.set_level(logging.DEBUG)
    said.say("way", "no swap for its 2 MiB")
    assert caplog.records[-1].levelno == logging.DEBUG
