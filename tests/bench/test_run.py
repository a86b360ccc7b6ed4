"""The order of a run, and how it ends."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

from llmsnap.bench.programme import Programme, swap_scenes
from llmsnap.bench.run import INTERRUPTED, TIME_IS_UP, Progress, Run
from llmsnap.bench.samples import OURS, Case, Sample, Scene
from tests.bench.samples import report, sample


class Actors:
    """A server whose samples go as told, by scene; each takes a second."""

    def __init__(self, **faults: str) -> None:
        self.asked: list[tuple[int, Case]] = []
        self.faults = faults
        self.on_ask: Callable[[], None] = lambda: None

    def sample(self, case: Case, turn: int) -> Sample:
        """Take one."""
        self.asked.append((turn, case))
        self.on_ask()
        return sample(
            model=case.model,
            scene=case.scene,
            length=case.length,
            server=case.server,
            by=case.by,
            turn=turn,
            fault=self.faults.get(case.by or case.scene.name, ""),
        )


class World:
    """A run of one turn, or more, and its report."""

    def __init__(
        self, actors: Actors, *, limit_s: float = 1e6, turns: int = 1, **programme: Any
    ) -> None:
        self.report = report()
        self.shown: list[Progress] = []
        self.programme = Programme(
            models=["a", "b"],
            turns=turns,
            others=["other"],
            scenes=swap_scenes(["a", "b"], is_cold=True),
            **{"lengths": [100], **programme},
        )
        self.run = Run(
            self.programme,
            {OURS: actors, "other": actors},
            self.report,
            clock=map(float, count()).__next__,
            limit_s=limit_s,
            show=self.shown.append,
        )


def test_servers_take_turns_and_the_first_turn_warms_up() -> None:
    """What both can do is asked of one right after the other; nothing cold is warmed up."""
    actors = Actors()
    world = World(actors)
    world.run.measure()

    turns = [(case.scene, case.server) for turn, case in actors.asked if turn and case.model == "a"]
    assert turns == [
        (Scene.COLD, OURS),
        (Scene.CACHED, OURS),
        (Scene.ASLEEP, OURS),
        (Scene.SWAP, OURS),
        (Scene.SWAP, "other"),
        (Scene.AWAKE, OURS),
        (Scene.AWAKE, "other"),
    ]
    assert all(turn for turn, case in actors.asked if case.scene is Scene.COLD)
    assert {one.turn for one in world.report.samples} == {1}
    assert not world.report.ended


def test_slots_that_arent_restored_are_asked_for_once() -> None:
    """It is what the page cache's scene shows; that is no fault."""
    actors = Actors()
    world = World(actors, turns=3)
    world.run.measure()

    restored = [case for _, case in actors.asked if case.scene is Scene.RESTORED]
    assert [case.model for case in restored] == ["a", "b"]
    assert not world.report.left_out
    assert [note.partition(":")[0] for note in world.report.notes] == [
        "a with 100 tokens",
        "b with 100 tokens",
    ]


def test_what_cant_be_asked_at_all_is_left_out_at_once() -> None:
    """In all its states, with the reason."""
    actors = Actors(CACHED="it doesn't start")
    world = World(actors)
    world.run.measure()

    assert [case for _, case in actors.asked if case.server == OURS] == [
        Case("a", 100, Scene.CACHED, OURS),
        Case("b", 100, Scene.CACHED, OURS),
    ]
    assert len(world.report.left_out) == 2
    assert "it doesn't start" in world.report.left_out[0]
    assert {one.server for one in world.report.samples} == {"other"}


def test_a_state_that_cant_be_had_is_left_out_alone() -> None:
    """A model that doesn't sleep is measured in its other states."""
    actors = Actors(ASLEEP="it can't sleep")
    world = World(actors)
    world.run.measure()

    assert sum(case.scene is Scene.ASLEEP for _, case in actors.asked) == 2
    assert Scene.AWAKE in {one.scene for one in world.report.samples}


def test_drivers_that_work_are_measured_beside_the_usual_one() -> None:
    """Each as a case of its own; those that don't are tried once a model, and not worth a word."""
    actors = Actors(cuda="no GPU")
    world = World(actors, lengths=[100, 200], drivers=["cuda", "pageout"])
    world.run.measure()

    assert [case.model for _, case in actors.asked if case.by == "cuda"] == ["a", "b"]
    asleep = [one for one in world.report.samples if one.scene is Scene.ASLEEP]
    assert sorted((one.model, one.length, one.by) for one in asleep) == [
        (model, length, by) for model in "ab" for length in (100, 200) for by in ("", "pageout")
    ]
    assert not world.report.left_out


def test_what_doesnt_sleep_isnt_asked_to_by_every_driver() -> None:
    """Its own way asked them all."""
    actors = Actors(ASLEEP="it can't sleep")
    World(actors, drivers=["cuda", "pageout"]).run.measure()

    assert [case.by for _, case in actors.asked if case.scene is Scene.ASLEEP] == ["", ""]


def test_the_warm_up_takes_the_shortest_text_of_each_model() -> None:
    """And models may have lengths of their own."""
    actors = Actors()
    world = World(actors, lengths=[200, 100], lengths_of={"b": [50]})
    world.run.measure()

    assert {(case.model, case.length) for turn, case in actors.asked if not turn} == {
        ("a", 100),
        ("b", 50),
    }
    assert {(one.model, one.length) for one in world.report.samples} == {
        ("a", 100),
        ("a", 200),
        ("b", 50),
    }


def test_when_time_is_up_there_is_a_report() -> None:
    """Of what there was time for."""
    world = World(Actors(), limit_s=60)
    world.run.measure()

    assert world.report.ended == TIME_IS_UP
    assert world.report.samples


def test_warming_up_leaves_time_to_measure() -> None:
    """Where it would take most of it, it is cut short, which is noted."""
    actors = Actors()
    world = World(actors, limit_s=40)
    world.run.measure()

    assert 0 < sum(not turn for turn, _ in actors.asked) < 10
    assert world.report.samples
    assert "there was no time to warm everything up" in world.report.notes


def test_an_interrupted_run_keeps_what_it_has() -> None:
    """And says so."""
    actors = Actors()

    def stop() -> None:
        if len(actors.asked) == 16:
            raise KeyboardInterrupt

    actors.on_ask = stop
    world = World(actors)
    world.run.measure()

    assert world.report.ended == INTERRUPTED
    assert world.report.samples


def test_time_left_is_known_after_the_first_sample() -> None:
    """And shrinks."""
    world = World(Actors())
    world.run.measure()

    assert world.shown[0].left_s is None
    lefts = [one.left_s for one in world.shown[1:]]
    assert lefts == sorted(lefts, key=lambda s: -(s or 0))
    assert world.shown[-1].done < world.shown[-1].all
