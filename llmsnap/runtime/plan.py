"""What the runtime must know to run one model's server: taken from the configuration once."""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Self
from urllib.parse import urlsplit

from llmsnap.config.argv import split_command
from llmsnap.config.schema import Config
from llmsnap.config.secrets import secret_values, server_key
from llmsnap.errors import ConfigError
from llmsnap.sleep.driver import Target


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """Where a model's server listens."""

    host: str
    port: int
    base_path: str = ""
    """"" or "/x", in front of every path."""
    tls: bool = False
    key: str = field(default="", repr=False)
    """What the server asks its clients for; empty: nothing."""

    @classmethod
    def parse(cls, proxy: str) -> Self:
        """Return what the `proxy` URL means; raise ConfigError when it means nothing."""
        try:
            parts = urlsplit(proxy)
            port = parts.port
        except ValueError as error:
            raise ConfigError(f"proxy {proxy!r} is no URL: {error}") from None
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError(f"proxy {proxy!r} is no http URL; write `http://localhost:${{PORT}}`")
        tls = parts.scheme == "https"
        return cls(
            host=parts.hostname,
            port=port or (443 if tls else 80),
            base_path=parts.path.rstrip("/"),
            tls=tls,
        )

    def at(self, host: str) -> Self:
        """Return the same place by another name or address of its host."""
        return replace(self, host=host)

    def url(self, path: str) -> str:
        """Return the URL of `path`, below the base path."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        scheme = "https" if self.tls else "http"
        return f"{scheme}://{host}:{self.port}{self.base_path}{path}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How one model's server is started, watched and ended."""

    model: str
    argv: Sequence[str]
    env: Mapping[str, str]
    """The whole environment."""
    own_env: Mapping[str, str] = field(default_factory=dict)
    """What the configuration adds to it."""
    endpoint: Endpoint
    check_path: str | None = "/health"
    """Probed until it answers 200; None: ready as soon as it runs."""
    start_timeout_s: float = 120.0
    grace_s: float = 10.0
    """Between the request to end and SIGKILL."""
    stop_signal: signal.Signals = signal.SIGTERM
    kill: bool = True
    stop_argv: Sequence[str] = ()
    secrets: Sequence[str] = field(default=(), repr=False)
    """Blanked in whatever the process prints."""

    def same_process(self, other: Plan) -> bool:
        """Whether both are about the same process: its command, its environment, its place."""
        return (self.argv, self.env, self.endpoint) == (other.argv, other.env, other.endpoint)

    def target(self, generation: int, pid: int, host: str) -> Target:
        """Return the process `pid`, which listens at `host`, as sleep drivers see it."""
        return Target(
            model=self.model,
            generation=generation,
            pid=pid,
            argv=tuple(self.argv),
            env=self.env,
            host=host,
            port=self.endpoint.port,
            base_url=self.endpoint.at(host).url(""),
        )


def plan_for(model: str, config: Config, environ: Mapping[str, str]) -> Plan:
    """Return the plan for the configured `model`; `environ` is what its process inherits."""
    settings = config.models[model]
    argv, stop_argv = split_command(settings.cmd), split_command(settings.cmd_stop)
    own_env = _variables(settings.env)
    env = {**environ, **own_env}
    limit_s = settings.start_timeout_s
    return Plan(
        model=model,
        argv=argv,
        env=env,
        own_env=own_env,
        endpoint=replace(Endpoint.parse(settings.proxy), key=server_key(argv, env)),
        check_path=check_path(settings.check_endpoint),
        start_timeout_s=config.health_check_timeout_s if limit_s is None else limit_s,
        grace_s=settings.unload_timeout_s,
        stop_signal=signal_named(settings.stop_signal),
        kill=settings.kill,
        stop_argv=stop_argv,
        secrets=secret_values(
            [*argv, *stop_argv], [f"{name}={value}" for name, value in env.items()]
        ),
    )


def check_path(endpoint: str) -> str | None:
    """Return the path that `checkEndpoint` means; None when nothing is to be checked.

    Of a whole URL only path and query count, as in llama-swap.
    """
    text = endpoint.strip()
    if text == "none":
        return None
    parts = urlsplit(text)
    path = f"/{parts.path.lstrip('/')}"
    return f"{path}?{parts.query}" if parts.query else path


def signal_named(name: str) -> signal.Signals:
    """Return the signal that `stopSignal` names, as `SIGINT`, `int` or `2`."""
    text = name.strip().upper()
    try:
        if text.isdigit():
            return signal.Signals(int(text))
        return signal.Signals[text if text.startswith("SIG") else f"SIG{text}"]
    except (KeyError, ValueError):
        raise ConfigError(
            f"stopSignal {name!r} is no signal; write `SIGTERM` or `SIGINT`"
        ) from None


def _variables(entries: Sequence[str]) -> dict[str, str]:
    """Return the `K=V` entries as a mapping; the last one of a name wins."""
    pairs = (entry.partition("=") for entry in entries)
    return {name: value for name, sep, value in pairs if sep}
