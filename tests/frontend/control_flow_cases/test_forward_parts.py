"""The graphs that TensorFlow's tests take gradients of: what comes out of them, without the gradients.

After ``ControlFlowTest`` in ``control_flow_ops_py_test.py``.  Those tests tell the gradients only: the values expected
here are those that TensorFlow 2.21 gave for the same graphs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import asyncexec as ax
from tests.frontend.control_flow_cases.running import after, value_of
from tests.running import import_all_names


@pytest.fixture(scope="module", autouse=True)
def all_names() -> None:
    import_all_names()


def squares() -> Any:
    return ax.while_loop(lambda v: v < 100.0, ax.square, ax.constant(2.0), parallel_iterations=1)


def squared_and_chosen() -> Any:
    r = squares()
    return ax.cond(ax.less(1, 2), lambda: r, lambda: ax.constant(2.0))


def twice(combine: Callable[[Any, Any], Any]) -> Callable[[], Any]:
    def build() -> Any:
        r = squares()
        return combine(r, r)

    return build


def products() -> Any:
    x = ax.placeholder(ax.float32, [None], name="x")
    start = [ax.constant(0), ax.constant([2.0])]
    return ax.while_loop(lambda i, v: i < 5, lambda i, v: [i + 1, x * v], start, shape_invariants=[[], None])[1]


def never_and_square() -> Any:
    x = ax.placeholder(ax.float32, [None], name="x")
    never = ax.while_loop(lambda v: ax.constant(False), lambda v: v * x, ax.constant([2.0, 2.0]))
    return [never, ax.square(x)]


def multiplied(by: Callable[[], Any], parallel_iterations: int = 1) -> Callable[[], Any]:
    def build() -> Any:
        a = by()
        return ax.while_loop(
            lambda v: v < 100.0, lambda v: v * a, ax.constant(2.0), parallel_iterations=parallel_iterations
        )

    return build


def fourth_power_in_two_rounds() -> Any:
    found = ax.while_loop(lambda i, x: i < 2, lambda i, x: [i + 1, x**2], [0, ax.constant(2.0)])[1]
    return after([found], found)


def doubled(x: Any, times: int) -> Any:
    return ax.while_loop(lambda i, x: i < times, lambda i, x: [i + 1, x * 2.0], [ax.constant(0), x])[1]


def loop_in_cond_in_loop() -> Any:
    def body(x: Any) -> Any:
        return ax.cond(ax.constant(True), lambda: ax.square(doubled(x, 4)), lambda: x * 2.0)

    return ax.while_loop(lambda x: x < 128.0, body, ax.constant(1.0))


def inner_loops(combine: Callable[[Any], Any]) -> Callable[[], Any]:
    return lambda: ax.while_loop(lambda x: x < 128.0, combine, ax.constant(1.0))


def loop_in_a_loop() -> Any:
    def body(x: Any) -> Any:
        return ax.while_loop(lambda y: y < 4.0, lambda y: y * 2.0, x) * 2.0

    return ax.while_loop(lambda x: x < 2.0, body, ax.constant(1.0))


def two_loops(parallel: bool) -> Callable[[], Any]:
    def build() -> Any:
        first = doubled(ax.constant(2.0), 5)
        return first + doubled(ax.constant(2.0), 5) if parallel else doubled(first, 5)

    return build


def added(limit: Callable[[Any], Any]) -> Callable[[], Any]:
    """A loop that adds what is fed, of unknown shape, in a branch or in each round of another loop."""

    def build() -> Any:
        x = ax.placeholder(ax.float32, None, name="x")

        def loop(n: Any) -> Any:
            return ax.while_loop(lambda n: n < 10.0, lambda n: n + x, n, shape_invariants=ax.TensorShape(None))

        return limit(lambda n=None: loop(ax.constant(1.0) if n is None else n))

    return build


def in_a_branch(loop: Callable[..., Any]) -> Any:
    return ax.cond(ax.less(1, 2), loop, lambda: ax.constant(0.0))


def in_a_loop(loop: Callable[..., Any]) -> Any:
    return ax.while_loop(lambda n: n < 6.0, loop, ax.constant(1.0), shape_invariants=ax.TensorShape(None))


def rows_of_variables() -> Any:
    first, second = ax.Variable(np.ones(5, np.float32)), ax.Variable(np.ones(3, np.float32))

    def body(i: Any, _: Any, x: Any, y: Any) -> Any:
        return i + 1, ax.gather(first, [1, 3]), x * 2, y * ax.reduce_sum(ax.gather(second, [0]))

    start = [0, ax.constant([0.0, 0.0]), ax.constant(1.0), ax.constant(1.0)]
    return ax.while_loop(lambda i, *_: i < 3, body, start)[1:]


def row_of_a_variable() -> Any:
    var = ax.Variable(np.ones(5, np.float32))
    return ax.while_loop(
        lambda i, _: i < 3,
        lambda i, x: (i + 1, x * ax.reduce_sum(ax.gather(var, [1, 3]))),
        [0, ax.constant(1.0)],
    )[1]


def gathered(fan_out: bool) -> Callable[[], Any]:
    def build() -> Any:
        start = ax.constant([1.0] * 5)[:1]

        def body(i: Any, x: Any) -> Any:
            first = ax.gather(x, [0])
            return i + 1, x + first if fan_out else first

        return ax.while_loop(lambda i, _: i < 3, body, [0, start])[1]

    return build


def sum_and_product() -> Any:
    def body(x: Any, y: Any) -> Any:
        y1 = x + y
        return x * y1, y1

    start = [ax.constant(3.0), ax.constant(2.0)]
    return ax.while_loop(lambda x, y: x < 100.0, body, start, parallel_iterations=1)


def passed_through() -> Any:
    v = ax.Variable(ax.ones([2, 3]))
    start = [ax.zeros([], ax.int32), v, v]
    return ax.reduce_sum(ax.while_loop(lambda d, *_: d < 10, lambda d, t, _: (d + 1, t, t), start)[2])


def replaced_by_a_constant() -> Any:
    c1, start = ax.constant(1.0), [ax.constant(0), ax.constant(0.0)]
    return ax.while_loop(lambda d, _: d < 1, lambda d, _: (d + 1, c1), start)


def one_result_after_another() -> Any:
    def body(i: Any, x: Any, y: Any) -> Any:
        return i + 1, ax.identity(x), x + y

    start = [ax.constant(0), ax.constant(1.0), ax.constant(1.0)]
    _, x, y = ax.while_loop(lambda i, *_: i < 1, body, start)
    return after([x], y)


def maps_in_a_map() -> Any:
    var = ax.Variable(ax.constant(3.0))

    def inner(row: Any) -> Any:
        return ax.map_fn(lambda n: n + ax.square(var), row, parallel_iterations=10)

    return ax.map_fn(inner, ax.constant([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]), parallel_iterations=10)


def squared_by_cond(start: Callable[[], Any]) -> Callable[[], Any]:
    def build() -> Any:
        n, one = ax.constant(100.0), ax.constant(1.0)
        return ax.while_loop(
            lambda x: x < n, lambda x: ax.cond(ax.constant(True), lambda: ax.square(x), lambda: x - one), start()
        )

    return build


def rows_joined() -> Any:
    x = ax.Variable([[1.0, 2.0]])
    start = [ax.constant(0), ax.zeros([0, 2])]
    return ax.while_loop(
        lambda i, _: i < 2, lambda i, h: (i + 1, ax.concat([h, x], 0)), start, shape_invariants=[[], [None, 2]]
    )[1]


def map_in_a_loop() -> Any:
    param, start = ax.constant(2.0), [ax.constant(0), ax.constant([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])]
    return ax.while_loop(
        lambda i, _: i < 10, lambda i, y: [i + 1, ax.map_fn(lambda x: x * param, y)], start, parallel_iterations=1
    )[1]


def stopped(limit: Callable[[Any], Any], start: Callable[[], list[Any]], inside: bool) -> Callable[[], Any]:
    def build() -> Any:
        def body(x: Any, y: Any) -> Any:
            y1 = ax.stop_gradient(ax.square(y)) if inside else ax.square(y)
            return ax.square(x) + y1, y1

        return ax.while_loop(lambda x, y: limit(x) < 100.0, body, start())

    return build


def scanned() -> Any:
    theta = ax.Variable(1.0)
    return ax.scan(lambda prev, x: prev + x * theta, np.array([1.0, 2.0, 3.0], np.float32))


def of_an_index(cond: Callable[..., Any], zero: bool) -> Callable[[], Any]:
    def build() -> Any:
        q = ax.Variable([7.0, 8.0])

        def body(x: Any, _: Any) -> Any:
            value = ax.cast(x, ax.float32) + ax.reduce_sum(q)
            return (ax.constant(0, ax.int64) if zero else x), value

        return ax.while_loop(cond, body, (ax.argmin(q), 0.0))

    return build


def doubled_or_ten() -> Any:
    pred = ax.placeholder(ax.bool, [], name="p")
    return ax.while_loop(
        lambda i, _: i < 3, lambda i, x: (i + 1, ax.cond(pred, lambda: x * 2.0, lambda: 10.0)), [0, ax.constant(1.0)]
    )


def values_of_slices() -> Any:
    start = [ax.constant(0), (ax.constant([2.0, 4.0]), ax.constant([0, 3]))]
    return ax.while_loop(lambda i, _: i < 10, lambda i, x: [i + 1, (x[0] * 2.0, x[1])], start)[1][0]


LOOPS: dict[str, tuple[Callable[[], Any], dict[str, Any], Any]] = {
    "square": (squared_and_chosen, {}, 256.0),
    "multiple_uses": (twice(ax.multiply), {}, 65536.0),
    "loop_add": (twice(ax.add), {}, 512.0),
    "no_gradient": (lambda: squares() + ax.constant(2.0), {}, 258.0),
    "shape": (products, {"x:0": [3.0, 4.0]}, [486.0, 2048.0]),
    "base_shape": (never_and_square, {"x:0": [1.0, 2.0]}, [[2.0, 2.0], [1.0, 4.0]]),
    "mul_1": (multiplied(lambda: ax.constant(3.0)), {}, 162.0),
    "mul_10": (multiplied(lambda: ax.constant(3.0), 10), {}, 162.0),
    "variable": (multiplied(lambda: ax.Variable(3.0)), {}, 162.0),
    "stop_on_gradient": (multiplied(lambda: ax.constant(2.0)), {}, 128.0),
    "in_control_dependencies": (fourth_power_in_two_rounds, {}, 16.0),
    "nested_while_cond_while": (loop_in_cond_in_loop, {}, 256.0),
    "nested_simple": (loop_in_a_loop, {}, 8.0),
    "serial_inner": (inner_loops(lambda x: doubled(doubled(x, 4), 4)), {}, 256.0),
    "parallel_inner": (inner_loops(lambda x: doubled(x, 4) * doubled(x, 4)), {}, 256.0),
    "parallel_iterations": (maps_in_a_map, {}, [[10.0, 11.0], [12.0, 13.0], [14.0, 15.0]]),
    "serial_two_loops": (two_loops(False), {}, 2048.0),
    "parallel_two_loops": (two_loops(True), {}, 128.0),
    "in_cond": (added(in_a_branch), {"x:0": 1.0}, 10.0),
    "in_while": (added(in_a_loop), {"x:0": 1.0}, 10.0),
    "sparse_read": (row_of_a_variable, {}, 8.0),
    "multi_sparse_read": (rows_of_variables, {}, [[1.0, 1.0], 8.0, 1.0]),
    "gather": (gathered(True), {}, [8.0]),
    "gather_no_fan_out": (gathered(False), {}, [1.0]),
    "ys_xs": (sum_and_product, {}, [300.0, 20.0]),
    "dependency": (lambda: doubled(ax.constant(2.0), 10), {}, 2048.0),
    "no_dependency": (passed_through, {}, 6.0),
    "const": (replaced_by_a_constant, {}, [1, 1.0]),
    "control_dependency_on_second": (one_result_after_another, {}, 2.0),
    "cond_simple": (squared_by_cond(lambda: ax.constant(2.0)), {}, 256.0),
    "cond_unknown_shape": (squared_by_cond(lambda: ax.placeholder(ax.float32, name="v")), {"v:0": 2.0}, 256.0),
    "concat": (rows_joined, {}, [[1.0, 2.0], [1.0, 2.0]]),
    "tensor_array": (map_in_a_loop, {}, [1024.0, 2048.0, 3072.0, 4096.0, 5120.0, 6144.0]),
    "stop": (stopped(ax.identity, lambda: [ax.constant(3.0), ax.constant(2.0)], False), {}, [185.0, 16.0]),
    "stop_inside": (stopped(ax.identity, lambda: [ax.constant(3.0), ax.constant(2.0)], True), {}, [185.0, 16.0]),
    "stop_inside_no_shape": (
        stopped(ax.reduce_sum, lambda: [ax.placeholder(ax.float32, name=name) for name in "xy"], True),
        {"x:0": [3.0, 4.0], "y:0": [2.0, 3.0]},
        [[185.0, 706.0], [16.0, 81.0]],
    ),
    "scan": (scanned, {}, [1.0, 3.0, 6.0]),
    "non_trainable_1": (of_an_index(lambda _, y: False, False), {}, (0, 0.0)),
    "non_trainable_2": (of_an_index(lambda _, y: ax.equal(y, 0.0), True), {}, (0, 15.0)),
    "multi_device_true": (doubled_or_ten, {"p:0": True}, [3, 8.0]),
    "multi_device_false": (doubled_or_ten, {"p:0": False}, [3, 10.0]),
    "indexed_slices": (values_of_slices, {}, [2048.0, 4096.0]),
}


@pytest.mark.parametrize("name", LOOPS)
async def test_of_loops(name: str) -> None:
    build, feeds, expected = LOOPS[name]
    assert await value_of(build, feeds) == expected


def number(then: Callable[[Any], Any], other: Callable[[Any], Any]) -> Callable[[], Any]:
    def build() -> Any:
        c, x = ax.placeholder(ax.int32, [], name="c"), ax.constant(10.0)
        return ax.cond(c < 2, lambda: then(x), lambda: other(x))

    return build


def row_or_variable() -> Any:
    v, c = ax.Variable([1.0, 42.0]), ax.placeholder(ax.int32, [], name="c")
    return ax.cond(c < 2, lambda: ax.identity(v), lambda: ax.gather(v, [1, 1]))


def sum_of_rows() -> Any:
    var, x = ax.Variable(np.ones((4, 2), np.float32)), ax.constant(1.0)
    return ax.cond(
        ax.placeholder(ax.int32, [], name="c") < 2,
        lambda: x * ax.reduce_sum(ax.gather(var, [1, 2])),
        lambda: ax.zeros([2, 3]),
    )


def several_gathers() -> Any:
    var, x1, x2 = ax.Variable(np.ones((4, 2), np.float32)), ax.ones([3, 3]), ax.constant(2.0)
    return ax.cond(
        ax.placeholder(ax.int32, [], name="c") < 2,
        lambda: (ax.gather(var, [1, 2]), ax.gather(x1, [2]) * x2, x2 * [1.0, 1.0, 1.0]),
        lambda: (np.zeros((2, 2), np.float32), ax.gather(x1, [2]) * x2, ax.gather(x1, [2])),
    )


def fourth_power(x: Any) -> Any:
    a = x * x
    return a * a


SQUARE: Callable[[Any], Any] = lambda x: x * x  # noqa: E731
NESTED: Callable[[Any], Any] = lambda x: ax.cond(ax.constant(True), lambda: fourth_power(x), lambda: x * x)  # noqa: E731

CONDS: dict[str, tuple[Callable[[], Any], int, Any]] = {
    "grad_1": (number(ax.identity, ax.identity), 1, 10.0),
    "grad_2_true": (number(lambda x: x * 42.0, lambda x: x * 3.0), 1, 420.0),
    "grad_2_false": (number(lambda x: x * 42.0, lambda x: x * 3.0), 3, 30.0),
    "after_session_run": (number(fourth_power, SQUARE), 1, 10000.0),
    "nested_after_session_run": (number(NESTED, SQUARE), 1, 10000.0),
    "gather_true": (row_or_variable, 1, [1.0, 42.0]),
    "gather_false": (row_or_variable, 3, [42.0, 42.0]),
    "sparse_read": (sum_of_rows, 1, 4.0),
    "multi_gather_true": (several_gathers, 1, ([[1.0, 1.0]] * 2, [[2.0] * 3], [2.0] * 3)),
    "multi_gather_false": (several_gathers, 3, ([[0.0, 0.0]] * 2, [[2.0] * 3], [[1.0] * 3])),
}


@pytest.mark.parametrize("name", CONDS)
async def test_of_conds(name: str) -> None:
    build, fed, expected = CONDS[name]
    assert await value_of(build, {"c:0": fed}) == expected


async def test_weights_that_are_normalized_until_they_change_no_more() -> None:
    """What testIssue16504 takes of its gradient is -c."""

    def build() -> Any:
        c = ax.constant(np.arange(100), ax.float32)
        w = ax.Variable(np.ones(100, np.float32)) / 100

        def body(k: Any, w: Any, _: Any) -> Any:
            new = w * ax.exp(0.1 * c)
            new = new / ax.reduce_sum(new)
            return k + 1, new, ax.reduce_sum(ax.abs(new - w)) / ax.reduce_sum(ax.abs(w))

        start = [ax.Variable(0), w, ax.constant(np.inf, ax.float32)]
        k, w, change = ax.while_loop(lambda k, _, change: ax.logical_and(k < 10, change > 1e-3), body, start)
        return k, ax.reduce_sum(w), w[-3:], change

    rounds, total, last, change = await value_of(build)
    assert rounds == 10
    assert total == pytest.approx(1.0, abs=1e-5)
    assert last == pytest.approx([0.08554769, 0.23254359, 0.63212174], rel=1e-4)
    assert change == pytest.approx(0.0773806, rel=1e-4)
