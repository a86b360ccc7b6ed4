"""What the configuration changes in a request's body on its way to the model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote

import msgspec

from llmsnap.config.schema import ModelConfig
from llmsnap.errors import FilterFailed
from llmsnap.web.body import Buffer, HeldBody, examine, unmap
from llmsnap.web.edits import CantEdit, Document, Path, Segment, parse_path
from llmsnap.web.jsonscan import NotJson
from llmsnap.web.order import Payload
from llmsnap.web.select import Wanted

_MODEL: Final = "model"

Edit = Callable[[Document], object]


class BodyFilters:
    """The filters of one model, in their order: name, strip, set, set for the requested name."""

    def __init__(self, model: ModelConfig) -> None:
        self.name = model.use_model_name
        """What the model's server calls it; empty: whatever the client says."""
        self._edits: list[Edit] = []
        if model.use_model_name:
            self._edits += _setting({_MODEL: model.use_model_name})
        self._edits += [_stripping(key) for key in model.filters.strip_params]
        self._edits += _setting(model.filters.set_params)
        self._edits_by_id = {
            id_: _setting(params) for id_, params in model.filters.set_params_by_id.items()
        }

    async def payload(self, asked: Wanted, body: HeldBody, *, declared: int | None) -> Payload:
        """Return what goes to the model for `body`, of which it is known what it asks.

        `declared` is the request's own `Content-Length`. Raises FilterFailed.
        """
        text = asked.json
        if text is not None:
            if not (self._edits or asked.stand_in or self._edits_by_id.get(asked.model)):
                return Payload([_segment(text)], len(text))
            segments = await examine(text, lambda: self.edit(text, asked))
            unmap(text)
            return _whole(segments)
        held = await body.view()
        if asked.field is None:
            return _whole([_segment(held)])
        segments = self.edit_form(held, asked) or [_segment(held)]
        if body.complete:
            return _whole(segments)
        grown = sum(map(len, segments)) - len(held)
        return Payload(segments, declared + grown if declared is not None else None, body)

    def edit(self, body: Buffer, asked: Wanted) -> list[Segment]:
        """Return the JSON `body` as the model is to get it. Raises FilterFailed."""
        requested = asked.stand_in or asked.model
        try:
            document = Document(body)
            if asked.stand_in and not self.name:
                for change in _setting({_MODEL: requested}):
                    change(document)
            for change in self._edits:
                change(document)
            for change in self._edits_by_id.get(requested, ()):
                change(document)
            return document.segments()
        except (CantEdit, NotJson) as error:
            raise FilterFailed(
                f"the model's filters don't fit this body: {error}; "
                "mend the body, or `filters` in the configuration"
            ) from None

    def edit_form(self, held: Buffer, asked: Wanted) -> list[Segment] | None:
        """Return what is `held` of a form with the name that the model's server is to see.

        None when nothing is to be changed.
        """
        field, name = asked.field, (self.name or asked.stand_in).encode()
        if asked.is_encoded:
            name = quote(name, safe="").encode()
        if field is None or not name or field.value == name:
            return None
        return [memoryview(held)[: field.start], name, memoryview(held)[field.end :]]


def _whole(segments: list[Segment]) -> Payload:
    return Payload(segments, sum(map(len, segments)))


def _segment(held: Buffer) -> Segment:
    if isinstance(held, bytes):
        return held
    unmap(held)
    return memoryview(held)


def _setting(params: Mapping[str, Any]) -> Sequence[Edit]:
    """Return the edits that set `params`, in the order of their keys.

    As in llama-swap a key with a wildcard sets nothing.
    """
    found = [(parse_path(key), _json(value)) for key, value in sorted(params.items())]
    return [_set(path, value) for path, value in found if path is not None]


def _set(path: Path, value: bytes) -> Edit:
    return lambda document: document.set(path, value)


def _stripping(key: str) -> Edit:
    path = parse_path(key)
    if path is None:
        return lambda document: _refuse(key)
    return lambda document: document.delete(path)


def _refuse(key: str) -> None:
    raise CantEdit(f"stripParams can't take the wildcard {key!r}")


def _json(value: object) -> bytes:
    """Return `value` as JSON; keys that YAML took for numbers and the like become text."""
    return msgspec.json.encode(_with_text_keys(value))


def _with_text_keys(value: object) -> object:
    match value:
        case dict():
            return {_key(key): _with_text_keys(item) for key, item in value.items()}
        case list() | tuple():
            return [_with_text_keys(item) for item in value]
        case _:
            return value


def _key(key: object) -> str:
    return key if isinstance(key, str) else msgspec.json.encode(key).decode().strip('"')
