"""Gradients of poolings, beside loops over their windows."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

from tests.ops.cases.convolution import data
from tests.ops.op_case import case
from tests.ops.op_runner import run_case

NAN, INF = np.nan, np.inf


def windows(size: int, window: int, stride: int, padding: bytes) -> list[range]:
    """The cells of each window along an axis."""
    count = -(-size // stride) if padding == b"SAME" else (size - window) // stride + 1
    before = max(0, (count - 1) * stride + window - size) // 2 if padding == b"SAME" else 0
    firsts = [i * stride - before for i in range(count)]
    return [range(max(0, first), min(size, first + window)) for first in firsts]


def first_maximum(cells: list[Any]) -> int:
    """The place of the greatest; NaN counts only where it comes first, and then for more than all others."""
    best = 0
    for i, cell in enumerate(cells):
        if cell > cells[best]:
            best = i
    return best


def expected_max(x: Any, grad: Any, rows: list[range], columns: list[range]) -> Any:
    total = np.zeros_like(x)
    for b, (i, row), (j, column), c in product(range(len(x)), enumerate(rows), enumerate(columns), range(x.shape[-1])):
        places = list(product(row, column))
        y, z = places[first_maximum([x[b, y, z, c] for y, z in places])]
        total[b, y, z, c] += grad[b, i, j, c]
    return total


def expected_mean(x: Any, grad: Any, rows: list[range], columns: list[range]) -> Any:
    total = np.zeros_like(x)
    for (i, row), (j, column) in product(enumerate(rows), enumerate(columns)):
        share = grad[:, i, j] / x.dtype.type(len(row) * len(column))
        for y, z in product(row, column):
            total[:, y, z] += share
    return total


def with_ties(*shape: int) -> Any:
    """Few different numbers, infinities among them."""
    values = np.random.default_rng(3).integers(-2, 3, shape).astype(np.float32)
    values[values == 2] = INF
    values[:, :3] = -INF
    return values


def with_nans(*shape: int) -> Any:
    values = data(*shape)
    values.reshape(-1)[::5] = NAN
    return values


GEOMETRIES = [(6, 2, 2, b"VALID"), (7, 3, 2, b"SAME"), (6, 3, 1, b"SAME"), (8, 3, 2, b"VALID"), (6, 2, 3, b"SAME")]
INPUTS = [
    pytest.param(data(2, 8, 8, 3), id="float32"),
    pytest.param(data(2, 8, 8, 3, dtype=np.float64), id="float64"),
    pytest.param(np.random.default_rng(5).integers(-3, 3, (2, 8, 8, 3)).astype(np.int16), id="int16"),
    pytest.param(with_ties(2, 8, 8, 3), id="ties"),
    pytest.param(with_nans(2, 8, 8, 3), id="nans"),
]


@pytest.mark.parametrize("layout", [b"NHWC", b"NCHW"])
@pytest.mark.parametrize(("size", "window", "stride", "padding"), GEOMETRIES)
@pytest.mark.parametrize("x", INPUTS)
def test_gradient_of_a_maximum_goes_to_the_first_cell_that_has_it(
    x: Any, size: int, window: int, stride: int, padding: bytes, layout: bytes
) -> None:
    x, cells = x[:, :size, :size], windows(size, window, stride, padding)
    grad = data(len(x), len(cells), len(cells), x.shape[-1], seed=4).astype(x.dtype)
    grad[0, 0] = 0 if x.dtype.kind == "i" else -INF
    expected = expected_max(x, grad, cells, cells)
    first = layout == b"NCHW"
    steps = {"ksize": [1, window, window, 1], "strides": [1, stride, stride, 1]}
    attrs = {name: [1, 1, *value[1:3]] if first else value for name, value in steps.items()}
    arrays = [np.moveaxis(value, -1, 1).copy() if first else value for value in (x, grad, grad)]
    (found,) = run_case(case("MaxPoolGrad", *arrays, **attrs, padding=padding, data_format=layout))
    np.testing.assert_array_equal(np.moveaxis(found, 1, -1) if first else found, expected)


@pytest.mark.parametrize("op", ["MaxPoolGrad", "AvgPoolGrad"])
def test_each_of_many_images_gets_what_it_gets_by_itself(op: str) -> None:
    x, grad = data(9, 40, 40, 32), data(9, 20, 20, 32, seed=4)
    attrs = {"ksize": [1, 3, 3, 1], "strides": [1, 2, 2, 1], "padding": b"SAME"}

    def run(images: slice) -> Any:
        shape = np.array([len(x[images]), 40, 40, 32], np.int32)
        inputs = [shape, grad[images]] if op == "AvgPoolGrad" else [x[images], grad[images], grad[images]]
        (found,) = run_case(case(op, *inputs, **attrs))
        return found

    np.testing.assert_array_equal(run(slice(None)), np.concatenate([run(slice(i, i + 1)) for i in range(9)]))


@pytest.mark.parametrize(("size", "window", "stride", "padding"), GEOMETRIES)
def test_gradient_of_a_mean_is_shared_by_its_cells(size: int, window: int, stride: int, padding: bytes) -> None:
    x, cells = data(2, size, size, 3), windows(size, window, stride, padding)
    grad = data(2, len(cells), len(cells), 3, seed=4)
    attrs = {"ksize": [1, window, window, 1], "strides": [1, stride, stride, 1], "padding": padding}
    (found,) = run_case(case("AvgPoolGrad", np.array(x.shape, np.int32), grad, **attrs))
    np.testing.assert_allclose(found, expected_mean(x, grad, cells, cells), rtol=1e-6, atol=1e-6)
