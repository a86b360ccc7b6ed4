"""The operators' endpoints: who runs, orders, and what stays open and secret."""

from __future__ import annotations

import pytest

from llmsnap import __version__
from llmsnap.config.schema import Config, ModelConfig
from llmsnap.core.lifecycle import State
from llmsnap.core.messages import Phases
from llmsnap.errors import Conflict, StartFailed
from llmsnap.runtime.rest import RestView
from llmsnap.sleep.driver import Moved
from tests.web.fleet import NOW, FakeFleet, config_of, front_of
from tests.web.serving import serving


@pytest.mark.parametrize("path", ["/health", "/wol-health"])
@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_health_says_ok_without_a_key(path: str, method: str) -> None:
    """It is about the proxy itself; no model is asked."""
    config = Config(api_keys=("k",), models=config_of("a").models)
    async with serving(front_of(config)) as site:
        answer = await site.ask(path, method=method)

    assert (answer.status, answer.text) == (200, "" if method == "HEAD" else "OK")


async def test_version() -> None:
    """The keys are those that llama-swap's clients read."""
    async with serving(front_of(config_of())) as site:
        answer = await site.ask("/api/version")

    assert answer.json == {"version": __version__, "commit": "", "build_date": ""}


async def test_p24_unload_answers_when_the_processes_are_gone() -> None:
    """Then nothing is running."""
    fleet = FakeFleet("a", "b")
    fleet.put("a", State.READY)
    async with serving(front_of(config_of("a", "b"), fleet)) as site:
        before = await site.ask("/running")
        unloaded = await site.ask("/unload")
        after = await site.ask("/running")

    assert [entry["model"] for entry in before.json["running"]] == ["a"]
    assert (unloaded.status, unloaded.text) == (200, "OK")
    assert after.json == {"running": []}


async def test_p25_unload_of_one_model_leaves_the_others() -> None:
    """Names may hold slashes and be aliases; what isn't a name is 404."""
    models = {"author/model": ModelConfig(aliases=("nick",)), "b": ModelConfig()}
    fleet = FakeFleet(*models)
    async with serving(front_of(Config(models=models), fleet)) as site:
        answers = [
            await site.ask(f"/api/models/unload/{name}", method="POST")
            for name in ("author/model", "author%2Fmodel", "nick", "nope", "author")
        ]

    assert [answer.status for answer in answers] == [200, 200, 200, 404, 404]
    assert answers[0].text == "OK"
    assert fleet.orders == [("unload", "author/model", None)] * 3


async def test_unload_in_json() -> None:
    """The POST form of `/unload`."""
    fleet = FakeFleet("a")
    async with serving(front_of(config_of("a"), fleet)) as site:
        answer = await site.ask("/api/models/unload", method="POST")

    assert answer.json == {"msg": "ok"}
    assert fleet.orders == [("unload", "*", None)]


@pytest.mark.parametrize(("text", "seconds"), [("0", 0.0), ("5", 5.0), ("0.5", 0.5)])
async def test_u14_unload_says_how_long_answers_may_go_on(text: str, seconds: float) -> None:
    """0 is now, N is up to N seconds; for one model and for all."""
    fleet = FakeFleet("a", "b")
    async with serving(front_of(config_of("a", "b"), fleet)) as site:
        one = await site.ask(f"/api/models/unload/a?timeout={text}", method="POST")
        every = await site.ask(f"/unload?timeout={text}")

    assert (one.status, every.status) == (200, 200)
    assert fleet.orders == [("unload", name, seconds) for name in ("a", "a", "b")]


@pytest.mark.parametrize("text", ["-1", "soon", "", "nan", "inf", "1e99"])
async def test_a_timeout_that_is_no_time_is_refused(text: str) -> None:
    """Before anything is unloaded."""
    fleet = FakeFleet("a")
    async with serving(front_of(config_of("a"), fleet)) as site:
        answer = await site.ask(f"/api/models/unload/a?timeout={text}", method="POST")

    assert answer.status == 400
    assert repr(text) in answer.message
    assert fleet.orders == []


async def test_unload_isnt_done_by_looking() -> None:
    """A HEAD of `/unload` must not unload."""
    fleet = FakeFleet("a")
    async with serving(front_of(config_of("a"), fleet)) as site:
        answer = await site.ask("/unload", method="HEAD")

    assert answer.status == 405
    assert fleet.orders == []


async def test_running_is_what_llama_swaps_clients_know() -> None:
    """States by their names there, the command as it was written, times as configured."""
    models = {
        "a": ModelConfig(cmd="serve\n  --port 1", proxy="http://localhost:1", ttl_s=9, name="A"),
        "b": ModelConfig(),
        "c": ModelConfig(),
    }
    fleet = FakeFleet(*models)
    fleet.put("a", State.SLEEPING)
    fleet.put("b", State.FAILED)
    async with serving(front_of(Config(models=models), fleet)) as site:
        answer = await site.ask("/running")

    assert answer.json == {
        "running": [
            {
                "model": "a",
                "state": "sleepPending",
                "cmd": "serve\n  --port 1",
                "proxy": "http://localhost:1",
                "ttl": 9,
                "name": "A",
                "description": "",
            }
        ]
    }


@pytest.mark.parametrize(
    ("state", "shown"),
    [
        (State.STARTING, "starting"),
        (State.READY, "ready"),
        (State.ASLEEP, "asleep"),
        (State.PAGING, "asleep"),
        (State.WAKING, "waking"),
        (State.STOPPING, "stopping"),
    ],
)
async def test_running_shows_each_live_state(state: State, shown: str) -> None:
    """All but sleeping are called the same."""
    fleet = FakeFleet("a")
    fleet.put("a", state)
    async with serving(front_of(config_of("a"), fleet)) as site:
        answer = await site.ask("/running")

    assert answer.json["running"][0]["state"] == shown


async def test_secrets_of_a_command_are_blank_in_running() -> None:
    """The values of `--api-key` and the like."""
    model = ModelConfig(cmd="serve --api-key s3cret --hf-token=tok3n", env=("MY_TOKEN=s3cret2",))
    fleet = FakeFleet("a")
    fleet.put("a", State.READY)
    async with serving(front_of(Config(models={"a": model}), fleet)) as site:
        answer = await site.ask("/running")

    assert "s3cret" not in answer.text
    assert "tok3n" not in answer.text
    assert "--api-key" in answer.text


async def test_models_are_listed_whole() -> None:
    """Every model, by id, with state, clients, process and the times since."""
    models = {"b": ModelConfig(), "a": ModelConfig(aliases=("x",), ttl_s=60, unlisted=True)}
    fleet = FakeFleet("a", "b")
    fleet.put("a", State.READY, in_flight=2, waiting=1, used_at=NOW - 5, ready_at=NOW - 30)
    fleet.put("b", State.FAILED, fails=2, retry_at=NOW + 4, error="exit code 1")
    async with serving(front_of(Config(models=models), fleet)) as site:
        answer = await site.ask("/api/models")

    first, second = answer.json["models"]
    assert (first["id"], first["state"], first["pid"]) == ("a", "ready", 4000)
    assert (first["in_flight"], first["waiting"]) == (2, 1)
    assert (first["idle_s"], first["ready_s"]) == (5.0, 30.0)
    assert (first["aliases"], first["ttl"], first["unlisted"]) == (["x"], 60, True)
    assert (second["id"], second["state"], second["pid"]) == ("b", "failed", None)
    assert (second["fails"], second["retry_in_s"], second["error"]) == (2, 4.0, "exit code 1")
    assert second["idle_s"] is None


async def test_load_answers_when_ready_with_what_the_wait_was_made_of() -> None:
    """It doesn't count against the model's limit, and an alias will do."""
    fleet = FakeFleet("a")
    fleet.phases = Phases(queue_s=0.25, start_s=1.5)
    async with serving(front_of(config_of(a=ModelConfig(aliases=("x/y",))), fleet)) as site:
        answer = await site.ask("/api/models/load/x/y", method="POST")

    assert fleet.orders == [("load", "a", None)]
    assert answer.json == {
        "model": "a",
        "state": "ready",
        "pid": 4000,
        "driver": None,
        "phases": {
            "queue_s": 0.25,
            "drain_s": 0,
            "evict_s": 0,
            "wake_s": 0,
            "start_s": 1.5,
            "restore_s": 0,
            "total_s": 1.75,
        },
    }


async def test_sleep_and_wake_answer_when_it_is_done() -> None:
    """With the driver, and with what it took."""
    fleet = FakeFleet("a")
    fleet.put("a", State.READY)
    fleet.rests["a"] = RestView(driver="pageout", slept=Moved(seconds=0.25))
    fleet.phases = Phases(wake_s=1.5)
    async with serving(front_of(config_of("a"), fleet)) as site:
        slept = await site.ask("/api/models/sleep/a", method="POST")
        woken = await site.ask("/api/models/wake/a", method="POST")

    assert fleet.orders == [("sleep", "a", None), ("load", "a", None)]
    assert (slept.json["state"], slept.json["driver"]) == ("asleep", "pageout")
    assert slept.json["phases"] == {"sleep_s": 0.25}
    assert (woken.json["state"], woken.json["driver"]) == ("ready", "pageout")
    assert woken.json["phases"]["wake_s"] == 1.5


async def test_p65_sleep_that_cannot_be_says_why() -> None:
    """409 with the reason; 404 for a model that isn't there."""
    fleet = FakeFleet("a")
    fleet.refusal = Conflict("model 'a' can't sleep (pageout: there is no swap)")
    async with serving(front_of(config_of("a"), fleet)) as site:
        refused = await site.ask("/api/models/sleep/a", method="POST")
        unknown = await site.ask("/api/models/sleep/b", method="POST")

    assert (refused.status, unknown.status) == (409, 404)
    assert "there is no swap" in refused.message


@pytest.mark.parametrize("state", [State.STOPPED, State.FAILED, State.STARTING, State.STOPPING])
async def test_wake_never_loads_by_accident(state: State) -> None:
    """A model that isn't asleep is loaded by `load` alone."""
    fleet = FakeFleet("a")
    fleet.put("a", state)
    async with serving(front_of(config_of("a"), fleet)) as site:
        answer = await site.ask("/api/models/wake/a", method="POST")

    assert answer.status == 409
    assert f"is {state} and not asleep" in answer.message
    assert fleet.orders == []


async def test_models_show_how_they_sleep() -> None:
    """Driver, refusals, and the last way out and back."""
    fleet = FakeFleet("a")
    fleet.rests["a"] = RestView(
        driver="pageout",
        keeps_state=True,
        refusals={"cuda": "no GPU"},
        below="can be paged out from ram to swap",
        paged=Moved(seconds=3, bytes={"swap": 7}),
        woken=Moved(seconds=1.5, bytes={"swap": -7}),
    )
    async with serving(front_of(config_of("a"), fleet)) as site:
        (shown,) = (await site.ask("/api/models")).json["models"]

    assert (shown["driver"], shown["keeps_state"]) == ("pageout", True)
    assert shown["sleep_refusals"] == {"cuda": "no GPU"}
    assert shown["below"] == "can be paged out from ram to swap"
    assert shown["last_sleep"] is None
    assert shown["last_page_out"] == {"seconds": 3, "bytes": {"swap": 7}}
    assert shown["last_wake"] == {"seconds": 1.5, "bytes": {"swap": -7}}


async def test_a_load_that_fails_says_why() -> None:
    """As an inference request would hear it."""
    fleet = FakeFleet("a")
    fleet.refusal = StartFailed("a: exit code 1")
    async with serving(front_of(config_of("a"), fleet)) as site:
        failed = await site.ask("/api/models/load/a", method="POST")
        unknown = await site.ask("/api/models/load/b", method="POST")

    assert (failed.status, failed.message) == (502, "a: exit code 1")
    assert failed.headers["Retry-After"] == "1"
    assert unknown.status == 404
