"""Every route of both predecessors, each in its place."""

from __future__ import annotations

import pytest

from llmsnap.config.schema import Config
from tests.web.fleet import config_of, front_of
from tests.web.serving import Reply, serving

POSTS = [
    "/v1/chat/completions",
    "/v1/responses",
    "/v1/completions",
    "/v1/messages",
    "/v1/messages/count_tokens",
    "/v1/embeddings",
    "/rerank",
    "/reranking",
    "/v1/rerank",
    "/v1/reranking",
    "/infill",
    "/completion",
    "/v1/audio/speech",
    "/v1/audio/voices",
    "/v1/images/generations",
    "/sdapi/v1/txt2img",
    "/sdapi/v1/img2img",
    "/audioapi/v1/tasks/run",
    "/v/chat/completions",
    "/v/responses",
    "/v/completions",
    "/v/messages",
    "/v/messages/count_tokens",
    "/v/embeddings",
    "/v/rerank",
    "/v/reranking",
    "/v1/audio/transcriptions",
    "/v1/images/edits",
    "/v1/chat/completions/control",
    "/completions",
    "/chat/completions",
    "/embedding",
    "/embeddings",
    "/tokenize",
    "/detokenize",
    "/apply-template",
    "/slots/0",
]

GETS = ["/v1/audio/voices", "/sdapi/v1/loras", "/props?model=a&autoload=true"]


async def asked(path: str, method: str, config: Config | None = None) -> Reply:
    """What comes of one request."""
    async with serving(front_of(config or config_of("a"))) as site:
        return await site.ask(path, method=method)


@pytest.mark.parametrize("path", POSTS)
async def test_inference_is_posted(path: str) -> None:
    """Each path goes to the hot path as it is."""
    answer = await asked(path, "POST")

    assert answer.text == f"infer POST {path}"


@pytest.mark.parametrize("path", GETS)
@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_some_inference_is_got(path: str, method: str) -> None:
    """With HEAD wherever there is GET."""
    answer = await asked(path, method)

    assert answer.status == 200
    assert answer.text == ("" if method == "HEAD" else f"infer GET {path.partition('?')[0]}")


@pytest.mark.parametrize(
    ("path", "method", "allowed"),
    [
        ("/v1/chat/completions", "GET", "POST"),
        ("/v1/models", "POST", "GET,HEAD"),
        ("/api/models/load/a", "GET", "POST"),
        ("/v1/audio/voices", "DELETE", "GET,HEAD,POST"),
        ("/running", "PUT", "GET,HEAD"),
    ],
)
async def test_p16_a_wrong_method_hears_which_are_right(
    path: str, method: str, allowed: str
) -> None:
    """405 with `Allow`, in our form."""
    answer = await asked(path, method)

    assert answer.status == 405
    assert answer.headers["Allow"] == allowed
    assert answer.json["src"] == "llmsnap"


@pytest.mark.parametrize(
    "path", ["/v1/models", "/models", "/running", "/api/models", "/api/version", "/logs"]
)
async def test_head_is_there_wherever_get_is(path: str) -> None:
    """The same headers and no body."""
    answer = await asked(path, "HEAD")

    assert (answer.status, answer.text) == (200, "")


@pytest.mark.parametrize("path", [*POSTS, "/upstream/a/x", "/nowhere"])
async def test_u99_preflights_never_reach_a_model(path: str) -> None:
    """The proxy answers them itself."""
    answer = await asked(path, "OPTIONS")

    assert (answer.status, answer.text) == (204, "")


async def test_u98_nothing_is_added_to_a_models_own_cors_headers() -> None:
    """Two `Access-Control-Allow-Origin` would make browsers refuse the answer."""
    async with serving(front_of(config_of("a"))) as site:
        inferred = await site.ask(
            "/v1/chat/completions", method="POST", headers={"Origin": "http://page.test"}
        )
        forwarded = await site.ask("/upstream/a/x", headers={"Origin": "http://page.test"})

    for answer in (inferred, forwarded):
        assert "Access-Control-Allow-Origin" not in answer.headers


async def test_paths_that_arent_there_are_404_for_every_method() -> None:
    """In our form, behind the gate."""
    keyed = Config(api_keys=("k",))

    assert (await asked("/v1/nope", "POST")).status == 404
    assert (await asked("/v1/models/", "GET")).status == 404
    assert (await asked("/v1/nope", "POST", keyed)).status == 401
