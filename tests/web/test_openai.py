"""`/v1/models`: llama-swap's records, so that its clients find what they look for."""

from __future__ import annotations

from typing import Any

import pytest

from llmsnap.config.schema import Capabilities, Config, ModelConfig
from llmsnap.config.sections import PeerConfig, ProfileConfig, SelectorConfig
from llmsnap.core.lifecycle import State
from llmsnap.web.openai import model_records
from tests.web.fleet import FakeFleet, config_of, front_of
from tests.web.serving import serving


def records(config: Config, loaded: tuple[str, ...] = ()) -> dict[str, dict[str, Any]]:
    """The records by id."""
    return {record["id"]: record for record in model_records(config, loaded, created=7)}


async def test_p20_models_are_sorted_the_unlisted_absent_and_the_origin_echoed() -> None:
    """Web pages may read the list; credentials aren't allowed with it."""
    config = config_of("b", "a/x", hidden=ModelConfig(unlisted=True, aliases=("secret",)))
    config = Config(models=config.models, include_aliases_in_list=True)
    async with serving(front_of(config)) as site:
        answer = await site.ask("/v1/models", headers={"Origin": "http://page.test"})
        same = await site.ask("/models")

    assert answer.json["object"] == "list"
    assert [record["id"] for record in answer.json["data"]] == ["a/x", "b"]
    assert answer.headers["Access-Control-Allow-Origin"] == "http://page.test"
    assert "Access-Control-Allow-Credentials" not in answer.headers
    assert answer.headers["Content-Type"] == "application/json"
    assert [record["id"] for record in same.json["data"]] == ["a/x", "b"]
    assert "Access-Control-Allow-Origin" not in same.headers


def test_a_plain_record_says_what_openais_clients_need() -> None:
    """Nothing that the configuration doesn't say is in it."""
    assert records(config_of("a"))["a"] == {
        "id": "a",
        "object": "model",
        "created": 7,
        "owned_by": "llmsnap",
        "status": {"value": "unloaded"},
        "meta": {"llamaswap": {"type": "model"}},
    }


def test_p21_u91_aliases_are_records_of_their_own_when_configured() -> None:
    """Each says whose alias it is, shares its status, and gives way to a model of that name."""
    model = ModelConfig(aliases=("big", " gpt-4 ", "", "other"), name="A model")
    models = {"a": model, "other": ModelConfig()}

    listed = records(Config(models=models, include_aliases_in_list=True), loaded=("a",))
    unlisted = records(Config(models=models))

    assert set(listed) == {"a", "big", "gpt-4", "other"}
    assert set(unlisted) == {"a", "other"}
    assert listed["big"]["meta"]["llamaswap"] == {"type": "alias", "modelID": "a"}
    assert listed["big"]["status"] == {"value": "loaded"}
    assert listed["big"]["name"] == "A model"
    assert listed["other"]["meta"]["llamaswap"] == {"type": "model"}
    assert unlisted["a"]["meta"]["llamaswap"]["aliases"] == ["big", "gpt-4", "other"]


@pytest.mark.parametrize(
    ("state", "status"),
    [(state, "unloaded" if state in ("stopped", "failed") else "loaded") for state in State],
    ids=str,
)
async def test_p22_loaded_is_every_state_with_a_process(state: State, status: str) -> None:
    """Also starting and stopping, as llama-swap's clients know it."""
    config = config_of("a")
    fleet = FakeFleet("a")
    fleet.put("a", state)
    async with serving(front_of(config, fleet)) as site:
        answer = await site.ask("/v1/models")

    assert answer.json["data"][0]["status"] == {"value": status}


def test_capabilities_are_told_in_everybodys_words() -> None:
    """Modalities, abilities that are there, tools and context; metadata gives way to them."""
    model = ModelConfig(
        name=" Vision ",
        description="\n",
        metadata={"architecture": "mine", "context_length": 1, "owner": "me", "type": "x"},
        capabilities=Capabilities(in_=("text", "image"), out=("text",), tools=True, context=4096),
    )

    record = records(Config(models={"v": model}))["v"]

    assert record["name"] == "Vision"
    assert "description" not in record
    assert record["architecture"] == {
        "input_modalities": ("text", "image"),
        "output_modalities": ("text",),
        "modality": "text+image->text",
    }
    assert record["capabilities"] == {"vision": True, "function_calling": True}
    assert record["supported_parameters"] == ["tools", "tool_choice"]
    assert record["context_length"] == 4096
    assert record["meta"] == {"llamaswap": {"owner": "me", "type": "model"}, "n_ctx": 4096}


@pytest.mark.parametrize(
    ("capabilities", "abilities"),
    [
        (Capabilities(in_=("audio",), out=("text",)), {"audio_transcriptions"}),
        (Capabilities(in_=("text",), out=("audio",)), {"audio_speech"}),
        (Capabilities(in_=("text",), out=("image",)), {"image_generation"}),
        (
            Capabilities(in_=("image",), out=("image",)),
            {"vision", "image_to_image"},
        ),
        (Capabilities(reranker=True), {"reranker"}),
    ],
)
def test_abilities_follow_from_modalities(capabilities: Capabilities, abilities: set[str]) -> None:
    """Only the true ones are there."""
    record = records(Config(models={"a": ModelConfig(capabilities=capabilities)}))["a"]

    assert record["capabilities"] == dict.fromkeys(abilities, True)


def test_metadata_stays_whole_without_capabilities() -> None:
    """What the user says of a model is said to clients, whatever it is called."""
    model = ModelConfig(metadata={"architecture": "mine", "n": {"deep": [1]}})

    record = records(Config(models={"a": model}))["a"]

    assert record["meta"]["llamaswap"] == {
        "architecture": "mine",
        "n": {"deep": [1]},
        "type": "model",
    }


async def test_peers_selectors_and_pins_are_listed() -> None:
    """Each says what it is; names that others have already aren't listed twice."""
    config = Config(
        models={"a": ModelConfig()},
        peers={"box": PeerConfig(proxy="http://box", models=("m",))},
        selectors={
            "any": SelectorConfig(
                strategy="spillover", targets=("a", "m"), name=" Any ", metadata={"type": "x"}
            ),
            "hidden": SelectorConfig(strategy="pin", targets=("a",), unlisted=True),
        },
        profiles={"p": ProfileConfig(pins={"small": "a", "a": "any", "gone": None})},
    )
    fleet = FakeFleet("a")
    fleet.put("a", State.READY)
    async with serving(front_of(config, fleet)) as site:
        await site.ask("/api/profiles/active", method="PUT", data=b'{"name":"p"}')
        listed = (await site.ask("/v1/models")).json["data"]

    by_id = {record["id"]: record for record in listed}
    assert list(by_id) == ["a", "any", "box/m", "small"]
    assert by_id["box/m"]["name"] == "box: m"
    assert by_id["box/m"]["status"] == {"value": "unloaded"}
    assert by_id["box/m"]["meta"] == {"llamaswap": {"type": "peer", "peerID": "box"}}
    assert by_id["any"]["name"] == "Any"
    assert by_id["any"]["status"] == {"value": "loaded"}
    assert by_id["any"]["meta"]["llamaswap"] == {
        "type": "selector",
        "strategy": "spillover",
        "targets": ["a", "m"],
        "spillover": 1,
    }
    assert by_id["small"]["meta"]["llamaswap"] == {"type": "profile", "modelID": "a"}
    assert by_id["small"]["status"] == {"value": "unloaded"}
