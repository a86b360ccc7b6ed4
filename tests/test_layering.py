"""The architecture as a test: imports point down, libraries stay at home, modules stay small."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "llmsnap"

# From the bottom up. Layers in one set never import each other.
LAYERS = [
    {"errors"},
    {"config"},
    {"core"},
    {"store"},
    {"sleep", "sessions", "memory", "telemetry"},
    {"runtime"},
    {"web"},
    {"drivers", "books", "keeping", "remembering", "journal", "client", "inheritance"},
    {"fleet"},
    {"reloading"},
    {"app", "doctor", "chat", "bench"},
    {"cli", "demo"},
]

# Where each third party may be imported: a folder, or one module.
HOMES = {
    "aiohttp": ("web", "runtime/health.py", "sleep/calls.py", "sessions/slots.py", "app.py"),
    "httptools": ("web/upstream",),
    "pynvml": ("memory/nvml",),
    "yaml": ("config",),
    "aiosqlite": ("store",),
    "prometheus_client": ("telemetry/metrics.py",),
    "uvloop": ("cli",),
    "rich": ("cli",),
    "click": ("cli",),
    "xllamacpp": ("demo",),
}

SOURCES = sorted(PACKAGE.rglob("*.py"))


def name(path: Path) -> str:
    """The module's path below the package, for test ids and messages."""
    return path.relative_to(PACKAGE).as_posix()


def imported(path: Path) -> Iterator[str]:
    """Yield the dotted name of every module that `path` imports, wherever in the file."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            if node.module == "llmsnap":
                yield from (f"llmsnap.{alias.name}" for alias in node.names)


def height(layer: str) -> int:
    """How far up `layer` stands."""
    return next(i for i, names in enumerate(LAYERS) if layer in names)


def layer_of(module: str) -> str | None:
    """The layer of a dotted module of ours; None for the package itself and for others."""
    parts = module.split(".")
    return parts[1] if parts[0] == "llmsnap" and len(parts) > 1 else None


def modules_with_a_layer() -> list[Path]:
    """Every module but the package's own two files."""
    return [path for path in SOURCES if name(path) not in ("__init__.py", "__main__.py")]


@pytest.mark.parametrize("path", modules_with_a_layer(), ids=name)
def test_imports_point_down(path: Path) -> None:
    """A module imports its own layer or a lower one, never a higher one or a neighbour."""
    own = name(path).split("/")[0].removesuffix(".py")
    for module in imported(path):
        other = layer_of(module)
        if other is not None and other != own and other != "__version__":
            assert height(other) < height(own), f"{name(path)} imports {module}"


@pytest.mark.parametrize("path", modules_with_a_layer(), ids=name)
def test_third_parties_stay_at_home(path: Path) -> None:
    """Each library is imported in the places that the design gives it."""
    for module in imported(path):
        homes = HOMES.get(module.split(".")[0])
        assert homes is None or name(path).startswith(homes), f"{name(path)} imports {module}"


@pytest.mark.parametrize("path", SOURCES, ids=name)
def test_modules_and_functions_stay_small(path: Path) -> None:
    """No module over 400 lines, no function over 40."""
    text = path.read_text()
    assert len(text.splitlines()) <= 400
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno is not None
            lines = node.end_lineno - node.lineno + 1
            assert lines <= 40, f"{node.name} has {lines} lines"


@pytest.mark.parametrize("path", SOURCES, ids=name)
def test_every_module_says_what_it_is_for(path: Path) -> None:
    """A module begins with a docstring; package markers without code need none."""
    text = path.read_text()
    assert not text.strip() or ast.get_docstring(ast.parse(text))


def test_the_core_does_nothing_but_decide() -> None:
    """`core` has no event loop, no log, no clock and no files of its own."""
    banned = {"asyncio", "logging", "time", "os", "pathlib", "socket", "subprocess", "threading"}
    for path in sorted((PACKAGE / "core").rglob("*.py")):
        assert not banned & {module.split(".")[0] for module in imported(path)}, name(path)


def test_no_module_is_a_drawer_for_odds_and_ends() -> None:
    """Names say what is inside."""
    assert not {path.stem for path in SOURCES} & {"utils", "util", "helpers", "misc", "common"}
