"""More inputs that were tried on llama-swap's loader, and what came of them."""

from __future__ import annotations

import pytest

from llmsnap.config.argv import split_command
from llmsnap.config.sections import DEFAULT_GROUP
from tests.config.reading import loaded, model, read, refusal

A = "models: {a: {cmd: 'z ${PORT}'}}"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param(
            "macros: {a: 'x${a}'}", "macros.a: the macro contains a self-reference", id="self"
        ),
        pytest.param("macros: {'a.b': 1}", "contains invalid characters", id="dot-in-name"),
        pytest.param("macros: {'a b': 1}", "contains invalid characters", id="space-in-name"),
        pytest.param("macros: [a]", "macros: expected a mapping", id="macros-list"),
        pytest.param(
            "models: {m: {cmd: 'z ${PORT} ${zip}'}}", "models.m.cmd: unknown macro", id="cmd"
        ),
        pytest.param(
            "models: {m: {cmd: 'z ${PORT}', name: '${zip}'}}", "models.m.name: unknown", id="name"
        ),
        pytest.param(
            "models: {m: {cmd: 'z ${PORT}', filters: {stripParams: '${zip}'}}}",
            "models.m.filters.stripParams: unknown macro '${zip}'",
            id="filter",
        ),
        pytest.param(
            "models: {m: {cmd: 'z ${PORT}', filters: {setParamsByID: {'${zip}': {}}}}}",
            "models.m.filters.setParamsByID: unknown macro '${zip}'",
            id="filter-key",
        ),
        pytest.param("logLevel: '${zip}'", "logLevel: unknown macro '${zip}'", id="global"),
        pytest.param(
            "peers: {box: {apiKey: '${zip}'}}", "peers.box.apiKey: unknown macro", id="peer"
        ),
        pytest.param(
            "groups: {g: {members: [a]}, h: {members: [a]}}\n" + A,
            "groups.h.members[0]: model 'a' is used in multiple groups, g and h",
            id="two-groups",
        ),
        pytest.param(
            "models: {a: {cmd: 'z ${PORT}', ttl: -5}}", "must be at least 0, not -5", id="ttl"
        ),
        pytest.param("globalTTL: -1", "globalTTL: must be at least 0", id="globalTTL"),
        pytest.param("unloadTimeout: -1", "unloadTimeout: must be at least 0", id="unloadTimeout"),
        pytest.param(
            "upstream: {ignorePaths: ['[']}",
            "upstream.ignorePaths[0]: invalid regular expression '['",
            id="regex",
        ),
        pytest.param(
            "models: {a: {cmd: 'z ${PORT}', capabilities: {context: -1}}}",
            "capabilities.context: must be at least 0",
            id="context",
        ),
    ],
)  # fmt: skip
def test_refused(text: str, message: str) -> None:
    """What llama-swap refuses is refused, with line and path."""
    error = refusal(text)

    assert error.startswith("config.yaml:1: ")
    assert message in error


def test_the_model_id_can_stand_in_any_value() -> None:
    """`${MODEL_ID}` is there in each field, whatever characters the id has."""
    config = read(
        """
        macros: {title: "N ${MODEL_ID}"}
        models:
          org/m:7b:
            cmd: "z --alias ${MODEL_ID} ${PORT}"
            name: "${title}"
            checkEndpoint: "/h/${MODEL_ID}"
            aliases: ["x-${MODEL_ID}"]
            env: ["ID=${MODEL_ID}"]
        """
    )
    m = config.models["org/m:7b"]

    assert m.cmd == "z --alias org/m:7b 5800"
    assert (m.name, m.check_endpoint) == ("N org/m:7b", "/h/org/m:7b")
    assert (m.aliases, m.env) == (("x-org/m:7b",), ("ID=org/m:7b",))


def test_an_unterminated_quote_is_tolerated() -> None:
    """The rest of the command is one argument."""
    assert split_command(model("{cmd: 'srv \"abc def', proxy: 'http://h:1'}").cmd) == [
        "srv",
        "abc def",
    ]


def test_a_short_health_check_timeout_is_raised() -> None:
    """Less than 15 seconds counts as 15."""
    assert read("healthCheckTimeout: 5").health_check_timeout_s == 15
    assert read("healthCheckTimeout: 16").health_check_timeout_s == 16


def test_macros_in_global_values() -> None:
    """Also `startPort`, which takes the macro's number."""
    config = read(
        """
        macros: {sp: 6001, k: sekrit}
        startPort: ${sp}
        apiKeys: ["${k}"]
        models: {a: {cmd: "z ${PORT}"}}
        """
    )

    assert config.api_keys == ("sekrit",)
    assert config.models["a"].cmd == "z 6001"


def test_macros_in_group_members() -> None:
    """Values outside models are expanded, keys aren't."""
    config = read("macros: {x: a}\ngroups: {g: {members: ['${x}']}}\n" + A)

    assert config.groups["g"].members == ("a",)


def test_what_looks_like_a_macro_but_is_none() -> None:
    """Dots, dollars and parentheses are left alone, also in keys."""
    config = read("models: {'${k}': {cmd: 'z ${PORT} ${foo.bar} $X $(cmd) ${env.1BAD}'}}")

    assert config.models["${k}"].cmd == "z 5800 ${foo.bar} $X $(cmd) ${env.1BAD}"


def test_set_params_keeps_types() -> None:
    """`no` is text, `model` is protected, numbers as keys become text."""
    m = model(
        '{cmd: "z ${PORT}", filters: {setParams: {model: no, stop: no, temperature: 0.2, '
        "logit_bias: {50256: -100}, when: 2024-05-01}}}"
    )

    assert m.filters.set_params == {
        "stop": "no",
        "temperature": 0.2,
        "logit_bias": {"50256": -100},
        "when": "2024-05-01T00:00:00Z",
    }


def test_comfyui_gets_no_small_limit() -> None:
    """A limit is raised to 50, none stays none, and its WebSockets don't count."""
    limited = read("models: {comfyui_auto: {cmd: 'z ${PORT}', concurrencyLimit: 3}}")
    unlimited = read("models: {comfyui_auto: {cmd: 'z ${PORT}'}}")

    assert limited.models["comfyui_auto"].concurrency_limit == 50
    assert limited.models["comfyui_auto"].compat.ignore_websockets
    assert unlimited.models["comfyui_auto"].concurrency_limit == 0


def test_unknown_keys_load_with_a_warning() -> None:
    """Macros in unknown global keys aren't even looked at."""
    result = loaded("foo: '${nope}'\nmodels: {a: {cmd: 'z ${PORT}', bar: 1, x: 2}}")

    assert list(result.config.models) == ["a"]
    assert [warning.split(": ")[1] for warning in result.warnings] == [
        "foo",
        "models.a.bar",
        "models.a.x",
    ]


@pytest.mark.parametrize("body", ["{proxy: 'http://h:1'}", "", "~"])
def test_a_model_without_cmd_loads(body: str) -> None:
    """It fails when it is started; a warning says so before."""
    result = loaded(f"models:\n  a: {body}\n")

    assert result.config.models["a"].cmd == ""
    assert split_command(result.config.models["a"].cmd) == []
    assert result.config.groups[DEFAULT_GROUP].members == ("a",)
    assert "models.a: the model has no cmd" in result.warnings[0]


def test_groups_beside_a_scheduler_section() -> None:
    """It loads: only routing.router is another place for groups."""
    result = loaded(A + "\ngroups: {g1: {members: [a]}}\nrouting: {scheduler: {use: fifo}}\n")

    assert result.config.groups["g1"].members == ("a",)
    assert result.warnings == ()
