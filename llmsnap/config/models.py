"""One entry under `models:` to its struct: comments, macros and `${PORT}`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from msgspec import structs

from llmsnap.config.argv import strip_comments
from llmsnap.config.decode import Decoder, table, text
from llmsnap.config.faults import Fault, nearest
from llmsnap.config.finish import finish_model
from llmsnap.config.macros import Budget, Expander, MacroValue, read_macros, uses, uses_below
from llmsnap.config.older import modern_filters, with_key
from llmsnap.config.scalars import as_text
from llmsnap.config.schema import Config, ModelConfig
from llmsnap.config.yamlnodes import ListNode, MapNode, Node, ScalarNode

_DEFAULT_PROXY: Final = "http://localhost:${PORT}"
_LAST_PORT: Final = 65535


class Ports:
    """Gives out `${PORT}`: to each model the one that it has already, else the next free one.

    So a new model at the top of the file changes the command of no other.
    """

    def __init__(self, kept: Mapping[str, int], first: int) -> None:
        """`kept` are the ports of models that run, or may."""
        self.given: dict[str, int] = {}
        self._kept = kept
        self._next = first

    def port_for(self, model: str) -> int:
        """Return a port; one above 65535 means that none is left."""
        if model in self._kept:
            port = self._kept[model]
        else:
            taken = set(self._kept.values())
            while self._next in taken:
                self._next += 1
            port = self._next
            self._next += 1
        self.given[model] = port
        return port


class ModelReader:
    """Reads one model after the other."""

    def __init__(
        self,
        settings: Config,
        macros: Mapping[str, MacroValue],
        budget: Budget,
        decoder: Decoder,
        ports: Ports,
    ) -> None:
        self._settings = settings
        self._macros = macros
        self._budget = budget
        self._decoder = decoder
        self._ports = ports

    def read(self, id_: str, node: Node, *, line: int) -> ModelConfig:
        """Return the model that `node` describes. Raises Fault."""
        path = f"models.{id_}"
        if isinstance(node, ScalarNode) and node.value is None:
            body = MapNode({}, {}, line)
            return finish_model(id_, ModelConfig(), body, self._settings, self._decoder)
        body = table(node, path)
        own = read_macros(body.get("macros"), f"{path}.macros")
        scope = {"MODEL_ID": id_, **self._macros, **own}
        body = self._expanded(_prepared(body, path, line), scope, path)
        body = self._with_port(id_, body, path)
        _refuse_leftovers(body, path, scope)
        body = _modernised(body, path)
        model = self._decoder.struct(ModelConfig, body, path)
        model = structs.replace(model, macros=own)
        return finish_model(id_, model, body, self._settings, self._decoder)

    def _expanded(self, body: MapNode, scope: Mapping[str, MacroValue], path: str) -> MapNode:
        """Return `body` with macros put into its values, and into the keys of setParamsByID."""
        expander = Expander(scope, self._budget)
        body = table(expander.tree(body, path), path)
        filters, by_id = body.get("filters"), _params_by_id(body)
        if not isinstance(filters, MapNode) or by_id is None:
            return body
        by_id = _with_expanded_keys(by_id, expander, f"{path}.filters.setParamsByID")
        return with_key(body, "filters", with_key(filters, "setParamsByID", by_id))

    def _with_port(self, id_: str, body: MapNode, path: str) -> MapNode:
        cmd = body.get("cmd")
        if cmd is None or "PORT" not in uses(text(cmd, f"{path}.cmd")):
            return body
        port = self._ports.port_for(id_)
        if port > _LAST_PORT:
            message = f"no port up to {_LAST_PORT} is left for ${{PORT}}; set a lower startPort"
            raise Fault(message, line=cmd.line, path=f"{path}.cmd")
        return self._expanded(body, {"PORT": port}, path)


def unknown_macro(name: str, known: Mapping[str, MacroValue]) -> str:
    """Return what to say of a macro `name` that nothing has replaced; `known` were tried."""
    if name == "PID":
        return "unknown macro '${PID}'; only cmdStop knows it"
    if name in known:
        return f"unknown macro '${{{name}}}': it stands below the macro that uses it; move it up"
    suggestion = nearest(name, known)
    remedy = f"did you mean '${{{suggestion}}}'?" if suggestion else "define it under macros"
    return f"unknown macro '${{{name}}}'; {remedy}"


def _prepared(body: MapNode, path: str, line: int) -> MapNode:
    """Return `body` without its macros and without comment lines, but with a `proxy`."""
    items = {key: item for key, item in body.items.items() if key != "macros"}
    body = replace(body, items=items)
    for key in ("cmd", "cmdStop"):
        if (node := body.get(key)) is not None:
            stripped = strip_comments(text(node, f"{path}.{key}"))
            body = with_key(body, key, ScalarNode(stripped, node.line))
    if body.get("proxy") is None:
        body = with_key(body, "proxy", ScalarNode(_DEFAULT_PROXY, line))
    return body


def _modernised(body: MapNode, path: str) -> MapNode:
    """Return `body` with older spellings in today's form."""
    ttl = body.get("ttl")
    if isinstance(ttl, ScalarNode) and ttl.value == -1:  # what llama-swap takes for "not set"
        body = with_key(body, "ttl", ScalarNode(None, ttl.line))
    for key in ("sleepEndpoints", "wakeEndpoints"):
        if isinstance(steps := body.get(key), ListNode):
            body = with_key(body, key, replace(steps, items=tuple(map(_upper_method, steps.items))))
    return modern_filters(body, path)


def _upper_method(step: Node) -> Node:
    method = step.get("method") if isinstance(step, MapNode) else None
    if not isinstance(step, MapNode) or not isinstance(method, ScalarNode):
        return step
    return with_key(step, "method", ScalarNode(as_text(method.value).upper(), method.line))


def _params_by_id(body: MapNode) -> MapNode | None:
    filters = body.get("filters")
    by_id = filters.get("setParamsByID") if isinstance(filters, MapNode) else None
    return by_id if isinstance(by_id, MapNode) else None


def _with_expanded_keys(node: MapNode, expander: Expander, path: str) -> MapNode:
    items: dict[str, Node] = {}
    lines: dict[str, int] = {}
    written: dict[str, str] = {}
    for key, item in node.items.items():
        line = node.lines[key]
        name = as_text(expander.text(key, line=line, path=path))
        if name in items:
            message = f"keys {written[name]!r} and {key!r} resolve to {name!r}; remove one of them"
            raise Fault(message, line=line, path=path)
        items[name], lines[name], written[name] = item, line, key
    return replace(node, items=items, lines=lines)


def _refuse_leftovers(body: MapNode, path: str, scope: Mapping[str, MacroValue]) -> None:
    """Raise Fault for a macro that nothing has replaced."""
    for name, line, where in uses_below(body, path):
        if name == "PID" and where == f"{path}.cmdStop":
            continue
        if name == "PORT" and where == f"{path}.proxy":
            message = "proxy uses ${PORT} but cmd does not; use ${PORT} in cmd, or set proxy"
        elif name == "PORT":
            message = "macro '${PORT}' should have been substituted; use ${PORT} in cmd too"
        else:
            message = unknown_macro(name, scope)
        raise Fault(message, line=line, path=where)
    by_id = _params_by_id(body)
    for key, line in by_id.lines.items() if by_id else ():
        for name in uses(key):
            where = f"{path}.filters.setParamsByID"
            raise Fault(unknown_macro(name, scope), line=line, path=where)
