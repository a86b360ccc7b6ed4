"""A report as one page of HTML with its plots, which needs nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Final

from llmsnap.bench.documents import facts
from llmsnap.bench.pictures import plots
from llmsnap.bench.report import Report
from llmsnap.bench.rows import COLUMNS, table

_STYLE: Final = (
    ":root{color-scheme:light dark}"
    "body{font:15px/1.5 sans-serif;max-width:1100px;margin:2em auto;padding:0 1em;"
    "color:#222;background:#fff}"
    "svg{max-width:100%;height:auto}.wide{overflow-x:auto}"
    "table{border-collapse:collapse;font-size:13px}"
    "td,th{padding:3px 8px;border-bottom:1px solid #8886;text-align:left}"
    "@media(prefers-color-scheme:dark){body{color:#ddd;background:#16181c}}"
)


def page(report: Report) -> str:
    """Return the page."""
    body = [f"<p>{escape(sentence)}</p>" for sentence in facts(report)]
    for title, svg in plots(report).items():
        body.append(f"<h2>{escape(title)}</h2>{svg}")
    body.append("<h2>All cases</h2>" + _table(COLUMNS, table(report)))
    for title, notes in report.remarks():
        if notes:
            body.append(f"<h2>{title}</h2><ul>{''.join(f'<li>{escape(n)}' for n in notes)}</ul>")
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8">'
        f"<title>llmsnap bench {escape(report.kind)}</title><style>{_STYLE}</style>"
        f"<h1>llmsnap bench {escape(report.kind)}</h1>{''.join(body)}</html>\n"
    )


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    head = "".join(f"<th>{escape(column)}" for column in columns)
    body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}' for cell in row)}" for row in rows)
    return f'<div class="wide"><table><tr>{head}{body}</table></div>'
