"""One model in one state, asked once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from llmsnap.bench import disks
from llmsnap.bench.samples import Case, Sample, Scene
from llmsnap.bench.servers import Answer, Proxy, Server
from llmsnap.bench.talks import Talk, Talks
from llmsnap.errors import LlmsnapError
from llmsnap.telemetry.tokens import Tokens


@dataclass(frozen=True)
class _Ready:
    """The stage is set."""

    talk: Talk
    way: str = ""


class Stage:
    """Sets one server's scenes and takes samples of them."""

    def __init__(self, talks: Talks, models: Sequence[str], now: Callable[[], datetime]) -> None:
        self._talks = talks
        self._server: Server = talks.server
        self._models = models
        self._now = now
        self.engines: dict[str, str] = {}
        """What the servers of models call themselves, by model."""

    def sample(self, case: Case, turn: int) -> Sample:
        """Set the scene and ask; what goes wrong is in the sample's `fault`."""
        asked_at = self._now()
        try:
            ready = self._set(case)
            asked_at, read = self._now(), disks.read_bytes()
            answer = self._talks.ask(case.model, ready.talk)
            sample = self._sample(case, turn, asked_at, ready.way, answer, read)
            self._learn_engine(case.model)
            return sample
        except LlmsnapError as error:
            return _blank(case, turn, asked_at, fault=str(error))

    def _set(self, case: Case) -> _Ready:
        """Bring the model into its state. Raises LlmsnapError when it can't be."""
        model, length = case.model, case.length
        if case.scene is Scene.AWAKE:
            return _Ready(self._talks.resume(model, length))
        if case.scene is Scene.SWAP:
            talk = self._talks.resume(model, length)
            self._talks.disturb(next(other for other in self._models if other != model))
            return _Ready(talk, self._state(model))
        proxy = self._proxy()
        if case.scene is Scene.NEW:
            proxy.load(model)
            return _Ready(self._talks.begin(model, length))
        if case.scene is Scene.ASLEEP:
            proxy.check_driver(model, case.by)
            talk = self._talks.resume(model, length)
            return _Ready(talk, proxy.sleep(model, case.by))
        if case.scene is Scene.RESTORED:
            talk = self._talks.resume(model, length)
        else:
            talk = self._talks.begin(model, length)
        proxy.unload(model)
        if case.scene is Scene.COLD:
            disks.forget_files()
        return _Ready(talk)

    def _learn_engine(self, model: str) -> None:
        """Ask the server what it is, while it is up."""
        if model not in self.engines:
            with suppress(LlmsnapError):
                self.engines[model] = self._server.engine(model)

    def _proxy(self) -> Proxy:
        assert isinstance(self._server, Proxy), "only llmsnap's models are told to go"
        return self._server

    def _state(self, model: str) -> str:
        """Return what became of a model for another's sake; empty where nobody tells."""
        return str(self._server.view(model)["state"]) if isinstance(self._server, Proxy) else ""

    def _sample(
        self,
        case: Case,
        turn: int,
        asked_at: datetime,
        way: str,
        answer: Answer,
        read_before: int | None,
    ) -> Sample:
        figures = answer.figures
        if figures.first_s is None:
            return _blank(case, turn, asked_at, fault="the answer has no text")
        moved_bytes, moved_s = self._moved(case, figures.phases_s.get("wake"), read_before)
        tokens = figures.tokens or Tokens()
        return Sample(
            **_names(case, turn, asked_at),
            way=way,
            first_s=figures.first_s,
            total_s=figures.total_s,
            phases_s=dict(figures.phases_s),
            prompt=tokens.prompt,
            cached=tokens.cached,
            generated=tokens.generated,
            prefill_s=tokens.prompt_s,
            tokens_per_s=figures.tokens_per_s,
            moved_bytes=moved_bytes,
            moved_s=moved_s or figures.phases_s.get("start"),
        )

    def _moved(
        self, case: Case, wake_s: float | None, read_before: int | None
    ) -> tuple[int | None, float | None]:
        """Return the bytes that came back, and in how long."""
        if wake_s is not None and isinstance(self._server, Proxy):
            woken = self._server.view(case.model)["last_wake"] or {}
            came = [amount for amount in woken.get("bytes", {}).values() if amount > 0]
            return sum(came) or None, woken.get("seconds")
        read = disks.read_bytes()
        if case.scene is Scene.COLD and read is not None and read_before is not None:
            return read - read_before, None
        return None, None


def _names(case: Case, turn: int, asked_at: datetime) -> dict[str, Any]:
    return {
        "server": case.server,
        "model": case.model,
        "scene": case.scene,
        "length": case.length,
        "by": case.by,
        "turn": turn,
        "asked_at": asked_at.isoformat(timespec="milliseconds"),
    }


def _blank(case: Case, turn: int, asked_at: datetime, *, fault: str) -> Sample:
    return Sample(**_names(case, turn, asked_at), fault=fault)
