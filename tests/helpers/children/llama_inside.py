"""llama.cpp's server inside Python, with more of llama-server's flags than the demo needs.

It runs quantised models where the packaged llama-server, built for other processors, can't.
"""

from __future__ import annotations

import sys
from typing import Any

from xllamacpp import llama_load_mode

from llmsnap.demo.server import parameters, parser, serve


def main() -> None:
    """Serve until SIGTERM."""
    flags = parser()
    flags.add_argument("--no-mmap", action="store_true")
    flags.add_argument("--no-repack", action="store_true")
    options = flags.parse_args(sys.argv[1:])
    params: Any = parameters(options)
    if options.no_mmap:
        params.load_mode = llama_load_mode.LLAMA_LOAD_MODE_NONE
    params.no_extra_bufts = options.no_repack
    serve(params)


if __name__ == "__main__":
    main()
