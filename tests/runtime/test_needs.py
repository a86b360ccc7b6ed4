"""What the scheduler hears of needs, and when."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from llmsnap.core.lifecycle import State, Trigger
from llmsnap.core.messages import Event, ModelChanged, NeedChanged, NeedEstimated
from llmsnap.memory.fitting import Fit
from llmsnap.memory.footprints import Footprints, Subject
from llmsnap.memory.identity import Command
from llmsnap.runtime.health import Prober
from llmsnap.runtime.needs import Needs
from llmsnap.runtime.tasks import Background
from llmsnap.runtime.upstream import Upstream
from tests.helpers.waiting import eventually
from tests.runtime.test_health import answering
from tests.web.lender import view

pytestmark = pytest.mark.usefixtures("patient")

GIB = 1024**3


@dataclass(frozen=True)
class Guess:
    """What a file says."""

    need: Mapping[str, int]
    certain: Mapping[str, int] = field(default_factory=dict)


class Memory:
    """A store that keeps nothing."""

    def write(self, sql: str, values: object) -> None:
        """Forget it."""

    async def read(self, sql: str, values: object) -> list[tuple[object, ...]]:
        """Know nothing."""
        return []


class Fleet:
    """Who is told, and where the models are."""

    def __init__(self) -> None:
        self.told: list[Event] = []
        self.port: int | None = None

    def post(self, event: Event) -> None:
        """Note it."""
        self.told.append(event)

    def upstream(self, model: str) -> Upstream | None:
        """Return where `model` listens."""
        if self.port is None:
            return None
        return Upstream(model, 1, "127.0.0.1", self.port, "", False, None)


@dataclass
class Stage:
    """Needs between footprints and a fleet that takes notes."""

    fleet: Fleet
    footprints: Footprints
    needs: Needs
    log: list[bytes]

    def change(self, state: State, before: State) -> None:
        """Model `a` changes its state."""
        self.needs.moved(view("a", state), before)

    async def hears(self, *expected: Event) -> None:
        """Wait until the scheduler was told this, and nothing else; then forget it."""
        await eventually(lambda: self.fleet.told == list(expected))
        self.fleet.told.clear()


def subject(folder: Path, **facts: object) -> Subject:
    """A model of its own file."""
    argv = ["llama-server", "-m", str(folder / "a.gguf")]
    command = Command(argv=argv, env={}, own={}, port=1)
    return Subject(command=command, **facts)  # type: ignore[arg-type]


@pytest.fixture
async def stage(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Stage]:
    """One model of unknown size; a parameter says more about it."""
    (tmp_path / "a.gguf").write_text("weights")
    facts = dict(getattr(request, "param", {}))
    guess = facts.pop("estimate", None)
    footprints = Footprints({"a": subject(tmp_path, **facts)}, Memory(), estimate=lambda _: guess)
    fleet, background, log = Fleet(), Background(), [b""]
    async with Prober() as prober:
        needs = Needs(
            footprints,
            fleet,
            background,
            prober,
            log=lambda _: log[0],
            capacity={"host": 8 * GIB},
        )
        yield Stage(fleet, footprints, needs, log)
        await background.aclose()


@pytest.mark.parametrize(
    "stage", [{"estimate": Guess({"host": 2 * GIB}, {"host": GIB})}], indirect=True
)
async def test_estimates_are_told_at_the_beginning(stage: Stage) -> None:
    """All that is known so far."""
    await stage.needs.begin()

    await stage.hears(NeedEstimated("a", {"host": 2 * GIB}, {"host": GIB}))


async def test_nothing_is_told_where_nothing_is_known(stage: Stage) -> None:
    """The scheduler thinks so already."""
    await stage.needs.begin()

    assert stage.fleet.told == []


@pytest.mark.parametrize("stage", [{"declared": {"host": GIB}}], indirect=True)
async def test_what_is_declared_is_known_to_the_scheduler(stage: Stage) -> None:
    """It has it from the configuration."""
    await stage.needs.begin()
    stage.needs.report(ModelChanged("a", 1, Trigger.EXITED, oom=True))

    await stage.hears(ModelChanged("a", 1, Trigger.EXITED, oom=True))


async def test_a_new_file_makes_the_need_unknown_when_the_model_starts(
    stage: Stage, tmp_path: Path
) -> None:
    """What was learned of the old one doesn't hold."""
    await stage.needs.begin()
    stage.footprints.saw("a", {"host": GIB})
    (tmp_path / "a.gguf").write_text("other weights")
    stage.change(State.STARTING, State.STOPPED)

    await stage.hears(NeedEstimated("a"))


async def test_out_of_memory_raises_the_need_before_the_end_is_told(stage: Stage) -> None:
    """So that room is made for the next try."""
    stage.footprints.saw("a", {"host": GIB})
    ended = ModelChanged("a", 1, Trigger.EXITED, oom=True)
    stage.needs.report(ended)

    await stage.hears(NeedChanged("a", {"host": round(1.15 * GIB)}), ended)


async def test_other_news_is_passed_on(stage: Stage) -> None:
    """As it is."""
    stage.footprints.saw("a", {"host": GIB})
    ready = ModelChanged("a", 1, Trigger.READY)
    stage.needs.report(ready)

    await stage.hears(ready)


@pytest.mark.parametrize("stage", [{"fit": Fit.CONTEXT}], indirect=True)
@pytest.mark.parametrize(
    ("body", "log", "whole"),
    [
        ({"data": [{"meta": {"n_ctx": 8192, "n_ctx_train": 8192}}]}, b"", True),
        ({"data": [{"meta": {"n_ctx": 4096, "n_ctx_train": 8192}}]}, b"", False),
        ({"data": [{"meta": None}]}, b"no changes needed", True),
        ({"data": "nonsense"}, b"\xff context size reduced from 9 to 8", False),
    ],
)
async def test_a_fitted_server_is_asked_whether_it_took_anything_away(
    stage: Stage, body: object, log: bytes, whole: bool
) -> None:
    """Once it is ready; only then may it be learned from."""
    asked = []

    async def answer(head: bytes) -> bytes:
        asked.append(head.split()[1])
        text = json.dumps(body).encode()
        return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(text), text)

    stage.log[0] = log
    async with answering(answer) as port:
        stage.fleet.port = port
        stage.change(State.READY, State.STARTING)
        assert stage.footprints.saw("a", {"host": GIB}) is None
        await eventually(lambda: len(asked) > 0)
        if whole:
            await eventually(lambda: stage.footprints.saw("a", {"host": GIB}) is not None)
    assert asked == [b"/v1/models"]


@pytest.mark.parametrize("stage", [{"fit": Fit.CONTEXT}], indirect=True)
async def test_a_fitted_server_that_is_gone_again_isnt_learned_from(stage: Stage) -> None:
    """Neither is one that doesn't answer."""
    stage.change(State.READY, State.STARTING)
    stage.fleet.port = 1
    stage.change(State.READY, State.STARTING)

    assert stage.footprints.saw("a", {"host": GIB}) is None
