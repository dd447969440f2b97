"""``while_loop``: values as of plain Python whatever the schedule, overlap, captures, errors.

Cases of TensorFlow's ``control_flow_ops_py_test.py``, in meaning:

    testWhile_1, testWhile_2, testWhile_3, testWhile_4, testWhile_5  test_values
    testWhileWithNonTensorInput_Scalar, ..._Vector       test_values[scalar], [vector]
    testWhileWithMaximumIterations, ...AndSingleArgument test_values[maximum_iterations], [maximum_and_single]
    testNestedWhileLoopWithMaxItersFromOuterContext...   test_values[maximum_from_outside]
    testWhileShape, testWhileShapeInference              test_values[growing], test_shapes
    testWhileBadShape, testWhileShapeInferenceBadShape   test_errors[bad_invariant], [shape]
    testWhileShapeInvariantBadType                       test_errors[invariant_type]
    testWhileBadBodyReturn                               test_errors[longer]
    testWhileExternalControlDependencies, ...NoInput     test_outer_operations_as_control_dependencies
    testNestedWhile_1, testNestedWhile_2                 test_values[nested_1], [nested_2]
    testWhileWithControl_1, ..._2                        test_values[control_1], [control_2]
    testWhileWithControl_3, ..._4, ..._5                 test_the_loop_waits_for_the_conditions_around_it
    testWhileCondWithControl                             test_values[cond_as_predicate]
    testWhileCondWithControl_1                           test_values[variable_squared_in_cond]
    testWhileCondExitControl                             test_values[exit_as_control]
    testWhileCond_1, ..._2, ..._3                        test_values[cond_in_while]
    testWhileUpdateVariable_4, ..._5, ..._6              test_values[variable_4], [variable_5], [variable_6]
    testWhileQueue_1                                     test_a_queue_is_filled_in_order
    testWhileStack_1                                     test_values[stack]
    testWhileTimeOut                                     test_an_endless_loop_is_ended_by_the_timeout
    testFeedable (the initial value may be fed)          test_the_initial_value_may_be_fed
    testWhileGradAfterSessionRun, testNestedWhileGrad... test_values[powers], [nested_powers] (their forward parts)
"""

from __future__ import annotations

import asyncio
import dataclasses
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

import asyncexec as ax
from tests.frontend.builder import IN_THE_LOOP, run
from tests.running import import_all_names


@pytest.fixture(scope="module", autouse=True)
def all_names() -> None:
    import_all_names()


def plain(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [plain(member) for member in value]
    return np.asarray(value).tolist()


def sums(i: Any, n: Any, step: Any) -> Any:
    return ax.while_loop(lambda i, s: i < n, lambda i, s: (i + 1, s + i * step), [i, 0], name="sums")


def compute(x: ax.Tensor) -> Any:
    size = ax.size(x)

    def body(i: Any, m: Any, c: Any, o: Any) -> Any:
        m, c = ax.gather(x, i), ax.gather(x, i)
        return i + 1, m, c, o + m + c

    return ax.while_loop(lambda i, m, c, o: i < size, body, [0, 0, 0, 0])[3]


def growing(x: ax.Tensor) -> Any:
    def body(i: Any, o: Any) -> Any:
        return i + 1, ax.concat([o, ax.expand_dims(x * i, 0)], 0)

    return ax.while_loop(lambda i, o: i < 4, body, [0, ax.constant([9])], shape_invariants=[[], [None]])[1]


def nested_1(n: ax.Tensor) -> Any:
    def inner(s: Any) -> Any:
        return ax.while_loop(lambda i, s: i < 10, lambda i, s: (i + 1, s + i), [0, s])[1]

    return ax.while_loop(lambda x: x < 200, lambda x: x + inner(n), n)


def nested_2(x: ax.Tensor) -> Any:
    def body(x: Any) -> Any:
        return ax.square(ax.while_loop(lambda s: s < 20.0, lambda s: s + s, x, parallel_iterations=1))

    return ax.while_loop(lambda x: x < 3000.0, body, x, parallel_iterations=1)


def three_deep(n: ax.Tensor) -> Any:
    """Captures of every level in the innermost body."""

    def count(limit: Any, body: Callable[[Any, Any], Any], start: Any) -> Any:
        return ax.while_loop(lambda i, a: i < limit, lambda i, a: (i + 1, body(i, a)), (0, start))[1]

    return count(n, lambda i, a: count(n + i, lambda j, b: count(j, lambda k, c: c + i * j + k + n, b), a), 0)


def plain_three_deep(n: int) -> int:
    return sum(i * j + k + n for i in range(n) for j in range(n + i) for k in range(j))


def mixed(n: ax.Tensor) -> Any:
    """cond in while in cond in while."""

    def inner(i: Any, a: Any) -> Any:
        return ax.while_loop(
            lambda j, b: j < i,
            lambda j, b: (j + 1, ax.cond(ax.equal(j % 3, 0), lambda: b + i * n, lambda: b - j)),
            (0, a),
        )[1]

    def body(i: Any, a: Any) -> Any:
        return i + 1, ax.cond(ax.equal(i % 2, 0), lambda: inner(i, a), lambda: a + 1000)

    return ax.while_loop(lambda i, a: i < n, body, (0, 0))[1]


def plain_mixed(n: int) -> int:
    a = 0
    for i in range(n):
        if i % 2:
            a += 1000
            continue
        for j in range(i):
            a = a + i * n if j % 3 == 0 else a - j
    return a


def control(after_all: bool) -> Callable[[Any], Any]:
    def build(n: ax.Tensor) -> Any:
        def body(i: Any, r: Any) -> Any:
            with ax.control_dependencies([r]):
                r = ax.constant(12)
            return (r if after_all else i + 1), r

        return ax.while_loop(lambda i, r: i < 10, body, [n, 0], parallel_iterations=1)[1]

    return build


def variable_loop(build: Callable[..., Any]) -> Callable[[Any], Any]:
    """A loop over i from 0 to n - 1 whose body does something with variables a and b; what they are after it."""

    def whole(n: ax.Tensor) -> Any:
        a, b = ax.Variable(0, name="a"), ax.Variable(0, name="b")
        last = build(n, a, b)
        with ax.control_dependencies([last]):
            return a.read_value(), b.read_value(), last

    return whole


def variable_4(n: Any, a: Any, b: Any) -> Any:
    outer = a.assign_add(1)
    with ax.control_dependencies([outer]):
        step = a.read_value()

    def body(i: Any) -> Any:
        with ax.control_dependencies([b.assign_add(step)]):
            return ax.identity(i + 1)

    return ax.while_loop(lambda i: i < n, body, 0, parallel_iterations=1)


def variable_5(n: Any, a: Any, b: Any) -> Any:
    def body(i: Any) -> Any:
        with ax.control_dependencies([a.assign_add(1), b.assign_add(1)]):
            return b.read_value()

    return ax.while_loop(lambda i: i < n, body, b, parallel_iterations=1)


def variable_6(n: Any, a: Any, b: Any) -> Any:
    def body(i: Any) -> Any:
        with ax.control_dependencies([a.assign_add(1)]):
            added = b.assign_add(a.read_value())
        with ax.control_dependencies([added]):
            return ax.identity(i + 1)

    return ax.while_loop(lambda i: i < n, body, 0, parallel_iterations=1)


def squared_in_cond(n: Any, a: Any, b: Any) -> Any:
    def body(i: Any) -> Any:
        done = ax.cond(i >= 0, lambda: a.assign(a.read_value() + n), lambda: ax.no_op())
        with ax.control_dependencies([done]):
            return ax.identity(i + 1)

    return ax.while_loop(lambda i: i < 4, body, 0, parallel_iterations=1)


def exit_as_control(n: Any, a: Any, b: Any) -> Any:
    def branch() -> Any:
        def body(i: Any) -> Any:
            with ax.control_dependencies([a.assign(i)]):
                return ax.identity(i + 1)

        with ax.control_dependencies([ax.while_loop(lambda i: i < n, body, 0, parallel_iterations=1)]):
            return ax.constant(6)

    return ax.cond(n < 0, lambda: ax.constant(1), branch)


def stack(n: ax.Tensor) -> Any:
    handle = ax.create_op("StackV2", [-1], {"elem_type": ax.int32})

    def push(i: Any) -> Any:
        with ax.control_dependencies([ax.create_op("StackPushV2", [handle, i])]):
            return ax.identity(i + 1)

    pushed = ax.while_loop(lambda i: i < n, push, 0, parallel_iterations=1)

    def pop(i: Any, x: Any) -> Any:
        return i - 1, x * 3 + ax.create_op("StackPopV2", [handle], {"elem_type": ax.int32})

    return ax.while_loop(lambda i, x: i > 0, pop, [pushed, 0], parallel_iterations=1)[1]


def nested_powers(v: ax.Tensor) -> Any:
    def body(v: Any) -> Any:
        return ax.while_loop(lambda x: True, lambda x: x * v, ax.constant(1.0), maximum_iterations=2)

    return ax.while_loop(lambda v: True, body, v, maximum_iterations=3)


VALUES: dict[str, tuple[Callable[..., Any], tuple[Any, ...], Any]] = {
    "while_1": (lambda n: ax.while_loop(lambda x: x < 2000, lambda x: x + 1, n, parallel_iterations=20), (0,), 2000),
    "while_2": (lambda s: sums(s, 10, 1), (0,), [10, 45]),
    "while_4": (compute, (np.arange(1, 7, dtype=np.int32),), 42),
    "growing": (growing, (2,), [9, 0, 2, 4, 6]),
    "vector": (
        lambda n: ax.while_loop(lambda x: x[0] < n, lambda x: ax.stack([x[0] + 1]), [np.array([0], np.int32)]),
        (100,),
        [[100]],
    ),
    "scalar": (lambda n: ax.while_loop(lambda x: x < n, lambda x: x + 1, [0]), (100,), [100]),
    "never": (lambda n: sums(n, 0, n), (5,), [5, 0]),
    "dicts": (
        lambda n: ax.while_loop(
            lambda s: s["i"] < n, lambda s: {"i": s["i"] + 1, "t": (s["t"][0] * 2,)}, {"i": 0, "t": (1.0,)}
        )["t"],
        (5,),
        [32.0],
    ),
    "maximum_iterations": (
        lambda s: ax.while_loop(lambda i, s: i < 10, lambda i, s: (i + 1, s + i), [0, s], maximum_iterations=3)[1],
        (np.arange(1, 6, dtype=np.int32),),
        [4, 5, 6, 7, 8],
    ),
    "maximum_and_single": (
        lambda n: ax.while_loop(lambda i: i < 3, lambda i: i + 1, [n], maximum_iterations=1),
        (0,),
        [1],
    ),
    "maximum_from_outside": (
        lambda n: ax.while_loop(
            lambda *_: True,
            lambda i, x: (i + 1, ax.while_loop(lambda *_: True, lambda y: y + 1, x, maximum_iterations=i + n)),
            (0, 0),
            maximum_iterations=ax.cast(n, ax.int64),
        )[1],
        (4,),
        22,
    ),
    "predicate_from_outside": (
        lambda n: ax.while_loop(lambda i: n > 0, lambda i: i + n, 0, maximum_iterations=5),
        (3,),
        15,
    ),
    "never_by_constant": (lambda n: ax.while_loop(lambda i: False, lambda i: i + 1, n), (3,), 3),
    "nested_1": (nested_1, (0,), 225),
    "nested_2": (nested_2, (np.float32(2),), 1048576.0),
    "three_deep": (three_deep, (5,), plain_three_deep(5)),
    "mixed": (mixed, (11,), plain_mixed(11)),
    "cond_in_while": (
        lambda n: ax.while_loop(lambda x: x < 10, lambda x: ax.cond(ax.constant(True), lambda: x + 1, lambda: n), n),
        (0,),
        10,
    ),
    "cond_as_predicate": (
        lambda n: ax.while_loop(
            lambda i: ax.cond(i > 0, lambda: ax.constant(True), lambda: ax.constant(False)),
            lambda i: ax.cond(i > 0, lambda: i - 1, lambda: i),
            (n,),
        ),
        (5,),
        [0],
    ),
    "control_1": (control(False), (0,), 12),
    "control_2": (control(True), (0,), 12),
    "variable_4": (variable_loop(variable_4), (10,), [1, 10, 10]),
    "variable_5": (variable_loop(variable_5), (10,), [10, 10, 10]),
    "variable_6": (variable_loop(variable_6), (10,), [10, 55, 10]),
    "variable_squared_in_cond": (variable_loop(squared_in_cond), (3,), [12, 0, 4]),
    "exit_as_control": (variable_loop(exit_as_control), (100,), [99, 0, 6]),
    "stack": (stack, (4,), ((3 * 3 + 2) * 3 + 1) * 3),
    "powers": (
        lambda v: ax.while_loop(lambda v: True, lambda v: v * v, v, maximum_iterations=3),
        (np.float32(2),),
        256.0,
    ),
    "nested_powers": (nested_powers, (np.float32(2),), 256.0),
    "unchanged_variable": (
        lambda n: ax.while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, x), (0, n)),
        (7,),
        [3, 7],
    ),
    "variable_becomes_outer": (
        lambda n: ax.while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, n), (0, 1))[1],
        (7,),
        7,
    ),
}


@pytest.mark.parametrize("name", VALUES)
def test_values(name: str) -> None:
    build, inputs, expected = VALUES[name]
    assert plain(run(build, *inputs)) == expected


@pytest.mark.one_of("loop")
@pytest.mark.parametrize("parallel_iterations", [1, 10, 32])
async def test_no_schedule_changes_the_result(parallel_iterations: int) -> None:
    @ax.op
    async def slowly(x: int) -> np.int32:
        await asyncio.sleep(0)
        return np.int32(x)

    def inner(i: Any, a: Any) -> Any:
        return ax.while_loop(
            lambda j, b: j < i, lambda j, b: (j + 1, b * 3 % 1009 + slowly(i * j)), (0, a), parallel_iterations=2
        )[1]

    with ax.Graph() as graph:
        n = ax.placeholder(ax.int32, [])
        result = ax.while_loop(
            lambda i, a: i < n,
            lambda i, a: (i + 1, ax.cond(ax.equal(i % 2, 0), lambda: inner(i, a), lambda: a + slowly(i))),
            (0, 1),
            parallel_iterations=parallel_iterations,
        )
    a = 1
    for i in range(7):
        if i % 2:
            a += i
            continue
        for j in range(i):
            a = a * 3 % 1009 + i * j
    for seed in [None, *range(21)]:
        async with ax.Session(graph, ax.SessionConfig(schedule_seed=seed)) as session:
            assert await session.run(result, {n: 7}) == (7, a)


@pytest.mark.virtual_clock
@pytest.mark.parametrize("parallel_iterations", [1, 10, 32])
async def test_calls_overlap_while_the_sum_stays_in_order(parallel_iterations: int) -> None:
    @ax.op
    async def wait(i: int) -> np.int32:
        await asyncio.sleep(0.010)
        return np.int32(i)

    with ax.Graph() as graph:
        # The accumulator comes first: what constants wait for is chosen by the predicate, not by the order.
        result = ax.while_loop(
            lambda acc, i: i < 1000,
            lambda acc, i: ((acc * 31 + wait(i)) % 65521, i + 1),
            (0, 0),
            parallel_iterations=parallel_iterations,
        )
    expected = 0
    for i in range(1000):
        expected = (expected * 31 + i) % 65521
    loop = asyncio.get_running_loop()
    async with ax.Session(graph, cost_model=IN_THE_LOOP) as session:
        begin = loop.time()
        assert await session.run(result) == (expected, 1000)
        assert loop.time() - begin == pytest.approx(math.ceil(1000 / parallel_iterations) * 0.010)


@pytest.mark.virtual_clock
async def test_a_counter_of_maximum_iterations_runs_ahead() -> None:
    @ax.op
    async def wait(i: int) -> np.int32:
        await asyncio.sleep(0.010)
        return np.int32(1)

    with ax.Graph() as graph:
        result = ax.while_loop(
            lambda acc: True, lambda acc: acc + wait(ax.constant(1)), 0, maximum_iterations=100, parallel_iterations=50
        )
    loop = asyncio.get_running_loop()
    async with ax.Session(graph, cost_model=IN_THE_LOOP) as session:
        begin = loop.time()
        assert await session.run(result) == 100
        assert loop.time() - begin == pytest.approx(0.020)


async def test_an_async_op_runs_once_an_iteration() -> None:
    calls: list[int] = []

    @ax.op
    async def call(x: Any) -> np.int32:
        calls.append(int(x))
        return np.int32(x)

    with ax.Graph() as graph:
        seven = ax.constant(7)
        result = ax.while_loop(lambda i, a: i < 3, lambda i, a: (i + 1, a + call(seven)), (0, 0))
    async with ax.Session(graph) as session:
        assert await session.run(result) == (3, 21)
    assert calls == [7, 7, 7]


@pytest.mark.virtual_clock
async def test_an_endless_loop_is_ended_by_the_timeout() -> None:
    cancelled: list[int] = []

    @ax.op
    async def forever(i: int) -> np.int32:
        try:
            await asyncio.sleep(1.0)
        finally:
            cancelled.append(int(i))
        return np.int32(0)

    with ax.Graph() as graph:
        awaiting = ax.while_loop(lambda i, a: True, lambda i, a: (i + 1, a + forever(i)), (0, 0))
        counting = ax.while_loop(lambda i: i < 100, lambda i: i + 1, 0)
    async with ax.Session(graph, cost_model=IN_THE_LOOP) as session:
        with pytest.raises(ax.errors.DeadlineExceededError):
            await session.run(awaiting, options=ax.RunOptions(timeout=2.5))
        assert sorted(cancelled) == list(range(30))
        assert len(asyncio.all_tasks()) == 1
        assert await session.run(counting) == 100


async def test_an_endless_loop_without_calls_is_ended_by_the_timeout() -> None:
    with ax.Graph() as graph:
        endless = ax.while_loop(lambda i: True, lambda i: i + 1, 0)
    async with ax.Session(graph) as session:
        with pytest.raises(ax.errors.DeadlineExceededError):
            await session.run(endless, options=ax.RunOptions(timeout=0.02))


def test_a_failure_says_which_iteration() -> None:
    with ax.Graph() as graph:
        n = ax.placeholder(ax.int32, [])
        result = ax.while_loop(lambda i, a: i < n, lambda i, a: (i + 1, ax.floordiv(a, 3 - i)), (0, 100), name="loop")
    with ax.BlockingSession(graph) as session:
        with pytest.raises(ax.errors.InvalidArgumentError) as caught:
            session.run(result, {n: 10})
        assert session.run(result, {n: 2}) == (2, 16)
    assert caught.value.iteration == "loop 3"
    assert caught.value.user_line is not None
    assert "test_while_loop.py" in caught.value.user_line


def test_outer_operations_as_control_dependencies() -> None:
    def build(n: ax.Tensor) -> Any:
        v = ax.Variable(0)
        increment = v.assign_add(1)

        def body(i: Any, x: Any) -> Any:
            with ax.control_dependencies([increment]):
                return i + v.read_value(), ax.constant(5)

        return ax.while_loop(lambda i, x: i < n, body, (0, 0))

    assert run(build, 3) == (3, 5)


def test_the_loop_waits_for_the_conditions_around_it() -> None:
    def build(n: ax.Tensor) -> Any:
        v = ax.Variable(0)
        with ax.control_dependencies([v.assign(n)]):
            return ax.while_loop(lambda i: i < 10, lambda i: i + v.read_value(), 0)

    assert run(build, 3) == 12


def test_no_control_edge_from_outside_comes_into_a_loop() -> None:
    with ax.Graph() as graph:
        n = ax.placeholder(ax.int32, [])
        with ax.control_dependencies([n]):
            ax.while_loop(lambda i: i < 10, lambda i: ax.cond(i > 0, lambda: i + 1, lambda: ax.constant(1)), 0)
    waiting = {node.op for node in graph if n.op in node.control_inputs}
    assert waiting <= {"Const", "Enter"}


def test_a_capture_enters_once() -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [])
        ax.while_loop(lambda i: i < x, lambda i: i + x * x, 0.0)
    assert [node.op for node in graph if any(tensor is x for tensor in node.inputs)] == ["Enter"]


def test_the_initial_value_may_be_fed() -> None:
    with ax.Graph() as graph:
        start = ax.constant(0)
        result = ax.while_loop(lambda i: i < 10, lambda i: i + 4, start)
    with ax.BlockingSession(graph) as session:
        assert session.run(result) == 12
        assert session.run(result, {start: 3}) == 11


def test_a_queue_is_filled_in_order() -> None:
    with ax.Graph() as graph:
        queue = ax.FIFOQueue(20, [ax.int32], shapes=[[]])

        def body(i: Any) -> Any:
            with ax.control_dependencies([queue.enqueue([i])]):
                return ax.identity(i + 1)

        filled = ax.while_loop(lambda i: i < 10, body, 0, parallel_iterations=1)
        taken = queue.dequeue()
    with ax.BlockingSession(graph) as session:
        assert session.run(filled) == 10
        assert [session.run(taken) for _ in range(10)] == list(range(10))


class State(NamedTuple):
    i: Any
    total: Any


@dataclasses.dataclass
class Sums:
    i: Any
    sums: dict[str, Any]


def test_what_the_functions_get_and_what_comes_back() -> None:
    with ax.Graph() as graph:
        listed = ax.while_loop(lambda i, s: i < 3, lambda i, s: (i + 1, [s[0] + i]), [0, [0]])
        named = ax.while_loop(lambda i, total: i < 3, lambda i, total: State(i + 1, total + i), State(0, 0))
        record = ax.while_loop(lambda s: s.i < 3, lambda s: Sums(s.i + 1, {"a": s.sums["a"] + s.i}), Sums(0, {"a": 0}))
        single = ax.while_loop(lambda i: i < 3, lambda i: i + 1, ax.constant(0))
    with ax.BlockingSession(graph) as session:
        assert session.run(listed) == [3, [3]]
        assert session.run(named) == State(3, 3)
        assert isinstance(named, State)
        assert session.run(record) == Sums(3, {"a": 3})
        assert session.run(single) == 3


def test_objects_as_loop_variables() -> None:
    @ax.op
    def append(items: Any, i: int) -> object:
        return [*items, int(i)]

    with ax.Graph() as graph:
        start = ax.constant([], ax.object)
        result = ax.while_loop(lambda i, s: i < 3, lambda i, s: (i + 1, append(s, i)), (0, start))[1]
    with ax.BlockingSession(graph) as session:
        assert session.run(result) == [0, 1, 2]


def test_shapes() -> None:
    with ax.Graph():
        x = ax.placeholder(ax.float32, [2, 2])
        same = ax.while_loop(lambda i, v: i < 2, lambda i, v: (i + 1, v + 1), (0, x))
        grown = ax.while_loop(
            lambda i, v: i < 2, lambda i, v: (i + 1, ax.concat([v, v], 0)), (0, x), shape_invariants=([], [None, 2])
        )
        assert same[1].shape == [2, 2]
        assert grown[1].shape == [None, 2]


def test_a_shape_that_is_not_known_is_checked_when_the_loop_runs() -> None:
    with ax.Graph() as graph:
        size = ax.placeholder(ax.int32, [])
        result = ax.while_loop(lambda i, v: i < 2, lambda i, v: (i + 1, ax.ones([size])), (0, ax.zeros([3])))[1]
    assert result.shape == [3]
    with ax.BlockingSession(graph) as session:
        assert plain(session.run(result, {size: 3})) == [1, 1, 1]
        with pytest.raises(ax.errors.InvalidArgumentError, match=r"Shape of tensor \[4\]"):
            session.run(result, {size: 4})


def test_fetching_in_a_loop() -> None:
    inside: list[ax.Tensor] = []
    with ax.Graph() as graph:
        n = ax.placeholder(ax.int32, [])
        ax.while_loop(lambda i: i < n, lambda i: inside.append(i * 2) or i + 1, 0, name="loop")
    with ax.BlockingSession(graph) as session:
        with pytest.raises(ax.errors.InvalidArgumentError, match="it is inside loop 'loop'"):
            session.run(inside[0], {n: 0})
        with pytest.raises(ax.errors.InternalError, match="inside a loop that goes round more than once"):
            session.run(inside[0], {n: 3})


def test_an_import_in_a_body_runs_every_time() -> None:
    with ax.Graph() as inner:
        given = ax.placeholder(ax.int32, [], name="given")
        ax.add(given, ax.constant(2), name="sum")
        ax.while_loop(lambda i: i < given, lambda i: i + 3, 0, name="inner")
    graph_def = inner.as_graph_def()

    def build(n: ax.Tensor) -> Any:
        def body(i: Any, a: Any) -> Any:
            wanted = ["sum:0", "inner/Exit:0"]
            added, looped = ax.import_graph_def(graph_def, "in", {"given:0": i}, return_elements=wanted)
            return added, a + looped + n

        return ax.while_loop(lambda i, a: i < n, body, (0, 0))

    assert run(build, 6) == (6, 0 + 3 + 6 + 18)


def test_the_graph_can_be_written_and_read() -> None:
    with ax.Graph() as graph:
        n = ax.placeholder(ax.int32, [], name="n")
        ax.identity(mixed(n), name="result")
    with ax.Graph() as copy:
        ax.import_graph_def(graph.as_graph_def())
    with ax.BlockingSession(copy) as session:
        assert session.run("result:0", {"n:0": 11}) == plain_mixed(11)


def use_outside(x: ax.Tensor) -> Any:
    inside: list[ax.Tensor] = []
    ax.while_loop(lambda i: i < 3, lambda i: inside.append(i * 2) or i + 1, 0)
    return inside[0] + 1


def loop(body: Callable[..., Any], *variables: Any, **options: Any) -> Callable[[ax.Tensor], Any]:
    return lambda x: ax.while_loop(
        lambda *_: True, body, [0, *(x if isinstance(v, str) else v for v in variables)], **options
    )


ERRORS: dict[str, tuple[Callable[[ax.Tensor], Any], str]] = {
    "predicate": (lambda x: ax.while_loop(lambda i: i, lambda i: i, 0), "predicate of while_loop 'while' is of int32"),
    "predicate_shape": (lambda x: ax.while_loop(lambda i: x > 0, lambda i: i, 0), r"of shape \[2\], but must be a sca"),
    "dtype": (
        loop(lambda i, v: (i, ax.cast(v, ax.int32)), 1.5),
        r"loop_vars\[1\] of while_loop 'while' is float32 at f",
    ),
    "constant": (loop(lambda i: 1.5), r"loop_vars\[0\] of while_loop 'while' is int32: float 1.5"),
    "shape": (
        loop(lambda i, v: (i, ax.concat([v, v], 0)), "x"),
        r"loop_vars\[1\].* has the shape \[2\] at first, but \[4",
    ),
    "shorter": (loop(lambda i, v: i, "x"), "the result of body is a single value"),
    "longer": (loop(lambda i, v: (i, v, v), "x"), r"body has \[0\], \[1\], \[2\], but the nest of loop_vars has"),
    "other_nest": (loop(lambda i, v: (i, {"b": 1}), {"a": 1}), r"body\[1\] has \['b'\], but the nest of loop_vars"),
    "operation": (loop(lambda i: ax.no_op()), r"loop_vars\[0\] .* becomes the operation 'while/NoOp'"),
    "bad_invariant": (
        loop(lambda i, v: (i, v), "x", shape_invariants=[[], [3]]),
        r"at first, .* its shape invariant \[3",
    ),
    "invariant_nest": (loop(lambda i, v: (i, v), "x", shape_invariants=[[]]), "shape_invariants has"),
    "invariant_type": (loop(lambda i: i, shape_invariants=["foo"]), "a dimension is an integer"),
    "parallel": (loop(lambda i: i, parallel_iterations=0), "parallel_iterations is 1 or more, not 0"),
    "maximum": (loop(lambda i: i, maximum_iterations=1.5), "maximum_iterations of while_loop 'while' is float32"),
    "no_variables": (lambda x: ax.while_loop(lambda: True, lambda: (), ()), "while_loop 'while' has no loop variables"),
    "no_tensor": (loop(lambda i, v: (i, v), object()), r"loop_vars\[1\] of while_loop 'while': object"),
    "no_function": (lambda x: ax.while_loop(x, lambda i: i, 0), "cond of while_loop must be a function"),
    "outside": (use_outside, "'while/Mul' is inside loop 'while', and cannot be used outside"),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors(name: str) -> None:
    build, message = ERRORS[name]
    with ax.Graph():
        x = ax.placeholder(ax.float32, [2], name="x")
        with pytest.raises(ax.errors.InvalidArgumentError, match=message) as caught:
            build(x)
    assert caught.value.user_line is not None
    assert "test_while_loop.py" in caught.value.user_line
