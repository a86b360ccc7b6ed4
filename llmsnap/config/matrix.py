"""Whether a `matrix` makes sense: its short names, its costs and its sets."""

from __future__ import annotations

import re
from graphlib import CycleError, TopologicalSorter
from typing import Final

from llmsnap.config.expressions import Expression, Name, Reference, leaves, parse
from llmsnap.config.faults import Fault, nearest
from llmsnap.config.schema import Config
from llmsnap.config.sections import MatrixConfig
from llmsnap.config.yamlnodes import MapNode, line_of

_VAR: Final = re.compile(r"[a-zA-Z0-9.-]{1,32}")


def check_matrix(
    matrix: MatrixConfig, config: Config, root: MapNode, where: tuple[str, ...]
) -> None:
    """Raise Fault for what can't be meant; `where` is the path of the matrix in the file."""

    def fault(message: str, *keys: str) -> Fault:
        path = ".".join((*where, *keys))
        return Fault(f"matrix: {message}", line=line_of(root, *where, *keys), path=path)

    for var, id_ in matrix.vars.items():
        if not _VAR.fullmatch(var):
            message = f"var {var!r} must be 1 to 32 letters, digits, dots and dashes; rename it"
            raise fault(message, "vars", var)
        if id_ not in config.models:
            raise fault(f"var {var!r}: {_unknown(id_, config)}", "vars", var)
    for name, cost in matrix.evict_costs.items():
        if name not in matrix.vars and name not in config.models:
            message = f"evict cost of {name!r}, which is neither a var nor a model; take it out"
            raise fault(message, "evict_costs", name)
        if cost <= 0:
            message = f"evict cost of {name!r} must be positive, not {cost}; write 1 or more"
            raise fault(message, "evict_costs", name)
    if not matrix.sets:
        raise fault("no sets; write at least one under sets", "sets")
    expressions: dict[str, Expression] = {}
    for name, text in matrix.sets.items():
        try:
            expressions[name] = parse(text)
            _check_names(expressions[name], matrix, config)
        except ValueError as error:
            raise fault(f"set {name!r}: {error}", "sets", name) from None
    try:
        TopologicalSorter({name: _references(expr) for name, expr in expressions.items()}).prepare()
    except CycleError as error:
        first, *_ = cycle = error.args[1]
        steps = " -> ".join(reversed(cycle))
        raise fault(f"set {first!r}: circular reference {steps}; break it", "sets", first) from None


def ordered_sets(matrix: MatrixConfig) -> dict[str, Expression]:
    """Return the sets of a checked `matrix`, each behind those that it refers to.

    Otherwise they are in the order of the file; names are those of models, with vars resolved.
    """
    expressions = {name: _resolved(parse(text), matrix) for name, text in matrix.sets.items()}
    ordered: dict[str, Expression] = {}
    todo = [*reversed(expressions)]
    while todo:
        missing = [name for name in _references(expressions[todo[-1]]) if name not in ordered]
        if missing:
            todo += reversed(missing)
        else:
            name = todo.pop()
            ordered.setdefault(name, expressions[name])
    return ordered


def costs(matrix: MatrixConfig) -> dict[str, int]:
    """Return what `evict_costs` says, by model id."""
    return {matrix.vars.get(name, name): cost for name, cost in matrix.evict_costs.items()}


def _check_names(expression: Expression, matrix: MatrixConfig, config: Config) -> None:
    for leaf in leaves(expression):
        if isinstance(leaf, Name):
            if leaf.name not in matrix.vars and leaf.name not in config.models:
                raise ValueError(
                    f"unknown var or model {leaf.name!r}; {_remedy(leaf.name, config)}"
                )
        elif leaf.set not in matrix.sets:
            suggestion = nearest(leaf.set, matrix.sets)
            remedy = f"did you mean '+{suggestion}'?" if suggestion else "define it under sets"
            raise ValueError(f"undefined set {leaf.set!r}; {remedy}")


def _references(expression: Expression) -> list[str]:
    return [leaf.set for leaf in leaves(expression) if isinstance(leaf, Reference)]


def _resolved(expression: Expression, matrix: MatrixConfig) -> Expression:
    match expression:
        case Name(name):
            return Name(matrix.vars.get(name, name))
        case Reference():
            return expression
    return type(expression)(tuple(_resolved(part, matrix) for part in expression.parts))


def _unknown(id_: str, config: Config) -> str:
    names = config.names()
    if id_ in names:
        return f"{id_!r} is an alias; write the model's id, {names[id_]!r}"
    return f"no model has the id {id_!r}; {_remedy(id_, config)}"


def _remedy(id_: str, config: Config) -> str:
    suggestion = nearest(id_, config.models)
    return f"did you mean {suggestion!r}?" if suggestion else "define it under models"
