"""``asyncexec inspect``: what is in a graph, as tables, as JSON, and with ``--html`` as a page with a picture."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path
from typing import Annotated

import typer

from asyncexec.cli.graph_page import graph_page
from asyncexec.cli.graph_source import InspectedGraph, import_modules, read_graph
from asyncexec.cli.graph_summary import GraphSummary, summarize, table_rows
from asyncexec.cli.reporting import (
    DebugOption,
    check_folder,
    error_lines,
    failures_reported,
    output_console,
    plain,
    print_table,
)
from asyncexec.framework.lazy_module import LazyModule

_pass_table = LazyModule("asyncexec.cli.pass_table")


def inspect(
    graph: Annotated[
        str,
        typer.Argument(
            metavar="GRAPH",
            help="A GraphDef: .pb (binary), .pbtxt or .json; - for one from standard input; or MODULE:GRAPH, a Graph "
            "of a Python module, which is imported.",
        ),
    ],
    html: Annotated[
        Path | None,
        typer.Option(metavar="OUT.html", dir_okay=False, help="Where to write a page with a picture of the graph."),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print all of it as JSON (schemas/graph_summary.schema.json).")
    ] = False,
    modules: Annotated[
        list[str] | None,
        typer.Option(
            "--import", metavar="MODULE", help="A Python module to import for its ops.  May be given many times."
        ),
    ] = None,
    passes: Annotated[
        bool, typer.Option("--passes", help="Show what each graph pass makes of it, from all inputs to all outputs.")
    ] = False,
    debug: DebugOption = False,
) -> None:
    """Show the ops, devices, inputs, outputs, loops and functions of a graph.

    A graph with ops that are not registered is shown, too, without dtypes and shapes; one that cannot be imported for
    another reason, and exit code 1 says so.
    """
    check_folder(html, "--html")
    with failures_reported(debug) as console:
        with console.status("loading the graph"):
            import_modules(modules or ())
            inspected = read_graph(graph)
        summary = summary_of(graph, inspected, with_passes=passes)
        if html is not None:
            html.write_text(graph_page(os.path.basename(graph), inspected.nodes, summary), encoding="utf-8")
    if as_json:
        typer.echo(json.dumps(dataclasses.asdict(summary), indent=2))
    else:
        print_summary(summary)
    if inspected.unknown_ops and not as_json:
        console.print(plain(f"not registered here: {', '.join(inspected.unknown_ops)} (--import MODULE defines ops)"))
    if inspected.error is not None:
        console.print(plain("\n".join(error_lines(inspected.error))), soft_wrap=True)
        raise typer.Exit(1)


def summary_of(source: str, inspected: InspectedGraph, *, with_passes: bool) -> GraphSummary:
    """What there is to be said of *inspected*; errors of passes as of a session."""
    stats = []
    if with_passes and inspected.graph is not None:
        graph_def = inspected.graph_def
        stats = _pass_table.pass_summaries(
            inspected.graph if graph_def is None else _pass_table.graph_to_optimize(graph_def)
        )
    problem = None
    if inspected.unknown_ops:
        problem = f"not registered here: {', '.join(inspected.unknown_ops)}"
    elif inspected.error is not None:
        problem = "\n".join(error_lines(inspected.error))
    return summarize(
        source,
        inspected.nodes,
        inspected.functions,
        inspected.unknown_ops,
        inspected.without_kernel,
        problem=problem,
        passes=stats,
    )


def print_summary(summary: GraphSummary) -> None:
    """Print the tables of *summary*, each shortened to its first rows."""
    console = output_console()
    console.print(f"{summary.node_count:,} nodes")
    for title, (heads, rows) in table_rows(summary).items():
        if rows:
            console.print(f"\n[bold]{title}[/bold] ({len(rows):,})")
            print_table(console, heads, rows)
