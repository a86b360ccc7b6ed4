"""Edits of JSON: the right value comes out, and every other byte stays."""

from __future__ import annotations

import json
import mmap
import tempfile
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from llmsnap.web.edits import CantEdit, Document, Path, Step, parse_path
from llmsnap.web.jsonscan import NotJson, members
from tests.web.jsontexts import KEYS, json_objects, json_texts

Edit = tuple[str, Path, str]

_steps = st.builds(Step, st.sampled_from([*KEYS, "1", "2", "x"]), st.booleans())
_paths = st.lists(_steps, min_size=1, max_size=3).map(tuple)
_values = json_texts().map(str.strip)
_edits = st.tuples(st.sampled_from(["set", "delete", "replace"]), _paths, _values)


def edited(text: str | bytes, *edits: Edit) -> bytes:
    """The text after those edits."""
    document = Document(text if isinstance(text, bytes) else text.encode())
    for kind, path, value in edits:
        if kind == "delete":
            document.delete(path)
        else:
            getattr(document, kind)(path, value.encode())
    return b"".join(document.segments())


def path(text: str) -> Path:
    """A path without wildcards."""
    steps = parse_path(text)
    assert steps is not None
    return steps


# ---- against the same edits of plain values ----------------------------------------------------


class Plain:
    """The edits, on values that a JSON parser made."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def apply(self, kind: str, steps: Path, value: Any) -> None:
        """Do one edit; raise CantEdit where a text couldn't be edited either."""
        place = self.value
        for n, step in enumerate(steps[:-1], start=1):
            if not self._has(place, step):
                if kind == "set":
                    self._put(place, step, self._built(steps[n:], value))
                return
            if not isinstance(place[self._key(place, step)], dict | list):
                if kind != "set":
                    return
                place[self._key(place, step)] = self._new(steps[n])
            place = place[self._key(place, step)]
        self._finish(kind, place, steps[-1], value)

    def _built(self, steps: Path, value: Any) -> Any:
        outer = self._new(steps[0])
        inner = self._built(steps[1:], value) if len(steps) > 1 else deepcopy(value)
        self._put(outer, steps[0], inner)
        return outer

    def _finish(self, kind: str, place: Any, step: Step, value: Any) -> None:
        if kind == "delete" and step.is_last and isinstance(place, list):
            del place[-1:]
        elif kind == "delete":
            if self._has(place, step):
                del place[self._key(place, step)]
        elif kind == "set" or self._has(place, step):
            self._put(place, step, deepcopy(value))

    @staticmethod
    def _new(step: Step) -> Any:
        return [] if step.index is not None or step.is_last else {}

    @staticmethod
    def _key(place: Any, step: Step) -> Any:
        return step.name if isinstance(place, dict) else step.index

    def _has(self, place: Any, step: Step) -> bool:
        if isinstance(place, dict):
            return step.name in place
        return step.index is not None and step.index < len(place)

    def _put(self, place: Any, step: Step, value: Any) -> None:
        if isinstance(place, dict) or self._has(place, step):
            place[self._key(place, step)] = value
            return
        if step.index is None and not step.is_last:
            raise CantEdit
        place.extend([None] * ((step.index or len(place)) - len(place)))
        place.append(value)


@given(json_objects(), st.lists(_edits, min_size=1, max_size=4))
def test_the_value_is_that_of_a_plain_edit(text: str, edits: list[Edit]) -> None:
    """One edit after the other, as if the text were parsed, changed and written again."""
    plain = Plain(json.loads(text))
    try:
        for kind, steps, value in edits:
            plain.apply(kind, steps, json.loads(value))
    except CantEdit:
        with pytest.raises(CantEdit):
            edited(text, *edits)
    else:
        assert json.loads(edited(text, *edits)) == plain.value


# ---- every other byte --------------------------------------------------------------------------


@st.composite
def _text_and_member(draw: st.DrawFn) -> tuple[bytes, int]:
    text = draw(json_objects().map(str.encode))
    found = list(members(text, text.index(b"{")))
    keys = [member.key for member in found]
    unique = [n for n, key in enumerate(keys) if keys.count(key) == 1]
    assume(unique)
    return text, draw(st.sampled_from(unique))


@given(_text_and_member(), _values)
def test_setting_changes_the_value_alone(text_and_member: tuple[bytes, int], value: str) -> None:
    """What stands before and after it is kept to the byte."""
    text, n = text_and_member
    member = list(members(text, text.index(b"{")))[n]
    assert member.key is not None

    result = edited(text, ("set", (Step(member.key),), value))

    assert result == text[: member.start] + value.encode() + text[member.end :]


@given(_text_and_member())
def test_deleting_takes_one_comma_along(text_and_member: tuple[bytes, int]) -> None:
    """The comma before it goes too, or the one behind it when it is the first."""
    text, n = text_and_member
    found = list(members(text, text.index(b"{")))
    member = found[n]
    assert member.key is not None

    result = edited(text, ("delete", (Step(member.key),), ""))

    if n > 0:
        assert result == text[: member.lead] + text[member.end :]
    elif len(found) > 1:
        assert result == text[: member.lead] + text[member.stop + 1 :]
    else:
        assert result == text[: member.lead] + text[member.end :]


@given(json_objects().map(str.encode))
def test_adding_goes_before_the_last_bracket(text: bytes) -> None:
    """Nothing else is touched."""
    end = text.rindex(b"}")
    comma = b"," if list(members(text, text.index(b"{"))) else b""

    result = edited(text, ("set", path("new"), "1"))

    assert result == text[:end] + comma + b'"new":1' + text[end:]


@given(json_objects().map(str.encode))
def test_looking_changes_nothing(text: bytes) -> None:
    """What isn't there can't be deleted or replaced, wherever it is looked for."""
    for steps in ("absent", "a.absent", "b.7", "a.0.absent"):
        assert edited(text, ("delete", path(steps), "")) == text
    assert not Document(text).replace(path("absent"), b"1")


# ---- paths -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "steps"),
    [
        ("a", [Step("a")]),
        ("a.b", [Step("a"), Step("b")]),
        (r"a\.b", [Step("a.b")]),
        (r"a\*", [Step("a*")]),
        ("list.0", [Step("list"), Step("0")]),
        ("list.-1", [Step("list"), Step("-1")]),
        ("bias.:50256", [Step("bias"), Step("50256", is_key=True)]),
        ("a:b", [Step("a:b")]),
        ("a.", [Step("a"), Step("")]),
        ("a*", None),
        ("a.?.b", None),
    ],
)
def test_paths(text: str, steps: list[Step] | None) -> None:
    """Dots part them, a backslash takes a character as it is, wildcards mean no place."""
    assert parse_path(text) == (tuple(steps) if steps is not None else None)


@pytest.mark.parametrize(
    ("text", "where", "value", "result"),
    [
        ('{"a":{"b":1}}', "a.b", "2", '{"a":{"b":2}}'),
        ('{"a":1}', r"a\.b", "2", '{"a":1,"a.b":2}'),
        ('{"l":[1, 2]}', "l.0", "7", '{"l":[7, 2]}'),
        ('{"l":[1, 2 ]}', "l.-1", "3", '{"l":[1, 2 ,3]}'),
        ('{"l":[]}', "l.2", "3", '{"l":[null,null,3]}'),
        ("{ }", "x.y.1", '"v"', '{ "x":{"y":[null,"v"]}}'),
        ("{}", "x.:1", "true", '{"x":{"1":true}}'),
        ('{"a":5}', "a.b", "1", '{"a":{"b":1}}'),
        ('{"a":5}', "a.1", "1", '{"a":[null,1]}'),
        ('{"a":1,"a":2}', "a", "3", '{"a":3,"a":3}'),
        ('{"a":"\\u00e9"}', "é", "1", '{"a":"\\u00e9","é":1}'),
    ],
)
def test_setting_at_a_path(text: str, where: str, value: str, result: str) -> None:
    """Parents are made, arrays filled up, equal keys all set."""
    assert edited(text, ("set", path(where), value)).decode() == result


@pytest.mark.parametrize(
    ("text", "where", "result"),
    [
        ('{"a":{"b":1, "c":2}}', "a.b", '{"a":{ "c":2}}'),
        ('{"l":[1, 2, 3]}', "l.1", '{"l":[1, 3]}'),
        ('{"l":[1, 2, 3]}', "l.-1", '{"l":[1, 2]}'),
        ('{"l":[1]}', "l.5", '{"l":[1]}'),
        ('{"l":[1]}', "l.x", '{"l":[1]}'),
        ('{"a":1,"b":2,"a":3}', "a", '{"b":2}'),
    ],
)
def test_deleting_at_a_path(text: str, where: str, result: str) -> None:
    """What isn't there is no matter."""
    assert edited(text, ("delete", path(where), "")).decode() == result


@pytest.mark.parametrize("where", ["l.x", "l.99999999", "new.99999999"])
def test_what_has_no_place_is_refused(where: str) -> None:
    """A name in an array, and an array of millions of nulls."""
    with pytest.raises(CantEdit):
        edited('{"l":[1]}', ("set", path(where), "1"))


@pytest.mark.parametrize("text", ["5", '"a"', "null"])
def test_only_containers_can_be_edited(text: str) -> None:
    """Anything else has no members."""
    with pytest.raises(CantEdit):
        Document(text.encode())


def test_a_broken_text_is_told() -> None:
    """Upstreams' answers are edited too, and nobody has checked those."""
    with pytest.raises(NotJson):
        Document(b'{"a":')


# ---- large bodies ------------------------------------------------------------------------------


def test_a_large_text_isnt_copied() -> None:
    """The result is pieces of the original around what is new; a file serves as well."""
    text = b'{"image":"' + b"A" * 2**20 + b'","model":"a","x":1}'
    with tempfile.TemporaryFile() as file:
        file.write(text)
        file.flush()
        mapped = mmap.mmap(file.fileno(), len(text), access=mmap.ACCESS_READ)
        for original in (text, mapped):
            document = Document(original)
            document.set(path("model"), b'"b"')
            segments = document.segments()

            assert [isinstance(segment, memoryview) for segment in segments] == [True] * 3
            assert all(isinstance(s, memoryview) and s.obj is original for s in segments[::2])
            assert b"".join(segments) == text.replace(b'"model":"a"', b'"model":"b"')
