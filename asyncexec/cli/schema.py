"""``asyncexec schema``: JSON schemas of what is read and written as JSON, from the models themselves."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

import asyncexec as ax
from asyncexec.cli.reporting import DebugOption, failures_reported
from asyncexec.framework.schema import write_schemas

PUBLIC_MODELS: Final = ("GraphDef", "SessionConfig", "RunOptions", "RunMetadata")


def schema(
    folder: Annotated[Path, typer.Argument(metavar="DIR", file_okay=False, help="Where to write.")] = Path("schemas"),
    debug: DebugOption = False,
) -> None:
    """Write the JSON schemas of graphs, options and run metadata as DIR/*.schema.json."""
    with failures_reported(debug):
        for path in write_schemas(folder, [getattr(ax, name) for name in PUBLIC_MODELS]):
            typer.echo(path)
