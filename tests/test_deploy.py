"""The unit for systemd agrees with how the proxy ends."""

from __future__ import annotations

import configparser
from pathlib import Path

import pytest

from llmsnap.app import GRACE_S
from llmsnap.cli import EX_CONFIG
from llmsnap.config.schema import ModelConfig

UNIT = Path(__file__).parents[1] / "deploy" / "llmsnap.service"


@pytest.fixture
def service() -> configparser.SectionProxy:
    """The unit's section about the process."""
    parser = configparser.ConfigParser(interpolation=None)
    parser.read(UNIT)
    return parser["Service"]


def test_u66_the_proxy_ends_its_models_itself(service: configparser.SectionProxy) -> None:
    """systemd tells nobody but the proxy, and waits for longer than the proxy may take."""
    assert service["KillMode"] == "mixed"
    assert int(service["TimeoutStopSec"]) > GRACE_S + 2 * ModelConfig().unload_timeout_s


def test_a_wrong_configuration_isnt_tried_again(service: configparser.SectionProxy) -> None:
    """Anything else that failed is."""
    assert service["Restart"] == "on-failure"
    assert int(service["RestartPreventExitStatus"]) == EX_CONFIG


def test_u67_the_path_is_written_down(service: configparser.SectionProxy) -> None:
    """Services begin with a bare one."""
    assert "/usr/local/bin" in service["Environment"].removeprefix("PATH=").split(":")
