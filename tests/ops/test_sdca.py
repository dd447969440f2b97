"""SdcaShrinkL1 and SdcaFprint; the numbers are TensorFlow's."""

from __future__ import annotations

import numpy as np
import pytest

import asyncexec as ax
from asyncexec.framework.errors import InvalidArgumentError
from tests.ops.kernel_bench import KernelBench
from tests.ops.op_case import text


async def test_weights_shrink() -> None:
    ops = ax.raw_ops
    starts = [[1.0, -0.5, 3.0, -4.0], [[2.0, 0.1]]]
    with ax.Graph() as graph:
        weights = [ops.VariableV2(shape=np.shape(start), dtype=ax.float32) for start in starts]
        made = [ops.Assign(ref=ref, value=ax.constant(start)) for ref, start in zip(weights, starts, strict=True)]
        shrunk = ops.SdcaShrinkL1(weights=weights, l1=1.0, l2=2.0)
    async with ax.Session(graph) as session:
        await session.run(made)
        await session.run([], targets=[shrunk])
        first, second = await session.run(weights)
    assert first.tolist() == [0.5, 0, 2.5, -3.5]
    assert second.tolist() == [[1.5, 0]]


@pytest.mark.parametrize(
    ("l1", "l2", "expected"),
    [
        (-1.0, 1.4e-45, [np.nan, np.inf, -np.inf, np.inf]),
        (1e30, 1.4e-45, [0, 0, 0, 0]),
        (0.0, 0.0, [np.nan] * 4),
        (1.0, 0.0, [0, 0, 0, 0]),
        (1.0, -1.0, [0, 2, -2, 3]),
    ],
)
async def test_weights_shrink_by_what_is_no_number_and_nothing_warns(
    l1: float, l2: float, expected: list[float]
) -> None:
    ops = ax.raw_ops
    with ax.Graph() as graph:
        weights = ops.VariableV2(shape=[4], dtype=ax.float32)
        made = ops.Assign(ref=weights, value=ax.constant([0.0, 1.0, -1.0, 2.0]))
        shrunk = ops.SdcaShrinkL1(weights=[weights], l1=l1, l2=l2)
    async with ax.Session(graph) as session:
        await session.run(made)
        await session.run([], targets=[shrunk])
        np.testing.assert_array_equal(await session.run(weights), np.float32(expected))


def test_fingerprints() -> None:
    bench = KernelBench()
    found = bench.run("SdcaFprint", text(b"abc", b"", b"x" * 100))
    assert found.tolist() == [
        [4143508125394299908, -6879828354153669051],
        [4463240938071824939, 4374473821787594281],
        [-2678948576289439314, -1323440425602353700],
    ]
    assert bench.run("SdcaFprint", text()).shape == (0, 2)
    with pytest.raises(InvalidArgumentError, match="must be a vector"):
        bench.run("SdcaFprint", b"abc")
