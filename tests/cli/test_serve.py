"""`llmsnap` as it is started: what it prints, what it refuses, how fast it is up."""

from __future__ import annotations

import asyncio
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import aiohttp
import pytest

from llmsnap.web.address import Address
from tests.cli.conftest import Run
from tests.helpers.certificates import self_signed
from tests.helpers.ports import free_port
from tests.helpers.proxy_process import running_proxy
from tests.helpers.waiting import eventually

EMPTY = "models: {}\n"
ELSEWHERE = "models: {a: {proxy: 'http://localhost:%d'}}\n"


def written(folder: Path, text: str) -> str:
    """The path of a configuration with `text`."""
    path = folder / "config.yaml"
    path.write_text(text)
    return str(path)


def test_a_taken_port_names_who_has_it(llmsnap: Run, tmp_path: Path) -> None:
    """One line and 1."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        outcome = llmsnap("-config", written(tmp_path, EMPTY), "-listen", f"127.0.0.1:{port}")

    assert outcome.code == 1
    assert "has the port" in outcome.err
    assert len(outcome.err.splitlines()) == 1


def test_u39_a_model_on_the_proxys_own_port_ends_with_78(llmsnap: Run, tmp_path: Path) -> None:
    """Before anything is started."""
    with socket.create_server(("127.0.0.1", 0)) as held:
        port = held.getsockname()[1]
    outcome = llmsnap("--config", written(tmp_path, ELSEWHERE % port), "--listen", str(port))

    assert outcome.code == 78
    assert "models.a.proxy" in outcome.err


def test_an_address_that_is_none_ends_with_1(llmsnap: Run, tmp_path: Path) -> None:
    """With one that would be."""
    outcome = llmsnap("--config", written(tmp_path, EMPTY), "--listen", "nonsense")

    assert outcome.code == 1
    assert ":8080" in outcome.err


def test_it_listens_where_only_this_machine_reaches_it(
    llmsnap: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unless it is told otherwise; with TLS on another port."""
    told: list[Address] = []
    monkeypatch.setattr(
        "llmsnap.cli.serve.run", lambda _, address, *__, **___: told.append(address)
    )
    config = ("--config", written(tmp_path, EMPTY))
    llmsnap(*config)
    llmsnap(*config, "-tls-cert-file", "c.pem", "-tls-key-file", "k.pem")
    llmsnap(*config, "-listen", ":8000")

    assert [(address.host, address.port) for address in told[:2]] == [
        ("127.0.0.1", 8080),
        ("127.0.0.1", 8443),
    ]
    assert not told[2].is_loopback


@pytest.mark.e2e
async def test_it_says_where_it_listens_and_reads_as_peers_do(tmp_path: Path) -> None:
    """One line with the URL; a folder beside the file, both watched."""
    (folder := tmp_path / "more").mkdir()
    (folder / "a.yaml").write_text("models: {a: {cmd: 'z ${PORT}'}}")
    args = ["-watch-config", "-config-dir", str(folder)]
    async with running_proxy(EMPTY, tmp_path, args=args) as proxy:
        await proxy.logs(f"listens on {proxy.url} with 1 model")
        _, status = await proxy.get("/api/status")
        assert status["config"]["watched"]
        assert len(status["config"]["files"]) == 2
        assert await proxy.stop() == 0


@pytest.mark.e2e
async def test_warnings_of_the_configuration_are_in_the_log(tmp_path: Path) -> None:
    """Where those look who wonder why a key does nothing."""
    async with running_proxy("modles: {}\n", tmp_path) as proxy:
        answer, body = await proxy.get("/logs")

    assert answer == 200
    assert "[WARN]" in body["text"]
    assert "modles" in body["text"]


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[Path, Path]:
    """A certificate for 127.0.0.1 that signs itself, and its key."""
    return self_signed(tmp_path)


@pytest.mark.e2e
async def test_https_with_a_certificate_of_ones_own(
    certificate: tuple[Path, Path], tmp_path: Path
) -> None:
    """Both files, and the URL says so."""
    trusting = ssl.create_default_context(cafile=str(certificate[0]))
    args = ["-tls-cert-file", str(certificate[0]), "-tls-key-file", str(certificate[1])]
    async with (
        running_proxy(EMPTY, tmp_path, args=args) as proxy,
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=trusting)) as session,
        session.get(f"{proxy.url}/health") as answer,
    ):
        assert proxy.url.startswith("https://")
        assert (answer.status, await answer.text()) == (200, "OK")


@pytest.mark.e2e
def test_python_dash_m_is_the_same(tmp_path: Path) -> None:
    """For those whose PATH lacks the script."""
    command = [sys.executable, "-m", "llmsnap", "check", "--config", written(tmp_path, EMPTY)]
    ended = subprocess.run(command, capture_output=True, text=True, check=True)

    assert "is fine" in ended.stdout


@contextmanager
def unheard(config: str, port: int) -> Iterator[subprocess.Popen[bytes]]:
    """A proxy that can't print anything, as the disk under its log is full."""
    argv = [sys.executable, "-m", "llmsnap", "--config", config, "--listen", f"127.0.0.1:{port}"]
    with Path("/dev/full").open("wb") as full:
        process = subprocess.Popen(
            [*argv, "--state-dir", str(Path(config).parent)], stdout=full, stderr=full
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has a disk that is full")
async def test_it_serves_though_nothing_can_be_printed(tmp_path: Path) -> None:
    """That is no reason to end, at the start or later."""
    port = free_port()
    with unheard(written(tmp_path, EMPTY), port) as process:

        async def up() -> bool:
            assert process.poll() is None
            with suppress(aiohttp.ClientError):
                async with aiohttp.request("GET", f"http://127.0.0.1:{port}/health") as answer:
                    return answer.status == 200
            return False

        await eventually(up, timeout_s=60)
        process.send_signal(signal.SIGHUP)
        await eventually(up)
        process.terminate()
        assert await asyncio.to_thread(process.wait, 60) == 0
