"""`llmsnap doctor`: a table for people, a document for programs, an exit code for scripts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Outcome, Run, RunAside
from tests.helpers.llama import server_argv, server_environment, tiny_gguf
from tests.helpers.ports import free_port, free_ports
from tests.helpers.proxy_process import running_proxy
from tests.helpers.swap import swap
from tests.helpers.waiting import eventually
from tests.sim.fixtures import libraries, make_world, world
from tests.sim.gauge import with_repository
from tests.sim.world import World

__all__ = ["libraries", "make_world", "swap", "world"]

FINE = "models: {a: {cmd: 'sh ${PORT}'}}\n"
BROKEN = "models: {a: {cmd: 'no-such-program-anywhere ${PORT}'}}\n"


@pytest.fixture
def examined(llmsnap: Run, tmp_path: Path) -> Run:
    """Run it with a configuration and places of its own."""

    def run(*argv: str) -> Outcome:
        text, *more = argv
        path = tmp_path / "config.yaml"
        path.write_text(f"startPort: {free_port()}\n{text}")
        places = ("--listen", f"127.0.0.1:{free_port()}", "--state-dir", str(tmp_path / "state"))
        return llmsnap("doctor", "--config", str(path), *places, *more)

    return run


def test_a_table_with_remedies(examined: Run) -> None:
    """Each line has a status, and the last one sums up."""
    outcome = examined(FINE)

    lines = outcome.out.splitlines()
    assert outcome.code == 0
    assert lines[0].split() == ["CHECK", "FOUND", "REMEDY"]
    assert any(line.split()[:2] == ["commands", "ok"] for line in lines)
    assert any(line.split()[:2] == ["state", "ok"] for line in lines)
    assert lines[-1].endswith(("all is well", "warning", "warnings"))


def test_what_keeps_a_model_from_running_ends_with_1(examined: Run) -> None:
    """With the reason and the remedy."""
    outcome = examined(BROKEN)

    assert outcome.code == 1
    (line,) = [line for line in outcome.out.splitlines() if line.startswith("model a ")]
    assert "fail" in line
    assert "'no-such-program-anywhere' isn't found" in line
    assert outcome.out.splitlines()[-1].startswith("1 failure")


@pytest.mark.parametrize(("text", "code"), [(FINE, 0), (BROKEN, 1)])
def test_in_json(examined: Run, text: str, code: int) -> None:
    """The same, for programs, with the same exit code."""
    outcome = examined(text, "--json")

    assert outcome.code == code
    checks = {check["check"]: check for check in outcome.json["checks"]}
    assert checks["state"]["status"] == "ok"
    assert set(checks["state"]) == {"check", "status", "found", "remedy"}
    assert (outcome.json["status"] == "fail") == bool(code)


def test_a_configuration_that_cant_be_used(examined: Run) -> None:
    """A finding like others: the machine is looked at all the same."""
    outcome = examined("models: {a: {cmd: 'sh ${PORT}', ttl: soon}}\n", "--json")

    first, *others = outcome.json["checks"]
    assert outcome.code == 1
    assert (first["check"], first["status"]) == ("configuration", "fail")
    assert "config.yaml:2: models.a.ttl: expected a whole number" in first["found"]
    assert first["remedy"] == "write one, such as 30"
    assert "state" in {check["check"] for check in others}


def test_without_a_configuration(
    llmsnap: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A warning: it is the first thing that a newcomer runs."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))

    outcome = llmsnap("doctor", "--json", "--listen", f"127.0.0.1:{free_port()}")

    first = outcome.json["checks"][0]
    assert (first["check"], first["status"]) == ("configuration", "warn")
    assert "llmsnap demo" in first["remedy"]


def test_how_each_model_sleeps(examined: Run) -> None:
    """A second table, and in JSON as well."""
    text = "models: {a: {cmd: 'sh ${PORT}', sleepMode: off}, b: {cmd: 'sh ${PORT}'}}\n"

    table = [line.split() for line in examined(text).out.splitlines()]
    models = examined(text, "--json").json["models"]

    assert ["MODEL", "SLEEPS", "BY", "KNOWN", "BY", "WHY", "NOT", "OTHERWISE"] in table
    assert ["a", "stop", "and", "start", "its", "settings", "sleepMode:", "off"] in table
    assert (models[0]["model"], models[0]["drivers"]) == ("a", [])
    assert set(models[1]) == {"model", "mode", "drivers", "refusals", "seen"}


@pytest.mark.e2e
@pytest.mark.usefixtures("swap")
async def test_what_a_running_proxy_knows_is_told(llmsnap_aside: RunAside, tmp_path: Path) -> None:
    """Of the model that is up; the other's driver is guessed."""
    if os.geteuid():
        pytest.skip("takes root: another's memory is paged out")
    command = json.dumps(" ".join(server_argv(tiny_gguf())))
    config = f"startPort: {free_ports(2)}\nmodels: {{a: {{cmd: {command}}}, b: {{cmd: {command}}}}}"
    async with running_proxy(config, tmp_path, env=server_environment()) as proxy:
        await proxy.chat("a")

        async def known() -> bool:
            return bool((await proxy.models())["a"]["driver"])

        await eventually(known)
        outcome = await llmsnap_aside(
            *("doctor", "--config", str(tmp_path / "config.yaml"), "--json"),
            *("--listen", proxy.url.removeprefix("http://")),
        )

    seen = {model["model"]: (model["seen"], model["drivers"]) for model in outcome.json["models"]}
    assert seen == {"a": (True, ["pageout"]), "b": (False, ["pageout"])}


WITNESSED = """
import sys
from llmsnap.cli import main
try:
    main()
finally:
    sys.stderr.write(open("/proc/self/maps").read())
"""
"""The command line, and then what libraries it has loaded."""


def in_world(world: World, folder: Path, *argv: str) -> tuple[dict[str, Any], str]:
    """Run it where the simulated driver is; return what it says and what it has loaded."""
    path = folder / "config.yaml"
    path.write_text(f"startPort: {free_port()}\nmodels: {{a: {{cmd: 'sh ${{PORT}}', vram: 9GiB}}}}")
    places = ("--config", str(path), "--listen", f"127.0.0.1:{free_port()}")
    done = subprocess.run(
        [sys.executable, "-c", WITNESSED, "doctor", *places, "--json", *argv],
        env=with_repository(world.environ()),
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return json.loads(done.stdout), done.stderr


def test_on_a_gpu_the_driver_is_asked_and_tried(world: World, tmp_path: Path) -> None:
    """In processes of their own: this one never loads CUDA."""
    said, loaded = in_world(world, tmp_path, "--self-test")

    checks = {check["check"]: check["status"] for check in said["checks"]}
    assert (checks["gpu0"], checks["sleep by cuda"], checks["self-test gpu0"]) == ("ok",) * 3
    assert said["models"][0]["drivers"] == ["cuda"]
    assert "libnvidia-ml" in loaded
    assert "libcuda" not in loaded


def test_a_driver_that_cant_is_told_with_its_reason(world: World, tmp_path: Path) -> None:
    """Once for the machine, and for each model; nothing is tried then."""
    world.turn(cu_init=999)
    said, _ = in_world(world, tmp_path, "--self-test")

    checks = {check["check"]: check for check in said["checks"]}
    (model,) = said["models"]
    assert "can't be initialised" in checks["sleep by cuda"]["found"]
    assert "can't be initialised" in model["refusals"]["cuda"]
    assert checks["self-test"]["found"].startswith("not tried")


def test_a_driver_that_fails_when_it_is_tried(world: World, tmp_path: Path) -> None:
    """It says that it can, and can't: that is what the self-test is for."""
    world.plan("checkpoint", 801, 801)
    said, _ = in_world(world, tmp_path, "--self-test")

    (tried,) = [each for each in said["checks"] if each["check"] == "self-test gpu0"]
    assert tried["status"] == "warn"
    assert "NOT_SUPPORTED" in tried["found"]
