"""What the golden answers do not cover: QuantizedReluX, for which TensorFlow 2.21 has no kernel, bfloat16,
and QuantizeAndDequantize, which TensorFlow runs in old graphs only."""

from __future__ import annotations

import numpy as np
import pytest

from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.types import as_dtype
from tests.ops.kernel_bench import KernelBench, infer

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


@pytest.mark.parametrize("flags", [{}, {"range_given": True}, {"num_bits": 4}, {"signed_input": False}])
def test_the_first_version_rounds_as_the_fourth(flags: dict[str, bool]) -> None:
    bench, x = KernelBench(), np.float32([-7.5, -1.2, 0, 0.4, 2.5, 6.02])
    with np.errstate(divide="ignore", invalid="ignore"):
        first = bench.run("QuantizeAndDequantize", x, T="float32", input_min=-2.0, input_max=3.0, **flags)
        fourth = bench.run("QuantizeAndDequantizeV4", x, F(-2), F(3), T="float32", **flags)
    np.testing.assert_array_equal(first, fourth)
    with pytest.raises(InvalidArgumentError, match="Invalid range"):
        infer("QuantizeAndDequantize", [2], T="float32", input_min=2.0, input_max=1.0, range_given=True)


def test_instances_of_nothing_are_normalized_without_a_warning() -> None:
    attrs = {"T": "quint8", "output_range_given": True, "given_y_min": -2.0, "given_y_max": 2.5}
    with np.errstate(divide="ignore", invalid="ignore"):
        nothing = np.zeros((1, 0, 4, 3), np.uint8)
        y, low, high = KernelBench().run("QuantizedInstanceNorm", nothing, F(-1), F(2), **attrs)
    assert y.shape == (1, 0, 4, 3)
    assert (low, high) == (-2, 2.5)
