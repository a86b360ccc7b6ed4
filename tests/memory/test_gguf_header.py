"""The header of GGUF files: what is read of it, and what is refused."""

from __future__ import annotations

import random
import struct
import tracemalloc
from contextlib import suppress
from pathlib import Path

import gguf
import pytest

from llmsnap.errors import ModelFileError
from llmsnap.memory.gguf_header import read_header
from tests.helpers.llama import tiny_gguf
from tests.memory.gguf_files import blocks, head, llama, text, write_gguf


def test_a_real_file_reads_as_the_gguf_package_reads_it() -> None:
    """Every tensor with its place and size, every number, the length of every list."""
    path = tiny_gguf()
    theirs = gguf.GGUFReader(path)

    ours = read_header(path)

    assert [(t.name, t.size_bytes, t.offset) for t in ours.tensors] == [
        (t.name, int(t.n_bytes), int(t.data_offset)) for t in theirs.tensors
    ]
    assert [t.shape for t in ours.tensors] == [tuple(map(int, t.shape)) for t in theirs.tensors]
    for key, value in ours.values.items():
        read = theirs.fields[key].contents()
        assert value == (tuple(read) if isinstance(read, list) else read)
    assert ours.lengths == {
        key: len(field.data)
        for key, field in theirs.fields.items()
        if field.types[:1] == [gguf.GGUFValueType.ARRAY]
    }


def test_types_take_what_the_gguf_package_says() -> None:
    """Of every type that both know."""
    from llmsnap.memory.ggml_types import TYPES

    theirs = {int(kind): sizes for kind, sizes in gguf.GGML_QUANT_SIZES.items()}
    for number, kind in TYPES.items():
        assert (kind.block, kind.block_bytes) == theirs[number], kind.name


def test_lists_a_layer_are_kept_and_lists_a_token_are_counted(tmp_path: Path) -> None:
    """A vocabulary would be megabytes."""
    values = llama(heads_kv=[4, 0, 4, 4], tokens=5000) | {"tokenizer.ggml.token_type": [1] * 5000}

    header = read_header(write_gguf(tmp_path / "m.gguf", values))

    assert header.numbers("attention.head_count_kv") == (4, 0, 4, 4)
    assert header.lengths["tokenizer.ggml.tokens"] == 5000
    assert "tokenizer.ggml.token_type" not in header.values


def test_a_type_that_is_not_known_is_as_large_as_its_place(tmp_path: Path) -> None:
    """New quantisations come every month."""
    path = write_gguf(tmp_path / "m.gguf", llama(), blocks(1))
    data = path.read_bytes()
    known = text("blk.0.attn_q.weight") + struct.pack("<IQQ", 2, 256, 256)
    path.write_bytes(data.replace(known + struct.pack("<I", 1), known + struct.pack("<I", 999)))

    tensors = {tensor.name: tensor for tensor in read_header(path).tensors}

    assert tensors["blk.0.attn_q.weight"].type_name == ""
    assert tensors["blk.0.attn_q.weight"].size_bytes == 256 * 256 * 2


@pytest.mark.parametrize(
    ("data", "words"),
    [
        pytest.param(b"", "cut off", id="empty"),
        pytest.param(b"PK\3\4" + b"\0" * 100, "no GGUF file", id="a zip"),
        pytest.param(b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "big-endian", id="big-endian"),
        pytest.param(b"GGUF" + struct.pack("<IQQ", 1, 0, 0), "version 1", id="old"),
        pytest.param(b"GGUF" + struct.pack("<IQQ", 3, 2**60, 0), "tensors", id="tensors"),
        pytest.param(b"GGUF" + struct.pack("<IQQ", 3, 70_000, 0), "70000 tensors", id="many"),
        pytest.param(b"GGUF" + struct.pack("<IQQ", 3, 0, 2**60), "keys", id="keys"),
        pytest.param(
            b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + struct.pack("<Q", 2**40),
            "a name in it",
            id="long name",
        ),
        pytest.param(
            b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + text("k") + struct.pack("<IIQ", 9, 8, 2**62),
            "items",
            id="many texts",
        ),
        pytest.param(
            b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + text("k") + struct.pack("<IIQ", 9, 5, 2**62),
            "cut off",
            id="many numbers",
        ),
        pytest.param(
            b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + text("k") + struct.pack("<IQ", 8, 2**63),
            "cut off",
            id="long text",
        ),
        pytest.param(
            b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + text("k") + struct.pack("<I", 77),
            "unknown type 77",
            id="unknown type",
        ),
        pytest.param(
            b"GGUF" + struct.pack("<IQQ", 3, 1, 0) + text("t") + struct.pack("<I", 2**31),
            "dimensions",
            id="dimensions",
        ),
        pytest.param(head({"general.alignment": 0})[0], "alignment", id="alignment"),
    ],
)
def test_what_is_wrong_is_said(tmp_path: Path, data: bytes, words: str) -> None:
    """With the file's name, and without taking memory for what isn't there."""
    path = tmp_path / "bad.gguf"
    path.write_bytes(data)
    tracemalloc.start()
    try:
        with pytest.raises(ModelFileError, match=rf"'{path}' .*{words}"):
            read_header(path)
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()


def test_a_file_that_is_cut_off_says_so(tmp_path: Path) -> None:
    """A download that broke off is the usual case."""
    path = write_gguf(tmp_path / "m.gguf", llama(), blocks(2))
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size - 1000)

    with pytest.raises(ModelFileError, match=r"cut off: tensor 'output.weight' ends at byte"):
        read_header(path)


def test_a_header_without_end_is_not_read_to_it(tmp_path: Path) -> None:
    """A hole of a terabyte is a file like any other."""
    data = b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + text("k") + struct.pack("<IIQ", 9, 0, 2**39)
    path = tmp_path / "hole.gguf"
    with path.open("wb") as file:
        file.write(data)
        file.truncate(2**40)

    with pytest.raises(ModelFileError, match="header is larger"):
        read_header(path)


def test_damage_anywhere_ends_in_a_clear_error(tmp_path: Path) -> None:
    """Or in numbers that happen to be right; never in another exception."""
    data = head(llama(tokens=20), blocks(2))[0]
    path = tmp_path / "damaged.gguf"
    rng = random.Random(4)
    for _ in range(400):
        damaged = bytearray(data[: rng.randrange(24, len(data) + 1)])
        for _ in range(rng.randrange(1, 6)):
            damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        path.write_bytes(damaged)
        with suppress(ModelFileError):
            read_header(path)
