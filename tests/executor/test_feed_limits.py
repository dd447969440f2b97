"""Which feeds a plan takes that calls kernels inline whose cost is by the size of their inputs."""

from __future__ import annotations

import numpy as np
import pytest

import asyncexec as ax
from asyncexec.compilation.bind_kernel import BoundKernel
from asyncexec.compilation.graph_view import NodeItem
from asyncexec.executor.diagnostics.kernel_stats import KernelStats, size_of
from asyncexec.executor.plans.feed_limits import FeedLimits
from asyncexec.framework.kernel import KernelKind


@pytest.mark.parametrize(
    ("shape", "is_admitted"),
    [
        ((100, 100), True),  # as was measured
        ((50, 100), True),
        ((200, 100), False),
        ((5000, 2), False),  # as many bytes, and 50 times as many multiplications
    ],
)
def test_a_product_with_a_feed_is_for_as_many_multiplications_as_were_quick(
    shape: tuple[int, int], is_admitted: bool
) -> None:
    with ax.Graph():
        left, right = (ax.placeholder(ax.float32, [None, None]) for _ in range(2))
        product = ax.matmul(left, right).op
    kernel = BoundKernel(lambda *_: None, KernelKind.EXPENSIVE, None)
    stats = KernelStats([NodeItem(0, product, kernel, 0, 0, 0)])
    measured = [np.zeros((100, 100), np.float32)] * 2
    stats.update_sized(0, size_of(product, measured), 20_000, is_inline=False)
    limits = FeedLimits([left, right])
    assert limits.add(product, stats, 0)
    given = np.zeros(shape, np.float32)
    assert limits.admit([given, given.T]) == is_admitted


def test_an_input_of_a_known_shape_is_no_limit() -> None:
    with ax.Graph():
        left = ax.placeholder(ax.float32, [None, 30])
        product = ax.matmul(left, ax.placeholder(ax.float32, [30, 20])).op
    stats = KernelStats([NodeItem(0, product, BoundKernel(lambda *_: None, KernelKind.EXPENSIVE, None), 0, 0, 0)])
    values = [np.zeros((10, 30), np.float32), np.zeros((30, 20), np.float32)]
    stats.update_sized(0, size_of(product, values), 20_000, is_inline=False)
    limits = FeedLimits([left])
    assert limits.add(product, stats, 0)
    assert limits.admit(values[:1])
    assert not limits.admit([np.zeros((11, 30), np.float32)])


@pytest.mark.parametrize("dims", [[None, 20], [30, 2**41]])
def test_an_input_of_another_or_no_possible_shape_leaves_the_plan_without_limits(dims: list[int | None]) -> None:
    with ax.Graph():
        left = ax.placeholder(ax.float32, [None, 30])
        product = ax.matmul(left, ax.placeholder(ax.float32, dims)).op
    stats = KernelStats([NodeItem(0, product, BoundKernel(lambda *_: None, KernelKind.EXPENSIVE, None), 0, 0, 0)])
    assert not FeedLimits([left]).add(product, stats, 0)
