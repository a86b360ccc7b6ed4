"""How llama-server's options are written: in a preset by name, on a command line with dashes."""

from __future__ import annotations

from typing import Final

_SHORT: Final = frozenset(
    [
        "a",
        "ag",
        "b",
        "bs",
        "c",
        "cb",
        "cl",
        "cmoe",
        "cmoed",
        "cms",
        "cram",
        "ctk",
        "ctkd",
        "ctv",
        "ctvd",
        "ctxcp",
        "dev",
        "devd",
        "dio",
        "dt",
        "e",
        "fa",
        "fit",
        "fitc",
        "fitt",
        "hf",
        "hfd",
        "hff",
        "hfr",
        "hfrd",
        "hft",
        "j",
        "jf",
        "kvo",
        "kvu",
        "l",
        "lcd",
        "lcs",
        "lm",
        "lv",
        "m",
        "md",
        "mg",
        "mm",
        "mmu",
        "mu",
        "n",
        "ncmoe",
        "ncmoed",
        "ndio",
        "ngl",
        "ngld",
        "nkvo",
        "no-kvu",
        "nocb",
        "np",
        "nr",
        "ot",
        "otd",
        "r",
        "rea",
        "s",
        "sm",
        "sp",
        "sps",
        "t",
        "tb",
        "tbd",
        "td",
        "to",
        "ts",
        "ub",
        "v",
        "C",
        "Cb",
        "Cbd",
        "Cd",
        "Cr",
        "Crb",
        "Crd",
    ]
)
"""Names with one dash."""

_SWITCHES: Final = frozenset(
    [
        "ag",
        "agent",
        "backend-sampling",
        "bs",
        "cache-idle-slots",
        "cache-prompt",
        "cb",
        "check-tensors",
        "cmoe",
        "cmoed",
        "cont-batching",
        "context-shift",
        "cpu-moe",
        "cpu-moe-draft",
        "dio",
        "direct-io",
        "e",
        "embedding",
        "embeddings",
        "escape",
        "ignore-eos",
        "jinja",
        "kv-offload",
        "kv-unified",
        "kvo",
        "kvu",
        "log-disable",
        "log-prefix",
        "log-timestamps",
        "lora-init-without-apply",
        "metrics",
        "mlock",
        "mmap",
        "mmproj-auto",
        "mmproj",
        "mmproj-offload",
        "ndio",
        "nkvo",
        "nocb",
        "no-host",
        "no-kvu",
        "nr",
        "offline",
        "op-offload",
        "perf",
        "prefill-assistant",
        "props",
        "reasoning-preserve",
        "repack",
        "rerank",
        "reranking",
        "skip-chat-parsing",
        "slots",
        "sp",
        "spec-default",
        "spec-draft-backend-sampling",
        "spec-draft-cpu-moe",
        "special",
        "spm-infill",
        "swa-full",
        "ui",
        "verbose",
        "v",
        "warmup",
        "webui",
    ]
)
"""Those without a value, by the name without `no-`."""

_ONLY_ON: Final = frozenset(
    [
        "check-tensors",
        "cmoe",
        "cpu-moe",
        "embedding",
        "embeddings",
        "ignore-eos",
        "log-disable",
        "lora-init-without-apply",
        "metrics",
        "mlock",
        "ndio",
        "nkvo",
        "nocb",
        "offline",
        "props",
        "rerank",
        "reranking",
        "special",
        "spm-infill",
        "sp",
        "swa-full",
        "verbose",
        "v",
        "dio",
        "e",
        "cb",
        "bs",
        "spec-default",
    ]
)
"""Switches that have no `no-` form: to be off, they are left out."""

_BOOLEANS: Final = {
    **dict.fromkeys(("true", "on", "yes", "enabled", "1"), True),
    **dict.fromkeys(("false", "off", "no", "disabled", "0"), False),
}


def option_of(name: str, value: str) -> tuple[str, ...]:
    """Return the option `name` (no dashes) with `value` as arguments; empty: it is left out."""
    bare = name.removeprefix("no-")
    is_on = _BOOLEANS.get(value.lower())
    if bare not in _SWITCHES or is_on is None or (name == "mmproj"):
        return dashed(name), value
    wanted = is_on if bare == name else not is_on
    if name in _SHORT or bare in _ONLY_ON:
        return (dashed(bare),) if wanted else ()
    return (dashed(bare if wanted else f"no-{bare}"),)


def dashed(name: str) -> str:
    """Return the option as it stands on a command line."""
    return f"-{name}" if name in _SHORT else f"--{name}"
