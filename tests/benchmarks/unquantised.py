"""A model file whose weights are F16, for llama-servers that lack a processor's quantised code."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
from gguf.quants import dequantize

_MADE_BY_THE_WRITER = ("GGUF.", "general.architecture", "general.file_type")
_F32 = gguf.GGMLQuantizationType.F32
_F16 = gguf.GGMLQuantizationType.F16


def unquantised(source: Path, folder: Path) -> Path:
    """Return `source` with F16 for every quantised tensor; made once and kept in `folder`."""
    path = folder / f"{source.stem}-f16.gguf"
    if not path.exists():
        draft = path.with_suffix(".draft")
        _write(gguf.GGUFReader(source), draft)
        draft.replace(path)
    return path


def _write(reader: gguf.GGUFReader, path: Path) -> None:
    architecture = reader.fields["general.architecture"].contents()
    writer = gguf.GGUFWriter(path, architecture)
    for name, field in reader.fields.items():
        if not name.startswith(_MADE_BY_THE_WRITER):
            inner = field.types[-1] if len(field.types) > 1 else None
            writer.add_key_value(name, field.contents(), field.types[0], inner)
    for tensor in reader.tensors:
        if tensor.tensor_type in (_F32, _F16):
            data = np.array(tensor.data)
        else:
            data = dequantize(tensor.data, tensor.tensor_type).astype(np.float16)
        writer.add_tensor(tensor.name, data)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
