"""From a command as text to its arguments. No shell is involved."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

_TOKEN: Final = re.compile(
    r"""
    (?P<space>[ \t\n]+)
    | '(?P<literal>[^']*)(?:'|\Z)
    | "(?P<quoted>(?:\\.|[^"\\])*\\?)(?:"|\Z)
    | \\(?P<escaped>.?)
    | (?P<plain>[^ \t\n'"\\]+)
    """,
    re.VERBOSE | re.DOTALL,
)
_ESCAPE_IN_QUOTES: Final = re.compile(r'\\([$`"\\\n])')


def strip_comments(text: str) -> str:
    """Return `text` without the lines that begin with `#`, trimmed."""
    kept = [line for line in text.split("\n") if not line.lstrip().startswith("#")]
    return "\n".join(kept).strip()


def split_command(text: str) -> list[str]:
    """Return the arguments in `text`, by POSIX quoting rules, without its comment lines.

    A backslash at the end of a line continues it. A quote that isn't closed reaches to the end.
    Within double quotes a backslash escapes only a dollar sign, a backtick, a double quote, a
    backslash and a line break.
    """
    words: list[list[str]] = [[]]
    for match in _TOKEN.finditer(_continued(strip_comments(text))):
        kind = match.lastgroup or ""
        if kind == "space":
            words.append([])
        elif kind == "quoted":
            words[-1].append(_ESCAPE_IN_QUOTES.sub(r"\1", match[kind]))
        else:
            words[-1].append(match[kind])
    return ["".join(parts) for parts in words if parts]


def default_cmd_stop(platform: str) -> str:
    """Return the `cmdStop` of a model without one, on a `sys.platform`; empty: use a signal."""
    return "taskkill /f /t /pid ${PID}" if platform == "win32" else ""


def taskkill_argv(pid: int, *, alive: bool, descendants: Iterable[int] = ()) -> list[str]:
    """Return the command that ends a process tree on Windows; empty when there is nothing to end.

    `/t` finds no child of a process that is gone, so that the `descendants` are then named one by
    one: they must have been recorded while it lived.
    """
    if alive:
        return ["taskkill", "/f", "/t", "/pid", str(pid)]
    pids = [argument for child in sorted(descendants) for argument in ("/pid", str(child))]
    return ["taskkill", "/f", *pids] if pids else []


def _continued(text: str) -> str:
    lines = text.split("\n")
    return "\n".join(
        line.rstrip()[:-1] + " " if line.rstrip().endswith("\\") else line for line in lines
    )


def llama_words(argv: Sequence[str]) -> Iterator[str]:
    """Yield the arguments after the program as llama-server reads its options.

    `--option=value` is two words, and `_` in an option's name is `-`.
    """
    for argument in argv[1:]:
        if not argument.startswith("--"):
            yield argument
            continue
        option, equals, value = argument.partition("=")
        yield option.replace("_", "-")
        if equals:
            yield value
