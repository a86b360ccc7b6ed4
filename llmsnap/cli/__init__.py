"""The commands; `main` is what the console script runs."""

from __future__ import annotations


def main() -> None:
    """Run the command that the arguments name."""
    raise NotImplementedError
