"""`/v1/models`: what there is to ask for, as OpenAI's clients and llama-swap's users know it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from aiohttp import web

from llmsnap.config.peers import peer_models
from llmsnap.config.schema import Capabilities, Config, ModelConfig
from llmsnap.core.messages import ModelView
from llmsnap.core.slot import DOWN
from llmsnap.web.envelope import json_answer
from llmsnap.web.standins import StandIns

_SAID_BY_CAPABILITIES: Final = frozenset(
    {"architecture", "capabilities", "supported_parameters", "context_length"}
)

Record = dict[str, Any]


class ModelList:
    """Answers `/v1/models`; the router's `/models` is made of the same records."""

    def __init__(
        self, config: Config, views: Callable[[], Iterable[ModelView]], standins: StandIns
    ) -> None:
        self._config = config
        self._views = views
        self._standins = standins

    def adopt(self, config: Config) -> None:
        """Go by another configuration from now on."""
        self._config = config

    def routes(self) -> list[web.RouteDef]:
        """Return the routes to mount."""
        return [web.get("/v1/models", self.show)]

    async def show(self, request: web.Request) -> web.Response:
        """List the models, sorted by id, for whichever page asks."""
        return self.answer(request, self.records())

    def records(self) -> list[Record]:
        """Return a record for each name that can be asked for, sorted by id."""
        loaded = {view.model for view in self._views() if view.state not in DOWN}
        created = int(datetime.now(UTC).timestamp())
        records: list[Record] = [
            *model_records(self._config, loaded, created),
            *peer_records(self._config, created),
            *selector_records(self._standins, created),
        ]
        listed = {str(record["id"]) for record in records}
        records += pin_records(self._standins, listed, created)
        records.sort(key=lambda record: str(record["id"]))
        return records

    def answer(self, request: web.Request, records: list[Record]) -> web.Response:
        """Return `records` as the list that clients expect."""
        response = json_answer({"object": "list", "data": records})
        if origin := request.headers.get("Origin"):
            response.headers["Access-Control-Allow-Origin"] = origin
            response.headers["Vary"] = "Origin"
        return response


def model_records(config: Config, loaded: Collection[str], created: int) -> list[Record]:
    """Return one record for each listed name here; `created` is in Unix seconds."""
    records: list[Record] = []
    for id_, model in config.models.items():
        if model.unlisted:
            continue
        described = description_of(model)
        for name, kind in _names(config, id_, model):
            meta = _meta(model, kind)
            records.append(
                _record(name, created, described, is_loaded=id_ in loaded) | {"meta": meta}
            )
    return records


def peer_records(config: Config, created: int) -> list[Record]:
    """Return one record for each model of a peer; whether it is loaded there isn't asked."""
    return [
        _record(name, created, {"name": f"{model.peer}: {model.model}"})
        | {"meta": {"llamaswap": {"type": "peer", "peerID": model.peer}}}
        for name, model in peer_models(config.peers).items()
    ]


def selector_records(standins: StandIns, created: int) -> Iterator[Record]:
    """Yield one record for each listed selector."""
    for name, selector in standins.selectors.items():
        config = selector.config
        if config.unlisted:
            continue
        kind: Record = {
            "type": "selector",
            "strategy": config.strategy,
            "targets": config.targets,
        }
        if config.strategy == "spillover":
            kind["spillover"] = config.settings.spillover
        described = {"name": config.name.strip(), "description": config.description.strip()}
        described = {key: text for key, text in described.items() if text}
        yield _record(name, created, described, is_loaded=selector.is_up) | {
            "meta": {"llamaswap": {**config.metadata, **kind}}
        }


def pin_records(standins: StandIns, known: Collection[str], created: int) -> Iterator[Record]:
    """Yield one record for each name that only the active profile knows."""
    for pin, target in standins.pins.items():
        if target and pin not in known:
            meta = {"type": "profile", "modelID": target}
            yield _record(pin, created, {}) | {"meta": {"llamaswap": meta}}


def _record(name: str, created: int, described: Record, *, is_loaded: bool = False) -> Record:
    return {
        "id": name,
        "object": "model",
        "created": created,
        "owned_by": "llmsnap",
        **described,
        "status": {"value": "loaded" if is_loaded else "unloaded"},
    }


def _names(config: Config, id_: str, model: ModelConfig) -> Iterator[tuple[str, Record]]:
    """Yield the names that `model` is listed under, each with what is said of the name itself."""
    aliases = [alias.strip() for alias in model.aliases if alias.strip()]
    yield id_, {"type": "model", **({"aliases": aliases} if aliases else {})}
    if config.include_aliases_in_list:
        for alias in aliases:
            if alias not in config.models:
                yield alias, {"type": "alias", "modelID": id_}


def _meta(model: ModelConfig, kind: Record) -> Record:
    metadata: Mapping[str, Any] = model.metadata
    if model.capabilities != Capabilities():
        metadata = {k: v for k, v in metadata.items() if k not in _SAID_BY_CAPABILITIES}
    context = model.capabilities.context
    return {"llamaswap": {**metadata, **kind}, **({"n_ctx": context} if context else {})}


def description_of(model: ModelConfig) -> Record:
    """Return what the configuration says of a model; what it doesn't say is left out."""
    can = model.capabilities
    record: Record = {
        "name": model.name.strip(),
        "description": model.description.strip(),
        "architecture": _architecture(can),
        "capabilities": {name: True for name, has in _abilities(can).items() if has},
        "supported_parameters": ["tools", "tool_choice"] if can.tools else [],
        "context_length": can.context,
    }
    return {key: value for key, value in record.items() if value}


def _architecture(can: Capabilities) -> Record:
    record: Record = {}
    if can.in_:
        record["input_modalities"] = can.in_
    if can.out:
        record["output_modalities"] = can.out
    if can.in_ and can.out:
        record["modality"] = f"{'+'.join(can.in_)}->{'+'.join(can.out)}"
    return record


def _abilities(can: Capabilities) -> dict[str, bool]:
    return {
        "vision": "image" in can.in_,
        "audio_transcriptions": "audio" in can.in_ and "text" in can.out,
        "audio_speech": "text" in can.in_ and "audio" in can.out,
        "image_generation": "text" in can.in_ and "image" in can.out,
        "image_to_image": "image" in can.in_ and "image" in can.out,
        "function_calling": can.tools,
        "reranker": can.reranker,
    }
