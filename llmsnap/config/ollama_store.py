"""Models in Ollama's store: manifests that say which blobs a model is made of."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from llmsnap.config.generated import FoundModel, config_text
from llmsnap.config.quantities import rough_size
from llmsnap.errors import ConfigError

_LAYER: Final = "application/vnd.ollama.image."
_OPTIONS: Final[Mapping[str, str]] = {
    "num_ctx": "--ctx-size",
    "num_batch": "--batch-size",
    "num_gpu": "--n-gpu-layers",
    "num_thread": "--threads",
    "num_predict": "--n-predict",
    "num_keep": "--keep",
    "temperature": "--temp",
    "top_k": "--top-k",
    "top_p": "--top-p",
    "min_p": "--min-p",
    "repeat_penalty": "--repeat-penalty",
    "repeat_last_n": "--repeat-last-n",
    "presence_penalty": "--presence-penalty",
    "frequency_penalty": "--frequency-penalty",
    "seed": "--seed",
}
"""Parameters of a Modelfile that llama-server takes as defaults."""
_REGISTRY: Final = "registry.ollama.ai"


class _Layer(msgspec.Struct):
    media_type: str = msgspec.field(name="mediaType")
    digest: str
    size: int = 0


class _Manifest(msgspec.Struct):
    layers: list[_Layer] = msgspec.field(default_factory=list)


def is_store(folder: Path) -> bool:
    """Whether `folder` is Ollama's store of models."""
    return (folder / "manifests").is_dir() and (folder / "blobs").is_dir()


def store_text(folder: Path) -> str:
    """Return a configuration of the models in the store. Raises ConfigError when it has none."""
    models = [*models_in_store(folder.absolute())]
    if not models:
        raise ConfigError(f"{folder}: no model in this store; `ollama pull` one, or name another")
    heading = [
        f"The models in Ollama's store {folder}.",
        "Their files stay where they are: `ollama rm` takes them away from here, too.",
        "Templates are those of the model files, for llama-server doesn't read Ollama's.",
    ]
    return config_text(models, heading)


def models_in_store(folder: Path) -> Iterator[FoundModel]:
    """Yield the models whose files are all there, by name."""
    manifests = folder / "manifests"
    for path in sorted(path for path in manifests.rglob("*") if path.is_file()):
        try:
            layers = msgspec.json.decode(path.read_bytes(), type=_Manifest).layers
        except (OSError, msgspec.DecodeError):
            continue  # what else lies there is no model
        name = model_name(path.relative_to(manifests).parts)
        if name and (model := _model(folder, name, layers)):
            yield model


def model_name(parts: tuple[str, ...]) -> str:
    """Return what Ollama calls the model of a manifest at `parts`; empty: it is none."""
    if len(parts) != 4:
        return ""
    host, namespace, model, tag = parts
    owner = "" if namespace == "library" else f"{namespace}/"
    where = "" if host == _REGISTRY else f"{host}/{namespace}/"
    return f"{where or owner}{model}:{tag}"


def _model(folder: Path, name: str, layers: list[_Layer]) -> FoundModel | None:
    blobs: dict[str, list[Path]] = {}
    for layer in layers:
        kind = layer.media_type.removeprefix(_LAYER)
        blobs.setdefault(kind, []).append(folder / "blobs" / layer.digest.replace(":", "-"))
    weights = blobs.get("model", [])
    if not weights or not all(path.is_file() for path in weights):
        return None
    options: list[tuple[str, ...]] = [("--model", str(weights[0]))]
    options += [("--mmproj", str(path)) for path in blobs.get("projector", [])[:1]]
    options += [("--lora", str(path)) for path in blobs.get("adapter", [])]
    parameters = _parameters(blobs.get("params", []))
    options += [(_OPTIONS[key], str(parameters[key])) for key in _OPTIONS if key in parameters]
    size = sum(layer.size for layer in layers)
    return FoundModel(
        name=name,
        options=tuple(options),
        notes=(rough_size(size), *_notes(parameters, blobs)),
        aliases=(name.removesuffix(":latest"),) if name.endswith(":latest") else (),
    )


def _parameters(paths: list[Path]) -> dict[str, Any]:
    for path in paths:
        try:
            return msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
        except (OSError, msgspec.DecodeError):
            continue
    return {}


def _notes(parameters: Mapping[str, Any], blobs: Mapping[str, list[Path]]) -> Iterator[str]:
    """Yield what of a model can't be said on llama-server's command line."""
    left = {key: value for key, value in parameters.items() if key not in _OPTIONS}
    if left:
        yield f"not taken over, requests must say it: {msgspec.json.encode(left).decode()}"
    if "system" in blobs:
        yield f"its system prompt is in {blobs['system'][0]}; requests must bring it"
