"""Which command a run of `llmsnap bench kv` suggests."""

from __future__ import annotations

from llmsnap.bench.advice import advise
from llmsnap.bench.samples import Sample, Scene
from llmsnap.bench.variants import Variant
from tests.bench.samples import report, sample

MIB = 2**20


def variant(name: str, room: str = "") -> Variant:
    """A command of that name."""
    return Variant(name, ["llama-server", name], room)


def new(name: str, first_s: float, rate: float = 50.0, length: int = 512) -> Sample:
    """What it took to read a new text."""
    return sample(first_s, model=name, scene=Scene.NEW, length=length, tokens_per_s=rate)


def test_of_those_about_as_quick_the_smallest_cache_is_taken() -> None:
    """Reading and writing both count, with the longest text."""
    found = report(
        new("whole", 1.0, 50.0),
        new("half", 1.1, 48.0),
        new("quarter", 1.1, 20.0),
        new("quarter", 0.1, 90.0, length=64),
    )
    sizes = {"whole": 90 * MIB, "half": 48 * MIB, "quarter": 25 * MIB}
    advise(found, [variant(name) for name in sizes], sizes)

    command, why = found.advice
    assert command == "take: cmd: llama-server half"
    assert "1.10 s to the first token of 512 new tokens and 48.0 tokens/s after it" in why
    assert "the quickest, whole: 6.12 s" in why
    assert "smallest cache, 48 MiB" in why
    assert found.notes == [
        "the cache takes, by what its file tells: whole 90 MiB, half 48 MiB, quarter 25 MiB"
    ]


def test_each_context_has_its_own_advice() -> None:
    """A smaller one isn't better for being smaller."""
    found = report(new("a", 1.0), new("b", 2.0))
    advise(found, [variant("a", "c-1024"), variant("b", "c-8192")], {"a": MIB, "b": 8 * MIB})

    assert found.advice[0::2] == [
        "take for c-1024: cmd: llama-server a",
        "take for c-8192: cmd: llama-server b",
    ]


def test_what_came_back_is_judged_by_its_share_of_the_prompt() -> None:
    """Half or more of it was worth it; a server that doesn't say is named."""
    scenes = ((Scene.ASLEEP, 60), (Scene.RESTORED, 40))
    found = report(
        *(sample(model="m", scene=scene, prompt=100, cached=cached) for scene, cached in scenes),
        sample(model="n", scene=Scene.ASLEEP),
    )
    advise(found, [], {})

    assert found.advice == [
        "m, 512 tokens, asleep: the cache was used (60% of the prompt)",
        "m, 512 tokens, restored slots: the cache was useless (40% of the prompt)",
        "n, 512 tokens, asleep: its server doesn't say what was cached",
    ]


def test_nothing_measured_is_no_advice() -> None:
    """Where every copy failed, say."""
    found = report(sample(model="m", scene=Scene.NEW, fault="it broke"))
    advise(found, [variant("m")], {"m": None})

    assert found.advice == found.notes == []
