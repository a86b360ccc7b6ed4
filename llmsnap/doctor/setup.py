"""What llmsnap needs around it: a configuration, programs, ports, a folder."""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import shutil
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path, PurePath
from typing import Final

from llmsnap.config.argv import split_command
from llmsnap.config.engine import server_word
from llmsnap.config.loader import Loaded
from llmsnap.config.schema import Config, ModelConfig
from llmsnap.config.secrets import blank_argv
from llmsnap.doctor.finding import Finding, Status
from llmsnap.memory.llama_files import missing_files
from llmsnap.runtime.plan import Endpoint
from llmsnap.runtime.ports import Holder, holder, local_addresses

_VERSION_S: Final = 10.0
_SHOWN: Final = 100


def configuration(loaded: Loaded) -> Finding:
    """Return whether the loader has doubts about the configuration."""
    check, count = "configuration", len(loaded.config.models)
    found = f"{loaded.name}, {count} model{'' if count == 1 else 's'}"
    if not loaded.warnings:
        return Finding(check, Status.OK, found)
    found = f"{found}, {len(loaded.warnings)} warning{'' if len(loaded.warnings) == 1 else 's'}"
    return Finding(check, Status.WARN, found, "`llmsnap check` shows them")


def commands(config: Config, environ: Mapping[str, str]) -> list[Finding]:
    """Return a line a model that lacks its program or a file, or one line that all is there."""
    lacks = [
        Finding(f"model {id_}", Status.FAIL, found, remedy)
        for id_, model in config.models.items()
        for found, remedy in _lacks(model, environ)
    ]
    return lacks or [Finding("commands", Status.OK, "the program of each model is there")]


def _lacks(model: ModelConfig, environ: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield what `model` lacks, and the remedy."""
    argv = split_command(model.cmd)
    program = next(iter(argv), "")
    if not program:
        yield "it has no cmd", "give it one"
        return
    if shutil.which(program, path=_search_path(model, environ)) is None:
        remedy = "install it, write its whole path, or set PATH in the model's `env`"
        yield f"{program!r} isn't found, or isn't a program", remedy
    if server_word(argv) == program:
        own = dict(entry.partition("=")[::2] for entry in model.env)
        for file in missing_files(argv, {**environ, **own}):
            yield f"its file {file!r} isn't there", "fetch it, or correct its path in `cmd`"


async def llama_server(
    environ: Mapping[str, str], config: Config | None = None, *, limit_s: float = _VERSION_S
) -> Finding:
    """Return where llama-server is, and its version; no model may need it to be on the PATH."""
    check = "llama-server"
    program = shutil.which(check, path=environ.get("PATH", os.defpath))
    if program is None:
        if config is not None and config.models and not _is_called(check, config):
            return Finding(check, Status.OK, "not on PATH; no model needs it there")
        remedy = "install llama.cpp, or write whole paths in `cmd`; other servers will do as well"
        return Finding(check, Status.WARN, "not on PATH", remedy)
    version = re.search(r"version: (.+)", await _printed(program, environ, limit_s))
    if version is None:
        remedy = f"see what `{shlex.quote(program)} --version` says"
        return Finding(check, Status.WARN, f"{program} doesn't tell its version", remedy)
    return Finding(check, Status.OK, f"{program}, version {version[1].strip()}")


def _is_called(program: str, config: Config) -> bool:
    """Return whether a command has `program` in it without its path."""
    commands = (split_command(model.cmd) for model in config.models.values())
    return any(program in argv for argv in commands)


async def ports(host: str, port: int, config: Config | None) -> list[Finding]:
    """Return whether the proxy can listen there, and the models' servers where they are to."""
    check = f"port {port}"
    taken = await holder(await local_addresses(host or "localhost"), port)
    if taken is not None and _is_llmsnap(taken):
        # The models' ports are its models', then.
        return [Finding(check, Status.OK, f"llmsnap runs there, pid {taken.pid}")]
    ours = Finding(check, Status.OK, "free")
    if taken is not None:
        remedy = "end that process, or listen elsewhere with --listen"
        ours = Finding(check, Status.FAIL, f"taken by {_described(taken)}", remedy)
    return [ours, *await _models_ports(config)]


def state(folder: Path) -> Finding:
    """Return whether files can be kept in `folder`, which needn't exist yet."""
    there = next(place for place in (folder, *folder.absolute().parents) if place.exists())
    if there.is_dir() and os.access(there, os.W_OK | os.X_OK):
        return Finding("state", Status.OK, f"{folder} is writable")
    remedy = "change its permissions, or take another folder with --state-dir"
    return Finding("state", Status.FAIL, f"{folder} isn't writable", remedy)


async def _models_ports(config: Config | None) -> list[Finding]:
    findings = []
    for id_, model in config.models.items() if config else ():
        endpoint = Endpoint.parse(model.proxy)
        taken = await holder(await local_addresses(endpoint.host), endpoint.port)
        if taken is not None:
            found = f"port {endpoint.port} is taken by {_described(taken)}"
            remedy = "end that process, or give the model another port (`startPort`, `proxy`)"
            findings.append(Finding(f"model {id_}", Status.WARN, found, remedy))
    return findings


async def _printed(program: str, environ: Mapping[str, str], limit_s: float) -> str:
    """Return what `program --version` prints on either output; empty when it doesn't end."""
    try:
        process = await asyncio.create_subprocess_exec(
            program,
            "--version",
            env=dict(environ),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
    except OSError:
        return ""
    try:
        async with asyncio.timeout(limit_s):
            output, _ = await process.communicate()
    except TimeoutError:
        return ""
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
    return output.decode(errors="replace")


def _search_path(model: ModelConfig, environ: Mapping[str, str]) -> str:
    own = dict(entry.split("=", 1) for entry in model.env)
    return own.get("PATH", environ.get("PATH", os.defpath))


def _is_llmsnap(taken: Holder) -> bool:
    return "llmsnap" in {PurePath(word).name for word in taken.argv[:3]}


def _described(taken: Holder) -> str:
    if taken.pid is None:
        return "a process that can't be seen from here"
    return f"pid {taken.pid} ({shlex.join(blank_argv(taken.argv))[:_SHOWN]})"
