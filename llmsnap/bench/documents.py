"""Reports as Markdown, as CSV, and side by side."""

from __future__ import annotations

import csv
import io

from msgspec.structs import replace

from llmsnap.bench.report import Report
from llmsnap.bench.rows import COLUMNS, seconds, table
from llmsnap.bench.samples import Sample, Spread, by_case, good


def markdown(report: Report) -> str:
    """Return the table with what must be known to read it."""
    lines = [*facts(report), "", _line(COLUMNS), _line(["---"] * len(COLUMNS))]
    lines += [_line(row) for row in table(report)]
    for title, notes in report.remarks():
        if notes:
            lines += ["", f"{title}:", "", *(f"- {note}" for note in notes)]
    return "\n".join(lines) + "\n"


def facts(report: Report) -> list[str]:
    """Return where, when and with what it was measured, a sentence each."""
    machine = report.machine
    engines: dict[str, list[str]] = {}
    for name, what in report.engines.items():
        engines.setdefault(what, []).append(name)
    found = [
        f"Measured on {report.made_at[:10]} with llmsnap {report.version} on {machine.system}, "
        f"{machine.cores} cores of {machine.processor}, "
        f"{machine.memory_bytes / 2**30:.0f} GiB RAM, {machine.swap_bytes / 2**30:.0f} GiB swap, "
        + (f"GPUs {'; '.join(machine.gpus)}" if machine.gpus else "no GPU")
        + (f", NVIDIA's driver {machine.driver}." if machine.driver else "."),
    ]
    if engines:
        told = (f"{what} ({', '.join(names)})" for what, names in engines.items())
        found.append(f"Engines: {'; '.join(told)}.")
    if machine.disk_bytes_per_s:
        found.append(f"The disk reads a model's file at {machine.disk_bytes_per_s / 1e9:.2f} GB/s.")
    if report.ended:
        found.append(f"Not all was measured: {report.ended}.")
    return found


def sheet(report: Report) -> str:
    """Return every sample as a line of CSV; phases are columns `phase_…`."""
    phases = sorted({name for one in report.samples for name in one.phases_s})
    plain = [name for name in Sample.__struct_fields__ if name != "phases_s"]
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow([*plain, *(f"phase_{name}_s" for name in phases)])
    for one in report.samples:
        values = [getattr(one, name) for name in plain]
        writer.writerow([*values, *(one.phases_s.get(name) for name in phases)])
    return text.getvalue()


def same_machine(one: Report, other: Report) -> bool:
    """Whether both were measured on the same one, as far as can be told."""
    machines = [replace(report.machine, disk_bytes_per_s=None) for report in (one, other)]
    return machines[0] == machines[1]


def compared(before: Report, after: Report) -> list[list[str]]:
    """Return a row for each case that both have: both times, and how many times as fast."""
    older, newer = by_case(before.samples), by_case(after.samples)
    rows = []
    for case, samples in newer.items():
        then = Spread.of(one.first_s for one in good(older.get(case, ())))
        now = Spread.of(one.first_s for one in good(samples))
        if then and now:
            times = then.median / now.median
            verdict = (
                "faster" if now.most < then.least else "slower" if now.least > then.most else ""
            )
            rows.append(
                [
                    case.model,
                    str(case.length),
                    case.state,
                    case.server,
                    seconds(then),
                    seconds(now),
                    f"{times:.2f} x",
                    verdict,
                ]
            )
    return rows


def _line(cells: list[str] | tuple[str, ...]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
