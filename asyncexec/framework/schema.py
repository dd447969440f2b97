"""JSON schemas of the models that are read and written as JSON files, kept in the folder ``schemas/``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel

from asyncexec.framework.graph_def import GraphDef

SCHEMA_DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
_models: dict[str, type[BaseModel]] = {}


def register_schema(name: str, model: type[BaseModel]) -> None:
    """Have *model* written to ``<name>.schema.json``."""
    _models[name] = model


def schema_names() -> tuple[str, ...]:
    """The names registered, sorted."""
    return tuple(sorted(_models))


def schema_text(name: str) -> str:
    """The schema *name*: the same text for the same model."""
    schema: dict[str, Any] = {"$schema": SCHEMA_DIALECT, **_models[name].model_json_schema(by_alias=True)}
    return json.dumps(schema, indent=2, sort_keys=True) + "\n"


def write_schemas(folder: str | Path) -> list[Path]:
    """Write every registered schema into *folder*; the files written."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name in schema_names():
        path = folder / f"{name}.schema.json"
        path.write_text(schema_text(name), encoding="utf-8")
        written.append(path)
    return written


register_schema("graph_def", GraphDef)
