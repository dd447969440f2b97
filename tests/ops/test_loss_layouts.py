"""Losses of logits that do not lie in memory row by row."""

from __future__ import annotations

import numpy as np
import pytest

import asyncexec as ax

LOGITS = np.random.default_rng(3).normal(size=(5, 4)).astype(np.float32)
LABELS = np.array([0, 3, 1, 2, 3])


@pytest.mark.parametrize("layout", ["F", "transposed", "strided"])
async def test_the_gradient_is_that_of_rows(layout: str) -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [None, None], name="x")
        logits = ax.transpose(x) if layout == "transposed" else x
        loss, gradient = ax.raw_ops.SparseSoftmaxCrossEntropyWithLogits(logits, ax.constant(LABELS))
    given = {
        "F": np.asfortranarray(LOGITS),
        "transposed": np.ascontiguousarray(LOGITS.T),
        "strided": np.repeat(LOGITS, 2, axis=1)[:, ::2],
    }[layout]
    exponentials = np.exp(LOGITS.astype(np.float64))
    shares = exponentials / exponentials.sum(1, keepdims=True)
    async with ax.Session(graph) as session:
        losses, gradients = await session.run([loss, gradient], {x: given})
    np.testing.assert_allclose(losses, -np.log(shares[np.arange(5), LABELS]), rtol=1e-5)
    np.testing.assert_allclose(gradients, shares - np.eye(4)[LABELS], rtol=1e-5, atol=1e-6)
