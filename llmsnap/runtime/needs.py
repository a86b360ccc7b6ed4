"""Tells the scheduler what each model needs, as soon as that is known and whenever it changes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final, Protocol

from msgspec import DecodeError, Struct, json

from llmsnap.config.memory import HOST
from llmsnap.core.lifecycle import State
from llmsnap.core.messages import Event, ModelChanged, ModelView, NeedChanged, NeedEstimated
from llmsnap.memory.fitting import Start, came_whole
from llmsnap.memory.footprints import Footprints, Source
from llmsnap.runtime.health import Prober
from llmsnap.runtime.plan import Endpoint
from llmsnap.runtime.sayings import Sayings
from llmsnap.runtime.tasks import Background
from llmsnap.runtime.upstream import Upstream

_FITTED: Final = (
    "its server fits it to the memory that is free, so that what it needs can't be learned; "
    "write -c and -ngl into its command"
)


class Fleet(Protocol):
    """What it needs of the supervisor."""

    def post(self, event: Event) -> None: ...

    def upstream(self, model: str) -> Upstream | None: ...


class Needs:
    """Stands between the footprints and the scheduler.

    `log` returns what a model's processes have printed so far.
    """

    def __init__(
        self,
        footprints: Footprints,
        fleet: Fleet,
        background: Background,
        prober: Prober,
        *,
        log: Callable[[str], bytes],
        capacity: Mapping[str, int],
    ) -> None:
        self._footprints = footprints
        self._fleet = fleet
        self._background = background
        self._prober = prober
        self._log = log
        self._said: dict[str, Sayings] = {}
        self._on_gpu = any(device != HOST for device in capacity)

    def adopt(self, footprints: Footprints, capacity: Mapping[str, int]) -> None:
        """Go by other settings from now on."""
        self._footprints = footprints
        self._on_gpu = any(device != HOST for device in capacity)

    async def begin(self) -> None:
        """Tell what is known of all models, from earlier times and from their files."""
        self._tell(await self._footprints.refresh())

    def moved(self, view: ModelView, before: State) -> None:
        """Take in a change of a state: look at a model's files anew when it starts."""
        if view.state is State.STARTING:
            self._background.spawn(self.look_again(view.model), name=f"footprint {view.model}")
        elif before is State.STARTING or (before is State.STOPPED and view.state is not before):
            self._footprints.started(view.model, whole=False)
            if view.state is State.READY and self._footprints.fit(view.model):
                self._background.spawn(self._see_fit(view.model), name=f"fit {view.model}")

    def report(self, event: Event) -> None:
        """Pass on a runner's report; before that memory ran out, tell that more is needed."""
        if isinstance(event, ModelChanged) and event.oom:
            need = self._footprints.ran_out(event.model)
            if need is not None:
                self._fleet.post(NeedChanged(event.model, need))
        self._fleet.post(event)

    async def look_again(self, model: str) -> None:
        """Take in that the files of `model` may be others now."""
        self._tell(await self._footprints.refresh([model]))

    def _tell(self, models: Iterable[str]) -> None:
        for model in models:
            figure = self._footprints.figure(model)
            match figure.source:
                case Source.DECLARED:
                    continue
                case Source.LEARNED:
                    self._fleet.post(NeedChanged(model, figure.bytes))
                case Source.ESTIMATED:
                    self._fleet.post(NeedEstimated(model, figure.bytes, figure.certain))
                case Source.UNKNOWN:
                    self._fleet.post(NeedEstimated(model))

    async def _see_fit(self, model: str) -> None:
        """Find out whether a fitted model may be learned from, this time."""
        upstream = self._fleet.upstream(model)
        if upstream is None:
            return
        at = Endpoint(
            host=upstream.host, port=upstream.port, base_path=upstream.base_path, tls=upstream.tls
        )
        body = await self._prober.fetch(at.url("/v1/models"), key=upstream.key)
        meta = _meta(body)
        start = Start(
            log=self._log(model).decode(errors="replace"),
            context=meta.n_ctx,
            trained=meta.n_ctx_train,
        )
        whole = came_whole(self._footprints.fit(model), start, on_gpu=self._on_gpu)
        self._footprints.started(model, whole=whole)
        if not whole:
            self._said.setdefault(model, Sayings(model)).say("fit", _FITTED)


class _Meta(Struct):
    n_ctx: int | None = None
    n_ctx_train: int | None = None


class _Entry(Struct):
    meta: _Meta | None = None


class _Models(Struct):
    data: list[_Entry] = []


def _meta(body: bytes) -> _Meta:
    """Return what llama-server's `/v1/models` says of its model."""
    try:
        entries = json.decode(body, type=_Models).data
    except DecodeError:
        entries = []
    found = (entry.meta for entry in entries if entry.meta is not None)
    return next(found, _Meta())
