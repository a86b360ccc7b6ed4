"""What the configuration changes in a body."""

from __future__ import annotations

from typing import Any

import pytest

from llmsnap.config.schema import ModelConfig
from llmsnap.config.sections import Filters
from llmsnap.errors import FilterFailed
from llmsnap.web.filters import BodyFilters
from llmsnap.web.multipart import Field
from llmsnap.web.order import Payload
from llmsnap.web.select import Wanted, in_json
from tests.web.bodies import held


def filters(
    *strip: str,
    name: str = "",
    params: dict[str, Any] | None = None,
    by_id: dict[str, dict[str, Any]] | None = None,
) -> BodyFilters:
    """The filters of a model with those settings."""
    return BodyFilters(
        ModelConfig(
            use_model_name=name,
            filters=Filters(
                strip_params=strip, set_params=params or {}, set_params_by_id=by_id or {}
            ),
        )
    )


def edited(given: BodyFilters, body: bytes, requested: str = "a") -> bytes:
    """What a JSON body becomes."""
    return b"".join(given.edit(body, Wanted(requested)))


def sent(payload: Payload) -> bytes:
    """What of a payload is held."""
    return b"".join(payload.segments)


def test_p10_stripped_keys_leave_every_other_byte() -> None:
    """What a person wrote keeps its form."""
    body = b'{\n  "model": "a",\n  "temperature": 0.50,\n  "x": [1,  2],\n  "stream": false\n}\n'

    assert edited(filters("stream", "temperature"), body) == (
        b'{\n  "model": "a",\n  "x": [1,  2]\n}\n'
    )


def test_they_follow_each_other() -> None:
    """Name, strip, set, set by the requested name: each may undo what came before it."""
    given = filters(
        "top_k",
        name="real",
        params={"top_k": 1, "n": 1},
        by_id={"a:fast": {"n": 2, "extra.deep": True}},
    )

    assert edited(given, b'{"model":"a","top_k":9}') == b'{"model":"real","n":1,"top_k":1}'
    assert edited(given, b'{"model":"a:fast","top_k":9}', "a:fast") == (
        b'{"model":"real","n":2,"top_k":1,"extra":{"deep":true}}'
    )


def test_wildcards() -> None:
    """As in llama-swap they set nothing, and can't be stripped."""
    assert edited(filters(params={"a*": 1, "b": 2}), b"{}") == b'{"b":2}'
    with pytest.raises(FilterFailed, match=r"'a\*'"):
        edited(filters("a*"), b"{}")


def test_what_doesnt_fit_the_body_is_told() -> None:
    """The error says which part, and that the configuration wants it."""
    with pytest.raises(FilterFailed, match="'b' is no place in an array"):
        edited(filters(params={"a.b": 1}), b'{"a":[]}')


def test_values_of_yaml_become_json() -> None:
    """Keys that YAML took for numbers become text again."""
    given = filters(params={"logit_bias": {50256: -100, True: [1.5, None]}})

    assert edited(given, b"{}") == b'{"logit_bias":{"50256":-100,"true":[1.5,null]}}'


async def test_without_filters_the_body_is_passed_on_as_it_is() -> None:
    """The very same bytes."""
    body = held(text := b'{"model": "a"}')
    asked = in_json(await body.whole())

    payload = await filters(by_id={"other": {"x": 1}}).payload(asked, body, declared=None)

    assert payload.segments[0] is text
    assert (payload.size, payload.rest) == (len(text), None)


@pytest.mark.parametrize("name", ["m", "a-much-longer-name"])
async def test_p12_the_length_is_that_of_the_new_body(name: str) -> None:
    """Whatever the client declared, if anything."""
    body = held(b'{"model":"alias"}')
    asked = in_json(await body.whole())

    payload = await filters(name=name).payload(asked, body, declared=17)

    assert sent(payload) == b'{"model":"%b"}' % name.encode()
    assert payload.size == len(sent(payload))


FORM = (
    b'--B\r\nContent-Disposition: form-data; name="model"\r\n\r\nalias\r\n'
    b'--B\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n\x00\xff'
)


def in_form() -> Wanted:
    """What that form asks for."""
    start = FORM.index(b"alias")
    return Wanted("alias", field=Field(start, start + 5, b"alias"))


@pytest.mark.parametrize("declared", [len(FORM) + 100, None], ids=["declared", "chunked"])
async def test_p09_p49_a_form_gets_the_name_and_keeps_its_file(declared: int | None) -> None:
    """What isn't held is left in the socket; a declared length grows with the name."""
    body = held(FORM, eof=False)
    await body.more()

    payload = await filters(name="whisper-1").payload(in_form(), body, declared=declared)

    assert sent(payload) == FORM.replace(b"alias", b"whisper-1")
    assert payload.rest is body
    assert payload.size == (declared + 4 if declared else None)


async def test_a_form_without_a_rename_is_untouched() -> None:
    """Filters are for JSON."""
    body = held(FORM)
    await body.whole()

    payload = await filters("x", params={"y": 1}).payload(in_form(), body, declared=len(FORM))

    assert payload.segments == [FORM]
    assert payload.rest is None
