"""What to ask of a server that has a sleep of its own, taken from the configuration once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from urllib.parse import parse_qs, urlsplit

from llmsnap.config.memory import HOST, declared_need
from llmsnap.config.schema import Config, ModelConfig, SleepStep, WakeProbe


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """The HTTP calls that put one model's server to sleep and wake it, and what proves a wake."""

    sleep: tuple[SleepStep, ...]
    wake: tuple[SleepStep, ...]
    sleep_limit_s: float = 10.0
    """For each question that is asked besides the sleep steps, which have limits of their own."""
    wake_limit_s: float = 10.0
    """The same for what is asked besides the wake steps."""
    is_asleep: str = ""
    """Where the server says whether it sleeps; empty: it can't say."""
    check_path: str | None = "/health"
    """Answers 200 once the server is ready; None: nothing to check."""
    probe: WakeProbe = field(default_factory=WakeProbe)
    canary: str = ""
    model_name: str = ""
    """What the server wants as `model`; empty: it does without."""
    tier_bytes: int = 0


def recipes_for(config: Config, check_path: Callable[[str], str | None]) -> dict[str, Recipe]:
    """Return the recipe of each model that has sleep and wake steps.

    `check_path` reads a `checkEndpoint`: the path, or None for `none`.
    """
    return {
        id_: _recipe(model, config, check_path(model.check_endpoint))
        for id_, model in config.models.items()
        if model.sleep_endpoints and model.wake_endpoints
    }


def _recipe(model: ModelConfig, config: Config, check_path: str | None) -> Recipe:
    return Recipe(
        sleep=model.sleep_endpoints,
        wake=model.wake_endpoints,
        sleep_limit_s=config.sleep_request_timeout_s,
        wake_limit_s=config.wake_request_timeout_s,
        is_asleep=model.is_asleep_endpoint,
        check_path=check_path,
        probe=model.wake_probe,
        canary=model.wake_canary,
        model_name=model.use_model_name,
        tier_bytes=_ram_while_asleep(model, config),
    )


def _ram_while_asleep(model: ModelConfig, config: Config) -> int:
    """Return the most RAM that the server may hold while it sleeps, as far as it is declared."""
    need = declared_need(model, config.memory.devices) or {}
    if any(_is_level_2(step) for step in model.sleep_endpoints):
        return need.get(HOST, 0)
    return sum(need.values())  # what was on the GPU comes to what it had in RAM before


def _is_level_2(step: SleepStep) -> bool:
    """Whether this is vLLM's sleep that drops the weights instead of keeping them in RAM."""
    return parse_qs(urlsplit(step.endpoint).query).get("level") == ["2"]
