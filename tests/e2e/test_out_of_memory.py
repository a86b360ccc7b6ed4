"""A server that runs out of memory: real ones under a limit, and stand-ins that fail on demand."""

from __future__ import annotations

import json
import os
import shlex
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.fake_models import FakeModels
from tests.helpers.llama import server_argv, server_environment
from tests.helpers.ports import free_ports
from tests.helpers.proxy_process import ProxyProcess, running_proxy
from tests.helpers.waiting import eventually

pytestmark = pytest.mark.e2e

MIB = 1024**2
LIMIT_KIB = 700_000
"""Address space of the server that is to fail: enough for its program, not for its context."""


def limited(model: Path) -> str:
    """The command of a llama-server that asks for gigabytes and may not have them."""
    command = shlex.join([*server_argv(model), "-c", "1000000"]).replace("'${PORT}'", "${PORT}")
    return f"sh -c {shlex.quote(f'ulimit -v {LIMIT_KIB}; exec {command}')}"


async def test_u77_a_real_server_out_of_memory_gets_room_and_one_more_try(
    models: Mapping[str, Path], tmp_path: Path
) -> None:
    """The other model makes room, it is started twice, and the 503 says what was there."""
    small = shlex.join(server_argv(models["a"])).replace("'${PORT}'", "${PORT}")
    text = f"""
startPort: {free_ports(2)}
sleep: {{mode: off}}
memory: {{devices: {{host: 3GiB}}}}
models:
  small: {{cmd: {json.dumps(small)}, ram: 400MiB}}
  big: {{cmd: {json.dumps(limited(models["b"]))}}}
"""
    async with running_proxy(text, tmp_path, env=server_environment()) as proxy:
        await proxy.post("/v1/completions", {"model": "small", "prompt": "x", "max_tokens": 1})
        status, answer = await proxy.post("/v1/completions", {"model": "big", "prompt": "x"})
        first, second = await moves(proxy, "model=big&order=asc", 2)

    message = answer["error"]["message"]
    assert status == 503
    assert "'big' ran out of memory" in message
    assert "3 GiB of host was there" in message
    assert "load_model: failed to create_context" in message  # its very last line may get lost
    assert (first["result"], second["result"]) == ("failed", "failed")
    assert first["departures"] == [{"model": "small", "kind": "stop"}]


async def moves(proxy: ProxyProcess, query: str, count: int) -> list[dict[str, Any]]:
    """The moves that `query` finds, once there are so many: they are written in batches."""
    found: list[dict[str, Any]] = []

    async def there() -> bool:
        _, page = await proxy.get(f"/api/swaps?{query}")
        found[:] = page["data"]
        return len(found) == count

    await eventually(there)
    return found


@pytest.fixture
def small_cgroup() -> Iterator[Path]:
    """A cgroup of 150 MB and without swap, for one process."""
    name = f"llmsnap-test-{os.getpid()}"
    first, second = Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup")
    is_first = (first / "memory.limit_in_bytes").exists()
    cgroup = (first if is_first else second) / name
    limits = (
        {"memory.limit_in_bytes": "150000000", "memory.swappiness": "0"}
        if is_first
        else {"memory.max": "150000000", "memory.swap.max": "0"}
    )
    try:
        cgroup.mkdir()
    except OSError as error:
        pytest.skip(f"no cgroup can be made here: {error}")
    try:
        for file, limit in limits.items():
            if not (cgroup / file).exists():
                pytest.skip(f"{cgroup} doesn't limit memory")
            (cgroup / file).write_text(limit)
        yield cgroup
    finally:
        cgroup.rmdir()


async def test_a_server_that_the_kernel_kills_for_memory_is_told_apart(
    models: Mapping[str, Path], small_cgroup: Path, tmp_path: Path
) -> None:
    """By the kernel's own count: it says nothing itself, and is tried once more."""
    argv = [*server_argv(models["a"]), "-c", "100000"]  # 390 MB of KV cache
    command = shlex.join(argv).replace("'${PORT}'", "${PORT}")
    script = f"echo $$ > {small_cgroup}/cgroup.procs; exec {command}"
    fake = FakeModels(tmp_path, head="memory: {devices: {host: 3GiB}}")
    fake.add_command("a", f"sh -c {shlex.quote(script)}")
    async with running_proxy(fake.yaml, tmp_path, env=server_environment()) as proxy:
        status, answer = await proxy.post("/v1/completions", {"model": "a", "prompt": "x"})
        results = [move["result"] for move in await moves(proxy, "kind=start", 2)]

    assert status == 503
    assert "'a' ran out of memory" in answer["error"]["message"]
    assert "killed by SIGKILL" in answer["error"]["message"]
    assert results == ["failed", "failed"]


def kept(folder: Path) -> dict[str, int]:
    """What is kept of the memory of `a`."""
    with closing(sqlite3.connect(folder / "state" / "llmsnap.db")) as database:
        rows = database.execute("SELECT bytes FROM footprints WHERE model = 'a'").fetchall()
    return dict(json.loads(rows[0][0])) if rows else {}


async def need(proxy: ProxyProcess) -> dict[str, Any]:
    """What the scheduler counts with for `a`."""
    return dict((await proxy.models())["a"]["need_bytes"] or {})


async def test_what_was_learned_is_raised_and_kept(tmp_path: Path) -> None:
    """By 15 %, also for the next proxy; the tries are two, and nobody waits for a third."""
    flag = tmp_path / "full"
    fake = FakeModels(tmp_path, head="memory: {devices: {host: 2GiB}}")
    serve = fake.command("a")
    script = f"if [ -e {flag} ]; then echo cudaMalloc failed; exit 1; fi; exec {serve}"
    fake.add_command("a", f"sh -c {shlex.quote(script)}")
    text = fake.yaml
    async with running_proxy(text, tmp_path) as proxy:
        assert (await proxy.post("/v1/completions", {"model": "a", "prompt": "x"}))[0] == 200

        async def learned() -> bool:
            return bool(await need(proxy))

        await eventually(learned)
        seen = (await need(proxy))["host"]
        assert 5 * MIB < seen < 200 * MIB
        await proxy.post("/api/models/unload/a", {})
        flag.touch()
        status, answer = await proxy.post("/v1/completions", {"model": "a", "prompt": "x"})
        raised = (await need(proxy))["host"]
        assert status == 503
        assert "'a' ran out of memory" in answer["error"]["message"]
        assert raised == pytest.approx(1.15**2 * seen, rel=0.05)
        results = [move["result"] for move in await moves(proxy, "kind=start", 3)]
        assert results == ["failed", "failed", "ok"]
    assert kept(tmp_path) == {"host": raised}
    async with running_proxy(text, tmp_path) as proxy:

        async def recalled() -> bool:
            return await need(proxy) == {"host": raised}

        await eventually(recalled)
