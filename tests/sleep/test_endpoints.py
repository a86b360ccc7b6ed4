"""Sleep by HTTP against a server that sleeps, and against one that only says so."""

from __future__ import annotations

import asyncio
from pathlib import Path

import aiohttp
import pytest

from llmsnap.errors import SleepFailed, SleepRefused, WakeFailed
from llmsnap.sleep.driver import SleepDriver, Supported, Unsupported
from llmsnap.sleep.endpoints import EndpointsDriver, says_asleep
from tests.helpers.waiting import eventually
from tests.sleep.sleepy import VLLM, Sleepy, driving, sleepy

SEVERAL_STEPS = """
    sleepEndpoints: [{endpoint: /sleep}, {endpoint: /reset_prefix_cache}]
    wakeEndpoints:
      - endpoint: /wake_up
      - {endpoint: /collective_rpc, body: '{"method": "reload_weights"}'}
      - {endpoint: /reset_prefix_cache}
"""
LEVEL_2 = """
    sleepEndpoints: [{endpoint: "/sleep?level=2"}]
    wakeEndpoints:
      - endpoint: /wake_up?tags=weights
      - {endpoint: /collective_rpc, body: '{"method": "reload_weights"}'}
      - endpoint: /wake_up?tags=kv_cache
    isAsleepEndpoint: /is_sleeping
    wakeCanary: The capital of France is
"""
LEVEL_2_WITHOUT_RELOAD = LEVEL_2.replace(
    """      - {endpoint: /collective_rpc, body: '{"method": "reload_weights"}'}\n""", ""
)
IMPATIENT = "sleepRequestTimeout: 2\nwakeRequestTimeout: 2\n"
HASTY_STEPS = """
    sleepEndpoints: [{endpoint: "/sleep?level=1"}]
    wakeEndpoints: [{endpoint: /wake_up}]
    isAsleepEndpoint: /is_sleeping
"""


async def ask(server: Sleepy) -> str:
    """Complete something, as a client would."""
    url = f"{server.target.base_url}/v1/completions"
    async with aiohttp.ClientSession() as session:
        async with session.post(url, json={"prompt": "hello"}) as answer:
            return str((await answer.json())["choices"][0]["text"])


async def test_p61_sleep_steps_are_made_in_order(tmp_path: Path) -> None:
    """The process lives on, asleep."""
    async with sleepy(tmp_path) as server, driving(SEVERAL_STEPS) as driver:
        moved = await driver.sleep(server.target)

        assert server.calls == ["/sleep", "/reset_prefix_cache"]
        assert server.lives
        assert moved.seconds > 0


async def test_p62_wake_steps_are_made_in_order(tmp_path: Path) -> None:
    """Then health and a token are asked for; it is the same process, and it answers."""
    async with sleepy(tmp_path) as server, driving(SEVERAL_STEPS) as driver:
        before = await ask(server)
        await driver.sleep(server.target)
        slept = len(server.calls)
        await driver.wake(server.target)

        assert server.calls[slept:] == [
            "/wake_up",
            "/collective_rpc",
            "/reset_prefix_cache",
            "/health",
            "/v1/completions",
        ]
        assert server.requests("/collective_rpc")[0]["body"] == '{"method": "reload_weights"}'
        assert server.lives
        assert await ask(server) == before


async def test_p64_a_sleep_step_that_fails_is_told(tmp_path: Path) -> None:
    """Which one, with what it was answered; none is made after it."""
    options = ["--fail", "/sleep", "--text", "x" * 300]
    async with sleepy(tmp_path, options) as server, driving(SEVERAL_STEPS) as driver:
        with pytest.raises(SleepFailed) as caught:
            await driver.sleep(server.target)

        message = str(caught.value)
        assert message.startswith('sleepEndpoints[0] (POST /sleep) answered 500: \'{"error": "xxx')
        assert message.count("x") == 200 - len('{"error": "')
        assert message.endswith("`llmsnap logs m` may say why")
        assert server.calls == ["/sleep"]


@pytest.mark.parametrize("status", ["201", "204", "302", "404", "503"])
async def test_only_200_will_do(tmp_path: Path, status: str) -> None:
    """For any step, as in llmsnap (Go); redirects aren't followed."""
    options = ["--fail", "/collective_rpc", "--status", status]
    async with sleepy(tmp_path, options) as server, driving(SEVERAL_STEPS) as driver:
        await driver.sleep(server.target)
        with pytest.raises(WakeFailed) as caught:
            await driver.wake(server.target)

        assert f"wakeEndpoints[1] (POST /collective_rpc) answered {status}" in str(caught.value)
        assert ("VLLM_SERVER_DEV_MODE=1" in str(caught.value)) == (status == "404")


async def test_p65_a_model_without_steps_is_refused_with_the_reason(tmp_path: Path) -> None:
    """Before anything is done to it."""
    async with sleepy(tmp_path) as server, driving("") as driver:
        verdict = await driver.probe(server.target)

        assert verdict == Unsupported("sleepEndpoints and wakeEndpoints aren't set")
        assert server.calls == []


async def test_p66_an_asleep_server_that_was_ended_cant_be_woken(tmp_path: Path) -> None:
    """It is known at once, and the model's next process sleeps and wakes like any other."""
    async with driving() as driver:
        async with sleepy(tmp_path) as server:
            await driver.sleep(server.target)
            server.kill()
            with pytest.raises(WakeFailed, match=r"wakeEndpoints\[0\] .* got no answer: "):
                await driver.wake(server.target)
        async with sleepy(tmp_path) as server:
            await driver.sleep(server.target)
            await driver.wake(server.target)


async def test_u111_no_prompt_reaches_a_server_that_sleeps(tmp_path: Path) -> None:
    """One would kill it; a server that says 200 to the wake and sleeps on is found out."""
    async with (
        sleepy(tmp_path, ["--never-wakes"]) as server,
        driving(HASTY_STEPS, above=IMPATIENT) as driver,
    ):
        await driver.sleep(server.target)
        with pytest.raises(WakeFailed) as caught:
            await driver.wake(server.target)

        assert "isAsleepEndpoint (GET /is_sleeping) still answered 200" in str(caught.value)
        assert server.lives
        with pytest.raises(aiohttp.ClientError):
            await ask(server)
        await eventually(lambda: not server.lives)
        assert server.journal[-1]["event"] == "killed"


async def test_u113_garbage_after_a_wake_is_found_out(tmp_path: Path) -> None:
    """The canary's answer isn't that of before."""
    async with sleepy(tmp_path) as server, driving(LEVEL_2_WITHOUT_RELOAD) as driver:
        await driver.sleep(server.target)
        with pytest.raises(WakeFailed) as caught:
            await driver.wake(server.target)

        assert "wakeCanary was answered with " in str(caught.value)
        assert "'!!!!!!!!': its weights or its cache are wrong" in str(caught.value)


async def test_u113_a_wake_that_reloads_is_right(tmp_path: Path) -> None:
    """Time and again; the canary is asked once before the first sleep, and after each wake."""
    async with sleepy(tmp_path) as server, driving(LEVEL_2) as driver:
        before = await ask(server)
        for _ in range(2):
            await driver.sleep(server.target)
            await driver.wake(server.target)

        canaries = [
            entry for entry in server.requests("/v1/completions") if "France" in entry["body"]
        ]
        assert len(canaries) == 3
        assert await ask(server) == before


@pytest.mark.parametrize(
    ("speeds", "told"),
    [
        pytest.param("50 39 40 38", True, id="slower, time and again"),
        pytest.param("50 30 49", False, id="slower only once"),
        pytest.param("50 45", False, id="as fast as it varies"),
        pytest.param("", False, id="it doesn't tell"),
    ],
)
async def test_u119_a_server_that_is_slower_since_its_wake_is_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, speeds: str, told: bool
) -> None:
    """It serves all the same; somebody should pin what it puts on the GPU."""
    options = ["--speeds", *speeds.split()]
    async with sleepy(tmp_path, options) as server, driving(LEVEL_2) as driver:
        await driver.sleep(server.target)
        await driver.wake(server.target)

        warned = (
            "model m: writes 40 tokens/s since it woke, 50 before it slept: has it put fewer "
            "layers on the GPU? say how many in its command (`-ngl`)"
        )
        assert (warned in caplog.messages) is told
        assert len(server.requests("/v1/completions")) == max(2, len(speeds.split()))


async def test_a_canary_is_compared_within_one_process(tmp_path: Path) -> None:
    """A restart may have brought other weights, which is no fault."""
    async with driving(LEVEL_2) as driver:
        for generation in (1, 2):
            async with sleepy(tmp_path) as server:
                server.generation = generation
                await driver.sleep(server.target)
                await driver.wake(server.target)

                assert len(server.requests("/v1/completions")) == 2


async def test_a_canary_that_nobody_answers_is_no_canary(tmp_path: Path) -> None:
    """It is said before the server sleeps, and nothing was done to it."""
    options = ["--fail", "/v1/completions", "--status", "404"]
    async with sleepy(tmp_path, options) as server, driving(LEVEL_2) as driver:
        with pytest.raises(SleepRefused, match="completes nothing; take wakeCanary out"):
            await driver.sleep(server.target)

        assert server.calls == ["/v1/completions"]


async def test_u114_a_wake_out_of_memory_is_told(tmp_path: Path) -> None:
    """Whoever asked ends the process and starts it cold."""
    async with sleepy(tmp_path, ["--fail", "/wake_up"]) as server, driving() as driver:
        await driver.sleep(server.target)
        with pytest.raises(WakeFailed, match=r"answered 500: '{\"error\": \"out of memory\"}'"):
            await driver.wake(server.target)

        assert server.calls[-1] == "/wake_up"


async def test_u115_what_may_stay_in_ram_is_counted(tmp_path: Path) -> None:
    """All that the model declares, so that a budget for sleepers can hold."""
    keys = VLLM + "    vram: {gpu0: 3GiB, gpu1: 4GiB}\n    ram: 1GiB\n"
    async with sleepy(tmp_path) as server, driving(keys) as driver:
        verdict = await driver.probe(server.target)

        assert verdict == Supported(tier="ram", tier_bytes=8 * 2**30, can_pause=False)
        assert server.calls == []


async def test_u118_a_server_that_fails_after_its_second_wake_is_found_out(tmp_path: Path) -> None:
    """It says 200 to the wake and to /health, but computes nothing."""
    options = ["--fail", "/v1/completions", "--fail-from", "2"]
    async with sleepy(tmp_path, options) as server, driving() as driver:
        await driver.sleep(server.target)
        await driver.wake(server.target)
        await driver.sleep(server.target)
        with pytest.raises(WakeFailed, match=r"wakeProbe \(POST /v1/completions\) answered 500"):
            await driver.wake(server.target)


async def test_a_server_that_doesnt_fall_asleep_is_found_out(tmp_path: Path) -> None:
    """It is asked until the limit."""
    async with (
        sleepy(tmp_path, ["--never-sleeps"]) as server,
        driving(HASTY_STEPS, above=IMPATIENT) as driver,
    ):
        with pytest.raises(SleepFailed, match="after 2 s; raise sleepRequestTimeout"):
            await driver.sleep(server.target)

        assert server.calls.count("/is_sleeping") > 1


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--fail", "/is_sleeping", "--status", "404"], "isAsleepEndpoint (GET /is_sleeping) ans"),
        (["--fail", "/is_sleeping", "--status", "200"], "is neither true nor false"),
    ],
)
async def test_a_server_that_doesnt_say_isnt_believed(
    tmp_path: Path, options: list[str], says: str
) -> None:
    """And it isn't asked again."""
    async with sleepy(tmp_path, options) as server, driving() as driver:
        with pytest.raises(SleepFailed) as caught:
            await driver.sleep(server.target)

        assert says in str(caught.value)
        assert server.calls.count("/is_sleeping") == 1


@pytest.mark.parametrize(
    ("path", "what"),
    [
        ("/sleep", r"sleepEndpoints\[0\] \(POST /sleep\?level=1\)"),
        ("/is_sleeping", r"isAsleepEndpoint \(GET /is_sleeping\)"),
    ],
)
async def test_silence_is_given_up(tmp_path: Path, path: str, what: str) -> None:
    """After the limit that the configuration sets."""
    async with (
        sleepy(tmp_path, ["--slow", path]) as server,
        driving(HASTY_STEPS, above=IMPATIENT) as driver,
    ):
        with pytest.raises(SleepFailed, match=what + " gave no answer within 2 s; raise its"):
            await driver.sleep(server.target)


async def test_a_server_that_dies_of_a_step_is_known_at_once(tmp_path: Path) -> None:
    """Nobody waits for the limit."""
    async with sleepy(tmp_path, ["--die-on", "/sleep"]) as server, driving() as driver:
        with pytest.raises(SleepFailed, match=r"sleepEndpoints\[0\] .* got no answer: "):
            await driver.sleep(server.target)


async def test_a_server_that_takes_a_moment_to_be_healthy_is_waited_for(tmp_path: Path) -> None:
    """Up to the limit."""
    options = ["--fail", "/health", "--status", "503", "--fail-times", "2"]
    async with sleepy(tmp_path, options) as server, driving() as driver:
        await driver.sleep(server.target)
        await driver.wake(server.target)

        assert server.calls[-4:] == ["/health"] * 3 + ["/v1/completions"]


@pytest.mark.parametrize(
    ("status", "is_fine"),
    [("400", True), ("404", True), ("501", True), ("500", False), ("503", False)],
)
async def test_what_doesnt_complete_texts_needs_no_probe(
    tmp_path: Path, status: str, is_fine: bool
) -> None:
    """A refusal shows a server that lives; a failure doesn't."""
    options = ["--fail", "/v1/completions", "--status", status]
    async with sleepy(tmp_path, options) as server, driving() as driver:
        await driver.sleep(server.target)
        if is_fine:
            await driver.wake(server.target)
        else:
            with pytest.raises(WakeFailed, match=f"wakeProbe .* answered {status}"):
                await driver.wake(server.target)


async def test_the_probe_is_a_completion_of_one_token(tmp_path: Path) -> None:
    """Under the name by which the server knows its model, if it has one."""
    keys = VLLM + "    useModelName: own/name\n"
    async with sleepy(tmp_path) as server, driving(keys) as driver:
        await driver.sleep(server.target)
        await driver.wake(server.target)

        assert server.requests("/v1/completions")[0]["body"] == (
            '{"model": "own/name", "prompt": "a", "max_tokens": 1, "temperature": 0}'
        )


async def test_another_probe_may_be_wanted(tmp_path: Path) -> None:
    """With a path and a body of its own."""
    keys = VLLM + "    wakeProbe: {endpoint: /v1/chat/completions, body: '{\"prompt\": 7}'}\n"
    async with sleepy(tmp_path) as server, driving(keys) as driver:
        await driver.sleep(server.target)
        await driver.wake(server.target)

        assert server.requests("/v1/chat/completions")[0]["body"] == '{"prompt": 7}'
        assert server.requests("/v1/completions") == []


async def test_no_probe_and_no_health_if_none_is_wanted(tmp_path: Path) -> None:
    """The last step's 200 is then all there is, as in llmsnap (Go)."""
    keys = SEVERAL_STEPS + "    checkEndpoint: none\n    wakeProbe: {endpoint: none}\n"
    async with sleepy(tmp_path) as server, driving(keys) as driver:
        await driver.sleep(server.target)
        await driver.wake(server.target)

        assert server.calls[-1] == "/reset_prefix_cache"


async def test_a_servers_own_key_is_sent_and_never_told(tmp_path: Path) -> None:
    """It stands in its command."""
    options = ["--api-key", "sk-of-the-server"]
    async with sleepy(tmp_path, options) as server, driving(LEVEL_2) as driver:
        await driver.sleep(server.target)
        await driver.wake(server.target)
    options += ["--fail", "/sleep", "--text", "no: sk-of-the-server"]
    async with sleepy(tmp_path, options) as server, driving() as driver:
        with pytest.raises(SleepFailed, match=r"no: \*\*\*"):
            await driver.sleep(server.target)


async def test_a_base_path_is_for_requests(tmp_path: Path) -> None:
    """Steps are resolved as llmsnap (Go) does it: a slash in front means the root of the host."""
    keys = """
    sleepEndpoints: [{endpoint: /sleep}, {endpoint: reset_prefix_cache}]
    wakeEndpoints: [{endpoint: ../wake_up}]
    checkEndpoint: none
"""
    options = ["--fail", "/base/reset_prefix_cache", "--status", "200"]
    async with sleepy(tmp_path, options, base_path="/base") as server, driving(keys) as driver:
        await driver.sleep(server.target)
        await driver.wake(server.target)

        assert server.calls == [
            "/sleep",
            "/base/reset_prefix_cache",
            "/wake_up",
            "/base/v1/completions",
        ]


async def test_a_sleep_that_is_broken_off_leaves_nothing_behind(tmp_path: Path) -> None:
    """The next one works."""
    async with sleepy(tmp_path, ["--slow", "/sleep", "--slow-s", "0.3"]) as server:
        async with driving() as driver:
            sleeping = asyncio.ensure_future(driver.sleep(server.target))
            await eventually(lambda: server.calls == ["/sleep"])
            sleeping.cancel()
            with pytest.raises(asyncio.CancelledError):
                await sleeping

            await driver.sleep(server.target)
            await driver.wake(server.target)


def test_what_it_promises() -> None:
    """The KV cache is lost; a server that sleeps can still obey a signal."""
    driver: SleepDriver = EndpointsDriver({})

    assert (driver.name, driver.keeps_state, driver.kill_only) == ("endpoints", False, False)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("true", True),
        ('{"is_sleeping": false}', False),
        ('{"state": "x", "asleep": true}', True),
        ('{"is_sleeping": null}', None),
        ('{"is_sleeping": "true"}', None),
        ("{}", None),
        ("[true]", None),
        ("1", None),
        ("", None),
        ("<html>", None),
        ("[" * 100_000, None),
    ],
)
def test_what_counts_as_saying_so(text: str, said: bool | None) -> None:
    """Nothing is guessed."""
    assert says_asleep(text) is said
