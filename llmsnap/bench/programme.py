"""Which cases are measured, in which order, and how long the rest will take."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Final

from llmsnap.bench.samples import OURS, Case, Scene

_OF_ANY_SERVER: Final = (Scene.SWAP, Scene.AWAKE)
_ORDER: Final = (
    Scene.COLD,
    Scene.CACHED,
    Scene.RESTORED,
    Scene.ASLEEP,
    Scene.SWAP,
    Scene.AWAKE,
)
"""Those that begin a conversation come first, so that the others can go on with it."""


@dataclass(frozen=True, kw_only=True)
class Programme:
    """What was asked for."""

    models: Sequence[str]
    lengths: Sequence[int]
    lengths_of: Mapping[str, Sequence[int]] = field(default_factory=dict)
    """Of models that have others."""
    turns: int
    others: Sequence[str]
    """Servers that are measured beside ours."""
    scenes: Sequence[Scene]
    drivers: Sequence[str] = ()
    """Ways to sleep that are measured beside the one that the proxy has for a model."""

    def all(self) -> Iterator[tuple[int, Case]]:
        """Yield every case behind its turn, in which each comes once.

        Server stands beside server, so that what disturbs one disturbs all. Turn 0 is to warm up:
        it has one length for each model, and nothing cold.
        """
        for case in self._turn():
            if case.length == min(self._lengths(case.model)) and case.scene is not Scene.COLD:
                yield 0, case
        for turn in range(1, self.turns + 1):
            for case in self._turn():
                yield turn, case

    def _turn(self) -> Iterator[Case]:
        every = dict.fromkeys(length for model in self.models for length in self._lengths(model))
        for length in every:
            for model in (one for one in self.models if length in self._lengths(one)):
                for scene in self.scenes:
                    for server in self._servers(scene):
                        for driver in ("", *(self.drivers if scene is Scene.ASLEEP else ())):
                            yield Case(model, length, scene, server, driver)

    def _lengths(self, model: str) -> Sequence[int]:
        return self.lengths_of.get(model, self.lengths)

    def _servers(self, scene: Scene) -> list[str]:
        return [OURS, *(self.others if scene in _OF_ANY_SERVER else ())]


def swap_scenes(models: Sequence[str], *, is_cold: bool) -> list[Scene]:
    """Return the scenes of a swap that can be set with these models and rights."""
    left_out = set()
    if not is_cold:
        left_out.add(Scene.COLD)
    if len(models) < 2:
        left_out.add(Scene.SWAP)
    return [scene for scene in _ORDER if scene not in left_out]


@dataclass
class Pace:
    """How long each case takes, learned as they are measured."""

    _took_s: dict[Case, list[float]] = field(default_factory=lambda: defaultdict(list))

    def took(self, case: Case, seconds: float) -> None:
        """Learn."""
        self._took_s[case].append(seconds)

    def left_s(self, cases: Sequence[Case]) -> float | None:
        """Return what these will take; None: nobody can know yet."""
        if not self._took_s:
            return None
        usual_s = fmean(fmean(times) for times in self._took_s.values())
        return sum(fmean(self._took_s[c]) if c in self._took_s else usual_s for c in cases)
