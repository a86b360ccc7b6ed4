"""The model's name in answers, as the client asked for it."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmsnap.web.renaming import Renamer

EVENTS = (
    b'data: {"id":1,"model":"inner","choices":[]}\n\n'
    b": ping\n\n"
    b'event: response.created\r\ndata: {"response": {"model": "inner"}}\r\n\r\n'
    b'data: {"type":"message_start","message":{"model":"inner","role":"assistant"}}\n\n'
    b"data: [DONE]\n\n"
)
RENAMED = EVENTS.replace(b'"inner"', b'"outer"')


def test_an_answer_is_renamed_when_it_is_whole() -> None:
    """Until then nothing goes out; every other byte stays."""
    renamer = Renamer("outer", is_event_stream=False)

    assert renamer.feed([b'{ "model" : "in', b'ner",'], False) == []
    assert b"".join(renamer.feed([b' "x": 1.0 }'], True)) == b'{ "model" : "outer", "x": 1.0 }'


@given(st.lists(st.integers(0, len(EVENTS)), max_size=8))
def test_events_are_renamed_however_they_are_cut(cuts: list[int]) -> None:
    """Each line once it is whole."""
    renamer = Renamer("outer", is_event_stream=True)
    places = [0, *sorted(cuts), len(EVENTS)]
    out: list[bytes] = []
    for n, end in enumerate(places[1:], start=1):
        out += renamer.feed([EVENTS[places[n - 1] : end]], end is places[-1] and n == len(cuts) + 1)

    assert b"".join(out) == RENAMED


def test_an_event_goes_on_at_once() -> None:
    """A whole event is never held back, nor one that names no model."""
    renamer = Renamer("outer", is_event_stream=True)

    for event in EVENTS.split(b"\n\n")[:2]:
        assert renamer.feed([event + b"\n\n"], False) == [
            event.replace(b"inner", b"outer") + b"\n\n"
        ]
    assert b"".join(renamer.feed([b'data: {"delta":'], False)) == b""


@pytest.mark.parametrize(
    "text", [b'{"error": {"message": "model"}}', b'{"model": "x"', b"model", b"", b'["model"]']
)
def test_what_names_no_model_stays(text: bytes) -> None:
    """Also what is no JSON."""
    assert b"".join(Renamer("outer", is_event_stream=False).feed([text], True)) == text


def test_names_are_quoted() -> None:
    """Whatever a client calls its model."""
    out = b"".join(Renamer('q"\\', is_event_stream=False).feed([b'{"model":"x"}'], True))

    assert json.loads(out) == {"model": 'q"\\'}


def test_a_very_large_answer_passes_unchanged() -> None:
    """It isn't one that names a model, and holding it would cost memory."""
    renamer = Renamer("outer", is_event_stream=False)
    piece = b"x" * 2**20
    out = [renamer.feed([piece], False) for _ in range(20)]

    assert b"".join(part for parts in out for part in parts) == piece * 20


def test_an_event_without_an_end_passes_unchanged() -> None:
    """A server gone wild isn't held in memory."""
    renamer = Renamer("x", is_event_stream=True)
    passed = [len(b"".join(renamer.feed([b"y" * 2**20], complete=False))) for _ in range(20)]

    assert sum(passed) == 20 * 2**20
    assert passed[:16] == [0] * 16
