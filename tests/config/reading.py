"""Short ways to read a configuration in a test."""

from __future__ import annotations

from textwrap import dedent

import pytest

from llmsnap.config.loader import Loaded, loads
from llmsnap.config.schema import Config, ModelConfig
from llmsnap.errors import ConfigError


def loaded(text: str, **environ: str) -> Loaded:
    """Return what the loader makes of `text`; `environ` is the whole environment."""
    return loads(dedent(text), environ=environ)


def read(text: str, **environ: str) -> Config:
    """Return the configuration in `text`; it may only ask for what isn't there yet."""
    result = loaded(text, **environ)
    assert [warning for warning in result.warnings if "not supported yet" not in warning] == []
    return result.config


def model(body: str, *, above: str = "") -> ModelConfig:
    """Return model `m` with `body`, a flow mapping, below the global keys in `above`."""
    return loaded(f"{dedent(above)}\nmodels:\n  m: {body}\n").config.models["m"]


def refusal(text: str, **environ: str) -> str:
    """Return the error that `text` gives."""
    with pytest.raises(ConfigError) as caught:
        loads(dedent(text), environ=environ)
    return str(caught.value)
