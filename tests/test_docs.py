"""What the pages say of the code and of each other is true, as far as a program can tell."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from llmsnap.cli.commands import commands
from llmsnap.config.loader import loads
from tests.web.fleet import config_of, front_of

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted(DOCS.glob("*.md"))]
EVERY_PAGE = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)

FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def text_of(page: Path) -> str:
    """The page's text."""
    return page.read_text("utf-8")


def anchors(page: Path) -> set[str]:
    """The fragments by which the page's headings are linked."""
    headings = re.findall(r"^#+ (.*)$", FENCE.sub("", text_of(page)), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings}


def code(page: Path) -> str:
    """All that is set as code on the page, a piece a line; pages of plain text aside."""
    blocks = [block for language, block in FENCE.findall(text_of(page)) if language != "yaml"]
    return "\n".join([*blocks, *re.findall(r"`([^`\n]+)`", FENCE.sub("", text_of(page)))])


def routes() -> dict[str, set[str]]:
    """Each path that the proxy serves, as the pages write it, with its methods."""
    found: dict[str, set[str]] = {}
    for route in front_of(config_of("a")).router.routes():
        assert route.resource is not None
        path = route.resource.canonical.replace("{rest}", "").replace("{id}/cancel", "ID/cancel")
        path = path.replace("{id}", "{model}").replace("{row}", "ID")
        found.setdefault(path.replace("{model}", "MODEL"), set()).add(route.method)
    return found


@EVERY_PAGE
def test_links_lead_somewhere(page: Path) -> None:
    """To a file that is there and to a heading that it has."""
    for link in re.findall(r"\]\(([^)\s]+)\)", FENCE.sub("", text_of(page))):
        if not link.startswith("https://"):
            name, _, fragment = link.partition("#")
            target = page.parent / name if name else page
            assert target.exists(), link
            assert not fragment or fragment in anchors(target), link


def test_the_index_has_every_page() -> None:
    """Once."""
    linked = re.findall(r"\]\(([\w-]+\.md)\)", text_of(DOCS / "index.md"))

    assert sorted(linked) == sorted(
        page.name for page in DOCS.glob("*.md") if page.name != "index.md"
    )


@EVERY_PAGE
def test_every_configuration_loads(page: Path) -> None:
    """And gives no warning."""
    for language, block in FENCE.findall(text_of(page)):
        if language == "yaml":
            assert loads(block, environ={}).warnings == ()


@EVERY_PAGE
def test_commands_exist(page: Path) -> None:
    """`llmsnap WORD` and `make WORD`."""
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))

    for word in re.findall(r"^(?:\.venv/bin/)?llmsnap ([a-z]+)", code(page), re.MULTILINE):
        assert word in commands.list_commands(commands.make_context("llmsnap", ["ps"])), word
    assert set(re.findall(r"^make ([a-z-]+)", code(page), re.MULTILINE)) <= targets


@EVERY_PAGE
def test_paths_of_curls_exist(page: Path) -> None:
    """A POST where there is a body."""
    for path, rest in re.findall(r"curl \S*localhost:8080(/\S*)((?:.*\\\n)*.*)", text_of(page)):
        assert ("POST" if "-d" in rest else "GET") in routes()[path], path


def test_every_route_is_documented() -> None:
    """In docs/api.md, which speaks of those under `/v` in one sentence."""
    documented = set(re.findall(r"(/[^\s`?…,|]*)", code(DOCS / "api.md")))

    for path in routes():
        known = path in documented or any(
            word.startswith(path) for word in documented if path.endswith("/")
        )
        assert known or path.startswith("/v/"), path


def test_the_map_names_every_module() -> None:
    """docs/architecture.md, in the table of its package, once."""
    sections = re.split(r"^### ", text_of(DOCS / "architecture.md"), flags=re.MULTILINE)[1:]
    mapped = set()
    for section in sections:
        heading, _, body = section.partition("\n")
        first_cells = re.findall(r"^\| (`.*?) \|", body, re.MULTILINE)
        modules = re.findall(r"`(\w+)`", " ".join(first_cells))
        assert len(modules) == len(set(modules)), heading
        packages = re.findall(r"`llmsnap/([\w/]+)`", heading)
        for module in modules:
            paths = [f"{package}/{module}" for package in packages]
            mapped |= {path for path in paths if (ROOT / "llmsnap" / f"{path}.py").exists()}

    package = ROOT / "llmsnap"
    paths_of_modules = [*package.glob("*/*.py"), *package.glob("*/*/*.py")]
    existing = {path.relative_to(package).with_suffix("") for path in paths_of_modules}
    assert mapped == {path.as_posix() for path in existing if path.name != "__init__"}


@EVERY_PAGE
def test_modules_and_files_exist(page: Path) -> None:
    """Names such as `runtime.tasks`, and paths below this folder."""
    for words in re.findall(
        r"`((?:core|config|runtime|web|cli)(?:\.(?!yaml|adopt\b)\w+)+)`", text_of(page)
    ):
        module = Path(*words.split(".")[:2]).with_suffix(".py")
        assert (ROOT / "llmsnap" / module).exists(), words
    for path in re.findall(r"`((?:llmsnap|tests|docs|configs|deploy)/[\w./-]*)`", text_of(page)):
        assert (ROOT / path).exists(), path


def test_errors_that_are_explained_are_still_said() -> None:
    """What the page on troubles quotes of them stands in the code, where it is always the same."""
    first_cells = re.findall(r"^\| (.*?) \|", text_of(DOCS / "troubleshooting.md"), re.MULTILINE)
    quoted = re.findall(r"`([^`]+)`", "\n".join(first_cells))
    said = "\n".join(path.read_text("utf-8") for path in (ROOT / "llmsnap").rglob("*.py"))
    parts = {part.strip(" :,") for text in quoted for part in re.split("…|;", text)} - {""}
    assert len(parts) > 8
    assert [part for part in sorted(parts) if part not in said] == []
