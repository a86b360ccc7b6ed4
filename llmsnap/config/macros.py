"""`${name}` in values: which macros there are, and what becomes of text that uses them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

from llmsnap.config.faults import Fault
from llmsnap.config.scalars import Timestamp, Value, as_text
from llmsnap.config.yamlnodes import ListNode, MapNode, Node, ScalarNode, joined

MacroValue = str | int | float | bool

RESERVED: Final = frozenset({"PORT", "MODEL_ID", "PID"})
"""Set by llmsnap itself. `${PID}` is known only when a `cmdStop` runs."""

_NAME: Final = re.compile(r"[A-Za-z0-9_-]+")
_USE: Final = re.compile(r"\$\{([A-Za-z0-9_-]+)\}")
_LONGEST_NAME: Final = 63
_LONGEST_TEXT: Final = 1024**2
_MOST_TEXT: Final = 32 * 1024**2


def read_macros(node: Node | None, path: str) -> dict[str, MacroValue]:
    """Return the macros in a `macros` block, in their order. Raises Fault."""
    if node is None:
        return {}
    if not isinstance(node, MapNode):
        message = "expected a mapping of names to values; write name: value"
        raise Fault(message, line=node.line, path=path)
    return {
        name: _checked(name, value, line=node.lines[name], path=joined(path, name))
        for name, value in node.items.items()
    }


def uses(text: str) -> list[str]:
    """Return the names of the macros that `text` uses."""
    return _USE.findall(text) if "${" in text else []


def uses_below(node: Node, path: str) -> Iterator[tuple[str, int, str]]:
    """Yield each macro used in the values at and below `node`: its name, line and path."""
    match node:
        case ScalarNode(value=str() as text):
            for name in uses(text):
                yield name, node.line, path
        case ListNode():
            for index, item in enumerate(node.items):
                yield from uses_below(item, f"{path}[{index}]")
        case MapNode():
            for key, item in node.items.items():
                yield from uses_below(item, joined(path, key))


class Budget:
    """How many characters the macros of one file may still produce."""

    def __init__(self, chars: int = _MOST_TEXT) -> None:
        self._chars = chars

    def spend(self, chars: int) -> bool:
        """Return whether there was room for so many more."""
        self._chars -= chars
        return self._chars >= 0


class Expander:
    """Puts macros into values.

    The last macro goes in first, and none is looked at twice: so a macro can use only those before
    it, and no cycle is possible.
    """

    def __init__(self, macros: Mapping[str, MacroValue], budget: Budget) -> None:
        self._macros = [(f"${{{name}}}", macros[name]) for name in reversed(list(macros))]
        self._budget = budget

    def tree(self, node: Node, path: str) -> Node:
        """Return `node` with all values expanded; keys stay as they are. Raises Fault."""
        match node:
            case ScalarNode(value=str() as text) if "${" in text:
                return replace(node, value=self.text(text, line=node.line, path=path))
            case ListNode():
                items = tuple(
                    self.tree(item, f"{path}[{index}]") for index, item in enumerate(node.items)
                )
                return replace(node, items=items)
            case MapNode():
                below = {
                    key: self.tree(item, joined(path, key)) for key, item in node.items.items()
                }
                return replace(node, items=below)
        return node

    def text(self, text: str, *, line: int, path: str) -> Value:
        """Return `text` expanded. A text that is one macro and no more takes its type."""
        for use, value in self._macros:
            count = text.count(use)
            if not count:
                continue
            if text == use and not isinstance(value, str):
                return value
            written = as_text(value)
            length = len(text) + count * (len(written) - len(use))
            if length > _LONGEST_TEXT:
                message = f"macros make this longer than {_LONGEST_TEXT} characters; shorten them"
                raise Fault(message, line=line, path=path)
            if not self._budget.spend(length):
                message = f"the file's macros make over {_MOST_TEXT} characters; shorten them"
                raise Fault(message, line=line, path=path)
            text = str(text).replace(use, written)
        return text


def _checked(name: str, node: Node, *, line: int, path: str) -> MacroValue:
    value = node.value if isinstance(node, ScalarNode) else None
    if fault := _name_fault(name):
        raise Fault(fault, line=line, path=path)
    if value is None or isinstance(value, Timestamp):
        fault = "a macro must be a scalar type: text, a whole number, a float or a bool"
        raise Fault(fault, line=line, path=path)
    if isinstance(value, str) and f"${{{name}}}" in value:
        fault = "the macro contains a self-reference; use another macro in it"
        raise Fault(fault, line=line, path=path)
    return value


def _name_fault(name: str) -> str:
    if name in RESERVED:
        return f"macro name {name!r} is reserved; take another"
    if len(name) > _LONGEST_NAME:
        return f"macro name {name!r} exceeds the maximum of {_LONGEST_NAME} characters; shorten it"
    if not _NAME.fullmatch(name):
        return f"macro name {name!r} contains invalid characters; use letters, digits, - and _"
    return ""
