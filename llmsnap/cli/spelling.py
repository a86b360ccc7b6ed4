"""The command line as its predecessors are started: Go's spelling, and no command at all."""

from __future__ import annotations

from typing import Final

_VALUED: Final = frozenset(
    {
        *("config", "config-dir", "models-dir", "models-preset"),
        *("listen", "tls-cert-file", "tls-key-file"),
    }
)
_SWITCHES: Final = frozenset({"watch-config", "version"})
_TRUE: Final = frozenset({"1", "t", "T", "true", "TRUE", "True"})
_OF_NO_COMMAND: Final = frozenset({"--help", "-h"})


def normal(argv: list[str]) -> list[str]:
    """Return `argv` as click reads it: two dashes, and `serve` when no command is named.

    Go's flags take one dash or two, and a value after a blank or `=`; its switches take `=true`.
    """
    words = [word for original in argv for word in _two_dashes(original)]
    names_a_command = bool(words) and not words[0].startswith("-")
    if "--version" in words and not names_a_command:
        return ["--version"]
    if names_a_command or (words and words[0] in _OF_NO_COMMAND):
        return words
    return ["serve", *words]


def _two_dashes(word: str) -> list[str]:
    """Return `word` with two dashes if it is a flag of Go's; a switch that is off is left out."""
    name, equals, value = word.lstrip("-").partition("=")
    if word not in (f"-{name}{equals}{value}", f"--{name}{equals}{value}"):
        return [word]
    if name in _SWITCHES and equals:
        return [f"--{name}"] if value in _TRUE else []
    return [f"--{name}{equals}{value}"] if name in _VALUED | _SWITCHES else [word]
