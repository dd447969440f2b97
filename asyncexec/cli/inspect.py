"""``asyncexec inspect``: what is in a graph, as tables, and with ``--html`` as a page with a picture."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

import asyncexec as ax
from asyncexec.cli.graph_layout import PictureNode, lay_out
from asyncexec.cli.graph_page import graph_page
from asyncexec.cli.graph_summary import GraphSummary, TensorSummary, summarize, summarize_unread
from asyncexec.cli.reporting import DebugOption, check_folder, failure_panel, failures_reported
from asyncexec.framework.errors import OpError
from asyncexec.framework.lazy_module import LazyModule

if TYPE_CHECKING:
    from asyncexec.framework.graph_def import GraphDef
    from asyncexec.framework.step_stats import PassStats

_pass_table = LazyModule("asyncexec.cli.pass_table")

MOST_ROWS = 30
MOST_EXAMPLES = 3


def inspect(
    graph_path: Annotated[
        Path, typer.Argument(metavar="GRAPH", exists=True, help="A GraphDef: .pb (binary), .pbtxt or .json.")
    ],
    html: Annotated[
        Path | None,
        typer.Option(metavar="OUT.html", dir_okay=False, help="Where to write a page with a picture of the graph."),
    ] = None,
    passes: Annotated[
        bool, typer.Option("--passes", help="Show what each graph pass makes of it, from all inputs to all outputs.")
    ] = False,
    debug: DebugOption = False,
) -> None:
    """Show the ops, devices, inputs, outputs, loops and functions of a graph."""
    check_folder(html, "--html")
    with failures_reported(debug) as console:
        with console.status("loading the graph"):
            graph_def = ax.load_graph_def(graph_path)
            summary = read_summary(graph_def, console)
        if html is not None:
            page = graph_page(graph_path.name, summary, lay_out(picture_nodes(graph_def)))
            html.write_text(page, encoding="utf-8")
        stats = _pass_table.pass_stats(graph_def) if passes else []
    print_summary(summary)
    print_passes(stats)


def read_summary(graph_def: GraphDef, console: Console) -> GraphSummary:
    """The summary of the graph, or of what can be told of it if it does not import; then *console* says why."""
    graph = ax.Graph()
    try:
        with graph:
            ax.import_graph_def(graph_def, name="")
    except OpError as error:
        console.print(failure_panel(error))
        return summarize_unread(graph_def)
    return summarize(graph, graph_def)


def picture_nodes(graph_def: GraphDef) -> list[PictureNode]:
    """The nodes of *graph_def* with the names of the nodes that they take from."""
    return [
        PictureNode(
            node.name,
            node.op,
            [text.partition(":")[0] for text in node.input if not text.startswith("^")],
            [text[1:] for text in node.input if text.startswith("^")],
        )
        for node in graph_def.node
    ]


def print_summary(summary: GraphSummary) -> None:
    """Print the tables of *summary*, each shortened to its first rows."""
    console = Console()
    console.print(f"{summary.node_count:,} nodes")
    tensor_heads = ("tensor", "op", "dtype", "shape")
    print_table(console, "inputs", tensor_heads, map(tensor_row, summary.inputs))
    print_table(console, "outputs", tensor_heads, map(tensor_row, summary.outputs))
    print_table(console, "ops", ("op", "nodes"), count_rows(summary.op_counts))
    print_table(console, "devices", ("device", "nodes"), count_rows(summary.device_counts))
    loops = ([loop.name, str(loop.loop_variables), str(loop.parallel_iterations or "")] for loop in summary.loops)
    print_table(console, "loops", ("loop", "variables", "parallel iterations"), loops)
    print_table(console, "functions", ("function", "nodes"), ([f.name, str(f.node_count)] for f in summary.functions))


def print_passes(stats: Sequence[PassStats]) -> None:
    """Print what each pass has changed."""
    heads = ("pass", "nodes", "changes", "such as")
    rows = (
        [
            f"{each.name} on {each.device[-5:]}" if each.device else each.name,
            f"{each.num_nodes_before:,} -> {each.num_nodes_after:,}",
            " ".join(
                f"{sign}{count:,}"
                for sign, count in (("+", each.num_added), ("-", each.num_removed), ("~", each.num_changed))
                if count
            ),
            " ".join(each.examples[:MOST_EXAMPLES]),
        ]
        for each in stats
    )
    print_table(Console(), "passes", heads, rows)


def tensor_row(tensor: TensorSummary) -> Sequence[str]:
    return tensor.name, tensor.op, tensor.dtype, tensor.shape


def count_rows(counts: Mapping[str, int]) -> Iterable[Sequence[str]]:
    return ((name or "(any)", f"{count:,}") for name, count in counts.items())


def print_table(console: Console, title: str, heads: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """One table under its title; nothing if there are no rows."""
    rows = list(rows)
    if not rows:
        return
    table = Table(*heads, box=None, pad_edge=False, header_style="dim")
    for row in rows[:MOST_ROWS]:
        table.add_row(*map(Text, row))
    console.print(f"\n[bold]{title}[/bold] ({len(rows)})")
    console.print(table)
    if len(rows) > MOST_ROWS:
        console.print(f"[dim]and {len(rows) - MOST_ROWS} more[/dim]")
