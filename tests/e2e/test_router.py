"""Each call of a llama-server router's clients, answered as a real router answered it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.helpers.llama import server_argv, server_environment
from tests.helpers.ports import free_ports
from tests.helpers.proxy_process import running_proxy
from tests.web.record_router import CALLS, RECORDED, played, put_models

pytestmark = pytest.mark.e2e

THEIRS: Final[dict[str, Any]] = json.loads(RECORDED.read_text())
OTHER_STATUS: Final = {
    "props of none loaded": (400, 409),
    "unload the unknown": (400, 404),
}
"""Where the proxy's own way is the better one: what the router says, and what we say."""
NOT_SAID: Final = ("status.args", "status.preset", "meta.", "info.meta")
"""Commands may hold secrets; what a file holds isn't read for a list."""


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What llmsnap answers over real llama-servers with the same models."""
    return asyncio.run(answered(tmp_path_factory.mktemp("router")))


async def answered(folder: Path) -> dict[str, Any]:
    """All answers, once."""
    put_models(folder)
    models = {
        name: {
            "cmd": " ".join(server_argv(folder / f"{name}.gguf", extra=["--metrics"])),
            "ram": "200MiB",
        }
        for name in ("alpha", "broken")
    }
    config = json.dumps({"models": models, "startPort": free_ports(2), "sleep": {"mode": "off"}})
    async with running_proxy(config, folder, env=server_environment()) as proxy:
        return await played(proxy.session)


@pytest.mark.parametrize("name", [call.name for call in CALLS])
def test_each_call_has_a_routers_answer(name: str, ours: dict[str, Any]) -> None:
    """The same status, and all that the router says, in the same shape."""
    their, our = THEIRS[name], ours[name]

    expected = OTHER_STATUS.get(name, (their["status"], their["status"]))
    assert (their["status"], our["status"]) == expected, our
    if name == "health":  # as llama-swap says it
        assert our["answer"] == ["OK"]
        return
    assert our["type"] == their["type"]
    if their["status"] == 200:
        assert not [*lacking(their["answer"], our["answer"])]
    else:
        assert isinstance(our["answer"]["error"]["message"], str)


def test_words_of_states_are_the_routers(ours: dict[str, Any]) -> None:
    """But for `failed`, which the router's web page knows, and the router says beside it."""

    def words(answers: dict[str, Any]) -> list[tuple[str, str]]:
        return [
            (
                record["id"],
                "failed" if record["status"].get("failed") else record["status"]["value"],
            )
            for name, said in answers.items()
            if name.startswith("list")
            for record in sorted(said["answer"]["data"], key=lambda one: str(one["id"]))
        ]

    assert sorted(words(ours)) == sorted(words(THEIRS))


def test_events_come_in_the_routers_order(ours: dict[str, Any]) -> None:
    """With the same exit codes, and what it says of progress."""

    def told(answers: dict[str, Any]) -> list[tuple[Any, ...]]:
        return [
            (
                event["model"],
                event["event"],
                event["data"]["status"].replace("failed", "unloaded"),
                event["data"].get("exit_code"),
                event["data"].get("progress"),
            )
            for event in answers["events"]
        ]

    assert told(ours) == told(THEIRS)


def lacking(theirs: Any, ours: Any, path: str = "") -> Iterator[str]:
    """Yield where `ours` lacks what `theirs` has, or has it in another type."""
    if any(part in f"{path}." for part in NOT_SAID):
        return
    match theirs, ours:
        case dict(), dict():
            for key, value in theirs.items():
                if key not in ours and not any(part in f"{path}.{key}." for part in NOT_SAID):
                    yield f"{path}.{key}"
                elif key in ours:
                    yield from lacking(value, ours[key], f"{path}.{key}")
        case list(), list():
            for one, other in zip(theirs, ours, strict=False):
                yield from lacking(one, other, path)
        case _ if type(theirs) is not type(ours) and {type(theirs), type(ours)} != {int, float}:
            yield f"{path}: {theirs!r} and not {ours!r}"
