"""How a model sleeps: whether what the file says of it can work, and what it inherits."""

from __future__ import annotations

from typing import Any, Final

from msgspec import structs

from llmsnap.config.argv import split_command
from llmsnap.config.decode import Decoder
from llmsnap.config.faults import Fault
from llmsnap.config.schema import Config, ModelConfig, SleepMode, SleepStep
from llmsnap.config.upstreams import reference_fault
from llmsnap.config.yamlnodes import MapNode, line_of

_BY_ENDPOINTS: Final = ("endpoints", "enable")
_OWN_TIMER: Final = "--sleep-idle-seconds"
"""llama-server's option to unload itself, at a moment that nobody else knows."""


def check_sleep(
    model: ModelConfig, body: MapNode, path: str, settings: Config, decoder: Decoder
) -> None:
    """Raise Fault for steps that can't be made; note what has no effect or does harm."""
    lists = {"sleepEndpoints": model.sleep_endpoints, "wakeEndpoints": model.wake_endpoints}
    for key, steps in lists.items():
        if model.sleep_mode in _BY_ENDPOINTS and not steps:
            message = f"sleepMode is {model.sleep_mode}, so {key} is required; give it a step"
            raise Fault(message, line=line_of(body, "sleepMode"), path=f"{path}.{key}")
        for index, step in enumerate(steps):
            if fault := _endpoint_fault(step.endpoint):
                line = line_of(body, key, index, "endpoint")
                raise Fault(fault, line=line, path=f"{path}.{key}[{index}].endpoint")
    if fault := reference_fault(model.is_asleep_endpoint):
        line = line_of(body, "isAsleepEndpoint")
        raise Fault(fault, line=line, path=f"{path}.isAsleepEndpoint")
    if _mode(model, body, settings) == "off":
        return
    _note_idle_keys(lists, body, path, decoder)
    if _sleeps_by_itself(model):
        message = (
            f"with {_OWN_TIMER} the server unloads itself, and requests about that moment are lost "
            "or crash it; take it out, llmsnap puts the model to sleep"
        )
        decoder.note(message, line=line_of(body, "cmd"), path=f"{path}.cmd")


def finished_sleep(model: ModelConfig, body: MapNode, settings: Config) -> dict[str, Any]:
    """Return the final values of the keys about sleep: inherited, and older names replaced."""
    values: dict[str, Any] = {
        "sleep_mode": _mode(model, body, settings),
        "sleep_endpoints": _with_timeout(model.sleep_endpoints, settings.sleep_request_timeout_s),
        "wake_endpoints": _with_timeout(model.wake_endpoints, settings.wake_request_timeout_s),
        "is_asleep_endpoint": model.is_asleep_endpoint.strip(),
    }
    if body.get("sleepAfter") is None:
        values["sleep_after_s"] = settings.sleep.after_s
    return values


def _mode(model: ModelConfig, body: MapNode, settings: Config) -> SleepMode:
    if body.get("sleepMode") is None:
        return settings.sleep.mode
    match model.sleep_mode:
        case "enable":
            return "endpoints"
        case "disable":
            return "off"
        case mode:
            return mode


def _endpoint_fault(endpoint: str) -> str | None:
    if not endpoint.strip():
        return "endpoint is empty; write a path such as /sleep?level=1"
    return reference_fault(endpoint)


def _note_idle_keys(
    lists: dict[str, tuple[SleepStep, ...]], body: MapNode, path: str, decoder: Decoder
) -> None:
    """Note the keys about endpoints that have no effect, because a list of steps is missing."""
    missing = [key for key, steps in lists.items() if not steps]
    if not missing:
        return
    for key in (*lists, "isAsleepEndpoint", "wakeProbe", "wakeCanary"):
        if body.get(key) is not None and key not in missing:
            message = f"it has no effect without {' and '.join(missing)}; add steps there"
            decoder.note(message, line=line_of(body, key), path=f"{path}.{key}")


def _sleeps_by_itself(model: ModelConfig) -> bool:
    """Whether the server is told to unload itself when idle."""
    words = split_command(model.cmd)
    for index, word in enumerate(words):
        option, equals, value = word.partition("=")
        if option == _OWN_TIMER:
            seconds = value if equals else "".join(words[index + 1 : index + 2])
            return not seconds.startswith("-")  # -1 turns it off
    return False


def _with_timeout(steps: tuple[SleepStep, ...], timeout_s: int) -> tuple[SleepStep, ...]:
    return tuple(structs.replace(step, timeout_s=step.timeout_s or timeout_s) for step in steps)
