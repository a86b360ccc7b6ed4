"""What an operator is told of the commands of models."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from llmsnap.memory.advice import advice_for
from llmsnap.memory.gguf import Estimate, Parts

GIB = 1024**3


def advice(estimate: Estimate, declared: Mapping[str, int] | None = None) -> list[str]:
    """Return what is said of the model `m`."""
    return list(advice_for({"m": (estimate, declared)}))


def of_host(weights: int = 4 * GIB, **more: object) -> Estimate:
    """Return an estimate of a model in RAM."""
    certain = {"host": weights}
    return Estimate(
        parts={"host": Parts(weights=weights)},
        growth={},
        certain=certain,
        **more,  # type: ignore[arg-type]
    )


def test_nothing_to_say() -> None:
    """Of a command that says all that counts."""
    assert advice(of_host()) == []


def test_weights_that_are_there_twice() -> None:
    """Only where it is much, and where RAM is what counts."""
    assert "--no-mmap saves about 2 GiB" in advice(of_host(saved_by_no_mmap=2 * GIB))[0]
    assert advice(of_host(saved_by_no_mmap=GIB // 4)) == []
    on_gpu = Estimate(
        parts={"host": Parts(weights=GIB), "gpu0": Parts(weights=GIB)},
        growth={},
        certain={},
        saved_by_no_mmap=GIB,
    )
    assert advice(on_gpu) == []


def test_what_is_left_to_llama_server() -> None:
    """Not where the configuration declares what the model needs."""
    fitted = of_host(unset=("-c", "-ngl"))

    assert "write -c and -ngl into the command" in advice(fitted)[0]
    assert advice(fitted, {"host": 8 * GIB}) == []


@pytest.mark.parametrize(("declared", "told"), [(3 * GIB, True), (4 * GIB, False)])
def test_declarations_that_cannot_be_right(declared: int, told: bool) -> None:
    """Less than the weights alone."""
    found = advice(of_host(), {"host": declared})

    assert bool(found) is told
    assert not told or "3 GiB of 'host' are declared, but its weights alone are 4 GiB" in found[0]


def test_past_conversations_are_told_of_once() -> None:
    """For all models that don't bound them."""
    unbounded = of_host(is_bounded=False)

    found = list(
        advice_for({"a": (unbounded, None), "b": (unbounded, None), "c": (of_host(), None)})
    )

    assert len(found) == 1
    assert found[0].startswith("a, b: ")


def test_u78_past_conversations_that_are_more_than_there_is_ram() -> None:
    """Each server's bound is its own; together they count against the machine."""
    four = Estimate(parts={"host": Parts(weights=GIB)}, growth={"host": 4 * GIB}, certain={})
    pairs = {"a": (four, None), "b": (four, None)}

    assert list(advice_for(pairs, 8 * GIB)) == []
    assert "may come to keep 8 GiB" in next(advice_for(pairs, 7 * GIB))
