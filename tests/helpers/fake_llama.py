"""A llama-server whose slots misbehave on demand, as the real one can't be made to.

    python -m tests.helpers.fake_llama --port 5800 -np 1 --slot-save-path DIR/

It keeps to what llama-server documents of `/slots`, of its orders and of `timings`: a token is a
character, a slot is chosen by what it has in common with the prompt, else it is the one that was
used longest ago, and files are written below the save path. It shows nothing of formats, speed or
memory: real llama-servers in tests/e2e show those. Every answer is `ok`.

`FAKE_FAULT` is one of FAULTS; both variables aren't options, as those would count as part of what
the model is. The file `FAKE_JOURNAL` gets a JSON line for each order and request, with its body.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any, Final

from tests.helpers.fake_server import Journal, Seen, read_request, send

ANSWER: Final = "ok"
HEAD: Final = "a saved slot " * 5
"""Makes a file of one that holds something larger than what an empty one leaves."""
FAULTS: Final = {
    "cleared": "slots are emptied before they can be saved",
    "useless": "a restored slot is read again all the same",
    "unsupported": "501 to every order",
    "dies": "ends in the middle of a save",
    "refuses": "400 to every restore",
    "stuck": "never answers a save",
    "slow": "a restore takes half a second",
}
_SIMILAR: Final = 0.1


@dataclass
class FakeSlot:
    """What one slot holds, and the last request in it."""

    id: int
    text: str = ""
    task: int = -1
    is_told: bool = False
    """Whether it says how much it holds; after a restore it doesn't."""


class FakeLlama:
    """Answers as its options say."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._fault = os.environ.get("FAKE_FAULT", "")
        assert not self._fault or self._fault in FAULTS, self._fault
        self._folder = Path(options.slot_save_path)
        self._journal = Journal(os.environ.get("FAKE_JOURNAL"))
        self._slots = [FakeSlot(number) for number in range(options.np)]
        self._tasks = 0
        self._context: int = options.context

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection until it ends."""
        try:
            while (seen := await read_request(reader)) is not None:
                status, answer = await self._answer(seen)
                await send(writer, status, json.dumps(answer).encode())
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def _answer(self, seen: Seen) -> tuple[int, Any]:
        path, _, query = seen.path.partition("?")
        if path == "/health":
            return 200, {"status": "ok"}
        if path == "/slots":
            return 200, [self._listed(slot) for slot in self._slots]
        if path.startswith("/slots/"):
            slot = self._slots[int(path.rpartition("/")[2])]
            return await self._order(slot, query.removeprefix("action="), seen.json)
        if seen.method != "POST":
            return _refusal(404, "File Not Found")
        self._journal.add("request", path=path, body=seen.json)
        return 200, self._completed(path, seen.json)

    def _listed(self, slot: FakeSlot) -> dict[str, Any]:
        listed: dict[str, Any] = {"id": slot.id, "n_ctx": self._context, "is_processing": False}
        if slot.task >= 0:
            listed["id_task"] = slot.task
            if slot.is_told:
                listed["n_prompt_tokens"] = len(slot.text)
        return listed

    async def _order(
        self, slot: FakeSlot, action: str, order: Mapping[str, Any]
    ) -> tuple[int, Any]:
        self._journal.add(action, slot=slot.id, body=order)
        if self._fault == "unsupported":
            return _refusal(501, "This server does not support slots action.")
        if action == "erase":
            slot.text, erased = "", len(slot.text)
            return 200, {"id_slot": slot.id, "n_erased": erased}
        if action == "save" and self._fault == "stuck":
            await asyncio.Event().wait()
        path = self._folder / str(order["filename"])
        answer = self._save(slot, path) if action == "save" else await self._restore(slot, path)
        self._journal.add(f"{action} answered", slot=slot.id)
        return answer

    def _save(self, slot: FakeSlot, path: Path) -> tuple[int, Any]:
        if self._fault == "dies":
            os._exit(6)
        if self._fault == "cleared":
            slot.text = ""
        data = (HEAD + slot.text).encode() if slot.text else bytes(36)
        path.write_bytes(data)
        said = {"n_saved": len(slot.text), "n_written": len(data)}
        return 200, {"id_slot": slot.id, "filename": path.name, **said}

    async def _restore(self, slot: FakeSlot, path: Path) -> tuple[int, Any]:
        if self._fault == "slow":
            await asyncio.sleep(0.5)
        if self._fault == "refuses" or not path.exists():
            slot.text = ""
            return _refusal(400, "Unable to restore slot")
        slot.text, slot.is_told = path.read_text().removeprefix(HEAD), False
        said = {"n_restored": len(slot.text), "n_read": path.stat().st_size}
        if self._fault == "useless":
            slot.text = "\x00"
        return 200, {"id_slot": slot.id, "filename": path.name, **said}

    def _completed(self, path: str, asked: Mapping[str, Any]) -> dict[str, Any]:
        prompt = _prompt(asked)
        slot = self._slot_for(prompt, None if path == "/v1/messages" else asked.get("id_slot"))
        cached = min(_shared(slot.text, prompt), len(prompt) - 1)
        slot.text, slot.task, slot.is_told = prompt + ANSWER[:-1], self._tasks, True
        self._tasks += 1
        message = {"role": "assistant", "content": ANSWER}
        return {
            "choices": [{"index": 0, "finish_reason": "stop", "message": message}],
            "usage": {"prompt_tokens": len(prompt), "completion_tokens": len(ANSWER)},
            "timings": {
                "cache_n": cached,
                "prompt_n": len(prompt) - cached,
                "predicted_n": len(ANSWER),
            },
            "id_slot": slot.id,
        }

    def _slot_for(self, prompt: str, wanted: object) -> FakeSlot:
        if isinstance(wanted, int) and wanted >= 0:
            return self._slots[wanted]
        best = max(self._slots, key=lambda slot: _shared(slot.text, prompt))
        if _shared(best.text, prompt) > _SIMILAR * len(prompt):
            return best
        return min(self._slots, key=lambda slot: (slot.task, slot.id))


def _prompt(asked: Mapping[str, Any]) -> str:
    """Return the text of a conversation as a template would make it, or the prompt."""
    messages = asked.get("messages")
    if not isinstance(messages, list):
        return f"<{asked.get('prompt', '')}"
    return "".join(f"<{m['role']}>{m['content']}" for m in messages) + "<assistant>"


def _shared(one: str, other: str) -> int:
    """Return how many characters both begin with."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


def _refusal(status: int, text: str) -> tuple[int, Any]:
    return status, {"error": {"code": status, "message": text, "type": "fake"}}


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("-np", type=int, default=1)
    parser.add_argument("-c", "--context", type=int, default=8192)
    parser.add_argument("--slot-save-path", required=True)
    return parser.parse_args()


async def _run(options: argparse.Namespace) -> None:
    server = FakeLlama(options)
    listening = await asyncio.start_server(server.serve, options.host, options.port, limit=2**20)
    async with listening:
        await listening.serve_forever()


if __name__ == "__main__":
    asyncio.run(_run(_options()))
