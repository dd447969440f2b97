"""A graph as one page that needs nothing else, no file and no network: a picture to unfold, a tree, details, tables.

The graph is a stranger's: it stands in the page as JSON, which no HTML can end, and as escaped text.  By its
Content-Security-Policy the page runs the scripts in ``page/files`` alone, told by their hashes, and loads nothing.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator, Sequence
from html import escape
from typing import Final

from asyncexec.cli.graph_summary import GraphSummary, table_rows
from asyncexec.page.graph_data import as_json, graph_data
from asyncexec.page.graph_nodes import ShownNode
from asyncexec.page.page_files import graph_view, page_file

MOST_ROWS: Final = 1_000  # of a table
# It begins when all of the page is there.
START: Final = """
showGraph(document.documentElement, JSON.parse(document.getElementById("graph-data").textContent));
"""


def graph_page(title: str, nodes: Sequence[ShownNode], summary: GraphSummary) -> str:
    """The page, as HTML."""
    scripts = [page_file("cytoscape.min.js"), f"{page_file('layout.js')}\n{page_file('graph.js')}{START}"]
    hashes = " ".join(f"'sha256-{_hash(script)}'" for script in scripts)
    policy = f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
    problem = f'<p class="problem" role="alert">{escape(summary.problem)}</p>' if summary.problem else ""
    data = as_json(graph_data(nodes, summary.unknown_ops))
    facts = f"{summary.node_count:,} nodes, {len(summary.op_counts):,} op types"
    heading = f'<h1>{escape(title)}</h1><p class="facts">{facts}</p>'
    return "".join(
        [
            '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n',
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n',
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n',
            f"<title>{escape(title)}</title>\n<style>{page_file('base.css')}{page_file('graph.css')}</style></head><body>",
            f'<main id="first" class="graph">{graph_view(heading, problem)}</main>\n',
            '<noscript><p class="problem">The picture needs scripts; the tables below do not.</p></noscript>\n',
            '<div id="tables">\n',
            *_tables(summary),
            "</div>\n",
            f'<script type="application/json" id="graph-data">{data}</script>\n',
            *(f"<script>{script}</script>\n" for script in scripts),
            "</body></html>\n",
        ]
    )


def _hash(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def _tables(summary: GraphSummary) -> Iterator[str]:
    for title, (heads, rows) in table_rows(summary).items():
        yield _table(title.capitalize(), heads, rows)


def _table(title: str, heads: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    if not rows:
        return ""
    head = "".join(f'<th scope="col">{escape(text)}</th>' for text in heads)
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows[:MOST_ROWS])
    more = f"<p>... and {len(rows) - MOST_ROWS:,} more</p>" if len(rows) > MOST_ROWS else ""
    return f"<details><summary>{title} ({len(rows):,})</summary><table><tr>{head}</tr>{body}</table>{more}</details>\n"


def _cell(value: object) -> str:
    kind = ' class="number"' if isinstance(value, int) else ""
    return f"<td{kind}>{escape(str(value))}</td>"
