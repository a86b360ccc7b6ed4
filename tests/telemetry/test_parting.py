"""Where prompts part: found when the cache was of less use than it might have been."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import json

from llmsnap.telemetry import parting as parting_
from llmsnap.telemetry.captures import Capture
from llmsnap.telemetry.parting import Partings, Prompt, parting
from llmsnap.telemetry.record import RequestRecord
from llmsnap.telemetry.recorder import MOST_RECORDS, Batch
from llmsnap.telemetry.tokens import Tokens

CHAT = "/v1/chat/completions"


def chat(*texts: str, system: str = "be kind", **more: Any) -> bytes:
    """A chat whose user begins."""
    roles = ["user", "assistant"] * len(texts)
    messages = [{"role": role, "content": text} for role, text in zip(roles, texts, strict=False)]
    return json.encode({"messages": [{"role": "system", "content": system}, *messages], **more})


def asked(body: bytes, cached: int | None, *, prompt: int = 1000, **more: Any) -> RequestRecord:
    """A request whose answer says that so much of its prompt was cached."""
    capture = Capture(CHAT, (), 10**6)
    capture.asked([body], len(body))
    said = {"model": "a", "path": CHAT, "client": "::1"} | more
    return RequestRecord(
        arrived_at=1.0,
        capture=capture,
        tokens=Tokens(computed=prompt - (cached or 0), cached=cached),
        **said,
    )


def found(*records: RequestRecord, partings: Partings | None = None) -> str:
    """What is said of the last one."""
    (partings or Partings()).take(Batch(list(records), [], []))
    return records[-1].parting


def parted(earlier: list[bytes], now: bytes) -> str:
    """What is said of a body after others, the newest first."""
    return parting([Prompt(body) for body in earlier], Prompt(now))


# ---- two prompts -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "now", "said"),
    [
        (
            chat("hi", system="it is 12:01"),
            chat("hi", "yes?", "more", system="it is 12:02"),
            "at message 1 (system), character 11",
        ),
        (chat("hi", "yes?", "a"), chat("hi", "no!", "b"), "at message 3 (assistant), character 1"),
        (chat("hi", "yes?", "a"), chat("hi"), "at message 3 (assistant)"),
        (chat("hi", tools=[1, 2]), chat("hi", tools=[2, 1]), "at its tools, character 2"),
        (chat("hi", tools=[1]), chat("hi"), "at its tools"),
    ],
)
def test_where_they_part(before: bytes, now: bytes, said: str) -> None:
    """By message and character, both counted from 1."""
    assert parted([before], now) == f"the prompt parted from the last one {said}"


def test_anthropics_system_prompt() -> None:
    """Stands beside the messages."""
    messages = [{"role": "user", "content": [{"type": "text", "text": "hi"}]}]
    before = json.encode({"system": "now: 1", "messages": messages})
    now = json.encode({"system": "now: 2", "messages": messages})
    assert parted([before], now).endswith("at its system prompt, character 6")


def test_one_that_goes_on() -> None:
    """It is the cache that was lost: the model was started anew, or others took the slot."""
    said = parted([chat("hi")], chat("hi", "yes?", "more"))
    assert said == "the prompt goes on from the last one, but what was cached of that was gone"


def test_the_same_text_in_another_spelling_is_the_same() -> None:
    """Where a client writes an umlaut once as it is and once as an escape."""
    before, now = chat("hi", "schön", "1"), chat("hi", "schön", "2")
    escaped = now.replace("ö".encode(), b"\\u00f6")
    assert escaped != now
    assert parted([before], escaped).endswith("at message 4 (user), character 1")


@pytest.mark.parametrize("text", [b'"\\ud800"', b"[" * 5000 + b"]" * 5000], ids=["half", "deep"])
def test_texts_that_arent_any(text: bytes) -> None:
    """Half a character, or lists without end: nothing is said, and no harm done."""
    body = chat("hi", "yes?").replace(b'"yes?"', text)
    assert body != chat("hi", "yes?")
    assert parted([chat("hi", "no!")], body) == ""
    assert parted([body], chat("hi", "no!")) == ""


def test_other_conversations_are_left_alone() -> None:
    """They are known by what their user said first; the newest one of the same counts."""
    assert parted([chat("hello")], chat("hi")) == ""
    older, newer = chat("hi", system="1"), chat("hi", "yes?", "a", system="2")
    said = parted([chat("title?"), newer, older], chat("hi", "yes!", "b", system="2"))
    assert said.endswith("message 3 (assistant), character 4")


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"prompt":"x"}', b"[" * 5000])
def test_what_is_no_chat(body: bytes) -> None:
    """Says nothing, and does no harm."""
    assert parted([body], body) == ""
    assert parted([chat("hi")], body) == ""


# ---- when to look ------------------------------------------------------------------------------


def test_only_where_much_was_lost() -> None:
    """A few tokens are always computed anew; and an answer may not tell."""
    first, second = chat("hi", system="1"), chat("hi", system="2")
    assert found(asked(first, 0), asked(second, 0)) != ""
    assert found(asked(first, 0), asked(second, 880)) != ""
    assert found(asked(first, 0), asked(second, 950)) == ""
    assert found(asked(first, 0), asked(second, None)) == ""
    assert found(asked(first, 0, prompt=20), asked(second, 0)) == ""


def test_only_within_a_client_and_a_model() -> None:
    """Others' caches are no concern of it."""
    first, second = chat("hi", system="1"), chat("hi", system="2")
    assert found(asked(first, 0, client="::2"), asked(second, 0)) == ""
    assert found(asked(first, 0, model="b"), asked(second, 0)) == ""


def test_nothing_is_compared_in_a_flood() -> None:
    """Requests that fill whole batches are no conversation, and it would hold them all up."""
    flood = [asked(chat("hi", system=f"it is {n}"), 0) for n in range(MOST_RECORDS)]

    assert found(*flood) == ""
    assert found(*flood[:2]) != ""


def test_no_more_is_compared_at_once_than_is_remembered() -> None:
    """However much comes together: the event loop waits for it."""
    first, second = chat("hi", system="1"), chat("hi", system="2")
    sizes = len(first), len(first) + len(second)
    said = [
        found(asked(first, 0), asked(second, 0), partings=Partings(most_bytes=size))
        for size in sizes
    ]

    assert [bool(one) for one in said] == [False, True]


def test_what_is_remembered_is_bounded() -> None:
    """The clients that were silent for longest are forgotten; one that is too large isn't kept."""
    partings = Partings(most_bytes=5000)
    first, second = chat("hi", system="1"), chat("hi", system="2")
    found(asked(first, 0, client="early"), partings=partings)
    for number in range(100):
        found(asked(chat("x" * 200), 0, client=str(number)), partings=partings)
    assert found(asked(second, 0, client="early"), partings=partings) == ""
    assert sum(len(p.body) for recent in partings._recent.values() for p in recent) <= 5000
    assert partings._taken <= 5000
    large = asked(chat("x" * 600_000), 0, client="large")
    found(large, partings=partings)
    assert ("a", "large") not in partings._recent


def test_a_client_with_many_prompts_keeps_the_newest() -> None:
    """The sums stay right."""
    partings = Partings()
    for number in range(20):
        found(asked(chat(f"hi {number}"), 0), partings=partings)
    (recent,) = partings._recent.values()
    assert len(recent) == 6
    assert partings._taken == sum(len(prompt.body) for prompt in recent)


def test_each_prompt_is_read_once_however_many_follow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless one is of the same conversation: the event loop waits for it."""
    read: list[bytes] = []

    def reading(body: bytes) -> parting_._Chat:
        read.append(body)
        return chat_of(body)

    chat_of = parting_._read
    monkeypatch.setattr(parting_, "_read", reading)
    found(*(asked(chat(f"hi {number}"), 0) for number in range(20)))
    assert len(read) == len(set(read)) == 20
