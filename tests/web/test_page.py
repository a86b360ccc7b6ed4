"""The files of the web page, and the ways to it."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from zipfile import ZipFile

import pytest
from hatchling.builders.wheel import WheelBuilder

from llmsnap.config.schema import Config
from llmsnap.web.page import page_files
from tests.web.fleet import config_of, front_of
from tests.web.serving import Reply, serving

FOLDER = Path(__file__).parents[2] / "llmsnap" / "web" / "ui"
SCRIPTS = sorted(FOLDER.rglob("*.js"))
EVERY_SCRIPT = pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)


async def asked(path: str, *, method: str = "GET", **headers: str) -> Reply:
    """The answer to one request to a proxy that wants a key, which isn't sent."""
    config = Config(api_keys=("k",), models=config_of("a").models)
    async with serving(front_of(config)) as site:
        return await site.ask(path, method=method, headers=headers)


@pytest.mark.parametrize(
    ("path", "place"),
    [
        ("/", "/ui/"),
        ("/ui", "/ui/"),
        ("/ui/models", "/ui/#models"),
        ("/ui/logs/", "/ui/#logs"),
        ("/ui/anything/else", "/ui/"),
        ("/upstream", "/ui/#models"),
    ],
)
async def test_every_way_leads_to_the_page(path: str, place: str) -> None:
    """Those of the predecessors' pages, too, and without a key."""
    answer = await asked(path)

    assert (answer.status, answer.headers["Location"]) == (302, place)


async def test_the_page_needs_no_key_but_what_it_shows_does() -> None:
    """The page asks for the key itself."""
    page, icon, models = [await asked(path) for path in ("/ui/", "/favicon.ico", "/api/models")]

    assert (page.status, page.headers["Content-Type"]) == (200, "text/html; charset=utf-8")
    assert icon.headers["Content-Type"].startswith("image/svg+xml")
    assert models.status == 401


async def test_browsers_run_nothing_but_the_files() -> None:
    """No inline code, no other address, no markup out of texts, and in nobody's frame."""
    page = await asked("/ui/")

    policy = page.headers["Content-Security-Policy"].split("; ")
    assert "default-src 'none'" in policy
    assert "script-src 'self'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "require-trusted-types-for 'script'" in policy
    assert "unsafe" not in " ".join(policy)
    assert page.headers["X-Content-Type-Options"] == "nosniff"


async def test_a_file_that_is_the_same_isnt_sent_again() -> None:
    """The browser asks each time, so that a new proxy has its new page at once."""
    first = await asked("/ui/js/app.js")
    again = await asked("/ui/js/app.js", **{"If-None-Match": first.headers["ETag"]})
    other = await asked("/ui/js/app.js", **{"If-None-Match": '"another"'})

    assert first.headers["Content-Type"] == "text/javascript; charset=utf-8"
    assert first.headers["Cache-Control"] == "no-cache"
    assert (again.status, again.text, other.status) == (304, "", 200)


@pytest.mark.parametrize("path", ["/ui/nothing.js", "/ui/../page.py", "/ui/%2e%2e/page.py"])
async def test_there_are_no_other_files(path: str) -> None:
    """Whatever the path makes of folders."""
    async with serving(front_of(config_of("a"))) as site:  # other clients tidy paths up
        said = await site.raw(f"GET {path}")

    assert said.startswith(b"HTTP/1.1 404 ")


def test_every_file_that_is_named_is_there() -> None:
    """By the page, and by what it imports; and none is there for nothing."""
    files = page_files()
    page = files["index.html"].body.decode()
    named = set(re.findall(r'(?:href|src)="([\w/]+\.\w+)"', page)) | {"index.html"}
    for name, file in files.items():
        if name.endswith(".js"):
            imports = re.findall(r'^import .*? from "\./(.*?)";$', file.body.decode(), re.MULTILINE)
            named |= {f"js/{other}" for other in imports}

    assert named == set(files)


def test_the_wheel_brings_every_file(tmp_path: Path) -> None:
    """Whoever installs the package has the page, and it needs nothing else."""
    (wheel,) = WheelBuilder(str(FOLDER.parents[2])).build(directory=str(tmp_path))
    with ZipFile(wheel) as archive:
        brought = {name for name in archive.namelist() if name.startswith("llmsnap/web/ui/")}

    assert brought == {f"llmsnap/web/ui/{name}" for name in page_files()}


@EVERY_SCRIPT
def test_scripts_make_no_markup_of_texts(path: Path) -> None:
    """Nothing is put into the page but as a text, and nothing asks another address."""
    text = path.read_text()

    banned = r"innerHTML|outerHTML|insertAdjacent|document\.write|\beval\(|new Function|https?://"
    assert re.findall(banned, text.replace('"http://www.w3.org/2000/svg"', "")) == []


@pytest.mark.parametrize("path", sorted(FOLDER.rglob("*.*s")), ids=lambda path: path.name)
def test_files_stay_small_and_say_what_they_are_for(path: Path) -> None:
    """As the package's own modules do."""
    text = path.read_text()

    assert len(text.splitlines()) <= 400
    assert text.startswith(("// ", "/* "))


@pytest.mark.skipif(shutil.which("node") is None, reason="node isn't there to check them")
@EVERY_SCRIPT
def test_scripts_are_javascript(path: Path) -> None:
    """As far as their syntax goes."""
    subprocess.run(["node", "--check", str(path)], check=True)
