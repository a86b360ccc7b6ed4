"""What is advised where conversations are to come back."""

from __future__ import annotations

from pathlib import Path

import pytest

from llmsnap.config.schema import Config, ModelConfig
from llmsnap.config.sections import SessionsConfig
from llmsnap.doctor.conversations import advice_on_conversations, conversations
from llmsnap.doctor.finding import Status
from llmsnap.memory.gguf import Estimate
from tests.helpers.llama import made_gguf, tiny_gguf

ONE_SLOT = "-np 1 -c 4096"


def config_of(path: Path, more: str = ONE_SLOT, mode: str = "auto") -> Config:
    """A configuration of one llama-server."""
    model = ModelConfig(cmd=f"llama-server --port 1 -m {path} {more}")
    return Config(
        models={"m": model},
        sessions=SessionsConfig(mode=mode),  # type: ignore[arg-type]  # a word of its own type
    )


def advice(path: Path, more: str = ONE_SLOT, mode: str = "auto") -> str:
    """All that is said, a line each."""
    found = advice_on_conversations(config_of(path, more, mode), {})
    return "\n".join(sentence for _, sentence in found)


@pytest.fixture(scope="module")
def windowed() -> Path:
    """A model of whose 6 layers 5 see 512 tokens back."""
    return made_gguf("swa-512", layers=6, window=512)


def test_a_sliding_window_is_seen_in_the_file(windowed: Path) -> None:
    """The cost is that of the layers with a window, for the whole context instead of the window."""
    # 5 layers of 4 heads for keys and values of 32 numbers of 2 bytes; window and batch: 1,024.
    cost_mib = 5 * 2 * 4 * 32 * 2 * (4096 - 1024) / 2**20
    said = advice(windowed)
    assert "sliding-window model: restores are useless without --swa-full" in said
    assert f"about {cost_mib:g} MiB; `llmsnap sessions test m`" in said

    assert advice(windowed, f"{ONE_SLOT} --swa-full") == ""
    assert advice(windowed, mode="off") == ""
    assert advice(tiny_gguf()) == ""


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("", "empties those at rest"),
        ("--no-cache-idle-slots", ""),
        ("-np 4", ""),
        ("-np 4 --kv-unified", "empties those at rest"),
        ("-np 4 -sps 0", "was used longest ago"),
        ("-np 4 --slot-prompt-similarity=0.9", "by more than 10% isn't looked for"),
        ("-np 4 -sps 0.1", ""),
        ("-np 1 -sps 0", ""),
        ("-np 4 -sps x", ""),
    ],
)
def test_what_becomes_of_slots_is_read_from_the_command(more: str, said: str) -> None:
    """Where it matters."""
    found = advice(tiny_gguf(), f"-c 4096 {more}")
    assert said in found
    assert bool(said) == bool(found)


def test_doctor_says_what_to_do(windowed: Path) -> None:
    """It is no fault: the model runs."""
    (finding,) = conversations(config_of(windowed), {})
    assert (finding.check, finding.status) == ("model m", Status.WARN)
    assert "--swa-full" in finding.found
    assert "llmsnap sessions test m" in finding.remedy


def test_of_recurrent_layers_is_told_that_no_option_helps(monkeypatch: pytest.MonkeyPatch) -> None:
    """As far as is known."""
    found = Estimate(parts={}, growth={}, certain={}, is_recurrent=True)
    monkeypatch.setattr("llmsnap.doctor.conversations.estimate_for", lambda *_: found)
    assert "no option helps" in advice(tiny_gguf())


def test_a_file_that_isnt_there_tells_nothing() -> None:
    """Others complain of that."""
    assert advice(Path("/nowhere/m.gguf")) == ""
