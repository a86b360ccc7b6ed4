"""The global keys: what the types alone can't check, and values that stand for others."""

from __future__ import annotations

import os
import re
import warnings
from pathlib import Path
from typing import Final

from msgspec import structs

from llmsnap.config.decode import Decoder
from llmsnap.config.faults import Fault, nearest
from llmsnap.config.quantities import size_text
from llmsnap.config.schema import Config, PerformanceConfig, UiActivity, UiConfig
from llmsnap.config.yamlnodes import MapNode, line_of

LOG_LEVELS: Final = ("debug", "info", "warn", "error")
LOG_TIME_FORMATS: Final = (
    "ansic", "unixdate", "rubydate", "rfc822", "rfc822z", "rfc850", "rfc1123", "rfc1123z",
    "rfc3339", "rfc3339nano", "kitchen", "stamp", "stampmilli", "stampmicro", "stampnano",
)  # fmt: skip

_LEAST_SAMPLING_S: Final = 5.0
_LEAST_BODY: Final = 1024


def finish_settings(config: Config, root: MapNode, decoder: Decoder) -> Config:
    """Return `config`, read from `root`, with its global keys checked and tidied. Raises Fault."""
    _check_api_keys(config, root)
    _check_store(config, root)
    _check_patterns(config, root)
    if config.max_body_bytes < _LEAST_BODY:
        message = f"must be at least {size_text(_LEAST_BODY)}; write 256MiB"
        raise Fault(message, line=line_of(root, "maxBody"), path="maxBody")
    finished = structs.replace(
        config,
        log_level=_one_of("logLevel", config.log_level, LOG_LEVELS, "info", root, decoder),
        log_time_format=_one_of(
            "logTimeFormat", config.log_time_format, LOG_TIME_FORMATS, "", root, decoder
        ),
        unload_timeout_s=config.unload_timeout_s or Config().unload_timeout_s,
        metrics_max_in_memory=_positive_or(config.metrics_max_in_memory, 1000),
        capture_buffer_mb=max(0, config.capture_buffer_mb),
        performance=_performance(config.performance, root),
        ui=UiConfig(activity=UiActivity(session_id=_headers(config.ui.activity.session_id))),
        allowed_hosts=tuple(host.strip().lower() for host in config.allowed_hosts if host.strip()),
    )
    return finished


def _check_api_keys(config: Config, root: MapNode) -> None:
    """Refuse keys that no client could send. The message doesn't show them: they are secrets."""
    for index, key in enumerate(config.api_keys):
        fault = ""
        if not key:
            fault = "empty api key; write one, or take the line out"
        elif any(char.isspace() or not char.isprintable() for char in key):
            fault = "api key cannot contain spaces or control characters; take them out"
        if fault:
            line = line_of(root, "apiKeys", index)
            raise Fault(fault, line=line, path=f"apiKeys[{index}]")


def _check_store(config: Config, root: MapNode) -> None:
    """Refuse a file that can't be written."""
    if config.store.path is None:
        return
    path = Path(config.store.path)
    if not config.store.path.strip() or "\0" in config.store.path:
        fault = "must not be empty; write a file name, or take the key out"
    elif path.is_dir():
        fault = f"{str(path)!r} is a directory; write a file name"
    elif path.exists() and not os.access(path, os.W_OK):
        fault = f"{str(path)!r} isn't writable; change its permissions, or take another file"
    elif not path.exists() and not os.access(path.parent, os.W_OK | os.X_OK):
        fault = f"the directory of {str(path)!r} doesn't exist or isn't writable; make it"
    else:
        return
    raise Fault(fault, line=line_of(root, "store", "path"), path="store.path")


def _check_patterns(config: Config, root: MapNode) -> None:
    """Refuse what isn't a regular expression, or means something else here than in Go."""
    for index, pattern in enumerate(config.upstream.ignore_paths):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                re.compile(pattern)
        except (re.error, Warning, OverflowError, RecursionError) as error:
            message = f"invalid regular expression {pattern!r} ({error}); mend it"
            line = line_of(root, "upstream", "ignorePaths", index)
            raise Fault(message, line=line, path=f"upstream.ignorePaths[{index}]") from None


def _one_of(
    key: str, value: str, known: tuple[str, ...], default: str, root: MapNode, decoder: Decoder
) -> str:
    """Return `value` in lower case if it is one of `known`, else `default` with a note."""
    lowered = value.strip().lower()
    if lowered in known:
        return lowered
    if lowered != default:
        suggestion = nearest(value, known)
        remedy = f"did you mean {suggestion!r}?" if suggestion else f"write {', '.join(known)}"
        message = f"{value!r} isn't known and counts as {default!r}; {remedy}"
        decoder.note(message, line=line_of(root, key), path=key)
    return default


def _performance(performance: PerformanceConfig, root: MapNode) -> PerformanceConfig:
    every_s = performance.every_s or PerformanceConfig().every_s
    if every_s < _LEAST_SAMPLING_S:
        message = f"must be at least 5s, not {performance.every_s:g}s; write 5s"
        raise Fault(message, line=line_of(root, "performance", "every"), path="performance.every")
    return structs.replace(performance, every_s=every_s)


def _headers(names: tuple[str, ...]) -> tuple[str, ...]:
    """Return `names` trimmed, each once whatever its case."""
    unique: dict[str, str] = {}
    for name in names:
        if name.strip():
            unique.setdefault(name.strip().lower(), name.strip())
    return tuple(unique.values())


def _positive_or(value: int, default: int) -> int:
    return value if value > 0 else default
