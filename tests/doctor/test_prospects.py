"""How each model would sleep, and why not otherwise."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from llmsnap.config.loader import loads
from llmsnap.doctor.prospects import Ground, Prospect, prospects
from tests.doctor.places import GIB, gpu

BOTH = Ground(gpus=(gpu(),), swap_bytes=8 * GIB)
"""A GPU whose driver can, and swap."""
NO_CUDA = Ground(cuda_fault="there is no driver", swap_bytes=8 * GIB)
STEPS = "sleepEndpoints: [{endpoint: /s}], wakeEndpoints: [{endpoint: /w}]"


async def prospect(
    keys: str = "",
    ground: Ground = BOTH,
    *,
    head: str = "",
    command: str = "sh ${PORT}",
    running: Mapping[str, Any] | None = None,
) -> Prospect:
    """That of a model with these keys in its configuration."""
    text = f"{head}\nmodels: {{m: {{cmd: '{command}', {keys}}}}}"
    config = loads(text, environ={}).config
    (found,) = await prospects(config, {}, ground, {"m": running} if running else {})
    return found


@pytest.mark.parametrize(
    ("keys", "ground", "drivers"),
    [
        ("", BOTH, ("cuda", "pageout")),
        ("vram: 9GiB", BOTH, ("cuda",)),
        ("ram: 9GiB", BOTH, ("cuda",)),
        ("", NO_CUDA, ("pageout",)),
        ("vram: 9GiB", NO_CUDA, ()),
        (STEPS, NO_CUDA, ("endpoints",)),
        (f"{STEPS}, sleepMode: cuda", BOTH, ("cuda",)),
        ("sleepMode: pageout", BOTH, ("pageout",)),
        ("sleepMode: off", BOTH, ()),
    ],
)
async def test_the_drivers_that_it_may_get(
    keys: str, ground: Ground, drivers: tuple[str, ...]
) -> None:
    """In the order of `auto`, or the one that `sleepMode` names."""
    assert (await prospect(keys, ground)).drivers == drivers


async def test_only_those_who_would_be_asked_refuse() -> None:
    """The first that works ends it."""
    assert (await prospect(STEPS, NO_CUDA)).refusals == {}
    assert set((await prospect("", NO_CUDA)).refusals) == {"endpoints", "cuda"}
    assert (await prospect("sleepMode: off")).refusals == {}


@pytest.mark.parametrize(
    ("driver", "reason", "found"),
    [
        ("cuda", "GGML_CUDA_P2P is set", {"keys": "env: [GGML_CUDA_P2P=1]"}),
        ("cuda", "it can use no GPU", {"keys": 'env: ["CUDA_VISIBLE_DEVICES="]'}),
        ("cuda", "it can use 2 GPUs", {"ground": Ground(gpus=(gpu(), gpu("gpu1")))}),
        ("pageout", "swap is short: its `ram` is 9 GiB", {"keys": "ram: 9GiB"}),
        ("pageout", "its `vram` says", {"keys": "vram: 9GiB"}),
        ("pageout", "docker listens", {"command": "docker run -p ${PORT}:80 x"}),
        (
            "pageout",
            "its server isn't on this machine, but on 192.0.2.7",
            {"keys": "proxy: http://192.0.2.7"},
        ),
        ("pageout", "there is no swap", {"ground": Ground(pageout_fault="there is no swap")}),
    ],
)
async def test_says_what_is_in_the_way(driver: str, reason: str, found: dict[str, Any]) -> None:
    """As far as it shows before the model runs."""
    assert (await prospect(**found)).refusals[driver].startswith(reason)


async def test_several_gpus_may_be_allowed() -> None:
    """By `sleep.multiGpu`."""
    two = Ground(gpus=(gpu(), gpu("gpu1")))

    assert "cuda" in (await prospect("", two, head="sleep: {multiGpu: true}")).drivers


async def test_a_running_proxy_knows_better() -> None:
    """What it found of the process is told, not what was to be expected."""
    refusals = {"cuda": "no process of it holds memory of an NVIDIA GPU"}
    seen = await prospect(running={"driver": "pageout", "sleep_refusals": refusals})
    stopped = await prospect(running={"driver": None, "sleep_refusals": {}})
    refused = await prospect(running={"driver": None, "sleep_refusals": {"pageout": "no swap"}})

    assert (seen.seen, seen.drivers, seen.refusals) == (True, ("pageout",), refusals)
    assert not stopped.seen
    assert (refused.seen, refused.drivers) == (True, ())


@pytest.mark.parametrize(
    ("drivers", "words"),
    [
        ((), "stop and start"),
        (("pageout",), "pageout"),
        (("cuda", "pageout"), "cuda if it uses a GPU, else pageout"),
    ],
)
def test_in_words(drivers: tuple[str, ...], words: str) -> None:
    """For the table."""
    assert Prospect(model="m", mode="auto", drivers=drivers).words == words
