"""The models of a server, as it lists them, and as llmsnap tells of its own."""

from __future__ import annotations

from typing import Any

from llmsnap.client.proxy import Client


def listed(client: Client) -> list[str]:
    """Return the names in `/v1/models`. Raises NoProxy or Refused."""
    entries = client.json("GET", "/v1/models").get("data") or []
    return [str(entry["id"]) for entry in entries if "id" in entry]


def views(client: Client) -> dict[str, dict[str, Any]]:
    """Return what llmsnap says of its own models, by every name that they have.

    Raises NoProxy, Refused, or what reading another server's answer raises: KeyError or TypeError.
    """
    models = client.json("GET", "/api/models")["models"]
    return {name: one for one in models for name in (one["id"], *one["aliases"])}
