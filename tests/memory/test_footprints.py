"""Which figure counts, how it is learned, when it is forgotten."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pytest

from llmsnap.errors import StoreFailed
from llmsnap.memory.fitting import Fit
from llmsnap.memory.footprints import SCHEMA, Figure, Footprints, Source, Subject
from llmsnap.memory.identity import Command
from tests.helpers import database

opened = partial(database.opened, schema=SCHEMA)
"""The database of one proxy after the other."""
GIB = 1024**3
MIB = 1024**2
Bytes = Mapping[str, int]


@dataclass(frozen=True)
class Guess:
    """What a file says."""

    need: Bytes
    certain: Bytes = field(default_factory=dict)


def subject(folder: Path, name: str = "a", **facts: object) -> Subject:
    """A model of its own file."""
    file = folder / f"{name}.gguf"
    if not file.exists():  # another time would make it another file
        file.touch()
    command = Command(argv=["server", "-m", str(file)], env={}, own={}, port=1)
    return Subject(command=command, **facts)  # type: ignore[arg-type]


def figure_of(footprints: Footprints, model: str = "a") -> tuple[Source, Bytes]:
    """Where the figure is from, and what it is."""
    figure = footprints.figure(model)
    assert figure.why
    return figure.source, figure.bytes


async def test_the_better_figure_counts(tmp_path: Path) -> None:
    """Declared before learned before estimated before unknown."""
    guess = Guess({"host": 3 * GIB}, {"host": 2 * GIB})
    subjects = {
        "declared": subject(tmp_path, "declared", declared={"host": GIB}),
        "guessed": subject(tmp_path, "guessed", guess={"gpu0": GIB, "gpu1": GIB}),
        "estimated": subject(tmp_path, "estimated"),
        "unknown": subject(tmp_path, "unknown"),
    }
    async with opened(tmp_path) as store:
        footprints = Footprints(
            subjects, store, estimate=lambda model: guess if model != "unknown" else None
        )
        await footprints.refresh()

        assert figure_of(footprints, "declared") == (Source.DECLARED, {"host": GIB})
        assert figure_of(footprints, "guessed") == (Source.ESTIMATED, {"gpu0": GIB, "gpu1": GIB})
        assert figure_of(footprints, "estimated") == (Source.ESTIMATED, {"host": 3 * GIB})
        assert footprints.figure("estimated").certain == {"host": 2 * GIB}
        assert figure_of(footprints, "unknown") == (Source.UNKNOWN, {})
        for model in subjects:
            footprints.saw(model, {"host": 2 * GIB})
        assert [footprints.figure(model).source for model in subjects] == [
            Source.DECLARED,
            Source.LEARNED,
            Source.LEARNED,
            Source.LEARNED,
        ]


async def test_what_is_learned_outlives_the_proxy(tmp_path: Path) -> None:
    """Of the same command, file and engine."""
    async with opened(tmp_path) as store:
        footprints = Footprints({"a": subject(tmp_path)}, store)
        assert await footprints.refresh() == []
        assert footprints.saw("a", {"host": GIB}) == {"host": GIB}
    async with opened(tmp_path) as store:
        footprints = Footprints({"a": subject(tmp_path)}, store)
        assert figure_of(footprints)[0] is Source.UNKNOWN
        assert await footprints.refresh() == ["a"]
        assert figure_of(footprints) == (Source.LEARNED, {"host": GIB})
        assert await footprints.refresh() == []


async def test_another_file_makes_it_forget(tmp_path: Path) -> None:
    """Also while the proxy runs; the file of before brings its figure back."""
    async with opened(tmp_path) as store:
        footprints = Footprints({"a": subject(tmp_path)}, store)
        await footprints.refresh()
        footprints.saw("a", {"host": GIB})
        (tmp_path / "a.gguf").write_text("new weights")

        assert await footprints.refresh(["a"]) == ["a"]
        assert figure_of(footprints) == (Source.UNKNOWN, {})
        footprints.saw("a", {"host": 2 * GIB})
    async with opened(tmp_path) as store:
        footprints = Footprints({"a": subject(tmp_path)}, store)
        await footprints.refresh()
        assert figure_of(footprints) == (Source.LEARNED, {"host": 2 * GIB})


async def test_the_highest_counts(tmp_path: Path) -> None:
    """A device at a time; less is no news, and neither is a little more."""
    async with opened(tmp_path) as store:
        footprints = Footprints({"a": subject(tmp_path)}, store)
        await footprints.refresh()

        assert footprints.saw("a", {"host": GIB, "gpu0": 4 * GIB})
        assert footprints.saw("a", {"host": GIB + 15 * MIB, "gpu0": 3 * GIB}) is None
        assert footprints.saw("a", {"host": 2 * GIB}) == {"host": 2 * GIB, "gpu0": 4 * GIB}
        assert footprints.saw("a", {"gpu0": 4 * GIB + 32 * MIB}) is None
        assert footprints.saw("a", {"gpu0": 4 * GIB + 64 * MIB}) is not None


async def test_growth_ends_where_pinned_models_begin(tmp_path: Path) -> None:
    """A model that is up isn't refused next time because it grew; that is kept, too."""
    subjects = {
        "a": subject(tmp_path),
        "pin": subject(tmp_path, "pin", declared={"host": GIB}, pinned=True),
    }
    async with opened(tmp_path) as store:
        footprints = Footprints(subjects, store, capacity=lambda: {"host": 4 * GIB})
        await footprints.refresh()
        footprints.saw("a", {"host": 2 * GIB, "gpu0": 9 * GIB})
        assert footprints.saw("a", {"host": 5 * GIB}) == {"host": 3 * GIB, "gpu0": 9 * GIB}
        assert footprints.saw("a", {"host": 6 * GIB}) is None
    async with opened(tmp_path) as store:
        footprints = Footprints(subjects, store)
        await footprints.refresh()
        assert figure_of(footprints)[1]["host"] == 3 * GIB


async def test_a_fitted_model_is_learned_from_only_when_it_is_whole(tmp_path: Path) -> None:
    """What it holds else says what was free."""
    async with opened(tmp_path) as store:
        footprints = Footprints({"a": subject(tmp_path, fit=Fit.CONTEXT)}, store)
        await footprints.refresh()
        assert footprints.saw("a", {"host": GIB}) is None
        footprints.started("a", whole=True)
        assert footprints.saw("a", {"host": GIB}) is not None
        footprints.started("a", whole=False)
        assert footprints.saw("a", {"host": 2 * GIB}) is None


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        ({"host": 2 * GIB}, {"host": round(2.3 * GIB)}),
        ({"host": 3.9 * GIB}, {"host": 4 * GIB}),
        ({"gpu0": 2 * GIB}, {"gpu0": round(2.3 * GIB)}),
    ],
)
async def test_running_out_of_memory_raises_it(
    tmp_path: Path, seen: Bytes, expected: Bytes
) -> None:
    """By 15 %, at most to what there is, and that is kept."""
    async with opened(tmp_path) as store:
        footprints = Footprints({"a": subject(tmp_path)}, store, capacity=lambda: {"host": 4 * GIB})
        await footprints.refresh()
        footprints.saw("a", {device: round(size) for device, size in seen.items()})
        assert footprints.ran_out("a") == expected
    async with opened(tmp_path) as store:
        footprints = Footprints({"a": subject(tmp_path)}, store)
        await footprints.refresh()
        assert figure_of(footprints) == (Source.LEARNED, expected)
        assert "memory ran out" in footprints.figure("a").why


async def test_running_out_of_memory_without_a_figure_teaches_nothing(tmp_path: Path) -> None:
    """It was alone already; what is declared is the user's word."""
    subjects = {"a": subject(tmp_path), "b": subject(tmp_path, "b", declared={"host": GIB})}
    async with opened(tmp_path) as store:
        footprints = Footprints(subjects, store)
        await footprints.refresh()
        assert footprints.ran_out("a") is None
        assert footprints.ran_out("b") is None


async def test_a_file_that_cant_be_read_gives_no_estimate(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The model loads alone, and the log says why."""

    def unreadable(_: str) -> Guess:
        raise OSError("a.gguf is no GGUF file")

    async with opened(tmp_path) as store:
        footprints = Footprints({"a": subject(tmp_path)}, store, estimate=unreadable)
        await footprints.refresh()

        assert figure_of(footprints)[0] is Source.UNKNOWN
    assert "a.gguf is no GGUF file" in caplog.text


async def test_an_estimate_that_was_too_small_is_learned_to_be_more(tmp_path: Path) -> None:
    """Else it would be tried with the same figure after each restart."""
    async with opened(tmp_path) as store:
        footprints = Footprints(
            {"a": subject(tmp_path)}, store, estimate=lambda _: Guess({"host": GIB})
        )
        await footprints.refresh()
        assert footprints.ran_out("a") == {"host": round(1.15 * GIB)}
        assert figure_of(footprints)[0] is Source.LEARNED


@pytest.mark.parametrize("jump", ["-3 years", "+3 years"])
async def test_no_clock_makes_what_was_learned_go(tmp_path: Path, jump: str) -> None:
    """It may be wrong; so only what wasn't asked for longest goes, when there is very much."""
    async with opened(tmp_path) as store:
        footprints = Footprints({"a": subject(tmp_path), "b": subject(tmp_path, "b")}, store)
        await footprints.refresh()
        footprints.saw("a", {"host": GIB})
        footprints.saw("b", {"host": GIB})
    with closing(sqlite3.connect(tmp_path / "llmsnap.db")) as other, other:
        other.execute("UPDATE footprints SET learned = datetime(learned, ?)", (jump,))
        values = (f"({n}, '', '{{}}', '', datetime('now', '-4 years'))" for n in range(2000))
        other.execute(f"INSERT INTO footprints VALUES {', '.join(values)}")
    async with opened(tmp_path) as store:
        footprints = Footprints({"a": subject(tmp_path), "b": subject(tmp_path, "b")}, store)
        assert await footprints.refresh() == ["a", "b"]
    with closing(sqlite3.connect(tmp_path / "llmsnap.db")) as other:
        assert other.execute("SELECT count(*) FROM footprints").fetchall() == [(1000,)]


async def test_rows_that_make_no_sense_are_passed_over(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Somebody has been at the file."""
    async with opened(tmp_path) as store:
        footprints = Footprints({"a": subject(tmp_path)}, store)
        await footprints.refresh()
        footprints.saw("a", {"host": GIB})
    with closing(sqlite3.connect(tmp_path / "llmsnap.db")) as other, other:
        other.execute('UPDATE footprints SET bytes = \'{"host": "much"}\'')
    async with opened(tmp_path) as store:
        footprints = Footprints({"a": subject(tmp_path)}, store)
        assert await footprints.refresh() == []

    assert "can't be read" in caplog.text


async def test_without_a_database_it_learns_all_the_same(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """For as long as it runs."""

    class Closed:
        def write(self, sql: str, values: object) -> None:
            """Lose it."""

        async def read(self, sql: str, values: object) -> list[tuple[object, ...]]:
            """Fail."""
            raise StoreFailed("closed")

    footprints = Footprints({"a": subject(tmp_path)}, Closed())
    await footprints.refresh()
    footprints.saw("a", {"host": GIB})

    assert footprints.figure("a") == Figure(
        source=Source.LEARNED, bytes={"host": GIB}, why="the most it was seen to hold"
    )
    assert "closed" in caplog.text
