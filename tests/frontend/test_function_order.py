"""Programs of changes and reads, with branches and functions in one another: as if Python ran them line by line."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import pytest

import asyncexec as ax
from tests.frontend.function_running import in_tensorflow

Line: TypeAlias = tuple[Any, ...]
Program: TypeAlias = list[Line]
INITIAL = (1, 2)


def random_program(choose: random.Random, depth: int = 3) -> Program:
    lines: Program = []
    for _ in range(choose.randint(1, 4)):
        kind = choose.choice(["multiply", "add", "read", *(["if", "call"] if depth else [])])
        variable, number = choose.randint(0, 1), choose.randint(-3, 3)
        inner = [random_program(choose, depth - 1) for _ in range(2)] if kind in ("if", "call") else []
        lines.append((kind, variable, number, *inner))
    return lines


def run_in_python(program: Program, state: list[int], reads: list[int]) -> None:
    """Run *program* on *state*, and add what it reads, but for reads in branches, to *reads*."""
    for kind, variable, number, *inner in program:
        match kind:
            case "multiply":
                state[variable] = state[variable] * number + 1
            case "add":
                state[variable] += number
            case "read":
                reads.append(state[variable])
            case "if":
                run_in_python(inner[0] if state[variable] > number else inner[1], state, [])
            case "call":
                run_in_python(inner[0], state, reads)


def build(program: Program, variables: Sequence[ax.Variable]) -> list[Any]:
    """Add *program* to the current graph; what it reads."""
    reads: list[Any] = []
    for kind, index, number, *inner in program:
        variable = variables[index]
        match kind:
            case "multiply":
                variable.assign(variable.read_value() * number + 1)
            case "add":
                variable.assign_add(number)
            case "read":
                reads.append(variable.read_value())
            case "if":
                ax.cond(variable.read_value() > number, branch(inner[0], variables), branch(inner[1], variables))
            case "call":
                reads += ax.function(partial(build, inner[0], variables), name="inner")()
    return reads


def branch(program: Program, variables: Sequence[ax.Variable]) -> Callable[[], Any]:
    def built() -> Any:
        build(program, variables)
        return 0

    return built


def graph_of(program: Program) -> ax.Graph:
    """The graph that runs *program*: ``init``, then ``reads`` or ``after``, in which reads and variables are packed."""
    with ax.Graph() as graph:
        variables = [ax.Variable(value) for value in INITIAL]
        reads = ax.function(lambda: [*build(program, variables), 0], name="program")()
        ax.stack(reads, name="reads")
        with ax.control_dependencies([reads[-1]]):
            ax.stack([variable.read_value() for variable in variables], name="after")
        ax.global_variables_initializer("init")
    return graph


def expected_of(program: Program) -> list[list[int]]:
    state, reads = list(INITIAL), list[int]()
    run_in_python(program, state, reads)
    return [[_wrapped(value) for value in values] for values in ([*reads, 0], state)]


def _wrapped(value: int) -> int:
    return (value + 2**31) % 2**32 - 2**31


def check(seed: int) -> None:
    program = random_program(random.Random(seed))
    graph = graph_of(program)
    with ax.Graph() as loaded:
        ax.import_graph_def(graph.as_graph_def())
    for each in (graph, loaded):
        with ax.BlockingSession(each, ax.SessionConfig(schedule_seed=seed)) as session:
            session.run("init")
            got = [value.tolist() for value in session.run(["reads:0", "after:0"])]
        assert got == expected_of(program), program


@pytest.mark.parametrize("seed", range(40))
def test_any_schedule_runs_a_program_in_its_order(seed: int) -> None:
    check(seed)


@pytest.mark.deep
def test_any_schedule_runs_many_programs_in_their_order() -> None:
    for seed in range(40, 2000):
        check(seed)


@pytest.mark.oracle
@pytest.mark.parametrize("seed", range(60))
def test_tensorflow_runs_it_in_the_same_order(seed: int, tmp_path: Path) -> None:
    program = random_program(random.Random(seed))
    got = in_tensorflow(graph_of(program), tmp_path, ["reads:0", "after:0"], {}, first="init")
    assert [value.tolist() for value in got] == expected_of(program)
