"""Selectors and profiles: names that mean other names."""

from __future__ import annotations

import pytest

from tests.config.reading import read, refusal

BASE = """
models: {a: {cmd: "z ${PORT}", aliases: [al]}, b: {cmd: "z ${PORT}"}, c: {cmd: "z ${PORT}"}}
peers: {box: {proxy: "http://box:1", models: [m]}}
"""


def selector(body: str, *, more: str = "", name: str = "s") -> str:
    """Return a file with one selector on line 4."""
    return f"{BASE}selectors: {{{name}: {{{body}}}}}\n{more}"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("targets: [a]", "selectors.s.strategy: 'strategy' is required"),
        (
            "strategy: cold, targets: [a]",
            "'cold' isn't possible here; write pin, spillover or warm",
        ),
        ("strategy: pin", "selectors.s.targets: 'targets' is required"),
        ("strategy: pin, targets: []", "selectors.s.targets: a selector needs targets"),
        ("strategy: pin, targets: [s]", "selectors.s.targets[0]: 's' is a selector itself"),
        ("strategy: pin, targets: [a, bb]", "selectors.s.targets[1]: no model or alias 'bb'"),
        ("strategy: warm, targets: [a, m]", "'m' is a peer's, and warm knows only of models here"),
        ("strategy: spillover, targets: [a, al]", "two targets are 'a'; take one of them out"),
        ("strategy: spillover, targets: [m, box/m]", "two targets are 'box/m'"),
        (
            "strategy: spillover, targets: [a], settings: {spillover: 0}",
            "selectors.s.settings.spillover: must be at least 1, not 0",
        ),
    ],
)
def test_what_cannot_be_meant(body: str, message: str) -> None:
    """Each error names its place."""
    assert message in refusal(selector(body))


@pytest.mark.parametrize(
    ("name", "who"), [("a", "a model's id"), ("al", "an alias"), ("box/m", "a selector")]
)
def test_a_name_that_is_taken(name: str, who: str) -> None:
    """It would hide what it is the name of."""
    assert who in refusal(selector("strategy: pin, targets: [b]", name=name))


def test_a_bare_name_of_a_peer_isnt_taken() -> None:
    """The selector wins over it."""
    assert "m" in read(selector("strategy: pin, targets: [box/m]", name="m")).selectors


SPILL = "strategy: spillover, targets: [al, b, box/m]"


@pytest.mark.parametrize(
    "more",
    [
        "groups: {g: {swap: false, members: [a, b]}}",
        "matrix: {sets: {s: a, t: 'a & (b | c)'}}",
        "memory: {devices: {host: 1GiB}}",
    ],
)
def test_who_may_spill_over(more: str) -> None:
    """Models here that groups, a matrix or memory allow together; peers' don't count."""
    assert read(selector(SPILL, more=more)).selectors["s"].targets == ("al", "b", "box/m")


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("groups: {g: {members: [a, b]}}", "a, b must share a group with swap: false"),
        ("groups: {g: {swap: false, members: [a]}}", "a, b must share a group with swap: false"),
        ("matrix: {sets: {s: a & c, t: b & c}}", "no set of the matrix has a, b together"),
    ],
)
def test_who_may_not(more: str, message: str) -> None:
    """They would put each other out."""
    assert message in refusal(selector(SPILL, more=more))


@pytest.mark.parametrize(
    ("profile", "message"),
    [
        ("{p: {pins: {}}}", "profiles.p.pins: a profile needs pins"),
        ("{'': {pins: {x: a}}}", "profiles: a profile's name is empty"),
        ("{p: {pins: {'': a}}}", "profiles.p.pins: a pin's name is empty"),
        ("{p: {pins: {x: aa}}}", "profiles.p.pins.x: no model or alias 'aa'; did you mean 'a"),
    ],
)
def test_profiles_that_cannot_be_meant(profile: str, message: str) -> None:
    """Each error names its place."""
    assert message in refusal(f"{BASE}profiles: {profile}\n")


def test_pins_lead_to_everything_that_can_be_asked_for() -> None:
    """Models, aliases, peers' models by both names, selectors; and to nothing."""
    pins = "{a: b, b: al, c: m, d: box/m, e: s, f: '', g: ~}"
    text = selector("strategy: pin, targets: [a]", more=f"profiles: {{p: {{pins: {pins}}}}}")

    assert read(text).profiles["p"].pins["e"] == "s"
