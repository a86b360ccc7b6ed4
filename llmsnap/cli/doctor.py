"""`llmsnap doctor`: what this machine can do for llmsnap, and what is in the way."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, astuple
from pathlib import Path

import click

from llmsnap.cli.client import as_json
from llmsnap.cli.places import find_config
from llmsnap.cli.serve import FILE, FOLDER
from llmsnap.config.loader import Loaded, load
from llmsnap.doctor.examine import Case, examine
from llmsnap.doctor.finding import Finding, Status, worst
from llmsnap.errors import ConfigError
from llmsnap.memory.nvml import NvmlProbe
from llmsnap.runtime.runfile import state_folder
from llmsnap.web.address import Address, parse_address


@click.command()
@click.option("--config", type=FILE, help="The configuration. Default: ./config.yaml.")
@click.option(
    "--listen", metavar="ADDRESS", default="127.0.0.1:8080", show_default=True, help="Where."
)
@click.option("--state-dir", type=FOLDER, help="Default: $XDG_STATE_HOME/llmsnap.")
@as_json
def doctor(config: Path | None, listen: str, state_dir: Path | None, json_wanted: bool) -> None:
    """Look at GPU, driver, permissions, memory and programs; change nothing.

    Ends with 1 if something is there that keeps llmsnap or a model from running.
    """
    address, state = parse_address(listen), state_folder(os.environ, state_dir)
    loaded, faults = _loaded(config)
    findings = faults + asyncio.run(_examined(loaded, address, state))
    if json_wanted:
        checks = [asdict(finding) for finding in findings]
        click.echo(json.dumps({"status": worst(findings), "checks": checks}, indent=2))
    else:
        _print_table(findings)
    if worst(findings) is Status.FAIL:
        raise click.exceptions.Exit(1)


def _loaded(given: Path | None) -> tuple[Loaded | None, list[Finding]]:
    """Return the configuration, or None and what is wrong with it."""
    check = "configuration"
    try:
        path = find_config(given)
    except ConfigError:
        remedy = "write a config.yaml, or name one with --config; `llmsnap demo` needs none"
        return None, [Finding(check, Status.WARN, "there is none", remedy)]
    try:
        return load(path), []
    except ConfigError as error:
        return None, [Finding.of_fault(check, Status.FAIL, str(error))]


async def _examined(loaded: Loaded | None, address: Address, state: Path) -> list[Finding]:
    probe = NvmlProbe(clock=time.monotonic)
    try:
        return await examine(
            Case(
                loaded=loaded,
                host=address.host,
                port=address.port,
                state=state,
                environ=os.environ,
                probe=probe,
            )
        )
    finally:
        await probe.aclose()


def _print_table(findings: Sequence[Finding]) -> None:
    from llmsnap.cli.tables import print_table

    print_table(["check", "", "found", "remedy"], [astuple(finding) for finding in findings])
    counts = Counter(finding.status for finding in findings)
    bad = [(counts[Status.FAIL], "failure"), (counts[Status.WARN], "warning")]
    parts = [f"{count} {word}{'' if count == 1 else 's'}" for count, word in bad if count]
    click.echo(f"\n{', '.join(parts) or 'all is well'}")
