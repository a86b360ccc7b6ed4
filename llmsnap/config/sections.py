"""The structs of `groups`, `matrix`, `routing`, `peers`, `profiles` and `selectors`; see `schema`.

They are the parts of the file that say which models go together, and what else requests may ask
for; and what models and peers share.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from msgspec import Meta, Struct, field

from llmsnap.config.fields import AtLeast1, Bytes, CommaSeparated, Count, Seconds

DEFAULT_GROUP: Final = "(default)"
"""The automatic group of all models that are in no other; it always exists."""


class Timeouts(Struct, frozen=True, kw_only=True, rename="camel"):
    """Limits of the connection to one upstream, in whole seconds; 0: no limit."""

    connect: Count = 30
    """Until the connection stands."""
    keepalive: Count = 30
    """Between two TCP keep-alive probes."""
    response_header: Count = 0
    """Until the head of the answer has come."""
    tls_handshake: Count = 10
    """Until TLS is agreed on."""
    expect_continue: Count = 1
    """Without effect: the proxy answers `Expect` itself, and never sends it to a server."""
    idle_conn: Count = 90
    """For which an unused connection is kept, at most 4: llama-server closes its own after 5."""


class Filters(Struct, frozen=True, kw_only=True):
    """Edits of JSON request bodies; keys are paths such as `a.b` and `list.0`."""

    strip_params: CommaSeparated = field(default=(), name="stripParams")
    """Keys to remove, with commas between them: trimmed, sorted, each once, without `model`."""
    set_params: dict[str, Any] = field(default_factory=dict, name="setParams")
    """Keys to set; `model` is left out."""
    set_params_by_id: dict[str, dict[str, Any]] = field(default_factory=dict, name="setParamsByID")
    """More keys to set, chosen by the name that the client asked for; each name is an alias."""


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


class PeerConfig(Struct, frozen=True, kw_only=True):
    """One entry under `peers:`; another machine, or a service, that has models."""

    proxy: str
    """Where it listens: an http or https URL, which may have a base path."""
    models: tuple[str, ...]
    """What it is asked for, as it calls them."""
    api_key: str = field(default="", name="apiKey")
    """Sent to it as `Authorization: Bearer` and `x-api-key`."""
    filters: Filters = field(default_factory=Filters)
    """Edits of request bodies."""
    timeouts: Timeouts = field(default_factory=Timeouts)
    """Limits of the connection to it."""


class ProfileConfig(Struct, frozen=True, kw_only=True):
    """One entry under `profiles:`; names that mean something else while it is active."""

    description: str = ""
    """Sentence for people."""
    pins: dict[str, str | None] = field(default_factory=dict)
    """Requested name to the name that is served; empty or null: the name isn't available."""


class SelectorSettings(Struct, frozen=True, kw_only=True):
    """How a selector chooses."""

    spillover: Annotated[int, Meta(ge=1)] = 1
    """Requests at once on a model before the next one is used."""


class SelectorConfig(Struct, frozen=True, kw_only=True):
    """One entry under `selectors:`; a name that means one of several models."""

    strategy: Literal["warm", "pin", "spillover"]
    """`pin`: the first; `warm`: the first that is up; `spillover`: one more when one is busy."""
    targets: tuple[str, ...]
    """Models, aliases or models of peers."""
    settings: SelectorSettings = field(default_factory=SelectorSettings)
    """How it chooses."""
    name: str = ""
    """Title for people."""
    description: str = ""
    """Sentence for people."""
    unlisted: bool = False
    """Left out of `/v1/models`, yet usable."""
    metadata: dict[str, Any] = field(default_factory=dict)
    """Anything, shown in `/v1/models`."""


class SessionsConfig(Struct, frozen=True, kw_only=True):
    """Conversations that outlive a llama-server's process; see docs/sessions.md."""

    mode: Literal["auto", "off"] = "auto"
    """`auto`: they are saved before a stop and come back before the next answer; `off`: lost."""
    dir: str | None = None
    """Directory for the files, for its owner alone; null: `sessions` in the state directory."""
    budget_bytes: Bytes | None = field(default=None, name="budget")
    """Most that all files may take; null: 20 GiB, or 10 % of the disk if that is less."""
    min_tokens: AtLeast1 = field(default=256, name="minTokens")
    """Shorter conversations aren't saved."""
    snapshot: Literal["idle", "interval", "off"] = "idle"
    """`idle`: save 10 seconds after the last answer, too; `interval`: and once a minute in use."""
    wake_to_save: bool = field(default=False, name="wakeToSave")
    """Wake what sleeps before it is stopped, if something of it isn't saved."""
    max_age_s: Seconds = field(default=30 * 86400.0, name="maxAge")
    """Files that nobody has used for so long are deleted; 0: never."""
