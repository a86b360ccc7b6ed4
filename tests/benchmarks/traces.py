"""Who asks what and when, in the simulation of mixed work: seeded, so always the same."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

_ANSWER_S: Final = 4.0
"""Median of a single answer."""
_LONGEST: Final = 25.0
"""No answer takes longer than so many medians."""
_MIX: Final = {"single": 0.4, "burst": 0.2, "agent": 0.25, "pair": 0.15}


@dataclass(frozen=True, slots=True)
class Turn:
    """One request."""

    model: str
    seconds: float
    """What the answer takes once the engine is on it."""
    pause_s: float = 0.0
    """From the end of the answer to the client's next request."""


@dataclass(frozen=True, slots=True)
class Visit:
    """One client, who asks one thing after the other."""

    at_s: float
    turns: tuple[Turn, ...]


def crowd(seed: int, names: Sequence[str], requests: int, load: float) -> list[Visit]:
    """Return single requests, bursts of 3-10, agent loops, and loops over two models.

    Which model is drawn by Zipf's law; agents pause for 2-5 s. `load` is the work that comes in
    a second, in seconds of answers.
    """
    rng = random.Random(seed)
    names = list(names)
    rng.shuffle(names)
    weights = [1 / place for place in range(1, len(names) + 1)]
    visits: list[Visit] = []
    now, count = 0.0, 0

    def pick() -> str:
        return rng.choices(names, weights)[0]

    while count < requests:
        (kind,) = rng.choices(list(_MIX), list(_MIX.values()))
        group = _group(kind, rng, pick)
        count += sum(map(len, group))
        work_s = sum(turn.seconds for turns in group for turn in turns)
        visits += [Visit(now + rng.uniform(0, 0.5), tuple(turns)) for turns in group]
        now += rng.expovariate(load / work_s)
    return visits


def one_person(seed: int, names: Sequence[str], requests: int) -> list[Visit]:
    """Return somebody who asks a model, reads, and asks another; some go a-b-a-b at once."""
    rng = random.Random(seed)
    turns: list[Turn] = []
    while len(turns) < requests:
        first = rng.choice(list(names))
        if rng.random() < 0.3:
            second = rng.choice(list(names))
            turns += [
                Turn(model, _answer_s(rng, _ANSWER_S), rng.uniform(0.1, 1))
                for model in (first, second, first, second)
            ]
        else:
            turns += [
                Turn(first, _answer_s(rng, _ANSWER_S), rng.uniform(1, 40))
                for _ in range(rng.randint(1, 3))
            ]
    return [Visit(0.0, tuple(turns))]


def _group(kind: str, rng: random.Random, pick: Callable[[], str]) -> list[list[Turn]]:
    """Return what clients ask that come at the same time, a list each."""
    if kind == "single":
        return [[Turn(pick(), _answer_s(rng, _ANSWER_S))]]
    half = _ANSWER_S / 2
    first = pick()
    if kind == "burst":
        return [[Turn(first, _answer_s(rng, half))] for _ in range(rng.randint(3, 10))]
    if kind == "agent":
        calls = rng.randint(4, 20)
        return [[Turn(first, _answer_s(rng, half), rng.uniform(2, 5)) for _ in range(calls)]]
    both = first, pick()
    calls = rng.randint(4, 16)
    return [
        [
            Turn(both[i % 2 if rng.random() < 0.8 else 0], _answer_s(rng, half), _soon(rng))
            for i in range(calls)
        ]
    ]


def _soon(rng: random.Random) -> float:
    return rng.uniform(0.2, 3)


def _answer_s(rng: random.Random, median_s: float) -> float:
    return min(rng.lognormvariate(0, 1.0) * median_s, median_s * _LONGEST)
