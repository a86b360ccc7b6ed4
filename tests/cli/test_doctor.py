"""`llmsnap doctor`: a table for people, a document for programs, an exit code for scripts."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Outcome, Run
from tests.helpers.ports import free_port

FINE = "models: {a: {cmd: 'sh ${PORT}'}}\n"
BROKEN = "models: {a: {cmd: 'no-such-program-anywhere ${PORT}'}}\n"


@pytest.fixture
def examined(llmsnap: Run, tmp_path: Path) -> Run:
    """Run it with a configuration and places of its own."""

    def run(*argv: str) -> Outcome:
        text, *more = argv
        path = tmp_path / "config.yaml"
        path.write_text(f"startPort: {free_port()}\n{text}")
        places = ("--listen", f"127.0.0.1:{free_port()}", "--state-dir", str(tmp_path / "state"))
        return llmsnap("doctor", "--config", str(path), *places, *more)

    return run


def test_a_table_with_remedies(examined: Run) -> None:
    """Each line has a status, and the last one sums up."""
    outcome = examined(FINE)

    lines = outcome.out.splitlines()
    assert outcome.code == 0
    assert lines[0].split() == ["CHECK", "FOUND", "REMEDY"]
    assert any(line.split()[:2] == ["commands", "ok"] for line in lines)
    assert any(line.split()[:2] == ["state", "ok"] for line in lines)
    assert lines[-1].endswith(("all is well", "warning", "warnings"))


def test_what_keeps_a_model_from_running_ends_with_1(examined: Run) -> None:
    """With the reason and the remedy."""
    outcome = examined(BROKEN)

    assert outcome.code == 1
    (line,) = [line for line in outcome.out.splitlines() if line.startswith("model a ")]
    assert "fail" in line
    assert "'no-such-program-anywhere' isn't found" in line
    assert outcome.out.splitlines()[-1].startswith("1 failure")


@pytest.mark.parametrize(("text", "code"), [(FINE, 0), (BROKEN, 1)])
def test_in_json(examined: Run, text: str, code: int) -> None:
    """The same, for programs, with the same exit code."""
    outcome = examined(text, "--json")

    assert outcome.code == code
    checks = {check["check"]: check for check in outcome.json["checks"]}
    assert checks["state"]["status"] == "ok"
    assert set(checks["state"]) == {"check", "status", "found", "remedy"}
    assert (outcome.json["status"] == "fail") == bool(code)


def test_a_configuration_that_cant_be_used(examined: Run) -> None:
    """A finding like others: the machine is looked at all the same."""
    outcome = examined("models: {a: {cmd: 'sh ${PORT}', ttl: soon}}\n", "--json")

    first, *others = outcome.json["checks"]
    assert outcome.code == 1
    assert (first["check"], first["status"]) == ("configuration", "fail")
    assert "config.yaml:2: models.a.ttl: expected a whole number" in first["found"]
    assert first["remedy"] == "take the quotes away"
    assert "state" in {check["check"] for check in others}


def test_without_a_configuration(
    llmsnap: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A warning: it is the first thing that a newcomer runs."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))

    outcome = llmsnap("doctor", "--json", "--listen", f"127.0.0.1:{free_port()}")

    first = outcome.json["checks"][0]
    assert (first["check"], first["status"]) == ("configuration", "warn")
    assert "llmsnap demo" in first["remedy"]
