"""What engines are known to do to saved conversations, at a server that does it when told."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.ports import free_ports
from tests.helpers.proxy_process import ProxyProcess, running_proxy
from tests.helpers.waiting import eventually

pytestmark = pytest.mark.e2e

LONG = "a conversation that is worth keeping " * 20


@dataclass
class Place:
    """Where one model, its server's journal and its saved conversations are."""

    tmp: Path
    told: list[dict[str, Any]] = field(default_factory=list)
    """The conversation so far."""

    @property
    def folder(self) -> Path:
        """The saved conversations."""
        return self.tmp / "saved"

    def files(self) -> list[str]:
        """What is saved."""
        return sorted(path.name for path in self.folder.glob("*.kv"))

    def journal(self) -> list[dict[str, Any]]:
        """What reached the server, oldest first."""
        path = self.tmp / "journal"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def events(self) -> list[str]:
        """The same in words."""
        return [entry["event"] for entry in self.journal()]

    @asynccontextmanager
    async def proxy(self, fault: str = "", *, np: int = 1) -> AsyncIterator[ProxyProcess]:
        """Run a proxy with a server that has this fault."""
        fake = f"{sys.executable} -m tests.helpers.fake_llama --host 127.0.0.1 -np {np}"
        config = f"""
            startPort: {free_ports(1)}
            memory: {{mode: off}}
            sleep: {{mode: off}}
            sessions: {{dir: {self.folder}}}
            models:
              a:
                engine: llama-server
                cmd: {fake} --port ${{PORT}} --slot-save-path {self.folder}/
                env: [FAKE_FAULT={fault}, FAKE_JOURNAL={self.tmp / "journal"}]
        """
        async with running_proxy(config, self.tmp) as proxy:
            yield proxy

    async def say(self, proxy: ProxyProcess, text: str = "go on") -> int:
        """Go on with the conversation; return how many of its tokens weren't read again."""
        self.told.append({"role": "user", "content": text})
        answer = await proxy.chat("a", messages=self.told)
        self.told.append(answer["choices"][0]["message"])
        return int(answer["timings"]["cache_n"])

    async def save(self, proxy: ProxyProcess, text: str = LONG) -> None:
        """Have the conversation saved, and its process ended."""
        await self.say(proxy, text)
        await self.unload(proxy)

    async def unload(self, proxy: ProxyProcess) -> None:
        """End the process."""
        await proxy.post("/api/models/unload")
        await proxy.becomes("a", "stopped")


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """A folder of its own."""
    return Place(tmp_path)


async def outcomes(proxy: ProxyProcess) -> dict[str, int]:
    """What became of saves and restores, as the metrics have it."""
    async with proxy.session.get("/metrics") as answer:
        lines = (await answer.text()).splitlines()
    found = {}
    for line in lines:
        if line.startswith(("llmsnap_session_saves_total{", "llmsnap_session_restores_total{")):
            name, _, rest = line.partition("{")
            labels, _, count = rest.partition("} ")
            if float(count):
                result = labels.partition('result="')[2].partition('"')[0]
                found[f"{name.split('_')[2]} {result}"] = int(float(count))
    return found


async def come_to(proxy: ProxyProcess, expected: dict[str, int]) -> None:
    """Wait until saves and restores have come to this; answers are judged soon after their end."""

    async def has() -> bool:
        return await outcomes(proxy) == expected

    await eventually(has, what=f"outcomes {expected}")


async def test_a_conversation_is_saved_and_restored(place: Place) -> None:
    """Without a fault the server does as the real one; the restore is between start and request."""
    async with place.proxy() as proxy:
        await place.save(proxy)
        assert await place.say(proxy) > len(LONG)
        await come_to(proxy, {"saves saved": 1, "restores used": 1})
    assert place.events()[:5] == ["request", "save", "save answered", "restore", "restore answered"]


async def test_u123_e06_a_slot_that_was_cleared_takes_nothings_place(place: Place) -> None:
    """Idle slots are cleared by default: what was saved before is still there, and comes back."""
    async with place.proxy() as proxy:
        await place.save(proxy)
    (good,) = place.files()
    async with place.proxy("cleared") as proxy:
        held = await place.say(proxy)
        await place.save(proxy, "and on")
        assert place.files() == [good]
        assert await place.say(proxy) >= held
        await proxy.logs("0 tokens were saved")


async def test_u125_e11_nothing_is_served_after_a_failed_restore(place: Place) -> None:
    """The process that refused is ended; the request goes to another one."""
    async with place.proxy() as proxy:
        await place.save(proxy)
    (bad,) = place.files()
    async with place.proxy("refuses") as proxy:
        assert await place.say(proxy) == 0
        journal = place.journal()
    restore, request = journal[-2:]
    assert (restore["event"], request["event"]) == ("restore answered", "request")
    assert restore["pid"] != request["pid"]
    assert bad not in place.files()


async def test_u126_e01_e02_e03_useless_restores_end_the_saving(place: Place) -> None:
    """It says that it restored, and reads all again: nothing is saved any more, and it's said."""
    async with place.proxy("useless") as proxy:
        await place.save(proxy)
        assert await place.say(proxy) == 0
        await come_to(proxy, {"saves saved": 1, "restores useless": 1})
        await place.save(proxy, "and on")
        assert place.events().count("save") == 1
        await proxy.logs("restores are useless", times=1)
        _, told = await proxy.get("/api/sessions")
        assert "restores are useless" in told["refusals"]["a"]
    assert place.files() == []


async def test_u127_e17_no_request_overtakes_a_restore(place: Place) -> None:
    """All wait for it, also those of other conversations that want the same slot."""
    async with place.proxy("slow") as proxy:
        await place.save(proxy)
        before = len(place.journal())
        more = [*place.told, {"role": "user", "content": "go on"}]
        asked = [proxy.chat("a", messages=more), *(proxy.chat("a", f"{n} other") for n in range(3))]
        answers = await asyncio.gather(*asked)
    events = place.events()[before:]
    first = events.index("restore")
    assert events[first : first + 2] == ["restore", "restore answered"]
    assert answers[0]["timings"]["cache_n"] > len(LONG)
    assert events.count("request") == 4


async def test_u129_e21_orders_name_the_file_and_the_model(place: Place) -> None:
    """A router in the server's place needs to be told the model in the body."""
    async with place.proxy() as proxy:
        await place.save(proxy)
        await place.say(proxy)
    orders = [entry for entry in place.journal() if entry["event"] in ("save", "restore")]
    assert {entry["event"] for entry in orders} == {"save", "restore"}
    assert all(entry["body"].keys() == {"filename", "model"} for entry in orders)
    assert {entry["body"]["model"] for entry in orders} == {"a"}


async def test_u133_e24_erase_isnt_taken_for_freeing_memory(place: Place) -> None:
    """It frees none: a model that has to go is stopped."""
    async with place.proxy() as proxy:
        await place.save(proxy)
        await place.save(proxy, "go on")
        await proxy.becomes("a", "stopped")
    assert "erase" not in place.events()


async def test_e04_a_server_that_cant_is_asked_once(place: Place) -> None:
    """501, as with pictures in older builds: requests are served, and it's said why."""
    async with place.proxy("unsupported") as proxy:
        await place.save(proxy)
        _, told = await proxy.get("/api/sessions")
        assert place.events().count("save") == 1
        assert await place.say(proxy) == 0
    assert "501" in told["refusals"]["a"]


async def test_e05_a_server_that_dies_of_a_save_isnt_asked_for_ever(place: Place) -> None:
    """Twice may be chance; then no more is saved of it, and it is said why."""
    async with place.proxy("dies") as proxy:
        for _ in range(4):
            await place.save(proxy)
        _, told = await proxy.get("/api/sessions")
    assert place.events().count("save") == 2
    assert "ended while" in told["refusals"]["a"]


async def test_e07_the_slot_is_named_where_that_is_honoured(place: Place) -> None:
    """`/v1/messages` drops it; there the server finds the conversation by itself."""
    async with place.proxy(np=2) as proxy:
        await place.save(proxy)
        assert await place.say(proxy) > len(LONG)
        await place.unload(proxy)
        first = {"role": "user", "content": LONG}
        for text in ("", "go on"):
            more = [{"role": "user", "content": text}] if text else []
            asked = {"model": "a", "max_tokens": 8, "messages": [first, *more]}
            status, _ = await proxy.post("/v1/messages", asked)
            assert status == 200
            await place.unload(proxy)
    requests = [entry["body"] for entry in place.journal() if entry["event"] == "request"]
    assert ["id_slot" in body for body in requests] == [False, True, False, False]
    assert place.events().count("restore") == 3


async def test_e07_a_client_that_names_a_slot_gets_that(place: Place) -> None:
    """Its own `id_slot` is passed on as it is."""
    async with place.proxy(np=2) as proxy:
        await place.save(proxy)
        more = [*place.told, {"role": "user", "content": "go on"}]
        await proxy.chat("a", messages=more, id_slot=1)
    (request,) = [entry for entry in place.journal() if entry["event"] == "request"][1:]
    assert request["body"]["id_slot"] == 1


async def test_e16_a_stop_waits_so_long_for_a_save_and_no_longer(place: Place) -> None:
    """A server that never answers one is ended all the same."""
    async with place.proxy("stuck") as proxy:
        async with asyncio.timeout(60):
            await place.save(proxy)
        await eventually(lambda: "weren't saved within 10 s" in proxy.log)


async def test_e20_no_text_is_in_names_or_index(place: Place) -> None:
    """Only the files of the engine hold what was said."""
    secret = "xylophone-in-the-attic"
    async with place.proxy() as proxy:
        await place.say(proxy, f"{LONG} {secret}")
        headers = {"X-Session-ID": secret}
        body = {"model": "a", "messages": [*place.told, {"role": "user", "content": "go on"}]}
        async with proxy.session.post("/v1/chat/completions", json=body, headers=headers) as answer:
            assert answer.status == 200
        await place.unload(proxy)
        (file,) = place.files()
        assert secret in (place.folder / file).read_text()
        others = [path for path in place.folder.iterdir() if path.name != file]
        assert others
        assert not any(secret.encode() in path.read_bytes() for path in others)
        assert secret not in proxy.log


async def test_e22_a_folder_that_vanishes_is_made_again(place: Place) -> None:
    """As where something cleans up temporary files; its path ends with a slash in any case."""
    async with place.proxy() as proxy:
        await place.save(proxy)
        for path in place.folder.iterdir():
            path.unlink()
        place.folder.rmdir()
        assert await place.say(proxy) == 0
        await place.save(proxy)
        assert await place.say(proxy) > len(LONG)
        assert place.folder.stat().st_mode & 0o777 == 0o700
