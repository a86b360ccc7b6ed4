"""Names that stand for others."""

from __future__ import annotations

from contextlib import suppress

import pytest

from llmsnap.config.schema import Config, ModelConfig
from llmsnap.config.sections import ProfileConfig, SelectorConfig
from llmsnap.core.lifecycle import State
from llmsnap.errors import ModelNotFound, NotFound
from llmsnap.web.standins import StandIns
from tests.web.fleet import FakeFleet
from tests.web.stage import staged

CONFIG = Config(
    models={"a": ModelConfig(cmd="x", aliases=("al",)), "b": ModelConfig(cmd="x")},
    profiles={"p": ProfileConfig(pins={"small": "s", "a": "b", "gone": None, "x": "al"})},
    selectors={"s": SelectorConfig(strategy="warm", targets=("b", "al"))},
)


def standins() -> StandIns:
    """Model a is ready, b isn't."""
    fleet = FakeFleet("a", "b")
    fleet.put("a", State.READY)
    return StandIns(CONFIG, fleet.view)


def served(names: StandIns, name: str) -> str:
    """What is served for a name."""
    with names.standing_in(name) as target:
        return target


def test_without_a_profile_only_selectors_stand_for_others() -> None:
    """The target is named as the selector names it."""
    names = standins()

    assert names.names == {"s"}
    assert served(names, "s") == "al"
    assert names.pinned_names({"a": "a"}) == {"a": "a"}


def test_a_pin_comes_first_and_isnt_looked_up_again() -> None:
    """Its target may be a selector, but no other pin counts."""
    names = standins()
    names.activate("p")

    assert names.names == {"s", "small", "a", "gone", "x"}
    assert (served(names, "small"), served(names, "a"), served(names, "x")) == ("al", "b", "al")
    with pytest.raises(ModelNotFound, match="profile 'p' makes 'gone' unavailable"):
        served(names, "gone")
    names.activate(None)
    assert names.names == {"s"}


def test_names_for_upstream_follow_pins_to_models_alone() -> None:
    """A pin to a selector, or to nothing, leads nowhere."""
    names = standins()
    names.activate("p")

    known = {"a": "a", "al": "a", "b": "b", "gone": "b"}
    assert names.pinned_names(known) == {"al": "a", "b": "b", "a": "b", "x": "a"}


def test_unknown_profiles() -> None:
    """The active one stays."""
    names = standins()
    names.activate("p")
    told: list[str | None] = []
    names.watch(lambda: told.append(names.active))

    with pytest.raises(NotFound, match="no profile 'q'"):
        names.activate("q")
    assert names.active == "p"
    names.activate(None)
    assert told == [None]


def test_a_request_counts_while_it_is_served() -> None:
    """However it ends."""
    names = standins()
    counts = names.selectors["s"].in_flight

    with suppress(ZeroDivisionError), names.standing_in("s"):
        assert counts["al"] == 1
        _ = 1 / 0
    assert counts["al"] == 0


@pytest.mark.parametrize(
    ("body", "kind", "sent"),
    [
        (b'{"model":"s", "n":1.0}', "application/json", b'{"model":"al", "n":1.0}'),
        (b"n=1&model=s", "application/x-www-form-urlencoded", b"n=1&model=al"),
        (
            b'--x\r\nContent-Disposition: form-data; name="model"\r\n\r\ns\r\n--x--\r\n',
            "multipart/form-data; boundary=x",
            b'--x\r\nContent-Disposition: form-data; name="model"\r\n\r\nal\r\n--x--\r\n',
        ),
    ],
)
async def test_the_server_sees_the_targets_name(body: bytes, kind: str, sent: bytes) -> None:
    """In whatever form the client named it, and nothing else is changed."""
    async with staged(config=CONFIG) as stage:
        async with stage.ask(body, content_type=kind) as answer:
            assert answer.status == 200
        assert stage.received.body == sent


async def test_the_query_names_the_target_too() -> None:
    """The rest of it stays as it was written."""
    async with staged(config=CONFIG) as stage:
        reply = await stage.site.ask("/v1/audio/voices?x=%20&model=s&y")
        assert reply.status == 200
        assert stage.received.target == "/v1/audio/voices?x=%20&model=al&y"
