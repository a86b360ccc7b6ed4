"""Builds the two simulated driver libraries with gcc."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Final

_SOURCES: Final = Path(__file__).parent
_LIBRARIES: Final = {"libcuda.so.1": "libcuda.c", "libnvidia-ml.so.1": "libnvml.c"}


def missing_compiler() -> str:
    """Return why the libraries can't be built here; empty when they can."""
    return "" if shutil.which("gcc") else "there is no gcc to build the simulated driver with"


def build(folder: Path, *, before_570: bool = False) -> Path:
    """Build both libraries into `folder` and return it: it belongs into LD_LIBRARY_PATH.

    A driver before 570 lacks the functions that came with it.
    """
    folder.mkdir(parents=True)
    for library, source in _LIBRARIES.items():
        command = ["gcc", "-std=c11", "-O1", "-Wall", "-Wextra", "-Werror"]
        command += ["-fvisibility=hidden", "-shared", "-fPIC", f"-Wl,-soname,{library}"]
        command += ["-DSIM_BEFORE_570"] if before_570 else []
        command += ["-o", str(folder / library), str(_SOURCES / source), str(_SOURCES / "state.c")]
        subprocess.run(command, check=True)
    return folder
