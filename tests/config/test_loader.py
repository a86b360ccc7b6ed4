"""Files, warnings, and what the loader does in which order."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from llmsnap.config.loader import load, loads
from llmsnap.errors import ConfigError
from tests.config.reading import loaded, model, read, refusal


def test_a_file_is_read_with_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Messages name it as it was given."""
    monkeypatch.setenv("LLMSNAP_TEST_PORT", "7000")
    path = tmp_path / "my.yaml"
    path.write_text("\ufeffstartPort: ${env.LLMSNAP_TEST_PORT}\nfoo: é\n", encoding="utf-8")

    result = load(path)

    assert result.config.start_port == 7000
    assert result.name == str(path)
    assert result.warnings == (f"{path}:2: foo: unknown key; it is ignored",)


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    """The reason comes with the path."""
    with pytest.raises(ConfigError, match=r"none\.yaml: can't be read: no such file or directory"):
        load(tmp_path / "none.yaml")
    with pytest.raises(ConfigError, match=r"no \.gguf file in there"):
        load(tmp_path)


def test_a_file_that_is_not_utf8(tmp_path: Path) -> None:
    """The byte is named."""
    path = tmp_path / "latin.yaml"
    path.write_bytes("a: é".encode("latin-1"))

    with pytest.raises(ConfigError, match=r"latin\.yaml: not UTF-8 text \(byte 3\); save it"):
        load(path)


def test_warnings_are_sorted_by_line() -> None:
    """Whatever order they were found in."""
    result = loads(
        "models:\n  b: {cmd: 'z ${PORT}', x: 1}\n  a: {cmd: 'z ${PORT}', y: 1}\nzz: 1\n", name="f"
    )

    assert [warning.split(": ")[0] for warning in result.warnings] == ["f:2", "f:3", "f:4"]


def test_misspelt_keys_get_a_hint() -> None:
    """At the top and below, with line and path."""
    result = loaded(
        """
        helthCheckTimeout: 5
        schedule: {fairafter: 5s}
        models:
          m:
            cmd: z ${PORT}
            tll: 5
            filters: {stripparams: a}
        """
    )

    assert result.warnings == (
        "config.yaml:2: helthCheckTimeout: unknown key; did you mean 'healthCheckTimeout'?",
        "config.yaml:3: schedule.fairafter: unknown key; did you mean 'fairAfter'?",
        "config.yaml:7: models.m.tll: unknown key; did you mean 'ttl'?",
        "config.yaml:8: models.m.filters.stripparams: unknown key; did you mean 'stripParams'?",
    )


def test_keys_for_anchors_are_free() -> None:
    """Those that begin with x-, whatever macros they hold."""
    assert read("x-a: {b: '${nope}'}\nx-: 1\n").models == {}


@pytest.mark.parametrize("id_", ["123", "1.10", "true", "null", "~", "2024-05-01", "0x10"])
def test_any_scalar_is_a_model_id(id_: str) -> None:
    """It is taken as written; the other models stay."""
    config = read(
        f"models:\n  {id_}: {{cmd: 'z ${{PORT}} ${{MODEL_ID}}'}}\n  b: {{cmd: 'z ${{PORT}}'}}\n"
    )

    assert set(config.models) == {id_, "b"}
    assert config.models[id_].cmd.endswith(f" {id_}")


@pytest.mark.parametrize("id_", ['""', "' '"])
def test_a_model_id_is_not_empty(id_: str) -> None:
    """Nobody could ask for it."""
    assert refusal(f"models:\n  {id_} : {{cmd: z}}\n") == (
        "config.yaml:2: models: a model's id is empty; give it a name"
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("models: [a]", "config.yaml:1: models: expected a mapping, not a list; write key: value"),
        ("models: {a: z}", "config.yaml:1: models.a: expected a mapping, not text"),
        ("groups: [a]", "config.yaml:1: groups: expected a mapping, not a list"),
        ("groups: {g: [a]}", "config.yaml:1: groups.g: expected a mapping, not a list"),
        ("hooks: {on_startup: [a]}", "config.yaml:1: hooks.on_startup: expected a mapping"),
        ("models: {a: {cmd: [x]}}", "config.yaml:1: models.a.cmd: expected text, not a list"),
        ("models: {a: {cmd: z, env: {A: 1}, proxy: 'http://h'}}", "models.a.env: expected a list"),
        ("startPort: ~x", "config.yaml:1: startPort: expected a whole number, not text"),
    ],
)
def test_values_of_the_wrong_kind(text: str, message: str) -> None:
    """Each error names file, line, key, what is wrong and what would be right."""
    assert refusal(text).startswith(message) or message in refusal(text)


def test_ports_end_somewhere() -> None:
    """The model that would get port 65536 is named."""
    message = refusal(
        """
        startPort: 65535
        models:
          a: {cmd: "z ${PORT}"}
          b: {cmd: "z ${PORT}"}
        """
    )

    assert message.startswith("config.yaml:5: models.b.cmd: no port up to 65535 is left")


def test_legacy_keys_load_without_warning() -> None:
    """Those of the Go project llmsnap, and older ones of llama-swap."""
    config = read(
        """
        logRequests: true
        sleepRequestTimeout: 30
        models:
          m:
            cmd: vllm serve --port ${PORT}
            sleepMode: enable
            sleepEndpoints: [{endpoint: "/sleep?level=1", timeout: 5}]
            wakeEndpoints: [{endpoint: /wake_up, body: '{"p": "${PORT}"}'}, {endpoint: /x}]
        """
    )
    m = config.models["m"]

    assert config.log_requests
    assert [(step.endpoint, step.method, step.timeout_s) for step in m.sleep_endpoints] == [
        ("/sleep?level=1", "POST", 5)
    ]
    assert [(step.body, step.timeout_s) for step in m.wake_endpoints] == [
        ('{"p": "5800"}', 10),
        ("", 10),
    ]


def test_a_number_as_cmd() -> None:
    """It is the text of the number."""
    assert model("{cmd: 5, proxy: 'http://h:1'}").cmd == "5"


def test_importing_and_loading_is_quick() -> None:
    """Nothing heavy is imported for it: the proxy has to listen within 0.4 s."""
    code = (
        "import sys; from llmsnap.config.loader import loads; loads('models:'); "
        "print(*{'aiohttp', 'asyncio', 'difflib', 'rich'} & set(sys.modules))"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )

    assert result.stdout == "\n"
