"""What is said of the configuration, programs, ports and folders."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from llmsnap.config.loader import Loaded, loads
from llmsnap.config.schema import Config
from llmsnap.doctor.finding import Finding, Status
from llmsnap.doctor.setup import commands, configuration, llama_server, ports, state
from tests.helpers.ports import free_port
from tests.helpers.processes import lives
from tests.helpers.waiting import eventually


def loaded(text: str) -> Loaded:
    """Read a configuration."""
    return loads(text, environ={})


@pytest.fixture
def listening() -> Iterator[int]:
    """A port on which this process listens."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


def program(folder: Path, name: str, text: str) -> Path:
    """Write a shell script that can be run."""
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def test_a_configuration_and_its_warnings() -> None:
    """How many there are of both."""
    fine = configuration(loaded("models: {a: {cmd: 'z ${PORT}'}}"))
    doubtful = configuration(loaded("nope: 1\nmodels: {a: {cmd: 'z ${PORT}', x: 1}, b: ~}"))

    assert fine == Finding("configuration", Status.OK, "config.yaml, 1 model")
    assert doubtful.status is Status.WARN
    assert doubtful.found == "config.yaml, 2 models, 3 warnings"


def test_every_model_has_its_program(tmp_path: Path) -> None:
    """On PATH, by its whole path, or on the model's own PATH."""
    program(tmp_path, "srv", "exit")
    config = loaded(
        f"""
        models:
          a: {{cmd: "sh -c 'srv ${{PORT}}'"}}
          b: {{cmd: "{tmp_path}/srv ${{PORT}}"}}
          c: {{cmd: "srv ${{PORT}}", env: ["PATH={tmp_path}"]}}
        """
    ).config

    assert commands(config, {"PATH": "/bin:/usr/bin"}) == [
        Finding("commands", Status.OK, "the program of each model is there")
    ]


def test_a_program_that_isnt_there(tmp_path: Path) -> None:
    """Each has a line of its own, and a file that can't be run is none."""
    (tmp_path / "srv").write_text("")
    config = loaded(
        f"""
        models:
          a: {{cmd: "llama-serverr ${{PORT}}"}}
          b: {{cmd: "{tmp_path}/srv ${{PORT}}"}}
          c: {{proxy: "http://h:1"}}
          d: {{cmd: "sh ${{PORT}}"}}
        """
    ).config

    found = commands(config, {"PATH": "/bin:/usr/bin"})

    assert [finding.check for finding in found] == ["model a", "model b", "model c"]
    assert all(finding.status is Status.FAIL and finding.remedy for finding in found)
    assert found[0].found == "'llama-serverr' isn't found, or isn't a program"


def test_a_model_file_that_isnt_there(tmp_path: Path) -> None:
    """A llama-server's own; other programs' options may mean something else."""
    program(tmp_path, "llama-server", "exit")
    program(tmp_path, "srv", "exit")
    (tmp_path / "there.gguf").write_bytes(b"GGUF")
    config = loaded(
        f"""
        models:
          a: {{cmd: "llama-server --port ${{PORT}} -m {tmp_path}/gone.gguf --mmproj /no/eyes.gguf"}}
          b: {{cmd: "llama-server --port ${{PORT}} -m {tmp_path}/there.gguf"}}
          c: {{cmd: "llama-server --port ${{PORT}} -m /no/yet.gguf -mu http://h/yet.gguf"}}
          d: {{cmd: "srv ${{PORT}} -m /no/module"}}
          e: {{cmd: "llama-server --port ${{PORT}}", env: ["LLAMA_ARG_MODEL=/no/e.gguf"]}}
        """
    ).config

    found = commands(config, {"PATH": str(tmp_path)})

    assert [(finding.check, finding.found) for finding in found] == [
        ("model a", f"its file '{tmp_path}/gone.gguf' isn't there"),
        ("model a", "its file '/no/eyes.gguf' isn't there"),
        ("model e", "its file '/no/e.gguf' isn't there"),
    ]
    assert all(finding.status is Status.FAIL and finding.remedy for finding in found)


async def test_llama_server_and_its_version(tmp_path: Path) -> None:
    """It prints that to standard error."""
    path = program(tmp_path, "llama-server", "echo 'version: 7321 (abc)' >&2; echo built with x")

    assert await llama_server({"PATH": str(tmp_path)}) == Finding(
        "llama-server", Status.OK, f"{path}, version 7321 (abc)"
    )


@pytest.mark.parametrize(
    ("command", "status"),
    [
        ("/opt/llama-server --port", Status.OK),
        ("sh -c 'vllm serve'", Status.OK),
        ("llama-server --port", Status.WARN),
        ("nice llama-server --port", Status.WARN),
    ],
)
async def test_llama_server_needs_only_be_where_it_is_looked_for(
    tmp_path: Path, command: str, status: Status
) -> None:
    """Who writes whole paths isn't warned of the PATH."""
    config = loaded(f"""models: {{a: {{cmd: "{command} ${{PORT}}"}}}}""").config

    assert (await llama_server({"PATH": str(tmp_path)}, config)).status is status


@pytest.mark.parametrize("text", ["echo hello", "exit 1"])
async def test_a_llama_server_that_is_none(tmp_path: Path, text: str) -> None:
    """Something of that name."""
    program(tmp_path, "llama-server", text)

    found = await llama_server({"PATH": str(tmp_path)})

    assert found.status is Status.WARN
    assert "doesn't tell its version" in found.found


async def test_a_llama_server_that_hangs(tmp_path: Path) -> None:
    """It isn't waited for, and nothing of it is left."""
    program(tmp_path, "llama-server", f"echo $$ > {tmp_path}/pid; exec /bin/sleep 3600")

    found = await llama_server({"PATH": str(tmp_path)}, limit_s=0.5)

    assert found.status is Status.WARN
    assert not lives(int((tmp_path / "pid").read_text()))


async def test_no_llama_server(tmp_path: Path) -> None:
    """Other servers work as well."""
    found = await llama_server({"PATH": str(tmp_path)})

    assert (found.status, found.found) == (Status.WARN, "not on PATH")


async def test_a_free_port() -> None:
    """The models' ports are looked at, too, and say nothing when they are free."""
    config = loaded(f"startPort: {free_port()}\nmodels: {{a: {{cmd: 'z ${{PORT}}'}}}}").config
    port = free_port()

    assert await ports("127.0.0.1", port, config) == [Finding(f"port {port}", Status.OK, "free")]


async def test_a_port_that_is_taken(listening: int) -> None:
    """By whom is said; every interface counts when the host is left out."""
    for host in ("127.0.0.1", "localhost", ""):
        (found,) = await ports(host, listening, None)

        assert found.status is Status.FAIL
        assert found.found.startswith("taken by pid ")
        assert "--listen" in found.remedy


async def test_a_models_port_that_is_taken(listening: int) -> None:
    """By a stranger, as no proxy runs; servers on other machines are none of ours."""
    config = loaded(
        f"models: {{a: {{cmd: z, proxy: 'http://localhost:{listening}'}}, "
        "b: {cmd: z, proxy: 'http://nowhere.invalid:1'}}"
    ).config

    _, found = await ports("127.0.0.1", free_port(), config)

    assert (found.check, found.status) == ("model a", Status.WARN)
    assert found.found.startswith(f"port {listening} is taken by pid ")


@contextmanager
def holding(path: Path, port: int, *argv: str) -> Iterator[int]:
    """Run a program at `path` that holds `port`; yield its pid."""
    path.write_text(
        "import socket, time\n"
        f"held = socket.create_server(('127.0.0.1', {port}))\n"
        "time.sleep(3600)\n"
    )
    process = subprocess.Popen([sys.executable, "-S", str(path), *argv])
    try:
        yield process.pid
    finally:
        process.kill()
        process.wait()


async def said_of(port: int, config: Config | None = None) -> list[Finding]:
    """Return what is found once somebody listens on `port`."""

    async def is_taken() -> bool:
        return (await ports("127.0.0.1", port, None))[0].found != "free"

    await eventually(is_taken)
    return await ports("127.0.0.1", port, config)


async def test_our_own_proxy_may_have_the_port(tmp_path: Path) -> None:
    """Then its models have theirs."""
    port = free_port()
    config = loaded(f"models: {{a: {{cmd: z, proxy: 'http://localhost:{port}'}}}}").config
    with holding(tmp_path / "llmsnap", port) as pid:
        found = await said_of(port, config)

    assert found == [Finding(f"port {port}", Status.OK, f"llmsnap runs there, pid {pid}")]


async def test_who_has_a_port_is_told_without_secrets(tmp_path: Path) -> None:
    """Its command may hold a key."""
    port = free_port()
    with holding(tmp_path / "srv", port, "--api-key", "sekrit") as pid:
        (found,) = await said_of(port)

    assert f"pid {pid} (" in found.found
    assert "sekrit" not in found.found


def test_the_state_folder(tmp_path: Path) -> None:
    """It may still have to be made, and isn't made by looking."""
    assert state(tmp_path).status is Status.OK
    assert state(tmp_path / "a/b").status is Status.OK
    assert not (tmp_path / "a").exists()


def test_a_state_folder_that_cant_be(tmp_path: Path) -> None:
    """A file stands in its place."""
    (tmp_path / "file").touch()

    for folder in (tmp_path / "file", tmp_path / "file/below"):
        found = state(folder)
        assert (found.check, found.status) == ("state", Status.FAIL)
        assert "--state-dir" in found.remedy
