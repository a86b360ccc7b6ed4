"""`${env.NAME}` in the text of the file."""

from __future__ import annotations

import pytest

from llmsnap.config.argv import split_command
from llmsnap.config.environment import substitute
from llmsnap.config.faults import Fault
from tests.config.reading import model, read, refusal


def cmd(text: str, **environ: str) -> str:
    """Return the command of the model `m` in `text`."""
    return read(text, **environ).models["m"].cmd


def test_everywhere_in_the_text() -> None:
    """In keys, flow lists, macros and within words."""
    config = read(
        """
        macros: {"${env.NAME}": "${env.VALUE}"}
        apiKeys: [${env.KEY}, x-${env.KEY}]
        models:
          "${env.ID}": {cmd: "z ${PORT} ${host}"}
        """,
        NAME="host",
        VALUE="h",
        KEY="k1",
        ID="m",
    )

    assert config.macros == {"host": "h"}
    assert config.api_keys == ("k1", "x-k1")
    assert config.models["m"].cmd == "z 5800 h"


def test_values_are_typed_like_what_is_written() -> None:
    """An unquoted number is a number."""
    assert read("startPort: ${env.P}", P="6000").start_port == 6000


def test_an_empty_variable_is_nothing() -> None:
    """It is set, so it is no error."""
    assert cmd("models: {m: {cmd: 'z ${PORT}${env.E}'}}", E="") == "z 5800"


def test_names_that_are_none_are_left_alone() -> None:
    """They may be meant for a template."""
    assert substitute("${env.1BAD} ${env.} ${env.a-b} ${ENV.X}", {}) == (
        "${env.1BAD} ${env.} ${env.a-b} ${ENV.X}"
    )


def test_an_unset_variable_names_line_and_key() -> None:
    """And what to do about it."""
    message = refusal(
        "models:\n  m:\n    env:\n    - A=1\n    - B=${env.NOPE}\n    cmd: z ${PORT}\n"
    )

    assert message == (
        "config.yaml:5: models.m.env[1]: environment variable 'NOPE' is not set; "
        "set it, or take ${env.NOPE} out"
    )


def test_an_unset_variable_in_a_broken_file() -> None:
    """There is no key to name then."""
    message = refusal("a: [\nb: ${env.NOPE}\n")

    assert message.startswith("config.yaml:2: environment variable 'NOPE' is not set")


@pytest.mark.parametrize("value", ["a\nb", "a\rb", "a\0b", "a\u2028b", "a\udcffb"])
def test_values_that_cannot_stand_in_a_line(value: str) -> None:
    """A line break would change the structure of the file. The value isn't shown."""
    with pytest.raises(Fault, match="environment variable 'X' holds a line break") as caught:
        substitute("a: 1\nb: ${env.X}\n", {"X": value})

    assert caught.value.line == 2
    assert value not in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "# ${env.X}",
        "a: 1 # ${env.X}",
        "a: 'x' # ${env.X}",
        "a: é # ${env.X}\nb: 1 # ${env.X}",
        "a: 😀 # ${env.X}",
        "a: |  # ${env.X}\n  text\n# ${env.X}\n",
        "a: [1, # ${env.X}\n  2]",
        "a: 1\r\n# ${env.X}\r\nb: 2\r\n",
        "a: x#y # ${env.X}",
    ],
)
def test_comments_are_left_alone(text: str) -> None:
    """A variable in a comment may be unset."""
    assert substitute(text, {}) == text


@pytest.mark.parametrize(
    "text",
    [
        "a: x#${env.X}",
        "a: 'x # ${env.X}'",
        'a: "x # ${env.X}"',
        "a: |\n  # ${env.X}\n",
        "a: >\n  b\n  # ${env.X}\n",
        'a: "x\n  # ${env.X}"',
        "# c\na: ${env.X} # ${env.Y}",
    ],
)
def test_what_looks_like_a_comment(text: str) -> None:
    """A hash within quotes, words or block texts begins none."""
    with pytest.raises(Fault, match="'X' is not set"):
        substitute(text, {})


def test_comments_beside_values() -> None:
    """Each is told apart on one line."""
    assert substitute("a: ${env.A} # ${env.B}\n", {"A": "1"}) == "a: 1 # ${env.B}\n"


def test_bad_yaml_beside_comments() -> None:
    """The file's own error comes first."""
    assert "not valid YAML" in refusal("a: x # ${env.X}\n\tb: 1\n")


def test_quotes_and_backslashes_get_a_backslash() -> None:
    """Which double-quoted YAML takes off, and so does splitting a command."""
    value = 'a"b\\c'
    double = cmd('models: {m: {cmd: "z ${PORT} ${env.V}"}}', V=value)
    single = cmd("models: {m: {cmd: 'z ${PORT} ${env.V}'}}", V=value)

    assert double == 'z 5800 a"b\\c'
    assert single == 'z 5800 a\\"b\\\\c'
    assert split_command(single) == ["z", "5800", value]


def test_yaml_in_an_unquoted_value_breaks_the_file() -> None:
    """As in peers: quote what may hold anything."""
    assert "not valid YAML" in refusal("logLevel: ${env.V}", V="a: b")
    assert "no anchor &x" in refusal("logLevel: ${env.V}", V="*x")
    assert read("logLevel: ${env.V}", V="info #x").log_level == "info"


def test_a_value_may_look_like_a_macro() -> None:
    """The environment comes first, so that its values may use macros, but not the environment."""
    assert model('{cmd: "z ${PORT}"}').cmd == "z 5800"
    assert cmd('models: {m: {cmd: "${env.C}"}}', C="z ${PORT}") == "z 5800"
    assert cmd('models: {m: {cmd: "z ${PORT} ${env.C}"}}', C="${env.C}") == "z 5800 ${env.C}"
