"""Tables as a terminal shows them, and as a pipe gets them."""

from __future__ import annotations

import sys

import pytest

from llmsnap.cli.tables import print_table

COLUMNS = ("model", "memory", "in flight", "waiting", "idle", "back in", "sleeps by", "aliases")
ROWS = [
    ("qwen3-coder-30b", "gpu0 17.3 GiB, gpu1 4.1 GiB", "", "", "3m12s", "", "cuda", ""),
    ("gemma", "host 23 MiB, swap 71 MiB", "2", "", "", "1.1s", "pageout", "default, small"),
]


def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make standard output a terminal of 80 columns, from within the test."""
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "dumb")


def test_in_a_narrow_terminal_sizes_stay_whole(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is empty everywhere is left out, and lists go downwards."""
    narrow(monkeypatch)
    print_table(COLUMNS, ROWS)

    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert "WAITING" not in "".join(lines)
    for whole in ("gpu0 17.3 GiB,", "gpu1 4.1 GiB", "host 23 MiB,", "swap 71 MiB", "default,"):
        assert any(whole in line for line in lines)


def test_only_long_texts_are_wrapped(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """And nothing of them is lost."""
    narrow(monkeypatch)
    sentence = " ".join(f"word{number}" for number in range(40))
    print_table(("check", "", "found"), [("sleep by pageout", "ok", sentence)])

    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 80
    assert "sleep by pageout  ok  word0 word1" in out
    assert all(word in out for word in sentence.split())


def test_what_fits_in_no_table_is_listed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A line a cell, and nothing is cut off."""
    narrow(monkeypatch)
    columns = [f"heading{number}" for number in range(12)]
    print_table(columns, [[f"{number}.449 s" for number in range(12)], ["x"] * 12])

    lines = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    assert [line.split(maxsplit=1) for line in lines[:2]] == [
        ["HEADING0", "0.449 s"],
        ["HEADING1", "1.449 s"],
    ]
    assert len([line for line in lines if line]) == 24


def test_without_rows_there_are_headings(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Folded, where they don't fit."""
    narrow(monkeypatch)
    print_table([f"heading{number}" for number in range(12)], [])

    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("HEAD")
    assert max(map(len, lines)) <= 80


def test_a_pipe_gets_a_row_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    """With all columns, however wide."""
    print_table(COLUMNS, ROWS)

    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3
    assert "WAITING" in lines[0]
