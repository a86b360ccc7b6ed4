"""What a llama-server's command and environment say about memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

from llmsnap.config.argv import llama_words

ALL_LAYERS: Final = 1 << 20
_AUTO_PARALLEL: Final = 4
_ON: Final = ("on", "enabled", "true", "1")
_OFF: Final = ("off", "disabled", "false", "0")

_VALUES: Final = {
    "model": ("MODEL", "-m", "--model"),
    "context": ("CTX_SIZE", "-c", "--ctx-size"),
    "parallel": ("N_PARALLEL", "-np", "--parallel"),
    "batch": ("BATCH", "-b", "--batch-size"),
    "ubatch": ("UBATCH", "-ub", "--ubatch-size"),
    "layers": ("N_GPU_LAYERS", "-ngl", "--gpu-layers", "--n-gpu-layers"),
    "type_k": ("CACHE_TYPE_K", "-ctk", "--cache-type-k"),
    "type_v": ("CACHE_TYPE_V", "-ctv", "--cache-type-v"),
    "split_mode": ("SPLIT_MODE", "-sm", "--split-mode"),
    "split": ("TENSOR_SPLIT", "-ts", "--tensor-split"),
    "main_gpu": ("MAIN_GPU", "-mg", "--main-gpu"),
    "device": ("DEVICE", "-dev", "--device"),
    "override": ("OVERRIDE_TENSOR", "-ot", "--override-tensor"),
    "cpu_moe_layers": ("N_CPU_MOE", "-ncmoe", "--n-cpu-moe"),
    "cpu_ffn_layers": ("N_CPU_FFN", "-ncffn", "--n-cpu-ffn"),
    "cache_ram": ("CACHE_RAM", "-cram", "--cache-ram"),
    "checkpoints": ("CTX_CHECKPOINTS", "-ctxcp", "--ctx-checkpoints", "--swa-checkpoints"),
    "load_mode": ("LOAD_MODE", "-lm", "--load-mode"),
    "mmproj": ("MMPROJ", "-mm", "--mmproj"),
    "lora": ("LORA", "--lora"),
    "draft": ("SPEC_DRAFT_MODEL", "-md", "--model-draft", "--spec-draft-model"),
    "draft_layers": (
        "N_GPU_LAYERS_DRAFT",
        *("-ngld", "--gpu-layers-draft", "--n-gpu-layers-draft", "--spec-draft-ngl"),
    ),
    "draft_type_k": (
        "SPEC_DRAFT_CACHE_TYPE_K",
        *("-ctkd", "--cache-type-k-draft", "--spec-draft-type-k"),
    ),
    "draft_type_v": (
        "SPEC_DRAFT_CACHE_TYPE_V",
        *("-ctvd", "--cache-type-v-draft", "--spec-draft-type-v"),
    ),
}
"""Options with a value: the variable, without its `LLAMA_ARG_`, and how they are spelled."""
_SWITCHES: Final = {
    "mmap": ("MMAP", ("--mmap",), ("--no-mmap",)),
    "direct_io": ("DIO", ("-dio", "--direct-io"), ("-ndio", "--no-direct-io")),
    "repack": ("REPACK", ("--repack",), ("-nr", "--no-repack")),
    "kv_offload": ("KV_OFFLOAD", ("-kvo", "--kv-offload"), ("-nkvo", "--no-kv-offload")),
    "unified": ("KV_UNIFIED", ("-kvu", "--kv-unified"), ("-no-kvu", "--no-kv-unified")),
    "swa_full": ("SWA_FULL", ("--swa-full",), ()),
    "cpu_moe": ("CPU_MOE", ("-cmoe", "--cpu-moe"), ()),
    "mmproj_offload": ("MMPROJ_OFFLOAD", ("--mmproj-offload",), ("--no-mmproj-offload",)),
    "embedding": ("EMBEDDINGS", ("--embedding", "--embeddings"), ()),
    "reranking": ("RERANKING", ("--rerank", "--reranking"), ()),
    "flash": ("FLASH_ATTN", ("-fa", "--flash-attn"), ()),
    "fit": ("FIT", ("-fit", "--fit"), ()),
}
"""The name of the variable, what turns it on, what turns it off; a word of its own may follow."""

_SPELLED: Final = {word: name for name, (_, *words) in _VALUES.items() for word in words}
_SWITCHED: Final = {
    word: (name, value)
    for name, (_, on, off) in _SWITCHES.items()
    for words, value in ((on, "on"), (off, "off"))
    for word in words
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Flags:
    """The options of one llama-server that count; defaults are its own, of late 2026."""

    model: str = ""
    context: int | None = None
    """In tokens; 0: as the model was trained; None: the same, if that fits."""
    parallel: int = _AUTO_PARALLEL
    unified: bool = True
    """Whether all slots share one cache; each has its own part otherwise."""
    batch: int = 2048
    ubatch: int = 512
    layers: int | None = None
    """On GPUs; None: as many as fit."""
    type_k: str = "f16"
    type_v: str = "f16"
    split_mode: str = "layer"
    split: tuple[float, ...] = ()
    main_gpu: int = 0
    device: tuple[str, ...] | None = None
    """As llama.cpp calls them; `()`: none; None: all."""
    overrides: tuple[tuple[str, str], ...] = ()
    """Pattern of tensor names, and the buffer they go to; the first that matches counts."""
    cpu_moe_layers: int = 0
    cpu_ffn_layers: int = 0
    cache_ram_mib: int | None = None
    """Conversations kept in RAM beside the slots; -1: no limit; None: it isn't said."""
    checkpoints: int = 32
    """Most copies of a slot's state that are kept, with sliding windows and recurrent layers."""
    mmap: bool = True
    direct_io: bool = False
    """Whether the file is read past the page cache."""
    repack: bool = True
    kv_offload: bool = True
    swa_full: bool = False
    flash: bool = True
    pooled: bool = False
    """Whether it makes embeddings or ranks, and no text."""
    mmproj: str = ""
    mmproj_offload: bool = True
    loras: tuple[str, ...] = ()
    draft: Flags | None = None
    """The options of a second model that drafts; None: there is none."""
    in_python: bool = False
    """Whether it runs inside Python, as the demo's server does."""
    fit: bool = True
    """Whether what isn't said of context and layers is shrunk to what is free at the start."""

    @property
    def files(self) -> tuple[str, ...]:
        """The files that are named: models, projector, adapters."""
        draft = self.draft.model if self.draft else ""
        return tuple(filter(None, (self.model, draft, self.mmproj, *self.loras)))


def read_flags(argv: Sequence[str], env: Mapping[str, str]) -> Flags:
    """Return what `argv` says, else `LLAMA_ARG_…` in `env`; what makes no sense isn't said."""
    said = {**_of_environment(env), **_of_command(argv)}
    parallel = _number(said, "parallel", -1)
    on = {name: _is_on(said.get(name, "")) for name in _SWITCHES}
    flags = Flags(
        model=said.get("model", ""),
        context=_not_negative(said.get("context", "")),
        parallel=parallel if parallel > 0 else _AUTO_PARALLEL,
        unified=parallel <= 0 if on["unified"] is None else on["unified"],
        batch=max(1, _number(said, "batch", 2048)),
        ubatch=max(1, _number(said, "ubatch", 512)),
        layers=_layers(said.get("layers", "")),
        type_k=said.get("type_k", "f16"),
        type_v=said.get("type_v", "f16"),
        split_mode=said.get("split_mode", "layer"),
        split=_fractions(said.get("split", "")),
        main_gpu=max(0, _number(said, "main_gpu", 0)),
        device=_names(said["device"]) if "device" in said else None,
        overrides=_overrides(said.get("override", "")),
        cpu_moe_layers=ALL_LAYERS if on["cpu_moe"] else _number(said, "cpu_moe_layers", 0),
        cpu_ffn_layers=_number(said, "cpu_ffn_layers", 0),
        cache_ram_mib=_whole(said["cache_ram"], -1) if "cache_ram" in said else None,
        checkpoints=max(0, _number(said, "checkpoints", 32)),
        mmap=_maps(said.get("load_mode", ""), on["mmap"], on["direct_io"]),
        direct_io=bool(on["direct_io"]) or said.get("load_mode") == "dio",
        repack=on["repack"] is not False,
        kv_offload=on["kv_offload"] is not False,
        swa_full=on["swa_full"] is True,
        flash=on["flash"] is not False,
        pooled=bool(on["embedding"] or on["reranking"]),
        mmproj=said.get("mmproj", ""),
        mmproj_offload=on["mmproj_offload"] is not False,
        loras=_names(said.get("lora", "")),
        in_python=bool(argv) and "python" in argv[0].rpartition("/")[2],
        fit=on["fit"] is not False,
    )
    return replace(flags, draft=_draft(flags, said)) if "draft" in said else flags


def _draft(flags: Flags, said: Mapping[str, str]) -> Flags:
    """Return the options of the model that drafts: it shares the context, not the adapters."""
    return replace(
        flags,
        model=said["draft"],
        layers=_layers(said.get("draft_layers", "")),
        type_k=said.get("draft_type_k", "f16"),
        type_v=said.get("draft_type_v", "f16"),
        overrides=(),
        cpu_moe_layers=0,
        cpu_ffn_layers=0,
        kv_offload=True,
    )


def _of_command(argv: Sequence[str]) -> dict[str, str]:
    """Return the options by name; of one that is given twice the last counts, but for `-ot`."""
    said: dict[str, str] = {}
    for word, following in pairwise([*llama_words(argv), ""]):
        if name := _SPELLED.get(word):
            many = name in ("override", "lora") and name in said
            said[name] = f"{said[name]},{following}" if many else following
        elif word in _SWITCHED:
            name, value = _SWITCHED[word]
            said[name] = following if following in _ON + _OFF + ("auto",) else value
    return said


def _of_environment(env: Mapping[str, str]) -> dict[str, str]:
    said = {
        name: env[f"LLAMA_ARG_{variable}"]
        for name, (variable, *_) in (*_VALUES.items(), *_SWITCHES.items())
        if f"LLAMA_ARG_{variable}" in env
    }
    for name, (variable, _, off) in _SWITCHES.items():
        if off and f"LLAMA_ARG_NO_{variable}" in env:
            said[name] = "off"
    return said


def _is_on(word: str) -> bool | None:
    """Whether `word` turns a switch on; None: it leaves it as it is, as `auto` does."""
    return True if word in _ON else False if word in _OFF else None


def _maps(mode: str, mmap: bool | None, direct_io: bool | None) -> bool:
    """Whether the file is mapped, not read."""
    if mode in ("none", "dio", "mlock"):
        return False
    return mmap is not False and not direct_io


def _layers(text: str) -> int | None:
    return ALL_LAYERS if text == "all" else _not_negative(text)


def _not_negative(text: str) -> int | None:
    number = _whole(text, -1)
    return number if number >= 0 else None


def _number(said: Mapping[str, str], name: str, default: int) -> int:
    return _whole(said.get(name, ""), default)


def _whole(text: str, default: int) -> int:
    try:
        number = int(text)
    except ValueError:
        return default
    return number if abs(number) < 1 << 31 else default


def _fractions(text: str) -> tuple[float, ...]:
    try:
        found = tuple(float(part) for part in text.replace("/", ",").split(",") if part)
    except ValueError:
        return ()
    return found if all(0 <= part < 1e9 for part in found) else ()


def _names(text: str) -> tuple[str, ...]:
    names = (name.strip() for name in text.split(","))
    return tuple(name for name in names if name and name != "none")


def _overrides(text: str) -> tuple[tuple[str, str], ...]:
    pairs = (entry.rpartition("=") for entry in text.split(","))
    return tuple((pattern, buffer) for pattern, _, buffer in pairs if pattern)
