"""`groups`, `matrix` and `routing`: which of them counts, and whose requests go first."""

from __future__ import annotations

from typing import Final

from msgspec import structs

from llmsnap.config.decode import Decoder
from llmsnap.config.faults import Fault, nearest
from llmsnap.config.groups import finish_groups
from llmsnap.config.matrix import check_matrix
from llmsnap.config.schema import Config
from llmsnap.config.sections import MatrixConfig, RoutingConfig
from llmsnap.config.yamlnodes import MapNode, Node, line_of

_SETTINGS: Final = ("routing", "router", "settings")
_PRIORITY: Final = ("routing", "scheduler", "settings", "fifo", "priority")


def finish_routing(config: Config, root: MapNode, decoder: Decoder) -> Config:
    """Return `config` with the groups and the matrix that count, wherever the file has them.

    There is one of both: without a matrix it has no sets. Raises Fault.
    """
    legacy = [key for key in ("groups", "matrix") if root.get(key) is not None]
    if len(legacy) > 1:
        message = "cannot use both groups and matrix; keep one of them"
        raise Fault(message, line=line_of(root, "matrix"), path="matrix")
    where: tuple[str, ...] = ()
    uses_matrix = legacy == ["matrix"]
    if _at(root, "routing", "router") is not None:
        if legacy:
            message = f"{legacy[0]} and routing.router are both set; migrate to routing.router"
            raise Fault(message, line=line_of(root, legacy[0]), path=legacy[0])
        where = _SETTINGS
        uses_matrix = _router_uses_matrix(config, root, decoder)
        settings = config.routing.router.settings
        config = structs.replace(config, groups=settings.groups, matrix=settings.matrix)
    if uses_matrix:
        check_matrix(config.matrix, config, root, (*where, "matrix"))
        config = structs.replace(config, groups={})
    return structs.replace(
        config,
        groups=finish_groups(config, root, decoder, (*where, "groups")),
        matrix=config.matrix if uses_matrix else MatrixConfig(),
        routing=_routing(config, root),
    )


def _router_uses_matrix(config: Config, root: MapNode, decoder: Decoder) -> bool:
    use = config.routing.router.use
    present = {key for key in ("groups", "matrix") if _at(root, *_SETTINGS, key) is not None}
    if use == "matrix" and "matrix" not in present:
        message = "use is matrix, but settings.matrix is missing; write it, or use group"
        line = line_of(root, "routing", "router", "use")
        raise Fault(message, line=line, path="routing.router.use")
    ignored = "groups" if use == "matrix" else "matrix"
    if ignored in present:
        path = (*_SETTINGS, ignored)
        message = f"ignored, for routing.router.use is {use}; take it out"
        decoder.note(message, line=line_of(root, *path), path=".".join(path))
    return use == "matrix"


def _routing(config: Config, root: MapNode) -> RoutingConfig:
    """Return `routing` with ids for aliases in its priorities. Raises Fault."""
    routing = config.routing
    names = config.names()
    written: dict[str, str] = {}
    priority = {}
    for name, value in routing.scheduler.settings.fifo.priority.items():
        line, path = line_of(root, *_PRIORITY, name), ".".join((*_PRIORITY, name))
        if name not in names:
            suggestion = nearest(name, names)
            remedy = f"did you mean {suggestion!r}?" if suggestion else "define it under models"
            raise Fault(f"no model or alias {name!r}; {remedy}", line=line, path=path)
        id_ = names[name]
        if id_ in written:
            message = f"{name!r} and {written[id_]!r} are the same model; keep one of them"
            raise Fault(message, line=line, path=path)
        written[id_], priority[id_] = name, value
    fifo = structs.replace(routing.scheduler.settings.fifo, priority=priority)
    settings = structs.replace(routing.scheduler.settings, fifo=fifo)
    return structs.replace(routing, scheduler=structs.replace(routing.scheduler, settings=settings))


def _at(root: MapNode, *keys: str) -> Node | None:
    """Return what is at the path `keys`; None when it is absent or null."""
    node: Node | None = root
    for key in keys:
        node = node.get(key) if isinstance(node, MapNode) else None
    return node
