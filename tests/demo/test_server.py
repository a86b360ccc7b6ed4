"""The stand-in for llama-server: its flags are llama-server's, and the server behind is real."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from http.client import HTTPConnection
from importlib import util
from pathlib import Path
from typing import Any

import pytest

from llmsnap.demo.server import main, parameters, parser
from tests.helpers.ports import free_port

needs_llama = pytest.mark.skipif(
    util.find_spec("xllamacpp") is None, reason="xllamacpp isn't installed"
)


def test_an_unknown_flag_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    """Rather than ignored: it may have mattered."""
    with pytest.raises(SystemExit) as ended:
        main(["-m", "x.gguf", "--rope-scaling", "linear"])

    assert ended.value.code == 2
    assert "--rope-scaling" in capsys.readouterr().err


def test_a_missing_model_is_named() -> None:
    """Before llama.cpp complains at length."""
    with pytest.raises(SystemExit, match=r"no model file at 'missing\.gguf'"):
        main(["-m", "missing.gguf"])


@needs_llama
def test_flags_become_llama_cpps_parameters() -> None:
    """By their long and short names."""
    flags = "-m m.gguf --host 127.0.0.2 --port 9 -c 512 -np 3 -t 2 -a x,y -b 64 -ub 32 -ngl 7"
    more = "--cache-ram 0 --slot-save-path /tmp/s --swa-full --metrics --no-webui --no-warmup"

    params = parameters(parser().parse_args(f"{flags} {more}".split()))

    assert params.model.path == "m.gguf"
    assert (params.hostnames, params.port) == (["127.0.0.2"], 9)
    assert (params.n_ctx, params.n_parallel, params.cpuparams.n_threads) == (512, 3, 2)
    assert set(params.model_alias) == {"x", "y"}
    assert (params.n_batch, params.n_ubatch, params.n_gpu_layers) == (64, 32, 7)
    assert (params.cache_ram_mib, params.slot_save_path) == (0, "/tmp/s/")
    assert (params.swa_full, params.endpoint_metrics) == (True, True)
    assert (params.ui, params.warmup) == (False, False)


@needs_llama
def test_the_types_of_the_cache_become_llama_cpps() -> None:
    """As `llmsnap bench kv` sets them; a type that there isn't is refused."""
    from xllamacpp import ggml_type, llama_flash_attn_type

    flags = ["-m", "m.gguf", "-ctk", "q8_0", "--cache-type-v", "q4_0", "-fa", "on"]
    params = parameters(parser().parse_args(flags))

    assert params.cache_type_k == ggml_type.GGML_TYPE_Q8_0
    assert params.cache_type_v == ggml_type.GGML_TYPE_Q4_0
    assert params.flash_attn_type == llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_ENABLED
    with pytest.raises(SystemExit):
        parser().parse_args(["-m", "m.gguf", "-ctk", "q9_9"])


@needs_llama
@pytest.mark.e2e
def test_it_serves_a_model_and_ends_at_once(tmp_path: Path) -> None:
    """Its answers carry llama.cpp's timings; SIGTERM is enough."""
    from tests.helpers.llama import tiny_gguf

    port = free_port()
    flags = ["-m", str(tiny_gguf()), "--port", str(port), "-a", "tiny", "-np", "1"]
    command = [sys.executable, "-m", "llmsnap.demo.server", *flags]
    with (tmp_path / "log").open("wb+") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            answer = asked(port, process)
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0
        finally:
            process.kill()
            process.wait()

    assert answer["model"] == "tiny"
    assert answer["timings"]["predicted_n"] == 2


def asked(port: int, process: subprocess.Popen[bytes]) -> dict[str, Any]:
    """A completion of two tokens, as soon as there is somebody to ask."""
    while process.poll() is None:
        connection = HTTPConnection("127.0.0.1", port, timeout=60)
        try:
            connection.request("POST", "/v1/completions", '{"prompt": "a", "max_tokens": 2}')
            answer = connection.getresponse()
            if answer.status == 200:
                decoded: dict[str, Any] = json.loads(answer.read())
                return decoded
        except ConnectionError:
            pass
        finally:
            connection.close()
        time.sleep(0.02)
    raise AssertionError("it ended before it served")
