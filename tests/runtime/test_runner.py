from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import signal
import socket
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from llmsnap.core.lifecycle import Trigger
from llmsnap.core.messages import AbilityChanged
from llmsnap.errors import SleepRefused, StartFailed, UpstreamLost, WakeRefused
from llmsnap.runtime import health, rest
from llmsnap.runtime.plan import Endpoint
from llmsnap.runtime.rest import RestView
from llmsnap.runtime.runner import Runner
from llmsnap.runtime.upstream import Upstream
from llmsnap.sleep.driver import Moved, Supported, Target, Unsupported
from llmsnap.telemetry.contexts import Context
from tests.helpers.ports import free_port
from tests.helpers.processes import lives
from tests.helpers.waiting import eventually
from tests.runtime.resting import Driver, Step
from tests.runtime.rig import Rig, children, plan


def shell(script: str) -> tuple[str, ...]:
    """A real shell that runs `script`."""
    return ("/bin/sh", "-c", script)


def waits_for(gate: Path) -> str:
    """A script that goes on once there is that file."""
    return f"while [ ! -e {gate} ]; do sleep 0.02; done"


def assert_nothing_runs(runner: Runner) -> None:
    """It shows no process."""
    assert not runner.alive
    assert runner.pid is None
    assert runner.upstream is None


async def test_a_generation_from_start_to_stop(rig: Rig) -> None:
    """READY, then EXITED when told to, each once and with its generation."""
    a = plan()
    runner = rig.runner(a)
    assert_nothing_runs(runner)
    runner.start(7)
    assert runner.alive
    ready = await rig.reported(Trigger.READY)
    assert (ready.model, ready.generation, ready.error) == ("a", 7, None)
    pid = runner.pid
    assert pid is not None
    assert runner.upstream == Upstream("a", 7, "127.0.0.1", a.endpoint.port, "", False, pid)
    runner.stop()
    exited = await rig.reported(Trigger.EXITED)
    assert (exited.generation, exited.error, exited.oom) == (7, None, False)
    assert not lives(pid)
    assert_nothing_runs(runner)
    assert rig.news == []


async def test_the_next_generation_starts_afresh(rig: Rig) -> None:
    """The same port, another process."""
    runner = rig.runner(plan())
    pids = set()
    for generation in (1, 2):
        runner.start(generation)
        await rig.reported(Trigger.READY)
        pids.add(runner.pid)
        runner.stop()
        assert (await rig.reported(Trigger.EXITED)).generation == generation
    assert len(pids) == 2


async def test_stop_before_the_first_step(rig: Rig) -> None:
    """A task that was cancelled before it ran reports its end all the same."""
    runner = rig.runner(plan())
    runner.start(1)
    runner.stop()
    assert (await rig.reported(Trigger.EXITED)).error is None


@pytest.mark.parametrize("steps", range(1, 40, 3))
async def test_stop_at_any_step_of_the_start(rig: Rig, steps: int) -> None:
    """However far it had come: one EXITED, no process, no port held, no file."""
    before = children()
    runner = rig.runner(plan(options="--ready 60"))
    runner.start(1)
    for _ in range(steps):
        await asyncio.sleep(0)
    runner.stop()
    assert (await rig.reported(Trigger.EXITED)).error is None
    assert rig.news == []
    assert children() <= before
    assert list(rig.run_folder.glob("*")) == []


async def test_stop_while_it_loads(rig: Rig) -> None:
    """A process that isn't ready yet is ended without an error."""
    runner = rig.runner(plan(options="--ready 60"))
    runner.start(1)
    await eventually(lambda: b"pid" in rig.logs.model("a").history() and runner.pid is not None)
    pid = runner.pid
    assert pid is not None
    runner.stop()
    assert (await rig.reported(Trigger.EXITED)).error is None
    assert not lives(pid)


async def test_u26_a_child_that_dies_at_once_is_reported_at_once(rig: Rig) -> None:
    """Not after the whole health timeout, and with its exit code and last words."""
    argv = shell("for n in 1 2 3 4 5 6; do echo line $n >&2; done; exit 3")
    runner = rig.runner(plan(argv=argv, start_timeout_s=900))
    runner.start(1)
    async with asyncio.timeout(30):
        exited = await rig.reported(Trigger.EXITED)
    assert isinstance(exited.error, StartFailed)
    assert str(exited.error) == (
        "model 'a': exit code 3 before it was ready; last output:\n"
        "line 2\nline 3\nline 4\nline 5\nline 6"
    )
    assert exited.error.retry_after_s == 1
    assert not exited.oom


async def test_a_grandchild_with_our_pipe_does_not_hide_the_exit(rig: Rig) -> None:
    """The leader's exit counts, and what it left behind is ended with it."""
    runner = rig.runner(plan(argv=shell("sleep 60 & echo pid $!; exit 3"), start_timeout_s=900))
    runner.start(1)
    async with asyncio.timeout(30):
        exited = await rig.reported(Trigger.EXITED)
    assert "exit code 3" in str(exited.error)
    assert not lives(int(rig.logs.model("a").history().split()[1]))


async def test_p33_a_health_that_is_never_200_ends_in_an_error(rig: Rig) -> None:
    """After the start timeout the process is killed, and the error says what to change."""
    before = children()
    runner = rig.runner(plan(options="--status 503", start_timeout_s=0.3))
    runner.start(1)
    exited = await rig.reported(Trigger.EXITED)
    assert isinstance(exited.error, StartFailed)
    assert "not ready after 0.3 s" in str(exited.error)
    assert "startTimeout" in str(exited.error)
    assert not exited.oom
    assert children() <= before


async def test_a_hung_health_does_not_outlast_the_start_timeout(rig: Rig) -> None:
    """The limit holds in the middle of a probe."""
    runner = rig.runner(plan(options="--hang --ignore-term", start_timeout_s=0.5, grace_s=0.1))
    runner.start(1)
    async with asyncio.timeout(30):
        exited = await rig.reported(Trigger.EXITED)
    assert "not ready after 0.5 s" in str(exited.error)


async def test_p34_check_endpoint_none_is_ready_without_a_probe(rig: Rig) -> None:
    """As soon as it runs, whether it listens or not."""
    runner = rig.runner(plan(argv=("sleep", "60"), check_path=None))
    runner.start(1)
    await rig.reported(Trigger.READY)
    assert runner.upstream is not None


async def test_a_crash_when_ready_is_reported_at_once(rig: Rig) -> None:
    """UpstreamLost, with the exit code and what it printed."""
    runner = rig.runner(plan(options="--print last-words"))
    runner.start(1)
    await rig.reported(Trigger.READY)
    with socket.create_connection(("127.0.0.1", runner.plan.endpoint.port)) as client:
        client.sendall(b"GET /die HTTP/1.1\r\n\r\n")
    exited = await rig.reported(Trigger.EXITED)
    assert isinstance(exited.error, UpstreamLost)
    assert "model 'a' ended by itself: exit code 7" in str(exited.error)
    assert str(exited.error).endswith("last-words")


@pytest.mark.parametrize(
    ("script", "limit_s", "oom"),
    [
        ("echo 'cudaMalloc failed: out of memory'; exit 1", 30, True),
        ("exit 137", 30, True),
        ("kill -9 $$", 30, True),
        ("echo 'unknown argument'; exit 1", 30, False),
        ("echo 'out of memory'; sleep 60", 0.5, False),
    ],
)
async def test_out_of_memory_is_told_apart(
    rig: Rig, script: str, limit_s: float, oom: bool
) -> None:
    """By what the process said or how it was killed, if it ended by itself."""
    runner = rig.runner(plan(argv=shell(script), start_timeout_s=limit_s, grace_s=0.1))
    runner.start(1)
    assert (await rig.reported(Trigger.EXITED)).oom is oom


@pytest.mark.parametrize(("after", "oom"), [(4, True), (3, False)])
async def test_the_kernel_says_whether_it_was_its_hand(rig: Rig, after: int, oom: bool) -> None:
    """Its count is the same as before the launch: somebody else killed the process."""
    rig.kernel_kills = [3, after]
    runner = rig.runner(plan(argv=shell("kill -9 $$")))
    runner.start(1)
    assert (await rig.reported(Trigger.EXITED)).oom is oom


async def test_u29_a_mebibyte_without_a_newline_blocks_nothing(rig: Rig) -> None:
    """The pipe is drained with bounded memory, and the load has its deadline."""
    runner = rig.runner(plan(options=f"--spam {2**20}"))
    runner.start(1)
    await rig.reported(Trigger.READY)
    assert len(rig.logs.model("a").history()) == 100 * 1024
    runner.stop()
    await rig.reported(Trigger.EXITED)
    stuck = rig.runner(plan("b", options=f"--spam {2**20} --status 503", start_timeout_s=0.5))
    stuck.start(1)
    error = (await rig.reported(Trigger.EXITED)).error
    assert len(str(error)) < 1300


async def test_u38_a_port_that_is_taken_names_who_has_it(rig: Rig) -> None:
    """Nothing is started, and the stranger's 200 is never taken for ours."""
    stranger = rig.runner(plan("b"))
    stranger.start(1)
    await rig.reported(Trigger.READY)
    port = stranger.plan.endpoint.port
    runner = rig.runner(plan(options="--print secret --api-key hunter22", port=port))
    runner.start(1)
    exited = await rig.reported(Trigger.EXITED)
    assert isinstance(exited.error, StartFailed)
    assert f"port {port} is taken by pid {stranger.pid} (" in str(exited.error)
    assert "serve.py" in str(exited.error)
    assert "startPort" in str(exited.error)
    assert rig.logs.model("a").history() == b""


async def test_the_holder_of_a_port_keeps_its_secrets(rig: Rig) -> None:
    """Its command line is shown, its keys aren't."""
    port = free_port()
    code = f"import socket,time; s = socket.create_server(('127.0.0.1', {port})); time.sleep(60)"
    argv = ("python3", "-S", "-c", code, "--api-key", "hunter2222")
    stranger = rig.runner(plan("b", argv=argv, port=port, check_path=None))
    stranger.start(1)
    await rig.reported(Trigger.READY)
    await eventually(lambda: connects(port))
    runner = rig.runner(plan(port=port))
    runner.start(1)
    text = str((await rig.reported(Trigger.EXITED)).error)
    assert "--api-key ***" in text
    assert "hunter2222" not in text


def connects(port: int) -> bool:
    """Whether somebody listens there."""
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


async def test_an_answer_after_our_child_ended_is_not_ready(
    rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stranger who takes the port while our child dies is never taken for it."""
    monkeypatch.setattr(health, "_OUTSIDER_S", 30.0)
    port, gate = free_port(), tmp_path / "gate"
    runner = rig.runner(plan(argv=shell(f"{waits_for(gate)}; exit 5"), port=port))
    runner.start(1)
    await eventually(lambda: runner.pid is not None)
    stranger = rig.runner(plan("b", port=port))
    stranger.start(1)
    await rig.reported(Trigger.READY)
    gate.touch()
    assert rig.runners["a"].upstream is None
    exited = await rig.reported(Trigger.EXITED)
    assert (exited.model, isinstance(exited.error, StartFailed)) == ("a", True)
    assert "exit code 5" in str(exited.error)


async def test_u67_a_command_that_is_not_found_names_the_path(rig: Rig) -> None:
    """The PATH that was searched is the model's own."""
    runner = rig.runner(plan(argv=("llama-servr",), env={"PATH": "/opt/none:/bin"}))
    runner.start(1)
    text = str((await rig.reported(Trigger.EXITED)).error)
    assert "'llama-servr' is in none of the folders of PATH (/opt/none:/bin)" in text


async def test_u69_each_model_has_exactly_its_own_environment(rig: Rig) -> None:
    """What its plan says and the mark of its run, no more."""
    env = {"PATH": os.environ["PATH"], "CUDA_VISIBLE_DEVICES": "1", "EMPTY": ""}
    runner = rig.runner(plan(argv=("env", "-0"), env=env))
    runner.start(1)
    await rig.reported(Trigger.EXITED)
    seen = dict(
        line.split("=", 1)
        for line in rig.logs.model("a").history().decode().split("\0")
        if line.strip()
    )
    assert len(seen.pop("LLMSNAP_RUN_ID")) == 32
    assert seen == env


async def test_secrets_are_blanked_in_logs_errors_and_run_files(rig: Rig, tmp_path: Path) -> None:
    """The key is passed to the process and shown nowhere."""
    gate = tmp_path / "gate"
    script = f'echo "key is $2"; {waits_for(gate)}; exit 1'
    argv = ("/bin/sh", "-c", script, "x", "--api-key", "hunter2222")
    runner = rig.runner(plan(argv=argv, secrets=("hunter2222",)))
    runner.start(1)
    await eventually(lambda: bool(list(rig.run_folder.glob("*.json"))))
    (path,) = rig.run_folder.glob("*.json")
    note = json.loads(path.read_text())
    assert note["command"][-2:] == ["--api-key", "***"]
    assert note["pid"] == runner.pid
    gate.touch()
    error = (await rig.reported(Trigger.EXITED)).error
    assert "key is ***" in str(error)
    assert rig.logs.model("a").history() == b"key is ***\n"
    assert list(rig.run_folder.glob("*")) == []


async def test_what_only_begins_like_a_secret_is_kept(rig: Rig) -> None:
    """The last bytes before the exit are held back in case, and come out in the end."""
    argv = shell("printf 'I am the hunt'; exit 1")
    runner = rig.runner(plan(argv=argv, secrets=("hunter2222",)))
    runner.start(1)
    exited = await rig.reported(Trigger.EXITED)
    assert str(exited.error).endswith("I am the hunt")
    assert rig.logs.model("a").history() == b"I am the hunt"


async def test_p36_what_ignores_sigterm_is_killed_after_the_grace(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    """The group gets SIGKILL."""
    runner = rig.runner(plan(options="--ignore-term", grace_s=0.2))
    runner.start(1)
    await rig.reported(Trigger.READY)
    loop = asyncio.get_running_loop()
    before = loop.time()
    runner.stop()
    await rig.reported(Trigger.EXITED)
    assert loop.time() - before >= 0.19
    assert "still there after 0.2 s" in caplog.text


@pytest.mark.parametrize("failed", [False, True], ids=["stopped", "failed"])
async def test_an_order_to_stop_is_not_a_hurry(rig: Rig, tmp_path: Path, failed: bool) -> None:
    """Repeated, or after an order to fail, it leaves the process its grace."""
    gate = tmp_path / "gate"
    tidies_up = f"echo asked; {waits_for(gate)}; echo tidy; exit 4"
    script = f"trap '{tidies_up}' TERM; echo up; while :; do sleep 0.02; done"
    runner = rig.runner(plan(argv=shell(script), check_path=None, grace_s=60))
    log = rig.logs.model("a")
    runner.start(1)
    await rig.reported(Trigger.READY)
    await eventually(lambda: log.history().endswith(b"up\n"))
    if failed:
        runner.fail(UpstreamLost("x"))
    else:
        runner.stop()
    await eventually(lambda: log.history().endswith(b"asked\n"))
    runner.stop()
    await asyncio.sleep(0.1)  # a hurry would be over by now
    gate.touch()
    await rig.reported(Trigger.EXITED)
    assert log.history().endswith(b"tidy\n")


async def test_stop_now_skips_the_grace(rig: Rig) -> None:
    """Before or while it is asked to end."""
    runner = rig.runner(plan(options="--ignore-term", grace_s=60))
    for hurries in ([True], [False, True]):
        runner.start(len(hurries))
        await rig.reported(Trigger.READY)
        for now in hurries:
            runner.stop(now=now)
        async with asyncio.timeout(30):
            await rig.reported(Trigger.EXITED)


@pytest.mark.parametrize("where", ["group", "session"])
async def test_p37_u57_wrapper_and_server_both_end(rig: Rig, where: str) -> None:
    """Nothing listens afterwards, also where the server left the wrapper's session."""
    a = plan(options=f"--grandchild {where}")
    runner = rig.runner(a)
    runner.start(1)
    await rig.reported(Trigger.READY)
    server = int(rig.logs.model("a").history().split()[1])
    assert server != runner.pid
    runner.stop()
    await rig.reported(Trigger.EXITED)
    assert not lives(server)
    assert not connects(a.endpoint.port)


async def test_u57_a_shell_that_forks_and_waits(rig: Rig) -> None:
    """`sh -c "server & wait"`, as people write it."""
    a = plan()
    words = " ".join(f"'{word}'" for word in a.argv)
    runner = rig.runner(plan(argv=shell(f"{words} & wait"), port=a.endpoint.port))
    runner.start(1)
    await rig.reported(Trigger.READY)
    runner.stop()
    await rig.reported(Trigger.EXITED)
    assert not connects(a.endpoint.port)


async def test_p38_the_stop_command_gets_the_pid_and_the_environment(rig: Rig) -> None:
    """`cmdStop` runs with `${PID}` replaced; what it prints is in the model's log."""
    stop = shell('echo "stopping ${PID} for $NAME"; kill ${PID}')
    env = {**os.environ, "NAME": "the-model"}
    runner = rig.runner(plan(stop_argv=stop, env=env, grace_s=60))
    runner.start(1)
    await rig.reported(Trigger.READY)
    pid = runner.pid
    runner.stop()
    await rig.reported(Trigger.EXITED)
    assert f"stopping {pid} for the-model\n" in rig.logs.model("a").history().decode()


async def test_u65_a_stop_command_that_hangs_or_fails_is_bounded(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    """It has the grace and no more; its failure is told."""
    for stop, grace_s, told in (("exec sleep 61", 0.3, "still there"), ("exit 9", 60, "code 9")):
        runner = rig.runner(plan(stop_argv=shell(stop), grace_s=grace_s))
        runner.start(1)
        await rig.reported(Trigger.READY)
        runner.stop()
        async with asyncio.timeout(30):
            await rig.reported(Trigger.EXITED)
        assert told in caplog.text


async def test_u63_a_model_that_must_not_be_killed_has_all_the_time_it_needs(
    rig: Rig, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """`kill: false`: SIGTERM only, and the stop timeout is the model's own."""
    gate = tmp_path / "gate"
    script = f"trap '{waits_for(gate)}; exit 4' TERM; echo up; while :; do sleep 0.05; done"
    runner = rig.runner(plan(argv=shell(script), kill=False, grace_s=0.1, check_path=None))
    runner.start(1)
    await rig.reported(Trigger.READY)
    await eventually(lambda: rig.logs.model("a").history() == b"up\n")
    runner.stop()
    await eventually(lambda: "still there after 0.1 s" in caplog.text)
    assert rig.news == []
    gate.touch()
    await rig.reported(Trigger.EXITED)


async def test_u63_one_that_never_ends_is_left_and_said_to_be(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    """Who can't wait any longer is told what it still holds; the next proxy finds its note."""
    code = "import signal,os,time\nsignal.signal(15, signal.SIG_IGN)\n"
    argv = ("python3", "-S", "-c", f"{code}os.write(1, b'up')\nwhile True: time.sleep(60)")
    runner = rig.runner(plan(argv=argv, kill=False, grace_s=0.1, check_path=None))
    runner.start(1)
    await rig.reported(Trigger.READY)
    await eventually(lambda: rig.logs.model("a").history() == b"up")
    pid = runner.pid
    assert pid is not None
    try:
        runner.stop()
        await eventually(lambda: "still there after 0.1 s" in caplog.text)
        runner.stop(now=True)
        told = str((await rig.reported(Trigger.EXITED)).error)
        assert lives(pid)
        assert f"pid {pid} doesn't end" in told
        assert f"port {runner.plan.endpoint.port} until you end it" in told
        assert len(list(rig.run_folder.glob("*.json"))) == 1
    finally:
        os.kill(pid, signal.SIGKILL)
        await eventually(lambda: not psutil.pid_exists(pid))


async def test_u59_our_own_group_is_never_signalled(rig: Rig) -> None:
    """Ending a tree that holds this process's children spares this process and its group."""
    received: list[int] = []
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, received.append, 15)
    bystander = await asyncio.create_subprocess_exec("sleep", "60")
    runner = rig.runner(plan(options="--grandchild group"))
    runner.start(1)
    await rig.reported(Trigger.READY)
    runner.stop()
    await rig.reported(Trigger.EXITED)
    assert received == []
    assert bystander.returncode is None
    bystander.kill()
    await bystander.wait()
    loop.remove_signal_handler(signal.SIGTERM)


async def test_an_order_to_fail_carries_its_error(rig: Rig) -> None:
    """A stalled process ends with the reason, once."""
    runner = rig.runner(plan(options="--ignore-term", grace_s=0.2))
    runner.start(1)
    await rig.reported(Trigger.READY)
    why = UpstreamLost("silent")
    runner.fail(why)
    runner.stop()
    exited = await rig.reported(Trigger.EXITED)
    assert exited.error is why


async def test_a_bug_in_our_own_code_ends_in_exited(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing hangs in `starting`; the traceback is in the log."""

    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("a bug")

    before = children()
    monkeypatch.setattr(rig.files, "add", broken)
    runner = rig.runner(plan())
    runner.start(1)
    exited = await rig.reported(Trigger.EXITED)
    assert isinstance(exited.error, StartFailed)
    assert "ZeroDivisionError" in caplog.text
    assert children() <= before


async def test_sleep_and_wake(rig: Rig) -> None:
    """SLEPT and WOKEN come when the driver is done, with the generation."""
    driver = Driver()
    runner = rig.runner(plan(), driver=driver)
    runner.start(1)
    await rig.reported(Trigger.READY)
    runner.sleep()
    assert (await rig.reported(Trigger.SLEPT)).generation == 1
    runner.wake()
    await rig.reported(Trigger.WOKEN)
    assert driver.calls == [("sleep", runner.pid), ("wake", runner.pid)]


@pytest.mark.parametrize("order", ["sleep", "wake"])
async def test_a_driver_that_fails_costs_the_process(rig: Rig, order: str) -> None:
    """There is no half-asleep state: it ends, and EXITED says why."""
    driver = Driver()
    driver.error = RuntimeError("cuda says no")
    runner = rig.runner(plan(), driver=driver)
    runner.start(1)
    await rig.reported(Trigger.READY)
    getattr(runner, order)()
    exited = await rig.reported(Trigger.EXITED)
    assert isinstance(exited.error, UpstreamLost)
    assert "cuda says no" in str(exited.error)
    assert rig.news == []


def end_by_stop(rig: Rig) -> None:
    """The scheduler's order."""
    rig.runners["a"].stop()


def end_by_crash(rig: Rig) -> None:
    """Somebody else's."""
    pid = rig.runners["a"].pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("end", [end_by_stop, end_by_crash])
async def test_an_end_in_the_middle_of_a_sleep(rig: Rig, end: Callable[[Rig], None]) -> None:
    """The driver is called off, and no SLEPT comes after EXITED."""
    driver = Driver(may_end=False)
    runner = rig.runner(plan(options="--ignore-term", grace_s=60), driver=driver)
    runner.start(1)
    await rig.reported(Trigger.READY)
    runner.sleep()
    await eventually(lambda: bool(driver.calls))
    end(rig)
    async with asyncio.timeout(30):
        await rig.reported(Trigger.EXITED)
    driver.may_end.set()
    await asyncio.sleep(0.05)
    assert rig.news == []


class Stubborn(Driver):
    """A driver whose thread can't be called off: its failure comes when it comes."""

    def __init__(self) -> None:
        super().__init__()
        self.too_late = asyncio.Event()
        self.done = asyncio.Event()

    async def wake(self, target: Target) -> Moved:
        """Fail, late."""
        self.calls.append(("wake", target.pid))
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await self.too_late.wait()
        finally:
            self.done.set()
        raise RuntimeError("it was killed while it was asleep")


async def test_a_late_failure_is_nothing_to_the_next_process(rig: Rig) -> None:
    """It speaks of a process that is gone."""
    driver = Stubborn()
    runner = rig.runner(plan(), driver=driver)
    runner.start(1)
    await rig.reported(Trigger.READY)
    runner.sleep()
    await rig.reported(Trigger.SLEPT)
    runner.wake()
    await eventually(lambda: len(driver.calls) == 2)
    end_by_crash(rig)
    await rig.reported(Trigger.EXITED)
    runner.start(2)
    await rig.reported(Trigger.READY)
    driver.too_late.set()
    await driver.done.wait()
    await asyncio.sleep(0.02)
    assert runner.alive
    assert rig.news == []


async def test_what_sleeps_is_ended_by_sigkill(rig: Rig) -> None:
    """It couldn't obey anything else; no grace is lost."""
    driver = Driver()
    runner = rig.runner(plan(options="--ignore-term", grace_s=60), driver=driver)
    runner.start(1)
    await rig.reported(Trigger.READY)
    runner.sleep()
    await rig.reported(Trigger.SLEPT)
    runner.stop()
    async with asyncio.timeout(30):
        await rig.reported(Trigger.EXITED)


async def test_what_sleeps_but_can_obey_is_asked_to_end(rig: Rig) -> None:
    """An engine that sleeps by its own endpoints gets its SIGTERM, and its stop command."""
    runner = rig.runner(plan(options="--ignore-term", grace_s=0.5), driver=Driver(kill_only=False))
    runner.start(1)
    await rig.reported(Trigger.READY)
    runner.sleep()
    await rig.reported(Trigger.SLEPT)
    began = asyncio.get_running_loop().time()
    runner.stop()
    await rig.reported(Trigger.EXITED)
    assert asyncio.get_running_loop().time() - began >= 0.49


async def test_how_it_sleeps_is_told_and_shown(rig: Rig) -> None:
    """The scheduler hears what the driver can do; readers see the last way out and back."""
    driver = Driver()
    driver.verdict = Supported(tier="swap", tier_bytes=7, can_pause=True)
    runner = rig.runner(plan(), driver=driver)
    assert runner.rest == RestView()
    runner.start(1)
    await rig.reported(Trigger.READY)
    await eventually(lambda: rig.abilities == [AbilityChanged("a", True, True, "swap", 7)])
    runner.sleep()
    await rig.reported(Trigger.SLEPT)
    assert (runner.rest.driver, runner.rest.keeps_state) == ("fake", True)
    assert runner.rest.slept == Moved(seconds=0.5, bytes={"ram": 1000})


async def test_a_sleep_that_is_refused_costs_nothing(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process goes on; the driver is asked again later."""
    monkeypatch.setattr(rest, "_AGAIN_S", 0.05)
    driver = Driver()
    driver.error = SleepRefused("swap is full")
    runner = rig.runner(plan(), driver=driver)
    runner.start(1)
    await rig.reported(Trigger.READY)
    await eventually(lambda: len(rig.abilities) == 1)
    pid = runner.pid
    runner.sleep()
    await rig.reported(Trigger.WOKEN)
    assert rig.abilities[1] == AbilityChanged("a", False, False)
    assert runner.rest.refusals == {"fake": "swap is full"}
    await eventually(lambda: len(rig.abilities) == 3)
    assert rig.abilities[2].can_sleep
    assert (runner.pid, runner.alive, rig.news) == (pid, True, [])


async def asleep(rig: Rig, driver: Driver) -> Runner:
    """A runner whose process sleeps, and that has looked what is below."""
    runner = rig.runner(plan(), driver=driver)
    runner.start(1)
    await rig.reported(Trigger.READY)
    runner.sleep()
    await rig.reported(Trigger.SLEPT)
    if driver.below is not None:
        await eventually(lambda: len(rig.abilities) == 2)
    return runner


async def test_what_sleeps_can_leave_its_tier(rig: Rig) -> None:
    """Where it could go to is looked up when it sleeps, for only then its size is known."""
    step = Step()
    runner = await asleep(rig, Driver(below=step))
    assert rig.abilities[1] == AbilityChanged("a", True, False, "ram", 1000, "swap", 1100)
    assert runner.rest.below == "can be paged out from ram to swap"
    runner.page_out()
    await rig.reported(Trigger.PAGED)
    assert runner.rest.paged == Moved(seconds=2.0, bytes={"ram": -1000, "swap": 1100})
    runner.wake()
    await rig.reported(Trigger.WOKEN)


async def test_why_it_cannot_leave_its_tier_is_told_and_shown(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    """The scheduler will have it stopped then."""
    caplog.set_level(logging.INFO)
    step = Step()
    step.verdict = Unsupported("swap is short")
    runner = await asleep(rig, Driver(below=step))
    assert rig.abilities[1].lower_tier == ""
    assert runner.rest.below == "can't leave ram but by a stop: swap is short"
    assert f"model a: {runner.rest.below}" in caplog.messages


async def test_a_page_out_that_is_refused_leaves_it_asleep(rig: Rig) -> None:
    """And nobody tries that again."""
    step = Step()
    runner = await asleep(rig, Driver(below=step))
    step.error = SleepRefused("too much stays in memory")
    runner.page_out()
    assert isinstance((await rig.reported(Trigger.SLEPT)).error, SleepRefused)
    assert rig.abilities[2].lower_tier == ""
    assert rig.abilities[2].can_sleep
    assert runner.rest.below == "can't be paged out: too much stays in memory"


async def test_a_page_out_that_fails_costs_the_process(rig: Rig) -> None:
    """Nobody knows how it is then."""
    step = Step()
    runner = await asleep(rig, Driver(below=step))
    step.error = RuntimeError("a bug")
    runner.page_out()
    assert "a bug" in str((await rig.reported(Trigger.EXITED)).error)


async def test_a_wake_calls_off_a_page_out(rig: Rig) -> None:
    """WOKEN comes, and nothing of the other order after it."""
    step = Step()
    runner = await asleep(rig, Driver(below=step))
    step.may_end.clear()
    runner.page_out()
    await eventually(lambda: step.calls == 1)
    runner.wake()
    await rig.reported(Trigger.WOKEN)
    step.may_end.set()
    await asyncio.sleep(0.02)
    assert rig.news == []


async def test_a_wake_that_is_refused_leaves_it_asleep(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    """It is told why, may be woken again, and is ended by SIGKILL as before."""
    driver = Driver()
    runner = await asleep(rig, driver)
    driver.error = WakeRefused("gpu0 has 1.0 GiB free")
    runner.wake()
    assert isinstance((await rig.reported(Trigger.SLEPT)).error, WakeRefused)
    driver.error = None
    runner.wake()
    await rig.reported(Trigger.WOKEN)


async def test_what_comes_back_quicker_by_a_start_stays_up(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever wants its room has it stopped then; why is told and shown, afterwards, too."""
    caplog.set_level(logging.INFO)
    rig.context = Context(tokens=200, tokens_per_s=100.0)
    driver = Driver()
    driver.predicted_s = 60.0
    runner = rig.runner(plan(), driver=driver)
    runner.start(1)
    await rig.reported(Trigger.READY)
    runner.sleep(anyway=False)
    await rig.reported(Trigger.WOKEN)
    assert driver.calls == []
    (why,) = runner.rest.refusals.values()
    assert re.fullmatch(
        r"a wake would take about 60\.0 s, a start \d+\.\d s and its 200 tokens 2\.0 s more", why
    )
    assert f"model a: stays awake: {why}" in caplog.messages
    runner.stop()
    await rig.reported(Trigger.EXITED)
    assert runner.rest.refusals == {"fake": why}


@pytest.mark.parametrize(
    ("predicted_s", "keeps_state", "anyway", "sleeps"),
    [
        pytest.param(60.0, True, True, True, id="asked to sleep anyway"),
        pytest.param(1.5, True, False, True, id="a wake is quicker"),
        pytest.param(None, True, False, True, id="nobody knows"),
        pytest.param(60.0, False, False, False, id="no conversation to lose"),
    ],
)
async def test_sleep_is_the_rule(
    rig: Rig, predicted_s: float | None, keeps_state: bool, anyway: bool, sleeps: bool
) -> None:
    """It must be known to be worse, and asked for only to make room."""
    rig.context = Context(tokens=10_000 if not keeps_state else 200, tokens_per_s=100.0)
    driver = Driver()
    driver.predicted_s, driver.keeps_state = predicted_s, keeps_state
    runner = rig.runner(plan(), driver=driver)
    runner.start(1)
    await rig.reported(Trigger.READY)
    runner.sleep(anyway=anyway)
    await rig.reported(Trigger.SLEPT if sleeps else Trigger.WOKEN)


async def test_the_last_wake_is_what_a_driver_without_figures_goes_by(rig: Rig) -> None:
    """It took half a second, which is less than any start and what comes on top."""
    rig.context = Context(tokens=200, tokens_per_s=100.0)
    runner = await asleep(rig, Driver())
    runner.wake()
    await rig.reported(Trigger.WOKEN)
    runner.sleep(anyway=False)
    await rig.reported(Trigger.SLEPT)


async def test_what_comes_back_quicker_by_a_start_is_not_paged_out(rig: Rig) -> None:
    """The way to swap and back is reckoned with."""
    rig.context = Context(tokens=200, tokens_per_s=100.0)
    step = Step()
    step.predicted_s = 60.0
    driver = Driver(below=step)
    driver.predicted_s = 1.0
    runner = await asleep(rig, driver)
    assert rig.abilities[1].lower_tier == ""
    assert "can't leave ram but by a stop: by way of swap a wake would take" in runner.rest.below


async def test_why_it_cannot_sleep_is_told_and_shown(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    """Once, in one line, though each process is looked at; whatever else is found is news."""
    caplog.set_level(logging.INFO, "llmsnap.runtime.sayings")
    driver = Driver()
    runner = rig.runner(plan(), driver=driver)
    for generation, reason in enumerate(("no swap for 5 MiB", "no swap for 6 MiB", "no cgroup"), 1):
        driver.verdict = Unsupported(reason)
        runner.start(generation)
        await eventually(lambda: rig.abilities == [AbilityChanged("a", False, False)])
        assert runner.rest == RestView(refusals={"fake": reason})
        rig.abilities.clear()
        runner.stop()
        await eventually(lambda: not runner.alive)
    told = "model a: can't sleep, so it is stopped instead (fake: "
    assert caplog.messages == [f"{told}no swap for 5 MiB)", f"{told}no cgroup)"]


async def test_a_place_elsewhere_is_believed(rig: Rig, tmp_path: Path) -> None:
    """For an upstream on another host there is no port to check; its answer is enough."""
    runner = rig.runner(
        plan(argv=("sleep", "60"), endpoint=Endpoint(host="192.0.2.7", port=9), check_path=None)
    )
    runner.start(1)
    await rig.reported(Trigger.READY)
    assert runner.upstream is not None
    assert runner.upstream.host == "192.0.2.7"
