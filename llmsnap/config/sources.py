"""Several files as one: which they are, and how what they say is put together.

As in llama-swap, later files add to earlier ones: mappings are merged, lists are joined, and single
values must agree. Below certain keys, names must not come twice.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from pathlib import Path
from typing import Final

from llmsnap.config.faults import Fault, Line
from llmsnap.config.folders import folder_text, models_in
from llmsnap.config.generated import config_text
from llmsnap.config.presets import models_of, preset_text
from llmsnap.config.yamlnodes import MAX_CHARS, ListNode, MapNode, Node, ScalarNode, joined
from llmsnap.errors import ConfigError

IDENTITY_MAPS: Final = frozenset(
    {
        *("models", "groups", "profiles", "selectors", "peers", "matrix"),
        *("routing.router.settings.groups", "routing.router.settings.matrix"),
    }
)
"""Where each name stands for one thing, which one file must describe as a whole."""

_SUFFIXES: Final = frozenset({".yml", ".yaml"})
_PRESET: Final = ".ini"
_MOST_BYTES: Final = 4 * MAX_CHARS
"""As UTF-8; nobody reads a model's 20 GB into memory that was named by mistake."""


def files_of(config: Path | None, folder: Path | None) -> list[Path]:
    """Return the files to read, in order: `config`, then those of `folder` by name.

    Raises ConfigError.
    """
    paths = [] if config is None else [config]
    if folder is None:
        return paths
    try:
        inside = sorted(
            path for path in folder.iterdir() if path.suffix in _SUFFIXES and path.is_file()
        )
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise ConfigError(f"{folder}: can't be read: {reason}; check the path") from None
    for path in inside:
        if config is not None and config.exists() and path.samefile(config):
            raise ConfigError(
                f"{config} is given by --config and is in --config-dir {folder}, too; "
                "remove it from one of them"
            )
    if not paths and not inside:
        raise ConfigError(f"no configuration sources: {folder} has no .yml or .yaml file; add one")
    return [*paths, *inside]


def text_of(path: Path) -> str:
    """Return the YAML in a file, or what stands for a folder of models or a preset (`.ini`).

    Raises ConfigError.
    """
    if path.is_dir():
        return folder_text(path)
    text = _read(path)
    return preset_text(text, path) if path.suffix == _PRESET else text


def texts_of(paths: Sequence[Path]) -> list[tuple[str, str]]:
    """Return what `text_of` says of each of `paths`, behind its name.

    A folder of models and the preset behind it are one: as with llama-server, the preset says how
    the models in the folder are to be run. Raises ConfigError.
    """
    texts: list[tuple[str, str]] = []
    left = deque(paths)
    while left:
        path = left.popleft()
        if path.is_dir() and left and left[0].suffix == _PRESET:
            preset = left.popleft()
            texts.append((f"{path}, {preset}", _together(path, preset)))
        else:
            texts.append((str(path), text_of(path)))
    return texts


def _together(folder: Path, preset: Path) -> str:
    models = models_of(_read(preset), str(preset), models_in(folder))
    return config_text(models, [f"The models in {folder} and of the preset {preset}."])


def _read(path: Path) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(_MOST_BYTES + 1)
        if len(data) > _MOST_BYTES:
            raise ConfigError(
                f"{path}: over {_MOST_BYTES // 1024**2} MiB, so it is no configuration; "
                "name another file"
            )
        return data.decode("utf-8")
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise ConfigError(f"{path}: can't be read: {reason}; check the path") from None
    except UnicodeDecodeError as error:
        message = f"{path}: not UTF-8 text (byte {error.start}); save it as UTF-8"
        raise ConfigError(message) from None


def stamped(node: Node, file: str) -> Node:
    """Return `node` with lines that know their `file`."""
    line = Line(node.line, file)
    match node:
        case ScalarNode():
            return replace(node, line=line)
        case ListNode():
            items = tuple(stamped(item, file) for item in node.items)
            return replace(node, items=items, line=line)
        case MapNode():
            below = {key: stamped(item, file) for key, item in node.items.items()}
            lines: dict[str, int] = {key: Line(at, file) for key, at in node.lines.items()}
            return replace(node, items=below, lines=lines, line=line)


def merged(roots: Sequence[MapNode]) -> MapNode:
    """Return the one mapping that `roots`, which are stamped, are together. Raises Fault."""
    empty = MapNode({}, {}, 1)
    return reduce(lambda whole, root: _merged_maps(whole, root, ""), roots, empty)


def _merged_maps(first: MapNode, second: MapNode, path: str) -> MapNode:
    items, lines = dict(first.items), dict(first.lines)
    for key, node in second.items.items():
        line, below = second.lines[key], joined(path, key)
        if key not in items:
            items[key], lines[key] = node, line
            continue
        if path in IDENTITY_MAPS:
            message = f"duplicate {path} {key!r}, already at {_place(lines[key])}; remove one"
            raise Fault(message, line=line, path=below)
        items[key] = _merged(items[key], node, line, below)
    return replace(first, items=items, lines=lines)


def _merged(first: Node, second: Node, line: int, path: str) -> Node:
    if path in IDENTITY_MAPS and (fault := _no_map(first, second)):
        raise Fault(f"expected a mapping; {fault}", line=line, path=path)
    match first, second:
        case MapNode(), MapNode():
            return _merged_maps(first, second, path)
        case ListNode(), ListNode():
            return replace(first, items=(*first.items, *second.items))
    for one, other in ((first, second), (second, first)):
        if _is_empty(one):
            return other
    if isinstance(first, ScalarNode) and isinstance(second, ScalarNode):
        if type(first.value) is type(second.value) and first.value == second.value:
            return first
        message = f"conflict at {path}: {_place(first.line)} has another value; keep one of them"
    else:
        message = f"conflict at {path}: incompatible node kinds, see {_place(first.line)}; keep one"
    raise Fault(message, line=line, path=path)


def _no_map(*nodes: Node) -> str:
    """Return what to do about the first of `nodes` that is no mapping; empty: all are."""
    for node in nodes:
        if not isinstance(node, MapNode):
            remedy = "take the empty key out" if _is_empty(node) else "write key: value"
            return f"{_place(node.line)} has none: {remedy}"
    return ""


def _is_empty(node: Node) -> bool:
    """Whether nothing stands behind the key; a `null` or `~` is something."""
    return isinstance(node, ScalarNode) and node.value is None and not node.text


def _place(line: int) -> str:
    return f"{line.file}:{int(line)}" if isinstance(line, Line) else f"line {line}"
