"""Nodes to the structs of `schema`, by the type of each field, as Go's yaml.v3 decodes them.

A number in a text field becomes its text, a float in a whole-number field is cut, null means the
default; a quoted number in a number field is an error.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, TypeVar

import msgspec
from msgspec import inspect

from llmsnap.config.faults import Fault, nearest, one_of
from llmsnap.config.quantities import parse_duration, parse_size
from llmsnap.config.scalars import as_bool, as_text
from llmsnap.config.yamlnodes import ListNode, MapNode, Node, ScalarNode, joined

StructT = TypeVar("StructT", bound=msgspec.Struct)

_INT64: Final = range(-(2**63), 2**63)


@dataclass(frozen=True, slots=True)
class Note:
    """Something that isn't an error, but may be a mistake."""

    line: int
    path: str
    text: str


class Decoder:
    """Makes structs of nodes, and notes the keys that it doesn't know."""

    def __init__(self) -> None:
        self.notes: list[Note] = []

    def note(self, text: str, *, line: int, path: str) -> None:
        """Remember `text` as a warning."""
        self.notes.append(Note(line, path, text))

    def struct(self, type_: type[StructT], node: Node, path: str) -> StructT:
        """Return the `type_` that `node` describes; absent and null keys get their defaults.

        Raises Fault.
        """
        return self._struct(_shape(type_), node, path)  # type: ignore[no-any-return]  # of `type_`

    def _struct(self, shape: inspect.StructType, node: Node, path: str) -> Any:
        written = table(node, path)
        fields = {field.encode_name: field for field in shape.fields}
        values = {}
        for key, item in written.items.items():
            if key not in fields:
                self._unknown(key, fields, line=written.lines[key], path=joined(path, key))
            elif not _is_null(item):
                field = fields[key]
                values[field.name] = self._value(field.type, item, joined(path, key))
        for key, field in fields.items():
            if field.required and field.name not in values:
                message = f"{key!r} is required; give it a value"
                raise Fault(message, line=node.line, path=joined(path, key))
        return shape.cls(**values)

    def _unknown(self, key: str, known: Iterable[str], *, line: int, path: str) -> None:
        suggestion = nearest(key, known)
        remedy = f"did you mean {suggestion!r}?" if suggestion else "it is ignored"
        self.note(f"unknown key; {remedy}", line=line, path=path)

    def _value(self, shape: inspect.Type, node: Node, path: str) -> Any:
        match shape:
            case inspect.Metadata():
                return self._annotated(shape, node, path)
            case inspect.StructType():
                return self._struct(shape, node, path)
            case inspect.VarTupleType(item_type=inner):
                return self._tuple(inner, node, path)
            case inspect.DictType(value_type=inner):
                return self._dict(inner, node, path)
            case inspect.UnionType():
                return None if _is_null(node) else self._value(_branch(shape, node), node, path)
            case inspect.AnyType():
                return as_json(node, path)
            case _:
                return _scalar(shape, node, path)

    def _annotated(self, shape: inspect.Metadata, node: Node, path: str) -> Any:
        extra = shape.extra or {}
        if parse := _UNITS.get(extra.get("unit", "")):
            node = parse(node, path)
        if extra.get("raise") and isinstance(shape.type, inspect.IntType):
            return max(_int(node, path), shape.type.ge or 0)
        return self._value(shape.type, node, path)

    def _tuple(self, inner: inspect.Type, node: Node, path: str) -> tuple[Any, ...]:
        if not isinstance(node, ListNode):
            message = f"expected a list, not {_kind(node)}; write [one, two], or lines with a dash"
            raise Fault(message, line=node.line, path=path)
        return tuple(
            self._value(inner, item, f"{path}[{index}]")
            for index, item in enumerate(node.items)
            if not _is_null(item)
        )

    def _dict(self, inner: inspect.Type, node: Node, path: str) -> dict[str, Any]:
        keeps_null = isinstance(
            inner, inspect.AnyType | inspect.StructType | inspect.DictType | inspect.UnionType
        )
        return {
            key: self._value(inner, item, joined(path, key))
            for key, item in table(node, path).items.items()
            if keeps_null or not _is_null(item)
        }


def table(node: Node, path: str) -> MapNode:
    """Return `node` as a mapping; null is an empty one. Raises Fault."""
    if isinstance(node, MapNode):
        return node
    if _is_null(node):
        return MapNode({}, {}, node.line)
    message = f"expected a mapping, not {_kind(node)}; write key: value"
    raise Fault(message, line=node.line, path=path)


def text(node: Node, path: str) -> str:
    """Return `node` as text: numbers and bools as Go prints them. Raises Fault."""
    if not isinstance(node, ScalarNode):
        message = f"expected text, not {_kind(node)}; write one text, several lines of it with |"
        raise Fault(message, line=node.line, path=path)
    return as_text(node.value)


def as_json(node: Node, path: str) -> Any:
    """Return `node` as what JSON can hold. Raises Fault."""
    match node:
        case ListNode():
            return [as_json(item, f"{path}[{index}]") for index, item in enumerate(node.items)]
        case MapNode():
            return {key: as_json(item, joined(path, key)) for key, item in node.items.items()}
        case ScalarNode(value=float() as value) if not math.isfinite(value):
            message = f"JSON can't hold {as_text(value)}; write a number, or quote it"
            raise Fault(message, line=node.line, path=path)
        case ScalarNode(value=str() as value):
            return str(value)
    return node.value


@cache
def _shape(type_: type[msgspec.Struct]) -> inspect.StructType:
    shape = inspect.type_info(type_)
    assert isinstance(shape, inspect.StructType)
    return shape


def _branch(shape: inspect.UnionType, node: Node) -> inspect.Type:
    """Return the member of a union that fits `node`: a mapping, or what isn't one."""
    branches = [branch for branch in shape.types if not isinstance(branch, inspect.NoneType)]
    tables = [branch for branch in branches if isinstance(branch, inspect.DictType)]
    if tables and isinstance(node, MapNode):
        return tables[0]
    return next(branch for branch in branches if branch not in tables)


def _scalar(shape: inspect.Type, node: Node, path: str) -> Any:
    match shape:
        case inspect.IntType():
            return _within(shape, _int(node, path), node, path)
        case inspect.FloatType():
            return _within(shape, _float(node, path), node, path)
        case inspect.BoolType():
            return _bool(node, path)
        case inspect.LiteralType(values=values):
            return _choice([str(value) for value in values], node, path)
        case _:
            return text(node, path)


def _int(node: Node, path: str) -> int:
    value = node.value if isinstance(node, ScalarNode) else None
    if isinstance(value, float) and math.isfinite(value):
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or value not in _INT64:
        is_quoted = isinstance(value, str) and value.strip().isdecimal()
        remedy = "take the quotes away" if is_quoted else "write one, such as 30"
        message = f"expected a whole number, not {_kind(node)}; {remedy}"
        raise Fault(message, line=node.line, path=path)
    return value


def _float(node: Node, path: str) -> float:
    value = node.value if isinstance(node, ScalarNode) else None
    if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value):
        message = f"expected a number, not {_kind(node)}; write one, such as 2.5"
        raise Fault(message, line=node.line, path=path)
    return float(value)


def _bool(node: Node, path: str) -> bool:
    value = as_bool(node.value) if isinstance(node, ScalarNode) else None
    if value is None:
        message = f"expected true or false, not {_kind(node)}; write one of them, without quotes"
        raise Fault(message, line=node.line, path=path)
    return value


def _choice(known: list[str], node: Node, path: str) -> str:
    value = text(node, path)
    if value not in known:
        message = f"{value!r} isn't possible here; write {one_of(known)}"
        raise Fault(message, line=node.line, path=path)
    return value


def _within(
    shape: inspect.IntType | inspect.FloatType, value: float, node: Node, path: str
) -> float:
    if shape.ge is not None and value < shape.ge:
        message = f"must be at least {shape.ge}, not {as_text(value)}"
        raise Fault(message, line=node.line, path=path)
    if shape.le is not None and value > shape.le:
        message = f"must be at most {shape.le}, not {as_text(value)}"
        raise Fault(message, line=node.line, path=path)
    return value


def _is_null(node: Node) -> bool:
    return isinstance(node, ScalarNode) and node.value is None


def _kind(node: Node) -> str:
    """Return what `node` is, in words; never its text, which may be a secret."""
    match node:
        case ListNode():
            return "a list"
        case MapNode():
            return "a mapping"
        case ScalarNode(value=str()):
            return "text"
    return as_text(node.value)


def _parsed(parse: Callable[[str], float]) -> Callable[[Node, str], Node]:
    def parsed(node: Node, path: str) -> Node:
        if not isinstance(node, ScalarNode) or not isinstance(node.value, str):
            return node
        try:
            return ScalarNode(parse(node.value), node.line)
        except ValueError as error:
            raise Fault(str(error), line=node.line, path=path) from None

    return parsed


def _split(node: Node, path: str) -> Node:
    parts = text(node, path).split(",")
    return ListNode(tuple(ScalarNode(part, node.line) for part in parts), node.line)


_UNITS: Final[dict[str, Callable[[Node, str], Node]]] = {
    "duration": _parsed(parse_duration),
    "size": _parsed(parse_size),
    "commas": _split,
}
