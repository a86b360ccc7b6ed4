"""What Ollama's clients are told of models, without asking any of them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from math import isfinite
from typing import Any, Final

from llmsnap.config.schema import Capabilities, ModelConfig

Record = dict[str, Any]

FOR_EVER: Final = "9999-12-31T23:59:59Z"
"""When a model without a `ttl` expires."""
VERSION: Final = "0.12.6"
"""The version of Ollama whose API this is; clients refuse older ones."""

_EMBEDS: Final = frozenset({"--embedding", "--embeddings"})


def moment(at: datetime) -> str:
    """Return a moment as RFC 3339 has it."""
    return at.astimezone(UTC).isoformat().replace("+00:00", "Z")


def now() -> str:
    """Return this moment."""
    return moment(datetime.now(UTC))


def details_of(model: ModelConfig) -> Record:
    """Return what kind of model it is; what the configuration doesn't say is empty."""
    said: Mapping[str, Any] = model.metadata
    family = str(said.get("family", ""))
    return {
        "parent_model": "",
        "format": "gguf",
        "family": family,
        "families": [family] if family else None,
        "parameter_size": str(said.get("parameter_size", "")),
        "quantization_level": str(said.get("quantization_level", "")),
    }


def tag_of(name: str, id_: str, model: ModelConfig, *, size: int, since: str) -> Record:
    """Return the record of a model in `/api/tags`; `size` in bytes, as far as known."""
    text = f"{id_}\0{model.cmd}"
    return {
        "name": name,
        "model": name,
        "modified_at": since,
        "size": size,
        "digest": hashlib.sha256(text.encode()).hexdigest(),
        "details": details_of(model),
    }


def running_of(tag: Mapping[str, Any], model: ModelConfig, *, vram: int, left_s: float) -> Record:
    """Return the record of a model in `/api/ps`; infinite `left_s`: it stays for ever."""
    expires = FOR_EVER
    if isfinite(left_s):
        expires = moment(datetime.now(UTC) + timedelta(seconds=left_s))
    kept = {key: tag[key] for key in ("name", "model", "size", "digest", "details")}
    context = model.capabilities.context or 0
    return {**kept, "expires_at": expires, "size_vram": vram, "context_length": context}


def shown_of(id_: str, model: ModelConfig, *, since: str) -> Record:
    """Return the answer to `/api/show`, without the command, which may hold secrets."""
    family = str(model.metadata.get("family", "")) or "llama"
    info: Record = {"general.architecture": family, "general.basename": id_}
    if context := model.capabilities.context:
        info[f"{family}.context_length"] = context
    return {
        "license": "",
        "modelfile": f"FROM {id_}",
        "parameters": "",
        "template": "",
        "details": details_of(model),
        "model_info": info,
        "capabilities": abilities_of(model),
        "modified_at": since,
    }


def abilities_of(model: ModelConfig) -> list[str]:
    """Return Ollama's words for what a model can do.

    When the configuration doesn't say, tools are among it: llama-server's templates mostly can.
    """
    can = model.capabilities
    if _EMBEDS & set(model.cmd.split()):
        return ["embedding"]
    able = ["completion"]
    if can.tools or can == Capabilities():
        able.append("tools")
    if "image" in can.in_ or "--mmproj" in model.cmd.split():
        able.append("vision")
    return able
