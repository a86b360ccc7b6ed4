"""What models turned out to need."""

from __future__ import annotations

from llmsnap.memory.learned import Learned
from tests.memory.looks import GIB, gib


def test_the_most_that_was_seen_is_remembered() -> None:
    """Less is no news, and little more isn't worth a word."""
    learned = Learned(())
    assert learned.saw("a", {"host": GIB}) == {"host": GIB}
    assert learned.saw("a", {"host": GIB // 2}) is None
    assert learned.saw("a", {"host": GIB + 1024}) is None
    assert learned.saw("a", {"host": gib(1.5)}) == {"host": gib(1.5)}


def test_each_device_for_itself() -> None:
    """A model may grow on one of them."""
    learned = Learned(())
    learned.saw("a", {"gpu0": GIB, "gpu1": GIB})
    assert learned.saw("a", {"gpu0": gib(0.5), "gpu1": gib(2)}) == {"gpu0": GIB, "gpu1": gib(2)}


def test_what_is_declared_stands() -> None:
    """Whoever wrote it had a reason."""
    assert Learned(["a"]).saw("a", {"host": GIB}) is None
