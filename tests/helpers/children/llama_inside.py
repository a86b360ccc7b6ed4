"""llama.cpp's server inside Python, with more of llama-server's flags than the demo needs.

It runs quantised models where the packaged llama-server, built for other processors, can't.
"""

from __future__ import annotations

import sys
from typing import Any

from xllamacpp import ggml_type, llama_flash_attn_type, llama_load_mode

from llmsnap.demo.server import parameters, parser, serve


def main() -> None:
    """Serve until SIGTERM."""
    flags = parser()
    flags.add_argument("-ctk", default="f16")
    flags.add_argument("-ctv", default="f16")
    flags.add_argument("-fa", choices=["on", "off"], default="on")
    flags.add_argument("--no-mmap", action="store_true")
    flags.add_argument("--no-repack", action="store_true")
    options = flags.parse_args(sys.argv[1:])
    params: Any = parameters(options)
    params.cache_type_k = getattr(ggml_type, f"GGML_TYPE_{options.ctk.upper()}")
    params.cache_type_v = getattr(ggml_type, f"GGML_TYPE_{options.ctv.upper()}")
    if options.fa == "off":
        params.flash_attn_type = llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    if options.no_mmap:
        params.load_mode = llama_load_mode.LLAMA_LOAD_MODE_NONE
    params.no_extra_bufts = options.no_repack
    serve(params)


if __name__ == "__main__":
    main()
