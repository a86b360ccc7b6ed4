"""What the configuration may say: frozen structs, each field with its unit, default and check.

Attributes carry their unit (`_s`, `_bytes`); `name=` is the key in the YAML file. The values here
are final: macros expanded, defaults inherited, aliases resolved. The text below a field is its
description in configs/schema.json.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, field

from llmsnap.config.fields import AtLeast1, AtLeast15, Bytes, Count, Modality, Seconds
from llmsnap.config.sections import (
    Filters,
    GroupConfig,
    MatrixConfig,
    PeerConfig,
    ProfileConfig,
    RoutingConfig,
    SelectorConfig,
    SessionsConfig,
    Timeouts,
)


class Compat(Struct, frozen=True, kw_only=True):
    """Switches for servers with habits of their own."""

    ignore_websockets: bool = field(default=False, name="ignoreWebsockets")
    """WebSockets neither start the model nor count as use."""


class Capabilities(Struct, frozen=True, kw_only=True):
    """What a model can do, for `/v1/models`."""

    in_: tuple[Modality, ...] = field(default=(), name="in")
    """What it takes."""
    out: tuple[Modality, ...] = ()
    """What it makes."""
    tools: bool = False
    """Whether it calls tools."""
    reranker: bool = False
    """Whether it ranks documents."""
    context: Count = 0
    """Context length in tokens; 0: not said."""


class SleepStep(Struct, frozen=True, kw_only=True):
    """One HTTP call of a sleep or wake sequence."""

    endpoint: str
    """Path or URL reference, taken relative to `proxy`."""
    method: Literal["GET", "POST", "PUT", "PATCH"] = "POST"
    """HTTP method."""
    body: str = ""
    """JSON to send."""
    timeout_s: Count = field(default=0, name="timeout")
    """Seconds for the answer, which must be 200; 0: the global value."""


class WakeProbe(Struct, frozen=True, kw_only=True):
    """What a server must compute after its wake steps, before a client's request reaches it."""

    endpoint: str = "/v1/completions"
    """Path or URL reference, taken relative to `proxy`; `none`: no probe."""
    body: str = ""
    """JSON to send; empty: a completion of one token."""


SleepMode = Literal["auto", "cuda", "pageout", "endpoints", "off"]


class ModelConfig(Struct, frozen=True, kw_only=True):
    """One entry under `models:`."""

    cmd: str = ""
    """Command line of the server; no shell reads it."""
    cmd_stop: str = field(default="", name="cmdStop")
    """Command that stops the server, in place of a signal; `${PID}` is its process."""
    proxy: str = ""
    """URL of the server; when absent, `http://localhost:${PORT}`."""
    aliases: tuple[str, ...] = ()
    """Other names that requests may use."""
    env: tuple[str, ...] = ()
    """`NAME=value` entries on top of the proxy's own environment."""
    check_endpoint: str = field(default="/health", name="checkEndpoint")
    """Path that answers 200 once the server is ready; `none`: ready as soon as it runs."""
    ttl_s: Count = field(default=0, name="ttl")
    """Idle seconds before the model is stopped; 0: never; when absent, `globalTTL`."""
    unload_timeout_s: Count = field(default=10, name="unloadTimeout")
    """Seconds between the stop signal and SIGKILL; 0 or absent: the global value."""
    unlisted: bool = False
    """Left out of `/v1/models`, yet usable."""
    use_model_name: str = field(default="", name="useModelName")
    """Sent to the server as `model`."""
    name: str = ""
    """Title for people."""
    description: str = ""
    """Sentence for people."""
    concurrency_limit: int = field(default=0, name="concurrencyLimit")
    """Most requests waiting and served at once, more get 429; 0 or less: no limit."""
    filters: Filters = field(default_factory=Filters)
    """Edits of request bodies."""
    macros: dict[str, str | int | float | bool] = field(default_factory=dict)
    """Macros of this model alone; they win over the global ones."""
    metadata: dict[str, Any] = field(default_factory=dict)
    """Anything, shown in `/v1/models`."""
    send_loading_state: bool = field(default=False, name="sendLoadingState")
    """Show the loading in the answer's reasoning text; when absent, the global value."""
    timeouts: Timeouts = field(default_factory=Timeouts)
    """Limits of the connection to the server."""
    compat: Compat = field(default_factory=Compat)
    """Switches for servers with habits of their own."""
    capabilities: Capabilities = field(default_factory=Capabilities)
    """What the model can do, for `/v1/models`."""
    sleep_mode: Literal[SleepMode, "enable", "disable"] = field(default="auto", name="sleepMode")
    """What puts the model to sleep: `auto` takes what works; when absent, `sleep.mode`."""
    sleep_endpoints: tuple[SleepStep, ...] = field(default=(), name="sleepEndpoints")
    """HTTP calls that put it to sleep, in order."""
    wake_endpoints: tuple[SleepStep, ...] = field(default=(), name="wakeEndpoints")
    """HTTP calls that wake it, in order."""
    # llmsnap's own keys
    sleep_after_s: Seconds = field(default=300.0, name="sleepAfter")
    """Idle time before it is put to sleep; 0: only to make room; when absent, `sleep.after`."""
    is_asleep_endpoint: str = field(default="", name="isAsleepEndpoint")
    """Path that says as JSON whether the server sleeps; it is asked after sleep and wake steps."""
    wake_probe: WakeProbe = field(default_factory=WakeProbe, name="wakeProbe")
    """What the server must compute after the wake steps."""
    wake_canary: str = field(default="", name="wakeCanary")
    """Prompt whose answer must be the same after each wake; empty: none."""
    pinned: bool = False
    """Never made to leave for another model."""
    class_: Literal["main", "helper"] = field(default="main", name="class")
    """`helper`: its requests put no main model out that is in use."""
    ram_bytes: Bytes | None = field(default=None, name="ram")
    """Memory on device `host` while awake."""
    vram: Bytes | dict[str, Bytes] | None = None
    """Memory on the GPU while awake, or a size a device."""
    min_awake_s: Seconds | None = field(default=None, name="minAwake")
    """Time after a load in which it doesn't have to leave; null: twice the measured round trip."""
    time_slice_s: Seconds | None = field(default=None, name="timeSlice")
    """Time after a load in which its answers aren't paused; null: from the measured round trip."""
    start_timeout_s: Seconds | None = field(default=None, name="startTimeout")
    """Time to become ready; null: the global `healthCheckTimeout`."""
    on_client_disconnect: Literal["cancel", "drain"] = field(
        default="cancel", name="onClientDisconnect"
    )
    """When a client leaves: end its request at the server, or read the answer to its end."""
    stall_timeout_s: Seconds | None = field(default=None, name="stallTimeout")
    """Longest silence of a busy server before it is restarted; null: no limit."""
    stop_signal: str = field(default="SIGTERM", name="stopSignal")
    """Signal that asks the server to end."""
    kill: bool = True
    """False: never SIGKILL, for drivers that hate it."""
    engine: Literal["auto", "llama-server", "other"] = "auto"
    """What `cmd` runs; `auto`: `llama-server` if a word before its first option says so."""
    sessions: Literal["auto", "off"] | None = None
    """Whether its conversations outlive its process; null: `sessions.mode`."""
    response_model_name: Literal["requested", "upstream"] = field(
        default="upstream", name="responseModelName"
    )
    """Whose name answers carry as `model`."""


class OnStartup(Struct, frozen=True, kw_only=True):
    """What happens once, after the proxy listens."""

    preload: tuple[str, ...] = ()
    """Models to load: ids, with aliases resolved and unknown names dropped."""


class Hooks(Struct, frozen=True, kw_only=True):
    """Things to do at certain moments."""

    on_startup: OnStartup = field(default_factory=OnStartup)
    """What happens once, after the proxy listens."""


class StoreConfig(Struct, frozen=True, kw_only=True):
    """Where what outlives the proxy is kept."""

    path: str | None = None
    """SQLite file; null: `llmsnap.db` in the state directory."""


class ActivityConfig(Struct, frozen=True, kw_only=True):
    """What is kept of past requests and of models that came and went."""

    mode: Literal["on", "off"] = "on"
    """`off`: nothing is kept."""
    rows: Count = 100_000
    """Most requests that are kept, and as many moves of models; 0: no limit."""
    days: Count = 30
    """Days after which they are dropped; 0: never."""
    tokens: bool = True
    """Whether answers are read for what they say of their tokens."""
    prompts: bool = True
    """Whether it is said where a prompt parted from the last one; for that some are remembered."""


class PerformanceConfig(Struct, frozen=True, kw_only=True):
    """Sampling of the machine."""

    disabled: bool = False
    """No samples."""
    every_s: Seconds = field(default=5.0, name="every")
    """Time between two samples, at least 5 seconds; 0: the default."""


class UpstreamConfig(Struct, frozen=True, kw_only=True):
    """How `/upstream/…` treats browsers."""

    ignore_paths: tuple[str, ...] = field(
        default=(r"\.(js|json|css|png|gif|jpg|jpeg|ico|txt)$",), name="ignorePaths"
    )
    """Regular expressions of paths below `/upstream/M` that never load a model."""


class UiActivity(Struct, frozen=True, kw_only=True):
    """Columns of the activity page."""

    session_id: tuple[str, ...] = ("X-Session-ID", "X-Litellm-Session-Id")
    """Request headers to show as session; an empty list: none."""


class UiConfig(Struct, frozen=True, kw_only=True):
    """Settings of the web page."""

    activity: UiActivity = field(default_factory=UiActivity)
    """Columns of the activity page."""


class ScheduleConfig(Struct, frozen=True, kw_only=True):
    """Fairness and patience; see docs/scheduling.md."""

    fair_after_s: Seconds = field(default=5.0, name="fairAfter")
    """Wait after which a request may make busy models leave."""
    preempt_after_s: Seconds = field(default=15.0, name="preemptAfter")
    """Wait after which a request may pause the answers of others, where that is possible."""
    hold_s: Seconds = field(default=10.0, name="hold")
    """Most that an idle model is kept for a client who is expected back."""
    max_wait_s: Seconds = field(default=600.0, name="maxWait")
    """Longest wait for a model, then 503; 0: no limit."""


class MemoryConfig(Struct, frozen=True, kw_only=True):
    """How much memory there is to share among the models."""

    mode: Literal["off", "auto"] = "auto"
    """`off`: groups alone decide what is loaded beside what."""
    devices: dict[str, Bytes] = field(default_factory=dict)
    """Budget a device, such as `host: 600MiB` or `gpu0: 24GiB`; empty: what is measured."""
    reserve: Bytes | dict[str, Bytes] | None = None
    """Left alone a device, of what is measured; null: 512 MiB a GPU, 1 GiB of `host`."""
    settle_timeout_s: Seconds = field(default=10.0, name="settleTimeout")
    """Longest wait for memory to come back from a model that sleeps or ended."""
    prefetch: bool = True
    """Whether the files of a model that has to wait for room are read into the page cache."""


class SleepConfig(Struct, frozen=True, kw_only=True):
    """How models leave memory without being stopped; see docs/sleep.md."""

    mode: SleepMode = "auto"
    """`sleepMode` of models that don't set one."""
    after_s: Seconds = field(default=300.0, name="after")
    """`sleepAfter` of models that don't set one; 0: only to make room."""
    ram_budget_bytes: Bytes | None = field(default=None, name="ramBudget")
    """RAM for models that are asleep; null: half of what the machine has."""
    multi_gpu: bool = field(default=False, name="multiGpu")
    """Whether models on several GPUs are put to sleep too."""


class RuntimeConfig(Struct, frozen=True, kw_only=True):
    """How models' processes are run; see docs/lifecycle.md."""

    adopt: bool = False
    """They outlive a proxy that is killed or hands over, and the next one goes on with them."""


class Config(Struct, frozen=True, kw_only=True):
    """The whole file."""

    health_check_timeout_s: AtLeast15 = field(default=120, name="healthCheckTimeout")
    """Seconds that a model has to become ready; less than 15 counts as 15."""
    global_ttl_s: Count = field(default=0, name="globalTTL")
    """`ttl` of models that don't set one."""
    unload_timeout_s: Count = field(default=10, name="unloadTimeout")
    """`unloadTimeout` of models that don't set one; 0: 10."""
    start_port: Annotated[int, Meta(ge=1, le=65535)] = field(default=5800, name="startPort")
    """First `${PORT}`; the next model that uses it gets the next one."""
    log_level: str = field(default="info", name="logLevel")
    """`debug`, `info`, `warn` or `error`."""
    log_time_format: str = field(default="", name="logTimeFormat")
    """Time in log lines: a name such as `rfc3339` or `kitchen`; empty: none."""
    log_to_stdout: Literal["proxy", "upstream", "both", "none"] = field(
        default="proxy", name="logToStdout"
    )
    """Whose log goes to standard output and to `/logs`."""
    log_requests: bool = field(default=False, name="logRequests")
    """Accepted and ignored, as requests are always logged."""
    metrics_max_in_memory: int = field(default=1000, name="metricsMaxInMemory")
    """Rows of activity kept in memory; 0 or less: 1000."""
    capture_buffer_mb: int = field(default=5, name="captureBuffer")
    """Megabytes for copies of requests and answers; 0 or less: none are made."""
    send_loading_state: bool = field(default=False, name="sendLoadingState")
    """`sendLoadingState` of models that don't set it."""
    include_aliases_in_list: bool = field(default=False, name="includeAliasesInList")
    """Aliases get records of their own in `/v1/models`."""
    ollama_api: bool = field(default=False, name="ollamaApi")
    """Ollama's API is there, too."""
    api_keys: tuple[str, ...] = field(default=(), name="apiKeys")
    """Keys of which a client must send one; empty: no key is asked for."""
    macros: dict[str, str | int | float | bool] = field(default_factory=dict)
    """Values for `${name}`; a macro may use those above it."""
    models: dict[str, ModelConfig] = field(default_factory=dict)
    """The models by id."""
    groups: dict[str, GroupConfig] = field(default_factory=dict)
    """Which models replace each other; `(default)` holds those that are in no other group."""
    default: str = ""
    """Model, by id or alias, that comes back by itself as soon as there is room; empty: none."""
    matrix: MatrixConfig = field(default_factory=MatrixConfig)
    """Combinations of models that may be loaded together, in place of groups."""
    routing: RoutingConfig = field(default_factory=RoutingConfig)
    """The newer place of groups and matrix, and whose requests go first."""
    peers: dict[str, PeerConfig] = field(default_factory=dict)
    """Other machines whose models are served here too, as `PEER/MODEL`."""
    profiles: dict[str, ProfileConfig] = field(default_factory=dict)
    """Sets of names that can be made to mean other models while the proxy runs."""
    selectors: dict[str, SelectorConfig] = field(default_factory=dict)
    """Names that mean one of several models."""
    hooks: Hooks = field(default_factory=Hooks)
    """Things to do at certain moments."""
    store: StoreConfig = field(default_factory=StoreConfig)
    """Where what outlives the proxy is kept."""
    activity: ActivityConfig = field(default_factory=ActivityConfig)
    """What is kept of past requests and of models that came and went."""
    performance: PerformanceConfig = field(default_factory=PerformanceConfig)
    """Sampling of the machine."""
    upstream: UpstreamConfig = field(default_factory=UpstreamConfig)
    """How `/upstream/…` treats browsers."""
    ui: UiConfig = field(default_factory=UiConfig)
    """Settings of the web page."""
    sleep_request_timeout_s: AtLeast1 = field(default=10, name="sleepRequestTimeout")
    """`timeout` of sleep steps that don't set one; less than 1 counts as 1."""
    wake_request_timeout_s: AtLeast1 = field(default=10, name="wakeRequestTimeout")
    """`timeout` of wake steps that don't set one; less than 1 counts as 1."""
    # llmsnap's own keys
    schedule: ScheduleConfig = field(default_factory=ScheduleConfig)
    """Fairness and patience."""
    memory: MemoryConfig = field(default_factory=MemoryConfig)
    """How much memory there is to share among the models."""
    sleep: SleepConfig = field(default_factory=SleepConfig)
    """How models leave memory without being stopped."""
    sessions: SessionsConfig = field(default_factory=SessionsConfig)
    """Conversations that outlive a llama-server's process."""
    runtime: RuntimeConfig = field(default_factory=RuntimeConfig)
    """How models' processes are run."""
    allowed_hosts: tuple[str, ...] = field(default=(), name="allowedHosts")
    """Values of the `Host` header to accept besides those of this machine."""
    max_body_bytes: Bytes = field(default=256 * 1024**2, name="maxBody")
    """Largest request body, more gets 413."""

    def names(self) -> dict[str, str]:
        """Return every name a request may use (ids and aliases) with the model id it means.

        An id wins over an alias of the same name.
        """
        aliases = {alias: id_ for id_, model in self.models.items() for alias in model.aliases}
        return aliases | {id_: id_ for id_ in self.models}
