"""``TensorArray``: reads, writes, whole-array ops, as a loop variable and a result of branches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import asyncexec as ax
from tests.frontend.builder import run
from tests.running import import_all_names


@pytest.fixture(scope="module", autouse=True)
def all_names() -> None:
    import_all_names()


def written(*values: Any, **options: Any) -> ax.TensorArray:
    array = ax.TensorArray(ax.float32, len(values), **options)
    for index, value in enumerate(values):
        array = array.write(index, value)
    return array


VECTOR = np.arange(6, dtype=np.float32)

VALUES: dict[str, tuple[Callable[[ax.Tensor], Any], Any]] = {
    "write_and_read": (lambda v: [written(v, v + 1).read(1)], [[1, 2, 3, 4, 5, 6]]),
    "stack": (lambda v: written(v[:2], v[2:4]).stack(), [[0, 1], [2, 3]]),
    "unstack": (lambda v: ax.TensorArray(ax.float32, 6).unstack(v).read(4), 4),
    "unstack_and_stack": (lambda v: ax.TensorArray(ax.float32, 6).unstack(v * 2).stack(), [0, 2, 4, 6, 8, 10]),
    "gather": (lambda v: written(v[0], v[1], v[2]).gather([2, 0]), [2, 0]),
    "scatter": (lambda v: ax.TensorArray(ax.float32, 6).scatter([5, 4, 3, 2, 1, 0], v).stack(), [5, 4, 3, 2, 1, 0]),
    "concat": (lambda v: written(v[:2], v[2:5], infer_shape=False).concat(), [0, 1, 2, 3, 4]),
    "split": (lambda v: ax.TensorArray(ax.float32, 3, infer_shape=False).split(v, [1, 2, 3]).read(2), [3, 4, 5]),
    "size": (lambda v: written(v, v).size(), 2),
    "dynamic": (
        lambda v: ax.TensorArray(ax.float32, dynamic_size=True).write(0, v[0]).write(1, v[1]).stack(),
        [0, 1],
    ),
    "grown": (lambda v: ax.TensorArray(ax.float32, 0, dynamic_size=True).write(9, v).size(), 10),
    "read_twice": (lambda v: ax.stack([a.read(0) + a.read(0) for a in [written(v[3], clear_after_read=False)]]), [6]),
    "zeros": (lambda v: ax.TensorArray(ax.float32, 2, element_shape=[2]).write(1, v[1:3]).stack(), [[0, 0], [1, 2]]),
    "size_of_a_tensor": (lambda v: ax.TensorArray(ax.float32, ax.size(v)).unstack(v).stack(), [0, 1, 2, 3, 4, 5]),
    "empty": (lambda v: ax.TensorArray(ax.float32, 0, element_shape=[2]).stack(), []),
}


@pytest.mark.parametrize("name", VALUES)
def test_values(name: str) -> None:
    build, expected = VALUES[name]
    result = run(build, VECTOR)
    assert np.asarray(result).tolist() == expected


def test_as_a_loop_variable() -> None:
    def build(n: ax.Tensor) -> Any:
        def body(i: Any, array: ax.TensorArray) -> Any:
            return i + 1, array.write(i, array.read(i - 1) + array.read(i - 2))

        start = ax.TensorArray(ax.int32, n, clear_after_read=False).write(0, 0).write(1, 1)
        return ax.while_loop(lambda i, array: i < n, body, (2, start))[1].stack()

    assert run(build, 10).tolist() == [0, 1, 1, 2, 3, 5, 8, 13, 21, 34]


def test_made_in_a_loop() -> None:
    def build(n: ax.Tensor) -> Any:
        def body(i: Any, total: Any) -> Any:
            array = ax.TensorArray(ax.int32, 2).write(0, i).write(1, total)
            return i + 1, ax.reduce_sum(array.stack())

        return ax.while_loop(lambda i, total: i < n, body, (0, 0))[1]

    assert run(build, 5) == 10


def test_through_two_loops() -> None:
    def build(n: ax.Tensor) -> Any:
        def outer(i: Any, array: ax.TensorArray) -> Any:
            def inner(j: Any, array: ax.TensorArray) -> Any:
                return j + 1, array.write(i * n + j, i * 10 + j)

            return i + 1, ax.while_loop(lambda j, _: j < n, inner, (0, array))[1]

        return ax.while_loop(lambda i, _: i < n, outer, (0, ax.TensorArray(ax.int32, n * n)))[1].stack()

    assert run(build, 3).tolist() == [0, 1, 2, 10, 11, 12, 20, 21, 22]


@pytest.mark.parametrize(("value", "expected"), [(3, [1, 3]), (-3, [1, 9])])
def test_as_the_result_of_branches(value: int, expected: list[int]) -> None:
    def build(x: ax.Tensor) -> Any:
        array = ax.TensorArray(ax.int32, 2).write(0, 1)
        return ax.cond(x > 0, lambda: array.write(1, x), lambda: array.write(1, x * x)).stack()

    assert run(build, value).tolist() == expected


@pytest.mark.parametrize(("value", "expected"), [(3, [3]), (-3, [-3, -3])])
def test_made_in_branches(value: int, expected: list[int]) -> None:
    def build(x: ax.Tensor) -> Any:
        def made(size: int) -> ax.TensorArray:
            array = ax.TensorArray(ax.int32, size)
            for index in range(size):
                array = array.write(index, x)
            return array

        return ax.cond(x > 0, lambda: made(1), lambda: made(2)).stack()

    assert run(build, value).tolist() == expected


def test_python_objects_as_elements() -> None:
    @ax.op
    def pair(x: Any) -> object:
        return [int(x), {"x": int(x)}]

    def build(x: ax.Tensor) -> Any:
        array = ax.TensorArray(ax.object, 3, clear_after_read=False).write(0, pair(x)).write(1, pair(x + 1))
        array = array.write(2, pair(x + 2))
        again = ax.TensorArray(ax.object, 3).unstack(array.stack())
        return [array.read(1), array.gather([2, 0]), again.read(2), array.size()]

    one, some, last, size = run(build, 5)
    assert one == [6, {"x": 6}]
    assert some.tolist() == [[7, {"x": 7}], [5, {"x": 5}]]
    assert last == [7, {"x": 7}]
    assert size == 3


def test_what_is_known_of_shapes() -> None:
    with ax.Graph():
        x = ax.placeholder(ax.float32, [2, None])
        array = ax.TensorArray(ax.float32, 3)
        assert array.read(0).shape.rank is None
        array = array.write(0, x)
        assert array.element_shape == [2, None]
        assert array.read(0).shape == [2, None]
        assert array.stack().shape == [None, 2, None]
        assert array.concat().shape == [None, None]
        assert "float32" in repr(array)
        assert "[2,?]" in repr(array)


def test_close_forgets_the_elements() -> None:
    def build(v: ax.Tensor) -> Any:
        array = written(v)
        with ax.control_dependencies([array.flow]):
            closed = array.close()
        with ax.control_dependencies([closed]):
            return array.identity().read(0)

    with pytest.raises(ax.errors.InvalidArgumentError, match="has already been closed"):
        run(build, VECTOR)


def another(x: ax.Tensor) -> Any:
    return ax.while_loop(lambda _: True, lambda _: ax.TensorArray(ax.float32, 1), ax.TensorArray(ax.float32, 1))


ERRORS: dict[str, tuple[Callable[[ax.Tensor], Any], str]] = {
    "shape": (lambda v: written(v, v[:2]), r"shape \[2\] does not fit .* of shape \[6\]"),
    "dtype": (lambda v: ax.TensorArray(ax.int32, 1).write(0, v), "is of float32, not int32"),
    "another": (another, "becomes another TensorArray than it is at first"),
    "tensor_for_array": (
        lambda v: ax.while_loop(lambda _: True, lambda _: v, ax.TensorArray(ax.float32, 1)),
        "a TensorArray at first, but something else after",
    ),
    "array_for_tensor": (
        lambda v: ax.while_loop(lambda _: True, lambda _: ax.TensorArray(ax.float32, 1), v),
        "something else at first, but a TensorArray after",
    ),
    "branches": (
        lambda v: ax.cond(v[0] > 0, lambda: written(v), lambda: v),
        "result is a TensorArray in one branch, but not in false_fn",
    ),
    "branch_dtypes": (
        lambda v: ax.cond(v[0] > 0, lambda: written(v), lambda: ax.TensorArray(ax.int32, 1)),
        "a TensorArray of float32 in true_fn, but of int32 in false_fn",
    ),
    "objects": (lambda v: ax.TensorArray(ax.object, 1).concat(), "of object has no concat"),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors(name: str) -> None:
    build, message = ERRORS[name]
    with ax.Graph():
        x = ax.placeholder(ax.float32, [6], name="x")
        with pytest.raises(ax.errors.InvalidArgumentError, match=message):
            build(x)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda v: written(v).read(3), "Tried to read from index 3 but array size is: 1"),
        (lambda v: written(v).write(0, v).flow, "it has already been written to"),
        (lambda v: ax.stack([a.read(0) + a.read(0) for a in [written(v)]]), "Could not read index 0 twice"),
        (lambda v: ax.TensorArray(ax.object, 1).read(0), "it was never written"),
        (lambda v: ax.TensorArray(ax.float32, 1).write(1, v).flow, "array is not resizeable"),
    ],
)
def test_errors_of_a_run(build: Callable[[ax.Tensor], Any], message: str) -> None:
    with pytest.raises(ax.errors.InvalidArgumentError, match=message):
        run(build, VECTOR)
