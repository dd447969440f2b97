"""``while_loop``: values, shapes, structures, and what is refused.

After ``ControlFlowTest`` in ``control_flow_ops_py_test.py``; expected values are that file's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

import asyncexec as ax
from tests.frontend.control_flow_cases.running import session_of, value_of
from tests.running import import_all_names


@pytest.fixture(scope="module", autouse=True)
def all_names() -> None:
    import_all_names()


class Named(NamedTuple):
    a: Any
    b: Any


class Sparse(NamedTuple):
    """What makes up a sparse tensor."""

    indices: Any
    values: Any
    dense_shape: Any


def isum(s: Any, maximum_iterations: int | None = None) -> Any:
    """*s* and the numbers from 0 to 9, or as many as there are iterations."""
    return ax.while_loop(
        lambda i, s: i < 10,
        lambda i, s: [i + 1, i + s],
        [ax.constant(0, name="i"), s],
        maximum_iterations=maximum_iterations,
    )[1]


async def test_ten_thousand_iterations() -> None:
    def build() -> Any:
        return ax.while_loop(lambda x: x < 10000, lambda x: x + 1, ax.constant(0), parallel_iterations=20)

    assert await value_of(build) == 10000


async def test_a_sum() -> None:
    assert await value_of(lambda: isum(ax.constant(0))) == 45


async def test_a_sum_for_each_element() -> None:
    assert await value_of(lambda: isum(ax.constant([1, 2, 3, 4, 5]))) == [46, 47, 48, 49, 50]


async def test_a_sum_that_is_cut_short() -> None:
    assert await value_of(lambda: isum(ax.constant([1, 2, 3, 4, 5]), 3)) == [4, 5, 6, 7, 8]


async def test_a_maximum_of_one_iteration() -> None:
    def build() -> Any:
        return ax.while_loop(lambda i: i < 3, lambda i: i + 1, [0], maximum_iterations=1)

    assert await value_of(build) == [1]


async def test_more_iterations_than_may_run_at_once() -> None:
    def build() -> Any:
        limit = ax.constant(100)
        return ax.while_loop(
            lambda i, m, c, o: i < limit,
            lambda i, m, c, o: [i + 1, m + 1, c + 1, o + (m + 1) + (c + 1)],
            [ax.constant(0) for _ in range(4)],
        )[3]

    assert await value_of(build) == 10100


async def test_elements_taken_by_the_counter() -> None:
    def build() -> Any:
        x = ax.constant([1, 2, 3, 4, 5, 6])
        size = ax.size(x)

        def body(i: Any, m: Any, c: Any, o: Any) -> Any:
            m, c = ax.gather(x, i), ax.gather(x, i)
            return [i + 1, m, c, o + m + c]

        return ax.while_loop(lambda i, m, c, o: i < size, body, [ax.constant(0) for _ in range(4)])[3]

    assert await value_of(build) == 42


async def test_slices_taken_by_the_counter_are_joined() -> None:
    def build() -> Any:
        x = ax.constant([1, 2, 3, 4, 5, 6])
        size = ax.size(x)

        def body(i: Any, c: Any, o: Any) -> Any:
            begin = ax.expand_dims(i, 0)
            c = ax.strided_slice(x, begin, begin + 1)
            return [i + 1, c, ax.concat([o, c], 0)]

        start = [ax.constant(0), ax.constant([0]), ax.constant([0])]
        return ax.while_loop(lambda i, c, o: i < size, body, start, shape_invariants=[[], None, None])[2]

    assert await value_of(build) == [0, 1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("device", [None, "/cpu:0", "/cpu:1"])
async def test_the_body_on_another_device(device: str | None) -> None:
    """With a second CPU for TensorFlow's GPU."""

    def build() -> Any:
        def body(x: Any) -> Any:
            with ax.device(device):
                return x + 1.0

        return ax.while_loop(lambda x: x < 10.0, body, [ax.constant(1.0)])

    assert await value_of(build, device_count={"CPU": 2}) == [10.0]


def test_the_body_is_placed_where_the_loop_is_asked_for() -> None:
    with ax.Graph() as graph:
        with ax.device("/cpu:1"):
            r = ax.while_loop(lambda x: x < 10.0, ax.exp, ax.constant(-10.0))
        made = [node for node in graph if node.op == "Exp"]
    assert r.op.device == "/cpu:1" or r.op.device.lower().endswith("cpu:1")
    assert {node.device for node in made} == {r.op.device}


async def test_a_number_as_variable() -> None:
    def build() -> Any:
        return ax.while_loop(lambda x: x < 1000, lambda x: x + 1, [0], parallel_iterations=20)

    assert await value_of(build) == [1000]


async def test_an_array_as_variable() -> None:
    def build() -> Any:
        start = [np.array([0], np.int32)]
        return ax.while_loop(lambda x: x[0] < 1000, lambda x: ax.stack([x[0] + 1]), start, parallel_iterations=20)

    assert await value_of(build) == [[1000]]


async def test_nests_keep_their_structure() -> None:
    def build() -> Any:
        start = [Named(ax.constant(0.0), ax.constant(1.0)), (ax.constant(2.0), ax.constant(3.0)), ax.constant(4.0)]
        found = ax.while_loop(
            lambda v, *_: v.a < 100.0, lambda v, pair, x: [Named(v.a + 1, v.b), (pair[0] + 1, pair[1]), x + 2], start
        )
        assert isinstance(found, list)
        assert isinstance(found[2], ax.Tensor)
        return found

    assert await value_of(build) == [Named(100.0, 1.0), (102.0, 3.0), 204.0]


async def test_a_shape_that_is_not_told() -> None:
    def build() -> Any:
        start = [ax.constant(0), ax.ones([2, 2])]
        found = ax.while_loop(
            lambda i, j: i < 2, lambda i, j: [i + 1, ax.tile(j, [2, 2])], start, shape_invariants=[[], None]
        )
        return found[1] * ax.ones([8, 8])

    assert await value_of(build) == np.ones((8, 8)).tolist()


async def test_a_shape_told_in_part() -> None:
    def build() -> Any:
        start = [ax.constant(0), ax.ones([2, 2])]
        found = ax.while_loop(
            lambda i, j: i < 2, lambda i, j: [i + 1, ax.concat([j, j], 0)], start, shape_invariants=[[], [None, 2]]
        )
        assert found[1].shape == [None, 2]
        return found[1]

    assert await value_of(build) == np.ones((8, 2)).tolist()


@pytest.mark.parametrize(("invariant", "expected"), [(ax.TensorShape(None), None), (ax.TensorShape([None]), [None])])
def test_the_result_has_the_shape_that_is_told(invariant: ax.TensorShape, expected: list[None] | None) -> None:
    with ax.Graph():
        found = ax.while_loop(
            lambda _: False, lambda _: ax.constant([1]), [ax.constant([1, 2])], shape_invariants=[invariant]
        )[0]
    if expected is None:
        assert found.shape.rank is None
    else:
        assert found.shape == expected


async def test_a_rank_that_grows() -> None:
    def build() -> Any:
        start = [ax.constant(0), ax.constant([1])]
        return ax.while_loop(
            lambda i, _: i < 10, lambda i, x: (i + 1, ax.stack([x, x])), start, shape_invariants=[[], None]
        )[1]

    found = np.array(await value_of(build))
    assert found.shape == (2,) * 10 + (1,)
    assert (found == 1).all()


def sparse() -> Sparse:
    return Sparse(ax.constant([[0], [3]], ax.int64), ax.constant([2.0, 4.0]), ax.constant([10], ax.int64))


async def test_parts_of_a_sparse_tensor_whose_values_change() -> None:
    def build() -> Any:
        found = ax.while_loop(
            lambda i, _: i < 10,
            lambda i, x: [i + 1, Sparse(x.indices, x.values * 2.0, x.dense_shape)],
            [ax.constant(0), sparse()],
        )[1]
        assert [part.shape for part in found] == [[2, 1], [2], [1]]
        return found

    assert await value_of(build) == Sparse([[0], [3]], [2048.0, 4096.0], [10])


async def test_parts_of_a_sparse_tensor_whose_rank_grows() -> None:
    """Two rounds of three; the shapes are told for each part."""

    def body(i: Any, x: Sparse) -> Any:
        column = ax.cast(ax.stack([[i], [i]]), ax.int64)
        shape = ax.concat([x.dense_shape, ax.constant([10], ax.int64)], 0)
        return [i + 1, Sparse(ax.concat([x.indices, column], 1), x.values * 2.0, shape)]

    def build() -> Any:
        invariants = [[], Sparse([None, None], [None], [None])]
        start = [ax.constant(0), sparse()]
        found = ax.while_loop(lambda i, _: i < 2, body, start, shape_invariants=invariants)[1]
        assert [part.shape for part in found] == [[None, None], [None], [None]]
        return found

    assert await value_of(build) == Sparse([[0, 0, 1], [3, 0, 1]], [8.0, 16.0], [10, 10, 10])


@pytest.mark.parametrize("is_told", [True, False])
def test_parts_of_a_sparse_tensor_whose_shapes_do_not_fit(is_told: bool) -> None:
    with ax.Graph():
        start = [ax.constant(0), sparse()]

        def body(i: Any, x: Sparse) -> Any:
            indices = x.indices if is_told else ax.concat([x.indices, x.indices], 1)
            return [i + 1, Sparse(indices, x.values, x.dense_shape)]

        told = [[], Sparse([None, 1], [5], [1])] if is_told else None
        with pytest.raises(ax.errors.InvalidArgumentError, match=r"loop_vars\[1\]\.(values|indices)"):
            ax.while_loop(lambda i, _: i < 10, body, start, shape_invariants=told)


async def test_parts_of_indexed_slices() -> None:
    def build() -> Any:
        values, indices = ax.constant([[2.0, 4.0], [3.0, 5.0]]), ax.constant([0, 3])
        found = ax.while_loop(
            lambda i, _: i < 10,
            lambda i, x: [i + 1, (x[0] * 2.0, x[1], x[2])],
            [ax.constant(0), (values, indices, ax.constant([10, 2]))],
            shape_invariants=[[], ([None, 2], [None], [2])],
        )[1]
        assert found[0].shape == [None, 2]
        assert found[2].shape == [2]
        return found

    assert await value_of(build) == ([[2048.0, 4096.0], [3072.0, 5120.0]], [0, 3], [10, 2])


def growing(i: Any, x: Any) -> Any:
    return [i + 1, ax.concat([x, x], 0)]


def passing(i: Any, x: Any) -> Any:
    return [i + 1, x]


REFUSED: dict[str, tuple[Callable[..., Any], Any, str]] = {
    "other_shape_at_first": (passing, [[], [5]], r"shape \[2\] at first, which does not fit its shape invariant \[5\]"),
    "other_shape_later": (growing, None, r"shape \[2\] at first, but \[4\] after an iteration"),
    "one_more": (lambda i, *x: (i, i, *x), None, r"body has \[0\], \[1\], \[2\]"),
    "one_fewer": (lambda i, x: [i], None, r"body has \[0\], but the nest of loop_vars has \[0\], \[1\]"),
    "no_shapes": (passing, ["foo", "bar"], "a dimension is an integer"),
    "shapes_of_another_nest": (passing, [[], {"a": []}], "a dimension is|shape_invariants"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    body, invariants, message = REFUSED[name]
    with ax.Graph():
        start = [ax.constant(0), ax.constant([2.0, 4.0])]
        with pytest.raises(ax.errors.InvalidArgumentError, match=message) as caught:
            ax.while_loop(lambda i, *_: i < 10, body, start, shape_invariants=invariants)
    assert isinstance(caught.value, ValueError)


def test_the_message_tells_how_to_let_a_shape_change() -> None:
    message = r"\[2,2\].*\[4,2\] after an iteration"
    with ax.Graph(), pytest.raises(ax.errors.InvalidArgumentError, match=message) as caught:
        ax.while_loop(lambda i, j: i < 2, growing, [ax.constant(0), ax.ones([2, 2])])
    assert "shape_invariants" in (caught.value.hint or "")


def test_a_nest_that_loses_a_member_is_refused() -> None:
    with ax.Graph():
        start = [Named(ax.constant(0.0), ax.constant(1.0)), (ax.constant(2.0), ax.constant(3.0)), ax.constant(4.0)]
        with pytest.raises(ax.errors.InvalidArgumentError, match=r"body has \[0\], \[1\]"):
            ax.while_loop(lambda v, *_: v.a < 100.0, lambda v, pair, _: [v, pair], start)


async def test_the_initial_value_may_be_fed_and_what_is_inside_may_not() -> None:
    def build() -> Any:
        c, start, inside = ax.constant(2), ax.constant(0), []

        def body(i: Any) -> Any:
            inside.append(i)
            return ax.square(c) + i

        return start, c, ax.while_loop(lambda i: i < 1000, body, start), inside

    async with session_of(build) as (session, (start, c, result, inside)):
        assert await session.run(result, {start: 0}) == 1000
        assert await session.run(result, {start: 3}) == 1003
        assert await session.run(result, {c: 3}) == 1008
        with pytest.raises(ax.errors.InvalidArgumentError, match="is inside a loop"):
            await session.run(result, {inside[0]: 3})


async def test_a_tensor_that_escapes_from_the_body_cannot_be_fetched() -> None:
    escaped: list[ax.Tensor] = []

    def build() -> Any:
        def body(t: Any) -> Any:
            escaped.append(ax.constant(5))
            return t + 10

        return ax.while_loop(lambda t: t < ax.constant(20), body, ax.constant(4))

    async with session_of(build) as (session, result):
        assert await session.run(result) == 24
        with pytest.raises(ax.errors.OpError, match="inside a loop"):
            await session.run(escaped[0])


async def test_a_python_function_in_the_body() -> None:
    @ax.op(outputs=[ax.float32])
    def square(x: Any) -> Any:
        return np.square(x)

    def build() -> Any:
        start = [ax.constant(0), ax.constant(2.0)]
        return ax.while_loop(lambda i, v: i < 4, lambda i, v: [i + 1, square(v)], start, shape_invariants=[None, None])[
            1
        ]

    assert await value_of(build) == 65536.0


@pytest.mark.virtual_clock
async def test_a_loop_without_end_meets_its_deadline() -> None:
    @ax.op
    async def tick(x: Any) -> np.int32:
        await asyncio.sleep(0.25)
        return np.int32(x + 1)

    def build() -> Any:
        return ax.while_loop(lambda x: True, tick, ax.constant(0))

    async with session_of(build) as (session, result):
        with pytest.raises(ax.errors.DeadlineExceededError):
            await session.run(result, options=ax.RunOptions(timeout=1.0))
