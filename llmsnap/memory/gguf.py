"""Estimates what a llama-server will need, from its model file's header and its command.

It is an estimate: no more than 15 % over what is measured for plain models, and never below it.
docs/memory.md shows it beside measured figures.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from llmsnap.config.argv import split_command
from llmsnap.config.memory import HOST, visible_gpus
from llmsnap.config.parts import parts_of
from llmsnap.config.schema import ModelConfig
from llmsnap.errors import ModelFileError
from llmsnap.memory.compute_buffers import compute_of, overhead_of
from llmsnap.memory.gguf_header import Header, read_header
from llmsnap.memory.kv_cache import cache_of, checkpoint_bytes, context_for, swa_full_bytes
from llmsnap.memory.layout import layout_for
from llmsnap.memory.llama_flags import Flags, read_flags
from llmsnap.memory.model_shape import Shape, shape_of
from llmsnap.memory.weights import repacked_types, weights_of

_MIB: Final = 1024**2
_KEPT_MIB: Final = 8192
"""Of past conversations, if nobody says how much."""
_CHECKPOINTS_AT_ONCE: Final = 2
"""That one prompt leaves behind; more come with the conversation."""
_CONTEXT, _LAYERS = "-c", "-ngl"


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What an estimate for one device is made of, in bytes."""

    weights: int = 0
    kv: int = 0
    """The cache of keys and values, the state of recurrent layers, and copies of both."""
    compute: int = 0
    overhead: int = 0
    """The process itself, its vocabulary, a GPU's context."""

    @property
    def total(self) -> int:
        """All of it."""
        return self.weights + self.kv + self.compute + self.overhead


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """What one model will need while awake."""

    parts: Mapping[str, Parts]
    """By device."""
    growth: Mapping[str, int]
    """Bytes that may come later: llama-server's own cache of conversations, in RAM."""
    certain: Mapping[str, int]
    """Bytes a device that are sure: the weights, where they can't go elsewhere."""
    saved_by_no_mmap: int = 0
    """Bytes of RAM that hold weights which are also elsewhere."""
    unset: tuple[str, ...] = ()
    """What llama-server chooses by what is free when it starts, as the command says nothing."""
    is_bounded: bool = True
    """Whether the command says how much it may keep of past conversations."""
    swa_full_bytes: int | None = None
    """What `--swa-full` would add; None: it is there, or the model has no sliding window."""
    is_recurrent: bool = False
    """Whether some layers keep a state instead of what they have seen."""
    notes: tuple[str, ...] = ()
    """What may make it wrong, in words for the operator."""

    @property
    def need(self) -> Mapping[str, int]:
        """Bytes a device."""
        return {device: parts.total for device, parts in self.parts.items() if parts.total}

    @property
    def fitted(self) -> bool:
        """Whether it takes less when less is free; the estimate is of all that it would like."""
        return bool(self.unset)


def estimate_for(
    model: ModelConfig,
    devices: Collection[str],
    environ: Mapping[str, str],
    *,
    gpus: Sequence[str] | None = None,
    repacked: Collection[str] | None = None,
) -> Estimate | None:
    """Return what `model` will need; None: its command names no GGUF file that is here.

    `devices` are those that there are, `environ` is what its process inherits. `gpus` are those it
    uses, in its own order; None: as its environment says. `repacked` are the types of which the
    processor gets a second copy; None: as this machine's. Reads files: some milliseconds, with a
    large vocabulary 50. Raises ModelFileError and OSError.
    """
    env = {**environ, **dict(entry.partition("=")[::2] for entry in model.env)}
    flags = read_flags(split_command(model.cmd), env)
    if not flags.model or not _is_there(flags.model):
        return None
    sums = _Sums(
        repacked_types() if repacked is None else repacked,
        visible_gpus(env, devices) if gpus is None else gpus,
    )
    sums.add_model(flags)
    if flags.draft and _is_there(flags.draft.model):
        sums.add_model(flags.draft)
    sums.add_companions(flags)
    return sums.estimate(flags)


class _Sums:
    """Adds up what a server's models need."""

    def __init__(self, repacked: Collection[str], gpus: Collection[str]) -> None:
        self._repacked = repacked
        self._gpus = tuple(gpus)
        self._parts: dict[str, dict[str, int]] = {HOST: {}}
        self._saved = 0
        self._checkpoint = 0
        self._notes: list[str] = []
        self._process_counted = False
        self._swa_full: int | None = None
        self._is_recurrent = False

    def add_model(self, flags: Flags) -> None:
        """Add a language model: the one that answers, or the one that drafts."""
        headers = _headers(flags.model)
        shape = shape_of(headers[0])
        layout = layout_for(flags, len(shape.layers), self._gpus)
        context = context_for(flags, shape)
        weights, saved = weights_of(headers, flags, layout, self._repacked)
        self._saved += saved
        self._checkpoint += checkpoint_bytes(flags, shape)
        self._add("weights", weights)
        self._add("kv", cache_of(flags, shape, layout, context))
        self._add("compute", compute_of(flags, shape, layout, context))
        if not self._process_counted:
            self._add("overhead", overhead_of(flags, shape, layout, context))
            self._swa_full = swa_full_bytes(flags, shape, layout)
            self._is_recurrent = not shape.is_plain
            self._process_counted = True
        self._notes += _notes(flags, shape, layout.gpus)

    def add_companions(self, flags: Flags) -> None:
        """Add the image projector and adapters, as far as they are here."""
        if flags.mmproj and _is_there(flags.mmproj):
            gpu = self._gpus[0] if self._gpus and flags.mmproj_offload else HOST
            size = Path(flags.mmproj).stat().st_size
            self._add("weights", {gpu: size})
            self._add("compute", {gpu: size})
            self._notes.append("what the image projector computes with is a guess")
        for path in filter(_is_there, flags.loras):
            self._add("weights", {(self._gpus or (HOST,))[0]: Path(path).stat().st_size})

    def estimate(self, flags: Flags) -> Estimate:
        """Return the sums."""
        at_once = min(flags.checkpoints, _CHECKPOINTS_AT_ONCE) * flags.parallel
        self._add("kv", {HOST: self._checkpoint * at_once})
        later = self._checkpoint * (flags.checkpoints * flags.parallel - at_once)
        kept_mib = _KEPT_MIB if flags.cache_ram_mib is None else flags.cache_ram_mib
        later += 0 if flags.pooled else max(0, kept_mib) * _MIB
        parts = {device: Parts(**sizes) for device, sizes in self._parts.items()}
        unset = tuple(_unset(flags, self._gpus))
        weights = Counter({device: part.weights for device, part in parts.items()})
        weights[HOST] -= self._saved  # the kernel drops what is there twice when it needs the room
        return Estimate(
            parts=parts,
            certain={} if _LAYERS in unset else +weights,
            growth={HOST: later} if later else {},
            saved_by_no_mmap=self._saved,
            unset=unset,
            is_bounded=flags.pooled
            or (flags.cache_ram_mib is not None and flags.cache_ram_mib >= 0),
            swa_full_bytes=self._swa_full,
            is_recurrent=self._is_recurrent,
            notes=tuple(dict.fromkeys(self._notes)),
        )

    def _add(self, part: str, needs: Mapping[str, int]) -> None:
        for device, size in needs.items():
            sizes = self._parts.setdefault(device, {})
            sizes[part] = sizes.get(part, 0) + size


def _headers(path: str) -> list[Header]:
    files = parts_of(path)
    missing = [file for file in files if not _is_there(file)]
    if missing:
        raise ModelFileError(f"{path!r} lacks its part {missing[0]!r}; fetch that, too")
    return [read_header(Path(file)) for file in files]


def _is_there(path: str) -> bool:
    try:
        return Path(path).is_file()
    except (OSError, ValueError):  # no name for a file
        return False


def _unset(flags: Flags, gpus: Collection[str]) -> Iterator[str]:
    """Yield the options that llama-server fits to what is free."""
    if flags.fit and flags.context is None:
        yield _CONTEXT
    if flags.fit and flags.layers is None and gpus:
        yield _LAYERS


def _notes(flags: Flags, shape: Shape, gpus: Collection[str]) -> Iterator[str]:
    if flags.cache_ram_mib is not None and flags.cache_ram_mib < 0:
        yield "llama-server keeps conversations in RAM without a limit (--cache-ram -1)"
    if not shape.is_plain:
        yield "it has recurrent layers: what they compute with is a guess"
    if gpus:
        yield "what a GPU's context takes is a guess"
