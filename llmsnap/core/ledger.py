"""The memory books: who holds how much of each device and of each tier."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from math import inf

from llmsnap.core.lifecycle import State
from llmsnap.core.placement import Share
from llmsnap.core.slot import COMING, Slot


class Ledger:
    """Adds up what the slots hold; nothing is kept twice, so that nothing can disagree.

    A device without a capacity is no concern of anybody; a tier without a budget has no end.
    """

    def __init__(
        self, slots: Iterable[Slot], capacity: Mapping[str, int], tiers: Mapping[str, int]
    ) -> None:
        self._slots: list[Slot] = []
        self._pinned: list[Slot] = []
        self.capacity: dict[str, int] = {}
        self.tiers: dict[str, int] = {}
        self.foreign: dict[str, int] = {}
        """Bytes a device that other programs take out of the capacity."""
        self.outgrown: dict[str, int] = {}
        """Bytes that tiers held when their budget was made smaller than that."""
        self.take(slots, capacity, tiers)

    def take(
        self, slots: Iterable[Slot], capacity: Mapping[str, int], tiers: Mapping[str, int]
    ) -> None:
        """Keep the books of these models from now on, with this much room."""
        self._slots = list(slots)
        self._pinned = [slot for slot in self._slots if slot.spec.pinned]
        self.capacity, self.tiers = dict(capacity), dict(tiers)
        self.foreign = {device: self.foreign.get(device, 0) for device in capacity}
        self.outgrown = {
            tier: amount for tier in tiers if (amount := self.tier_held(tier)) > tiers[tier]
        }
        self.settle()

    def tier_held(self, tier: str) -> int:
        """Return the bytes that sleeping models hold of `tier`, or may hold soon."""
        asleep = [slot for slot in self._slots if slot.is_in_tier]
        held = [place for slot in asleep for place in (slot.tier_held, slot.bound_for)]
        return sum(amount for name, amount in held if name == tier)

    def settle(self) -> None:
        """Work out anew who is servable; to be called when a need changed."""
        for slot in self._slots:
            slot.servable = not self.overdrawn(slot)

    def tolerate(self) -> None:
        """Let those be that are up together, though by the books they couldn't have come so.

        Who comes later isn't let in beside one whose size isn't known.
        """
        up = [slot for slot in self._slots if slot.is_on_devices and slot.share is not None]
        for device, left in self.capacity.items():
            beside = [slot for slot in up if slot.share is not None and device in slot.share.bytes]
            crowd = [slot for slot in beside if not slot.spec.pinned]
            for slot in beside:
                assert slot.share is not None
                if slot.share.alone:
                    slot.let_be |= {other.name for other in crowd if other is not slot}
                else:
                    amount = min(slot.booked.get(device, 0), left)
                    slot.booked = {**slot.booked, device: amount}
                    left -= amount

    @property
    def room(self) -> dict[str, int]:
        """Bytes a device that are there for all our models together."""
        return {
            device: capacity - self.foreign[device] for device, capacity in self.capacity.items()
        }

    # ---- one model -----------------------------------------------------------------------------

    def share_of(self, slot: Slot) -> Share:
        """Return what `slot` would hold if it were loaded now."""
        pinned = slot.spec.pinned
        if slot.need is not None:
            return Share(slot.name, self._counted(slot.need), pinned=pinned)
        beside = self.pinned_beside(slot)
        if slot.estimate is not None:
            estimate, room = self._counted(slot.estimate), self.room
            if all(need + beside[d] <= room[d] for d, need in estimate.items()):
                return Share(slot.name, estimate, pinned=pinned)
        # At least one byte, so that it is in the way even where pinned ones leave nothing.
        whole = {
            d: max(1, self.capacity[d] - beside[d]) for d in slot.spec.devices if d in self.capacity
        }
        return Share(slot.name, whole, alone=bool(whole), pinned=pinned)

    def pinned_beside(self, slot: Slot) -> Counter[str]:
        """Return the bytes a device that pinned models other than `slot` need, up or not."""
        beside: Counter[str] = Counter()
        for other in self._pinned:
            if other is not slot:
                beside.update(self._counted(_sure_need(other)))
        return beside

    def overdrawn(self, slot: Slot) -> dict[str, int]:
        """Return the bytes that `slot` lacks a device, with all but pinned models gone (R2).

        Only a declared or learned need counts, or the part of an estimate that is certain.
        """
        beside = self.pinned_beside(slot) if slot.need is not None else Counter()
        lacks = {
            device: need + beside[device] - self.capacity[device]
            for device, need in self._counted(_sure_need(slot)).items()
        }
        return {device: lack for device, lack in lacks.items() if lack > 0}

    def could_fit(self, slot: Slot, wanted: Share) -> bool:
        """Whether `slot` would fit beside pinned models and foreign use, all others gone (R6d)."""
        if wanted.alone:
            return True
        beside, room = self.pinned_beside(slot), self.room
        return all(need + beside[d] <= room[d] for d, need in wanted.bytes.items())

    def capped(self, slot: Slot, need: Mapping[str, int]) -> dict[str, int]:
        """Return `need`, on no device more than pinned models leave to `slot`."""
        beside = self.pinned_beside(slot)
        return {
            d: max(0, min(amount, self.capacity[d] - beside[d]))
            for d, amount in self._counted(need).items()
        }

    # ---- all of them ---------------------------------------------------------------------------

    def held(self) -> list[Share]:
        """What is on the devices, or may be."""
        return list(self._shares(slot for slot in self._slots if slot.is_on_devices))

    def staying(self, closed: Collection[Slot]) -> list[Share]:
        """What will be on the devices when all that is on its way out, or `closed`, is gone."""
        return list(
            self._shares(
                slot
                for slot in self._slots
                if slot.state in COMING or (slot.state is State.READY and slot not in closed)
            )
        )

    def tier_lack(self, tier: str, amount: int, *, soon: bool = False) -> float:
        """Return the bytes that `tier` lacks for `amount` more; 0 or less: there is room.

        `soon` counts on what models leave behind there that wake, are paged out or being stopped.
        """
        lack: float = amount - self.tiers.get(tier, inf)
        for slot in self._slots:
            if slot.is_in_tier:
                lack += sum(held for name, held in self._in_tiers(slot, soon=soon) if name == tier)
        return lack

    @staticmethod
    def _in_tiers(slot: Slot, *, soon: bool) -> Iterable[tuple[str, int]]:
        """Return what `slot` holds, by tier."""
        if soon and slot.state in (State.WAKING, State.STOPPING):
            return ()
        if soon and slot.state is State.PAGING:
            return (slot.bound_for,)
        return (slot.tier_held, slot.bound_for)

    @staticmethod
    def _shares(slots: Iterable[Slot]) -> Iterator[Share]:
        return (slot.share for slot in slots if slot.share is not None)

    def _counted(self, need: Mapping[str, int]) -> dict[str, int]:
        """Return `need` without devices that have no capacity, and without zeros."""
        return {d: amount for d, amount in need.items() if amount and d in self.capacity}


def _sure_need(slot: Slot) -> Mapping[str, int]:
    """What `slot` needs at the least, as far as is known for sure."""
    return slot.spec.certain if slot.need is None else slot.need
