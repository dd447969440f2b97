"""The different rows of a matrix, beside what numpy says they are."""

from __future__ import annotations

import numpy as np
import pytest

from asyncexec.ops.array.array_common import unique_rows


@pytest.mark.parametrize("shape", [(0, 2), (1, 3), (40, 1), (200, 2), (200, 4)])
def test_different_rows_are_those_that_numpy_finds(shape: tuple[int, int]) -> None:
    rows = np.random.default_rng(5).integers(-3, 4, shape)
    found, places = unique_rows(rows)
    np.testing.assert_array_equal(found, np.unique(rows, axis=0))
    np.testing.assert_array_equal(found[places], rows)
