"""``cond``: results of every structure, what is captured, what is refused.

After ``ControlFlowTest`` in ``control_flow_ops_py_test.py``; expected values are that file's.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

import asyncexec as ax
from tests.frontend.control_flow_cases.running import after, session_of, value_of
from tests.running import import_all_names


@pytest.fixture(scope="module", autouse=True)
def all_names() -> None:
    import_all_names()


class Sparse(NamedTuple):
    """What makes up a sparse tensor."""

    indices: Any
    values: Any
    dense_shape: Any


class Slices(NamedTuple):
    """What makes up indexed slices."""

    values: Any
    indices: Any


def ten_and_two_hundred(results: Callable[[Any, Any], Any]) -> Any:
    """A cond that gives what *results* makes of two sums in one branch, and of two constants in the other."""
    x, y = ax.constant(10), ax.constant(200)
    return ax.cond(ax.less(1, 2), lambda: results(x + y, x + y), lambda: results(y, y))


@pytest.mark.parametrize(
    ("results", "expected"),
    [
        (lambda a, b: [a, b], [210, 210]),
        (lambda a, b: (a, b), (210, 210)),
        (lambda a, b: {"a": a, "b": b}, {"a": 210, "b": 210}),
        (lambda a, b: [[a, b]], [[210, 210]]),
        (lambda a, b: ((a, b),), ((210, 210),)),
        (lambda a, b: {"a": {"c": a}, "b": {"d": b}}, {"a": {"c": 210}, "b": {"d": 210}}),
    ],
    ids=["list", "tuple", "dict", "list_in_list", "tuple_in_tuple", "dict_in_dict"],
)
async def test_results_keep_their_structure(results: Callable[[Any, Any], Any], expected: Any) -> None:
    assert await value_of(lambda: ten_and_two_hundred(results)) == expected


def test_a_single_result_is_a_tensor_and_a_list_of_one_a_list() -> None:
    """TensorFlow takes the one element out of a list of one; here what goes in comes out."""
    with ax.Graph():
        pred = ax.less(1, 2)
        assert isinstance(ax.cond(pred, lambda: ax.constant(10), lambda: ax.constant(20)), ax.Tensor)
        listed = ax.cond(pred, lambda: [ax.constant(10)], lambda: [ax.constant(20)])
    assert isinstance(listed, list)
    assert len(listed) == 1


@pytest.mark.parametrize(
    ("pred", "expected"), [(lambda: ax.less(1, 2), 11), (lambda: ax.less(1, 0), 9)], ids=["true", "false"]
)
async def test_the_predicate_decides(pred: Callable[[], Any], expected: int) -> None:
    def build() -> Any:
        x = ax.constant(10)
        return ax.cond(pred(), lambda: x + 1, lambda: x - 1)

    assert await value_of(build) == expected


async def test_the_same_predicate_inside_and_outside() -> None:
    def build() -> Any:
        x, pred = ax.constant(10), ax.less(1, 2)
        return ax.cond(pred, lambda: ax.cond(pred, lambda: x + 1, lambda: x - 1) + 1, lambda: x - 1)

    assert await value_of(build) == 12


async def test_a_chain_of_ten_that_dies_half_way() -> None:
    def grown(alive: Any, count: Any, i: int) -> Any:
        age = ax.constant(i)
        return ax.cond(alive, lambda: [age < 3, count + 1], lambda: [alive, count])

    def build() -> Any:
        alive, count = ax.constant(True), ax.constant(0)
        for i in range(10):
            alive, count = grown(alive, count, i)
        return count

    assert await value_of(build) == 4


async def test_a_variable_as_the_result_of_a_branch() -> None:
    def build() -> Any:
        v, age = ax.Variable([7]), ax.constant(3)
        return ax.cond(age > 4, lambda: age, lambda: v)

    assert await value_of(build) == [7]


async def test_several_results_beside_captured_ones() -> None:
    def build() -> Any:
        x, y = ax.constant(10), ax.constant(200)
        return ax.cond(ax.less(1, 2), lambda: [x + 1, x + 2], lambda: [y, y])

    assert await value_of(build) == [11, 12]


@pytest.mark.parametrize(("value", "expected"), [(2, 1), (0, 2)])
async def test_one_value_from_outside(value: int, expected: int) -> None:
    def build() -> Any:
        c = ax.placeholder(ax.int32, [], name="c")
        one, two = ax.constant(1), ax.constant(2)
        return ax.cond(c >= 1, lambda: one, lambda: two)

    assert await value_of(build, {"c:0": value}) == expected


@pytest.mark.parametrize(("value", "expected"), [(1, 4.0), (2, 2 * math.sqrt(2))])
async def test_two_norms_to_choose_from(value: int, expected: float) -> None:
    def build() -> Any:
        x, d = ax.constant([-2.0, 2.0]), ax.placeholder(ax.int32, [], name="d")
        return ax.cond(ax.equal(d, 2), lambda: ax.sqrt(ax.reduce_sum(ax.square(x))), lambda: ax.reduce_sum(ax.abs(x)))

    assert await value_of(build, {"d:0": value}) == pytest.approx(expected, rel=1e-6)


def test_the_shape_is_what_both_branches_have() -> None:
    with ax.Graph():
        x = ax.constant(1.0)
        assert ax.cond(ax.constant(True), lambda: ax.square(x), lambda: x - 1.0).shape == []


async def test_parts_of_a_sparse_tensor() -> None:
    def build() -> Any:
        values, indices = ax.constant([2.0, 4.0]), ax.constant([[0], [3]], ax.int64)
        shape = ax.constant([10], ax.int64)
        found = ax.cond(
            ax.less(1, 2),
            lambda: Sparse(indices + 1, values + 1, shape),
            lambda: Sparse(indices, values - 1, shape),
        )
        assert found.values.shape == [2]
        return found

    assert await value_of(build) == Sparse([[1], [4]], [3.0, 5.0], [10])


async def test_parts_of_indexed_slices() -> None:
    def build() -> Any:
        values, indices = ax.constant([10]), ax.constant([0])
        return ax.cond(ax.less(1, 2), lambda: Slices(values + 1, indices), lambda: Slices(values - 1, indices))

    assert await value_of(build) == Slices([11], [0])


def test_slices_in_one_branch_and_a_tensor_in_the_other() -> None:
    with ax.Graph():
        values, indices = ax.constant([10]), ax.constant([0])
        with pytest.raises(ax.errors.InvalidArgumentError, match="false_fn is a single value"):
            ax.cond(ax.constant(True), lambda: Slices(values + 1, indices), lambda: values + 1)


def test_indices_of_two_dtypes_are_refused() -> None:
    """TensorFlow widens the indices of indexed slices; tensors of a record of one's own are never cast silently."""
    with ax.Graph():
        values = ax.constant([10])
        with pytest.raises(ax.errors.InvalidArgumentError, match="int32 in true_fn, but int64 in false_fn"):
            ax.cond(
                ax.less(1, 2),
                lambda: Slices(values + 1, ax.constant([0])),
                lambda: Slices(values - 1, ax.constant([0], ax.int64)),
            )


def test_a_tensor_of_one_branch_is_refused_in_the_other() -> None:
    with ax.Graph():
        given = {"c": ax.constant(1.0)}

        def true_fn() -> Any:
            given["c"] = ax.identity(given["c"], name="true_branch")
            return given["c"]

        with pytest.raises(ax.errors.InvalidArgumentError, match="true_branch' is inside true_fn of cond"):
            ax.cond(ax.constant(True), true_fn, lambda: ax.identity(given["c"]))


def test_a_tensor_of_one_case_is_refused_in_another() -> None:
    with ax.Graph():
        c = ax.constant(1.0)
        given = {"c": c}

        def first() -> Any:
            given["c"] = ax.identity(given["c"], name="br1_identity")
            return given["c"]

        def other() -> Any:
            return ax.identity(c)

        functions = [other, first, other, other, lambda: ax.identity(given["c"])]
        with pytest.raises(ax.errors.InvalidArgumentError, match="br1_identity' is inside branch 1 of switch_case"):
            ax.switch_case(ax.constant(2), functions)


def test_dicts_with_different_keys_are_refused() -> None:
    with ax.Graph():
        x, y = ax.constant(10), ax.constant(200)
        with pytest.raises(ax.errors.InvalidArgumentError, match=r"false_fn has \['c'\], \['d'\]"):
            ax.cond(ax.less(1, 2), lambda: {"a": x + y, "b": x + y}, lambda: {"c": y, "d": y})


async def test_a_predicate_that_is_not_the_first_output_of_its_op() -> None:
    @ax.op(outputs=[ax.object, ax.bool])
    def word_and_truth(word: Any) -> Any:
        return word, np.True_

    def build() -> Any:
        return ax.cond(word_and_truth(ax.constant("foo"))[1], lambda: 1.0, lambda: 2.0)

    assert await value_of(build) == 1.0


@pytest.mark.parametrize("has_default", [False, True])
async def test_a_predicate_that_is_constant_unless_it_is_fed(has_default: bool) -> None:
    def build() -> Any:
        value, pred = ax.constant(37.0), ax.constant(True)
        if has_default:
            pred = ax.placeholder_with_default(pred, [])
        return pred, ax.identity(ax.cond(pred, lambda: ax.constant(0.0), lambda: value))

    async with session_of(build) as (session, (pred, result)):
        assert await session.run(result, {pred: False}) == 37.0
        assert await session.run(result, {pred: True}) == 0.0
        assert await session.run(result) == 0.0


async def test_a_tensor_that_waits_for_a_tensor() -> None:
    assert await value_of(lambda: after([ax.identity(1.0)], 2.0)) == 2.0


async def test_what_is_alive_inside_can_be_fetched() -> None:
    """TensorFlow refuses to fetch anything inside; here it has a value whenever its branch is taken."""

    def build() -> Any:
        x = ax.placeholder(ax.float32, [], name="x")
        pred = ax.placeholder(ax.bool, [], name="pred")
        inside: list[ax.Tensor] = []

        def added(number: float) -> ax.Tensor:
            inside.append(x + number)
            return inside[-1]

        ax.cond(pred, lambda: added(2), lambda: added(0))
        return inside

    assert await value_of(lambda: build()[0], {"x:0": 3, "pred:0": True}) == 5
    assert await value_of(lambda: build()[1], {"x:0": 3, "pred:0": False}) == 3
    with pytest.raises(ax.errors.InvalidArgumentError, match="does not have a value"):
        await value_of(lambda: build()[1], {"x:0": 3, "pred:0": True})
