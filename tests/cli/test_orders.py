"""`ps`, `load`, `unload` and `logs` against a running proxy, and against none."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from asyncio.subprocess import PIPE, create_subprocess_exec
from collections.abc import AsyncIterator

import pytest

from llmsnap.config.schema import Config, ModelConfig
from llmsnap.core.lifecycle import State
from llmsnap.core.messages import Phases
from llmsnap.errors import StartFailed
from llmsnap.runtime.logs import Logs
from llmsnap.runtime.rest import RestView
from tests.cli.conftest import Outcome, Run, RunAside
from tests.helpers.ports import free_port
from tests.helpers.waiting import eventually
from tests.memory.looks import GIB
from tests.web.fleet import NOW, FakeFleet, FakeMemory, front_of
from tests.web.serving import Site, serving

CONFIG = Config(
    models={"author/model": ModelConfig(aliases=("nick", "big")), "b": ModelConfig()},
    api_keys=("sesame",),
)


@pytest.fixture
def fleet() -> FakeFleet:
    """Two models that are down."""
    return FakeFleet(*CONFIG.models)


@pytest.fixture
def logs() -> Logs:
    """Some lines of the proxy and of a model."""
    logs = Logs(to_stdout="proxy")
    logs.write_proxy(b"[INFO] began\n")
    logs.write_upstream("b", b"from b\nhalf")
    return logs


@pytest.fixture
def memory() -> FakeMemory:
    """Nothing is known yet."""
    return FakeMemory()


@pytest.fixture
async def site(fleet: FakeFleet, logs: Logs, memory: FakeMemory) -> AsyncIterator[Site]:
    """A proxy that wants a key."""
    async with serving(front_of(CONFIG, fleet, logs=logs, memory=memory)) as site:
        yield site


@pytest.fixture
def told(llmsnap_aside: RunAside, site: Site, monkeypatch: pytest.MonkeyPatch) -> RunAside:
    """Run a command with the proxy's address and key in the environment."""

    async def run(*argv: str) -> Outcome:
        monkeypatch.setenv("LLMSNAP_URL", site.url)
        monkeypatch.setenv("LLMSNAP_API_KEY", "sesame")
        return await llmsnap_aside(*argv)

    return run


async def test_ps_is_a_table(told: RunAside, fleet: FakeFleet) -> None:
    """A line a model; what there is nothing to say of is left empty."""
    fleet.put("author/model", State.READY, used_at=NOW - 125, pinned=True)
    fleet.put("b", State.STARTING, waiting=3)

    outcome = await told("ps")

    header, first, second = (line.split() for line in outcome.out.splitlines())
    columns = "MODEL STATE MEMORY IN FLIGHT WAITING IDLE BACK IN SLEEPS BY PID ALIASES"
    assert " ".join(header) == columns
    assert first == ["author/model", "ready,", "pinned", "2m05s", "4000", "nick,", "big"]
    assert second == ["b", "starting", "3", "2.0s", "4001"]


async def test_ps_says_where_the_bytes_are(
    told: RunAside, fleet: FakeFleet, memory: FakeMemory
) -> None:
    """GPUs first, then RAM and swap."""
    fleet.put("b", State.ASLEEP)
    memory.held["b"] = {"swap": 2 * GIB, "host": GIB // 2, "gpu0": round(8.2 * GIB)}

    outcome = await told("ps")

    assert "gpu0 8.2 GiB, host 512 MiB, swap 2.0 GiB" in outcome.out


async def test_ps_watch_goes_on_until_it_is_interrupted(site: Site, fleet: FakeFleet) -> None:
    """Each table shows what is so then; Ctrl-C is a good end."""
    command = [sys.executable, "-m", "llmsnap", "ps", "--watch", "--url", site.url]
    process = await create_subprocess_exec(*command, "--key", "sesame", stdout=PIPE, stderr=PIPE)
    assert process.stdout is not None
    await _line_with(process.stdout, "b ", "stopped")
    fleet.put("b", State.READY)
    await _line_with(process.stdout, "b ", "ready")
    process.send_signal(signal.SIGINT)
    _, errors = await process.communicate()
    assert (process.returncode, errors) == (0, b"")


async def _line_with(output: asyncio.StreamReader, *words: str) -> None:
    async with asyncio.timeout(30):
        while line := (await output.readline()).decode():
            if all(word in line for word in words):
                return
    raise AssertionError(f"no line with {words}")


async def test_ps_says_how_models_sleep_and_whose_answers_stand_still(
    told: RunAside, fleet: FakeFleet
) -> None:
    """A model that was put to sleep in the middle of its answers has clients who wait."""
    fleet.put("b", State.ASLEEP, in_flight=2, paused=2)
    fleet.rests["b"] = RestView(driver="pageout")

    outcome = await told("ps")

    row = outcome.out.splitlines()[2].split()
    assert row == ["b", "asleep", "(2", "paused)", "2", "2.0s", "pageout", "4000"]


async def test_ps_says_who_stops_to_make_room(told: RunAside, fleet: FakeFleet) -> None:
    """No driver can put it to sleep, or a start would bring it back quicker."""
    fleet.put("b", State.READY, used_at=NOW)
    fleet.rests["b"] = RestView(refusals={"cuda": "a wake would take about 9.0 s"})

    outcome = await told("ps")

    assert outcome.out.splitlines()[2].split() == ["b", "ready", "0s", "stops", "4000"]


async def test_ps_in_json_is_what_the_proxy_says(told: RunAside) -> None:
    """Untouched."""
    outcome = await told("ps", "--json")

    assert [model["id"] for model in outcome.json["models"]] == ["author/model", "b"]


async def test_load_says_what_the_wait_was_made_of(told: RunAside, fleet: FakeFleet) -> None:
    """Phases that took no time aren't mentioned."""
    fleet.phases = Phases(evict_s=0.5, start_s=1.25)

    outcome = await told("load", "nick")

    assert outcome.out == (
        "author/model is ready (pid 4000) after 1.75 s: evict 0.50 s, start 1.25 s\n"
    )
    assert (outcome.code, fleet.orders) == (0, [("load", "author/model", None)])


async def test_load_of_a_model_that_is_up_is_brief(told: RunAside) -> None:
    """There was no wait."""
    assert (await told("load", "author/model")).out == "author/model is ready (pid 4000)\n"
    assert (await told("load", "b", "--json")).json["state"] == "ready"


async def test_a_load_that_fails_is_one_line_and_1(told: RunAside, fleet: FakeFleet) -> None:
    """The proxy's own words."""
    fleet.refusal = StartFailed("model 'b' ended with exit code 3")

    outcome = await told("load", "b")

    assert (outcome.code, outcome.out) == (1, "")
    assert outcome.err == "llmsnap: model 'b' ended with exit code 3\n"


@pytest.mark.parametrize(
    ("argv", "order", "says"),
    [
        (("b",), ("unload", "b", None), "b is unloaded\n"),
        (("nick",), ("unload", "author/model", None), "nick is unloaded\n"),
        (("b", "--timeout", "0"), ("unload", "b", 0.0), "b is unloaded\n"),
        (("b", "--timeout", "2.5"), ("unload", "b", 2.5), "b is unloaded\n"),
        ((), ("unload", "*", None), "every model is unloaded\n"),
        (("b", "--json"), ("unload", "b", None), '{"unloaded": "b"}\n'),
    ],
)
async def test_unload(
    told: RunAside,
    fleet: FakeFleet,
    argv: tuple[str, ...],
    order: tuple[str, str, float | None],
    says: str,
) -> None:
    """One model or all, with the time that answers may go on."""
    outcome = await told("unload", *argv)

    assert (outcome.code, outcome.out) == (0, says)
    assert fleet.orders == [order]


async def test_an_unknown_model_is_named(told: RunAside) -> None:
    """With what there is."""
    outcome = await told("unload", "nope")

    assert outcome.code == 1
    assert outcome.err == "llmsnap: no model or alias is called 'nope'; see /v1/models\n"


async def test_logs_as_they_are(told: RunAside) -> None:
    """Of the proxy, or of a model, byte by byte."""
    assert (await told("logs")).out == "[INFO] began\n"
    assert (await told("logs", "b")).out == "from b\nhalf"
    assert (await told("logs", "nope")).code == 1


async def test_logs_in_json_are_a_record_a_line(told: RunAside) -> None:
    """The last line may have no end."""
    outcome = await told("logs", "b", "--json")

    records = [json.loads(line) for line in outcome.out.splitlines()]
    assert records == [{"log": "b", "line": "from b"}, {"log": "b", "line": "half"}]


async def test_logs_follow_until_the_proxy_ends(told: RunAside, logs: Logs, site: Site) -> None:
    """What comes is shown as it comes."""
    following = asyncio.ensure_future(told("logs", "-f", "b"))
    await eventually(lambda: bool(logs.model("b")._subscriptions))
    logs.write_upstream("b", b" line\n")
    logs.close()

    assert (await following).out == "from b\nhalf line\n"


async def test_without_the_key_it_says_so(llmsnap_aside: RunAside, site: Site) -> None:
    """As the proxy does; a given key is used."""
    refused = await llmsnap_aside("ps", "--url", site.url)
    let_in = await llmsnap_aside("ps", "--url", f"{site.url}/", "--key", "sesame")

    assert (refused.code, let_in.code) == (1, 0)
    assert refused.err == (
        "llmsnap: unauthorized: invalid or missing API key; "
        "give one with --key, or in LLMSNAP_API_KEY\n"
    )


def test_where_nothing_listens_it_says_how_to_start(llmsnap: Run) -> None:
    """One line and 1."""
    outcome = llmsnap("ps", "--url", f"http://127.0.0.1:{free_port()}")

    assert outcome.code == 1
    assert "nothing listens on" in outcome.err
    assert "llmsnap --config config.yaml" in outcome.err
    assert len(outcome.err.splitlines()) == 1


@pytest.mark.parametrize("url", ["localhost:8080", "ftp://x", "http://", "http://x:port"])
def test_a_url_that_is_none_is_told(llmsnap: Run, url: str) -> None:
    """With an example of one."""
    outcome = llmsnap("ps", "--url", url)

    assert outcome.code == 1
    assert "http://127.0.0.1:8080" in outcome.err


async def test_another_server_isnt_taken_for_llmsnap(llmsnap_aside: RunAside, site: Site) -> None:
    """Text where JSON should be."""
    outcome = await llmsnap_aside("ps", "--url", f"{site.url}/health", "--key", "sesame")

    assert outcome.code == 1
    assert len(outcome.err.splitlines()) == 1
