"""Tokens and times out of answers: real ones of llama-server, and what others send."""

from __future__ import annotations

import gzip
import json
import random
import urllib.request
import zlib
from collections.abc import Iterator
from typing import Any

import pytest

from llmsnap.telemetry.tokens import END_BYTES, Excerpt, Tokens
from tests.e2e.conftest import direct_server
from tests.helpers.llama import tiny_gguf
from tests.helpers.waiting import eventually

MESSAGES = [{"role": "user", "content": "hello there"}]


def read(*pieces: bytes, is_encoded: bool = False) -> Tokens | None:
    """What is read of a body that comes in these pieces."""
    excerpt = Excerpt(is_encoded=is_encoded)
    for piece in pieces:
        excerpt.feed([piece])
    return excerpt.tokens()


def cut(body: bytes, size: int) -> list[bytes]:
    """A body in pieces of that size."""
    return [body[at : at + size] for at in range(0, len(body), size)]


def events(*values: object) -> bytes:
    """An event stream of them."""
    return b"".join(b"data: %b\n\n" % json.dumps(value).encode() for value in values)


# ---- llama-server ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def llama() -> Iterator[str]:
    """The URL of a real server that has answered once."""
    with direct_server(tiny_gguf(0), "--embeddings", "--pooling", "mean") as url:
        yield url


async def answer(url: str, path: str, **body: Any) -> bytes:
    """What a server says."""
    said: list[bytes] = []

    async def answers() -> bool:
        try:
            said.append(_post(f"{url}{path}", body))
        except OSError:
            return False
        return True

    await eventually(answers)
    return said[-1]


def _post(url: str, body: object) -> bytes:
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=60) as answered:
        whole: bytes = answered.read()
        return whole


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/chat/completions", {"messages": MESSAGES, "max_tokens": 6}),
        ("/v1/completions", {"prompt": "hello", "max_tokens": 6}),
        ("/completion", {"prompt": "hello", "n_predict": 6}),
        ("/v1/messages", {"messages": MESSAGES, "max_tokens": 6}),
        ("/v1/responses", {"input": "hello", "max_output_tokens": 6}),
    ],
)
async def test_p53_what_llama_server_says(
    llama: str, path: str, body: dict[str, Any], stream: bool
) -> None:
    """Each way of asking: the prompt is counted once, computed or cached, and six tokens came."""
    said = await answer(llama, path, **body, stream=stream)
    tokens = read(said)

    assert tokens is not None
    assert tokens.generated == 6
    assert tokens.computed is not None
    assert tokens.cached is not None
    assert tokens.computed >= 1
    assert tokens.prompt == tokens.computed + tokens.cached > 5
    if b'"timings"' in said:  # not in Anthropic's form
        assert tokens.prompt_s is not None
        assert tokens.generation_s is not None
        assert 0 < tokens.generation_s < 60
    for size in (1, 7, 300):
        assert read(*cut(said, size)) == tokens
    assert read(*cut(gzip.compress(said), 50), is_encoded=True) == tokens
    assert read(zlib.compress(said), is_encoded=True) == tokens


async def test_embeddings_generate_nothing(llama: str) -> None:
    """A prompt is counted; absent is absent, and not zero."""
    tokens = read(await answer(llama, "/v1/embeddings", input="hello"))

    assert tokens is not None
    assert (tokens.generated, tokens.generation_s) == (None, None)
    assert tokens.prompt is not None
    assert tokens.prompt > 0


async def test_a_second_time_most_comes_from_the_cache(llama: str) -> None:
    """And the answer says so."""
    body = {"messages": [{"role": "user", "content": "tell me more " * 20}], "max_tokens": 2}
    await answer(llama, "/v1/chat/completions", **body)
    tokens = read(await answer(llama, "/v1/chat/completions", **body))

    assert tokens is not None
    assert tokens.computed == 1
    assert tokens.cached is not None
    assert tokens.cached > 200


# ---- others ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "tokens"),
    [
        (b"", None),
        (b"not json at all", None),
        (b'{"choices":[]}', None),
        (b'{"usage":null}', None),
        (b'{"usage":{"prompt_tokens":null}}', None),
        (b'{"usage":{"prompt_tokens":-1,"completion_tokens":"3"}}', None),
        (b'{"usage":{"prompt_tokens":true}}', None),
        (b'{"usage":[1,2]}', None),
        (b'{"timings":{"prompt_ms":-1}}', None),
        (b"[" * 10000, None),
        (b'{"usage":' * 3000, None),
        (b'{"usage": {"prompt_tokens": 7}}', Tokens(computed=7)),
        (b'{"usage":{"completion_tokens":0}}', Tokens(generated=0)),
        (b'[{"timings":{"prompt_n":1}},{"timings":{"prompt_n":2}}]', Tokens(computed=2)),
        (
            b'{"timings":{"prompt_n":3,"cache_n":9,"draft_n":5,"draft_n_accepted":4}}',
            Tokens(computed=3, cached=9, drafted=5, accepted=4),
        ),
    ],
)
def test_forms(body: bytes, tokens: Tokens | None) -> None:
    """What there is of it is taken; what makes no sense isn't there."""
    assert read(body) == tokens


def test_openais_usage_has_the_cached_ones_in_it() -> None:
    """So they are taken off, to count each once."""
    usage = {"prompt_tokens": 10, "prompt_tokens_details": {"cached_tokens": 8}}
    assert read(json.dumps({"usage": usage}).encode()) == Tokens(computed=2, cached=8)


def test_anthropics_usage_has_the_cached_ones_beside_it() -> None:
    """And those that were written to the cache, which had to be computed."""
    usage = {
        "input_tokens": 3,
        "cache_read_input_tokens": 100,
        "cache_creation_input_tokens": 20,
        "output_tokens": 5,
    }
    tokens = Tokens(computed=23, cached=100, generated=5)
    assert read(json.dumps({"type": "message", "usage": usage}).encode()) == tokens


def test_anthropics_stream_says_it_in_two_events() -> None:
    """Far apart; the later one says nothing of the prompt, or zero."""
    begin = {"message": {"usage": {"input_tokens": 3, "cache_read_input_tokens": 4}}}
    text = [{"delta": {"text": "x" * 100}}] * 1000
    end = {"usage": {"input_tokens": 0, "output_tokens": 9}}
    body = events({**begin, "type": "message_start"}, *text, end, {"type": "message_stop"})

    assert read(*cut(body, 4096)) == Tokens(computed=3, cached=4, generated=9)


def test_the_last_of_many_counts() -> None:
    """vLLM says it in each event, OpenAI `null` in all but the last."""
    growing = [{"usage": {"prompt_tokens": 5, "completion_tokens": n}} for n in range(2000)]
    nulls = [{"usage": None}] * 2000

    assert read(*cut(events(*growing), 1000)) == Tokens(computed=5, generated=1999)
    body = events(*nulls, {"usage": {"prompt_tokens": 5}}, *nulls[:3])
    assert read(*cut(body, 1000)) == Tokens(computed=5)


def test_what_a_model_writes_isnt_taken_for_it() -> None:
    """Be it in a text, where the quotes are escaped, or in the input of a tool."""
    lie = '{"usage":{"prompt_tokens":666}}'
    inner = {"usage": {"input_tokens": 666, "output_tokens": 666}}
    usage = {"input_tokens": 1, "output_tokens": 2}
    whole = {"content": [{"text": lie}, {"input": inner}], "usage": usage}

    assert read(json.dumps(whole).encode()) == Tokens(computed=1, generated=2)
    assert read(*cut(events({"text": lie * 1000}), 4096)) is None


@pytest.mark.parametrize("size", [1, 100, END_BYTES - 1, END_BYTES, END_BYTES + 1, 10**6])
def test_long_answers_are_read_at_both_ends(size: int) -> None:
    """However they are cut; in the middle nothing is looked for."""
    tokens = Tokens(computed=1, generated=2)
    usage = {"prompt_tokens": 1, "completion_tokens": 2}
    for body in (
        {"data": "x" * 200_000, "usage": usage},
        {"usage": usage, "data": "x" * 200_000},
    ):
        assert read(*cut(json.dumps(body).encode(), size)) == tokens


def test_little_is_kept_of_a_stream_without_end() -> None:
    """The beginning, and twice the end at the most."""
    excerpt, chunk = Excerpt(), events({"text": "x" * 100})
    for _ in range(10_000):
        excerpt.feed([chunk])
    kept = sum(len(piece) for piece in (*excerpt._head, *excerpt._before, *excerpt._last))

    assert kept <= 4 * END_BYTES
    excerpt.feed([b"y" * 10**6])
    kept = sum(len(piece) for piece in (*excerpt._head, *excerpt._before, *excerpt._last))
    assert kept <= 4 * END_BYTES


def test_a_compressed_answer_that_isnt() -> None:
    """Whatever was kept of it says nothing."""
    good = gzip.compress(b'{"usage":{"prompt_tokens":1}}')
    assert read(good, is_encoded=True) == Tokens(computed=1)
    assert read(b"no gzip", is_encoded=True) is None
    assert read(good[:15], b"\0\0\0\0\0\0\0\0", good, is_encoded=True) is None


def test_a_bomb_is_left_alone() -> None:
    """Nothing is inflated by more than a little at a time."""
    bomb = gzip.compress(b'{"usage":{"prompt_tokens":1},"x":"' + b" " * 10**8)
    assert read(bomb, bomb, is_encoded=True) is None


def test_garbage_does_no_harm() -> None:
    """Random bytes, with the words in it that are looked for."""
    rng = random.Random(7)
    words = [b'"usage"', b'"timings"', b":", b"{", b"}", b'"', b"\\", b"\xff", b" ", b"[", b"1"]
    for _ in range(2000):
        body = b"".join(rng.choices(words, k=rng.randrange(60)))
        read(*cut(body, rng.randrange(1, 30)))
