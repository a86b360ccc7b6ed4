"""What a benchmark shows while it runs."""

from __future__ import annotations

import pytest

from llmsnap.bench.run import Progress
from llmsnap.bench.samples import OURS, Case, Scene
from llmsnap.cli.bench_output import Screen
from tests.bench.samples import report, sample


def test_a_narrow_terminal_tears_no_word(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """How far it is stands first, where it is seen however long the table is."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "80")
    known = {"prompt": 580, "cached": 0, "prefill_s": 0.4, "tokens_per_s": 109.8}
    found = report(sample(model="a-model-with-a-name", phases_s={"start": 0.2}, **known))
    with Screen(found) as screen:
        screen.show(
            Progress(Case("a-model-with-a-name", 512, Scene.AWAKE, OURS), False, 1, 2, None)
        )
        shown = capfd.readouterr().err

    assert shown.index("1 of 2: a-model-with-a-name, 512 tokens") < shown.index("CONTEXT")
    for word in ("PREFILL", "CACHED", "TOKENS/S", "1450 tokens/s"):
        assert word in shown
