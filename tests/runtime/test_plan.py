from __future__ import annotations

import signal

import pytest

from llmsnap.config.schema import Config, ModelConfig
from llmsnap.errors import ConfigError
from llmsnap.runtime.plan import Endpoint, check_path, plan_for, signal_named


@pytest.mark.parametrize(
    ("proxy", "endpoint", "health"),
    [
        (
            "http://localhost:5801",
            Endpoint(host="localhost", port=5801),
            "http://localhost:5801/health",
        ),
        (
            "http://127.0.0.1:9/base/",
            Endpoint(host="127.0.0.1", port=9, base_path="/base"),
            "http://127.0.0.1:9/base/health",
        ),
        (
            "https://box",
            Endpoint(host="box", port=443, tls=True),
            "https://box:443/health",
        ),
        ("http://[::1]:80", Endpoint(host="::1", port=80), "http://[::1]:80/health"),
        ("http://box/x", Endpoint(host="box", port=80, base_path="/x"), "http://box:80/x/health"),
    ],
)
def test_what_a_proxy_url_means(proxy: str, endpoint: Endpoint, health: str) -> None:
    """Host, port by scheme when none is given, the base path in front of every path."""
    assert Endpoint.parse(proxy) == endpoint
    assert endpoint.url("/health") == health


@pytest.mark.parametrize("proxy", ["", "localhost:80", "ftp://x", "http://", "http://x:99999"])
def test_a_proxy_that_is_no_url(proxy: str) -> None:
    """The error quotes it."""
    with pytest.raises(ConfigError, match="proxy"):
        Endpoint.parse(proxy)


@pytest.mark.parametrize(
    ("configured", "path"),
    [
        ("/health", "/health"),
        ("health", "/health"),
        ("/v1/models?x=1", "/v1/models?x=1"),
        ("http://elsewhere:1/ready", "/ready"),
        ("none", None),
        ("", "/"),
    ],
)
def test_check_endpoints(configured: str, path: str | None) -> None:
    """`none` checks nothing; of a URL only the path counts."""
    assert check_path(configured) == path


@pytest.mark.parametrize("name", ["SIGINT", "int", " Sigint", "2"])
def test_signals_by_any_name(name: str) -> None:
    """With and without SIG, or by number."""
    assert signal_named(name) is signal.SIGINT


@pytest.mark.parametrize("name", ["SIGNOTHING", "", "999"])
def test_unknown_signals(name: str) -> None:
    """The error says what can be written."""
    with pytest.raises(ConfigError, match="SIGTERM"):
        signal_named(name)


def test_a_plan_out_of_the_configuration() -> None:
    """Words are split, the environment is inherited and added to, limits have their defaults."""
    model = ModelConfig(
        cmd="serve --port 5801 --api-key 'my secret'",
        cmd_stop="docker stop x --password sk-12345",
        proxy="http://localhost:5801",
        env=("A=new", "HF_TOKEN=hf_12345", "no assignment", "B=x=y"),
        unload_timeout_s=7,
        stop_signal="INT",
        kill=False,
    )
    plan = plan_for("m", Config(models={"m": model}), {"A": "old", "C": "kept"})
    assert plan.argv == ["serve", "--port", "5801", "--api-key", "my secret"]
    assert plan.env == {"A": "new", "HF_TOKEN": "hf_12345", "B": "x=y", "C": "kept"}
    assert plan.stop_argv == ["docker", "stop", "x", "--password", "sk-12345"]
    assert (plan.grace_s, plan.start_timeout_s) == (7, 120)
    assert (plan.stop_signal, plan.kill) == (signal.SIGINT, False)
    assert set(plan.secrets) == {"my secret", "hf_12345", "sk-12345"}
    assert plan.endpoint.key == "my secret"
    assert "my secret" not in repr(plan.endpoint)


@pytest.mark.parametrize(("own", "limit_s"), [(None, 300), (2.5, 2.5), (0, 0)])
def test_u37_a_start_timeout_a_model(own: float | None, limit_s: float) -> None:
    """The global `healthCheckTimeout` is the default; a big model may have more."""
    model = ModelConfig(cmd="x", proxy="http://localhost:1", start_timeout_s=own)
    config = Config(models={"m": model}, health_check_timeout_s=300)
    assert plan_for("m", config, {}).start_timeout_s == limit_s
