"""What the configuration may say: frozen structs, each field with its unit, default and check.

Attributes carry their unit (`_s`, `_bytes`); `name=` is the key in the YAML file. The values here
are final: macros expanded, defaults inherited, aliases resolved.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from msgspec import Meta, Struct, field

DEFAULT_GROUP: Final = "(default)"
"""The automatic group of all models that are in no other; it always exists."""

Seconds = Annotated[
    float,
    Meta(
        ge=0,
        description="Seconds as a number (fractions too), or text: `500ms`, `5s`, `2m`, `1h`.",
        extra={"unit": "duration"},
        extra_json_schema={"type": ["number", "string"]},
    ),
]
Bytes = Annotated[
    int,
    Meta(
        ge=0,
        description="Bytes as a number, or text such as `512MiB`, `8GiB`, `8GB`.",
        extra={"unit": "size"},
        extra_json_schema={"type": ["integer", "string"]},
    ),
]


class Timeouts(Struct, frozen=True, kw_only=True, rename="camel"):
    """Limits of the connection to one upstream, in whole seconds; 0: no limit."""

    connect: Annotated[int, Meta(ge=0)] = 30
    keepalive: Annotated[int, Meta(ge=0)] = 30
    response_header: Annotated[int, Meta(ge=0)] = 0
    tls_handshake: Annotated[int, Meta(ge=0)] = 10
    expect_continue: Annotated[int, Meta(ge=0)] = 1
    idle_conn: Annotated[int, Meta(ge=0)] = 90


class Filters(Struct, frozen=True, kw_only=True):
    """Edits of JSON request bodies; keys are paths such as `a.b` and `list.0`."""

    strip_params: tuple[str, ...] = field(default=(), name="stripParams")
    """Keys to remove: trimmed, sorted, without duplicates and without `model`."""
    set_params: dict[str, Any] = field(default_factory=dict, name="setParams")
    """Keys to set; `model` is left out."""
    set_params_by_id: dict[str, dict[str, Any]] = field(default_factory=dict, name="setParamsByID")
    """More keys to set, chosen by the name that the client asked for."""


class Compat(Struct, frozen=True, kw_only=True):
    """Switches for servers with habits of their own."""

    ignore_websockets: bool = field(default=False, name="ignoreWebsockets")


class Capabilities(Struct, frozen=True, kw_only=True):
    """What a model can do, for `/v1/models`."""

    in_: tuple[Literal["text", "audio", "image"], ...] = field(default=(), name="in")
    out: tuple[Literal["text", "audio", "image"], ...] = ()
    tools: bool = False
    reranker: bool = False
    context: Annotated[int, Meta(ge=0, description="Context length in tokens.")] = 0


class SleepStep(Struct, frozen=True, kw_only=True):
    """One HTTP call of a sleep or wake sequence."""

    endpoint: str
    method: Literal["GET", "POST", "PUT", "PATCH"] = "POST"
    body: str = ""
    timeout_s: Annotated[int, Meta(ge=0)] = field(default=0, name="timeout")
    """0: the global value."""


class ModelConfig(Struct, frozen=True, kw_only=True):
    """One entry under `models:`."""

    cmd: str = ""
    cmd_stop: str = field(default="", name="cmdStop")
    proxy: str = ""
    aliases: tuple[str, ...] = ()
    env: tuple[str, ...] = ()
    check_endpoint: str = field(default="/health", name="checkEndpoint")
    ttl_s: Annotated[int, Meta(ge=0)] = field(default=0, name="ttl")
    """Idle seconds before the model is stopped; 0: never."""
    unload_timeout_s: Annotated[int, Meta(ge=0)] = field(default=10, name="unloadTimeout")
    unlisted: bool = False
    use_model_name: str = field(default="", name="useModelName")
    name: str = ""
    description: str = ""
    concurrency_limit: int = field(default=0, name="concurrencyLimit")
    """Most requests waiting and served at once; 0 or less: no limit."""
    filters: Filters = field(default_factory=Filters)
    macros: dict[str, str | int | float | bool] = field(default_factory=dict)
    metadata: dict[str, Any] = field(default_factory=dict)
    send_loading_state: bool = field(default=False, name="sendLoadingState")
    timeouts: Timeouts = field(default_factory=Timeouts)
    compat: Compat = field(default_factory=Compat)
    capabilities: Capabilities = field(default_factory=Capabilities)
    sleep_mode: Literal["enable", "disable"] = field(default="disable", name="sleepMode")
    sleep_endpoints: tuple[SleepStep, ...] = field(default=(), name="sleepEndpoints")
    wake_endpoints: tuple[SleepStep, ...] = field(default=(), name="wakeEndpoints")
    # llmsnap's own keys
    pinned: bool = False
    ram_bytes: Bytes | None = field(default=None, name="ram")
    """Memory on device `host` while awake."""
    vram: Bytes | dict[str, Bytes] | None = None
    """Memory on the GPU while awake, or a size a device."""
    min_awake_s: Seconds | None = field(default=None, name="minAwake")
    time_slice_s: Seconds | None = field(default=None, name="timeSlice")
    start_timeout_s: Seconds | None = field(default=None, name="startTimeout")
    """None: the global `healthCheckTimeout`."""
    on_client_disconnect: Literal["cancel", "drain"] = field(
        default="cancel", name="onClientDisconnect"
    )
    stall_timeout_s: Seconds | None = field(default=None, name="stallTimeout")
    """Longest silence of a busy upstream; None: no limit."""
    stop_signal: str = field(default="SIGTERM", name="stopSignal")
    kill: bool = True
    """False: never SIGKILL, for drivers that hate it."""
    response_model_name: Literal["requested", "upstream"] = field(
        default="upstream", name="responseModelName"
    )


class GroupConfig(Struct, frozen=True, kw_only=True):
    """One entry under `groups:`; which models replace each other."""

    swap: bool = True
    exclusive: bool = True
    persistent: bool = False
    members: tuple[str, ...] = ()


class OnStartup(Struct, frozen=True, kw_only=True):
    """What happens once, after the proxy listens."""

    preload: tuple[str, ...] = ()
    """Model ids, aliases resolved, unknown names dropped."""


class Hooks(Struct, frozen=True, kw_only=True):
    """Things to do at certain moments."""

    on_startup: OnStartup = field(default_factory=OnStartup)


class StoreConfig(Struct, frozen=True, kw_only=True):
    """Where activity is kept."""

    path: str | None = None


class PerformanceConfig(Struct, frozen=True, kw_only=True):
    """Sampling of the machine."""

    disabled: bool = False
    every_s: Seconds = field(default=5.0, name="every")


class UpstreamConfig(Struct, frozen=True, kw_only=True):
    """How `/upstream/…` treats browsers."""

    ignore_paths: tuple[str, ...] = field(
        default=(r"\.(js|json|css|png|gif|jpg|jpeg|ico|txt)$",), name="ignorePaths"
    )


class UiActivity(Struct, frozen=True, kw_only=True):
    """Columns of the activity page."""

    session_id: tuple[str, ...] = ("X-Session-ID", "X-Litellm-Session-Id")


class UiConfig(Struct, frozen=True, kw_only=True):
    """Settings of the web page."""

    activity: UiActivity = field(default_factory=UiActivity)


class ScheduleConfig(Struct, frozen=True, kw_only=True):
    """Fairness and patience; see docs/scheduling.md."""

    fair_after_s: Seconds = field(default=5.0, name="fairAfter")
    preempt_after_s: Seconds = field(default=15.0, name="preemptAfter")
    hold_s: Seconds = field(default=10.0, name="hold")
    max_wait_s: Seconds = field(default=600.0, name="maxWait")


class MemoryConfig(Struct, frozen=True, kw_only=True):
    """How much memory there is to share among the models."""

    mode: Literal["off", "auto"] = "auto"
    devices: dict[str, Bytes] = field(default_factory=dict)
    """Budget a device, such as `host: 600MiB` or `gpu0: 24GiB`."""


class Config(Struct, frozen=True, kw_only=True):
    """The whole file."""

    health_check_timeout_s: Annotated[int, Meta(ge=15)] = field(
        default=120, name="healthCheckTimeout"
    )
    global_ttl_s: Annotated[int, Meta(ge=0)] = field(default=0, name="globalTTL")
    unload_timeout_s: Annotated[int, Meta(ge=0)] = field(default=10, name="unloadTimeout")
    start_port: Annotated[int, Meta(ge=1, le=65535)] = field(default=5800, name="startPort")
    log_level: str = field(default="info", name="logLevel")
    log_time_format: str = field(default="", name="logTimeFormat")
    log_to_stdout: Literal["proxy", "upstream", "both", "none"] = field(
        default="proxy", name="logToStdout"
    )
    log_requests: bool = field(default=False, name="logRequests")
    metrics_max_in_memory: int = field(default=1000, name="metricsMaxInMemory")
    capture_buffer_mb: int = field(default=5, name="captureBuffer")
    send_loading_state: bool = field(default=False, name="sendLoadingState")
    include_aliases_in_list: bool = field(default=False, name="includeAliasesInList")
    api_keys: tuple[str, ...] = field(default=(), name="apiKeys")
    macros: dict[str, str | int | float | bool] = field(default_factory=dict)
    models: dict[str, ModelConfig] = field(default_factory=dict)
    groups: dict[str, GroupConfig] = field(default_factory=dict)
    """With the automatic group `(default)`, which always exists."""
    hooks: Hooks = field(default_factory=Hooks)
    store: StoreConfig = field(default_factory=StoreConfig)
    performance: PerformanceConfig = field(default_factory=PerformanceConfig)
    upstream: UpstreamConfig = field(default_factory=UpstreamConfig)
    ui: UiConfig = field(default_factory=UiConfig)
    sleep_request_timeout_s: Annotated[int, Meta(ge=1)] = field(
        default=10, name="sleepRequestTimeout"
    )
    wake_request_timeout_s: Annotated[int, Meta(ge=1)] = field(
        default=10, name="wakeRequestTimeout"
    )
    # llmsnap's own keys
    schedule: ScheduleConfig = field(default_factory=ScheduleConfig)
    memory: MemoryConfig = field(default_factory=MemoryConfig)
    allowed_hosts: tuple[str, ...] = field(default=(), name="allowedHosts")
    max_body_bytes: Bytes = field(default=256 * 1024**2, name="maxBody")

    def names(self) -> dict[str, str]:
        """Return every name a request may use (ids and aliases) with the model id it means.

        An id wins over an alias of the same name.
        """
        aliases = {alias: id_ for id_, model in self.models.items() for alias in model.aliases}
        return aliases | {id_: id_ for id_ in self.models}
