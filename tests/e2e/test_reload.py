"""The configuration changes while the proxy serves, through the real command line."""

from __future__ import annotations

import asyncio
import random
import signal
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml

from tests.helpers.fake_models import FakeModels
from tests.helpers.llama import server_argv
from tests.helpers.ports import free_ports
from tests.helpers.proxy_process import ProxyProcess, running_proxy
from tests.helpers.waiting import eventually

pytestmark = pytest.mark.e2e

RELOADS = 100


def rewrite(folder: Path, text: str) -> None:
    """Put another configuration in place of the one that the proxy was started with."""
    draft = folder / "draft"
    draft.write_text(text)
    draft.replace(folder / "config.yaml")


async def reload(proxy: ProxyProcess) -> dict[str, list[str]]:
    """Have the proxy read it; return what has changed, without what hasn't."""
    status, answer = await proxy.post("/api/config/reload")
    assert status == 200, answer
    return {kind: names for kind, names in answer.items() if names}


async def test_u83_only_what_has_changed_is_touched(tmp_path: Path) -> None:
    """A new setting leaves the process alone; a new command drains it; the rest doesn't notice."""
    fake = FakeModels(tmp_path, head="groups: {g: {swap: false, members: [a, b, c]}}")
    fake.add("a").add("b", "--first-byte 1.5").add("c")
    text = fake.yaml
    async with running_proxy(text, tmp_path) as proxy:
        await asyncio.gather(*(proxy.chat(name) for name in "ac"))
        before = await proxy.models()
        answer = asyncio.ensure_future(proxy.chat("b"))
        await eventually(lambda: fake.count("b", "request") == 1)
        text = text.replace("--first-byte 1.5", "--first-byte 0")
        rewrite(tmp_path, text.replace('  "a":', '  "a":\n    aliases: [first]'))
        changed = await reload(proxy)
        assert changed["restarted"] == ["b"]
        assert changed["adopted"] == ["a"]
        later = asyncio.ensure_future(proxy.chat("b"))
        await answer
        await later
        after = await proxy.models()
        assert fake.count("b", "start") == 2
        assert [after[name]["pid"] for name in "ac"] == [before[name]["pid"] for name in "ac"]
        await proxy.chat("first")


async def test_u81_a_hang_up_is_a_reload(tmp_path: Path) -> None:
    """Of what a supervisor sends, and of `ExecReload`."""
    text = FakeModels(tmp_path).add("b").yaml
    async with running_proxy(text, tmp_path) as proxy:
        await proxy.chat("b")
        pid = (await proxy.models())["b"]["pid"]
        rewrite(tmp_path, text.replace("models:", "models:\n  a: {cmd: 'serve ${PORT}'}"))
        proxy.process.send_signal(signal.SIGHUP)
        await eventually(lambda: "SIGHUP: the configuration was read again" in proxy.log)
        models = await proxy.models()
        assert "a" in models
        assert models["b"]["pid"] == pid


async def test_p60_a_mistake_leaves_the_old_configuration_in_place(tmp_path: Path) -> None:
    """It is told in the log and by the status; the file that is right again is taken by itself."""
    fake = FakeModels(tmp_path).add("a")
    text = fake.yaml
    async with running_proxy(text, tmp_path, args=["-watch-config"]) as proxy:
        rewrite(tmp_path, text + "\n  b: [")
        await eventually(lambda: "the configuration isn't taken" in proxy.log)
        _, status = await proxy.get("/api/status")
        assert "not valid YAML" in status["config"]["error"]
        refused, answer = await proxy.post("/api/config/reload")
        assert (refused, answer["error"]["code"]) == (400, "bad_request")
        await proxy.chat("a")
        rewrite(tmp_path, text.replace("models:", "models:\n  b: {cmd: 'serve ${PORT}'}"))

        async def is_there() -> bool:
            return "b" in await proxy.models()

        await eventually(is_there)
        _, status = await proxy.get("/api/status")
        assert status["config"]["error"] is None


async def test_another_key_counts_for_open_connections_too(tmp_path: Path) -> None:
    """The next request on the same connection needs it."""
    fake = FakeModels(tmp_path, head="apiKeys: [first-key]").add("a")
    headers = {"Authorization": "Bearer first-key"}
    text = fake.yaml
    async with running_proxy(text, tmp_path, headers=headers) as proxy:
        await proxy.chat("a")
        rewrite(tmp_path, text.replace("first-key", "second-key"))
        await reload(proxy)
        status, _ = await proxy.post("/v1/chat/completions", {"model": "a", "messages": []})
        assert status == 401


async def test_models_that_are_up_can_be_taken_out_and_put_back(tmp_path: Path) -> None:
    """Their process ends after its answers, and the rest doesn't notice."""
    fake = FakeModels(tmp_path, head="groups: {g: {swap: false, members: [a, b]}}")
    fake.add("a", "--first-byte 1").add("b")
    text = fake.yaml
    without = text.replace("members: [a, b]", "members: [b]").replace(fake.entries["a"], "")
    async with running_proxy(text, tmp_path) as proxy:
        await proxy.chat("b")
        for starts in (1, 2):
            answer = asyncio.ensure_future(proxy.chat("a"))
            await eventually(lambda n=starts: fake.count("a", "request") == n)
            rewrite(tmp_path, without)
            assert (await reload(proxy))["removed"] == ["a"]
            await answer
            await eventually(lambda n=starts: fake.count("a", "term") == n)
            rewrite(tmp_path, text)
            assert (await reload(proxy))["added"] == ["a"]
            assert fake.count("a", "start") == starts
        assert fake.count("b", "start") == 1


class Edits:
    """A configuration over real models, of which something else is changed each time."""

    def __init__(self, models: Mapping[str, Path], seed: int) -> None:
        self.rng = random.Random(seed)
        self.steady, self.changing = "ab", "c"
        self.document = {
            "memory": {"mode": "off"},
            "sleep": {"mode": "off"},
            "startPort": free_ports(6),
            "groups": {"g": {"swap": False, "members": ["a", "b", "c"]}},
            "models": {
                name: {"cmd": " ".join(server_argv(path)), "env": []}
                for name, path in models.items()
            },
        }

    @property
    def yaml(self) -> str:
        """The file as it is now."""
        return str(yaml.safe_dump(self.document, sort_keys=False))

    def edit(self) -> None:
        """Change one key: of a model that goes on, of one that is replaced, or of the top."""
        rng, models = self.rng, self.document["models"]
        assert isinstance(models, dict)
        number = rng.randrange(1, 10_000)
        steady = models[rng.choice(self.steady)]
        match rng.randrange(8):
            case 0:
                steady["ttl"] = 1000 + number
            case 1:
                steady["aliases"] = [f"alias-{id(steady)}-{number}"]
            case 2:
                steady["filters"] = {"setParams": {"seed": number}}
            case 3:
                steady["concurrencyLimit"] = 100 + number
            case 4:
                self.document["logLevel"] = rng.choice(["info", "debug"])
            case 5:
                self.document["schedule"] = {"fairAfter": number}
            case 6:
                models[self.changing]["env"] = [f"EDIT={number}"]
            case 7 if "extra" in models:
                del models["extra"]
            case 7:
                models["extra"] = {"cmd": "serve --port ${PORT}"}


async def test_a_hundred_reloads_under_load_lose_nothing(
    models: Mapping[str, Path], tmp_path: Path
) -> None:
    """Every request is answered, and models that weren't changed keep their process."""
    edits = Edits(models, seed=7)
    done, answers = asyncio.Event(), Counter[str]()

    async def client(proxy: ProxyProcess, model: str, *, stream: bool) -> None:
        while not done.is_set():
            body = {
                "model": model,
                "messages": [{"role": "user", "content": "hi"}],
                "max_tokens": 8,
                "stream": stream,
            }
            async with proxy.session.post("/v1/chat/completions", json=body) as answer:
                text = await answer.text()
            assert answer.status == 200, text
            assert not stream or text.rstrip().endswith("data: [DONE]"), text
            answers[model] += 1

    async with running_proxy(edits.yaml, tmp_path) as proxy:
        await asyncio.gather(*(proxy.chat(name) for name in "abc"))
        before = await proxy.models()
        clients = [
            asyncio.ensure_future(client(proxy, name, stream=stream))
            for name in "abc"
            for stream in (False, True)
        ]
        replaced = 0
        for _ in range(RELOADS):
            edits.edit()
            rewrite(tmp_path, edits.yaml)
            replaced += "restarted" in await reload(proxy)
            await asyncio.sleep(edits.rng.uniform(0, 0.1))
        done.set()
        await asyncio.gather(*clients)
        after = await proxy.models()
        generation = after["c"]["generation"]
        assert replaced
        assert 1 < generation <= replaced + 1
        for name in "ab":
            assert after[name]["pid"] == before[name]["pid"]
            assert answers[name] > RELOADS / 10
        assert answers["c"]
        _, status = await proxy.get("/api/status")
        assert status["config"]["reloads"] == RELOADS
