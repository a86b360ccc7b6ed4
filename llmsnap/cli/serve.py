"""`llmsnap serve`: the proxy itself."""

from __future__ import annotations

import asyncio
import gc
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

import click

from llmsnap import __version__
from llmsnap.cli.notify import Service
from llmsnap.cli.places import FILE, FOLDER, find_configs, keeps_state, reads_configs
from llmsnap.config.loader import Loaded, load
from llmsnap.config.schema import Config
from llmsnap.config.watching import Source
from llmsnap.errors import LlmsnapError
from llmsnap.runtime.runfile import state_folder
from llmsnap.web.address import Address, parse_address, tls_context


@click.command()
@reads_configs
@click.option("--models-dir", type=FOLDER, help="A folder of GGUF files, to serve all of them.")
@click.option(
    "--models-preset", type=FILE, help="A preset of llama-server (.ini), to serve its models."
)
@click.option(
    "--listen",
    metavar="ADDRESS",
    help="Where to listen: 8080 is this machine alone, :8080 all of the network, or host:8080, "
    "[::1]:8080. Default: 127.0.0.1:8080, with TLS port 8443.",
)
@click.option("--tls-cert-file", type=FILE, help="Serve HTTPS with this certificate.")
@click.option("--tls-key-file", type=FILE, help="The key of that certificate.")
@keeps_state
@click.option("--watch-config", is_flag=True, help="Read the configuration whenever it changes.")
def serve(
    config: Path | None,
    config_dir: Path | None,
    models_dir: Path | None,
    models_preset: Path | None,
    listen: str | None,
    tls_cert_file: Path | None,
    tls_key_file: Path | None,
    state_dir: Path | None,
    watch_config: bool,
) -> None:
    """Run the proxy until Ctrl-C."""
    if (tls_cert_file is None) != (tls_key_file is None):
        raise LlmsnapError("--tls-cert-file and --tls-key-file go together; give both or neither")
    tls = (tls_cert_file, tls_key_file) if tls_cert_file and tls_key_file else None
    address = parse_address(listen or ("127.0.0.1:8443" if tls else "127.0.0.1:8080"))
    source = Source.at(
        partial(find_configs, config, config_dir, models_dir, models_preset), watched=watch_config
    )
    loaded = load(*source.files())
    service = Service(os.environ)

    def announce(here: Address) -> None:
        greet(loaded.config, here, tls=tls is not None)
        service.ready()

    run(loaded, address, announce, tls=tls, state=state_dir, source=source)


def run(
    loaded: Loaded,
    address: Address,
    announce: Callable[[Address], None],
    *,
    tls: tuple[Path, Path] | None = None,
    state: Path | None = None,
    source: Source | None = None,
) -> None:
    """Serve until a signal, then leave with the exit code; `announce` tells where it listens.

    `source` is where `loaded` can be read again.
    """
    gc.disable()  # until all is imported: `app` says from where on garbage is looked for
    import uvloop

    from llmsnap.app import serve as serve_until_told

    proxy = serve_until_told(
        loaded,
        address,
        announce,
        state_dir=state_folder(os.environ, state),
        tls=tls_context(*tls) if tls else None,
        source=source,
    )
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        sys.exit(runner.run(proxy))


def greet(config: Config, here: Address, *, tls: bool) -> None:
    """Print where the proxy listens, and what is dangerous about it."""
    count = len(config.models)
    models = f"{count} model{'' if count == 1 else 's'}"
    with suppress(OSError):  # a full disk, or a reader who is gone, is no reason not to serve
        click.echo(f"llmsnap {__version__} listens on {here.url(tls=tls)} with {models}")
    if not here.is_loopback and not config.api_keys:
        warning = (
            f"WARNING: {here} can be reached from the network, and apiKeys is empty: whoever\n"
            "WARNING: reaches it can use, load and unload every model and read all logs.\n"
            "WARNING: Set apiKeys in the configuration, or listen on 127.0.0.1."
        )
        with suppress(OSError):
            click.secho(warning, fg="red", bold=True, err=True)
