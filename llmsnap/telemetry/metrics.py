"""`/metrics`: one snapshot of everything, turned into text by a thread, at most once a second."""

from __future__ import annotations

import asyncio
import gzip
import platform
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from llmsnap import __version__
from llmsnap.core.lifecycle import State
from llmsnap.core.messages import ModelView
from llmsnap.telemetry import catalogue
from llmsnap.telemetry.catalogue import Metric
from llmsnap.telemetry.exposition import distribution_lines, number_lines
from llmsnap.telemetry.tally import Distribution, Labels, Tally

FRESH_S: Final = 1.0
"""How long a text is good for."""
_OPENMETRICS: Final = "application/openmetrics-text;version=1.0.0"
_BREATH_S: Final = 0.0002


class Vitals(Protocol):
    """How a GPU fares; None: its driver doesn't tell."""

    @property
    def utilisation(self) -> float | None: ...

    @property
    def power_w(self) -> float | None: ...

    @property
    def power_limit_w(self) -> float | None: ...

    @property
    def temperature_c(self) -> float | None: ...

    @property
    def pcie_generation(self) -> int | None: ...

    @property
    def pcie_width(self) -> int | None: ...


class Device(Protocol):
    """A device's memory, as it was read last."""

    @property
    def device(self) -> str: ...

    @property
    def name(self) -> str: ...

    @property
    def uuid(self) -> str: ...

    @property
    def total_bytes(self) -> int: ...

    @property
    def free_bytes(self) -> int: ...

    @property
    def reserved_bytes(self) -> int | None: ...

    @property
    def vitals(self) -> Vitals: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """Where gauges are read, on the event loop: what is known already, nothing is asked for."""

    views: Callable[[], Iterable[ModelView]]
    held: Callable[[], Mapping[str, Mapping[str, int]]] = dict
    """Bytes by model and device."""
    devices: Callable[[], Iterable[Device]] = tuple


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All figures at one moment."""

    numbers: Sequence[tuple[Metric, Mapping[Labels, float]]]
    distributions: Sequence[tuple[Metric, Mapping[Labels, Distribution]]]


@dataclass(frozen=True, slots=True)
class Exposition:
    """A text for a scraper."""

    content_type: str
    body: bytes


class Metrics:
    """Answers scrapers."""

    def __init__(self, tally: Tally, sources: Sources, clock: Callable[[], float]) -> None:
        self._tally = tally
        self._sources = sources
        self._clock = clock
        self._turn = asyncio.Lock()
        self._texts: dict[tuple[str, bool], tuple[float, Exposition]] = {}

    async def text(self, accept: str, *, zipped: bool) -> Exposition:
        """Return what there is to tell, in the format that the header `accept` asks for."""
        accept = _OPENMETRICS if "application/openmetrics-text" in accept else ""
        async with self._turn:
            made_at, text = self._texts.get((accept, zipped), (0.0, None))
            if text is None or self._clock() - made_at >= FRESH_S:
                text = await asyncio.to_thread(render, self.snapshot(), accept, zipped=zipped)
                self._texts[accept, zipped] = self._clock(), text
        return text

    def snapshot(self) -> Snapshot:
        """Return all figures as they are now."""
        counters = [(counter.metric, dict(counter.values)) for counter in self._tally.counters()]
        histograms = [(h.metric, h.copy()) for h in self._tally.histograms()]
        return Snapshot([*counters, *gauges(self._sources)], histograms)


def gauges(sources: Sources) -> list[tuple[Metric, dict[Labels, float]]]:
    """Return what is to be read now."""
    views, devices = list(sources.views()), list(sources.devices())
    memory: dict[Labels, float] = {
        (model, device): float(amount)
        for model, held in sources.held().items()
        for device, amount in held.items()
    }
    return [
        (catalogue.BUILD, {(__version__, platform.python_version()): 1.0}),
        (
            catalogue.MODEL_STATE,
            {(v.model, str(state)): float(state is v.state) for v in views for state in State},
        ),
        (catalogue.MODEL_MEMORY, memory),
        (catalogue.IN_FLIGHT, {(view.model,): float(view.in_flight) for view in views}),
        (catalogue.QUEUED, {(view.model,): float(view.waiting) for view in views}),
        *((metric, _by_device(devices, read)) for metric, read in _OF_DEVICES.items()),
    ]


_OF_DEVICES: Final[Mapping[Metric, Callable[[Device], float | None]]] = {
    catalogue.DEVICE_TOTAL: lambda device: device.total_bytes,
    catalogue.DEVICE_USED: lambda device: device.total_bytes - device.free_bytes,
    catalogue.DEVICE_FREE: lambda device: device.free_bytes,
    catalogue.DEVICE_RESERVED: lambda device: device.reserved_bytes,
    catalogue.GPU_UTILIZATION: lambda device: device.vitals.utilisation,
    catalogue.GPU_POWER: lambda device: device.vitals.power_w,
    catalogue.GPU_TEMPERATURE: lambda device: device.vitals.temperature_c,
    catalogue.PCIE_GENERATION: lambda device: device.vitals.pcie_generation,
    catalogue.PCIE_WIDTH: lambda device: device.vitals.pcie_width,
}


def _by_device(
    devices: Iterable[Device], read: Callable[[Device], float | None]
) -> dict[Labels, float]:
    figures = ((device, read(device)) for device in devices)
    return {(d.device, d.name, d.uuid): float(n) for d, n in figures if n is not None}


# ---- in the thread -----------------------------------------------------------------------------


def render(snapshot: Snapshot, accept: str, *, zipped: bool) -> Exposition:
    """Return the text; for a thread, as it takes its time."""
    from prometheus_client import PROCESS_COLLECTOR
    from prometheus_client.exposition import choose_encoder

    encode, content_type = choose_encoder(accept)
    parts = []
    for family in _families(snapshot, is_openmetrics=accept == _OPENMETRICS):
        parts.append("".join(family).encode())
        time.sleep(_BREATH_S)  # gives the interpreter away
    whole = b"".join(parts) + encode(PROCESS_COLLECTOR)
    body = gzip.compress(whole, compresslevel=4, mtime=0) if zipped else whole
    return Exposition(content_type, body)


def _families(snapshot: Snapshot, *, is_openmetrics: bool) -> Iterator[Iterator[str]]:
    """Yield the lines of each metric."""
    for metric, numbers in snapshot.numbers:
        yield number_lines(metric, numbers, is_openmetrics=is_openmetrics)
    for metric, distributions in snapshot.distributions:
        yield distribution_lines(metric, distributions, is_openmetrics=is_openmetrics)
