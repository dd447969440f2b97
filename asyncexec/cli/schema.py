"""``asyncexec schema``: JSON schemas of what is read and written as JSON, from the models themselves."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, Final

import typer

import asyncexec as ax
from asyncexec.cli.reporting import DebugOption, failures_reported

MODELS: Final = ("GraphDef", "SessionConfig", "RunOptions", "RunMetadata")
DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"


def schema(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Where to write.")] = Path("schemas"),
    debug: DebugOption = False,
) -> None:
    """Write the JSON schemas of graphs, options and run metadata as DIR/*.schema.json."""
    with failures_reported(debug):
        folder.mkdir(parents=True, exist_ok=True)
        for model in MODELS:
            path = folder / f"{snake_case(model)}.schema.json"
            path.write_text(json.dumps(model_schema(model), indent=2) + "\n", encoding="utf-8")
            typer.echo(path)


def model_schema(model: str) -> dict[str, Any]:
    """The JSON schema of the public class named *model*."""
    from pydantic import TypeAdapter

    return {"$schema": DIALECT, **TypeAdapter(getattr(ax, model)).json_schema(by_alias=True)}


def snake_case(name: str) -> str:
    """``graph_def`` of ``GraphDef``."""
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name).lstrip("_")
