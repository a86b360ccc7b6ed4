"""Nodes to structs: types, nulls, unknown keys, messages."""

from __future__ import annotations

from typing import Any

import pytest

from llmsnap.config.decode import Decoder, as_json, table, text
from llmsnap.config.faults import Fault
from llmsnap.config.schema import Config, ModelConfig, SleepStep
from llmsnap.config.sections import GroupConfig
from llmsnap.config.yamlnodes import parse


def decode(body: str) -> ModelConfig:
    """Return the model in `body`, a mapping, without what the loader does to it."""
    return Decoder().struct(ModelConfig, parse(body), "m")


def fault(body: str) -> str:
    """Return what is wrong with the model in `body`, after its path."""
    with pytest.raises(Fault) as caught:
        decode(body)
    return f"{caught.value.path}: {caught.value}"


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("1.10", "1.1"), ("0x10", "16"), ("1.0", "1"), ("1e6", "1e+06"), ("true", "true"),
        ("yes", "yes"), ("'010'", "010"), ("5", "5"), ("2024-05-01", "2024-05-01T00:00:00Z"),
        ("null", ""), ("''", ""),
    ],
)  # fmt: skip
def test_text_fields(written: str, name: str) -> None:
    """Numbers, bools and dates become their text; null is the default."""
    assert decode(f"name: {written}").name == name


@pytest.mark.parametrize(
    ("written", "ttl"),
    [("60", 60), ("60.9", 60), ("1e3", 1000), ("010", 8), ("0o17", 15), ("1_000", 1000), ("~", 0)],
)
def test_whole_number_fields(written: str, ttl: int) -> None:
    """A float loses its fraction."""
    value = decode(f"ttl: {written}").ttl_s

    assert (value, type(value)) == (ttl, int)


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("'60'", "not text; take the quotes away"),
        ("soon", "not text; write one, such as 30"),
        ("60s", "not text"),
        ("true", "not true"),
        ("[1]", "not a list"),
        ("{a: 1}", "not a mapping"),
        (".inf", "not +Inf"),
        (".nan", "not NaN"),
        ("1e300", "not 1e+300"),
        ("18446744073709551615", "not 18446744073709551615"),
        ("2024-05-01", "not text"),
    ],
)
def test_no_whole_numbers(written: str, message: str) -> None:
    """A quoted number is none, and the message never repeats a text."""
    assert fault(f"ttl: {written}").startswith("m.ttl: expected a whole number, ")
    assert message in fault(f"ttl: {written}")


@pytest.mark.parametrize(
    ("written", "unlisted"),
    [("true", True), ("yes", True), ("on", True), ("'on'", True), ("no", False), ("~", False)],
)
def test_bool_fields(written: str, unlisted: bool) -> None:
    """YAML 1.1's words count here."""
    assert decode(f"unlisted: {written}").unlisted is unlisted


@pytest.mark.parametrize("written", ["1", "'true'", "maybe", "[]"])
def test_no_bools(written: str) -> None:
    """A quoted bool is none."""
    assert fault(f"unlisted: {written}").startswith("m.unlisted: expected true or false, not ")


def test_list_fields() -> None:
    """Nulls are dropped, numbers become text."""
    assert decode("aliases: [a, ~, 5, 1.0, yes]").aliases == ("a", "5", "1", "yes")
    assert decode("aliases: ~").aliases == ()
    assert fault("aliases: a").startswith("m.aliases: expected a list, not text; write [one, two]")
    assert fault("aliases: [a, [b]]").startswith("m.aliases[1]: expected text, not a list")


def test_free_fields() -> None:
    """They hold whatever JSON can, keys as text."""
    written = "metadata: {a: [1, 1.5, yes, ~, true], 5: {x: 2024-05-01}, n: ~}"

    assert decode(written).metadata == {
        "a": [1, 1.5, "yes", None, True],
        "5": {"x": "2024-05-01T00:00:00Z"},
        "n": None,
    }
    assert type(decode(written).metadata["5"]["x"]) is str
    assert fault("metadata: {a: [.inf]}") == (
        "m.metadata.a[0]: JSON can't hold +Inf; write a number, or quote it"
    )
    assert fault("metadata: [a]").startswith("m.metadata: expected a mapping, not a list")


def test_nested_structs() -> None:
    """Null or nothing in them is the default."""
    model = decode("timeouts: {connect: 5, idleConn: ~}\ncompat: ~\n")

    assert (model.timeouts.connect, model.timeouts.idle_conn) == (5, 90)
    assert model.compat == ModelConfig().compat
    assert fault("timeouts: 5") == "m.timeouts: expected a mapping, not 5; write key: value"
    assert "m.timeouts.connect: must be at least 0, not -1" in fault("timeouts: {connect: -1}")


@pytest.mark.parametrize(
    ("written", "seconds"),
    [("1.5", 1.5), ("2", 2.0), ("500ms", 0.5), ("'2m'", 120.0), ("'3'", 3.0)],
)
def test_times(written: str, seconds: float) -> None:
    """Numbers, or text with a unit."""
    assert decode(f"minAwake: {written}").min_awake_s == seconds
    assert decode("minAwake: ~").min_awake_s is None


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("5x", "'5x' isn't a time"),
        ("-1", "must be at least 0, not -1"),
        ("true", "expected a number, not true; write one, such as 2.5"),
        (".inf", "expected a number, not +Inf"),
        ("[1]", "expected a number, not a list"),
    ],
)
def test_no_times(written: str, message: str) -> None:
    """Negative and endless ones aren't possible."""
    assert message in fault(f"stallTimeout: {written}")


def test_memory() -> None:
    """A size, or a size a device."""
    assert decode("vram: 8GiB").vram == 8 * 2**30
    assert decode("vram: 1e9").vram == 10**9
    assert decode("vram: {gpu0: 1GiB, gpu1: 5}").vram == {"gpu0": 2**30, "gpu1": 5}
    assert decode("ram: 100").ram_bytes == 100
    assert "m.vram.gpu0: '8G' isn't a size" in fault("vram: {gpu0: 8G}")
    assert "m.vram: expected a whole number, not a list" in fault("vram: [8]")


def test_choices() -> None:
    """One of a few texts; the error lists them."""
    assert decode("onClientDisconnect: drain").on_client_disconnect == "drain"
    assert fault("onClientDisconnect: Drain") == (
        "m.onClientDisconnect: 'Drain' isn't possible here; write cancel or drain"
    )


def test_least_values_that_are_raised() -> None:
    """Instead of being refused."""
    config = Decoder().struct(Config, parse("healthCheckTimeout: -5"), "")

    assert config.health_check_timeout_s == 15


def test_required_fields() -> None:
    """Null isn't enough."""
    for body in ("{}", "{endpoint: ~}"):
        with pytest.raises(Fault, match="'endpoint' is required"):
            Decoder().struct(SleepStep, parse(body), "s[0]")


def test_unknown_keys_are_noted() -> None:
    """With line, path and the nearest known key."""
    decoder = Decoder()
    decoder.struct(GroupConfig, parse("swap: true\nmembrs: [a]\nzzz: 1\n"), "groups.g")

    assert [(note.line, note.path, note.text) for note in decoder.notes] == [
        (2, "groups.g.membrs", "unknown key; did you mean 'members'?"),
        (3, "groups.g.zzz", "unknown key; it is ignored"),
    ]


def test_cmd_as_a_list() -> None:
    """The message says what is wrong with it."""
    assert fault("cmd: [a, b]") == (
        "m.cmd: expected text, not a list; write one text, several lines of it with |"
    )


@pytest.mark.parametrize(
    ("written", "value"), [("{a: 1}", {"a": 1}), ("[~]", [None]), ("x", "x"), ("~", None)]
)
def test_as_json(written: str, value: Any) -> None:
    """Any node becomes what JSON can hold."""
    assert as_json(parse(written), "") == value


def test_nodes_of_the_wrong_kind() -> None:
    """A null is an empty mapping and an empty text."""
    assert table(parse("~"), "").items == {}
    assert text(parse("~"), "") == ""
    with pytest.raises(Fault, match="expected a mapping, not text"):
        table(parse("x"), "")
