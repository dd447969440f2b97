"""``cond``, ``switch_case`` and ``case``: values as of plain Python, nothing runs in a branch not taken, errors.

Cases of TensorFlow's ``control_flow_ops_py_test.py``, in meaning:

    testCondBool (folded here, refused there)            test_a_python_bool_decides_at_once
    testCond_1, testCond_2, testCond_3, testCond_7       test_values
    testCond_5                                           test_a_chain_of_conds
    testCond_6, testCondResource                         test_a_variable_is_assigned_in_the_branch_taken_only
    testCondOutputShape                                  test_shapes_of_results
    testCondPruning, testCondAutoControlDeps             test_operations_as_results, test_what_is_not_returned_...
    testFetchable, testSwitchDeadBranch                  test_fetching_in_a_branch_not_taken
    testCondColocation                                   test_a_switch_is_placed_with_what_it_lets_in
    testCondAccessTrueBranchTensorInFalseBranchRaises    test_errors[in_the_other]
    testSwitchCaseAccessBranch1TensorInBranch4Raises     test_errors[in_another_case]
    testCondListOutput, testTupleOutput, testDictOutput  test_nests
    testEmbeddedListOutput, testEmbeddedTupleOutput, testEmbeddedDictOutput  test_nests
    testCheckNestedOutputStruct                          test_errors[other_keys], and the like
    testCondWithControl                                  test_control_dependencies_of_outer_operations
    testCondSwitchIdentity, testCondRecvIdentity         test_an_assertion_in_the_branch_not_taken
    testCondWhile_1, testCondWhile_2, testCondWhile_3    test_values[while_in_branch], [..._not_taken]
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

import asyncexec as ax
from tests.frontend.builder import run
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
    parts: Any


def plain(value: Any) -> Any:
    return np.asarray(value).tolist()


VALUES: dict[str, tuple[Callable[..., Any], tuple[Any, ...], Any]] = {
    "cond_1": (lambda x: ax.cond(x > 1, lambda: x + 1, lambda: x - 1), (10,), 11),
    "cond_2": (lambda x: ax.cond(x < 1, lambda: x + 1, lambda: x - 1), (10,), 9),
    "cond_3": (
        lambda x: ax.cond(x > 1, lambda: ax.cond(x > 2, lambda: x + 1, lambda: x - 1) + 1, lambda: x - 1),
        (10,),
        12,
    ),
    "cond_5": (lambda x: ax.cond(x > 1, lambda: 1, lambda: 2), (0,), 2),
    "cond_7": (
        lambda x: [r * 2 for r in ax.cond(x > 1, lambda: [x + 1, x + 2], lambda: [x + 3, x + 4])],
        (10,),
        [22, 24],
    ),
    "same_predicate_twice": (
        lambda x: ax.cond(x > 1, lambda: x + 1, lambda: x) + ax.cond(x > 1, lambda: x * 2, lambda: x),
        (3,),
        10,
    ),
    "results_from_outside": (lambda x, y: ax.cond(x > y, lambda: x, lambda: y), (3, 4), 4),
    "constant_beside_a_tensor": (lambda x: ax.cond(x > 1.0, lambda: x, lambda: 7), (np.float64(0),), 7.0),
    "predicate_in_the_branch": (
        lambda x: ax.cond(x > 1, lambda: ax.cast(x > 1, ax.int64), lambda: x),
        (np.int64(5),),
        1,
    ),
    "map_in_branch": (
        lambda x, v: ax.cond(x > 1, lambda: ax.map_fn(lambda e: e * 2.0, v), lambda: v),
        (5, np.array([1.0, 2.0])),
        [2.0, 4.0],
    ),
    "while_in_branch": (
        lambda x: ax.cond(x > 1, lambda: ax.while_loop(lambda i: i < x, lambda i: i + 2, 0), lambda: 0),
        (5,),
        6,
    ),
    "while_in_branch_not_taken": (
        lambda x: ax.cond(x > 9, lambda: ax.while_loop(lambda i: i < x, lambda i: i + 2, 0), lambda: -1),
        (5,),
        -1,
    ),
    "three_deep": (
        lambda x: ax.cond(
            x > 0,
            lambda: ax.cond(x > 10, lambda: ax.cond(x > 20, lambda: x * 4, lambda: x * 3), lambda: x * 2),
            lambda: x,
        ),
        (15,),
        45,
    ),
}


@pytest.mark.parametrize("name", VALUES)
def test_values(name: str) -> None:
    build, inputs, expected = VALUES[name]
    assert plain(run(build, *inputs)) == expected


@pytest.mark.parametrize("value", [True, False])
def test_nests(value: bool) -> None:
    def build(x: ax.Tensor) -> Any:
        def branch(y: ax.Tensor) -> Any:
            return {"a": Pair(y, [y + 1, 5.0]), "b": Record(y * 2, (y,)), "c": [], "d": ()}

        return ax.cond(x > 0.0, lambda: branch(x), lambda: branch(-x))

    result = run(build, np.float32(3 if value else -4))
    y = 3 if value else 4
    assert result == {"a": Pair(y, [y + 1, 5.0]), "b": Record(2 * y, (y,)), "c": [], "d": ()}
    assert isinstance(result["a"], Pair)


def test_none_is_a_nest_without_leaves() -> None:
    with ax.Graph():
        x = ax.placeholder(ax.bool, [])
        assert ax.cond(x, lambda: None, lambda: None) is None
        found = ax.cond(x, lambda: (1, None), lambda: (2, None))
        assert found[1] is None


def test_a_python_bool_decides_at_once() -> None:
    with ax.Graph() as graph:
        assert ax.cond(True, lambda: "yes", lambda: 1 / 0) == "yes"
        assert ax.cond(np.False_, lambda: 1 / 0, lambda: "no") == "no"
        assert ax.switch_case(1, [lambda: "a", lambda: "b"]) == "b"
        assert ax.switch_case(-1, [lambda: "a", lambda: "b"]) == "b"
    assert graph.num_nodes == 0


def test_shapes_of_results() -> None:
    with ax.Graph():
        p = ax.placeholder(ax.bool, [])
        x, y = ax.placeholder(ax.float32, [2, 3]), ax.placeholder(ax.float32, [2, 4])
        assert ax.cond(p, lambda: x, lambda: x + 1).shape == [2, 3]
        assert ax.cond(p, lambda: x, lambda: y).shape == [2, None]
        assert ax.cond(p, lambda: x, lambda: 1.0).shape.rank is None


def test_one_switch_a_tensor_and_branch() -> None:
    with ax.Graph() as graph:
        p, x = ax.placeholder(ax.bool, []), ax.placeholder(ax.float32, [])
        ax.cond(p, lambda: x + x * x, lambda: x - x)
    captured = [node for node in graph if node.op == "Switch" and node.inputs[0] is x]
    assert len(captured) == 2


async def test_a_branch_not_taken_makes_no_call() -> None:
    calls: list[int] = []

    @ax.op
    async def call(x: Any) -> int:
        calls.append(int(x))
        return int(x)

    with ax.Graph() as graph:
        x = ax.placeholder(ax.int64, [], name="x")
        taken = ax.cond(x > 0, lambda: call(x), lambda: call(x * 100) + call(ax.constant(7)))
    async with ax.Session(graph) as session:
        assert await session.run(taken, {x: 5}) == 5
        assert calls == [5]
        calls.clear()
        assert await session.run(taken, {x: -1}) == -93
        assert sorted(calls) == [-100, 7]


@pytest.mark.parametrize(("value", "expected"), [(True, [1, 7, 7]), (False, [7, 2, 3])])
def test_operations_as_results(value: bool, expected: list[int]) -> None:
    with ax.Graph() as graph:
        v1, v2, v3 = (ax.Variable(7, name=f"v{i}") for i in range(3))
        p = ax.placeholder(ax.bool, [])
        both = ax.cond(p, lambda: [v1.assign(1), ax.no_op()], lambda: [v2.assign(2), v3.assign(3)])
        values = [v1.read_value(), v2.read_value(), v3.read_value()]
        initializer = ax.global_variables_initializer()
    assert [kind.__class__.__name__ for kind in both] == ["Node", "Node"]
    with ax.BlockingSession(graph) as session:
        session.run(initializer)
        assert session.run(both, {p: value}) == [None, None]
        assert session.run(values) == expected


def test_a_variable_is_assigned_in_the_branch_taken_only() -> None:
    def build(x: ax.Tensor) -> Any:
        v = ax.Variable(1.0)

        def branch() -> ax.Tensor:
            with ax.control_dependencies([v.assign_add(x)]):
                return v.read_value()

        return ax.cond(x > 0, branch, lambda: v)

    assert run(build, np.float32(2), times=3) == 7
    assert run(build, np.float32(-2), times=3) == 1


def test_a_variable_made_in_a_branch_is_outside_of_it() -> None:
    def build(x: ax.Tensor) -> Any:
        return ax.cond(x > 0, lambda: ax.Variable(5.0) + x, lambda: x)

    assert run(build, np.float32(2)) == 7


def test_what_is_not_returned_does_not_run() -> None:
    calls: list[int] = []

    @ax.op
    def note(x: Any) -> None:
        calls.append(int(x))

    def build(x: ax.Tensor) -> Any:
        def branch() -> ax.Tensor:
            note(x)
            with ax.control_dependencies([note(x + 1)]):
                return x + 2

        return ax.cond(x > 0, branch, lambda: x)

    assert run(build, 3) == 5
    assert calls == [4]


def test_control_dependencies_of_outer_operations() -> None:
    def build(x: ax.Tensor) -> Any:
        v = ax.Variable(np.int64(0))
        assign = v.assign(x)

        def branch() -> ax.Tensor:
            with ax.control_dependencies([assign]):
                return v.read_value() + ax.constant(1, ax.int64)

        return ax.cond(x > 0, branch, lambda: x)

    assert run(build, np.int64(5)) == 6


def test_all_of_a_cond_waits_for_the_conditions_around_it() -> None:
    def build(x: ax.Tensor) -> Any:
        v = ax.Variable(np.int64(0))
        with ax.control_dependencies([v.assign(x)]):
            return ax.cond(x > 0, lambda: v.read_value(), lambda: x)

    assert run(build, np.int64(5)) == 5


def test_a_chain_of_conds() -> None:
    def build(x: ax.Tensor) -> Any:
        alive, count = x > 0, ax.constant(0)
        for i in range(10):
            alive, count = ax.cond(alive, _older(x, i, count), lambda a=alive, c=count: [a, c])
        return count

    def _older(x: ax.Tensor, i: int, count: ax.Tensor) -> Callable[[], Any]:
        return lambda: [ax.less(i, x), count + 1]

    assert run(build, 3) == 4


def test_an_assertion_in_the_branch_not_taken() -> None:
    def build(x: ax.Tensor) -> Any:
        return ax.cond(x > 0, ax.no_op, lambda: ax.Assert(False, ["Wrong branch!!!"]))

    assert run(build, 1) is None
    with pytest.raises(ax.errors.InvalidArgumentError, match="Wrong branch"):
        run(build, -1)


def test_a_switch_is_placed_with_what_it_lets_in() -> None:
    with ax.Graph() as graph:
        with ax.device("/cpu:1"):
            x = ax.placeholder(ax.float32, [])
        with ax.device("/cpu:0"):
            ax.cond(x > 0, lambda: x + 1, lambda: x)
    devices = {node.device for node in graph if node.op == "Switch" and node.inputs[0] is x}
    assert devices == {x.op.device}


@pytest.mark.parametrize(
    ("index", "expected"),
    [(np.int32(i), x) for i, x in ((0, 10), (1, 22), (2, 30), (7, 30), (-1, 30))]
    + [(np.int64(1), 22), (np.int64(-1), 30), (np.int64(2**32), 30), (np.uint8(1), 22), (np.uint8(255), 30)],
)
def test_switch_case(index: Any, expected: int) -> None:
    def build(i: ax.Tensor) -> Any:
        x = ax.constant(11)
        return ax.switch_case(i, [lambda: 10, lambda: x * 2, lambda: 30])

    assert run(build, index) == expected


@pytest.mark.parametrize(("index", "expected"), [(0, 1), (1, 2), (2, -1), (-5, -1)])
def test_switch_case_with_numbers_and_default(index: int, expected: int) -> None:
    def build(i: ax.Tensor) -> Any:
        return ax.switch_case(i, {1: lambda: 2, 0: lambda: 1}, default=lambda: -1)

    assert run(build, np.int32(index)) == expected


def test_a_case_not_chosen_makes_no_call() -> None:
    calls: list[int] = []

    @ax.op
    def call(x: Any) -> int:
        calls.append(int(x))
        return int(x)

    def build(i: ax.Tensor) -> Any:
        return ax.switch_case(i, [lambda: call(i + 10), lambda: call(i + 20), lambda: call(ax.constant(5))])

    assert run(build, np.int32(1)) == 21
    assert calls == [21]


@pytest.mark.parametrize(("value", "expected"), [(9, 1), (4, 2), (0, 3)])
def test_case(value: int, expected: int) -> None:
    def build(x: ax.Tensor) -> Any:
        return ax.case([(x > 5, lambda: 1), (x > 3, lambda: 2)], default=lambda: 3)

    assert run(build, value) == expected


def test_case_without_default_must_find_one() -> None:
    def build(x: ax.Tensor) -> Any:
        return ax.case([(x > 5, lambda: x * 2), (x > 3, lambda: x)])

    assert run(build, 9) == 18
    assert run(build, 4) == 4
    with pytest.raises(ax.errors.InvalidArgumentError, match="none of the predicates is true"):
        run(build, 1)


def test_an_import_in_a_branch_runs_only_there() -> None:
    with ax.Graph() as inner:
        given = ax.placeholder(ax.float32, [], name="given")
        ax.add(given, ax.constant(1.0), name="sum")
    graph_def = inner.as_graph_def()

    def build(x: ax.Tensor) -> Any:
        def imported() -> Any:
            return ax.import_graph_def(graph_def, name="in", input_map={"given:0": x}, return_elements=["sum:0"])[0]

        return ax.cond(x > 0, imported, lambda: x)

    assert run(build, np.float32(2)) == 3
    assert run(build, np.float32(-2)) == -2


def test_the_graph_can_be_written_and_read() -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [], name="x")
        result = ax.cond(x > 0, lambda: x * 2, lambda: x - 1)
        again = ax.switch_case(ax.cast(result, ax.int32), [lambda: x, lambda: x + 10])
    with ax.Graph() as copy:
        found = ax.import_graph_def(graph.as_graph_def(), return_elements=[result.name, again.name, "x:0"])
    with ax.BlockingSession(copy) as session:
        assert session.run(found[:2], {found[2]: 3}) == [6, 13]


def test_fetching_in_a_branch_not_taken() -> None:
    inside: list[ax.Tensor] = []
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [])
        ax.cond(x > 0, lambda: inside.append(x * 2) or inside[0], lambda: x, name="choice")
    with ax.BlockingSession(graph) as session:
        assert session.run(inside[0], {x: 2}) == 4
        with pytest.raises(ax.errors.InvalidArgumentError) as caught:
            session.run(inside[0], {x: -2})
    assert "branch that was not taken: Switch 'choice/" in caught.value.message
    assert "decides by 'choice/pred_id:0'" in caught.value.message


@pytest.mark.parametrize("value", [[True, False], [True]])
def test_a_predicate_that_turns_out_to_be_no_scalar(value: list[bool]) -> None:
    with ax.Graph() as graph:
        p = ax.placeholder(ax.bool, None)
        result = ax.cond(p, lambda: 1, lambda: 2)
    with (
        ax.BlockingSession(graph) as session,
        pytest.raises(ax.errors.InvalidArgumentError, match="must be a scalar, but it has shape"),
    ):
        session.run(result, {p: value})


def use_outside(p: ax.Tensor, x: ax.Tensor) -> Any:
    inside: list[ax.Tensor] = []
    ax.cond(p, lambda: inside.append(x * 2) or inside[0], lambda: x)
    return inside[0] + 1


def use_in_the_other(p: ax.Tensor, x: ax.Tensor) -> Any:
    inside: list[ax.Tensor] = []
    return ax.cond(p, lambda: inside.append(x * 2) or inside[0], lambda: inside[0])


def use_in_another_case(p: ax.Tensor, x: ax.Tensor) -> Any:
    inside: list[ax.Tensor] = []
    first = [lambda: x, lambda: inside.append(x * 2) or inside[0], lambda: x, lambda: inside[0]]
    return ax.switch_case(ax.cast(x, ax.int32), first)


def wait_outside(p: ax.Tensor, x: ax.Tensor) -> Any:
    inside: list[ax.Tensor] = []
    ax.cond(p, lambda: inside.append(x * 2) or inside[0], lambda: x)
    with ax.control_dependencies(inside):
        return ax.constant(1)


ERRORS: dict[str, tuple[Callable[[ax.Tensor, ax.Tensor], Any], str]] = {
    "number": (lambda p, x: ax.cond(x, lambda: 1, lambda: 2), "predicate of cond 'cond' is of float32"),
    "vector": (lambda p, x: ax.cond(ax.stack([p, p]), lambda: 1, lambda: 2), r"of shape \[2\], but must be a scalar"),
    "no_function": (lambda p, x: ax.cond(p, x, lambda: 2), "true_fn of cond is Tensor"),
    "other_keys": (lambda p, x: ax.cond(p, lambda: {"a": 1}, lambda: {"b": 1}), "result of false_fn has .'b'.*'a'"),
    "list_and_tuple": (
        lambda p, x: ax.cond(p, lambda: {"a": [1]}, lambda: {"a": (1,)}),
        r"false_fn\['a'\] is a tuple of 1, but that of true_fn is a list of 1",
    ),
    "none": (lambda p, x: ax.cond(p, lambda: 1, lambda: None), "result of false_fn is None"),
    "longer": (lambda p, x: ax.cond(p, lambda: [1], lambda: [1, 2]), r"has \[0\], \[1\], but that of true_fn has"),
    "dtype": (
        lambda p, x: ax.cond(p, lambda: {"a": x}, lambda: {"a": ax.constant(1)}),
        r"result\['a'\] is float32 in true_fn, but int32 in false_fn",
    ),
    "constant": (lambda p, x: ax.cond(p, lambda: ax.constant(1), lambda: 1.5), "result, in false_fn: float 1.5"),
    "operation": (lambda p, x: ax.cond(p, lambda: 1, ax.no_op), "an operation in one branch, but not in true_fn"),
    "outside": (use_outside, "'cond/Mul' is inside true_fn of cond 'cond', and cannot be used outside"),
    "in_the_other": (use_in_the_other, "'cond/Mul' is inside true_fn of cond 'cond'"),
    "in_another_case": (use_in_another_case, "inside branch 1 of switch_case 'switch_case'"),
    "wait_outside": (wait_outside, "'cond/Mul' is inside true_fn of cond 'cond'"),
    "index_is_float": (lambda p, x: ax.switch_case(x, [lambda: 1]), "must be a scalar of integers"),
    "gaps": (lambda p, x: ax.switch_case(ax.constant(1), {0: lambda: 1, 2: lambda: 1}), "without gaps"),
    "no_functions": (lambda p, x: ax.switch_case(ax.constant(1), []), "needs a function"),
    "no_pairs": (lambda p, x: ax.case([]), "pairs of a predicate and a function"),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors(name: str) -> None:
    build, message = ERRORS[name]
    with ax.Graph():
        p, x = ax.placeholder(ax.bool, [], name="p"), ax.placeholder(ax.float32, [], name="x")
        with pytest.raises(ax.errors.InvalidArgumentError, match=message) as caught:
            build(p, x)
    assert caught.value.user_line is not None
    assert "test_cond.py" in caught.value.user_line


def test_a_function_that_raises_leaves_the_scopes_as_they_were() -> None:
    with ax.Graph() as graph:
        p = ax.placeholder(ax.bool, [])
        with pytest.raises(ZeroDivisionError):
            ax.cond(p, lambda: 1 / 0, lambda: 2)
        assert graph.current_control_flow_context is None
        assert graph.current_name_scope == ""
        ax.constant(1)
