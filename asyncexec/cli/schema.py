"""``asyncexec schema``: JSON schemas of what is read and written as JSON, from the models themselves."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

import asyncexec as ax
from asyncexec.cli.graph_summary import GraphSummary
from asyncexec.cli.reporting import DebugOption, failures_reported
from asyncexec.framework.schema import write_schemas

PUBLIC_MODELS: Final = ("GraphDef", "SessionConfig", "RunOptions", "RunMetadata")


def written_types() -> list[type[object]]:
    """What is read and written as JSON: the public models, and what ``inspect --json`` prints."""
    return [*(getattr(ax, name) for name in PUBLIC_MODELS), GraphSummary]


def schema(
    folder: Annotated[Path, typer.Argument(metavar="DIR", file_okay=False, help="Where to write.")] = Path("schemas"),
    debug: DebugOption = False,
) -> None:
    """Write the JSON schemas of graphs, their summaries, options and run metadata as DIR/*.schema.json."""
    with failures_reported(debug):
        for path in write_schemas(folder, written_types()):
            typer.echo(path)
