"""What peers say of their models, swaps and traffic, for `/api/models?peers=1`."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final

import msgspec

from llmsnap.config.sections import PeerConfig
from llmsnap.errors import LlmsnapError
from llmsnap.runtime.peers import peer_upstream
from llmsnap.runtime.upstream import Upstream
from llmsnap.web.headers import request_head
from llmsnap.web.peering import peer_headers
from llmsnap.web.question import Question
from llmsnap.web.upstream_pool import Pool

LIMIT_S: Final = 3.0
_MODELS: Final = b"/api/models"
_METRICS: Final = b"/api/metrics/stats"
_SWAPS: Final = b"/api/swaps?kind=start&kind=wake&limit=20"


class Neighbours:
    """Asks all peers at once. They are asked for what they have themselves, so it ends there."""

    def __init__(self, peers: Mapping[str, PeerConfig]) -> None:
        self._peers = peers

    async def entries(self) -> list[dict[str, Any]]:
        """Return an entry a peer, in the order of the configuration."""
        return list(await asyncio.gather(*(self._entry(id_) for id_ in self._peers)))

    async def _entry(self, id_: str) -> dict[str, Any]:
        config = self._peers[id_]
        entry: dict[str, Any] = {
            "id": id_,
            "reachable": True,
            "error": None,
            "models": [{"id": model, "state": None} for model in config.models],
            "metrics": None,
            "swaps": [],
        }
        upstream = peer_upstream(id_, config)
        try:
            status, said = await _asked(upstream, config, _MODELS)
            if status == HTTPStatus.OK:
                _, entry["metrics"] = await _asked(upstream, config, _METRICS)
                _, moves = await _asked(upstream, config, _SWAPS)
                if isinstance(moves, dict) and isinstance(moves.get("data"), list):
                    entry["swaps"] = moves["data"]
        except LlmsnapError as error:
            return entry | {"reachable": False, "error": error.message}
        except TimeoutError:
            return entry | {"reachable": False, "error": f"no answer within {LIMIT_S:g} s"}
        if isinstance(said, dict) and isinstance(said.get("models"), list):
            return entry | {"models": said["models"]}
        return entry | {"error": f"it answers {status} to {_MODELS.decode()}"}


async def _asked(upstream: Upstream, config: PeerConfig, path: bytes) -> tuple[int, Any]:
    """Return what a peer answers to a GET: its status, and JSON or None.

    Raises LlmsnapError and TimeoutError.
    """
    pool = Pool(upstream, config.timeouts)
    async with asyncio.timeout(LIMIT_S):
        question = Question(await pool.connect())
        try:
            _, lines = peer_headers((), upstream, b"")
            target = upstream.base_path.encode() + path
            question.ask(request_head("GET", target, (), framing=lines, peer=b""))
            answer, body = await question.answered
        finally:
            question.give_up("nobody waits any more")
            pool.close()
    try:
        return answer.status, msgspec.json.decode(body) if answer.status == HTTPStatus.OK else None
    except msgspec.DecodeError:
        return answer.status, None
