"""What broke for users of other swappers, through the real command line; one report a test.

The numbers are those of the list of reports that the project keeps; each test holds the right
behaviour, whatever the tool did in which it was met.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import signal
import sys
import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from io import BytesIO
from pathlib import Path
from typing import Any

import aiohttp
import openai
import psutil
import pytest

from tests.helpers.fake_models import FakeModels
from tests.helpers.llama import server_argv, server_environment
from tests.helpers.ports import free_port
from tests.helpers.processes import lives
from tests.helpers.proxy_process import ProxyProcess, running_proxy
from tests.helpers.waiting import eventually

pytestmark = pytest.mark.e2e

STREAM = {"stream": True, "messages": [{"role": "user", "content": "hi"}]}


@pytest.fixture
def fake(tmp_path: Path) -> FakeModels:
    """An empty configuration over fake servers."""
    return FakeModels(tmp_path)


async def streamed(proxy: ProxyProcess, model: str) -> bytes:
    """The whole of a streamed answer, whatever its end."""
    async with proxy.session.post(
        "/v1/chat/completions", json={"model": model, **STREAM}
    ) as answer:
        assert answer.status == 200
        return await answer.read()


@asynccontextmanager
async def streaming(proxy: ProxyProcess, model: str) -> AsyncIterator[aiohttp.ClientResponse]:
    """A streamed answer of which the first event has come."""
    async with proxy.session.post(
        "/v1/chat/completions", json={"model": model, **STREAM}
    ) as answer:
        await answer.content.readuntil(b"\n\n")
        yield answer


async def in_flight(proxy: ProxyProcess, model: str) -> int:
    """How many requests the model serves now."""
    return int((await proxy.models())[model]["in_flight"])


def complete(body: bytes) -> bool:
    """Whether an event stream came to its proper end."""
    return body.endswith(b"data: [DONE]\n\n") and b'"error"' not in body


# ---- queueing, swapping, races -----------------------------------------------------------------


async def test_u01_a_request_during_an_idle_unload_gets_a_fresh_start(
    fake: FakeModels, tmp_path: Path
) -> None:
    """It waits for the stop to end, then the model is started again."""
    fake.add("a", "--slow-term 3", more="ttl: 1")
    async with running_proxy(fake.yaml, tmp_path) as proxy:
        first = (await proxy.chat("a"))["seen"]["pid"]
        await proxy.becomes("a", "stopping")
        second = (await proxy.chat("a"))["seen"]["pid"]

        assert second != first


async def test_u02_two_clients_with_two_models_both_get_their_answer(
    fake: FakeModels, tmp_path: Path
) -> None:
    """b waits until a's answer has fully ended."""
    fake.add("a", "--first-byte 0.5").add("b", "--first-byte 0.5")
    async with running_proxy(fake.yaml, tmp_path) as proxy:
        answers = await asyncio.gather(proxy.chat("a"), proxy.chat("b"))

    assert [answer["model"] for answer in answers] == ["a", "b"]
    first, second = sorted("ab", key=lambda name: fake.when(name, "start"))
    assert fake.when(first, "answered") < fake.when(second, "start")


@pytest.mark.slow
async def test_u03_no_request_is_sent_to_a_dying_process(fake: FakeModels, tmp_path: Path) -> None:
    """20 crowds, each of 20 requests for a loaded model and another one: never a 5xx."""
    fake.add("a").add("b")
    async with running_proxy(fake.yaml, tmp_path) as proxy:
        for _ in range(20):
            answers = await asyncio.gather(*(proxy.chat("ab"[n % 2]) for n in range(20)))
            assert [answer["model"] for answer in answers] == ["a", "b"] * 10


async def test_u05_a_new_request_after_a_cancelled_one_waits_for_a_reload(
    fake: FakeModels, tmp_path: Path
) -> None:
    """a is cancelled while it loads, b takes its place, a comes again: all as asked."""
    fake.add("a", "--ready 0.5").add("b")
    async with running_proxy(fake.yaml, tmp_path) as proxy:
        cancelled = asyncio.ensure_future(proxy.chat("a"))
        await eventually(lambda: fake.count("a", "start") == 1)
        cancelled.cancel()
        first = asyncio.ensure_future(proxy.chat("b"))
        await asyncio.sleep(0.03)  # the moment of the report
        answers = await asyncio.gather(proxy.chat("a"), first)

    assert [answer["model"] for answer in answers] == ["a", "b"]


async def test_u06_a_loading_model_is_no_victim_until_it_served(
    fake: FakeModels, tmp_path: Path
) -> None:
    """a is not put out while its waiter waits."""
    fake.add("a", "--ready 1").add("b")
    async with running_proxy(fake.yaml, tmp_path) as proxy:
        first = asyncio.ensure_future(proxy.chat("a"))
        await eventually(lambda: fake.count("a", "start") == 1)
        await asyncio.gather(first, proxy.chat("b"))

    assert fake.count("a", "start") == 1
    assert fake.count("a", "answered") == 1


async def test_u07_a_generating_model_is_not_put_out(fake: FakeModels, tmp_path: Path) -> None:
    """The stream of a is complete, then b is loaded."""
    fake.add("a", "--gap 0.1 --chunks 15").add("b")
    async with running_proxy(fake.yaml, tmp_path) as proxy:
        async with streaming(proxy, "a") as answer:
            other = asyncio.ensure_future(proxy.chat("b"))
            assert complete(await answer.read())
        await other


async def test_u09_parallel_first_requests_start_one_process(
    fake: FakeModels, tmp_path: Path
) -> None:
    """Ten at once to a cold model: ten answers, one start."""
    fake.add("a", "--ready 0.5")
    async with running_proxy(fake.yaml, tmp_path) as proxy:
        await asyncio.gather(*(proxy.chat("a") for _ in range(10)))

    assert fake.count("a", "start") == 1


async def test_u10_every_answer_comes_from_the_model_it_names(
    fake: FakeModels, tmp_path: Path
) -> None:
    """Switch requests at once leave a consistent end."""
    fake.add("a").add("b")
    async with running_proxy(fake.yaml, tmp_path) as proxy:
        answers = await asyncio.gather(*(proxy.chat("ab"[n % 2]) for n in range(10)))
        pids = {name: {a["seen"]["pid"] for a in answers[n::2]} for n, name in enumerate("ab")}
        states = [model["state"] for model in (await proxy.models()).values()]

    assert not pids["a"] & pids["b"]
    assert sorted(states) == ["ready", "stopped"]


async def test_u11_waiters_for_one_model_are_served_together(
    fake: FakeModels, tmp_path: Path
) -> None:
    """A B C A B C makes three loads, not six."""
    for name in "abc":
        fake.add(name, "--first-byte 0.3")
    async with running_proxy(fake.yaml, tmp_path) as proxy:
        await proxy.chat("a")
        await asyncio.gather(*(proxy.chat("abcabc"[n]) for n in range(6)))

    assert [fake.count(name, "start") for name in "abc"] == [1, 1, 1]


@pytest.mark.slow
async def test_u13_a_load_longer_than_all_retries_is_waited_for(
    fake: FakeModels, tmp_path: Path
) -> None:
    """OpenAI's client, whose retries would be used up in 3.5 s, asks once and is answered."""
    fake.add("a", "--ready 5")
    async with running_proxy(fake.yaml, tmp_path) as proxy:
        async with openai.AsyncOpenAI(base_url=f"{proxy.url}/v1", api_key="k") as client:
            answer = await client.chat.completions.create(model="a", messages=[])

    assert answer.model == "a"
    assert fake.count("a", "request") == 1


async def test_u13_past_the_longest_wait_there_is_a_503(fake: FakeModels, tmp_path: Path) -> None:
    """With `Retry-After`, and it names the key."""
    fake.head = "schedule: {maxWait: 1s}"
    fake.add("a", "--ready 60")
    async with running_proxy(fake.yaml, tmp_path) as proxy:
        async with proxy.session.post("/v1/completions", json={"model": "a"}) as answer:
            assert answer.status == 503
            assert int(answer.headers["Retry-After"]) >= 1
            assert "maxWait" in (await answer.json())["error"]["message"]


async def test_u14_unload_waits_as_long_as_it_is_told(fake: FakeModels, tmp_path: Path) -> None:
    """`timeout=30` lets the stream end; `timeout=0` is now; both answer when it is gone."""
    fake.add("a", "--gap 0.1 --chunks 10")
    async with running_proxy(fake.yaml, tmp_path) as proxy:
        async with streaming(proxy, "a") as answer:
            unloaded = asyncio.ensure_future(proxy.post("/api/models/unload/a?timeout=30"))
            assert complete(await answer.read())
        assert (await unloaded)[0] == 200
        assert await proxy.state("a") == "stopped"

        async with streaming(proxy, "a") as answer:
            assert (await proxy.post("/api/models/unload/a?timeout=0"))[0] == 200
            assert not complete(await answer.read())
        assert await proxy.state("a") == "stopped"


async def test_u15_a_wedged_engine_can_be_unloaded(fake: FakeModels, tmp_path: Path) -> None:
    """The request that hangs ends with an error."""
    fake.add("a", "--hang --ignore-term", more="unloadTimeout: 1")
    async with running_proxy(fake.yaml, tmp_path) as proxy:
        hanging = asyncio.ensure_future(proxy.post("/v1/completions", {"model": "a"}))
        await eventually(lambda: fake.count("a", "request") == 1)
        assert (await proxy.post("/api/models/unload/a"))[0] == 200
        status, answer = await hanging

    assert status == 503
    assert "unloaded" in answer["error"]["message"]


async def test_u21_u22_the_limit_is_json_before_any_byte(fake: FakeModels, tmp_path: Path) -> None:
    """A stream over the limit gets a 429 and not a 200 with an error inside."""
    fake.head = "sendLoadingState: true"
    fake.add("a", "--ready 3", more="concurrencyLimit: 1")
    async with running_proxy(fake.yaml, tmp_path) as proxy:
        first = asyncio.ensure_future(streamed(proxy, "a"))
        await eventually(lambda: fake.count("a", "start") == 1)
        status, answer = await proxy.post("/v1/chat/completions", {"model": "a", **STREAM})
        assert status == 429
        assert answer["error"]["type"] == "rate_limit_error"
        assert complete(await first)


async def test_u23_the_limit_is_for_inference_alone(fake: FakeModels, tmp_path: Path) -> None:
    """Assets under `/upstream` pass while the one place is taken."""
    fake.add("a", "--gap 0.1 --chunks 10", more="concurrencyLimit: 1")
    async with running_proxy(fake.yaml, tmp_path) as proxy:
        async with streaming(proxy, "a") as answer:
            assert (await proxy.get("/upstream/a/style.css"))[0] == 200
            assert complete(await answer.read())


async def test_u25_an_open_port_is_not_ready(fake: FakeModels, tmp_path: Path) -> None:
    """The request is forwarded when the health rule holds, not when TCP accepts."""
    fake.add("a", "--ready 0.8")
    async with running_proxy(fake.yaml, tmp_path) as proxy:
        async with proxy.session.post("/v1/completions", json={"model": "a"}) as answer:
            timing = answer.headers["Server-Timing"]

    assert float(timing.partition("start;dur=")[2].partition(",")[0]) >= 700


# ---- start-up, health, failure -----------------------------------------------------------------


async def test_u26_a_bad_flag_is_told_at_once(fake: FakeModels, tmp_path: Path) -> None:
    """The error has the exit code and the last lines; nobody waits for the health timeout."""
    fake.head = "healthCheckTimeout: 900"
    fake.add("a", "--exit 1 --stderr 'error: unknown argument: --nope'")
    async with running_proxy(fake.yaml, tmp_path) as proxy:
        status, answer = await proxy.post("/v1/completions", {"model": "a"})

    assert status == 502
    assert "exit code 1" in answer["error"]["message"]
    assert "unknown argument: --nope" in answer["error"]["message"]


async def test_u27_a_failed_start_is_tried_again(fake: FakeModels, tmp_path: Path) -> None:
    """There is no state that sticks: what failed once is started at the next request."""
    flag = tmp_path / "now"
    command = fake.command("a")
    fake.add_command("a", f"sh -c 'test -e {flag} && exec {command}; exit 4'")
    async with running_proxy(fake.yaml, tmp_path) as proxy:
        assert (await proxy.post("/v1/completions", {"model": "a"}))[0] == 502
        flag.touch()
        assert (await proxy.post("/v1/completions", {"model": "a"}))[0] == 200


async def test_u29_a_flood_of_output_blocks_nobody(fake: FakeModels, tmp_path: Path) -> None:
    """A megabyte without a newline before it listens: it starts, and the log stays bounded."""
    flood = """sys.stderr.write("x" * 2**20); sys.stderr.flush()"""
    script = tmp_path / "flood.py"
    script.write_text(
        f"import os, sys\n{flood}\nos.execv(sys.executable, [sys.executable, *sys.argv[1:]])\n"
    )
    rest = fake.command("a").removeprefix(sys.executable)
    fake.add_command("a", f"{sys.executable} {script}{rest}")
    async with running_proxy(fake.yaml, tmp_path) as proxy:
        await proxy.chat("a")
        async with proxy.session.get("/logs/stream/a") as answer:
            history = await answer.content.readany()

    assert 0 < len(history) <= 110 * 1024


async def test_u30_clients_are_answered_when_a_server_never_accepted(
    fake: FakeModels, tmp_path: Path
) -> None:
    """All who wait get their error as soon as it exits."""
    fake.add_command("a", "sh -c 'sleep 0.5; exit 6' ${PORT}")
    async with running_proxy(fake.yaml, tmp_path) as proxy:
        answers = await asyncio.gather(
            *(proxy.post("/v1/completions", {"model": "a"}) for _ in range(5))
        )

    assert {status for status, _ in answers} == {502}


async def test_u31_a_model_that_was_killed_counts_as_gone(fake: FakeModels, tmp_path: Path) -> None:
    """Its memory is free, and the next model loads."""
    fake.add("a").add("b")
    async with running_proxy(fake.yaml, tmp_path) as proxy:
        os.kill((await proxy.chat("a"))["seen"]["pid"], signal.SIGKILL)
        await proxy.chat("b")

        assert await proxy.state("a") == "stopped"


async def test_u33_a_busy_server_that_is_deaf_to_health_is_left_alone(
    fake: FakeModels, tmp_path: Path
) -> None:
    """After it was ready nothing probes it to death."""
    fake.add("a", "--first-byte 1.5 --deaf-when-busy")
    async with running_proxy(fake.yaml, tmp_path) as proxy:
        assert (await proxy.chat("a"))["model"] == "a"
        assert fake.count("a", "start") == 1


async def test_u34_a_stalled_stream_ends_with_an_error_and_a_restart(
    fake: FakeModels, tmp_path: Path
) -> None:
    """With `stallTimeout` a silent engine is ended, also one that ignores SIGTERM."""
    fake.add("a", "--hang-after 2 --ignore-term", more="stallTimeout: 2s\nunloadTimeout: 1")
    async with running_proxy(fake.yaml, tmp_path) as proxy:
        body = await streamed(proxy, "a")
        assert b"stallTimeout" in body
        assert b"[DONE]" not in body
        await proxy.chat("a")

    assert fake.count("a", "start") == 2


async def test_u35_the_idle_timer_doesnt_run_while_loading(
    fake: FakeModels, tmp_path: Path
) -> None:
    """A load that takes longer than `ttl` is not interrupted."""
    fake.add("a", "--ready 2.5", more="ttl: 1")
    async with running_proxy(fake.yaml, tmp_path) as proxy:
        await proxy.chat("a")

    assert fake.count("a", "start") == 1


async def test_u37_a_model_may_have_a_start_limit_of_its_own(
    fake: FakeModels, tmp_path: Path
) -> None:
    """`startTimeout` of one model doesn't touch the others."""
    fake.add("quick", "--ready 60", more="startTimeout: 0.5s").add("slow", "--ready 1.5")
    async with running_proxy(fake.yaml, tmp_path) as proxy:
        assert (await proxy.post("/v1/completions", {"model": "quick"}))[0] == 502
        assert (await proxy.post("/v1/completions", {"model": "slow"}))[0] == 200


async def test_u38_a_foreign_listener_is_never_taken_for_the_model(
    fake: FakeModels, tmp_path: Path
) -> None:
    """The error names who has the port."""
    port = free_port()
    fake.add("a")
    yaml = fake.yaml.replace("startPort: ", f"startPort: {port} # ")
    foreign = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.helpers.fake_server", "--port", str(port)
    )
    try:
        await eventually(lambda: _listens(foreign.pid))
        async with running_proxy(yaml, tmp_path) as proxy:
            status, answer = await proxy.post("/v1/completions", {"model": "a"})
        assert status == 502
        assert str(port) in answer["error"]["message"]
        assert str(foreign.pid) in answer["error"]["message"]
    finally:
        foreign.kill()
        await foreign.wait()


def _listens(pid: int) -> bool:
    return any(
        connection.status == psutil.CONN_LISTEN
        for connection in psutil.Process(pid).net_connections("tcp")
    )


# ---- streaming and timeouts --------------------------------------------------------------------


async def test_u41_event_streams_tell_proxies_not_to_buffer(
    fake: FakeModels, tmp_path: Path
) -> None:
    """`X-Accel-Buffering: no` and `Cache-Control: no-cache`."""
    fake.add("a")
    async with running_proxy(fake.yaml, tmp_path) as proxy:
        async with streaming(proxy, "a") as answer:
            assert answer.headers["X-Accel-Buffering"] == "no"
            assert answer.headers["Cache-Control"] == "no-cache"
            await answer.read()


async def test_u42_u43_u47_no_limit_on_the_first_byte(fake: FakeModels, tmp_path: Path) -> None:
    """A long prefill is waited for; `timeouts.responseHeader` is there for who wants one."""
    fake.add("a", "--first-byte 2")
    fake.add("limited", "--first-byte 60", more="timeouts: {responseHeader: 1}")
    async with running_proxy(fake.yaml, tmp_path) as proxy:
        assert (await proxy.chat("a"))["model"] == "a"
        status, answer = await proxy.post("/v1/completions", {"model": "limited"})
        assert status == 504
        assert "responseHeader" in answer["error"]["message"]


async def test_u45_a_death_mid_stream_doesnt_look_like_an_end(
    fake: FakeModels, tmp_path: Path
) -> None:
    """One error event, no `[DONE]`."""
    fake.add("a", "--die-mid 3")
    async with running_proxy(fake.yaml, tmp_path) as proxy:
        body = await streamed(proxy, "a")

    assert body.count(b'"error"') == 1
    assert b"[DONE]" not in body


@pytest.mark.slow
async def test_u46_silence_is_filled_with_comments(fake: FakeModels, tmp_path: Path) -> None:
    """Headers late, or silence after them: pings keep the connection open, text is untouched."""
    fake.add("late", "--first-byte 11 --chunks 2").add("silent", "--after-header 11 --chunks 2")
    fake.head = "groups: {g: {swap: false, members: [late, silent]}}"
    async with running_proxy(fake.yaml, tmp_path) as proxy:
        late, silent = await asyncio.gather(streamed(proxy, "late"), streamed(proxy, "silent"))

    assert silent.startswith(b":")
    for body in (late, silent):
        events = [part for part in body.split(b"\n\n") if part and not part.startswith(b":")]
        assert len(events) == 3
        assert complete(body)


async def test_u49_a_hundred_clients_that_leave_leave_nothing(
    fake: FakeModels, tmp_path: Path
) -> None:
    """After the first chunk, and during the load: in flight goes back to nought."""
    fake.add("a", "--ready 0.5 --gap 0.05 --chunks 200")
    async with running_proxy(fake.yaml, tmp_path) as proxy:

        async def leave(patience_s: float) -> None:
            async with asyncio.timeout(patience_s):
                await streamed(proxy, "a")

        waits = [leave(0.1 + 0.02 * n) for n in range(100)]
        outcomes = await asyncio.gather(*waits, return_exceptions=True)
        assert all(isinstance(outcome, TimeoutError) for outcome in outcomes)

        async def nobody() -> bool:
            model = (await proxy.models())["a"]
            return bool(model["in_flight"] == model["waiting"] == 0)

        await eventually(nobody)
        assert "Traceback" not in proxy.log


async def test_u50_no_loading_text_unless_asked_for(fake: FakeModels, tmp_path: Path) -> None:
    """A cold stream holds the server's events and comments, nothing else."""
    fake.add("a", "--ready 0.5 --chunks 2")
    async with running_proxy(fake.yaml, tmp_path) as proxy:
        body = await streamed(proxy, "a")

    assert b"reasoning_content" not in body


# ---- cancel ------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", ["--gap 0.1 --chunks 100", "--first-byte 60"])
async def test_u51_u54_u55_the_server_sees_the_client_leave(
    options: str, fake: FakeModels, tmp_path: Path
) -> None:
    """Mid-stream and before the first byte: the upstream connection is closed at once."""
    fake.add("a", options)
    async with running_proxy(fake.yaml, tmp_path) as proxy:
        asked = asyncio.ensure_future(streamed(proxy, "a"))
        await eventually(lambda: fake.count("a", "request") == 1)
        asked.cancel()
        await eventually(lambda: fake.count("a", "disconnect") == 1)

        async def idle() -> bool:
            return await in_flight(proxy, "a") == 0

        await eventually(idle)


async def test_u53_nothing_is_started_for_a_client_who_left(
    fake: FakeModels, tmp_path: Path
) -> None:
    """b's client leaves while a streams: b never starts."""
    fake.add("a", "--gap 0.1 --chunks 15").add("b")
    async with running_proxy(fake.yaml, tmp_path) as proxy:
        async with streaming(proxy, "a") as answer:
            queued = asyncio.ensure_future(proxy.chat("b"))

            async def waits() -> bool:
                return bool((await proxy.models())["b"]["waiting"] == 1)

            await eventually(waits)
            queued.cancel()
            assert complete(await answer.read())
        await proxy.chat("a")

    assert fake.journal("b") == []


async def test_cancel_can_be_turned_into_a_drain(fake: FakeModels, tmp_path: Path) -> None:
    """`onClientDisconnect: drain` lets the engine finish what it was asked."""
    fake.add("a", "--gap 0.05 --chunks 10", more="onClientDisconnect: drain")
    async with running_proxy(fake.yaml, tmp_path) as proxy:
        asked = asyncio.ensure_future(streamed(proxy, "a"))
        await eventually(lambda: fake.count("a", "request") == 1)
        asked.cancel()
        await eventually(lambda: fake.count("a", "answered") == 1)

    assert fake.count("a", "disconnect") == 0


# ---- processes, containers, OS -----------------------------------------------------------------


async def test_u61_a_killed_proxy_leaves_no_engine(fake: FakeModels, tmp_path: Path) -> None:
    """After SIGKILL of the proxy the child dies too, and so does a shell's grandchild later."""
    fake.add("a").add_command("b", f"sh -c '{fake.command('b')} & wait'")
    fake.head = "groups: {g: {swap: false, members: [a, b]}}"
    yaml = fake.yaml
    async with running_proxy(yaml, tmp_path) as proxy:
        child = (await proxy.chat("a"))["seen"]["pid"]
        grandchild = (await proxy.chat("b"))["seen"]["pid"]
        await proxy.stop(signal.SIGKILL)
        await eventually(lambda: not lives(child))
    async with running_proxy(yaml, tmp_path):
        await eventually(lambda: not lives(grandchild))


async def test_u63_a_model_may_be_spared_sigkill(fake: FakeModels, tmp_path: Path) -> None:
    """`kill: false` waits for the process, however long it takes to end."""
    fake.add("a", "--ignore-term", more="unloadTimeout: 1\nkill: false")
    async with running_proxy(fake.yaml, tmp_path) as proxy:
        pid = (await proxy.chat("a"))["seen"]["pid"]
        unloading = asyncio.ensure_future(proxy.post("/api/models/unload/a"))
        await eventually(lambda: "still there after 1 s" in proxy.log)
        assert lives(pid)
        os.kill(pid, signal.SIGKILL)  # as it would never end
        assert (await unloading)[0] == 200


async def test_u66_a_second_sigterm_means_now(fake: FakeModels, tmp_path: Path) -> None:
    """The first lets answers end, the second doesn't wait for them."""
    fake.add("a", "--gap 1 --chunks 60")
    async with running_proxy(fake.yaml, tmp_path) as proxy:
        async with streaming(proxy, "a"):
            proxy.process.send_signal(signal.SIGTERM)
            await eventually(lambda: "shutting down" in proxy.log.lower())
            assert proxy.process.poll() is None
            await proxy.stop(signal.SIGTERM)

        assert not lives(fake.journal("a")[0]["pid"])


async def test_u67_an_unknown_command_says_where_it_looked(
    fake: FakeModels, tmp_path: Path
) -> None:
    """The error names the PATH that was searched."""
    fake.add_command("a", "no-such-llama-server --port ${PORT}")
    async with running_proxy(fake.yaml, tmp_path) as proxy:
        status, answer = await proxy.post("/v1/completions", {"model": "a"})

    assert status == 502
    assert "no-such-llama-server" in answer["error"]["message"]
    assert os.environ["PATH"].split(":")[0] in answer["error"]["message"]


async def test_u69_each_model_has_exactly_its_environment(fake: FakeModels, tmp_path: Path) -> None:
    """The GPU that one is given isn't seen by the other."""
    fake.add("a", more="env: [CUDA_VISIBLE_DEVICES=1]")
    fake.add("b", more="env: [CUDA_VISIBLE_DEVICES=0]")
    async with running_proxy(fake.yaml, tmp_path) as proxy:
        env = [(await proxy.chat(name))["seen"]["env"] for name in "ab"]

    assert [each["CUDA_VISIBLE_DEVICES"] for each in env] == ["1", "0"]


# ---- HTTP details ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["m", "a-much-longer-name-than-the-alias"])
async def test_u85_u86_one_right_framing_after_a_rewrite(
    name: str, fake: FakeModels, tmp_path: Path
) -> None:
    """A chunked request whose model name changes length arrives whole."""
    fake.add("real", more=f"useModelName: {name}\naliases: [alias]")

    async def chunks() -> AsyncIterator[bytes]:
        yield b'{"model": "al'
        yield b'ias", "prompt": "x"}'

    async with running_proxy(fake.yaml, tmp_path) as proxy:
        async with proxy.session.post(
            "/v1/completions", data=chunks(), headers={"Content-Type": "application/json"}
        ) as answer:
            received = (await answer.json())["seen"]

    assert json.loads(received["body"]) == {"model": name, "prompt": "x"}
    framing = {"content-length", "transfer-encoding"} & set(received["headers"])
    assert len(framing) == 1


async def test_u87_escaped_slashes_in_model_and_path(fake: FakeModels, tmp_path: Path) -> None:
    """`org%2Fmodel` names the model; `%2F` in the rest stays as it came."""
    fake.add("org/model")
    async with running_proxy(fake.yaml, tmp_path) as proxy:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(proxy.url.split(":")[2]))
        line = "GET /upstream/org%2Fmodel/v1/x%2Fy HTTP/1.1\r\n"
        writer.write(f"{line}Host: localhost\r\nConnection: close\r\n\r\n".encode())
        answer = await reader.read()
        writer.close()

    assert b'"path": "/v1/x%2Fy"' in answer


async def test_u89_an_alias_works_under_upstream(fake: FakeModels, tmp_path: Path) -> None:
    """`/upstream/<alias>/…` reaches the model."""
    fake.add("a", more="aliases: [short]")
    async with running_proxy(fake.yaml, tmp_path) as proxy:
        assert (await proxy.get("/upstream/short/x"))[1]["seen"]["path"] == "/x"


async def test_u90_the_answer_can_name_the_model_as_asked(fake: FakeModels, tmp_path: Path) -> None:
    """`useModelName` on the way in, `responseModelName: requested` on the way out."""
    fake.add("a", more="useModelName: inner\nresponseModelName: requested\naliases: [outer]")
    async with running_proxy(fake.yaml, tmp_path) as proxy:
        whole = await proxy.chat("outer")
        body = await streamed(proxy, "outer")

    assert json.loads(whole["seen"]["body"])["model"] == "inner"
    assert whole["model"] == "outer"
    assert b'"outer"' in body
    assert b'"inner"' not in body


async def test_u93_an_engines_error_passes_unchanged(fake: FakeModels, tmp_path: Path) -> None:
    """Status and body are the engine's."""
    fake.add("a", "--status 422")
    async with running_proxy(fake.yaml, tmp_path) as proxy:
        status, answer = await proxy.post("/v1/embeddings", {"model": "a", "input": ["x"]})

    assert status == 422
    assert answer["seen"]["path"] == "/v1/embeddings"


async def test_u94_a_phone_photo_passes_and_the_limit_is_named(
    fake: FakeModels, tmp_path: Path
) -> None:
    """16 MiB go through; beyond `maxBody` the 413 names the key."""
    fake.head = "maxBody: 20MiB"
    fake.add("a")
    async with running_proxy(fake.yaml, tmp_path) as proxy:
        for size, status in ((16 * 2**20, 200), (32 * 2**20, 413)):
            body = json.dumps({"model": "a", "image": "A" * size}).encode()
            async with proxy.session.post("/v1/completions", data=BytesIO(body)) as response:
                answer = await response.json()
                assert response.status == status
            if status == 200:
                assert answer["seen"]["headers"]["content-length"] == str(len(body))
            else:
                assert "maxBody" in answer["error"]["message"]


@pytest.mark.slow
async def test_u95_uploads_during_a_load_stay_bounded(fake: FakeModels, tmp_path: Path) -> None:
    """Ten clients with 50 MiB each wait for a load: the proxy's memory hardly grows."""
    fake.add("a", "--ready 4")
    async with running_proxy(fake.yaml, tmp_path) as proxy:
        own = psutil.Process(proxy.process.pid)
        before = private_bytes(own)
        body = json.dumps({"model": "a", "x": "A" * (50 * 2**20)}).encode()

        async def upload() -> int:
            async with proxy.session.post("/v1/completions", data=BytesIO(body)) as answer:
                await answer.read()
                return answer.status

        uploads = [asyncio.ensure_future(upload()) for _ in range(10)]
        most = before
        while not all(upload.done() for upload in uploads):
            most = max(most, private_bytes(own))
            await asyncio.sleep(0.05)

        assert {upload.result() for upload in uploads} == {200}
        assert most - before < 150 * 2**20


def private_bytes(process: psutil.Process) -> int:
    """Resident memory that isn't page cache: mapped files are the kernel's to take back."""
    memory = process.memory_info()
    return int(memory.rss - memory.shared)


async def test_u97_a_compressed_answer_passes_untouched(fake: FakeModels, tmp_path: Path) -> None:
    """Bytes and `Content-Encoding` are the server's."""
    fake.add("a", "--gzip")
    async with running_proxy(fake.yaml, tmp_path) as proxy:
        async with aiohttp.ClientSession(proxy.url, auto_decompress=False) as session:
            async with session.post("/v1/completions", json={"model": "a"}) as answer:
                raw = await answer.read()
                assert answer.headers["Content-Encoding"] == "gzip"

    assert json.loads(zlib.decompress(raw, wbits=31))["model"] == "a"
    assert json.loads(gzip.decompress(raw))["object"] == "chat.completion"


async def test_u98_one_allow_origin(fake: FakeModels, tmp_path: Path) -> None:
    """The server's own header isn't doubled."""
    fake.add("a", "--acao")
    async with running_proxy(fake.yaml, tmp_path) as proxy:
        async with proxy.session.post(
            "/v1/completions", json={"model": "a"}, headers={"Origin": "http://localhost:3000"}
        ) as answer:
            assert len(answer.headers.getall("Access-Control-Allow-Origin")) == 1


async def test_u99_a_preflight_loads_nothing(fake: FakeModels, tmp_path: Path) -> None:
    """OPTIONS is the proxy's to answer."""
    fake.add("a")
    asked = {"Access-Control-Request-Headers": "authorization, x-custom"}
    async with running_proxy(fake.yaml, tmp_path) as proxy:
        async with proxy.session.options("/v1/chat/completions", headers=asked) as answer:
            allowed = answer.headers["Access-Control-Allow-Headers"]

    assert allowed == "authorization, x-custom"
    assert fake.journal("a") == []


# ---- security ----------------------------------------------------------------------------------


async def test_u103_an_origin_is_never_allowed_credentials(
    fake: FakeModels, tmp_path: Path
) -> None:
    """No answer allows credentials to any origin."""
    fake.add("a")
    async with running_proxy(fake.yaml, tmp_path) as proxy:
        for path in ("/v1/models", "/running", "/api/models"):
            async with proxy.session.get(path, headers={"Origin": "http://evil"}) as answer:
                assert "Access-Control-Allow-Credentials" not in answer.headers


async def test_u105_a_foreign_host_is_refused(fake: FakeModels, tmp_path: Path) -> None:
    """Rebinding makes Origin and Host equal: only the allowed hosts are served."""
    fake.head = "allowedHosts: [llm.home.arpa]"
    fake.add("a")
    async with running_proxy(fake.yaml, tmp_path) as proxy:
        for host, status in (
            ("evil.example", 403),
            ("localhost:8080", 200),
            ("x.localhost", 200),
            ("llm.home.arpa", 200),
        ):
            headers = {"Host": host, "Origin": f"http://{host}"}
            async with proxy.session.get("/v1/models", headers=headers) as answer:
                assert answer.status == status, host
                if status == 403:
                    assert "allowedHosts" in await answer.text()


async def test_u106_listening_everywhere_without_a_key_is_told_loudly(
    fake: FakeModels, tmp_path: Path
) -> None:
    """On loopback there is no warning."""
    fake.add("a")
    async with running_proxy(fake.yaml, tmp_path) as proxy:
        assert "apiKeys" not in proxy.log
    config = tmp_path / "config.yaml"
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "llmsnap", "--config", str(config)),
        *("--listen", "0.0.0.0:0", "--state-dir", str(tmp_path / "state")),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(30):
            while b"apiKeys" not in (line := await process.stdout.readline()):
                assert line, "it ended without a warning"
    finally:
        process.terminate()
        await process.communicate()


async def test_u107_the_clients_key_stops_at_the_proxy(fake: FakeModels, tmp_path: Path) -> None:
    """It isn't passed upstream, in no header."""
    fake.head = "apiKeys: [key-one]"
    fake.add("a")
    for headers in ({"Authorization": "Bearer key-one"}, {"x-api-key": "key-one"}):
        async with running_proxy(fake.yaml, tmp_path, headers=headers) as proxy:
            received: dict[str, Any] = (await proxy.chat("a"))["seen"]
            assert "key-one" not in json.dumps(received)


async def test_a_server_that_stops_listening_is_replaced(fake: FakeModels, tmp_path: Path) -> None:
    """Its process lives, so nobody else would ever end it; the next request is served."""
    fake.add("a", "--deaf-after 1")
    async with running_proxy(fake.yaml, tmp_path) as proxy:
        first = (await proxy.chat("a"))["seen"]["pid"]
        status, answer = await proxy.post("/v1/chat/completions", {"model": "a"})
        assert (status, "can't be reached" in str(answer)) == (502, True)
        assert (await proxy.chat("a"))["seen"]["pid"] != first
        await proxy.logs("takes no connections any more")


async def test_u107_a_servers_own_key_is_the_proxys_to_send(
    models: dict[str, Path], tmp_path: Path
) -> None:
    """A real server that asks for a key is probed, loaded and asked with it."""
    command = " ".join(server_argv(models["a"], extra=("--api-key", "key-two")))
    config = (
        f"apiKeys: [key-one]\nstartPort: {free_port()}\n"
        f"models: {{a: {{cmd: {json.dumps(command)}, checkEndpoint: /props, startTimeout: 60s}}}}"
    )
    client = {"Authorization": "Bearer key-one"}
    async with running_proxy(config, tmp_path, env=server_environment(), headers=client) as proxy:
        assert (await proxy.chat("a"))["usage"]["completion_tokens"] == 16
        assert (await proxy.get("/upstream/a/props"))[0] == 200


@pytest.mark.parametrize("path", ["sleep", "wake_up", "collective_rpc"])
async def test_u110_development_endpoints_are_blocked(
    path: str, fake: FakeModels, tmp_path: Path
) -> None:
    """They don't pass through `/upstream`."""
    fake.add("a")
    async with running_proxy(fake.yaml, tmp_path) as proxy:
        assert (await proxy.post(f"/upstream/a/{path}"))[0] == 403
        assert (await proxy.post(f"/upstream/a/{path}?level=1"))[0] == 403
    assert fake.journal("a") == []
