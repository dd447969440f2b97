"""JSON schemas of the models that are read and written as JSON files, kept in the folder ``schemas/``."""

from __future__ import annotations

import json
from collections.abc import Iterable
from os import PathLike
from pathlib import Path
from typing import Final

from pydantic import TypeAdapter

SCHEMA_DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"


def schema_text(model: type[object]) -> str:
    """The schema of *model*: the same text for the same model."""
    schema: dict[str, object] = {"$schema": SCHEMA_DIALECT, **TypeAdapter(model).json_schema(by_alias=True)}
    return json.dumps(schema, indent=2, sort_keys=True) + "\n"


def schema_file_name(model: type[object]) -> str:
    """``graph_def.schema.json`` for ``GraphDef``."""
    snake = "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in model.__name__).lstrip("_")
    return f"{snake}.schema.json"


def write_schemas(folder: str | PathLike[str], models: Iterable[type[object]]) -> list[Path]:
    """Write the schema of each model into *folder*, made if need be; the files written."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for model in models:
        path = folder / schema_file_name(model)
        path.write_text(schema_text(model), encoding="utf-8")
        written.append(path)
    return written
