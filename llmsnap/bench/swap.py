"""`llmsnap bench swap`, without its command line: who is measured, and what of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from llmsnap.bench import disks
from llmsnap.bench.agreement import agreement, with_proxys_word
from llmsnap.bench.programme import Programme, swap_scenes
from llmsnap.bench.report import Report, this_machine
from llmsnap.bench.run import Progress, Run
from llmsnap.bench.samples import OURS, Sample, Scene, good
from llmsnap.bench.servers import Proxy, Server
from llmsnap.bench.stage import Stage
from llmsnap.bench.talks import Talks
from llmsnap.errors import LlmsnapError

_ROWS_WITHIN_S: Final = 5.0


@dataclass(frozen=True, kw_only=True)
class Wishes:
    """What the person asks for."""

    models: Sequence[str]
    """Empty: all."""
    lengths: Sequence[int]
    lengths_of: Mapping[str, Sequence[int]] = field(default_factory=dict)
    """Of models that have others, by any name."""
    turns: int
    answer_tokens: int
    limit_s: float
    seed: str
    is_cold: bool
    force: bool


class SwapBench:
    """One run against a proxy, and others beside it."""

    def __init__(
        self,
        wishes: Wishes,
        proxy: Proxy,
        others: Sequence[Server],
        now: Callable[[], datetime],
        *,
        kind: str = "swap",
        scenes: Sequence[Scene] = (),
    ) -> None:
        """Without `scenes`, those of a swap. Raises LlmsnapError where it can't be done."""
        self._scenes = scenes
        self._wishes = wishes
        self._proxy = proxy
        self._others = others
        self._now = now
        self._models = chosen(proxy, wishes.models, force=wishes.force)
        self._lengths_of = {
            chosen(proxy, [name], force=True)[0]: lengths
            for name, lengths in wishes.lengths_of.items()
        }
        if wishes.is_cold and not disks.may_forget():
            raise LlmsnapError("--cold empties the page cache, which needs root; leave it out")
        for server in others:
            _know_all(server, self._models)
        self.report = Report(
            kind=kind,
            made_at=now().isoformat(timespec="seconds"),
            machine=this_machine(proxy.client.json("GET", "/api/devices")),
            settings=_settings(wishes, self._models, others),
        )

    def run(self, show: Callable[[Progress], None]) -> None:
        """Measure into `report`, with a note on whether the proxy has seen the same."""
        wishes = self._wishes
        if wishes.is_cold:
            self._try_disk()
        names = [server.name for server in self._others]
        programme = Programme(
            models=self._models,
            lengths=wishes.lengths,
            lengths_of=self._lengths_of,
            turns=wishes.turns,
            others=names,
            scenes=self._scenes or swap_scenes(self._models, is_cold=wishes.is_cold),
            drivers=() if self._scenes else self._proxy.drivers,
        )
        stages = {
            server.name: Stage(
                Talks(server, wishes.seed, wishes.answer_tokens), self._models, self._now
            )
            for server in (self._proxy, *self._others)
        }
        Run(
            programme,
            stages,
            self.report,
            clock=time.monotonic,
            limit_s=wishes.limit_s,
            show=show,
        ).measure()
        self.report.engines = engines(stages)
        self.report.notes += silent_servers(self.report.samples)
        self._compare_with_proxy()

    def _try_disk(self) -> None:
        """Find out how fast the first model's file comes from its disk, to compare with."""
        with suppress(LlmsnapError):  # that it doesn't start is told in its place
            if files := self._proxy.files(self._models[0]):
                self.report.machine.disk_bytes_per_s = disks.bytes_per_s(files[0])

    def _compare_with_proxy(self) -> None:
        """Ask the proxy what it has seen of the same requests."""
        report = self.report
        try:
            report.samples = self._with_proxys_word()
        except (LlmsnapError, KeyError, TypeError) as error:
            report.notes.append(f"the proxy's own figures can't be had: {error}")
        if found := agreement(report.samples):
            report.notes.append(str(found))

    def _with_proxys_word(self) -> list[Sample]:
        """Return the samples with the proxy's figures; its rows come in batches, so it may take."""
        until = time.monotonic() + _ROWS_WITHIN_S
        while True:
            rows = self._proxy.rows_since(self.report.made_at, self._models)
            found = with_proxys_word(self.report.samples, OURS, rows)
            mine = [one for one in found if one.server == OURS and not one.fault]
            if all(one.proxy_first_s is not None for one in mine) or time.monotonic() > until:
                return found
            time.sleep(0.1)


def chosen(proxy: Proxy, wanted: Sequence[str], *, force: bool) -> list[str]:
    """Return the ids of the models to measure. Raises LlmsnapError for those that can't be."""
    views = proxy.views()
    if unknown := [name for name in wanted if name not in views]:
        raise LlmsnapError(f"no model is called {unknown[0]!r}; there are: {', '.join(views)}")
    ids = list(dict.fromkeys(str(views[name]["id"]) for name in wanted or views))
    if not ids:
        raise LlmsnapError(f"{proxy.client.url} has no models")
    if not force and (pinned := [id_ for id_ in ids if views[id_]["pinned"]]):
        raise LlmsnapError(
            f"{', '.join(pinned)} is pinned, and measuring would put it out; --force does it anyway"
        )
    if not force and (busy := [id_ for id_ in ids if views[id_]["in_flight"]]):
        raise LlmsnapError(
            f"{', '.join(busy)} is at work for somebody; wait, or --force it from them"
        )
    return ids


def engines(stages: Mapping[str, Stage]) -> dict[str, str]:
    """Return what runs each of our models, and what the other servers are."""
    found = {}
    for server, stage in stages.items():
        for model, what in stage.engines.items():
            if what:
                found[model if server == OURS else server] = what
    return found


def silent_servers(samples: Sequence[Sample]) -> list[str]:
    """Return a note on each server that says nothing of its tokens."""
    well = good(samples)
    return [
        f"{server} tells neither timings nor usage: what it cached, and how fast it is, isn't known"
        for server in dict.fromkeys(one.server for one in well)
        if all(one.prompt is None for one in well if one.server == server)
    ]


def _know_all(server: Server, models: Sequence[str]) -> None:
    """Raise LlmsnapError unless the server is there and lists all models."""
    try:
        listed = server.models()
    except LlmsnapError as error:
        why = error.__cause__ or error  # without the remedy, which is for a proxy of ours
        raise LlmsnapError(f"{server.client.url} can't be measured: {why}") from error
    for model in models:
        name = server.names.get(model, model)
        if name not in listed:
            raise LlmsnapError(
                f"{server.name} has no model {name!r}; say what it calls it with "
                f"--against-models {model}=NAME. It has: {', '.join(listed) or 'none'}"
            )


def _settings(wishes: Wishes, models: Sequence[str], others: Sequence[Server]) -> Mapping[str, Any]:
    return {
        "models": list(models),
        "lengths": list(wishes.lengths),
        "lengths_of": {model: list(lengths) for model, lengths in wishes.lengths_of.items()},
        "turns": wishes.turns,
        "answer_tokens": wishes.answer_tokens,
        "limit_s": wishes.limit_s,
        "seed": wishes.seed,
        "cold": wishes.is_cold,
        "against": {server.name: server.client.url for server in others},
    }
