"""Reading one model after the other: ports, scopes, older spellings."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from llmsnap.config.decode import Decoder
from llmsnap.config.faults import Fault
from llmsnap.config.macros import Budget, MacroValue
from llmsnap.config.models import ModelReader, Ports, unknown_macro
from llmsnap.config.schema import Config
from llmsnap.config.yamlnodes import parse
from tests.config.reading import model


def reader(macros: Mapping[str, MacroValue], *, start_port: int = 5800) -> ModelReader:
    """Return a reader with global `macros`."""
    return ModelReader(
        Config(start_port=start_port), macros, Budget(), Decoder(), Ports({}, start_port)
    )


def test_ports_are_counted_up() -> None:
    """Only for those that use one in their command, and everywhere in that model."""
    models = reader({}, start_port=9000)
    a = models.read("a", parse("{cmd: '${PORT} ${PORT}', env: ['P=${PORT}']}"), line=1)
    b = models.read("b", parse("{cmd: z, proxy: 'http://h'}"), line=1)
    c = models.read("c", parse("{cmd: '${PORT}', checkEndpoint: '/${PORT}'}"), line=1)

    assert (a.cmd, a.env, a.proxy) == ("9000 9000", ("P=9000",), "http://localhost:9000")
    assert (b.cmd, b.proxy) == ("z", "http://h")
    assert (c.cmd, c.check_endpoint) == ("9001", "/9001")


def test_a_port_that_comes_by_a_macro() -> None:
    """What counts is the command after its macros."""
    assert reader({"x": "-p ${PORT}"}).read("a", parse("{cmd: '${x}'}"), line=1).cmd == "-p 5800"


def test_a_port_in_a_comment_is_none() -> None:
    """Comment lines are gone before."""
    with pytest.raises(Fault, match="proxy uses"):
        reader({}).read("a", parse('{cmd: "# ${PORT}\\nsrv"}'), line=1)


def test_the_port_is_a_number() -> None:
    """Where it is a whole value."""
    m = reader({}).read("a", parse("{cmd: '${PORT}', metadata: {p: '${PORT}'}}"), line=1)

    assert m.metadata == {"p": 5800}


def test_keys_of_set_params_by_id_may_hold_the_port() -> None:
    """Like all macros of the model."""
    m = reader({"x": "y"}).read(
        "a", parse("{cmd: '${PORT}', filters: {setParamsByID: {'${x}-${PORT}': {q: 1}}}}"), line=1
    )

    assert m.filters.set_params_by_id == {"y-5800": {"q": 1}}


def test_the_proxy_by_default_and_null() -> None:
    """Both are localhost and the port."""
    for body in ("{cmd: '${PORT}'}", "{cmd: '${PORT}', proxy: ~}"):
        assert reader({}).read("a", parse(body), line=1).proxy == "http://localhost:5800"


def test_minus_one_is_no_ttl() -> None:
    """It is what llama-swap takes for a ttl that isn't set."""
    assert model('{cmd: "z ${PORT}", ttl: -1}', above="globalTTL: 5").ttl_s == 5


def test_a_wrong_model_names_its_place() -> None:
    """The line is that of the value."""
    with pytest.raises(Fault, match="unknown macro") as caught:
        reader({}).read("a", parse("cmd: z\nproxy: 'http://h'\nname: ${x}"), line=7)

    assert (caught.value.line, caught.value.path) == (3, "models.a.name")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("PID", "unknown macro '${PID}'; only cmdStop knows it"),
        ("modl", "unknown macro '${modl}'; did you mean '${model}'?"),
        ("model", "unknown macro '${model}': it stands below the macro that uses it; move it up"),
        ("zzz", "unknown macro '${zzz}'; define it under macros"),
    ],
)
def test_what_is_said_of_an_unknown_macro(name: str, message: str) -> None:
    """With the way out."""
    assert unknown_macro(name, {"model": 1}) == message
