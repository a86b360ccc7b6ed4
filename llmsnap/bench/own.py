"""A proxy of our own, for as long as a run takes."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from llmsnap.bench.samples import OURS
from llmsnap.bench.servers import Proxy, meet
from llmsnap.client.proxy import Refused
from llmsnap.errors import LlmsnapError
from llmsnap.sleep.choose import allowed

_URL: Final = re.compile(r"listens on (http://[\d.]+:\d+)")
_PATIENCE_S: Final = 60.0
_GRACE_S: Final = 60.0


@dataclass(frozen=True, kw_only=True)
class OwnProxy(Proxy):
    """A proxy of ours, which can be told by which driver models sleep."""

    settings: Path
    """A further file of its configuration, for that alone."""

    @property
    def drivers(self) -> tuple[str, ...]:
        """All that there are."""
        return allowed("auto")

    def check_driver(self, model: str, driver: str) -> None:
        """Have it up. Raises Refused when it can't sleep by `driver`, or does so anyway."""
        self.load(model)
        if driver:
            usual = self.settled_view(model)["driver"]
            if usual in (None, driver):
                raise Refused(f"model {model!r} sleeps by {usual or 'nothing'} anyway")
            with self._sleeping_by(model, driver):
                pass

    def sleep(self, model: str, driver: str = "") -> str:
        """Have it asleep, by `driver` if that is named; return by what. Raises Refused."""
        if not driver:
            return super().sleep(model)
        self.load(model)
        with self._sleeping_by(model, driver):  # it wakes by the way that it went
            return super().sleep(model)

    @contextmanager
    def _sleeping_by(self, model: str, driver: str) -> Iterator[None]:
        """Have models that say nothing of it sleep by `driver` meanwhile. Raises Refused."""
        try:
            self._say({"sleep": {"mode": driver}})
            view = self.view_when(model, lambda view: _is_settled(view, driver))
            if view["driver"] != driver:
                why = view["sleep_refusals"].get(driver, "its sleepMode is another")
                raise Refused(f"model {model!r} doesn't sleep by {driver}: {why}")
            yield
        finally:
            self._say({})

    def _say(self, settings: Mapping[str, Any]) -> None:
        self.settings.write_text(json.dumps(settings))  # JSON is YAML
        self.client.json("POST", "/api/config/reload")


def _is_settled(view: Mapping[str, Any], driver: str) -> bool:
    """Whether it was found out if a model can sleep by this driver, and by none else."""
    return bool(view["driver"] == driver or [*view["sleep_refusals"]] == [driver])


@contextmanager
def own_proxy(config: Path) -> Iterator[OwnProxy]:
    """Run one over `config`, on a free port and with a state of its own. Raises LlmsnapError."""
    with tempfile.TemporaryDirectory(prefix="llmsnap-bench-") as folder:
        log, settings = Path(folder) / "log", Path(folder) / "more" / "sleep.yaml"
        settings.parent.mkdir()
        settings.write_text("{}")
        with log.open("wb") as sink:
            process = subprocess.Popen(
                [
                    sys.executable,
                    "-P",  # no module out of the folder that we happen to be in
                    "-m",
                    "llmsnap",
                    "serve",
                    "--config",
                    str(config),
                    "--config-dir",
                    str(settings.parent),
                    "--listen",
                    "127.0.0.1:0",
                    "--state-dir",
                    folder,
                ],
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C is for the run, which ends it in order
            )
        try:
            yield OwnProxy(OURS, meet(_url(process, log)).client, settings=settings)
        finally:
            _end(process)


def _url(process: subprocess.Popen[bytes], log: Path) -> str:
    deadline = time.monotonic() + _PATIENCE_S
    while not (found := _URL.search(log.read_text(errors="replace"))):
        if process.poll() is not None or time.monotonic() > deadline:
            said = log.read_text(errors="replace").strip() or "it said nothing"
            raise LlmsnapError(f"the proxy for the run didn't start: {said}")
        time.sleep(0.02)
    return found[1]


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(_GRACE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
