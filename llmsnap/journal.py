"""Where the proxy's own log goes, and in which form."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from llmsnap.config.resolved import all_secrets
from llmsnap.config.schema import Config
from llmsnap.config.secrets import blank
from llmsnap.runtime.logs import Logs, ProxyLog, level_named, proxy_lines
from llmsnap.runtime.stdout import Stdout
from llmsnap.web.accesslog import AccessLog


class Journal:
    """The log of all that happens, with all known secrets blanked."""

    def __init__(self, config: Config, stdout: Stdout) -> None:
        self.logs = Logs(to_stdout=config.log_to_stdout, stdout=stdout.write)
        self.handler = ProxyLog(self.logs, blank=self._hide)
        self.access = AccessLog(self._write_access)
        """Writes a line a request, if those are wanted."""
        self._secrets: tuple[str, ...] = ()
        self._ours = logging.getLogger("llmsnap")
        self.adopt(config)

    @classmethod
    @contextmanager
    def opened(cls, config: Config) -> Iterator[Journal]:
        """Send the log where `config` wants it within the block."""
        stdout, root, ours = Stdout(), logging.getLogger(), logging.getLogger("llmsnap")
        level_before = ours.level
        journal = cls(config, stdout)
        root.addHandler(journal.handler)
        try:
            yield journal
        finally:
            ours.setLevel(level_before)
            root.removeHandler(journal.handler)
            stdout.close()

    def adopt(self, config: Config) -> None:
        """Go by these settings from now on; what was secret once stays so."""
        self._secrets = tuple({*self._secrets, *all_secrets(config)})
        self.logs.show(config.log_to_stdout)
        self.handler.layout = config.log_time_format
        self._ours.setLevel(level_named(config.log_level))
        self.access.is_wanted = self._ours.isEnabledFor(logging.INFO)
        self.access.polls = self._ours.isEnabledFor(logging.DEBUG)

    def _hide(self, text: str) -> str:
        return blank(text, self._secrets)

    def _write_access(self, lines: list[str]) -> None:
        text = self._hide("\n".join(lines))
        self.logs.write_proxy(proxy_lines(text, "INFO", self.handler.layout))
