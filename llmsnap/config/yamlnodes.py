"""YAML text to nodes that know their line, typed as Go's yaml.v3 types them.

Aliases and merge keys are resolved here. Keys are always text, as written in the file. What a small
file could blow up to by aliases, and how deep it nests, is bounded.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Final

import yaml

from llmsnap.config.faults import Fault
from llmsnap.config.scalars import Value, plain_value, tagged_value

MAX_CHARS: Final = 8 * 1024**2
MAX_WEIGHT: Final = 200_000
MAX_HEIGHT: Final = 64

Loader: Final[Any] = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
"""The C parser when PyYAML was built with it: ten times faster."""

_STANDARD: Final = "tag:yaml.org,2002:"


@dataclass(frozen=True, slots=True)
class ScalarNode:
    """One value; `text` is how it was written."""

    value: Value
    line: int
    text: str = ""
    merges: bool = field(default=False, repr=False)
    """Whether it is the key `<<`, unquoted."""
    weight: int = field(default=1, repr=False)
    height: int = field(default=1, repr=False)


@dataclass(frozen=True, slots=True)
class ListNode:
    """A sequence."""

    items: tuple[Node, ...]
    line: int
    weight: int = field(default=1, repr=False)
    """How many values there are at and below this node."""
    height: int = field(default=1, repr=False)
    """How many levels there are from this node down."""


@dataclass(frozen=True, slots=True)
class MapNode:
    """A mapping; `lines` says where each key is."""

    items: dict[str, Node]
    lines: dict[str, int]
    line: int
    weight: int = field(default=1, repr=False)
    height: int = field(default=1, repr=False)

    def get(self, key: str) -> Node | None:
        """Return what is at `key`; None when it is absent or null."""
        node = self.items.get(key)
        return None if isinstance(node, ScalarNode) and node.value is None else node


Node = ScalarNode | ListNode | MapNode


def parse(text: str) -> Node:
    """Return the first document in `text`; an empty one is a null. Raises Fault."""
    if len(text) > MAX_CHARS:
        raise Fault(f"the file is over {MAX_CHARS // 1024**2} MiB; split or shorten it", line=1)
    try:
        return _Composer(yaml.parse(text, Loader=Loader)).document()
    except (yaml.YAMLError, ValueError, OverflowError) as error:  # the last two: PyYAML's own
        raise syntax_fault(error, text) from None


def syntax_fault(error: Exception, text: str) -> Fault:
    """Return the fault that a PyYAML `error` about `text` stands for."""
    mark = getattr(error, "problem_mark", None)
    line = 1 if mark is None else mark.line + 1
    problem = getattr(error, "problem", None) or getattr(error, "reason", None) or "bad text"
    lines = text.split("\n")
    written = lines[line - 1] if line <= len(lines) else ""
    if "\t" in written[: len(written) - len(written.lstrip())]:
        remedy = "indent with spaces, not with tabs"
    else:
        remedy = "check the indentation, and put text with signs such as : # { [ & * in quotes"
    return Fault(f"not valid YAML: {problem}; {remedy}", line=line)


class _Composer:
    """Builds nodes from PyYAML's events."""

    def __init__(self, events: Iterator[Any]) -> None:
        self._events = events
        self._anchors: dict[str, Node | None] = {}

    def document(self) -> Node:
        for event in self._events:
            if isinstance(event, yaml.DocumentStartEvent):
                node = self._node(next(self._events), "", MAX_HEIGHT)
                next(self._events)  # the document's end
                next(self._events)  # another document or the file's end, else a syntax error
                return node
        return ScalarNode(None, 1)

    def _node(self, event: Any, path: str, levels: int) -> Node:
        line = event.start_mark.line + 1
        if levels == 0:
            raise _too_deep(line, path)
        if isinstance(event, yaml.AliasEvent):
            return self._aliased(str(event.anchor), line, path, levels)
        if event.anchor is not None:
            self._anchors[event.anchor] = None  # until it is complete
        match event:
            case yaml.ScalarEvent():
                node: Node = _scalar(event, line, path)
            case yaml.SequenceStartEvent():
                node = self._list(line, path, levels - 1)
            case _:
                node = self._map(line, path, levels - 1)
        if event.anchor is not None:
            self._anchors[event.anchor] = node
        return node

    def _aliased(self, anchor: str, line: int, path: str, levels: int) -> Node:
        if anchor not in self._anchors:
            message = f"no anchor &{anchor} comes before *{anchor}; define it first"
            raise Fault(message, line=line, path=path)
        node = self._anchors[anchor]
        if node is None:
            message = f"*{anchor} stands inside &{anchor} itself; take it out"
            raise Fault(message, line=line, path=path)
        if node.height > levels:
            raise _too_deep(line, path)
        return node

    def _list(self, line: int, path: str, levels: int) -> ListNode:
        items: list[Node] = []
        weight = 1
        while not isinstance(event := next(self._events), yaml.SequenceEndEvent):
            items.append(self._node(event, f"{path}[{len(items)}]", levels))
            weight = _heavier(weight, items[-1], line, path)
        return ListNode(tuple(items), line, weight, _height(items))

    def _map(self, line: int, path: str, levels: int) -> MapNode:
        pairs: dict[str, tuple[ScalarNode, Node]] = {}
        weight = 1
        while not isinstance(event := next(self._events), yaml.MappingEndEvent):
            key = self._key(event, path, levels)
            below = joined(path, key.text)
            if key.text in pairs:
                first = pairs[key.text][0].line
                message = f"the key is already at line {first}; rename or remove one of them"
                raise Fault(message, line=key.line, path=below)
            value = self._node(next(self._events), below, levels)
            pairs[key.text] = (key, value)
            weight = _heavier(weight, value, line, path)
        return _merged(pairs, path, line, weight)

    def _key(self, event: Any, path: str, levels: int) -> ScalarNode:
        line = event.start_mark.line + 1
        key = self._node(event, path, levels)
        if not isinstance(key, ScalarNode):
            raise Fault("a list or mapping can't be a key; use text", line=line, path=path)
        return replace(key, line=line)  # an alias stands elsewhere than what it means


def joined(path: str, key: str) -> str:
    """Return the path of `key` in the mapping at `path`."""
    return f"{path}.{key}" if path else key


def line_of(node: Node, *keys: str | int) -> int:
    """Return the line of what is below `node` at `keys`, or of the last of them that exists."""
    line = node.line
    for key in keys:
        if isinstance(node, MapNode) and key in node.items:
            line, node = node.lines[str(key)], node.items[str(key)]
        elif isinstance(node, ListNode) and isinstance(key, int) and key < len(node.items):
            node = node.items[key]
            line = node.line
        else:
            break
    return line


def path_at(node: Node, line: int) -> str:
    """Return the path of the last key that begins at or above `line`."""
    path = ""
    while isinstance(node, MapNode | ListNode):
        if isinstance(node, MapNode):
            above = [(at, key) for key, at in node.lines.items() if at <= line]
            if not above:
                break
            key = max(above, key=lambda pair: pair[0])[1]
            path, node = joined(path, key), node.items[key]
        else:
            before = [index for index, item in enumerate(node.items) if item.line <= line]
            if not before:
                break
            path, node = f"{path}[{before[-1]}]", node.items[before[-1]]
    return path


def _too_deep(line: int, path: str) -> Fault:
    return Fault(f"nested more than {MAX_HEIGHT} levels deep; flatten it", line=line, path=path)


def _scalar(event: Any, line: int, path: str) -> ScalarNode:
    text: str = event.value
    weight = 1 + len(text) // 64
    tag = event.tag if event.tag not in (None, "!") else ""
    if tag:
        try:
            value: Value = tagged_value(text, tag.removeprefix(_STANDARD))
        except ValueError as error:
            message = f"{error}; remove the tag or mend the value"
            raise Fault(message, line=line, path=path) from None
    else:
        value = plain_value(text) if event.implicit[0] else text
    merges = text == "<<" and (event.implicit[0] or tag == _STANDARD + "merge")
    return ScalarNode(value, line, text, merges, weight)


def _merged(
    pairs: dict[str, tuple[ScalarNode, Node]], path: str, line: int, weight: int
) -> MapNode:
    """Build the mapping of `pairs`: merged keys stand where `<<` does, own values win."""
    items: dict[str, Node] = {}
    lines: dict[str, int] = {}
    for text, (key, value) in pairs.items():
        if not key.merges:
            items[text], lines[text] = value, key.line
            continue
        for source in _merge_sources(value, key.line, path):
            for name, inherited in source.items.items():
                own = pairs.get(name)
                items.setdefault(name, own[1] if own else inherited)
                lines.setdefault(name, own[0].line if own else source.lines[name])
    return MapNode(items, lines, line, weight, _height(items.values()))


def _merge_sources(value: Node, line: int, path: str) -> tuple[MapNode, ...]:
    candidates = value.items if isinstance(value, ListNode) else (value,)
    sources = tuple(node for node in candidates if isinstance(node, MapNode))
    if len(sources) != len(candidates):
        message = "<< takes a mapping or a list of mappings; write one such as *name"
        raise Fault(message, line=line, path=path)
    return sources


def _heavier(weight: int, node: Node, line: int, path: str) -> int:
    weight += node.weight
    if weight > MAX_WEIGHT:
        message = f"more than {MAX_WEIGHT} values, aliases resolved; make fewer of them"
        raise Fault(message, line=line, path=path)
    return weight


def _height(nodes: Iterable[Node]) -> int:
    return 1 + max((node.height for node in nodes), default=0)
