"""Rules of the source tree that no linter knows."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "asyncexec"
SOURCES = sorted(PACKAGE.rglob("*.py"))
GENERATED = {"asyncexec/ops/op_index.py"}  # nobody reads it
LONGEST_MODULE = 450


@cache
def trees() -> dict[str, ast.Module]:
    """The sources by their paths in the tree."""
    return {str(path.relative_to(ROOT)): ast.parse(path.read_text(encoding="utf-8")) for path in SOURCES}


def imports_of_ours_inside_functions(tree: ast.AST) -> Iterator[int]:
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            for node in ast.walk(function):
                names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
                if isinstance(node, ast.ImportFrom):
                    names = [node.module or ""]
                if node_is_relative(node) or any(name.partition(".")[0] == "asyncexec" for name in names):
                    yield node.lineno


def node_is_relative(node: ast.AST) -> bool:
    return isinstance(node, ast.ImportFrom) and node.level > 0


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        ("import asyncexec.ops", []),
        ("def f():\n    import numpy", []),
        ("def f():\n    import asyncexec.ops", [2]),
        ("class C:\n    async def f(self):\n        from asyncexec import ops", [3]),
        ("def f():\n    from . import ops", [2]),
    ],
)
def test_the_check_finds_what_it_is_for(source: str, lines: list[int]) -> None:
    assert list(imports_of_ours_inside_functions(ast.parse(source))) == lines


def test_no_import_of_ours_hides_in_a_function() -> None:
    assert [f"{path}:{line}" for path, tree in trees().items() for line in imports_of_ours_inside_functions(tree)] == []


def test_every_module_says_what_is_in_it() -> None:
    assert [path for path, tree in trees().items() if tree.body and not ast.get_docstring(tree)] == []


def test_modules_are_of_a_readable_length() -> None:
    lengths = {str(path.relative_to(ROOT)): len(path.read_text(encoding="utf-8").splitlines()) for path in SOURCES}
    assert {path for path, length in lengths.items() if length > LONGEST_MODULE} <= GENERATED
