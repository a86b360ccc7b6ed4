"""Panels and dashboards as Grafana wants them: what repeats in each is written once here.

That is the data source, the choice of instances and models, the grid, the legend.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

SOURCE = {"type": "prometheus", "uid": "${datasource}"}
OF = 'instance=~"$instance",model=~"$model"'
ON = 'instance=~"$instance"'
WIDTH = 24

Json = dict[str, Any]


@dataclass(frozen=True)
class Query:
    """One expression, and how its series are called."""

    expr: str
    legend: str


@dataclass(frozen=True)
class Panel:
    """One panel, in the width and height of Grafana's grid."""

    title: str
    description: str
    queries: Sequence[Query]
    unit: str
    kind: str = "timeseries"
    width: int = 12
    height: int = 8
    stacked: bool = False
    thresholds: Sequence[tuple[float | None, str]] = ((None, "green"),)


def quantiles(metric: str, by: str, legend: str) -> list[Query]:
    """The middle, the slow ones, and the slowest, as far as buckets tell."""
    return [
        Query(
            f"histogram_quantile({q}, {increase(f'{metric}_bucket', f'le, {by}')})", f"{n} {legend}"
        )
        for q, n in ((0.5, "p50"), (0.95, "p95"), (1, "max"))
    ]


def increase(metric: str, by: str = "", more: str = "") -> str:
    """How much it grew in the window; without `by`, over all series.

    A series begins with the first thing that it counts, which Prometheus' `increase` doesn't see:
    of one that is younger than the window, what it has counted in all is taken.
    """
    series = f"{metric}{{{OF}{more}}}"
    grown = f"({series} unless {series} offset $window) or increase({series}[$window])"
    return f"sum by ({by}) ({grown})" if by else f"sum({grown})"


def rate(metric: str, by: str, more: str = "") -> str:
    """How fast it grows."""
    return f"sum by ({by}) (rate({metric}{{{OF}{more}}}[$__rate_interval]))"


# ---- as Grafana wants them ---------------------------------------------------------------------


def dashboard(uid: str, title: str, panels: Sequence[Panel], variables: Sequence[Any]) -> Json:
    """Return one dashboard."""
    return {
        "uid": f"llmsnap-{uid}",
        "title": title,
        "tags": ["llmsnap"],
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "timezone": "browser",
        "refresh": "10s",
        "time": {"from": "now-3h", "to": "now"},
        "links": [
            {"type": "dashboards", "tags": ["llmsnap"], "title": "llmsnap", "asDropdown": False}
        ],
        "templating": {"list": [*_common_variables(), *(_variable(*each) for each in variables)]},
        "annotations": {"list": []},
        "panels": list(_placed(panels)),
    }


def _common_variables() -> list[Json]:
    windows = ["5m", "15m", "1h", "6h", "1d"]
    return [
        {"name": "datasource", "label": "Source", "type": "datasource", "query": "prometheus"},
        _variable("instance", "Instance", "label_values(llmsnap_build_info, instance)"),
        _variable("model", "Model", f"label_values(llmsnap_model_state{{{ON}}}, model)"),
        {
            "name": "window",
            "label": "Window",
            "description": "Over which swaps and quantiles are taken: swaps are rare.",
            "type": "interval",
            "query": ",".join(windows),
            "current": {"text": "1h", "value": "1h"},
            "options": [{"text": w, "value": w, "selected": w == "1h"} for w in windows],
        },
    ]


def _variable(name: str, label: str, query: str) -> Json:
    return {
        "name": name,
        "label": label,
        "type": "query",
        "datasource": SOURCE,
        "query": {"query": query, "refId": name},
        "definition": query,
        "refresh": 2,
        "sort": 1,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"text": ["All"], "value": ["$__all"]},
    }


def _placed(panels: Sequence[Panel]) -> Iterator[Json]:
    """Yield the panels from left to right, then down."""
    x = y = row = 0
    for number, panel in enumerate(panels, 1):
        if x + panel.width > WIDTH:
            x, y, row = 0, y + row, 0
        place = {"x": x, "y": y, "w": panel.width, "h": panel.height}
        x, row = x + panel.width, max(row, panel.height)
        yield {"id": number, "gridPos": place, **_panel(panel)}


def _panel(panel: Panel) -> Json:
    steps = [{"value": value, "color": color} for value, color in panel.thresholds]
    return {
        "type": panel.kind,
        "title": panel.title,
        "description": panel.description,
        "datasource": SOURCE,
        "targets": [
            {"refId": chr(ord("A") + at), "expr": query.expr, "legendFormat": query.legend}
            | {"datasource": SOURCE}
            for at, query in enumerate(panel.queries)
        ],
        "fieldConfig": {
            "defaults": {
                "unit": panel.unit,
                "min": 0,
                "thresholds": {"mode": "absolute", "steps": steps},
                "custom": _drawing(panel),
            },
            "overrides": [],
        },
        "options": _options(panel),
    }


def _drawing(panel: Panel) -> Json:
    if panel.kind != "timeseries":
        return {}
    stacking = {"mode": "normal" if panel.stacked else "none", "group": "A"}
    return {"fillOpacity": 40 if panel.stacked else 8, "stacking": stacking, "showPoints": "auto"}


def _options(panel: Panel) -> Json:
    match panel.kind:
        case "timeseries":
            legend = {"displayMode": "list", "placement": "bottom", "showLegend": True}
            return {"legend": legend, "tooltip": {"mode": "multi", "sort": "desc"}}
        case "status-history":
            return {"showValue": "never"}
        case _:
            return {"reduceOptions": {"calcs": ["lastNotNull"]}}
