"""Estimates beside what real llama-servers hold; the whole table is in docs/memory.md."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.benchmarks.estimates import EXPERTS, Q4, Row, estimated, gemma, measured_bytes
from tests.helpers.llama import server_argv, server_environment, tiny_gguf
from tests.helpers.ports import free_ports
from tests.helpers.proxy_process import running_proxy

pytestmark = pytest.mark.e2e


@pytest.mark.parametrize(
    "row",
    [
        Row("plain", tiny_gguf, "-c 512 -np 1"),
        Row("several slots", tiny_gguf, "-c 1024 -np 2 -ub 256 -fa off --cache-ram 0"),
        Row("experts", EXPERTS, "-c 512 -np 1 --no-mmap"),
        Row("a cache of fewer bits", tiny_gguf, "-c 512 -np 1 -ctk q8_0 -ctv q8_0", True),
        Row("weights of fewer bits", Q4, "-c 512 -np 1 --no-repack", True),
        Row("windows", gemma, "-c 256 -np 1 --no-repack", True),
    ],
    ids=lambda row: row.model,
)
def test_an_estimate_is_never_below_and_little_above(row: Row) -> None:
    """At most 15 %, the process itself included."""
    guess, measured = estimated(row).need["host"], measured_bytes(row)

    assert measured <= guess <= 1.15 * measured, f"{guess >> 20} MiB for {measured >> 20} MiB"


async def test_models_that_declare_nothing_are_up_together_from_the_first_load(
    models: Mapping[str, Path], tmp_path: Path
) -> None:
    """Two fit by their estimates; without them each would load alone until it was seen.

    Three don't fit, whether what two of them hold was measured by then or not.
    """
    lines = ["memory: {devices: {host: 125MiB}}", "sleep: {mode: off}", "schedule: {hold: 0}"]
    lines += [f"startPort: {free_ports(3)}", "models:"]
    for name, path in models.items():
        lines += [f"  {name}:", f"    cmd: {' '.join(server_argv(path))}"]
    config = "\n".join(lines)

    async with running_proxy(config, tmp_path, env=server_environment()) as proxy:
        for name in "ab":
            await proxy.chat(name)
        assert {await proxy.state(name) for name in "ab"} == {"ready"}

        await proxy.chat("c")
        assert sorted([await proxy.state(name) for name in "abc"]).count("ready") == 2
