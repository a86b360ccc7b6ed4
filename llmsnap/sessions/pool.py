"""How many caches the slots of a server have, and what fits into one that they share.

llama-server refuses a restore for which there is no room, instead of emptying idle slots as it does
for prompts; and a file from a cache for one slot doesn't fit into one of several, nor the reverse.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise
from typing import Final

from llmsnap.config.argv import llama_words
from llmsnap.sessions.slots import Slot

_SHARED: Final = {
    "-kvu": True,
    "--kv-unified": True,
    "-no-kvu": False,
    "--no-kv-unified": False,
}
_SAID: Final = {"LLAMA_ARG_KV_UNIFIED": True, "LLAMA_ARG_NO_KV_UNIFIED": False}
_NO: Final = frozenset({"", "0", "off", "false", "disabled"})
_USUAL_SLOTS: Final = 4


def slot_count(argv: Sequence[str], env: Mapping[str, str]) -> int:
    """Return how many slots a server with this command has, until it tells itself."""
    return _told_slots(argv, env) or _USUAL_SLOTS


def is_shared(argv: Sequence[str], env: Mapping[str, str]) -> bool:
    """Whether all slots of a server with this command have one cache together.

    That is so by default where the number of slots isn't said.
    """
    said = [means for name, means in _SAID.items() if env.get(name, "").lower() not in _NO]
    said += [_SHARED[word] for word in llama_words(argv) if word in _SHARED]
    return said[-1] if said else not _told_slots(argv, env)


def empties_idle(argv: Sequence[str], env: Mapping[str, str]) -> bool:
    """Whether such a server empties idle slots when another one is used, into RAM of its own."""
    words = [*llama_words(argv)]
    ram = env.get("LLAMA_ARG_CACHE_RAM", "")
    for word, following in pairwise([*words, ""]):
        if word in ("-cram", "--cache-ram"):
            ram = following
    is_off = "--no-cache-idle-slots" in words or ram == "0"
    return is_shared(argv, env) and slot_count(argv, env) > 1 and not is_off


def cache_count(argv: Sequence[str], env: Mapping[str, str]) -> int:
    """Return how many caches a server with this command has: one, or one a slot."""
    return 1 if is_shared(argv, env) else slot_count(argv, env)


def _told_slots(argv: Sequence[str], env: Mapping[str, str]) -> int:
    """Return the number of slots that is asked for; 0: none, or any."""
    said = env.get("LLAMA_ARG_N_PARALLEL", "")
    for word, following in pairwise([*llama_words(argv), ""]):
        if word in ("-np", "--parallel"):
            said = following
    return int(said) if said.isdecimal() else 0


def to_empty(
    slots: Sequence[Slot],
    target: Slot,
    tokens: int,
    *,
    held: Mapping[int, int],
    taken: Collection[int],
    coming: int = 0,
) -> list[Slot] | None:
    """Return which slots must be emptied before `tokens` fit into `target`; None: it won't fit.

    Those of `taken`, and those at work, stay. `held` says what a slot holds that doesn't tell, and
    `coming` what those at work will hold at least. What the server doesn't tell the size of is left
    to it.
    """
    if not target.n_ctx:
        return []
    others = [slot for slot in slots if slot is not target]
    holding = {s.id: max(held.get(s.id, 0), s.n_prompt_tokens or 0) for s in others}
    at_work = sum(holding[slot.id] for slot in others if slot.is_processing)
    lack = sum(holding.values()) + max(0, coming - at_work) + tokens - target.n_ctx
    going: list[Slot] = []
    for slot in sorted(slots, key=lambda slot: (slot.id_task, slot.id)):
        if lack <= 0:
            break
        if holding.get(slot.id) and not slot.is_processing and slot.id not in taken:
            going.append(slot)
            lack -= holding[slot.id]
    return going if lack <= 0 else None
