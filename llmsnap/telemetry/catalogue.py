"""Every metric there is: name, kind, labels and meaning. docs/metrics.md is held to this."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from llmsnap.core.cause import Why

_QUICK: Final = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300)
_SWAPS: Final = (0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1, 1.5, 2, 3, 5, 10, 20, 30, 60, 120)
_WHOLE: Final = (0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600)
_WHY_THEY_COME: Final = (Why.REQUESTED, Why.PINNED, Why.DEFAULT, Why.RESUMED)
_WHY_THEY_GO: Final = tuple(why for why in Why if why not in _WHY_THEY_COME)


@dataclass(frozen=True, eq=False, slots=True)
class Metric:
    """One metric, as Prometheus sees it."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    labels: tuple[str, ...]
    help: str
    buckets: tuple[float, ...] = ()
    """Upper bounds, of a histogram."""


# ---- requests ----------------------------------------------------------------------------------

REQUESTS: Final = Metric(
    "llmsnap_requests_total",
    "counter",
    ("model", "path", "code"),
    "Requests that have ended; code 499: the client left before an answer had begun",
)
REQUEST_DURATION: Final = Metric(
    "llmsnap_request_duration_seconds",
    "histogram",
    ("model",),
    "Arrival to the last byte of the answer",
    _WHOLE,
)
FIRST_TOKEN: Final = Metric(
    "llmsnap_time_to_first_token_seconds",
    "histogram",
    ("model", "start"),
    "Arrival to the first byte of the answer's body; start: awake, woken, started, resumed",
    _QUICK,
)
PHASE_DURATION: Final = Metric(
    "llmsnap_phase_duration_seconds",
    "histogram",
    ("model", "phase"),
    "What requests waited for; phases that a request had no part in aren't counted",
    _QUICK,
)

# ---- tokens ------------------------------------------------------------------------------------

PROMPT_TOKENS: Final = Metric(
    "llmsnap_prompt_tokens_total",
    "counter",
    ("model", "source"),
    "Tokens of prompts; source: computed, cached",
)
GENERATED_TOKENS: Final = Metric(
    "llmsnap_generated_tokens_total", "counter", ("model",), "Tokens of answers"
)
PROMPT_SECONDS: Final = Metric(
    "llmsnap_prompt_seconds_total",
    "counter",
    ("model",),
    "What servers say that computing the prompts took them",
)
GENERATION_SECONDS: Final = Metric(
    "llmsnap_generation_seconds_total",
    "counter",
    ("model",),
    "What servers say that generating the answers took them",
)

# ---- swaps -------------------------------------------------------------------------------------

SWAPS: Final = Metric(
    "llmsnap_swaps_total",
    "counter",
    ("model", "kind", "driver", "result"),
    "Ways up; kind: wake, start; driver: none for a start; result: ok, failed, refused, cancelled",
)
SWAP_DURATION: Final = Metric(
    "llmsnap_swap_duration_seconds",
    "histogram",
    ("model", "kind", "driver"),
    "The first victim is told to go until the model is up",
    _SWAPS,
)
SLEEP_DURATION: Final = Metric(
    "llmsnap_sleep_duration_seconds",
    "histogram",
    ("model", "driver"),
    "A model is told to sleep until it is asleep",
    _SWAPS,
)
EVICTIONS: Final = Metric(
    "llmsnap_evictions_total",
    "counter",
    ("model", "reason"),
    f"Models that were put to sleep or stopped; reason: {', '.join(_WHY_THEY_GO)}",
)
PREEMPTIONS: Final = Metric(
    "llmsnap_preemptions_total",
    "counter",
    ("model",),
    "Models that were put to sleep in the middle of answers",
)
EXITS: Final = Metric(
    "llmsnap_upstream_exits_total",
    "counter",
    ("model", "reason"),
    "Ends of processes; reason: ordered, crashed, start_failed, out_of_memory",
)

# ---- conversations -----------------------------------------------------------------------------

SESSION_SAVES: Final = Metric(
    "llmsnap_session_saves_total",
    "counter",
    ("model", "result"),
    "Conversations that were to be saved; result: saved, failed",
)
SESSION_RESTORES: Final = Metric(
    "llmsnap_session_restores_total",
    "counter",
    ("model", "result"),
    "Conversations that were to come back; result: used, useless, refused, failed",
)
SESSION_BYTES: Final = Metric(
    "llmsnap_session_bytes_total",
    "counter",
    ("model", "op"),
    "What saves wrote, and restores that were used read; op: save, restore",
)

# ---- as it is now ------------------------------------------------------------------------------

BUILD: Final = Metric(
    "llmsnap_build_info", "gauge", ("version", "python"), "1; the labels say what runs"
)
MODEL_STATE: Final = Metric(
    "llmsnap_model_state",
    "gauge",
    ("model", "state"),
    "1 for the state that the model is in, 0 for all others",
)
MODEL_MEMORY: Final = Metric(
    "llmsnap_model_memory_bytes",
    "gauge",
    ("model", "device"),
    "What the model holds; device: gpu0, gpu1, host (its RAM), swap",
)
IN_FLIGHT: Final = Metric(
    "llmsnap_inflight_requests", "gauge", ("model",), "Requests that are being served"
)
QUEUED: Final = Metric("llmsnap_queued_requests", "gauge", ("model",), "Requests that wait")

_OF_DEVICE: Final = ("device", "name", "uuid")

DEVICE_TOTAL: Final = Metric(
    "llmsnap_device_memory_total_bytes", "gauge", _OF_DEVICE, "Memory that the device has"
)
DEVICE_USED: Final = Metric(
    "llmsnap_device_memory_used_bytes", "gauge", _OF_DEVICE, "Memory that isn't free"
)
DEVICE_FREE: Final = Metric(
    "llmsnap_device_memory_free_bytes", "gauge", _OF_DEVICE, "Memory that an allocation would see"
)
DEVICE_RESERVED: Final = Metric(
    "llmsnap_device_memory_reserved_bytes",
    "gauge",
    _OF_DEVICE,
    "Memory that the driver keeps for itself, which is part of what is used",
)
GPU_UTILIZATION: Final = Metric(
    "llmsnap_gpu_utilization_ratio",
    "gauge",
    _OF_DEVICE,
    "Share of the last moments in which the GPU computed",
)
GPU_POWER: Final = Metric(
    "llmsnap_gpu_power_watts", "gauge", _OF_DEVICE, "Power that the GPU draws"
)
GPU_TEMPERATURE: Final = Metric(
    "llmsnap_gpu_temperature_celsius", "gauge", _OF_DEVICE, "Temperature of the GPU"
)
PCIE_GENERATION: Final = Metric(
    "llmsnap_pcie_link_generation",
    "gauge",
    _OF_DEVICE,
    "Generation at which the link runs now; idle GPUs fall back",
)
PCIE_WIDTH: Final = Metric(
    "llmsnap_pcie_link_width", "gauge", _OF_DEVICE, "Lanes over which the link runs now"
)

ALL: Final = tuple(metric for metric in list(globals().values()) if isinstance(metric, Metric))
"""In the order in which they are shown."""
