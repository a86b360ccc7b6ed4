"""Where one generation of a model listens."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Upstream:
    """What a request needs to reach its model.

    When the configuration says `localhost`, `host` is the loopback address that answered.
    """

    model: str
    generation: int
    host: str
    port: int
    base_path: str
    """"" or "/x"."""
    tls: bool
    pid: int | None
    key: str = field(default="", repr=False)
    """What its server asks its clients for; empty: nothing."""
