"""Has a saved conversation brought back before its request goes out."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial
from typing import Final, Protocol

from llmsnap.runtime.lease import Lease
from llmsnap.sessions.chain import PATHS, digest
from llmsnap.sessions.desk import Desk
from llmsnap.sessions.turns import Turn
from llmsnap.telemetry.record import RequestRecord
from llmsnap.web.edits import CantEdit, Document, parse_path
from llmsnap.web.gate import offered_key
from llmsnap.web.jsonscan import NotJson
from llmsnap.web.order import Order, Payload

SESSION_HEADERS: Final = ("X-Session-ID", "X-Litellm-Session-Id")
_MOST_BYTES: Final = 8 * 2**20
"""Larger bodies are full of pictures, and aren't kept for comparison."""
_PINNED: Final = PATHS - {"/v1/messages"}
"""Where llama-server honours `id_slot`."""
_SLOT: Final = "id_slot"


class Conversations(Protocol):
    """What is needed of those who keep them."""

    def desk(self, model: str) -> Desk | None: ...


async def bring_back(desk: Desk, order: Order, record: RequestRecord, lease: Lease) -> None:
    """Have the conversation of `order` in a slot, if it is saved and in none; note the time.

    Raises SlotSpoiled when the process has to be restarted, and the request with it.
    """
    if desk.attempt is not None:
        await desk.attempt.give_way()
    if desk.refusal or (turn := _turn_of(order, record)) is None:
        return
    if not desk.begins(turn, lease.upstream):
        return
    loop = asyncio.get_running_loop()
    began = loop.time()
    lease.on_abort = partial(desk.give_up, turn)
    slot = await desk.make_ready(turn) if lease.aborted is None else None
    phases, took_s = lease.phases, loop.time() - began
    restore_s = 0.0 if turn.restored is None else took_s - turn.waited_s
    # Without a restore, another one was restored or saved meanwhile, or nothing was there.
    queue_s = phases.queue_s + took_s - restore_s
    lease.phases = replace(phases, queue_s=queue_s, restore_s=restore_s)
    if slot is not None and record.path in _PINNED:
        turn.is_placed = _pin(order, turn.body, slot)


def _turn_of(order: Order, record: RequestRecord) -> Turn | None:
    """Return what there is to know of the conversation; None: it is none that can be kept."""
    payload = order.payload
    if record.path not in PATHS or payload.rest is not None:
        return None
    if not payload.size or payload.size > _MOST_BYTES:
        return None
    kept = record.capture.request if record.capture is not None else b""
    headers = order.request.headers
    return Turn(
        record=record,
        path=record.path,
        body=kept or b"".join(payload.segments),
        scope=digest(offered_key(order.request)) if order.hidden else "",
        session=next((name for key in SESSION_HEADERS if (name := headers.get(key, ""))), ""),
    )


def _pin(order: Order, body: bytes, slot: int) -> bool:
    """Ask for `slot`, and say that it was; not where the client asks for one, or in odd bodies."""
    path = parse_path(_SLOT)
    if path is None or b'"id_slot"' in body:
        return False
    try:
        document = Document(body)
        document.set(path, b"%d" % slot)
        segments = document.segments()
    except (CantEdit, NotJson):
        return False
    order.payload = Payload(segments, sum(map(len, segments)))
    return True
