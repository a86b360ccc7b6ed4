"""The commands; `main` is what the console script runs.

What is imported here is paid for by every start: the commands import what they need themselves.
"""

from __future__ import annotations

import sys

from llmsnap import __version__
from llmsnap.cli.spelling import normal
from llmsnap.errors import ConfigError, LlmsnapError

EX_CONFIG = 78
"""What sysexits.h calls a configuration error."""


def main() -> None:
    """Run the command that the arguments name, and leave with its exit code."""
    if sys.platform == "win32":
        sys.exit("llmsnap: Windows is out of scope; it runs in WSL 2")
    argv = normal(sys.argv[1:])
    if argv == ["--version"]:
        sys.stdout.write(f"llmsnap {__version__}\n")
        return
    sys.exit(_run(argv))


def _run(argv: list[str]) -> int:
    from llmsnap.cli.commands import commands

    try:
        commands.main(argv, prog_name="llmsnap", standalone_mode=True)
    except LlmsnapError as error:
        sys.stderr.write(f"llmsnap: {error}\n")
        return EX_CONFIG if isinstance(error, ConfigError) else 1
    return 0
