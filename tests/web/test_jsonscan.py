"""Where the values of a JSON text are."""

from __future__ import annotations

import json
import mmap
import tempfile
from typing import Any

import pytest
from hypothesis import given

from llmsnap.web.jsonscan import NotJson, members, skip_space, value_end
from tests.web.jsontexts import json_texts


@given(json_texts())
def test_members_are_those_that_a_parser_sees(text: str) -> None:
    """Keys and values in their order, however the text is spaced."""
    raw = text.encode()

    assert seen(raw, skip_space(raw, 0)) == json.loads(text, object_pairs_hook=list)


def seen(raw: bytes, start: int) -> Any:
    """The value that begins at `start`, put together from what the scan says."""
    end = value_end(raw, start)
    if raw[start] not in b"{[":
        return json.loads(raw[start:end])
    at = start + 1
    values: list[Any] = []
    for member in members(raw, start):
        assert member.lead == at, "every byte belongs to a member"
        value = seen(raw, member.start)
        values.append(value if member.key is None else (member.key, value))
        at = member.stop
    assert raw[at:end].strip() in (b"}", b"]")
    return values


def test_mapped_files_are_read_alike() -> None:
    """The text may be in a file."""
    raw = b'{"a":[1,{"b":"]}\\""}],"c":2}'
    with tempfile.TemporaryFile() as file:
        file.write(raw)
        file.flush()
        text = mmap.mmap(file.fileno(), len(raw), access=mmap.ACCESS_READ)

        assert [text[m.start : m.end] for m in members(text, 0)] == [b'[1,{"b":"]}\\""}]', b"2"]


@pytest.mark.parametrize("backslashes", range(5))
def test_backslashes_before_a_quote(backslashes: int) -> None:
    """An even number of them escapes itself, and the quote ends the string."""
    raw = b'"' + b"\\" * backslashes + b'"x"'

    assert value_end(raw, 0) == (backslashes + 2 if backslashes % 2 == 0 else backslashes + 4)


@pytest.mark.parametrize(
    "raw", [b"{", b'{"a"', b'{"a":', b'{"a":1', b'{"a" 1}', b'{"a":1 "b":2}', b"[1", b'["', b"[[1]"]
)
def test_what_is_no_json_is_told(raw: bytes) -> None:
    """It raises and doesn't hang."""
    with pytest.raises(NotJson):
        list(members(raw, 0))
