"""What the proxy and its CUDA processes say to each other: a line of JSON at a time."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

Operation = Literal["state", "lock", "checkpoint", "restore", "unlock"]


class Hello(Struct, frozen=True, kw_only=True):
    """The first line of the other side: what driver it found."""

    fault: str = ""
    """Why there is nothing to call, in words for the operator; empty: there is."""
    missing: tuple[str, ...] = ()
    """Functions that the driver doesn't have."""
    version: int = 0
    """As 13000 for CUDA 13.0."""
    init: int = 0
    """The result of cuInit."""
    init_name: str = ""
    init_s: float = 0.0


class Order(Struct, frozen=True, kw_only=True):
    """One call to make."""

    id: int
    op: Operation
    pid: int
    timeout_ms: int = 0
    """For `lock` only."""


class Reply(Struct, frozen=True, kw_only=True):
    """How the call went."""

    id: int
    result: int
    name: str
    seconds: float
    """What the call itself took."""
    state: int | None = None
    """The answer to `state`, when the result is 0."""
