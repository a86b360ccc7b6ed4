"""What a model inherits from the global settings, and whether its own values make sense."""

from __future__ import annotations

import signal
import sys
from typing import Any, Final

from msgspec import structs

from llmsnap.config.argv import default_cmd_stop
from llmsnap.config.decode import Decoder
from llmsnap.config.faults import Fault
from llmsnap.config.schema import Compat, Config, ModelConfig
from llmsnap.config.sections import Filters
from llmsnap.config.sleep import check_sleep, finished_sleep
from llmsnap.config.upstreams import url_fault
from llmsnap.config.yamlnodes import MapNode, line_of

_COMFYUI: Final = "comfyui_auto"
"""The model id behind `/comfyui/`, whose page opens many connections at once."""
_COMFYUI_CONNECTIONS: Final = 50
_PROTECTED: Final = "model"
"""Which key no filter may touch."""


def finish_model(
    id_: str, model: ModelConfig, body: MapNode, settings: Config, decoder: Decoder
) -> ModelConfig:
    """Return `model`, read from `body`, checked and with what it inherits. Raises Fault."""
    path = f"models.{id_}"
    if not model.cmd:
        message = "the model has no cmd, every request for it will fail; give it one"
        decoder.note(message, line=body.line, path=path)
    _check_texts(model, body, path)
    check_sleep(model, body, path, settings, decoder)
    return structs.replace(
        model,
        **_inherited(model, body, settings),
        cmd_stop=model.cmd_stop or default_cmd_stop(sys.platform),
        env=_environment(model, body, path, decoder),
        filters=tidied_filters(model.filters),
        concurrency_limit=_concurrency_limit(id_, model.concurrency_limit),
        compat=_compat(id_, model.compat),
        stop_signal=_signal_name(model.stop_signal, body, path),
        **finished_sleep(model, body, settings),
    )


def tidied_filters(filters: Filters) -> Filters:
    """Return `filters` in order, and without the key that none may touch."""
    names = {name.strip() for name in filters.strip_params} - {"", _PROTECTED}
    return structs.replace(
        filters,
        strip_params=tuple(sorted(names)),
        set_params=_unprotected(filters.set_params),
        set_params_by_id={
            id_: _unprotected(more) for id_, more in filters.set_params_by_id.items()
        },
    )


def _inherited(model: ModelConfig, body: MapNode, settings: Config) -> dict[str, Any]:
    values: dict[str, Any] = {}
    if body.get("ttl") is None:
        values["ttl_s"] = settings.global_ttl_s
    if model.unload_timeout_s == 0 or body.get("unloadTimeout") is None:
        values["unload_timeout_s"] = settings.unload_timeout_s
    if body.get("sendLoadingState") is None:
        values["send_loading_state"] = settings.send_loading_state
    return values


def _check_texts(model: ModelConfig, body: MapNode, path: str) -> None:
    for key, value in (
        ("cmd", model.cmd),
        ("cmdStop", model.cmd_stop),
        ("env", "".join(model.env)),
    ):
        if "\0" in value:
            message = "a NUL character can't be handed to a program; take it out"
            raise Fault(message, line=line_of(body, key), path=f"{path}.{key}")
    if body.get("proxy") is not None and (fault := url_fault(model.proxy)):
        raise Fault(fault, line=line_of(body, "proxy"), path=f"{path}.proxy")


def _environment(model: ModelConfig, body: MapNode, path: str, decoder: Decoder) -> tuple[str, ...]:
    """Return the `NAME=value` entries; what isn't one is left out with a note."""
    kept = []
    for index, entry in enumerate(model.env):
        if entry.find("=") > 0:
            kept.append(entry)
        else:
            message = "the entry isn't NAME=value and is ignored; write NAME=value"
            line = line_of(body, "env", index)
            decoder.note(message, line=line, path=f"{path}.env[{index}]")
    return tuple(kept)


def _unprotected(params: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in params.items() if key != _PROTECTED}


def _concurrency_limit(id_: str, limit: int) -> int:
    if limit <= 0:
        return 0
    return max(limit, _COMFYUI_CONNECTIONS) if id_ == _COMFYUI else limit


def _compat(id_: str, compat: Compat) -> Compat:
    return structs.replace(compat, ignore_websockets=True) if id_ == _COMFYUI else compat


def _signal_name(name: str, body: MapNode, path: str) -> str:
    """Return `name` in its long form: `term`, `15` and `SIGTERM` are all `SIGTERM`."""
    known = {signal_.name: signal_ for signal_ in signal.Signals}
    numbers = {str(signal_.value): signal_.name for signal_ in known.values()}
    long_name = numbers.get(name, "SIG" + name.upper().removeprefix("SIG"))
    if long_name not in known:
        message = f"{name!r} isn't a signal of this system; write one such as SIGTERM or SIGINT"
        raise Fault(message, line=line_of(body, "stopSignal"), path=f"{path}.stopSignal")
    return long_name
