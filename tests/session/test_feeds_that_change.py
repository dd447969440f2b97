"""A list that its owner changes while it is converted in pieces: what comes out is a whole of what was fed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import asyncexec as ax
from asyncexec.session.function_call_frame import SlowConverter
from asyncexec.session.large_feeds import MAX_ITEMS, convert_in_pieces

ROWS = 20


def drop_rows(nest: list[Any]) -> None:
    del nest[ROWS // 2 :]


def add_rows(nest: list[Any]) -> None:
    nest.extend([nest[0]] * 3)


@pytest.mark.parametrize("change", [drop_rows, add_rows])
@pytest.mark.parametrize("row_size", [1000, MAX_ITEMS + 1])
def test_rows_come_or_go(change: Callable[[list[Any]], None], row_size: int) -> None:
    with ax.Graph():
        converter = SlowConverter(ax.placeholder(ax.float64, None))
    nest = [[float(number)] * row_size for number in range(1, ROWS + 1)]
    before = np.array(nest)
    stage = convert_in_pieces(nest, converter)
    next(stage)
    change(nest)
    try:
        while True:
            next(stage)
    except StopIteration as stop:
        result = stop.value
    assert any(np.array_equal(result, whole) for whole in (before, np.array(nest)))
