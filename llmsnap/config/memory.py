"""Which memory a model says it needs, and whether what is pinned fits."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Final

from llmsnap.config.decode import Decoder
from llmsnap.config.faults import Fault, nearest
from llmsnap.config.quantities import size_text
from llmsnap.config.schema import Config, ModelConfig
from llmsnap.config.yamlnodes import MapNode, line_of

HOST: Final = "host"
"""The device of ordinary memory; all others are GPUs, `gpu0`, `gpu1` and so on."""
_DEVICE: Final = re.compile(r"host|gpu(?:0|[1-9][0-9]*)")
_LEAST_BYTES: Final = 2**20
"""Less than this is nobody's memory: a number without its unit."""
_VISIBLE: Final = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")

_PINNED_UNKNOWN: Final = (
    "how much it needs isn't known, so no other model can be up beside it; write its ram or vram"
)


def declared_need(model: ModelConfig, devices: Collection[str]) -> dict[str, int] | None:
    """Return the bytes a device that `model` says it needs while awake; None: it doesn't say.

    `devices` are those that have a budget. A `vram` that names no device is for the one GPU that
    the model's environment selects, else for the only one there is. Raises ValueError when that
    leaves a choice.
    """
    if model.ram_bytes is None and model.vram is None:
        return None
    need = {} if model.ram_bytes is None else {HOST: model.ram_bytes}
    if isinstance(model.vram, Mapping):
        return need | model.vram
    if model.vram is not None:
        need[_only_gpu(model, devices)] = model.vram
    return need


def visible_gpus(env: Mapping[str, str], devices: Collection[str]) -> tuple[str, ...]:
    """Return the GPUs that a process with this environment uses, in its own order.

    `devices` are those there are, for an environment that says nothing, or names them by UUID.
    """
    for name in _VISIBLE:
        if name not in env:
            continue
        found: list[str] = []
        for index in map(str.strip, env[name].split(",")):
            if not index.isdecimal():
                break  # as CUDA does: what follows doesn't count; `-1` and nothing hide all
            found.append(f"gpu{int(index)}")
        if found or not env[name].strip().startswith(("GPU-", "MIG-")):
            return tuple(found)
    return tuple(sorted((d for d in devices if d != HOST), key=lambda d: (len(d), d)))


def check_memory(config: Config, root: MapNode, decoder: Decoder) -> None:
    """Raise Fault when pinned models don't fit together; note what is odd or can never fit."""
    _note_odd_amounts(config, root, decoder)
    budgets = config.memory.devices if config.memory.mode == "auto" else {}
    pinned: dict[str, dict[str, int]] = {}
    for id_, model in config.models.items():
        key = "vram" if model.vram is not None else "ram"
        line, path = line_of(root, "models", id_, key), f"models.{id_}.{key}"
        try:
            need = declared_need(model, budgets)
        except ValueError as error:
            raise Fault(str(error), line=line, path=path) from None
        if need is None and model.pinned and budgets:
            decoder.note(_PINNED_UNKNOWN, line=line, path=f"models.{id_}.pinned")
        for device, size in (need or {}).items():
            if model.pinned:
                pinned.setdefault(device, {})[id_] = size
            if message := _note(device, size, budgets):
                decoder.note(message, line=line, path=path)
    for device, sizes in pinned.items():
        _check_pinned(device, sizes, budgets, root)


def _note_odd_amounts(config: Config, root: MapNode, decoder: Decoder) -> None:
    for keys, size in _amounts(config):
        line, path = line_of(root, *keys), ".".join(keys)
        if keys[-2] in ("devices", "reserve") and not _DEVICE.fullmatch(keys[-1]):
            message = f"{keys[-1]!r} isn't a device; there are host, gpu0, gpu1 and so on"
            decoder.note(message, line=line, path=path)
        if 0 < size < _LEAST_BYTES:
            message = f"these are {size} bytes; write the unit too, as in {size}GiB or {size}MiB"
            decoder.note(message, line=line, path=path)


def _amounts(config: Config) -> Iterator[tuple[tuple[str, ...], int]]:
    """Yield the sizes of memory in the file, each with the keys that lead to it."""
    yield from _each(("memory", "devices"), config.memory.devices)
    yield from _each(("memory", "reserve"), config.memory.reserve)
    yield from _each(("sleep", "ramBudget"), config.sleep.ram_budget_bytes)
    for id_, model in config.models.items():
        yield from _each(("models", id_, "ram"), model.ram_bytes)
        yield from _each(("models", id_, "vram"), model.vram)


def _each(
    keys: tuple[str, ...], given: int | Mapping[str, int] | None
) -> Iterator[tuple[tuple[str, ...], int]]:
    if isinstance(given, Mapping):
        yield from (((*keys, device), size) for device, size in given.items())
    elif given is not None:
        yield keys, given


def _check_pinned(
    device: str, sizes: Mapping[str, int], budgets: Mapping[str, int], root: MapNode
) -> None:
    total = sum(sizes.values())
    if device not in budgets or total <= budgets[device]:
        return
    message = (
        f"the pinned models {', '.join(sizes)} need {size_text(total)} of {device!r}, which has "
        f"{size_text(budgets[device])}; raise it, or pin fewer"
    )
    line = line_of(root, "memory", "devices", device)
    raise Fault(message, line=line, path=f"memory.devices.{device}")


def _only_gpu(model: ModelConfig, devices: Collection[str]) -> str:
    gpus = [device for device in devices if device != HOST]
    environment = dict(entry.split("=", 1) for entry in model.env)
    for name in _VISIBLE:
        indexes = [index.strip() for index in environment.get(name, "").split(",")]
        if len(indexes) == 1 and indexes[0].isdecimal():
            return f"gpu{int(indexes[0])}"
        if len(indexes) > 1:
            gpus = [f"gpu{index}" for index in indexes]
            break
    if len(gpus) > 1:
        each = ", ".join(f"{gpu}: …" for gpu in gpus)
        raise ValueError(f"there are several GPUs; say how much on which, as in {{{each}}}")
    return gpus[0] if gpus else "gpu0"


def _note(device: str, size: int, budgets: Mapping[str, int]) -> str:
    """Return what is odd about needing `size` bytes of `device`; empty: nothing."""
    if not budgets:
        return ""
    if device not in budgets:
        suggestion = nearest(device, budgets)
        remedy = f"did you mean {suggestion!r}?" if suggestion else "give it a budget there"
        return f"memory.devices has no {device!r}; {remedy}"
    if size > budgets[device]:
        return (
            f"{size_text(size)} of {device!r} can never fit in its {size_text(budgets[device])}; "
            "raise memory.devices, or shrink the model"
        )
    return ""
