"""`${env.NAME}` in the text of the file, before anything else looks at it."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Mapping
from typing import Final

import yaml

from llmsnap.config.faults import Fault
from llmsnap.config.yamlnodes import Loader, parse, path_at, syntax_fault

_MACRO: Final = re.compile(r"\$\{env\.([A-Za-z_][A-Za-z0-9_]*)\}")
_FORBIDDEN: Final = re.compile("[\n\r\0\x85\u2028\u2029\ud800-\udfff]")


def substitute(text: str, environ: Mapping[str, str]) -> str:
    """Return `text` with the values of environment variables in place of their macros.

    What stands in a YAML comment is left alone; a `#` line of a block text isn't a comment.
    Backslashes and double quotes get a backslash, as peers do it. Raises Fault.
    """
    if "${env." not in text:
        return text
    may_be = any(0 <= line.find("#") < line.rfind("${env.") for line in text.split("\n"))
    in_comment = _comments(text) if may_be else lambda position: False

    def value_of(match: re.Match[str]) -> str:
        if in_comment(match.start()):
            return match[0]
        value = environ.get(match[1])
        if value is None:
            problem = f"is not set; set it, or take {match[0]} out"
        elif _FORBIDDEN.search(value):
            problem = "holds a line break, or what YAML can't hold; set it to one line of text"
        else:
            return value.replace("\\", "\\\\").replace('"', '\\"')
        line = text.count("\n", 0, match.start()) + 1
        message = f"environment variable {match[1]!r} {problem}"
        raise Fault(message, line=line, path=_path_at(text, line))

    return _MACRO.sub(value_of, text)


def _path_at(text: str, line: int) -> str:
    try:
        return path_at(parse(_harmless(text)), line)
    except Fault:  # then that is what the user hears of next
        return ""


def _harmless(text: str) -> str:
    """Return `text` with letters for macros: their braces would be YAML's."""
    return _MACRO.sub(lambda match: "x" * len(match[0]), text)


def _comments(text: str) -> Callable[[int], bool]:
    """Return a test for whether a position in `text` lies in a comment.

    Comments are what the YAML scanner makes no token of.
    """
    harmless = _harmless(text)
    starts: list[int] = []
    ends: list[int] = []
    try:
        for token in yaml.scan(harmless, Loader=Loader):
            start = token.start_mark.index
            if getattr(token, "style", None) in ("|", ">"):  # its first line may have a comment
                start = harmless.find("\n", start)
            starts.append(start)
            ends.append(token.end_mark.index)
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        raise syntax_fault(error, text) from None

    def in_comment(position: int) -> bool:
        return position >= ends[bisect_right(starts, position) - 1]

    return in_comment
