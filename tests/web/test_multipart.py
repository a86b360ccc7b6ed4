"""Finds a field in a multipart body while it comes in."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmsnap.errors import BadRequest
from llmsnap.web.body import MEMORY_BYTES
from llmsnap.web.multipart import Field, find_field
from tests.web.bodies import held

TYPE = "multipart/form-data; boundary=----B0undary"
FILE = (
    b'------B0undary\r\nContent-Disposition: form-data; name="file"; filename="model"\r\n'
    b"Content-Type: audio/wav\r\n\r\nRIFF\x00\r\n--\r\n\r\n------B0undar\r\n\r\n"
)
MODEL = b'------B0undary\r\nContent-Disposition: form-data; name="model"\r\n\r\nwhisper-1\r\n'
END = b"------B0undary--\r\n"


async def find(*pieces: bytes, content_type: str = TYPE) -> Field | None:
    """Look for `model` in a body that comes in these pieces."""
    body = held(*pieces)
    try:
        return await find_field(body, content_type, b"model")
    finally:
        body.close()


@pytest.mark.parametrize("body", [MODEL + FILE + END, FILE + MODEL + END], ids=["first", "last"])
async def test_the_field_is_found_wherever_it_is(body: bytes) -> None:
    """Before and after a file whose name and bytes look much the same."""
    found = await find(body)

    assert found is not None
    assert found.value == body[found.start : found.end] == b"whisper-1"


@given(
    st.sampled_from([FILE + MODEL + END, MODEL + FILE + END]),
    st.lists(st.integers(0, len(FILE + MODEL + END)), max_size=12),
)
def test_the_pieces_dont_matter(body: bytes, cuts: list[int]) -> None:
    """However the body is cut on its way, the same place is found."""
    places = [0, *sorted(cuts), len(body)]
    pieces = [body[a:b] for a, b in pairwise(places) if b > a]

    async def found() -> Field | None:
        return await find(*pieces)

    start = body.index(b"whisper-1")
    assert asyncio.run(found()) == Field(start, start + 9, b"whisper-1")


@pytest.mark.parametrize("cut", range(1, len(MODEL)))
async def test_a_first_part_that_comes_in_two(cut: int) -> None:
    """Wherever the first view ends, the part is looked at again when there is more of it."""
    body = MODEL + FILE + END

    found = await find(body[:cut], body[cut:])

    assert found is not None
    assert found.value == b"whisper-1"


async def test_no_more_is_held_than_it_takes() -> None:
    """Once the field is seen, the file stays in the socket."""
    body = held(MODEL + FILE[:40], b"x" * 1000, eof=False)

    await find_field(body, TYPE, b"model")

    assert not body.complete
    assert body.size <= len(MODEL) + 1040


async def test_a_field_behind_a_large_file() -> None:
    """The file is held on disk until the field comes."""
    file = FILE.replace(b"RIFF", b"R" * (MEMORY_BYTES + 2**20))
    found = await find(*[file[n : n + 2**18] for n in range(0, len(file), 2**18)], MODEL, END)

    assert found is not None
    assert found.value == b"whisper-1"


@pytest.mark.parametrize(
    "name", [b"name=model", b'NAME="model"', b'name="model"; charset=utf-8'], ids=bytes.decode
)
async def test_spellings(name: bytes) -> None:
    """With and without quotes, whatever the case."""
    body = b"--B\r\nContent-Disposition: form-data; %b\r\n\r\na\r\n--B--" % name
    found = await find(body, content_type='multipart/form-data; charset=x; Boundary="B"')

    assert found is not None
    assert found.value == b"a"


@pytest.mark.parametrize(
    "body",
    [FILE + END, b"", MODEL.replace(b'"model"', b'"models"') + END, END],
    ids=["file only", "empty", "other name", "nothing"],
)
async def test_no_such_field(body: bytes) -> None:
    """None, and all of the body was looked through."""
    assert await find(body) is None


@pytest.mark.parametrize(
    ("body", "content_type", "reason"),
    [
        (b"abcd", "multipart/form-data", "names no boundary"),
        (b"abcd" * 100, TYPE, "doesn't begin with its boundary"),
        (b"------B0undary\r\nX: " + b"x" * 20_000, TYPE, "header"),
        (MODEL.replace(b"whisper-1\r\n", b"w" * 5000), TYPE, "'model'"),
    ],
    ids=["no boundary", "other boundary", "long header", "long field"],
)
async def test_what_is_no_multipart_is_refused(body: bytes, content_type: str, reason: str) -> None:
    """A 400 that says why."""
    with pytest.raises(BadRequest, match=reason):
        await find(body, content_type=content_type)
