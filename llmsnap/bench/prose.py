"""English text that is always the same for the same seed."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Final

_WHO: Final = [
    "the baker",
    "an old sailor",
    "my neighbour",
    "the engineer",
    "a young teacher",
    "the librarian",
    "our guide",
    "the farmer",
    "a tired doctor",
    "the painter",
    "her brother",
    "the driver",
    "a visitor",
    "the gardener",
    "the clerk",
]
_DID: Final = [
    "found",
    "repaired",
    "forgot",
    "carried",
    "described",
    "sold",
    "measured",
    "hid",
    "opened",
    "painted",
    "borrowed",
    "noticed",
    "counted",
    "explained",
    "returned",
    "admired",
    "lost",
    "cleaned",
    "ordered",
    "photographed",
]
_WHAT: Final = [
    "a wooden box",
    "the broken clock",
    "several letters",
    "an empty bottle",
    "the garden gate",
    "three maps",
    "the blue bicycle",
    "a bag of apples",
    "the long ladder",
    "an unfinished report",
    "the spare key",
    "a pair of boots",
    "the weather station",
    "a stack of newspapers",
    "the small engine",
    "a copper kettle",
]
_WHERE: Final = [
    "behind the station",
    "near the river",
    "in the old market",
    "on the second floor",
    "under the bridge",
    "at the edge of the forest",
    "beside the well",
    "in a narrow street",
    "along the coast",
    "by the window",
]
_WHEN: Final = [
    "in the morning",
    "before the rain began",
    "last winter",
    "on a quiet Sunday",
    "after the concert",
    "at half past four",
    "during the storm",
    "two days later",
    "while nobody looked",
    "early in spring",
]
_AND: Final = [
    "and nobody asked why",
    "because it was getting late",
    "although the price was high",
    "so that others could use it",
    "which surprised everyone",
    "but never spoke of it again",
    "and went home without a word",
    "as the instructions said",
]


class Prose:
    """Sentences one after the other; two with the same seed say the same."""

    def __init__(self, seed: str) -> None:
        self._sentences = _sentences(random.Random(seed))

    def text(self, characters: int) -> str:
        """Return the next sentences, cut at a word, of about so many characters."""
        words: list[str] = []
        length = 0
        while length < characters:
            for word in next(self._sentences).split():
                if length < characters:
                    words.append(word)
                    length += len(word) + 1
        return " ".join(words)


def _sentences(rng: random.Random) -> Iterator[str]:
    while True:
        when, who, did = rng.choice(_WHEN), rng.choice(_WHO), rng.choice(_DID)
        what, where = rng.choice(_WHAT), rng.choice(_WHERE)
        end = f", {rng.choice(_AND)}" if rng.random() < 0.4 else ""
        yield f"{when[0].upper()}{when[1:]} {who} {did} {what} {where}{end}."
