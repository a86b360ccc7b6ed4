"""Makes the dashboards: `python deploy/grafana/make.py [FOLDER]`. A test holds the files to it."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from panels import OF, ON, WIDTH, Panel, Query, dashboard, increase, quantiles, rate

SWAPS = [
    Panel(
        "Swaps within 2 seconds",
        "Of the swaps in the window, the share that took less than 2 s.",
        [
            Query(
                increase("llmsnap_swap_duration_seconds_bucket", more=',le="2.0"')
                + " / "
                + increase("llmsnap_swap_duration_seconds_count"),
                "share",
            )
        ],
        "percentunit",
        kind="stat",
        width=4,
        thresholds=((None, "red"), (0.8, "yellow"), (0.95, "green")),
    ),
    Panel(
        "Swap time, median",
        "From the first order to make room until the model is up.",
        [
            Query(
                "histogram_quantile(0.5, "
                + increase("llmsnap_swap_duration_seconds_bucket", "le")
                + ")",
                "p50",
            )
        ],
        "s",
        kind="stat",
        width=4,
        thresholds=((None, "green"), (2, "yellow"), (10, "red")),
    ),
    Panel(
        "Swaps",
        "Ways up in the window, by kind and result. A wake keeps the conversation.",
        [Query(increase("llmsnap_swaps_total", "kind, result"), "{{kind}} {{result}}")],
        "short",
        kind="stat",
        width=16,
    ),
    Panel(
        "Swap time",
        "How long swaps take, by model and driver; the driver is none for a start.",
        quantiles("llmsnap_swap_duration_seconds", "model, driver", "{{model}} {{driver}}"),
        "s",
        width=16,
        height=9,
    ),
    Panel(
        "Where a swap's time goes",
        "Mean seconds a phase, over the requests that had to wait for a model.",
        [
            Query(
                increase("llmsnap_phase_duration_seconds_sum", "phase", ',phase!~"prefill|pause"')
                + " / ignoring (phase) group_left () "
                + increase(
                    "llmsnap_time_to_first_token_seconds_count", more=',start=~"woken|started"'
                ),
                "{{phase}}",
            )
        ],
        "s",
        width=8,
        height=9,
        stacked=True,
    ),
    Panel(
        "Time to fall asleep",
        "How long it takes to put a model to sleep, by driver.",
        quantiles("llmsnap_sleep_duration_seconds", "driver", "{{driver}}"),
        "s",
    ),
    Panel(
        "Evictions",
        "Models that were put to sleep or stopped in the window, by reason. room: another model "
        "was wanted; idle, ttl: nobody used it; tier: others sleep where it slept.",
        [Query(increase("llmsnap_evictions_total", "reason"), "{{reason}}")],
        "short",
        stacked=True,
    ),
    Panel(
        "Pre-emptions",
        "Models that were put to sleep in the middle of answers, so that others get their turn.",
        [Query(increase("llmsnap_preemptions_total", "model"), "{{model}}")],
        "short",
        width=8,
    ),
    Panel(
        "Ends of processes",
        "Why model servers ended in the window.",
        [Query(increase("llmsnap_upstream_exits_total", "reason"), "{{reason}}")],
        "short",
        width=8,
    ),
    Panel(
        "Pauses",
        "Mean seconds that a paused answer stood still.",
        [
            Query(
                increase("llmsnap_phase_duration_seconds_sum", "model", ',phase="pause"')
                + " / "
                + increase("llmsnap_phase_duration_seconds_count", "model", ',phase="pause"'),
                "{{model}}",
            )
        ],
        "s",
        width=8,
    ),
    Panel(
        "States",
        "What state each model was in.",
        [Query(f"max by (model, state) (llmsnap_model_state{{{OF}}}) == 1", "{{model}} {{state}}")],
        "short",
        kind="status-history",
        width=WIDTH,
    ),
]

ON_DEVICE = f'{ON},device=~"$device"'
USED = f"sum by (device) (llmsnap_device_memory_used_bytes{{{ON_DEVICE}}})"
OURS = f"sum by (device) (llmsnap_model_memory_bytes{{{ON_DEVICE}}})"

MEMORY = [
    Panel(
        "Free",
        "Memory that an allocation would see, by device.",
        [Query(f"sum by (device) (llmsnap_device_memory_free_bytes{{{ON_DEVICE}}})", "{{device}}")],
        "bytes",
        kind="stat",
        width=8,
        height=5,
    ),
    Panel(
        "Used",
        "Share of each device that isn't free.",
        [
            Query(
                f"{USED} / sum by (device) (llmsnap_device_memory_total_bytes{{{ON_DEVICE}}})",
                "{{device}}",
            )
        ],
        "percentunit",
        kind="gauge",
        width=8,
        height=5,
        thresholds=((None, "green"), (0.9, "yellow"), (0.97, "red")),
    ),
    Panel(
        "Kept by drivers",
        "Memory that the GPU's driver keeps for itself.",
        [
            Query(
                f"sum by (device) (llmsnap_device_memory_reserved_bytes{{{ON_DEVICE}}})",
                "{{device}}",
            )
        ],
        "bytes",
        kind="stat",
        width=8,
        height=5,
    ),
    Panel(
        "Who holds it",
        "Each device's memory: what each model holds, what other programs do, what is free. Shared "
        "pages of files count for each model that maps them.",
        [
            Query(
                "sum by (device, model) "
                f'(llmsnap_model_memory_bytes{{{ON_DEVICE},model=~"$model"}})',
                "{{device}} {{model}}",
            ),
            Query(f"clamp_min({USED} - ({OURS} or {USED} * 0), 0)", "{{device}} others"),
            Query(
                f"sum by (device) (llmsnap_device_memory_free_bytes{{{ON_DEVICE}}})",
                "{{device}} free",
            ),
        ],
        "bytes",
        width=WIDTH,
        height=11,
        stacked=True,
    ),
    Panel(
        "Models by tier",
        "What each model holds where: on GPUs while awake, in RAM or in swap while it sleeps.",
        [
            Query(
                f"sum by (model, device) (llmsnap_model_memory_bytes{{{OF}}})",
                "{{model}} {{device}}",
            )
        ],
        "bytes",
        width=WIDTH,
        height=9,
        stacked=True,
    ),
    Panel(
        "GPU utilization",
        "Share of the time in which the GPU computed.",
        [Query(f"llmsnap_gpu_utilization_ratio{{{ON_DEVICE}}}", "{{device}} {{name}}")],
        "percentunit",
        width=6,
    ),
    Panel(
        "GPU power",
        "What the GPU draws.",
        [Query(f"llmsnap_gpu_power_watts{{{ON_DEVICE}}}", "{{device}} {{name}}")],
        "watt",
        width=6,
    ),
    Panel(
        "GPU temperature",
        "In degrees Celsius.",
        [Query(f"llmsnap_gpu_temperature_celsius{{{ON_DEVICE}}}", "{{device}} {{name}}")],
        "celsius",
        width=6,
        thresholds=((None, "green"), (70, "yellow"), (85, "red")),
    ),
    Panel(
        "PCIe link",
        "Generation and lanes as they are now: they bound how fast a model can wake. An idle link "
        "falls back to the first generation.",
        [
            Query(f"llmsnap_pcie_link_generation{{{ON_DEVICE}}}", "{{device}} generation"),
            Query(f"llmsnap_pcie_link_width{{{ON_DEVICE}}}", "{{device}} lanes"),
        ],
        "short",
        width=6,
    ),
]

SERVING = [
    Panel(
        "Requests",
        "Requests that ended, by model.",
        [Query(rate("llmsnap_requests_total", "model"), "{{model}}")],
        "reqps",
        width=8,
    ),
    Panel(
        "Errors",
        "Requests in the window that ended with an error, by status. 499: the client left; 429: "
        "over concurrencyLimit; 503: no room in time.",
        [
            Query(
                increase("llmsnap_requests_total", "model, code", ',code=~"[45].."'),
                "{{model}} {{code}}",
            )
        ],
        "short",
        width=8,
    ),
    Panel(
        "In flight and queued",
        "Requests that are being served, and those that wait for their model.",
        [
            Query(f"sum by (model) (llmsnap_inflight_requests{{{OF}}})", "{{model}} in flight"),
            Query(f"sum by (model) (llmsnap_queued_requests{{{OF}}})", "{{model}} queued"),
        ],
        "short",
        width=8,
        stacked=True,
    ),
    Panel(
        "Time to first token",
        "By how the model was found: awake, woken or started for it, resumed after a pause.",
        quantiles("llmsnap_time_to_first_token_seconds", "start", "{{start}}"),
        "s",
    ),
    Panel(
        "Duration",
        "Arrival to the last byte of the answer.",
        quantiles("llmsnap_request_duration_seconds", "model", "{{model}}"),
        "s",
    ),
    Panel(
        "Prompt tokens from cache",
        "Of the prompts' tokens, the share that didn't have to be computed.",
        [
            Query(
                increase("llmsnap_prompt_tokens_total", "model", ',source="cached"')
                + " / "
                + increase("llmsnap_prompt_tokens_total", "model"),
                "{{model}}",
            )
        ],
        "percentunit",
        width=8,
    ),
    Panel(
        "Tokens",
        "Tokens a second: of answers, of prompts computed, of prompts out of the cache.",
        [
            Query(rate("llmsnap_generated_tokens_total", "model"), "{{model}} generated"),
            Query(rate("llmsnap_prompt_tokens_total", "model, source"), "{{model}} {{source}}"),
        ],
        "short",
        width=8,
    ),
    Panel(
        "Conversations that came back",
        "Saved conversations that were restored, and what that was worth.",
        [
            Query(
                increase("llmsnap_session_restores_total", "model, result"), "{{model}} {{result}}"
            ),
            Query(
                increase("llmsnap_session_saves_total", "model, result"),
                "{{model}} save {{result}}",
            ),
        ],
        "short",
        width=8,
    ),
    Panel(
        "Speed of the models",
        "Tokens a second while the server was at it, as it says itself.",
        [
            Query(
                increase("llmsnap_generated_tokens_total", "model")
                + " / "
                + increase("llmsnap_generation_seconds_total", "model"),
                "{{model}} generates",
            ),
            Query(
                increase("llmsnap_prompt_tokens_total", "model", ',source="computed"')
                + " / "
                + increase("llmsnap_prompt_seconds_total", "model"),
                "{{model}} reads",
            ),
        ],
        "short",
        width=8,
    ),
    Panel(
        "Phases",
        "Mean seconds a phase over all requests: what they wait for.",
        [
            Query(
                increase("llmsnap_phase_duration_seconds_sum", "phase")
                + " / ignoring (phase) group_left () "
                + increase("llmsnap_request_duration_seconds_count"),
                "{{phase}}",
            )
        ],
        "s",
        width=16,
        stacked=True,
    ),
    Panel(
        "The proxy itself",
        "Memory of llmsnap, without the models' servers.",
        [
            Query(
                f"process_resident_memory_bytes{{{ON}}} and on (job, instance) llmsnap_build_info",
                "{{instance}} memory",
            ),
        ],
        "bytes",
        width=8,
    ),
]

DEVICE = ("device", "Device", f"label_values(llmsnap_device_memory_total_bytes{{{ON}}}, device)")
DASHBOARDS = {
    "swaps": ("llmsnap: swaps", SWAPS, []),
    "memory": ("llmsnap: memory", MEMORY, [DEVICE]),
    "serving": ("llmsnap: serving", SERVING, []),
}


def texts() -> dict[str, str]:
    """Return each file's text by its name."""
    return {
        f"{name}.json": json.dumps(dashboard(name, *parts), indent=1) + "\n"
        for name, parts in DASHBOARDS.items()
    }


def main() -> None:
    """Write the files, by default to where Grafana finds them."""
    folder = Path(sys.argv[1]) if sys.argv[1:] else Path(__file__).parent / "dashboards"
    for name, text in texts().items():
        (folder / name).write_text(text)


if __name__ == "__main__":
    main()
