"""Ollama's store, as a configuration."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from llmsnap.config.argv import split_command
from llmsnap.config.loader import loads
from llmsnap.config.ollama_store import is_store, model_name, models_in_store, store_text
from llmsnap.errors import ConfigError


def blob(store: Path, kind: str, content: bytes) -> dict[str, object]:
    """Put a blob into the store; return its layer."""
    digest = hashlib.sha256(content).hexdigest()
    (store / "blobs").mkdir(parents=True, exist_ok=True)
    (store / "blobs" / f"sha256-{digest}").write_bytes(content)
    media_type = f"application/vnd.ollama.image.{kind}"
    return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": len(content)}


def manifest(store: Path, name: str, *layers: dict[str, object]) -> None:
    """Put a model into the store."""
    path = store / "manifests" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"schemaVersion": 2, "layers": layers}))


def test_a_model_is_its_weights_projector_and_parameters(tmp_path: Path) -> None:
    """What llama-server can't be told is a comment."""
    manifest(
        tmp_path,
        "registry.ollama.ai/library/llava/latest",
        blob(tmp_path, "model", b"GGUF weights"),
        blob(tmp_path, "projector", b"GGUF projector"),
        blob(tmp_path, "params", b'{"num_ctx": 8192, "temperature": 0.5, "stop": ["</s>"]}'),
        blob(tmp_path, "system", b"Be kind."),
    )
    text = store_text(tmp_path)
    model = loads(text).config.models["llava:latest"]
    words = split_command(model.cmd)

    assert is_store(tmp_path)
    assert model.aliases == ("llava",)
    assert Path(words[words.index("--model") + 1]).read_bytes() == b"GGUF weights"
    assert Path(words[words.index("--mmproj") + 1]).read_bytes() == b"GGUF projector"
    assert words[words.index("--ctx-size") + 1] == "8192"
    assert words[words.index("--temp") + 1] == "0.5"
    assert '# not taken over, requests must say it: {"stop":["</s>"]}' in text
    assert "its system prompt is in" in text


def test_what_is_no_whole_model_is_left_out(tmp_path: Path) -> None:
    """A blob that is still being fetched, say, or a file of the desktop."""
    layer = blob(tmp_path, "model", b"x")
    (tmp_path / "blobs" / str(layer["digest"]).replace(":", "-")).unlink()
    manifest(tmp_path, "registry.ollama.ai/library/a/latest", layer)
    (tmp_path / "manifests/.DS_Store").write_bytes(b"\0")

    assert not [*models_in_store(tmp_path)]
    with pytest.raises(ConfigError, match="no model in this store"):
        store_text(tmp_path)


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("registry.ollama.ai/library/llama3/8b", "llama3:8b"),
        ("registry.ollama.ai/me/mine/latest", "me/mine:latest"),
        ("hf.co/org/model-GGUF/Q4_K_M", "hf.co/org/model-GGUF:Q4_K_M"),
        ("odd/file", ""),
    ],
)
def test_names_are_ollamas(path: str, name: str) -> None:
    """Hosts and owners are left out where Ollama leaves them out."""
    assert model_name(tuple(path.split("/"))) == name
