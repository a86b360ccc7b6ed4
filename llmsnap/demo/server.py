"""llama.cpp's server inside a Python process: stands in for `llama-server` in the demo.

    python -m llmsnap.demo.server -m MODEL.gguf --port 8001

It takes the flags of llama-server that a small model needs, by the same names.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NoReturn

_ENDS: Final = (signal.SIGTERM, signal.SIGINT)
_CACHE_TYPES: Final = ("f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "iq4_nl", "q5_0", "q5_1")
_FLASH: Final = {"on": "ENABLED", "off": "DISABLED", "auto": "AUTO"}


def parser() -> argparse.ArgumentParser:
    """Return the parser of the flags; what isn't among them is an error that names it."""
    flags = argparse.ArgumentParser(
        prog="python -m llmsnap.demo.server", description=__doc__, allow_abbrev=False
    )
    flags.add_argument("-m", "--model", required=True, type=Path)
    flags.add_argument("--host", default="127.0.0.1")
    flags.add_argument("--port", type=int, default=8080)
    flags.add_argument("-a", "--alias", help="names in answers, separated by commas")
    flags.add_argument("-c", "--ctx-size", type=int, default=0, help="0: as the model says")
    flags.add_argument("-np", "--parallel", type=int, default=1)
    flags.add_argument("-t", "--threads", type=int, default=0, help="0: as many as there are cores")
    flags.add_argument("-b", "--batch-size", type=int)
    flags.add_argument("-ub", "--ubatch-size", type=int)
    flags.add_argument("-ngl", "--gpu-layers", "--n-gpu-layers", type=int)
    flags.add_argument("-ctk", "--cache-type-k", choices=_CACHE_TYPES, default="f16")
    flags.add_argument("-ctv", "--cache-type-v", choices=_CACHE_TYPES, default="f16")
    flags.add_argument("-fa", "--flash-attn", choices=_FLASH, default="auto")
    flags.add_argument("--cache-ram", type=int, metavar="MIB")
    flags.add_argument("--slot-save-path")
    flags.add_argument("--swa-full", action="store_true")
    flags.add_argument("--metrics", action="store_true")
    flags.add_argument("--embeddings", "--embedding", action="store_true")
    flags.add_argument("--no-webui", action="store_true")
    flags.add_argument("--no-warmup", action="store_true")
    flags.add_argument("--jinja", action="store_true", help="accepted; it is the default")
    return flags


def parameters(options: argparse.Namespace) -> Any:
    """Return llama.cpp's parameters for `options`."""
    from xllamacpp import CommonParams, ggml_type, llama_flash_attn_type

    params = CommonParams()
    params.model.path = str(options.model)
    params.hostnames = [options.host]
    params.port = options.port
    params.n_ctx = options.ctx_size
    params.n_parallel = options.parallel
    params.cache_type_k = ggml_type[f"GGML_TYPE_{options.cache_type_k.upper()}"]
    params.cache_type_v = ggml_type[f"GGML_TYPE_{options.cache_type_v.upper()}"]
    params.flash_attn_type = llama_flash_attn_type[
        f"LLAMA_FLASH_ATTN_TYPE_{_FLASH[options.flash_attn]}"
    ]
    params.swa_full = options.swa_full
    params.endpoint_metrics = options.metrics
    params.embedding = options.embeddings
    params.ui = not options.no_webui
    params.warmup = not options.no_warmup
    if options.alias:
        params.model_alias = options.alias.split(",")
    if options.threads:
        params.cpuparams.n_threads = params.cpuparams_batch.n_threads = options.threads
    for name, value in (
        ("n_batch", options.batch_size),
        ("n_ubatch", options.ubatch_size),
        ("n_gpu_layers", options.gpu_layers),
        ("cache_ram_mib", options.cache_ram),
        ("slot_save_path", options.slot_save_path and f"{options.slot_save_path.rstrip('/')}/"),
    ):
        if value is not None:
            setattr(params, name, value)
    return params


def main(argv: Sequence[str] | None = None) -> None:
    """Serve until SIGTERM or SIGINT."""
    options = parser().parse_args(argv)
    if not options.model.is_file():
        sys.exit(f"no model file at {str(options.model)!r}")
    serve(parameters(options))


def serve(params: Any) -> NoReturn:
    """Serve with llama.cpp's `params` until SIGTERM or SIGINT."""
    from xllamacpp import Server

    # Blocked before its threads begin, so that none of them gets what is meant for us.
    signal.pthread_sigmask(signal.SIG_BLOCK, _ENDS)
    _server = Server(params)  # returns once it listens
    signal.sigwait(_ENDS)
    os._exit(0)  # its threads don't end for an interpreter that winds down in order


if __name__ == "__main__":
    main()
