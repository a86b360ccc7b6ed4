"""Models in a preset of llama-server (`--models-preset`): an INI file, one section a model."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from llmsnap.config.generated import FoundModel, config_text
from llmsnap.config.llama_options import option_of
from llmsnap.errors import ConfigError

EVERY: Final = "*"
"""The section whose options count for every model."""

_OURS: Final = frozenset(
    [
        "version",
        "host",
        "port",
        "api-key",
        "api-key-file",
        "models-dir",
        "models-preset",
        "models-max",
        "models-autoload",
        "no-models-autoload",
        "ssl-key-file",
        "ssl-cert-file",
        "reuse-port",
    ]
)
"""What is the proxy's business."""
_ALIAS: Final = ("alias", "a")
_MODELS: Final = frozenset(
    ["m", "model", "mu", "model-url", "hf", "hfr", "hf-repo", "dr", "docker-repo"]
)
_VARIABLE: Final = re.compile(r"LLAMA_[A-Z0-9_]+|[A-Z]+_TOKEN")
_LINE: Final = re.compile(r"(?P<key>[^=;#\[\]\s][^=]*?)\s*=\s*(?P<value>.*)")

Section = dict[str, str]


def preset_text(text: str, path: Path) -> str:
    """Return a configuration of the models in the preset `text` at `path`. Raises ConfigError."""
    return config_text(models_of(text, str(path)), [f"The models of the preset {path}."])


def models_of(
    text: str, name: str = "preset.ini", found: Sequence[FoundModel] = ()
) -> list[FoundModel]:
    """Return the models of a preset, and those `found` elsewhere as it wants them to be run.

    For those `[*]` counts, too, and a section with their name. `name` is what errors call the
    preset. Raises ConfigError.
    """
    sections = read_sections(text, name)
    every = sections.pop(EVERY, {})
    others = [
        replace(_model(one.name, {**every, **_section_of(one), **own}), notes=one.notes)
        for one in found
        for own in (sections.pop(one.name, {}),)
    ]
    return others + [_model(id_, {**every, **section}) for id_, section in sections.items()]


def _section_of(found: FoundModel) -> Section:
    return {option[0].lstrip("-"): option[1] for option in found.options}


def read_sections(text: str, name: str) -> dict[str, Section]:
    """Return what each section says, in order; lines before the first one count for every model.

    Leading dashes of keys are dropped. Raises ConfigError with the line.
    """
    sections: dict[str, Section] = {EVERY: {}}
    section = sections[EVERY]
    for number, line in enumerate(text.removeprefix("\ufeff").splitlines(), start=1):
        words = line.strip()
        if not words or words[0] in ";#":
            continue
        if words[0] == "[" and words[-1] == "]":
            section = sections.setdefault(words[1:-1].strip() or EVERY, {})
        elif match := _LINE.fullmatch(words):
            section[match["key"].lstrip("-")] = match["value"].strip()
        else:
            raise ConfigError(f"{name}:{number}: {words!r} is no `key = value` and no `[section]`")
    return sections


def _model(id_: str, section: Mapping[str, str]) -> FoundModel:
    options: list[tuple[str, ...]] = []
    if not _MODELS & section.keys() and "LLAMA_ARG_MODEL" not in section:
        options.append(("--hf-repo", id_))  # the router's way of naming a repository
    aliases = [section[key] for key in _ALIAS if key in section]
    for key, value in section.items():
        is_known = key in _OURS or key in _ALIAS or key in _SPECIAL or _VARIABLE.fullmatch(key)
        if not is_known and (option := option_of(key, value)):
            options.append(option)
    return FoundModel(
        name=id_,
        options=tuple(options),
        aliases=tuple(word.strip() for alias in aliases for word in alias.split(",")),
        env=tuple(f"{key}={value}" for key, value in section.items() if _VARIABLE.fullmatch(key)),
        ttl_s=max(0, _number(section.get("sleep-idle-seconds", "0"))),
        unload_timeout_s=max(0, _number(section.get("stop-timeout", "0"))),
        preloaded=section.get("load-on-startup", "").lower() in ("true", "on", "1"),
    )


_SPECIAL: Final = frozenset({"load-on-startup", "stop-timeout", "sleep-idle-seconds"})
"""What becomes a key of ours: how long a model stays is the scheduler's decision."""


def _number(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        return 0
