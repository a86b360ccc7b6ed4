"""Entries under `peers`, and the names of their models."""

from __future__ import annotations

import pytest

from llmsnap.config.loader import Loaded
from llmsnap.config.peers import peer_models, peer_names
from llmsnap.config.resolved import all_secrets, resolved
from tests.config.reading import loaded, read, refusal

TWO = """
peers:
  box: {proxy: "http://box:1", models: [m, shared], apiKey: key-of-box}
  den: {proxy: "https://u:pass-of-den@den/base", models: [shared, org/n]}
"""


def test_names_of_their_models() -> None:
    """The full one always; the bare one where it means one model."""
    names = peer_names(read(TWO).peers)

    assert list(peer_models(read(TWO).peers)) == ["box/m", "box/shared", "den/shared", "den/org/n"]
    assert names["m"].name == names["box/m"].name == "box/m"
    assert names["org/n"].peer == "den"
    assert "shared" not in names


def test_a_full_name_wins_over_a_bare_one() -> None:
    """Whatever strange names there are."""
    peers = "peers: {a: {proxy: 'http://x', models: [b/c]}, b: {proxy: 'http://y', models: [c]}}"

    assert peer_names(read(peers).peers)["b/c"].peer == "b"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("models: [m, m]", "qualified peer name 'box/m' is there twice; take one of them out"),
        ("models: [' ']", "a model's name is empty; take it out"),
    ],
)
def test_what_cannot_be_meant(text: str, message: str) -> None:
    """Each error names its place."""
    error = refusal(f"peers: {{box: {{proxy: 'http://x', {text}}}}}")

    assert error.startswith("config.yaml:1: peers.box.models[")
    assert error.endswith(message)


@pytest.mark.parametrize(
    ("more", "who"),
    [
        ("models: {a: {cmd: 'z ${PORT}', aliases: [box/m]}}", "an alias"),
        (
            "models: {a: {cmd: 'z ${PORT}'}}\nprofiles: {p: {pins: {box/m: a}}}",
            "a profile's pin",
        ),
        (
            "models: {a: {cmd: 'z ${PORT}'}}\nselectors: {box/m: {strategy: pin, targets: [a]}}",
            "a selector",
        ),
    ],
)
def test_a_full_name_is_nobody_elses(more: str, who: str) -> None:
    """Else it would hide the peer's model, or be hidden."""
    assert f"{who} conflicts with qualified peer name 'box/m'" in refusal(TWO + more)


def test_their_filters_are_tidied() -> None:
    """As those of models, in the older spelling too."""
    filters = "{strip_params: 'b, model, a', setParams: {model: x}}"
    text = f"peers: {{box: {{proxy: 'http://x', models: [m], filters: {filters}}}}}"

    assert read(text).peers["box"].filters.strip_params == ("a", "b")
    assert read(text).peers["box"].filters.set_params == {}


def test_their_secrets_are_hidden() -> None:
    """Keys, and passwords in URLs."""
    result: Loaded = loaded(TWO)
    shown = str(resolved(result))

    assert {"key-of-box", "pass-of-den"} <= set(all_secrets(result.config))
    assert "key-of-box" not in shown
    assert "pass-of-den" not in shown


def test_a_macro_in_a_peer() -> None:
    """One that there isn't is told with its path."""
    text = TWO.replace("key-of-box", "'x${k}'")

    assert read("macros: {k: abcd}\n" + text).peers["box"].api_key == "xabcd"
    assert "peers.box.apiKey: unknown macro" in refusal(text)
