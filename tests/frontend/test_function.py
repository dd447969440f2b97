"""``@ax.function``: values as of the plain Python function, traces, captures, nests, files."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import asyncexec as ax
from tests.frontend.builder import run
from tests.frontend.function_running import evaluated, in_tensorflow, plain
from tests.running import import_all_names


@pytest.fixture(scope="module", autouse=True)
def all_names() -> None:
    import_all_names()


class Pair(NamedTuple):
    first: Any
    second: Any


@dataclasses.dataclass
class Record:
    value: Any
    label: str


@ax.function
def double(x: Any) -> Any:
    return x * 2


@ax.function
def factorial(n: Any) -> Any:
    return ax.while_loop(lambda i, _: i > 1, lambda i, product: (i - 1, product * i), [n, ax.constant(1)])[1]


@ax.function
def absolute(x: Any) -> Any:
    return ax.cond(x < 0, lambda: -x, lambda: x)


@ax.function
def quadruple(x: Any) -> Any:
    return double(double(x))


@ax.function
def collected(x: Any) -> Any:
    def body(i: Any, array: ax.TensorArray) -> Any:
        return i + 1, array.write(i, double(x) + i)

    return ax.while_loop(lambda i, _: i < 3, body, [0, ax.TensorArray(ax.int32, 3)])[1].stack()


VALUES: dict[str, tuple[Callable[[Any], Any], int, Any]] = {
    "one_node": (double, 3, 6),
    "same_trace_twice": (lambda x: double(double(x)), 3, 12),
    "of_a_function": (quadruple, 3, 12),
    "loop_inside": (factorial, 5, 120),
    "branch_inside_taken": (absolute, -4, 4),
    "branch_inside_not_taken": (absolute, 4, 4),
    "tensor_array_inside": (collected, 5, [10, 11, 12]),
    "in_a_branch": (lambda x: ax.cond(x > 0, lambda: double(x), lambda: quadruple(x)), -1, -4),
    "in_a_loop": (lambda x: ax.while_loop(lambda v: v < 100, lambda v: double(v), [x]), 7, [112]),
    "loop_in_a_function_in_a_loop": (
        lambda x: ax.while_loop(lambda i, _: i > 0, lambda i, s: (i - 1, s + factorial(i)), [x, 0])[1],
        4,
        1 + 2 + 6 + 24,
    ),
    "in_map_fn": (lambda x: ax.map_fn(lambda row: absolute(row), ax.stack([x, -x, x + 1])), -2, [2, 2, 1]),
    "of_an_array": (lambda x: double(np.array([1, 2], np.int32)) + x, 1, [3, 5]),
}


@pytest.mark.parametrize(("build", "given", "expected"), VALUES.values(), ids=VALUES)
def test_values(build: Callable[[Any], Any], given: int, expected: Any) -> None:
    assert plain(run(build, np.int32(given))) == expected


@pytest.mark.parametrize(("build", "given", "expected"), VALUES.values(), ids=VALUES)
def test_values_after_a_file(build: Callable[[Any], Any], given: int, expected: Any, tmp_path: Path) -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.int32, [], name="x")
        ax.identity(build(x), name="y")
    ax.save_graph_def(graph.as_graph_def(), tmp_path / "graph.pb")
    with ax.Graph() as loaded:
        ax.import_graph_def(ax.load_graph_def(tmp_path / "graph.pb"))
    with ax.BlockingSession(loaded) as session:
        assert plain(session.run("y:0", {"x:0": given})) == expected


@pytest.mark.oracle
@pytest.mark.parametrize(("build", "given", "expected"), VALUES.values(), ids=VALUES)
def test_tensorflow_gives_the_same(build: Callable[[Any], Any], given: int, expected: Any, tmp_path: Path) -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.int32, [], name="x")
        ax.identity(build(x), name="y")
    assert plain(in_tensorflow(graph, tmp_path, "y:0", {"x:0": given})) == expected


def test_a_call_node_and_the_library() -> None:
    @ax.function
    def calls_in_library(x: Any) -> Any:  # no op has that name, so its first trace has
        return x * 2

    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [None], name="x")
        y = calls_in_library(x)
        assert y.op.op == "PartitionedCall"
        assert y.op.name == "calls_in_library"
        assert y.op.get_attr("Tin") == y.op.get_attr("Tout") == (ax.float32,)
        assert y.op.get_attr("f").name == "calls_in_library"
        assert y.shape == [None]
    library = graph.as_graph_def().library
    assert library is not None
    assert [function.signature.name for function in library.function] == ["calls_in_library"]
    assert [node.op for node in graph] == ["Placeholder", "PartitionedCall"]


class Counter:
    """Has a function, and counts how often it is traced."""

    def __init__(self) -> None:
        self.count = 0

    @ax.function
    def identity(self, x: Any, *options: Any) -> Any:
        self.count += 1
        return ax.identity(x)


ONE_TRACE: dict[str, Callable[[Any], list[tuple[Any, ...]]]] = {
    "same_shape": lambda x: [(x,), (x + 1,)],
    "a_more_special_shape": lambda x: [(x,), (ax.constant([1.0]),)],
    "equal_constants": lambda x: [(x, 1, "a", (2, None)), (x, 1, "a", (2, None))],
    "arrays": lambda x: [(np.zeros(2),), (np.ones(2),)],
    "the_same_object": lambda x: [(x, ax), (x, ax)],
}
TWO_TRACES: dict[str, Callable[[Any], list[tuple[Any, ...]]]] = {
    "dtypes": lambda x: [(x,), (ax.cast(x, ax.int32),)],
    "a_more_general_shape": lambda x: [(ax.constant([1.0]),), (x,)],
    "constants": lambda x: [(x, 1), (x, 2)],
    "kinds_of_constants": lambda x: [(x, 1), (x, True)],
    "signs_of_zero": lambda x: [(x, 0.0), (x, -0.0)],
    "structures": lambda x: [(x, [x]), (x, (x,))],
    "no_hash": lambda x: [(x, bytearray(b"a")), (x, bytearray(b"a"))],
}


@pytest.mark.parametrize("calls", ONE_TRACE.values(), ids=ONE_TRACE)
def test_one_trace(calls: Callable[[Any], list[tuple[Any, ...]]]) -> None:
    assert traces_of(calls) == 1


@pytest.mark.parametrize("calls", TWO_TRACES.values(), ids=TWO_TRACES)
def test_two_traces(calls: Callable[[Any], list[tuple[Any, ...]]]) -> None:
    assert traces_of(calls) == 2


def traces_of(calls: Callable[[Any], list[tuple[Any, ...]]]) -> int:
    counter = Counter()
    with ax.Graph():
        for args in calls(ax.placeholder(ax.float32, [None])):
            counter.identity(*args)
    return counter.count


def test_each_graph_has_its_own_traces() -> None:
    counter = Counter()
    for _ in range(2):
        with ax.Graph():
            counter.identity(ax.constant(1))
    assert counter.count == 2


def test_nests_of_arguments_and_results() -> None:
    @ax.function
    def rearranged(pair: Pair, *, by: dict[str, Any], record: Record) -> Any:
        assert record.label == "kept"
        return {"sum": pair.first + by["more"], "rest": [pair.second, None, (record.value, 7)], "as": record}

    with ax.Graph():
        result = rearranged(
            Pair(ax.constant(1), ax.constant(2)), by={"more": ax.constant(10)}, record=Record(ax.constant(5), "kept")
        )
        assert result["rest"][1] is None
        fetched = evaluated([result["sum"], result["rest"][0], *result["rest"][2], result["as"].value])
    assert plain(fetched) == [11, 2, 5, 7, 5]


def test_captures_of_captures() -> None:
    with ax.Graph():
        a, b = ax.constant(1), ax.constant(10)

        @ax.function
        def outer(x: Any) -> Any:
            local = x * b

            @ax.function
            def inner(y: Any) -> Any:
                return ax.cond(y > 0, lambda: y + a + local, lambda: y)

            return inner(x) + inner(x + 1)

        y = outer(ax.constant(3))
        assert plain(evaluated(y)) == (3 + 1 + 30) + (4 + 1 + 30)
        assert [tensor.op.name for tensor in y.op.inputs] == ["Const_2", "Const_1", "Const"]


def test_a_function_that_captured_in_one_branch_is_traced_anew_in_another() -> None:
    def build(p: Any) -> Any:
        held: list[Any] = []

        @ax.function
        def use() -> Any:
            return held[-1] * 2

        def branch(value: int) -> Any:
            held.append(ax.identity(value))
            return use()

        return ax.cond(p, lambda: branch(1), lambda: branch(2))

    assert run(build, np.True_) == 2
    assert run(build, np.False_) == 4


def test_operations_and_tensor_arrays_as_results() -> None:
    def build(x: Any) -> Any:
        v = ax.Variable(0, name="v")

        @ax.function
        def step(array: ax.TensorArray, value: Any) -> Any:
            return array.write(0, value), v.assign(value)

        array, assigned = step(ax.TensorArray(ax.int32, 1), x)
        with ax.control_dependencies([assigned]):
            return array.read(0), v.read_value()

    assert run(build, np.int32(6)) == (6, 6)


def test_a_tensor_array_of_a_loop_passes_through_a_function() -> None:
    @ax.function
    def write(array: ax.TensorArray, i: Any) -> ax.TensorArray:
        return array.write(i, i * i)

    def build(n: Any) -> Any:
        initial = ax.TensorArray(ax.int32, n)
        return ax.while_loop(lambda i, _: i < n, lambda i, a: (i + 1, write(a, i)), [0, initial])[1].stack()

    assert plain(run(build, np.int32(4))) == [0, 1, 4, 9]


def test_called_outside_of_a_graph_it_is_the_python_function() -> None:
    assert double(21) == 42
    assert double("ab") == "abab"


def test_called_with_tensors_outside_of_a_block_it_is_in_their_graph() -> None:
    with ax.Graph():
        x = ax.constant(4)
    assert plain(evaluated(double(x))) == 8


def test_an_input_signature_makes_one_trace() -> None:
    traced: list[Any] = []

    @ax.function(input_signature=[(ax.float32, [None, 2]), (ax.int32, [])], name="fixed")
    def rows(x: Any, n: Any) -> Any:
        traced.append(x.shape)
        return ax.reduce_sum(x, 1) + ax.cast(n, ax.float32)

    with ax.Graph() as graph:
        results = [rows([[1, 2]], 1), rows(ax.constant([[1.0, 2.0], [3.0, 4.0]]), n=2)]
        assert list(graph.functions) == ["fixed"]
        assert [plain(value) for value in evaluated(results)] == [[4], [5, 9]]
        with pytest.raises(ax.errors.InvalidArgumentError, match=r"'x' of function 'fixed' is of shape \[1,3\]"):
            rows([[1, 2, 3]], 1)
        with pytest.raises(ax.errors.InvalidTypeError, match="missing a required argument: 'n'"):
            rows([[1, 2]])
    assert traced == [[None, 2]]


@ax.function
def counting_down(x: Any, n: int) -> Any:
    return x if n == 0 else counting_down(x + 1, n - 1)


def test_recursion_that_ends_is_none() -> None:
    assert run(lambda x: counting_down(x, 10), np.int32(0)) == 10
