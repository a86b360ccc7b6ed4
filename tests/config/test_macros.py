"""Macros: order, types, rendering, and limits."""

from __future__ import annotations

import pytest

from llmsnap.config.faults import Fault
from llmsnap.config.macros import Budget, Expander, read_macros, uses, uses_below
from llmsnap.config.yamlnodes import parse
from tests.config.reading import model, read, refusal


def expand(text: str, **macros: str | float | bool) -> object:
    """Return `text` with `macros`, the last of which goes in first."""
    return Expander(macros, Budget()).text(text, line=1, path="")


@pytest.mark.parametrize(
    ("written", "rendered"),
    [
        ("1.0", "1"), ("1000000.0", "1e+06"), ("1e-5", "1e-05"), ("true", "true"), ("0x10", "16"),
        ("010", "8"), ("1_000", "1000"), ("yes", "yes"), ("on", "on"), ("12:30:45", "12:30:45"),
        (".inf", "+Inf"), ("1234567.5", "1.2345675e+06"), ("999999.0", "999999"),
        ("20971520.0", "2.097152e+07"), ("0.00001234", "1.234e-05"), ("0o17", "15"), ("0b11", "3"),
        ("123456789012345678901", "1.2345678901234568e+20"),
    ],
)  # fmt: skip
def test_how_values_read_within_text(written: str, rendered: str) -> None:
    """As Go prints them."""
    m = model('{cmd: "z ${PORT} =${x}"}', above=f"macros: {{x: {written}}}")

    assert m.cmd == f"z 5800 ={rendered}"


def test_order_is_last_to_first() -> None:
    """So a macro may use those before it, and only those."""
    assert expand("${b}", a="1", b="<${a}>") == "<1>"
    assert expand("${a}", a="<${b}>", b="1") == "<${b}>"


def test_the_type_comes_through_other_macros() -> None:
    """A macro that is one macro and no more has its type too."""
    assert expand("${b}", a=5, b="${a}") == 5
    assert expand("${b}${b}", a=5, b="${a}") == "55"
    assert expand("${b}", a=True, b="${a}") is True


def test_macros_keep_their_order_and_type() -> None:
    """As they stand in the file."""
    macros = read("macros: {z: 1, a: 1.5, m: yes, b: true, e: ''}").macros

    assert list(macros.items()) == [("z", 1), ("a", 1.5), ("m", "yes"), ("b", True), ("e", "")]


def test_a_models_macros_follow_the_global_ones() -> None:
    """They may use those, and each other in their order; an override keeps the global's place."""
    config = read(
        """
        macros: {a: 1, b: "${a}b"}
        models:
          m: {macros: {c: "${b}c", a: 2, d: "${c}d"}, cmd: "${d} ${PORT}"}
        """
    )

    assert config.models["m"].cmd == "2bcd 5800"
    assert config.models["m"].macros == {"c": "${b}c", "a": 2, "d": "${c}d"}
    assert config.macros == {"a": 1, "b": "${a}b"}


def test_built_in_macros_in_other_macros() -> None:
    """The model's id and its port are there, also by way of a global macro."""
    config = read(
        """
        macros: {serve: "srv -a ${MODEL_ID} -p ${PORT}"}
        models: {x: {cmd: "${serve}"}, y: {cmd: "${serve}", proxy: "http://h:${PORT}/${MODEL_ID}"}}
        """
    )

    assert [m.cmd for m in config.models.values()] == ["srv -a x -p 5800", "srv -a y -p 5801"]
    assert config.models["y"].proxy == "http://h:5801/y"


def test_macros_in_all_kinds_of_values() -> None:
    """Numbers and bools can be macros too."""
    m = model(
        '{cmd: "z ${PORT}", ttl: "${t}", unlisted: "${u}", env: ["A=${t}"], '
        'timeouts: {connect: "${t}"}, filters: {setParams: {a: {b: "${t}"}}}}',
        above="macros: {t: 60, u: true}",
    )

    assert (m.ttl_s, m.unlisted, m.env, m.timeouts.connect) == (60, True, ("A=60",), 60)
    assert m.filters.set_params == {"a": {"b": 60}}


def test_a_macro_in_text_is_text() -> None:
    """Two numbers beside each other are no number."""
    assert "models.m.ttl: expected a whole number, not text" in refusal(
        "macros: {t: 6}\nmodels: {m: {cmd: 'z ${PORT}', ttl: '${t}0'}}"
    )


def test_comments_in_a_macro() -> None:
    """Lines of a macro of several lines are comments when the command is split, not before."""
    m = model('{cmd: "${x} ${PORT}"}', above='macros: {x: "srv \\\\\\n# no\\n -a"}')

    assert m.cmd == "srv \\\n# no\n -a 5800"


def test_a_hint_for_a_misspelt_macro() -> None:
    """The nearest one is named."""
    message = refusal("macros: {model-dir: /m}\nmodels: {m: {cmd: 'z ${PORT} ${model_dir}'}}")

    assert "unknown macro '${model_dir}'; did you mean '${model-dir}'?" in message


def test_two_keys_of_set_params_by_id_become_one() -> None:
    """That would lose one of them."""
    message = refusal(
        "models: {m: {cmd: 'z ${PORT}', filters: {setParamsByID: {m: {}, '${MODEL_ID}': {}}}}}"
    )

    assert "keys 'm' and '${MODEL_ID}' resolve to 'm'" in message


def test_uses() -> None:
    """Only names of letters, digits, dashes and underscores in braces are uses."""
    assert uses("${a} ${b-1} ${_c} ${d.e} ${} $f ${g") == ["a", "b-1", "_c"]


def test_uses_below_a_node() -> None:
    """Each comes with its line and path; keys aren't looked at."""
    root = parse("a: '${x}'\nb:\n- '${y} ${x}'\n- {'${k}': 1}\n")

    assert list(uses_below(root, "")) == [("x", 1, "a"), ("y", 3, "b[0]"), ("x", 3, "b[0]")]


def test_a_block_is_checked() -> None:
    """The path names the macro."""
    with pytest.raises(Fault, match="self-reference") as caught:
        read_macros(parse("a: 1\nb: ${b}"), "models.m.macros")

    assert (caught.value.path, caught.value.line) == ("models.m.macros.b", 2)
    assert read_macros(None, "macros") == {}


def test_macros_that_double_each_other_are_refused() -> None:
    """Thirty short lines could make a text of a billion characters."""
    lines = "\n".join(f"  m{i}: ${{m{i - 1}}}${{m{i - 1}}}" for i in range(1, 31))
    message = refusal(f"macros:\n  m0: lol\n{lines}\nmodels:\n  m: {{cmd: '${{m30}}'}}\n")

    assert "models.m.cmd: macros make this longer than 1048576 characters" in message


def test_all_macros_of_a_file_share_a_budget() -> None:
    """Many values that are each just short enough are refused too."""
    text = f"macros: {{a: {'x' * 1000}, b: '{'${a}' * 1000}'}}\nmodels:\n" + "\n".join(
        f"  m{i}: {{cmd: '${{b}}', proxy: 'http://h'}}" for i in range(40)
    )

    assert "the file's macros make over 33554432 characters" in refusal(text)
