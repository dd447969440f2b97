"""The package's public names: all there, known to type checkers, and loaded only when used."""

from __future__ import annotations

import ast
import builtins
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import asyncexec as ax

INIT = Path(ax.__file__)
EXTRAS = {
    "typer",
    "rich",
    "scipy",
    "ml_dtypes",
    "tensorboard",
    "google.protobuf",
    "opentelemetry",
    "prometheus_client",
    "httpx",
    "PIL",
    "starlette",
    "uvicorn",
    "ray",
    "distributed",
}


def modules_after(code: str) -> set[str]:
    script = f"{code}\nimport json, sys\nprint(json.dumps(sorted(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=INIT.parents[1]
    )
    return set(json.loads(done.stdout))


def typed_imports() -> dict[str, str]:
    """Name -> module, of the imports that only type checkers see."""
    guarded = next(node for node in ast.parse(INIT.read_text(encoding="utf-8")).body if isinstance(node, ast.If))
    imports = [node for node in guarded.body if isinstance(node, ast.ImportFrom)]
    for node in imports:
        assert all(alias.asname == alias.name for alias in node.names), "mypy sees only 'import x as x'"
    return {alias.name: node.module or "" for node in imports for alias in node.names}


def test_every_public_name_resolves() -> None:
    assert {name for name in dir(ax) if getattr(ax, name, None) is None} == set()
    assert dir(ax) == sorted(ax._MODULES)


def test_a_graph_shows_what_is_public() -> None:
    graph = ax.Graph()
    shown = dir(graph)
    assert {"operations", "tensor", "as_graph_def", "finalize"} <= set(shown)
    assert not {name for name in shown if name.startswith("_") or not hasattr(graph, name)}
    assert "refiner" not in shown  # one of those that stages of the executor use


def test_a_star_import_leaves_the_builtins_as_they_are() -> None:
    names: dict[str, Any] = {}
    exec("from asyncexec import *", names)
    assert {"Graph", "placeholder", "float32"} <= names.keys()
    assert not names.keys() & (vars(builtins).keys() - {"__doc__", "__name__", "__builtins__"})
    assert not vars(builtins).keys() & set(ax.__all__)
    assert {"abs", "bool", "object"} <= set(dir(ax))


def test_type_checkers_see_the_same_names() -> None:
    assert typed_imports() == ax._MODULES
    assert sorted(typed_imports()) == dir(ax)


def test_a_name_that_does_not_exist_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'matmull'"):
        ax.matmull  # type: ignore[attr-defined]  # noqa: B018
    with pytest.raises(ImportError):
        from asyncexec import matmull  # type: ignore[attr-defined]  # noqa: F401


def test_importing_the_package_imports_nothing_else() -> None:
    added = modules_after("import asyncexec") - modules_after("import typing")
    assert {name for name in added if name.partition(".")[0] not in ("__future__", "asyncexec")} == set()


@pytest.mark.parametrize("name", ["errors", "float32", "Graph", "placeholder", "Session", "cluster", "Worker"])
def test_using_a_name_imports_no_extra(name: str) -> None:
    loaded = modules_after(f"from asyncexec import {name}")
    assert loaded & EXTRAS == set()


def test_a_graph_can_be_built_whatever_is_imported_first() -> None:
    modules_after("from asyncexec import Graph, create_op\nwith Graph():\n    create_op('NoOp')")
    modules_after("from asyncexec import Graph, constant\nwith Graph():\n    constant(1) + 2")
    modules_after(
        "from asyncexec import Graph, GraphDef, NodeDef, import_graph_def\n"
        "with Graph() as g:\n    import_graph_def(GraphDef(node=[NodeDef(name='n', op='NoOp')]))"
    )
