"""Which part of a model goes to which device, by llama.cpp's own rules."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Final

from llmsnap.config.memory import HOST
from llmsnap.memory.gguf_header import Tensor
from llmsnap.memory.llama_flags import Flags

_BLOCK: Final = re.compile(r"blk\.(\d+)\.")
_INPUTS: Final = ("token_embd", "per_layer_token_embd", "position_embd", "token_types")
_EXPERTS: Final = re.compile(r"\.ffn_(up|down|gate|gate_up)_(ch|)exps")
_DENSE: Final = re.compile(r"\.ffn_(up|down|gate)\.")
_ONE_GPU: Final = "none"


@dataclass(frozen=True, slots=True)
class Layout:
    """Where the layers of one model are.

    The output counts as the layer after the last one. What an override names goes where it says.
    """

    layers: tuple[str, ...]
    overrides: tuple[tuple[re.Pattern[str], str], ...]
    cpu_moe_layers: int
    cpu_ffn_layers: int

    @property
    def gpus(self) -> tuple[str, ...]:
        """The GPUs that hold layers, the first one first."""
        return tuple(dict.fromkeys(device for device in self.layers if device != HOST))

    @property
    def output(self) -> str:
        """Where the output is."""
        return self.layers[-1]

    def device_of(self, tensor: Tensor) -> str:
        """Return where `tensor` goes."""
        for pattern, device in self.overrides:
            if pattern.search(tensor.name):
                return device
        block = _BLOCK.search(tensor.name)
        if block is None:
            return HOST if tensor.name.startswith(_INPUTS) else self.output
        layer = int(block[1])
        if layer < self.cpu_moe_layers and _EXPERTS.search(tensor.name):
            return HOST
        if layer < self.cpu_ffn_layers and _DENSE.search(tensor.name):
            return HOST
        return self.layers[min(layer, len(self.layers) - 1)]


def layout_for(flags: Flags, layer_count: int, gpus: Sequence[str]) -> Layout:
    """Return where a model of `layer_count` layers goes on a machine with these `gpus`.

    Without `-ts` llama.cpp splits by what is free when it starts; here the parts are even.
    """
    used = _chosen(flags, gpus)
    parts = layer_count + 1
    on_gpus = min(parts if flags.layers is None else flags.layers, parts) if used else 0
    first = parts - on_gpus
    shares = list(flags.split[: len(used)]) + [0.0] * (len(used) - len(flags.split))
    if not any(shares):
        shares = [1.0] * len(used)
    ends = list(accumulate(share / sum(shares) for share in shares))
    layers = tuple(
        HOST
        if layer < first
        else used[min(bisect_right(ends, (layer - first) / on_gpus), len(used) - 1)]
        for layer in range(parts)
    )
    return Layout(
        layers=layers,
        overrides=tuple(_overrides(flags, gpus)),
        cpu_moe_layers=flags.cpu_moe_layers,
        cpu_ffn_layers=flags.cpu_ffn_layers,
    )


def _chosen(flags: Flags, gpus: Sequence[str]) -> Sequence[str]:
    if flags.device is not None:
        gpus = [gpu for name in flags.device if (gpu := _numbered(name, gpus))]
    if flags.split_mode == _ONE_GPU and gpus:
        return [gpus[min(flags.main_gpu, len(gpus) - 1)]]
    return gpus


def _overrides(flags: Flags, gpus: Sequence[str]) -> list[tuple[re.Pattern[str], str]]:
    found = []
    for pattern, buffer in flags.overrides:
        try:
            compiled = re.compile(pattern)
        except re.error:  # the server won't take it either
            continue
        found.append((compiled, _numbered(buffer, gpus) or HOST))
    return found


def _numbered(name: str, gpus: Sequence[str]) -> str | None:
    """Return the GPU that llama.cpp calls `name`, as `CUDA1`; None: it is none of them."""
    match = re.fullmatch(r"[A-Za-z]+(\d+)", name.strip())
    if match is None or int(match[1]) >= len(gpus):
        return None
    return gpus[int(match[1])]
