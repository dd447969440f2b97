"""The table of TensorFlow's cases is complete, and every test that it names exists."""

from __future__ import annotations

import inspect
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from tests.frontend.control_flow_cases.table import DIFFERS, GRAPH_ONLY, LEFT_OUT, PORTED

FOLDER = Path(__file__).parent
TESTS_OF_TENSORFLOW = 239


def places(block: str) -> dict[str, str]:
    """TensorFlow's test -> ``module::function`` here."""
    rows = [line.split() for line in block.splitlines() if line.strip()]
    return {row[0]: row[1] for row in rows}


TESTED = {**places(PORTED), **places(GRAPH_ONLY), **places(DIFFERS)}


def module_name(place: str) -> str:
    """The module, ``../`` standing for the package around this one."""
    name = place.partition("::")[0]
    package = "tests.frontend" if name.startswith("../") else "tests.frontend.control_flow_cases"
    return f"{package}.{name.removeprefix('../')}"


def ids_of(function: Any) -> list[str]:
    """The ids of the parameters of a test."""
    marks = [mark for mark in function.pytestmark if mark.name == "parametrize"]
    return [str(name) for mark in marks for name in mark.kwargs.get("ids") or mark.args[1]]


@pytest.mark.parametrize("place", sorted(set(TESTED.values())))
def test_the_test_exists(place: str) -> None:
    name, _, parameters = place.partition("::")[2].removesuffix("]").partition("[")
    function = getattr(import_module(module_name(place)), name)
    assert name.startswith("test_")
    assert inspect.isfunction(function)
    assert not parameters or parameters in ids_of(function)


def test_every_case_is_in_one_place() -> None:
    left_out = [name for names in LEFT_OUT.values() for name in names.split()]
    every = [*places(PORTED), *places(GRAPH_ONLY), *places(DIFFERS), *left_out]
    assert len(every) == len(set(every)) == TESTS_OF_TENSORFLOW
    lines = [line for block in (PORTED, GRAPH_ONLY, DIFFERS) for line in block.splitlines() if line.strip()]
    assert len(lines) == len(TESTED)


def test_most_are_tested() -> None:
    assert len(places(PORTED)) >= 135
    assert len(TESTED) >= 200


def test_what_differs_says_how() -> None:
    assert all(" - " in line for line in DIFFERS.splitlines() if line.strip())


def test_no_module_of_cases_is_forgotten() -> None:
    modules = {path.stem for path in FOLDER.glob("test_*.py")} - {"test_table"}
    assert modules <= {place.partition("::")[0] for place in TESTED.values()}
