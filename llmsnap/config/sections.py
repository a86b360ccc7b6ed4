"""The structs of `groups`, `matrix`, `routing`, `profiles` and `selectors`; see `schema`.

They are the parts of the file that say which models go together, and what else requests may ask
for.
"""

from __future__ import annotations

from typing import Final, Literal

from msgspec import Struct, field

DEFAULT_GROUP: Final = "(default)"
"""The automatic group of all models that are in no other; it always exists."""


class GroupConfig(Struct, frozen=True, kw_only=True):
    """One entry under `groups:`; which models replace each other."""

    swap: bool = True
    """At most one member is loaded."""
    exclusive: bool = True
    """Loading a member unloads other groups that aren't persistent."""
    persistent: bool = False
    """No other group unloads its members."""
    members: tuple[str, ...] = ()
    """Model ids."""


class MatrixConfig(Struct, frozen=True, kw_only=True):
    """Combinations of models that may be loaded together."""

    vars: dict[str, str] = field(default_factory=dict)
    """Short names for model ids."""
    evict_costs: dict[str, int] = field(default_factory=dict)
    """What it costs to unload a model, by id or short name; 1 if not said."""
    sets: dict[str, str] = field(default_factory=dict)
    """Expressions by name: `a & (b | c)`, `+other`."""


class RouterSettings(Struct, frozen=True, kw_only=True):
    """What each kind of router goes by."""

    groups: dict[str, GroupConfig] = field(default_factory=dict)
    """As `groups` at the top."""
    matrix: MatrixConfig = field(default_factory=MatrixConfig)
    """As `matrix` at the top."""


class RouterConfig(Struct, frozen=True, kw_only=True):
    """What decides which models may be loaded together."""

    use: Literal["group", "matrix"] = "group"
    """Which of the settings counts."""
    settings: RouterSettings = field(default_factory=RouterSettings)
    """What each kind of router goes by."""


class FifoConfig(Struct, frozen=True, kw_only=True):
    """Whose requests go first."""

    priority: dict[str, int] = field(default_factory=dict)
    """By model or alias: each step counts as 5 seconds of waiting; 0 if not said."""


class SchedulerSettings(Struct, frozen=True, kw_only=True):
    """What each kind of scheduler goes by."""

    fifo: FifoConfig = field(default_factory=FifoConfig)
    """Whose requests go first."""


class SchedulerConfig(Struct, frozen=True, kw_only=True):
    """In which order requests are served."""

    use: Literal["fifo"] = "fifo"
    """The only kind."""
    settings: SchedulerSettings = field(default_factory=SchedulerSettings)
    """What each kind of scheduler goes by."""


class RoutingConfig(Struct, frozen=True, kw_only=True):
    """Which models may be loaded together, and whose requests go first."""

    router: RouterConfig = field(default_factory=RouterConfig)
    """What decides which models may be loaded together."""
    scheduler: SchedulerConfig = field(default_factory=SchedulerConfig)
    """In which order requests are served."""
