"""Which servers make their model smaller than it is, and whether this one did. Real lines."""

from __future__ import annotations

import pytest

from llmsnap.memory.fitting import Fit, Start, came_whole, fit_of

BOTH = Fit.CONTEXT | Fit.LAYERS


@pytest.mark.parametrize(
    ("command", "env", "expected"),
    [
        ("llama-server -m a.gguf", {}, BOTH),
        ("/opt/llama.cpp/llama-server -m a.gguf -ngl 99", {}, Fit.CONTEXT),
        ("llama-server -m a.gguf -c 8192", {}, Fit.LAYERS),
        ("llama-server -m a.gguf -c 8192 -ngl 99", {}, Fit.NOTHING),
        ("llama-server -m a.gguf --ctx-size=8192 --n-gpu-layers=all", {}, Fit.NOTHING),
        ("llama-server -m a.gguf -c 0 -ngl auto", {}, BOTH),
        ("llama-server -m a.gguf --fit off", {}, Fit.NOTHING),
        ("llama-server -m a.gguf -fit on -fit off", {}, Fit.NOTHING),
        ("llama-server -m a.gguf", {"LLAMA_ARG_FIT": "off"}, Fit.NOTHING),
        ("llama-server -m a.gguf -ngl 9", {"LLAMA_ARG_CTX_SIZE": "8192"}, Fit.NOTHING),
        ("llama-server -m a.gguf -c 9", {"LLAMA_ARG_N_GPU_LAYERS": "9"}, Fit.NOTHING),
        ("env A=1 llama-server-vulkan -m a.gguf", {}, BOTH),
        ("llama-server -c", {}, BOTH),
    ],
)
def test_what_is_left_to_the_server(command: str, env: dict[str, str], expected: Fit) -> None:
    """Context, layers, both, or nothing: by flags, by variables, by --fit itself."""
    assert fit_of(command.split(), env) == expected


WHOLE = """\
srv    load_model: loading model '/models/gemma.gguf'
common_params_fit_impl: projected to use 384 MiB of host memory vs. 24105 MiB of total host memory
common_params_fit_impl: will leave 23720 >= 23700 MiB of system memory, no changes needed
common_fit_params: successfully fit params to free device memory
load_tensors: offloaded 19/19 layers to GPU
"""
SHRUNK = """\
srv    load_model: loading model '/models/gemma.gguf'
common_params_fit_impl: cannot meet free memory target of 23750 MiB, need to reduce device memory \
by 29 MiB
common_params_fit_impl: context size reduced from 32768 to 25088 -> need 30 MiB less memory in total
common_params_fit_impl: entire model can be fit by reducing context
common_fit_params: successfully fit params to free device memory
load_tensors: offloaded 19/19 layers to GPU
"""
OFFLOADED = "load_tensors: offloaded {}/33 layers to GPU\n"
QUIET = "srv    load_model: loading model '/models/gemma.gguf'\nsrv  llama_server: model loaded\n"


@pytest.mark.parametrize(
    ("fit", "start", "on_gpu", "expected"),
    [
        (BOTH, Start(log=WHOLE), True, True),
        (BOTH, Start(log=SHRUNK), False, False),
        (BOTH, Start(log=SHRUNK, context=32768, trained=32768), False, False),
        (BOTH, Start(log=QUIET), False, False),
        (BOTH, Start(log=QUIET, context=32768, trained=32768), False, True),
        (BOTH, Start(log=QUIET, context=25088, trained=32768), False, False),
        (BOTH, Start(log=QUIET, context=32768, trained=32768), True, False),
        (Fit.CONTEXT, Start(log=QUIET, context=32768, trained=32768), True, True),
        (Fit.LAYERS, Start(log=QUIET, context=4096, trained=32768), False, True),
        (Fit.LAYERS, Start(log=OFFLOADED.format(33)), True, True),
        (Fit.LAYERS, Start(log=OFFLOADED.format(20)), True, False),
        (BOTH, Start(log=SHRUNK + WHOLE), True, True),
        (BOTH, Start(log=WHOLE + SHRUNK), True, False),
        (BOTH, Start(log=""), True, False),
    ],
)
def test_only_what_is_shown_counts(fit: Fit, start: Start, on_gpu: bool, expected: bool) -> None:
    """By the log of the last start, by the context; where nothing is said, it is no."""
    assert came_whole(fit, start, on_gpu=on_gpu) is expected
