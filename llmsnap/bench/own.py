"""A proxy of our own, for as long as a run takes."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from llmsnap.bench.servers import Proxy, meet
from llmsnap.errors import LlmsnapError

_URL: Final = re.compile(r"listens on (http://[\d.]+:\d+)")
_PATIENCE_S: Final = 60.0
_GRACE_S: Final = 60.0


@contextmanager
def own_proxy(config: Path) -> Iterator[Proxy]:
    """Run one over `config`, on a free port and with a state of its own. Raises LlmsnapError."""
    with tempfile.TemporaryDirectory(prefix="llmsnap-bench-") as folder:
        log = Path(folder) / "log"
        with log.open("wb") as sink:
            process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "llmsnap",
                    "serve",
                    "--config",
                    str(config),
                    "--listen",
                    "127.0.0.1:0",
                    "--state-dir",
                    folder,
                ],
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C is for the run, which ends it in order
            )
        try:
            yield meet(_url(process, log))
        finally:
            _end(process)


def _url(process: subprocess.Popen[bytes], log: Path) -> str:
    deadline = time.monotonic() + _PATIENCE_S
    while not (found := _URL.search(log.read_text(errors="replace"))):
        if process.poll() is not None or time.monotonic() > deadline:
            said = log.read_text(errors="replace").strip() or "it said nothing"
            raise LlmsnapError(f"the proxy for the run didn't start: {said}")
        time.sleep(0.02)
    return found[1]


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(_GRACE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
