"""Layers on many images at once take other ways than on one; each image must get what it gets by itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from asyncexec.ops.array import windows
from asyncexec.ops.nn import convolution_matmul
from tests.ops.cases.convolution import data
from tests.ops.op_case import OpCase, case, f32
from tests.ops.op_runner import run_case

NAN, INF = np.nan, np.inf


def conv(x: Any, f: Any, id: str, op: str = "Conv2D", strides: Any = (1, 1), **attrs: Any) -> OpCase:
    return case(op, x, f, id=id, strides=[1, *strides, 1], **{"padding": b"SAME", **attrs})


def odd(*shape: int) -> Any:
    """Numbers with some among them that are none."""
    values = data(*shape)
    flat = values.reshape(-1)
    flat[::7], flat[1::11], flat[2::13] = NAN, -INF, -0.0
    return values


CONVOLUTIONS = [
    conv(data(40, 8, 8, 1), data(3, 3, 1, 4), "same"),
    conv(data(40, 12, 12, 2), data(3, 3, 2, 4), "valid", padding=b"VALID"),
    conv(data(40, 15, 17, 1), data(5, 3, 1, 4), "strided", strides=(2, 1)),
    conv(data(40, 13, 15, 1), data(3, 3, 1, 2), "dilated", dilations=[1, 2, 3, 1]),
    conv(
        data(40, 9, 12, 2),
        data(3, 2, 2, 3),
        "explicit",
        strides=(1, 2),
        padding=b"EXPLICIT",
        explicit_paddings=[0, 0, 2, 1, 0, 3, 0, 0],
    ),
    conv(data(40, 8, 8, 2), data(3, 3, 1, 4), "groups"),
    conv(data(40, 8, 8, 1, dtype=np.int32), data(3, 3, 1, 4, dtype=np.int32), "i32"),
    conv(data(40, 8, 8, 1, dtype=np.float16), data(3, 3, 1, 4, dtype=np.float16), "f16"),
    conv(data(40, 1, 10, 10), data(3, 3, 1, 4), "channels_first", data_format=b"NCHW"),
    conv(data(40, 6, 5, 7, 1), data(3, 2, 3, 1, 2), "three_axes", "Conv3D", (1, 1, 1)),
]
LAYERS = [
    *CONVOLUTIONS,
    case("BiasAdd", data(40, 8, 8, 16), data(16), id="bias"),
    case("BiasAdd", data(41, 9, 9, 6), data(6), id="bias_of_odd_sizes"),
    case("BiasAdd", data(20, 40, 30), data(30), id="bias_of_lines"),
    case("BiasAdd", data(40, 80, 80, dtype=np.int32)[:, ::2, ::2], data(40, dtype=np.int32), id="bias_of_every_other"),
    case("Relu", odd(40, 8, 8, 16), id="relu"),
    case("Relu", odd(40, 512), id="relu_of_rows"),
    case("Relu", data(40, 512, dtype=np.int32), id="relu_of_integers"),
    *(
        case(
            op,
            odd(40, 9, 7, 3),
            id=f"{op}_{size}_{stride}_{padding.decode()}",
            padding=padding,
            ksize=[1, size, size, 1],
            strides=[1, stride, stride, 1],
        )
        for op in ("MaxPool", "AvgPool")
        for size, stride in ((2, 2), (3, 2), (1, 1), (1, 2), (2, 3))
        for padding in (b"SAME", b"VALID")
    ),
]


def one_by_one(layer: OpCase) -> Any:
    """The results for each image by itself."""
    x, *others = layer.inputs
    return np.concatenate([run_case(OpCase(layer.op, (x[i : i + 1], *others), layer.attrs))[0] for i in range(len(x))])


@pytest.mark.parametrize("layer", LAYERS, ids=lambda layer: layer.id)
def test_each_image_gets_what_it_gets_by_itself(layer: OpCase) -> None:
    (result,) = run_case(layer)
    np.testing.assert_array_equal(result, one_by_one(layer))


@pytest.mark.parametrize("layer", CONVOLUTIONS, ids=lambda layer: layer.id)
@pytest.mark.parametrize("chunk_bytes", [2**8, 2**13])
def test_pieces_are_put_where_they_belong(layer: OpCase, chunk_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = one_by_one(layer)
    monkeypatch.setattr(windows, "CHUNK_BYTES", chunk_bytes)
    (result,) = run_case(layer)
    np.testing.assert_array_equal(result, expected)


SHIFTED = [
    conv(data(3, 9, 26, 8), data(3, 3, 8, 5), "same"),
    conv(data(2, 9, 28, 9), data(2, 4, 9, 3), "valid", padding=b"VALID"),
    conv(data(2, 12, 25, 8), data(3, 1, 8, 2), "dilated", dilations=[1, 3, 1, 1]),
    conv(data(2, 1, 40, 16), data(1, 7, 16, 16), "one_row"),
    conv(data(2, 4, 30, 8), data(9, 40, 8, 2), "windows_larger_than_the_input"),
    conv(data(2, 8, 26, 16), data(3, 3, 8, 4), "groups"),
    conv(data(2, 7, 26, 8, dtype=np.int32), data(3, 3, 8, 4, dtype=np.int32), "i32"),
    conv(
        data(2, 5, 24, 8),
        data(3, 2, 8, 3),
        "explicit",
        padding=b"EXPLICIT",
        explicit_paddings=[0, 0, 3, 1, 0, 4, 0, 0],
    ),
    conv(
        data(2, 9, 30, 8),
        data(2, 1, 8, 4),
        "pads_wider_than_windows",
        padding=b"EXPLICIT",
        explicit_paddings=[0, 0, 1, 3, 3, 2, 0, 0],
    ),
]


@pytest.mark.parametrize("layer", SHIFTED, ids=lambda layer: layer.id)
@pytest.mark.parametrize("shifted_bytes", [2**8, 2**17])
def test_shifted_products_sum_to_what_patches_give(
    layer: OpCase, shifted_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The numbers have so few bits that all sums are exact."""
    monkeypatch.setattr(convolution_matmul, "_is_better_by_shifts", lambda *_: False)
    (expected,) = run_case(layer)
    monkeypatch.setattr(convolution_matmul, "_is_better_by_shifts", lambda *_: True)
    monkeypatch.setattr(convolution_matmul, "_SHIFTED_BYTES", shifted_bytes)
    (result,) = run_case(layer)
    np.testing.assert_array_equal(result, expected)


def test_shifts_are_for_wide_images_and_few_filters() -> None:
    axes = (windows.Axis(30, 3, 1, 1, 30, 1, 1),) * 2
    strided = (windows.Axis(30, 3, 2, 1, 15, 1, 1),) * 2
    ways = [(axes, 8, 8), (axes, 3, 8), (axes, 64, 64), (strided, 8, 8)]
    found = [
        convolution_matmul._is_better_by_shifts(data(1, 30, 30, depth), data(3, 3, depth, out), where)
        for where, depth, out in ways
    ]
    assert found == [True, False, False, False]


@pytest.mark.parametrize("op", ["Elu", "Selu", "EluGrad", "SeluGrad", "LeakyReluGrad"])
@np.errstate(all="ignore")
def test_choices_among_many_numbers_are_those_among_few(op: str) -> None:
    """Bit by bit: a zero keeps its sign."""
    x, *others = [odd(40, 8, 8, 16)[i:] for i in range(1 + op.endswith("Grad"))]
    inputs = (x[1:], *others) if others else (x,)
    (result,) = run_case(OpCase(op, inputs, {}))
    parts = [run_case(OpCase(op, tuple(value[i : i + 1] for value in inputs), {}))[0] for i in range(len(inputs[0]))]
    np.testing.assert_array_equal(result.view(np.int32), np.concatenate(parts).view(np.int32))


@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax"])
def test_rows_of_a_large_array_get_what_they_get_by_themselves(op: str) -> None:
    x = data(3000, 37)
    x[5] = NAN
    (result,) = run_case(OpCase(op, (x,), {}))
    (some,) = run_case(OpCase(op, (x[:9],), {}))
    np.testing.assert_allclose(result[:9], some, rtol=1e-6, atol=1e-7)
    exponentials = np.exp(x.astype(np.float64))
    expected = exponentials / exponentials.sum(-1, keepdims=True)
    np.testing.assert_allclose(result, expected if op == "Softmax" else np.log(expected), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("layout", [b"NHWC", b"NCHW"])
@pytest.mark.parametrize("is_training", [False, True])
@pytest.mark.parametrize("shape", [(8, 32, 30, 3), (3, 33, 31, 64), (2, 40, 40, 5)])
def test_many_pixels_are_normalized_by_the_formula(shape: tuple[int, ...], is_training: bool, layout: bytes) -> None:
    x, channels = data(*shape) + np.float32(3), shape[-1]
    vectors = [data(channels, seed=seed) for seed in (1, 2, 3)] + [np.abs(data(channels, seed=4)) + np.float32(0.5)]
    scale, offset, mean, variance = (vector.astype(np.float64) for vector in vectors)
    wide = x.astype(np.float64)
    if is_training:
        mean, variance, vectors[2:] = wide.mean((0, 1, 2)), wide.var((0, 1, 2)), [f32(), f32()]
    expected = (wide - mean) / np.sqrt(variance + 0.01) * scale + offset
    given = np.moveaxis(x, -1, 1).copy() if layout == b"NCHW" else x
    attrs = {"is_training": is_training, "epsilon": 0.01, "data_format": layout}
    y, _, _, found_mean, found_variance, _ = run_case(case("FusedBatchNormV3", given, *vectors, **attrs))
    np.testing.assert_allclose(np.moveaxis(y, 1, -1) if layout == b"NCHW" else y, expected, rtol=2e-5, atol=2e-5)
    np.testing.assert_allclose(found_mean, mean, rtol=1e-5)
    np.testing.assert_allclose(found_variance, variance, rtol=1e-4)


@pytest.mark.parametrize("depth", [3, 16, 70])
def test_a_bias_in_place_is_added_to_each_pixel(depth: int) -> None:
    x, filters, bias = data(4, 40, 42, 2), data(1, 1, 2, depth), data(depth, seed=5)
    attrs = {"strides": [1, 1, 1, 1], "padding": b"SAME"}
    (product,) = run_case(case("Conv2D", x, filters, **attrs))
    fused = case("_FusedConv2D", x, filters, bias, num_args=1, fused_ops=[b"BiasAdd"], **attrs)
    np.testing.assert_array_equal(run_case(fused)[0], product + bias)


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("kernel", [(2, 2), (3, 1), (2, 3, 2)])
def test_cells_of_windows_side_by_side_have_one_gradient(kernel: tuple[int, ...], groups: int) -> None:
    outs = range(2, 2 + len(kernel))
    dy, filters = data(3, *outs, 4 * groups), data(*kernel, 5, 4 * groups)
    dy.reshape(-1)[::3] = -0.0
    axes = [windows.Axis(size * out, size, size, 1, out, 0, 0) for size, out in zip(kernel, outs, strict=True)]
    got = convolution_matmul.convolve_backprop_input(dy, filters, 5 * groups, axes)
    for cell in np.ndindex(*got.shape[1:-1]):
        place = tuple(at % size for at, size in zip(cell, kernel, strict=True))
        window = tuple(at // size for at, size in zip(cell, kernel, strict=True))
        parts = zip(np.split(dy[(slice(None), *window)], groups, -1), np.split(filters[place], groups, -1), strict=True)
        wanted = np.concatenate([grad @ weights.T for grad, weights in parts], -1)
        np.testing.assert_allclose(got[(slice(None), *cell)], wanted, rtol=1e-5, atol=1e-6)
