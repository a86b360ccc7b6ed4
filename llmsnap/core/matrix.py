"""The policy of `matrix:`: of all combinations that hold a model, the cheapest one to get to."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from llmsnap.config.expressions import Expression, combinations

_DEFAULT_COST = 1


class MatrixRules:
    """Who must go before a model may load, as llama-swap's matrix has it.

    A combination is what a set allows once it is chosen at each `|`. It costs the sum of what must
    be unloaded for it. The cheapest one wins, of two equal ones the earlier in the file. A model in
    no set forces everybody out, and a running one in no set is always forced out. Pinned models
    stand outside: nobody forces them out, they force nobody out.
    """

    def __init__(
        self,
        sets: Mapping[str, Expression],
        costs: Mapping[str, int],
        pinned: Collection[str] = (),
    ) -> None:
        """`sets` are in order, each behind those that it refers to."""
        self._sets = sets
        self._costs = costs
        self._pinned = frozenset(pinned)

    def forced_out(self, target: str, others: Collection[str]) -> frozenset[str]:
        """Return those of `others` that must be gone before `target` may load."""
        running = sorted({*others} - self._pinned - {target})
        if not running or target in self._pinned:
            return frozenset()
        bits = {name: 1 << place for place, name in enumerate([target, *running])}
        wanted = bits[target]
        kept = min(
            (choice for choice in combinations(self._sets, bits) if choice & wanted),
            key=lambda choice: self._cost(running, bits, choice),
            default=0,
        )
        return frozenset(name for name in running if not kept & bits[name])

    def _cost(self, running: Iterable[str], bits: Mapping[str, int], kept: int) -> int:
        return sum(
            self._costs.get(name, _DEFAULT_COST) for name in running if not kept & bits[name]
        )
