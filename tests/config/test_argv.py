"""Splitting commands, and the commands that stop processes on Windows."""

from __future__ import annotations

import pytest

from llmsnap.config.argv import llama_words, split_command, strip_comments, taskkill_argv


@pytest.mark.parametrize(
    ("text", "argv"),
    [
        ("", []),
        (" \t\n ", []),
        ("a b\tc\nd", ["a", "b", "c", "d"]),
        ("a\rb", ["a\rb"]),
        ("'a  b' \"c  d\"", ["a  b", "c  d"]),
        ("a'b c'd\"e f\"g", ["ab cde fg"]),
        ("''", [""]),
        ('a "" b', ["a", "", "b"]),
        ("a''b", ["ab"]),
        (r"'a\'b", [r"a\b"]),
        (r'"a\nb"', [r"a\nb"]),
        (r'"\$ \` \" \\ \x"', [r"$ ` " + '"' + r" \ \x"]),
        (r"a\ b \x \' \"", ["a b", "x", "'", '"']),
        (r"a\\b", [r"a\b"]),
        (r"C:\p\x.exe", ["C:px.exe"]),
        ('"$HOME" $HOME *', ["$HOME", "$HOME", "*"]),
        ("a | b && c > d", ["a", "|", "b", "&&", "c", ">", "d"]),
        ("'it''s'", ["its"]),
        ('"it\'s"', ["it's"]),
        ('a "b c', ["a", "b c"]),
        ("a 'b c", ["a", "b c"]),
        ('"', [""]),
        ('"a\\"', ['a"']),
        ("a #b", ["a", "#b"]),
        ("é 日本", ["é", "日本"]),
    ],
)
def test_words(text: str, argv: list[str]) -> None:
    """POSIX quoting without a shell's variables; a quote that isn't closed is tolerated."""
    assert split_command(text) == argv


@pytest.mark.parametrize(
    ("text", "argv"),
    [
        ("a \\\n  b", ["a", "b"]),
        ("a\\\nb", ["a", "b"]),
        ("a \\  \n b", ["a", "b"]),
        ("a\nb", ["a", "b"]),
        ("a\\", ["a"]),
        ("a \\\n# no\n b", ["a", "b"]),
        ("'x\ny'", ["x\ny"]),
    ],
)
def test_lines(text: str, argv: list[str]) -> None:
    """A line break separates, with or without a backslash; within quotes it is kept."""
    assert split_command(text) == argv


def test_comment_lines() -> None:
    """Those that begin with a hash; the text is trimmed, inner indentation is kept."""
    assert strip_comments("# a\nb \\\n  # c\n  d # e\n\n") == "b \\\n  d # e"
    assert strip_comments("#") == ""


def test_a_long_command_is_split_at_once() -> None:
    """Time grows with the length, not with its square."""
    assert len(split_command("a'b'\"c\" " * 100_000)) == 100_000
    assert split_command('"' + "\\" * 100_000) == ["\\" * 50_000 + " "]


def test_u58_taskkill_names_what_a_dead_root_left() -> None:
    """`/t` finds no children of a process that is gone: they are named one by one."""
    assert taskkill_argv(5, alive=True) == ["taskkill", "/f", "/t", "/pid", "5"]
    assert taskkill_argv(5, alive=False, descendants=[9, 7]) == [
        "taskkill", "/f", "/pid", "7", "/pid", "9",
    ]  # fmt: skip
    assert taskkill_argv(5, alive=False) == []


def test_options_as_llama_server_reads_them() -> None:
    """An equals sign parts option and value, underscores are hyphens; values stay as they are."""
    argv = ["llama-server", "--ctx_size=4096", "-m", "a_b=c.gguf", "--chat-template=x=y"]
    words = ["--ctx-size", "4096", "-m", "a_b=c.gguf", "--chat-template", "x=y"]
    assert list(llama_words(argv)) == words
