"""The models of a proxy, as far as a chat must know them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from llmsnap.client.models import listed, views
from llmsnap.client.proxy import Client, Refused
from llmsnap.errors import LlmsnapError

_UP: Final = "ready"


def askable(client: Client) -> list[str]:
    """Return every name that can be asked for. Raises NoProxy or Refused."""
    return list(dict.fromkeys([*listed(client), *known(client)]))


def known(client: Client) -> Mapping[str, Mapping[str, Any]]:
    """Return what llmsnap tells of its own models, by every name they have; nothing: it isn't."""
    try:
        return views(client)
    except (Refused, KeyError, TypeError):
        return {}


def pick(client: Client, wanted: str | None) -> str:
    """Return `wanted` if there is such a model; without it, the only one, or the only one up.

    Raises LlmsnapError with the names that there are.
    """
    names = askable(client)
    if wanted is not None:
        if wanted not in names:
            raise LlmsnapError(f"no model is called {wanted!r}; there are: {', '.join(names)}")
        return wanted
    if not names:
        raise LlmsnapError(f"{client.url} has no models")
    up = list(dict.fromkeys(str(m["id"]) for m in known(client).values() if m["state"] == _UP))
    for choice in (names, up):
        if len(choice) == 1:
            return choice[0]
    raise LlmsnapError(f"which model? There are: {', '.join(names)}")


def what_it_takes(client: Client, model: str) -> str:
    """Return in words why the next answer will be late; empty: the model is up, or not known."""
    view = known(client).get(model)
    if view is None or view["state"] == _UP:
        return ""
    back_s = view.get("back_s")
    when = f", back in about {back_s:.1f} s" if back_s else ""
    state = "has failed" if view["state"] == "failed" else f"is {view['state']}"
    return f"{view['id']} {state}{when} …"
