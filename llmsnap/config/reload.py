"""What has changed between two configurations, and what each change means for what runs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from msgspec import structs

from llmsnap.config.argv import split_command
from llmsnap.config.schema import Config, ModelConfig
from llmsnap.config.sections import DEFAULT_GROUP

_IN_MODELS: Final = frozenset(
    {
        *("models", "macros", "startPort"),
        *("globalTTL", "unloadTimeout", "sendLoadingState"),
    }
)
"""What the models have inherited or used, so that it shows there."""
_AT_START: Final = {
    "store": "the database is opened at the start",
    "activity": "what is kept of requests is settled at the start",
    "metricsMaxInMemory": "what is kept of requests is settled at the start",
    "performance": "samples are taken from the start on",
    "sessions": "whether and where conversations are saved is settled at the start",
    "runtime": "how processes are run is settled at the start",
    "captureBuffer": "what is kept of requests is settled at the start",
}
"""Keys that count from the next start of the proxy, each with the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """The difference, by what it takes to have the new configuration count."""

    added: tuple[str, ...] = ()
    """Models that are new."""
    removed: tuple[str, ...] = ()
    """Models that aren't there any more."""
    restarted: tuple[str, ...] = ()
    """Models whose process, if there is one, isn't the one that the new file describes."""
    adopted: tuple[str, ...] = ()
    """Models that go on as they are, with new settings."""
    settings: tuple[str, ...] = ()
    """Keys at the top of the file whose value is another now."""
    waiting: tuple[str, ...] = ()
    """Those of them that count from the next start of the proxy, each with the reason."""

    def __bool__(self) -> bool:
        return any((self.added, self.removed, self.restarted, self.adopted, self.settings))

    def __str__(self) -> str:
        parts = [
            f"{what} {', '.join(names)}"
            for what, names in (
                ("added", self.added),
                ("removed", self.removed),
                ("to be restarted:", self.restarted),
                ("with new settings:", self.adopted),
                ("changed at the top:", self.settings),
                ("only after a restart of llmsnap:", self.waiting),
            )
            if names
        ]
        return "; ".join(parts) or "nothing has changed"


def changes(old: Config, new: Config) -> Changes:
    """Return what is another in `new` than in `old`."""
    both = [id_ for id_ in new.models if id_ in old.models]
    other = [id_ for id_ in both if new.models[id_] != old.models[id_]]
    restarted = [id_ for id_ in other if not same_process(old.models[id_], new.models[id_])]
    settings = tuple(_settings(old, new))
    return Changes(
        added=tuple(id_ for id_ in new.models if id_ not in old.models),
        removed=tuple(id_ for id_ in old.models if id_ not in new.models),
        restarted=tuple(restarted),
        adopted=tuple(id_ for id_ in other if id_ not in restarted),
        settings=settings,
        waiting=tuple(f"{key} ({_AT_START[key]})" for key in settings if _waits(key, old, new)),
    )


def same_process(one: ModelConfig, other: ModelConfig) -> bool:
    """Whether both describe the same process: its command, its environment, where it listens."""
    return _process(one) == _process(other)


def _process(model: ModelConfig) -> tuple[list[str], dict[str, str], str]:
    variables = dict(entry.partition("=")[::2] for entry in model.env)
    return split_command(model.cmd), variables, model.proxy


def _waits(key: str, old: Config, new: Config) -> bool:
    """Whether the change of a key counts from the next start of the proxy."""
    if key == "sessions":
        before, after = old.sessions, new.sessions
        return (before.mode, before.dir) != (after.mode, after.dir)
    return key in _AT_START


def _settings(old: Config, new: Config) -> Iterator[str]:
    old, new = _without_automatic_members(old), _without_automatic_members(new)
    for field in structs.fields(Config):
        key = field.encode_name
        if key not in _IN_MODELS and getattr(old, field.name) != getattr(new, field.name):
            yield key


def _without_automatic_members(config: Config) -> Config:
    """Return `config` without the members of the group that holds whoever is in no other."""
    group = config.groups.get(DEFAULT_GROUP)
    if group is None:
        return config
    groups = {**config.groups, DEFAULT_GROUP: structs.replace(group, members=())}
    return structs.replace(config, groups=groups)
