"""`/upstream/MODEL/…`: the longest name wins, escapes stay, and leftovers load nothing."""

from __future__ import annotations

import pytest

from llmsnap.config.schema import Config, ModelConfig
from llmsnap.core.lifecycle import State
from llmsnap.errors import ModelNotFound
from llmsnap.web.upstream_routes import plain_path, split_model
from tests.web.fleet import FakeFleet, config_of, front_of
from tests.web.serving import Reply, serving

NAMES = {"a": "a", "author/model": "author/model", "author": "author", "nick": "a", "ü n": "ü n"}


@pytest.mark.parametrize(
    ("rest", "model", "path"),
    [
        ("a/v1/chat", "a", "/v1/chat"),
        ("a/", "a", "/"),
        ("a", "a", ""),
        ("author/model/x", "author/model", "/x"),
        ("author%2Fmodel/x", "author/model", "/x"),
        ("author%2fmodel", "author/model", ""),
        ("author/other/x", "author", "/other/x"),
        ("a/x%2Fy//z/", "a", "/x%2Fy//z/"),
        ("%C3%BC%20n/x", "ü n", "/x"),
    ],
)
def test_u87_the_longest_name_that_a_path_begins_with_is_the_model(
    rest: str, model: str, path: str
) -> None:
    """The names may hold slashes, escaped or not; what follows keeps its escapes."""
    assert split_model(NAMES, rest) == (model, path)


def test_u89_an_alias_means_its_model() -> None:
    """In a path as in a body."""
    assert split_model(NAMES, "nick/health") == ("a", "/health")


@pytest.mark.parametrize("rest", ["", "b/x", "A/x", "a%2Fx"])
def test_a_path_that_begins_with_no_name_is_not_found(rest: str) -> None:
    """Names are compared exactly."""
    with pytest.raises(ModelNotFound, match="begins"):
        split_model(NAMES, rest)


async def asked(
    path: str, *, method: str = "GET", state: State = State.READY, config: Config | None = None
) -> Reply:
    """What comes of a request when all models are in `state`."""
    config = config or config_of(
        "a", "author/model", named=ModelConfig(aliases=("nick",)), comfyui_auto=ModelConfig()
    )
    fleet = FakeFleet(*config.models)
    for model in config.models:
        fleet.put(model, state)
    async with (
        serving(front_of(config, fleet)) as site,
        site.session.request(
            method, f"{site.url}{path}", allow_redirects=False, skip_auto_headers=["Accept"]
        ) as answer,
    ):
        return Reply(answer.status, answer.headers, await answer.text())


async def test_p26_the_rest_of_the_path_and_the_query_go_to_the_model() -> None:
    """Slashes in the name are no matter."""
    answer = await asked("/upstream/author/model/test?x=1&y=%20")

    assert answer.text == "author/model GET /test?x=1&y=%20"


async def test_p28_escapes_reach_the_upstream_as_they_came() -> None:
    """The proxy doesn't decode on the way."""
    config = config_of("a")
    async with serving(front_of(config)) as site:
        said = await site.raw("GET /upstream/a/x%2Fy/%7e?q=%2F")

    assert said.endswith(b"a GET /x%2Fy/%7e?q=%2F")


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "PUT", "DELETE", "PATCH"])
async def test_any_method_goes_through(method: str) -> None:
    """What the upstream makes of it is its business."""
    answer = await asked("/upstream/nick/any", method=method)

    assert answer.status == 200
    assert answer.text == ("" if method == "HEAD" else f"named {method} /any")


@pytest.mark.parametrize(("method", "status"), [("GET", 301), ("HEAD", 301), ("POST", 308)])
async def test_a_name_without_a_slash_is_redirected(method: str, status: int) -> None:
    """So that a page's relative links stay below the model; the query is kept."""
    answer = await asked("/upstream/author/model?x=1", method=method, state=State.STOPPED)

    assert answer.status == status
    assert answer.headers["Location"] == "/upstream/author/model/?x=1"


async def test_an_unknown_model_is_404() -> None:
    """With the list of what there is."""
    answer = await asked("/upstream/nope/x")

    assert answer.status == 404
    assert "/v1/models" in answer.message


@pytest.mark.parametrize("path", ["app.js", "x/style.css", "favicon.ico"])
async def test_p29_a_browsers_leftovers_load_no_model(path: str) -> None:
    """An asset of a page that is still open: 409 while the model is down, else proxied."""
    stopped = await asked(f"/upstream/a/{path}", state=State.STOPPED)
    ready = await asked(f"/upstream/a/{path}?v=1")

    assert stopped.status == 409
    assert stopped.json["error"]["code"] == "conflict"
    assert ready.text == f"a GET /{path}?v=1 unnoticed"


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
async def test_only_reading_a_part_of_a_page_is_no_use(method: str) -> None:
    """Whoever has all paths ignored still uses an awake model by asking it something."""
    answer = await asked("/upstream/a/chat.json", method=method)
    assert answer.text == f"a {method} /chat.json"


@pytest.mark.parametrize("state", [State.STOPPED, State.ASLEEP, State.STARTING])
async def test_what_monitors_poll_is_the_proxys_to_answer(state: State) -> None:
    """It knows what was last seen, so nothing is refused here."""
    answer = await asked("/upstream/a/health", state=state)

    assert answer.text == "a GET /health"


@pytest.mark.parametrize(
    "path",
    [
        *("/sleep", "/wake_up", "/collective_rpc"),
        *("/sleep/", "//sleep", "/x/../sleep", "/%73leep", "/sleep#x"),
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_u110_engines_development_endpoints_are_refused(path: str, method: str) -> None:
    """They would change a model behind the scheduler's back, however they are spelled."""
    config = config_of("a")
    fleet = FakeFleet("a")
    fleet.put("a", State.READY)
    async with serving(front_of(config, fleet)) as site:
        said = await site.raw(f"{method} /upstream/a{path}?level=1")

    assert said.startswith(b"HTTP/1.1 403 ")


def test_a_plain_path_is_what_a_server_may_make_of_it() -> None:
    """Unescaped, without dots, doubled slashes and the slash at the end."""
    assert plain_path("//a/./b/../c%2Fd/") == "/a/c/d"


async def test_upstream_alone_shows_the_models() -> None:
    """Browsers go to the page that lists them."""
    answer = await asked("/upstream")

    assert (answer.status, answer.headers["Location"]) == (302, "/ui/#models")


async def test_comfyui_is_loaded_by_its_first_page_only() -> None:
    """Any other path of it needs the model ready, and the prefix is gone."""
    first = await asked("/comfyui/?x=1", state=State.STOPPED)
    asset = await asked("/comfyui/api/x", state=State.STOPPED)
    ready = await asked("/comfyui/api/x%2Fy", method="POST")
    bare = await asked("/comfyui?x=1", method="POST")
    absent = await asked("/comfyui/", config=config_of("a"))

    assert first.text == "comfyui_auto GET /?x=1"
    assert asset.status == 409
    assert ready.text == "comfyui_auto POST /api/x%2Fy"
    assert (bare.status, bare.headers["Location"]) == (308, "/comfyui/?x=1")
    assert absent.status == 404
