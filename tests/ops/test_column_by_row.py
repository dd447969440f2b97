"""A column times a row: the bits that a product of matrices has, whatever the numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import asyncexec as ax
from asyncexec.ops.math import matmul

SPECIAL = [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-40, -1e-40, 1e38, 3.0, -7.0]


@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize("flips", [(False, False), (True, False), (False, True), (True, True)])
def test_bits_are_those_of_the_plain_product(kind: Any, flips: tuple[bool, bool]) -> None:
    random = np.random.default_rng(0)
    column, row = (np.concatenate([SPECIAL, random.normal(size=size)]).astype(kind) for size in (190, 290))
    a, b = column.reshape((1, -1) if flips[0] else (-1, 1)), row.reshape((-1, 1) if flips[1] else (1, -1))
    product = matmul._matrix_product(*flips)
    assert column.size * row.size >= matmul._MANY
    with np.errstate(all="ignore"):
        assert product(a, b).tobytes() == (column[:, None] @ row[None]).tobytes()


def test_matrices_that_do_not_fit_are_an_error() -> None:
    product = matmul._matrix_product(False, False)
    with pytest.raises(ax.errors.InvalidArgumentError, match="Matrix size-incompatible"):
        product(np.ones((200, 1), np.float32), np.ones((2, 100), np.float32))
