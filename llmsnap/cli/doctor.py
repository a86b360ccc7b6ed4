"""`llmsnap doctor`: what this machine can do for llmsnap, and what is in the way."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, astuple
from pathlib import Path
from typing import Any, Final

import click

from llmsnap.cli.client import as_json
from llmsnap.cli.places import find_configs, keeps_state, reads_configs
from llmsnap.client.proxy import Client, NoProxy, Refused
from llmsnap.config.loader import Loaded, load
from llmsnap.doctor.examine import Case, Report, examine
from llmsnap.doctor.finding import Finding, Status, worst
from llmsnap.doctor.gpu import SelfTest
from llmsnap.doctor.prospects import Prospect
from llmsnap.errors import ConfigError
from llmsnap.memory.nvml import NvmlProbe
from llmsnap.runtime.runfile import state_folder
from llmsnap.sleep.cuda_client import CudaClient
from llmsnap.sleep.cuda_selftest import self_test
from llmsnap.web.address import Address, parse_address

_PATIENCE_S: Final = 15.0
"""How long the driver may take to say what it can."""
_ANSWER_S: Final = 5.0
"""How long a proxy may take to answer."""

Models = Mapping[str, Mapping[str, Any]]


@click.command()
@reads_configs
@click.option(
    "--listen",
    metavar="ADDRESS",
    default="127.0.0.1:8080",
    show_default=True,
    help="Where the proxy listens, or will.",
)
@keeps_state
@click.option(
    "--url", envvar="LLMSNAP_URL", help="A proxy that runs. Default: the one on --listen."
)
@click.option("--key", envvar="LLMSNAP_API_KEY", default="", help="An API key, if it wants one.")
@click.option("--self-test", "trial", is_flag=True, help="Try sleep and wake on each NVIDIA GPU.")
@as_json
def doctor(
    config: Path | None,
    config_dir: Path | None,
    listen: str,
    state_dir: Path | None,
    url: str | None,
    key: str,
    trial: bool,
    json_wanted: bool,
) -> None:
    """Say what this machine can do, and what is in the way.

    Looks at GPU, driver, permissions, memory and programs, and changes nothing. Says of each model
    how it sleeps: of one that runs what the proxy knows, of others what is to be expected. Ends
    with 1 if something is there that keeps llmsnap or a model from running.
    """
    address, state = parse_address(listen), state_folder(os.environ, state_dir)
    loaded, faults = _loaded(config, config_dir)
    running, refusals = _running(Client(url or address.url(tls=False), key, _ANSWER_S))
    report = asyncio.run(_examined(loaded, address, state, running, trial=trial))
    findings = faults + refusals + report.findings
    if json_wanted:
        _print_json(findings, report.models)
    else:
        _print_tables(findings, report.models)
    if worst(findings) is Status.FAIL:
        raise click.exceptions.Exit(1)


def _loaded(config: Path | None, folder: Path | None) -> tuple[Loaded | None, list[Finding]]:
    """Return the configuration, or None and what is wrong with it."""
    check = "configuration"
    try:
        paths = find_configs(config, folder)
    except ConfigError as error:
        if folder is not None:
            return None, [Finding.of_fault(check, Status.FAIL, str(error))]
        remedy = "write a config.yaml, or name one with --config; `llmsnap demo` needs none"
        return None, [Finding(check, Status.WARN, "there is none", remedy)]
    try:
        return load(*paths), []
    except ConfigError as error:
        return None, [Finding.of_fault(check, Status.FAIL, str(error))]


def _running(proxy: Client) -> tuple[Models, list[Finding]]:
    """Return what a proxy says of its models, by id; nothing when none runs."""
    try:
        answer = proxy.json("GET", "/api/models")
        return {str(model["id"]): model for model in answer["models"]}, []
    except Refused as refusal:
        return {}, [Finding.of_fault("running proxy", Status.WARN, str(refusal))]
    except (NoProxy, KeyError, TypeError):
        return {}, []


async def _examined(
    loaded: Loaded | None, address: Address, state: Path, running: Models, *, trial: bool
) -> Report:
    probe = NvmlProbe(clock=time.monotonic)
    cuda = CudaClient(hello_timeout_s=_PATIENCE_S)
    case = Case(
        loaded=loaded,
        host=address.host,
        port=address.port,
        state=state,
        environ=os.environ,
        probe=probe,
        cuda=cuda,
        self_test=_self_test_by(cuda) if trial else None,
        running=running,
    )
    try:
        return await examine(case)
    finally:
        await cuda.aclose()
        await probe.aclose()


def _self_test_by(cuda: CudaClient) -> SelfTest:
    async def test(gpu_uuid: str) -> str:
        return await self_test(cuda, environ=os.environ, gpu_uuid=gpu_uuid)

    return test


def _print_json(findings: Sequence[Finding], models: Sequence[Prospect]) -> None:
    document = {
        "status": worst(findings),
        "checks": [asdict(finding) for finding in findings],
        "models": [asdict(model) for model in models],
    }
    click.echo(json.dumps(document, indent=2))


def _print_tables(findings: Sequence[Finding], models: Sequence[Prospect]) -> None:
    from llmsnap.cli.tables import print_table

    print_table(["check", "", "found", "remedy"], [astuple(finding) for finding in findings])
    if models:
        click.echo()
        print_table(["model", "sleeps by", "known by", "why not otherwise"], map(_row, models))
    counts = Counter(finding.status for finding in findings)
    bad = [(counts[Status.FAIL], "failure"), (counts[Status.WARN], "warning")]
    parts = [f"{count} {word}{'' if count == 1 else 's'}" for count, word in bad if count]
    click.echo(f"\n{', '.join(parts) or 'all is well'}")


def _row(model: Prospect) -> list[str]:
    known_by = "its process" if model.seen else "its settings"
    refusals = [f"{name}: {reason}" for name, reason in model.refusals.items()]
    if not model.drivers and not refusals:
        refusals = [f"sleepMode: {model.mode}"]
    return [model.model, model.words, known_by, "; ".join(refusals)]
