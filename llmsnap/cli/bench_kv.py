"""`llmsnap bench kv`: what the settings of a llama-server's cache cost and buy."""

from __future__ import annotations

import signal
import tempfile
import time
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Final

import click

from llmsnap.bench import kv as copies
from llmsnap.bench.own import own_proxy
from llmsnap.bench.report import Report
from llmsnap.bench.swap import SwapBench, Wishes
from llmsnap.bench.variants import Variant, variants
from llmsnap.cli.bench_output import finish, run, say, takes_turns, writes_reports
from llmsnap.cli.bench_swap import read_lengths
from llmsnap.cli.places import find_config, reads_config
from llmsnap.config.loader import Loaded, load
from llmsnap.config.schema import ModelConfig
from llmsnap.errors import LlmsnapError

_TYPES: Final = frozenset(["f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "iq4_nl", "q5_0", "q5_1"])


def _read_types(_: click.Context, __: click.Parameter, text: str) -> list[str]:
    types = text.split(",")
    for type_ in types:
        if not {*type_.split("/")} <= _TYPES or type_.count("/") > 1:
            raise click.BadParameter(
                f"{type_!r} isn't a type of cache, nor K/V of two; there are: "
                f"{', '.join(sorted(_TYPES))}"
            )
    return types


def _read_flash(_: click.Context, __: click.Parameter, text: str) -> list[str]:
    words = text.split(",")
    if not {*words} <= {"on", "off", "auto"}:
        raise click.BadParameter(f"{text!r} isn't a list of on, off and auto")
    return words


@click.command()
@click.option("--model", required=True, help="The model whose command is varied.")
@reads_config
@click.option(
    "--types",
    default="f16,q8_0,q4_0",
    show_default=True,
    callback=_read_types,
    help="Types of the cache, K/V where keys and values differ.",
)
@click.option(
    "--flash",
    default="on,off",
    show_default=True,
    callback=_read_flash,
    help="Flash attention: on, off, or both.",
)
@click.option(
    "--contexts",
    default="",
    callback=read_lengths,
    help="Values of -c. Default: as the command has it.",
)
@click.option(
    "--parallel",
    default="",
    callback=read_lengths,
    help="Values of -np. Default: as the command has it.",
)
@click.option(
    "--lengths",
    default="512,4096",
    show_default=True,
    callback=read_lengths,
    help="Tokens of text.",
)
@takes_turns
@click.option(
    "--tokens", default=32, show_default=True, type=click.IntRange(1), help="Tokens an answer."
)
@writes_reports
def kv(
    model: str,
    config: Path | None,
    types: list[str],
    flash: list[str],
    contexts: list[int],
    parallel: list[int],
    lengths: list[int],
    turns: int,
    limit_s: float,
    tokens: int,
    **files: Path | None,
) -> None:
    """Find the best settings of a model's KV cache.

    Copies of the model run with other types of cache, flash attention, contexts and slots: one at
    a time, by a proxy of their own, within the memory of the configuration. The running proxy's
    models keep theirs: unload them first.
    """
    loaded = load(find_config(config))
    original, argv = copies.command_of(loaded, model)
    chosen = list(
        variants(
            argv,
            types=types,
            flash=flash,
            contexts=contexts,
            parallels=parallel,
        )
    )
    if not chosen:
        raise LlmsnapError("a cache with values of these types needs flash attention; --flash on")
    until = time.monotonic() + limit_s
    report = _measured(loaded, original, chosen, _wishes(chosen, lengths, turns, limit_s, tokens))
    copies.sum_up(report, loaded, original, chosen)
    left_s = until - time.monotonic()
    copies.add_llama_bench(report, original, chosen, lengths, limit_s=left_s, show=say)
    finish(report, files)


def _wishes(
    chosen: Sequence[Variant], lengths: list[int], turns: int, limit_s: float, tokens: int
) -> Wishes:
    return Wishes(
        models=[one.name for one in chosen],
        lengths=lengths,
        turns=turns,
        answer_tokens=tokens,
        limit_s=limit_s,
        seed="llmsnap",
        is_cold=False,
        force=False,
    )


def _measured(
    loaded: Loaded, original: ModelConfig, chosen: Sequence[Variant], wishes: Wishes
) -> Report:
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # what there is is reported then, too
    with tempfile.TemporaryDirectory(prefix="llmsnap-bench-") as folder:
        path = Path(folder) / "config.yaml"
        path.write_text(copies.configuration(loaded, original, chosen))
        with own_proxy(path) as proxy:
            bench = SwapBench(wishes, proxy, [], _now, kind="kv", scenes=copies.SCENES)
            run(bench)
    return bench.report


def _now() -> datetime:
    return datetime.now().astimezone()
