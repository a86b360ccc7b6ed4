"""What a llama-server's command and environment say about memory."""

from __future__ import annotations

from typing import Any

import pytest

from llmsnap.config.argv import split_command
from llmsnap.memory.llama_flags import ALL_LAYERS, Flags, read_flags


def flags(command: str, **env: str) -> Flags:
    """Return what `llama-server COMMAND` says, in an environment of `LLAMA_ARG_…`."""
    variables = {f"LLAMA_ARG_{name}": value for name, value in env.items()}
    return read_flags(split_command(f"llama-server {command}"), variables)


def test_nothing_said_is_the_server_s_own_default() -> None:
    """Four slots in one cache, all of the context, as many layers as fit."""
    assert flags("") == Flags()


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("-m a.gguf", {"model": "a.gguf"}),
        ("--model=a.gguf", {"model": "a.gguf"}),
        ("-m a.gguf --model b.gguf", {"model": "b.gguf"}),
        ("-c 4096", {"context": 4096}),
        ("--ctx_size 0", {"context": 0}),
        ("-c many", {"context": None}),
        ("-np 2", {"parallel": 2, "unified": False}),
        ("-np 2 -kvu", {"parallel": 2, "unified": True}),
        ("-np -1", {"parallel": 4, "unified": True}),
        ("--no-kv-unified", {"unified": False}),
        ("-ngl 99", {"layers": 99}),
        ("-ngl all", {"layers": ALL_LAYERS}),
        ("-ngl auto", {"layers": None}),
        ("--n-gpu-layers 0", {"layers": 0}),
        ("-ctk q8_0 --cache-type-v q4_0", {"type_k": "q8_0", "type_v": "q4_0"}),
        ("-b 64 -ub 32", {"batch": 64, "ubatch": 32}),
        ("-ts 3,1", {"split": (3.0, 1.0)}),
        ("-ts 3/1", {"split": (3.0, 1.0)}),
        ("-ts x", {"split": ()}),
        ("-sm none -mg 1", {"split_mode": "none", "main_gpu": 1}),
        ("-dev none", {"device": ()}),
        ("-dev CUDA1,CUDA0", {"device": ("CUDA1", "CUDA0")}),
        ("-ot exps=CPU,attn=CUDA0", {"overrides": (("exps", "CPU"), ("attn", "CUDA0"))}),
        ("-ot a=CPU -ot b=CPU", {"overrides": (("a", "CPU"), ("b", "CPU"))}),
        ("--cpu-moe", {"cpu_moe_layers": ALL_LAYERS}),
        ("--n-cpu-moe 3", {"cpu_moe_layers": 3}),
        ("--no-kv-offload", {"kv_offload": False}),
        ("--no-mmap", {"mmap": False}),
        ("--load-mode none", {"mmap": False}),
        ("--load-mode mmap+mlock", {"mmap": True}),
        ("-dio", {"mmap": False}),
        ("--no-repack", {"repack": False}),
        ("--swa-full", {"swa_full": True}),
        ("-fa off", {"flash": False}),
        ("-fa auto", {"flash": True}),
        ("-fa -c 512", {"flash": True, "context": 512}),
        ("--cache-ram 0", {"cache_ram_mib": 0}),
        ("--fit off", {"fit": False}),
        ("--embeddings", {"pooled": True}),
        ("--mmproj p.gguf --no-mmproj-offload", {"mmproj": "p.gguf", "mmproj_offload": False}),
        ("--lora a,b --lora c", {"loras": ("a", "b", "c")}),
        ("# a comment", {}),
    ],
    ids=str,
)
def test_options(command: str, expected: dict[str, Any]) -> None:
    """Each as llama-server takes it; what it doesn't take counts as not said."""
    found = flags(command)

    assert {name: getattr(found, name) for name in expected} == expected


def test_the_environment_counts_where_the_command_says_nothing() -> None:
    """And `LLAMA_ARG_NO_…`, with whatever value, turns something off."""
    found = flags("-c 512", CTX_SIZE="4096", N_PARALLEL="2", NO_MMAP="0", REPACK="off", CPU_MOE="1")

    assert (found.context, found.parallel, found.mmap, found.repack) == (512, 2, False, False)
    assert found.cpu_moe_layers == ALL_LAYERS


def test_a_drafting_model_shares_the_context_but_not_its_place() -> None:
    """It has its own layers and types."""
    draft = flags("-m a -md b -c 512 -ngl 5 -ngld 7 -ctkd q8_0 -ot x=CPU").draft

    assert draft is not None
    assert (draft.model, draft.context, draft.layers, draft.type_k) == ("b", 512, 7, "q8_0")
    assert draft.overrides == ()


def test_a_server_inside_python_is_known_by_its_program() -> None:
    """It is a larger process; its second `-m` names the model."""
    found = read_flags(["/usr/bin/python3", "-m", "llmsnap.demo.server", "-m", "a.gguf"], {})

    assert (found.in_python, found.model) == (True, "a.gguf")
    assert not flags("-m a.gguf").in_python
