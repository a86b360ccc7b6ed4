"""When a learned footprint still holds, and when it is forgotten."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from llmsnap.memory.identity import Command, identity_of


@pytest.fixture
def command(tmp_path: Path) -> Command:
    """A server with a model, a draft and a projector, which logs to a file."""
    for name in ("llama-server", "m.gguf", "d-00001-of-00002.gguf", "d-00002-of-00002.gguf", "log"):
        (tmp_path / name).write_text(name)
    (tmp_path / "llama-server").chmod(0o755)
    argv = ["llama-server", "-m", str(tmp_path / "m.gguf"), "--port", "5800", "--log-file"]
    argv += [str(tmp_path / "log"), f"--model-draft={tmp_path}/d-00001-of-00002.gguf"]
    env = {"PATH": str(tmp_path), "HOME": "/home/me", "LLAMA_ARG_CTX_SIZE": "4096"}
    return Command(argv=argv, env=env, own={}, port=5800)


def test_it_holds_while_nothing_changes(command: Command, tmp_path: Path) -> None:
    """Another port, a longer log and another home aren't of interest."""
    before = identity_of(command)
    (tmp_path / "log").write_text("much more")
    argv = [word.replace("5800", "5801") for word in command.argv]
    env = {**command.env, "HOME": "/home/you"}

    assert identity_of(replace(command, argv=argv, env=env, port=5801)) == before


Change = Callable[[Command, Path], Command]


def rewrite(name: str) -> Change:
    """Another file takes the place of one."""

    def change(command: Command, folder: Path) -> Command:
        (folder / name).write_text("another size")
        return command

    return change


def touch(name: str) -> Change:
    """A file of the same size takes the place of one."""

    def change(command: Command, folder: Path) -> Command:
        os.utime(folder / name, ns=(1, 1))
        return command

    return change


@pytest.mark.parametrize(
    "change",
    [
        rewrite("m.gguf"),
        touch("m.gguf"),
        rewrite("d-00002-of-00002.gguf"),
        rewrite("llama-server"),
        touch("llama-server"),
        lambda command, _: replace(command, argv=[*command.argv, "-c", "8192"]),
        lambda command, _: replace(command, env={**command.env, "LLAMA_ARG_CTX_SIZE": "8192"}),
        lambda command, _: replace(command, env={**command.env, "CUDA_VISIBLE_DEVICES": "1"}),
        lambda command, _: replace(command, own={"ANYTHING": "1"}),
        lambda command, folder: (folder / "m.gguf").unlink() or command,
    ],
    ids=["file", "its time", "part", "engine", "its time", "flag", "env", "gpu", "own", "gone"],
)
def test_it_ends_with_any_change(command: Command, tmp_path: Path, change: Change) -> None:
    """Of the command, of a file's size or time, of the engine's build."""
    before = identity_of(command)

    assert identity_of(change(command, tmp_path)) != before


def test_a_link_to_another_build_is_another_engine(command: Command, tmp_path: Path) -> None:
    """What counts is the executable at the end of the link."""
    for name in ("old", "new"):
        (tmp_path / name).write_text("same")
        (tmp_path / name).chmod(0o755)
        os.utime(tmp_path / name, ns=(1, 1))
    link = tmp_path / "llama-server"
    link.unlink()
    link.symlink_to("old")
    before = identity_of(command)
    link.unlink()
    link.symlink_to("new")

    assert identity_of(command) != before


def test_files_may_be_named_by_the_environment(command: Command, tmp_path: Path) -> None:
    """As LLAMA_ARG_MODEL does."""
    named = replace(command, argv=["llama-server"], own={"LLAMA_ARG_MODEL": f"{tmp_path}/m.gguf"})
    before = identity_of(named)
    (tmp_path / "m.gguf").write_text("another")

    assert identity_of(named) != before


@pytest.mark.parametrize("argv", [[], ["no-such-program"], ["\0", "\0.gguf"], ["/"]])
def test_odd_commands_have_one_too(argv: list[str]) -> None:
    """Whatever is written there."""
    assert identity_of(Command(argv=argv, env={}, own={}, port=1))
