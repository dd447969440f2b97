"""The documentation as a site: it builds, and the reference has every public name, with an example and its errors."""

from __future__ import annotations

import doctest
import inspect
import re
import runpy
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

import asyncexec as ax
from asyncexec import testing
from tests.pnnx_model import put_pnnx_model

ROOT = Path(__file__).parents[1]
REFERENCE = ROOT / "docs" / "reference"
# Records and classes that nobody calls with arguments that could be wrong.
RAISE_NOTHING = {
    "CacheWarning",
    "Clock",
    "ExecutorParams",
    "Hook",
    "Joined",
    "KernelWarning",
    "Replayed",
    "RunEvent",
    "Span",
    "SessionStatistics",
    "StepStats",
    "VirtualClockLoop",
    "Window",
    "WorkerStatistics",
}
# Made by other functions, which tell the errors.
MADE_ELSEWHERE = {"KeyedState", "Operation", "PassGraph", "StreamMap", "StreamState", "Tensor", "Ticks", "Windows"}


def public() -> dict[str, Any]:
    """The public names that are functions or classes; dtypes are in a table of their own."""
    names = {name: getattr(ax, name) for name in dir(ax)}
    names |= {f"testing.{name}": value for name, value in vars(testing).items() if name[0].isupper()}
    return {name: value for name, value in names.items() if callable(value) and not isinstance(value, ax.DType)}


def documented() -> Iterator[tuple[str, str]]:
    """Public names and the methods of public classes, each with its docstring."""
    for name, value in public().items():
        yield name, inspect.getdoc(value) or ""
        if inspect.isclass(value):
            for method, function in vars(value).items():
                if not method.startswith("_") and callable(getattr(value, method)):
                    yield f"{name}.{method}", inspect.getdoc(function) or ""


@cache
def pages() -> dict[str, str]:
    return {path.name: path.read_text(encoding="utf-8") for path in sorted(REFERENCE.glob("*.md"))}


@cache
def programs() -> str:
    """All programs of the reference, which test_readme runs."""
    return "\n".join(re.findall(r"^```python\n(.*?)^```$", "\n".join(pages().values()), re.MULTILINE | re.DOTALL))


@pytest.mark.first
@pytest.mark.timeout(300)
def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    pytest.importorskip("sphinx")
    build = ["-m", "sphinx", "--fail-on-warning", "--keep-going", "-q", "-b", "dummy"]
    command = [sys.executable, *build, str(ROOT / "docs"), str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_every_public_name_is_on_one_page() -> None:
    listed: Counter[str] = Counter()
    for names in re.findall(r"^```{names}\n(.*?)^```$", "\n".join(pages().values()), re.MULTILINE | re.DOTALL):
        for entry in re.findall(r"^[\w.]+", names, re.MULTILINE):
            listed.update(ax._PUBLIC[entry].split() if entry in ax._PUBLIC else [entry])
    assert {name: count for name, count in listed.items() if count > 1} == {}
    assert public().keys() - listed == set()


def test_every_dtype_is_in_the_table() -> None:
    dtypes = {name for name in dir(ax) if isinstance(getattr(ax, name), ax.DType)}
    assert dtypes - set(re.findall(r"`(\w+)`", pages()["types.md"])) == set()


def test_every_public_name_has_an_example() -> None:
    """In its docstring, or in a program of the reference or of the page that it links to."""
    guides = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "docs").glob("*.md"))
    shown = set(re.findall(r"\w+", programs() + guides))
    bare = [name for name, doc in documented() if name in public() and ">>>" not in doc]
    assert [name for name in bare if name.removeprefix("testing.") not in shown] == []


def test_every_public_name_tells_its_errors() -> None:
    """In its docstring, or for all of a module at the head of the module."""
    silent = []
    for name, value in public().items():
        told = f"{inspect.getdoc(value)} {inspect.getdoc(inspect.getmodule(value))}"
        if not re.search(r"Raises:|\w+Error\b", told):
            silent.append(name)
    assert sorted({name.removeprefix("testing.") for name in silent} - RAISE_NOTHING - MADE_ELSEWHERE) == []


@cache
def show() -> Callable[..., None]:
    """The function ``show`` of the page, as readers have it."""
    source = re.search(r"^```python\n(.*?)^with ax.Graph", pages()["index.md"], re.MULTILINE | re.DOTALL)
    assert source is not None
    names: dict[str, Any] = {}
    exec(source[1], names)
    return names["show"]


@pytest.mark.parametrize("name", [name for name, doc in documented() if ">>>" in doc])
def test_examples_of_docstrings_run(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    put_pnnx_model(tmp_path)
    names = {"ax": ax, "np": np, "show": show()}
    examples = doctest.DocTestParser().get_doctest(dict(documented())[name], names, name, None, None)
    report: list[str] = []
    with ax.Graph():
        failed, tried = doctest.DocTestRunner().run(examples, out=report.append)
    assert tried > 0
    assert failed == 0, "".join(report)


def test_the_drawings_are_what_their_script_writes() -> None:
    script = runpy.run_path(str(ROOT / "docs" / "drawings" / "make.py"))
    assert {path: path.read_text(encoding="utf-8") for path, _ in script["drawings"]()} == dict(script["drawings"]())
    for _, text in script["drawings"]():
        ElementTree.fromstring(text)
