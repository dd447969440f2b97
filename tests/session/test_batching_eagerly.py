"""Batches whose tasks begin, and may end, as soon as they are made."""

from __future__ import annotations

import sys

import numpy as np
import pytest

import asyncexec as ax
from tests.running import begin_tasks_eagerly


@pytest.mark.skipif(sys.version_info < (3, 12), reason="eager tasks are new in Python 3.12")
async def test_a_call_in_several_batches() -> None:
    @ax.batch(max_size=8, timeout_s=0, allowed_sizes=(2, 4))
    def double(rows: ax.Tensor) -> ax.Tensor:
        return rows * 2.0

    with ax.Graph() as graph:
        fed = ax.placeholder(ax.float64, [None])
        result = double(fed)
    async with ax.Session(graph) as session:
        begin_tasks_eagerly()
        for size in (8, 7, 4, 5):
            rows = np.arange(1.0, size + 1)
            np.testing.assert_array_equal(await session.run(result, {fed: rows}), rows * 2)
