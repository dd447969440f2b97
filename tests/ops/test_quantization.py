"""What the golden answers do not cover: QuantizedReluX, for which TensorFlow 2.21 has no kernel, and bfloat16."""

from __future__ import annotations

import numpy as np
import pytest

from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.types import as_dtype
from tests.ops.kernel_bench import KernelBench

F = np.float32


def test_relu_x_clamps() -> None:
    relu = KernelBench().kernel("QuantizedReluX", Tinput="quint8", out_type="quint8")
    x = np.array([0, 50, 100, 128, 200, 255], np.uint8)
    # 255 steps from -1 to 4: 0 is step 51, 2 is step 153.
    y, low, high = relu(x, F(2), F(-1), F(4))
    np.testing.assert_array_equal(y, [51, 51, 100, 128, 153, 153])
    assert (low, high) == (-1, 4)
    with pytest.raises(InvalidArgumentError, match="`min_features` must be rank 0"):
        relu(x, F(2), np.float32([1, 2]), F(4))


def test_dequantize_to_bfloat16() -> None:
    bench, x = KernelBench(), np.array([0, 51, 255], np.uint8)
    y = bench.run("Dequantize", x, F(-1), F(4), T="quint8", dtype="bfloat16")
    assert y.dtype == as_dtype("bfloat16").as_numpy_dtype
    np.testing.assert_array_equal(y.astype(F), [-1, 0, 4])
    with pytest.raises(InvalidArgumentError, match="must be 'MIN_COMBINED'"):
        bench.kernel("Dequantize", T="quint8", dtype="bfloat16", mode="SCALED")
