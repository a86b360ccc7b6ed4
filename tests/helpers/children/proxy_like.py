"""Starts one child as the proxy does, says `child PID`, and waits to be killed.

python proxy_like.py {asyncio,uvloop} STATE_DIR COMMAND [ARGUMENT ...]
"""

import asyncio
import os
import sys
from pathlib import Path

import uvloop

from llmsnap.runtime.process import Command, launch
from llmsnap.runtime.runfile import RunFiles


async def main(state_dir: str, *argv: str) -> None:
    """Launch `argv`, with a note about it, and never come back."""
    child = await launch(Command(argv=argv, env=os.environ), output=1, mark=os.urandom(8).hex())
    RunFiles(Path(state_dir)).add(child, model="a", command=argv)
    os.write(1, b"child %d\n" % child.pid)
    await asyncio.sleep(600)


runs = {"asyncio": asyncio.run, "uvloop": uvloop.run}
runs[sys.argv[1]](main(*sys.argv[2:]))
