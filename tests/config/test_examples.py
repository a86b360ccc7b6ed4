"""The example configurations in configs/."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from llmsnap.config.jsonschema import schema
from llmsnap.config.loader import load
from llmsnap.config.schema import Config
from llmsnap.config.yamlnodes import ListNode, MapNode, Node, parse
from llmsnap.core.constraints import constraints_for

CONFIGS = Path(__file__).parents[2] / "configs"
IN_ANOTHER_PLACE = ("matrix", "groups", "routing.router.settings.matrix")
"""What excludes other keys of the file, and stands there somewhere else."""
EXAMPLES = sorted(CONFIGS.glob("*.yaml"))


def example(name: str) -> Config:
    """Return the example called `name`."""
    return load(CONFIGS / name).config


def keys_in_schema(owner: dict[str, Any], path: str) -> Iterator[str]:
    """Yield the path of each key below `owner`, with `*` for names that the user chooses."""
    definitions = schema()["$defs"]
    for key, value in owner["properties"].items():
        here = f"{path}{key}"
        yield here
        inner = value.get("additionalProperties") or value.get("items") or value
        if isinstance(inner, dict) and "$ref" in inner:
            step = "" if inner is value else "*."
            name = inner["$ref"].rpartition("/")[2]
            yield from keys_in_schema(definitions[name], f"{here}.{step}")


def keys_in_file(node: Node, path: str, known: set[str]) -> Iterator[str]:
    """Yield the path of each key below `node` in the same way."""
    match node:
        case ListNode():
            for item in node.items:
                yield from keys_in_file(item, f"{path}*.", known)
        case MapNode():
            for key, item in node.items.items():
                here = f"{path}{key}" if f"{path}{key}" in known else f"{path}*"
                yield here
                yield from keys_in_file(item, f"{here}.", known)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_each_example_loads_without_warning(path: Path) -> None:
    """But of what isn't there yet; and each has a model."""
    result = load(path)

    assert all("not supported yet" in warning for warning in result.warnings)
    assert result.config.models


def test_the_full_example_has_every_key() -> None:
    """So that there is one place to look."""
    known = set(keys_in_schema(schema(), ""))
    known = {
        key
        for key in known
        if not key.startswith(IN_ANOTHER_PLACE) and not key.endswith("strip_params")
    }
    written = set(keys_in_file(parse((CONFIGS / "full.yaml").read_text("utf-8")), "", known))

    assert known - written == set()
    assert len(known) > 100


def test_what_the_examples_say() -> None:
    """The comments in them are true."""
    assert example("minimal.yaml").models["qwen"].proxy == "http://localhost:5800"
    two = example("two-models.yaml")
    assert two.models["embed"].pinned
    assert "hash" not in two.models["coder"].cmd
    groups = example("groups.yaml").groups
    assert groups["(default)"].members == ("fast",)
    matrix = example("matrix.yaml")
    rules = constraints_for(matrix, counted=True)
    assert rules.forced_out("coder", ["chat", "embed"]) == {"chat"}
    assert rules.forced_out("huge", ["chat", "embed", "rerank"]) == {"chat", "embed", "rerank"}
    assert rules.forced_out("paint", ["chat", "embed", "rerank"]) == {"embed", "rerank"}
    full = example("full.yaml")
    assert full.models["qwen"].metadata == {"context": 32768}
    assert full.models["vllm"].ttl_s == 600
    assert full.names()["qwen:thinking"] == "qwen"


@pytest.mark.parametrize("name", ["vllm-sleep.yaml", "sglang-sleep.yaml"])
def test_recipes_for_engines_that_sleep(name: str) -> None:
    """What each model needs to sleep is there, and bodies are JSON."""
    for model in example(name).models.values():
        assert model.sleep_mode == "endpoints"
        for step in (*model.sleep_endpoints, *model.wake_endpoints):
            assert step.timeout_s
            assert not step.body or isinstance(json.loads(step.body), dict)


def test_sleep_at_level_2_reloads_before_it_serves() -> None:
    """Weights, then what fills them, then the KV cache, and nothing of the old cache is kept."""
    writer = example("vllm-sleep.yaml").models["writer"]

    assert [step.endpoint for step in writer.wake_endpoints] == [
        "/wake_up?tags=weights",
        "/collective_rpc",
        "/wake_up?tags=kv_cache",
        "/reset_prefix_cache",
    ]
    assert writer.wake_canary
