"""Dashboards and alerts are what their makers make, and speak of metrics that there are."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from llmsnap.telemetry import catalogue
from tests.helpers.prometheus import program

DEPLOY = Path(__file__).parents[1] / "deploy"
GRAFANA = DEPLOY / "grafana"
DASHBOARDS = sorted((GRAFANA / "dashboards").glob("*.json"))
RULES = DEPLOY / "prometheus" / "rules.yml"
ALERTS = Path(__file__).with_name("alerts.yml")
EACH = pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)

OWN = re.compile(r"llmsnap_\w+")
SUFFIXES = ("_bucket", "_count", "_sum")


def panels_of(path: Path) -> list[dict[str, Any]]:
    """The panels of a dashboard."""
    panels: list[dict[str, Any]] = json.loads(path.read_text())["panels"]
    return panels


def expressions(path: Path) -> list[tuple[str, str]]:
    """Each expression of a dashboard, with the title of its panel."""
    return [
        (panel["title"], target["expr"]) for panel in panels_of(path) for target in panel["targets"]
    ]


@EACH
def test_whatever_its_job_is_called(path: Path) -> None:
    """Dashboards work under any `job_name` that Prometheus has for llmsnap."""
    assert [title for title, expression in expressions(path) if "job=" in expression] == []


def known_names() -> dict[str, set[str]]:
    """Each series that there is, with its labels."""
    names: dict[str, set[str]] = {}
    for metric in catalogue.ALL:
        labels = {*metric.labels, "instance", "job"}
        if metric.kind == "histogram":
            names |= {f"{metric.name}{suffix}": labels | {"le"} for suffix in SUFFIXES}
        else:
            names[metric.name] = labels
    return names


def test_the_dashboards_are_as_they_are_made(tmp_path: Path) -> None:
    """Whoever edits one edits its maker."""
    made = [sys.executable, str(GRAFANA / "make.py"), str(tmp_path)]
    subprocess.run(made, check=True, timeout=60)

    assert sorted(path.name for path in tmp_path.iterdir()) == [path.name for path in DASHBOARDS]
    for path in DASHBOARDS:
        assert path.read_text() == (tmp_path / path.name).read_text(), path.name


@EACH
def test_every_panel_says_what_it_shows(path: Path) -> None:
    """It has a title of its own, a description, a unit, names for its series, and a place."""
    titles: set[str] = set()
    places: set[tuple[int, int]] = set()
    for panel in panels_of(path):
        assert panel["description"].endswith("."), panel["title"]
        assert panel["fieldConfig"]["defaults"]["unit"]
        assert all(target["legendFormat"] for target in panel["targets"])
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        titles.add(panel["title"])
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & places, f"{panel['title']} covers another panel"
        places |= cells
    assert len(titles) == len(panels_of(path))


@EACH
def test_metrics_and_labels_exist(path: Path) -> None:
    """Every name of ours is in the catalogue, and every label that is matched is one of its own."""
    known = known_names()
    for title, expression in expressions(path):
        for name in OWN.findall(expression):
            assert name in known, f"{title}: {name}"
        for name, matchers in re.findall(r"(llmsnap_\w+)\{(.*?)\}", expression):
            for label in re.findall(r'(\w+)[=!]~?"', matchers):
                assert label in known[name], f"{title}: {name} has no label {label}"


@EACH
def test_instances_and_models_can_be_chosen(path: Path) -> None:
    """And nothing refers to a variable that there isn't."""
    dashboard = json.loads(path.read_text())
    variables = {each["name"] for each in dashboard["templating"]["list"]}
    used = set(re.findall(r"\$\{?(\w+)\}?", path.read_text())) - {"__rate_interval", "__all"}

    assert {"instance", "model"} <= variables
    assert used <= variables


def test_rules_speak_of_metrics_that_exist() -> None:
    """In their expressions."""
    assert set(OWN.findall(RULES.read_text())) <= known_names().keys()


def test_each_alert_fires_when_it_should() -> None:
    """And then only, with its words filled in: cases as Prometheus's own tool takes them."""
    rules, cases = yaml.safe_load(RULES.read_text()), yaml.safe_load(ALERTS.read_text())
    alerts = {rule["alert"] for group in rules["groups"] for rule in group["rules"]}
    expected = [one for case in cases["tests"] for one in case["alert_rule_test"]]
    assert {one["alertname"] for one in expected if one.get("exp_alerts")} == alerts
    argv = [program("promtool"), "test", "rules", str(ALERTS)]
    tested = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60)

    assert tested.returncode == 0, tested.stdout + tested.stderr


@pytest.mark.parametrize("what", [("rules", "rules.yml"), ("config", "prometheus.yml")])
def test_prometheus_takes_them(what: tuple[str, str]) -> None:
    """As its own tool says."""
    kind, name = what
    argv = [program("promtool"), "check", kind, str(RULES.with_name(name))]
    checked = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60)

    assert checked.returncode == 0, checked.stdout + checked.stderr
