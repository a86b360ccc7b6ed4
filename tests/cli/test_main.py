"""The front door: version, help, and how errors end."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from llmsnap import __version__
from llmsnap.cli.commands import commands
from tests.cli.conftest import Run


def printed(code: str) -> str:
    """What `code` prints in a Python of its own."""
    command = [sys.executable, "-c", code]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("flag", ["-version", "--version"])
def test_version(llmsnap: Run, flag: str) -> None:
    """In both spellings."""
    outcome = llmsnap(flag)

    assert (outcome.code, outcome.out) == (0, f"llmsnap {__version__}\n")


def test_help_names_every_command(llmsnap: Run) -> None:
    """With a line about each."""
    outcome = llmsnap("--help")

    assert outcome.code == 0
    for name in (
        *("serve", "check", "doctor", "ps", "load", "wake", "sleep", "unload", "logs", "demo"),
    ):
        assert f"\n  {name} " in outcome.out


def each_command(group: click.Group) -> Iterator[click.Command]:
    """All commands below `group`, those of groups in it too."""
    for name in group.list_commands(click.Context(group)):
        command = group.get_command(click.Context(group), name)
        assert command is not None
        yield command
        if isinstance(command, click.Group):
            yield from each_command(command)


def test_help_tells_all_in_80_columns() -> None:
    """No line about a command is cut short, and each option says what it is."""
    for command in each_command(commands):
        assert not command.get_short_help_str(limit=64).endswith("..."), command.name
        for option in (one for one in command.params if isinstance(one, click.Option)):
            sentence = option.help or ""
            assert sentence.endswith("."), f"{command.name} {option.name}"
            assert len(sentence.split()) > 1, f"{command.name} {option.name}"


@pytest.mark.parametrize("argv", [("nonsense",), ("ps", "--nonsense"), ("--nonsense",)])
def test_a_wrong_command_line_ends_with_2(llmsnap: Run, argv: tuple[str, ...]) -> None:
    """And names what is wrong."""
    outcome = llmsnap(*argv)

    assert outcome.code == 2
    assert "nonsense" in outcome.err


def test_without_a_configuration_it_says_how_to_begin(
    llmsnap: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """78 and a few lines, from `serve` and `check` alike."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))

    for argv in ((), ("check",)):
        outcome = llmsnap(*argv)
        assert outcome.code == 78
        assert str(tmp_path / "llmsnap" / "config.yaml") in outcome.err
        assert "llmsnap demo" in outcome.err
        assert "--models-dir" in outcome.err
        assert len(outcome.err.splitlines()) == 5


def test_a_broken_configuration_ends_with_78(llmsnap: Run, tmp_path: Path) -> None:
    """The message names file, line and key, and there is no traceback."""
    path = tmp_path / "config.yaml"
    path.write_text("models:\n  a:\n    proxy: http://localhost:1\n    ttl: soon\n")

    outcome = llmsnap("--config", str(path))

    assert outcome.code == 78
    assert outcome.err.startswith(f"llmsnap: {path}:4: models.a.ttl: ")
    assert "Traceback" not in outcome.err


@pytest.mark.parametrize("given", ["--tls-cert-file", "--tls-key-file"])
def test_certificate_and_key_go_together(llmsnap: Run, tmp_path: Path, given: str) -> None:
    """One without the other ends with 1, as in llama-swap."""
    path = tmp_path / "config.yaml"
    path.write_text("models: {}\n")

    outcome = llmsnap("--config", str(path), given, "x.pem")

    assert outcome.code == 1
    assert "give both or neither" in outcome.err


def test_windows_is_told_at_once(llmsnap: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Out of scope, with the way out."""
    monkeypatch.setattr(sys, "platform", "win32")

    outcome = llmsnap("--version")

    assert outcome.code == 1
    assert "WSL" in outcome.err


def test_asking_for_the_version_imports_next_to_nothing() -> None:
    """It is what scripts call to see whether llmsnap is there."""
    code = (
        "import sys; from llmsnap.cli import main; sys.argv = ['llmsnap', '-version']; main();"
        "print(sorted({'click', 'aiohttp', 'yaml', 'rich', 'asyncio'} & set(sys.modules)))"
    )

    assert printed(code).splitlines() == [f"llmsnap {__version__}", "[]"]


def test_talking_to_a_proxy_doesnt_import_the_proxy() -> None:
    """`ps` and its like start fast."""
    code = (
        "import sys; import llmsnap.cli.ps, llmsnap.cli.orders, llmsnap.cli.logs;"
        "print(sorted({'aiohttp', 'yaml', 'rich', 'asyncio'} & set(sys.modules)))"
    )

    assert printed(code) == "[]\n"
