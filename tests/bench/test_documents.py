"""A report in each of its forms."""

from __future__ import annotations

import csv
import io
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from msgspec import structs

from llmsnap.bench.documents import compared, markdown, same_machine, sheet
from llmsnap.bench.page import page
from llmsnap.bench.pictures import plots
from llmsnap.bench.report import Report, read, write
from llmsnap.bench.rows import COLUMNS, table
from llmsnap.bench.samples import Scene
from llmsnap.errors import LlmsnapError
from tests.bench.samples import MACHINE, report, sample


@pytest.fixture
def full() -> Report:
    """Two lengths, states with phases, another server, a fault, and names that need care."""
    samples = [
        sample(
            first_s,
            model="<m>|x",
            length=length,
            turn=turn,
            scene=scene,
            phases_s={phase: first_s / 2, "prefill": first_s / 2} if phase else {},
            server=server,
            prompt=length,
            cached=7,
            tokens_per_s=20.0,
            moved_bytes=2_000_000_000,
            moved_s=0.5,
        )
        for length in (512, 4096)
        for turn, first_s in ((1, 1.0), (2, 2.0), (3, 1.5))
        for scene, phase, server in (
            (Scene.CACHED, "start", "llmsnap"),
            (Scene.ASLEEP, "wake", "llmsnap"),
            (Scene.AWAKE, "", "llmsnap"),
            (Scene.AWAKE, "", "other"),
        )
    ]
    lost = sample(model="<m>|x", scene=Scene.SWAP, fault="it broke", phases_s={})
    return report(*samples, lost, left_out=["a <b>"], ended="interrupted")


def test_rows_hold_medians_with_the_least_and_the_most(full: Report) -> None:
    """And the other server's ratio, turn by turn."""
    rows = [dict(zip(COLUMNS, row, strict=True)) for row in table(full)]

    first = rows[0]
    assert first["state"] == "page cache"
    assert first["first token"] == "1.5 s (1-2)"
    assert first["ready after"] == "0.75 s (0.5-1)"
    assert first["moved"] == "2.00 GB, 4.00 GB/s"
    other = next(row for row in rows if row["server"] == "other")
    assert other["against ours"] == "1.00 x (1.00-1.00)"
    assert [row["first token"] for row in rows if row["state"] == "swap"] == ["failed"]


def test_bytes_are_compared_with_what_brings_them() -> None:
    """The disk for what was cold, the link for a GPU's memory; nothing where that isn't known."""
    moved = {"moved_bytes": 2_000_000_000, "moved_s": 1.0}
    samples = [
        sample(scene=Scene.COLD, **moved),
        sample(scene=Scene.ASLEEP, way="cuda", **moved),
        sample(scene=Scene.ASLEEP, by="pageout", way="pageout", **moved),
    ]
    found = report(*samples)
    assert [row[-2] for row in table(found)] == ["2.00 GB, 2.00 GB/s"] * 3

    found.machine = structs.replace(MACHINE, disk_bytes_per_s=2.5e9, link_bytes_per_s=32e9)
    assert [row[-2].partition("/s")[2] for row in table(found)] == [
        " (80% of the disk)",
        " (6% of the link)",
        "",
    ]


def test_the_same_machine_is_known_again() -> None:
    """However fast its disk was at the time."""
    one, other = report(), report()
    other.machine = structs.replace(MACHINE, disk_bytes_per_s=1e9)
    assert same_machine(one, other)
    other.machine = structs.replace(MACHINE, cores=4)
    assert not same_machine(one, other)


def test_markdown_has_a_row_a_case(full: Report) -> None:
    """With as many cells everywhere; what was left out stands below."""
    lines = [line for line in markdown(full).splitlines() if line.startswith("|")]

    assert {line.replace("\\|", "").count("|") for line in lines} == {len(COLUMNS) + 1}
    assert len(lines) == 2 + len(table(full))
    assert "- a <b>" in markdown(full)
    assert "Not all was measured: interrupted." in markdown(full)


def test_the_sheet_has_a_line_a_sample(full: Report) -> None:
    """Phases are columns of their own."""
    lines = list(csv.DictReader(io.StringIO(sheet(full))))

    assert len(lines) == len(full.samples)
    assert lines[0]["phase_start_s"] == "0.5"
    assert lines[0]["phase_wake_s"] == ""


def test_the_page_stands_by_itself(full: Report) -> None:
    """Nothing is fetched, nothing is code, and all names are text; each plot is sound XML."""
    text = page(full)

    assert "<m>" not in text
    assert "&lt;m&gt;" in text
    assert "<script" not in text
    assert "src=" not in text
    assert "href=" not in text
    drawn = plots(full)
    assert len(drawn) == 3
    for svg in drawn.values():
        assert ET.fromstring(svg).tag.endswith("svg")


def test_settings_of_a_cache_are_plotted_side_by_side() -> None:
    """By state, over the lengths; how fast they write and how large they are besides."""
    samples = [
        sample(1.0, model=name, scene=scene, length=length, tokens_per_s=20.0)
        for name in ("kv-f16", "kv-q8_0")
        for scene in (Scene.NEW, Scene.AWAKE)
        for length in (512, 4096)
    ]
    found = report(*samples)
    found.kind, found.settings = "kv", {"kv_bytes": {"kv-f16": 2**20, "kv-q8_0": None}}

    drawn = plots(found)
    assert [*drawn] == [
        "new text: time to the first token",
        "awake: time to the first token",
        "writing after 4096 tokens",
        "the cache's size",
    ]
    assert all(name in drawn["writing after 4096 tokens"] for name in ("kv-f16", "kv-q8_0"))
    assert "kv-q8_0" not in drawn["the cache's size"]
    for svg in drawn.values():
        assert ET.fromstring(svg).tag.endswith("svg")


def test_one_length_makes_no_line() -> None:
    """But a bar for each state, in the same colours."""
    lined = plots(report(sample(), sample(length=4096)))
    barred = plots(report(sample()))

    assert "<polyline" in lined["m: time to the first token"]
    assert "<polyline" not in barred["m: time to the first token"]
    assert "1 s</text>" in barred["m: time to the first token"]


def test_an_empty_report_has_a_page() -> None:
    """Where everything failed, say."""
    assert "<table>" in page(report(sample(fault="it broke")))
    assert plots(report()) == {}


def test_what_is_written_is_read_again(full: Report, tmp_path: Path) -> None:
    """Whole; what isn't a report is told."""
    write(full, tmp_path / "r.json")
    assert read(tmp_path / "r.json") == full

    (tmp_path / "x.json").write_text("[]")
    with pytest.raises(LlmsnapError, match="isn't a report"):
        read(tmp_path / "x.json")
    with pytest.raises(LlmsnapError, match="can't be read: No such file"):
        read(tmp_path / "none.json")


def test_reports_are_compared_case_by_case() -> None:
    """It is faster or slower only where no sample says otherwise."""
    before = report(*(sample(s, turn=n) for n, s in enumerate((1.0, 1.1))), sample(length=1))
    after = report(*(sample(s, turn=n) for n, s in enumerate((0.5, 0.6))), sample(length=2))

    ((*_, faster, verdict),) = compared(before, after)
    assert (faster, verdict) == ("1.91 x", "faster")
    ((*_, verdict),) = compared(after, before)
    assert verdict == "slower"
    assert [row[-1] for row in compared(before, before)] == ["", ""]
