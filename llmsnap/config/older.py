"""Older spellings, put into today's form before anything else looks at them."""

from __future__ import annotations

from dataclasses import replace

from llmsnap.config.decode import text
from llmsnap.config.faults import Fault
from llmsnap.config.yamlnodes import ListNode, MapNode, Node, line_of


def modern_filters(body: MapNode, path: str) -> MapNode:
    """Return `body` with `filters.stripParams` for `filters.strip_params`, if it is empty."""
    filters = body.get("filters")
    legacy = filters.get("strip_params") if isinstance(filters, MapNode) else None
    if not isinstance(filters, MapNode) or legacy is None:
        return body
    current = filters.get("stripParams")
    if current is None or not text(current, f"{path}.filters.stripParams"):
        current = legacy
    items = {key: item for key, item in filters.items.items() if key != "strip_params"}
    return with_key(
        body, "filters", with_key(replace(filters, items=items), "stripParams", current)
    )


def modern_peers(peers: Node) -> Node:
    """Return the same of each entry under `peers`."""
    if not isinstance(peers, MapNode):
        return peers
    items = {
        id_: modern_filters(body, f"peers.{id_}") if isinstance(body, MapNode) else body
        for id_, body in peers.items.items()
    }
    return replace(peers, items=items)


def refuse_older_profiles(root: MapNode) -> None:
    """Raise Fault for profiles that are lists of models, as they once were."""
    profiles = root.get("profiles")
    below = profiles.items.items() if isinstance(profiles, MapNode) else ()
    for keys, node in [((), profiles), *(((name,), node) for name, node in below)]:
        if isinstance(node, ListNode):
            message = "the list form is no longer supported; write pins, or use groups"
            path = ".".join(("profiles", *keys))
            raise Fault(message, line=line_of(root, "profiles", *keys), path=path)


def with_key(body: MapNode, key: str, node: Node) -> MapNode:
    """Return `body` with `node` at `key`."""
    return replace(body, items=body.items | {key: node}, lines={key: node.line} | body.lines)
