"""`llmsnap bench swap`: what it takes to come back to a model, from every state it can be in."""

from __future__ import annotations

import signal
from collections.abc import Iterable
from contextlib import nullcontext
from datetime import datetime
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import click

from llmsnap.bench.own import own_proxy
from llmsnap.bench.servers import Server, meet
from llmsnap.bench.swap import SwapBench, Wishes
from llmsnap.cli.bench_output import finish, run, takes_turns, writes_reports
from llmsnap.cli.client import talks_to_proxy
from llmsnap.cli.places import FILE
from llmsnap.client.proxy import Client

_LENGTHS: Final = "512,4096,16384"


def read_lengths(_: click.Context, __: click.Parameter, text: str) -> list[int]:
    """Return the numbers in an option; none for an empty text. Raises BadParameter."""
    if not text:
        return []
    try:
        lengths = [int(part) for part in text.split(",")]
    except ValueError:
        lengths = [0]
    if min(lengths) < 1:
        raise click.BadParameter(f"{text!r} isn't a list of numbers of tokens, as {_LENGTHS} is")
    return lengths


def _read_lengths_of(
    context: click.Context, option: click.Parameter, texts: Iterable[str]
) -> dict[str, list[int]]:
    lengths = {}
    for text in texts:
        model, _, numbers = text.partition("=")
        if not (model and numbers):
            raise click.BadParameter(f"{text!r} isn't MODEL=LENGTHS, as qwen=512,4096 is")
        lengths[model] = read_lengths(context, option, numbers)
    return lengths


def _names(_: click.Context, __: click.Parameter, pairs: Iterable[str]) -> dict[str, str]:
    names = {}
    for pair in (part for text in pairs for part in text.split(",")):
        ours, equals, theirs = pair.partition("=")
        if not (ours and equals and theirs):
            raise click.BadParameter(f"{pair!r} isn't OUR_NAME=THEIR_NAME")
        names[ours] = theirs
    return names


def _other(url: str, key: str, limit_s: float, names: dict[str, str]) -> Server:
    """Return a server to measure beside ours; one that is silent for too long is given up."""
    return Server(urlsplit(url).netloc or url, Client(url, key, timeout_s=limit_s), names)


@click.command()
@click.argument("models", nargs=-1)
@click.option("--config", type=FILE, help="Start a proxy for the run, with this configuration.")
@click.option(
    "--lengths", default=_LENGTHS, show_default=True, callback=read_lengths, help="Tokens of text."
)
@click.option(
    "--lengths-of",
    multiple=True,
    metavar="MODEL=LENGTHS",
    callback=_read_lengths_of,
    help="Tokens of text for one model, in place of --lengths.",
)
@takes_turns
@click.option(
    "--tokens", default=16, show_default=True, type=click.IntRange(1), help="Tokens an answer."
)
@click.option("--seed", default="llmsnap", show_default=True, help="The same seed, the same texts.")
@click.option("--cold", is_flag=True, help="Empty the page cache, too: starts from the disk.")
@click.option("--force", is_flag=True, help="Put out pinned models and those at work, too.")
@click.option("--against", multiple=True, metavar="URL", help="Another server to measure beside.")
@click.option("--against-key", default="", help="An API key for the servers of --against.")
@click.option(
    "--against-models",
    "names",
    multiple=True,
    metavar="OURS=THEIRS",
    callback=_names,
    help="What the servers of --against call a model.",
)
@writes_reports
@talks_to_proxy
def swap(
    models: tuple[str, ...],
    config: Path | None,
    lengths: list[int],
    lengths_of: dict[str, list[int]],
    turns: int,
    limit_s: float,
    tokens: int,
    seed: str,
    cold: bool,
    force: bool,
    against: tuple[str, ...],
    against_key: str,
    names: dict[str, str],
    url: str,
    key: str,
    **files: Path | None,
) -> None:
    """Measure how long MODELS take to come back, or all models.

    To the first token: from a cold disk (--cold), from the page cache, from restored slots, asleep,
    after another model was asked, and awake. A running proxy's models are unloaded for it.
    """
    wishes = Wishes(
        models=models,
        lengths=lengths,
        lengths_of=lengths_of,
        turns=turns,
        answer_tokens=tokens,
        limit_s=limit_s,
        seed=seed,
        is_cold=cold,
        force=force,
    )
    others = [_other(address, against_key, limit_s, names) for address in against]
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # what there is is reported then, too
    with own_proxy(config) if config else nullcontext(meet(url, key)) as proxy:
        bench = SwapBench(wishes, proxy, others, lambda: datetime.now().astimezone())
        run(bench)
    finish(bench.report, files)
