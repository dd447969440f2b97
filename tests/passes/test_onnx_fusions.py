"""Patterns that become one node of ONNX Runtime: which are found, and that results stay what they are."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import numpy as np
import pytest

import asyncexec as ax
from asyncexec.passes import onnx_emitter
from tests.passes.onnx_models import Made, Translated

pytestmark = pytest.mark.ort
pytest.importorskip("onnxruntime")
pytest.importorskip("onnx")

raw: Final = ax.raw_ops
RNG: Final = np.random.default_rng(0)
SCALE, OFFSET = (RNG.normal(size=6).astype(np.float32) for _ in range(2))
FILTER: Final = RNG.normal(size=(3, 3, 3, 6)).astype(np.float32)


def const(value: Any) -> ax.Tensor:
    return ax.constant(np.asarray(value, np.float32))


def axes(*values: int) -> ax.Tensor:
    return ax.constant(np.array(values, np.int32))


def gelu_by_erfc(x: ax.Tensor) -> ax.Tensor:
    return raw.Mul(raw.Mul(const(0.5), x), raw.Erfc(raw.Mul(raw.Neg(x), const(math.sqrt(0.5)))))


def gelu_by_negative_constant(x: ax.Tensor) -> ax.Tensor:
    return raw.Mul(raw.Erfc(raw.Mul(const(-math.sqrt(0.5)), x)), raw.Mul(x, const(0.5)))


def near_gelu(x: ax.Tensor) -> ax.Tensor:
    return raw.Mul(raw.Mul(const(0.5), x), raw.Erfc(raw.Mul(raw.Neg(x), const(0.7))))


def erfc(x: ax.Tensor) -> ax.Tensor:
    return raw.Erfc(x)


def moments(x: ax.Tensor) -> tuple[ax.Tensor, ax.Tensor]:
    mean = raw.Mean(x, axes(-1), keep_dims=True)
    squares = raw.SquaredDifference(x, raw.StopGradient(mean))
    return mean, raw.Rsqrt(raw.AddV2(raw.Mean(squares, axes(-1), keep_dims=True), const(1e-3)))


def layer_norm_of_keras(x: ax.Tensor) -> ax.Tensor:
    mean, inverse = moments(x)
    factor = raw.Mul(inverse, const(SCALE.reshape(1, 1, -1)))
    shift = raw.AddV2(raw.Mul(raw.Neg(mean), factor), const(OFFSET.reshape(1, 1, -1)))
    return raw.AddV2(raw.Mul(x, factor), shift)


def layer_norm_of_nn(x: ax.Tensor) -> ax.Tensor:
    mean, inverse = moments(x)
    factor = raw.Mul(inverse, const(SCALE))
    return raw.AddV2(raw.Mul(x, factor), raw.Sub(const(OFFSET), raw.Mul(mean, factor)))


def layer_norm_without_scale(x: ax.Tensor) -> ax.Tensor:
    mean, inverse = moments(x)
    return raw.AddV2(raw.Mul(x, inverse), raw.AddV2(raw.Mul(raw.Neg(mean), inverse), const(OFFSET)))


def norm_with_another_mean(x: ax.Tensor) -> ax.Tensor:
    _, inverse = moments(x)
    other = raw.Mean(raw.Square(x), axes(-1), keep_dims=True)
    return raw.AddV2(raw.Mul(x, inverse), raw.AddV2(raw.Mul(raw.Neg(other), inverse), const(OFFSET)))


def norm_of_columns(x: ax.Tensor) -> ax.Tensor:
    mean = raw.Mean(x, axes(1), keep_dims=True)
    inverse = raw.Rsqrt(raw.AddV2(raw.Mean(raw.SquaredDifference(x, mean), axes(1), keep_dims=True), const(1e-3)))
    return raw.AddV2(raw.Mul(x, inverse), raw.AddV2(raw.Mul(raw.Neg(mean), inverse), const(OFFSET)))


def convolution(x: ax.Tensor) -> ax.Tensor:
    return raw.Conv2D(x, const(FILTER), strides=[1, 1, 1, 1], padding="SAME")


def scaled_convolution(x: ax.Tensor) -> ax.Tensor:
    return raw.AddV2(raw.Mul(convolution(x), const(SCALE)), const(OFFSET))


def convolution_scaled_as_a_whole(x: ax.Tensor) -> ax.Tensor:
    return raw.AddV2(raw.Mul(convolution(x), const(2.0)), const(OFFSET))


def convolution_of_scaled(x: ax.Tensor) -> ax.Tensor:
    scaled = raw.RealDiv(raw.Sub(raw.Mul(x, const(0.1)), const([1, 2, 3])), const([3, 4, 5]))
    return convolution(raw.Pad(scaled, ax.constant(np.array([[0, 0], [1, 2], [3, 0], [0, 0]], np.int32))))


def convolution_of_subtracted(x: ax.Tensor) -> ax.Tensor:
    scaled = raw.AddV2(raw.Mul(raw.Sub(const([1, 2, 3]), x), const([[[0.5, 1, 2]]])), const(0.25))
    return convolution(scaled)


def convolution_of_divisor(x: ax.Tensor) -> ax.Tensor:
    return convolution(raw.Sub(raw.RealDiv(const([1, 2, 3]), raw.AddV2(raw.Square(x), const(1))), const(0.5)))


def convolution_of_pixel_scale(x: ax.Tensor) -> ax.Tensor:
    return convolution(raw.Mul(raw.Mul(x, const(np.arange(12).reshape(4, 3))), const(0.5)))


def scaled_in_steps(*steps: tuple[Any, float]) -> Callable[[ax.Tensor], ax.Tensor]:
    """A convolution of what has an op with a constant applied to it, one after the other."""

    def made(x: ax.Tensor) -> ax.Tensor:
        for op, constant in steps:
            x = op(x, const(constant))
        return convolution(x)

    return made


def convolution_of_pixel(values: ax.Tensor, size: int) -> ax.Tensor:
    filters = const(np.arange(5 * size).reshape(1, 1, size, 5) / 10)
    return raw.Conv2D(raw.Reshape(values, axes(-1, 1, 1, size)), filters, strides=[1, 1, 1, 1], padding="SAME")


def convolution_of_mean(x: ax.Tensor) -> ax.Tensor:
    return convolution_of_pixel(raw.Mean(convolution(x), axes(1, 2)), 6)


def convolution_of_maximum(x: ax.Tensor) -> ax.Tensor:
    return convolution_of_pixel(raw.Max(convolution(x), axes(1, 2)), 6)


def convolution_of_column_means(x: ax.Tensor) -> ax.Tensor:
    return convolution_of_pixel(raw.Mean(convolution(x), axes(1, 3)), 4)


def convolution_of_shared(x: ax.Tensor) -> ax.Tensor:
    shared = raw.Sub(x, const([1, 2, 3]))
    return raw.AddV2(raw.Mean(convolution(shared), axes(3), keep_dims=True), shared)


def convolution_of_planes(x: ax.Tensor) -> ax.Tensor:
    return convolution(raw.Mul(const(np.arange(20).reshape(5, 4, 1) / 10), x))


def widened(x: ax.Tensor) -> ax.Tensor:
    """One channel becomes three by the constant: no batch normalization."""
    one = raw.Mean(x, axes(3), keep_dims=True)
    return raw.AddV2(
        raw.Mul(raw.MaxPool(one, ksize=[1, 1, 1, 1], strides=[1, 1, 1, 1], padding="VALID"), const([1, 2, 3])),
        const([3, 4, 5]),
    )


def resized(x: ax.Tensor) -> ax.Tensor:
    size = raw.StridedSlice(raw.Shape(x), axes(0), axes(1), axes(1), shrink_axis_mask=1)
    return raw.Reshape(x, raw.Pack([size, ax.constant(3), ax.constant(20)]))


def resized_by_another_axis(x: ax.Tensor) -> ax.Tensor:
    size = raw.StridedSlice(raw.Shape(x), axes(1), axes(2), axes(1), shrink_axis_mask=1)
    return raw.Reshape(x, raw.Pack([size, ax.constant(-1)]))


def tensordot(x: ax.Tensor, *, sizes_of: ax.Tensor | None = None, free: tuple[int, ...] = (0, 1)) -> ax.Tensor:
    """As Keras has it in a Dense layer; its axes are those of *sizes_of*."""
    shape = raw.Shape(x if sizes_of is None else sizes_of)
    sizes, summed = (raw.GatherV2(shape, axes(*each), ax.constant(0)) for each in (free, (2,)))
    rows, columns = (raw.Prod(each, axes(0)) for each in (sizes, summed))
    product = raw.MatMul(raw.Reshape(x, raw.Pack([rows, columns])), const(np.arange(24).reshape(6, 4)))
    return raw.Reshape(product, raw.ConcatV2([sizes, axes(4)], ax.constant(0)))


def tensordot_by_another_shape(x: ax.Tensor) -> ax.Tensor:
    return tensordot(x, sizes_of=raw.Neg(x))


def tensordot_in_another_order(x: ax.Tensor) -> ax.Tensor:
    return tensordot(x, free=(1, 0))


def strided(x: ax.Tensor, begin: list[int], end: list[int], **masks: int) -> ax.Tensor:
    return raw.StridedSlice(x, axes(*begin), axes(*end), axes(*[1] * len(begin)), **masks)


def only_row(x: ax.Tensor) -> ax.Tensor:
    return strided(
        raw.Mean(x, axes(1), keep_dims=True), [0, 0, 0], [0, 1, 7], begin_mask=1, end_mask=1, shrink_axis_mask=2
    )


def last_of_one(x: ax.Tensor) -> ax.Tensor:
    return strided(raw.Mean(x, axes(1), keep_dims=True), [0, -1], [0, 0], begin_mask=1, end_mask=1, shrink_axis_mask=2)


def most_rows(x: ax.Tensor) -> ax.Tensor:
    return strided(x, [0, 0, 0], [2, 4, 6], end_mask=1)


def row_from_behind(x: ax.Tensor) -> ax.Tensor:
    return strided(x, [0, -5, 0], [0, -4, 6], begin_mask=1, end_mask=1, shrink_axis_mask=2)


ROWS: Final = (2, 5, 6)
IMAGE: Final = (2, 5, 4, 3)
CASES: Final[tuple[tuple[Callable[[ax.Tensor], ax.Tensor], tuple[int, ...], dict[str, int]], ...]] = (
    (gelu_by_erfc, ROWS, {"Erf": 1, "Sub": 0, "Div": 1}),
    (gelu_by_negative_constant, ROWS, {"Erf": 1, "Sub": 0, "Div": 1}),
    (near_gelu, ROWS, {"Erf": 1, "Sub": 1}),
    (erfc, ROWS, {"Erf": 1, "Sub": 1}),
    (layer_norm_of_keras, ROWS, {"LayerNormalization": 1, "ReduceMean": 0, "Mul": 0}),
    (layer_norm_of_nn, ROWS, {"LayerNormalization": 1, "ReduceMean": 0, "Mul": 0}),
    (layer_norm_without_scale, ROWS, {"LayerNormalization": 1, "ReduceMean": 0}),
    (norm_with_another_mean, ROWS, {"LayerNormalization": 0, "ReduceMean": 3}),
    (norm_of_columns, ROWS, {"LayerNormalization": 0, "ReduceMean": 2}),
    (scaled_convolution, IMAGE, {"BatchNormalization": 1, "Mul": 0}),
    (convolution_scaled_as_a_whole, IMAGE, {"BatchNormalization": 0, "Mul": 1}),
    (convolution_of_scaled, IMAGE, {"Transpose": 2, "Pad": 1, "BatchNormalization": 1, "Sub": 0, "Mul": 0, "Div": 0}),
    (convolution_of_subtracted, IMAGE, {"Transpose": 2, "BatchNormalization": 1, "Sub": 0, "Mul": 0, "Add": 0}),
    (convolution_of_divisor, IMAGE, {"BatchNormalization": 0, "Div": 1, "Sub": 1}),
    (convolution_of_pixel_scale, IMAGE, {"BatchNormalization": 0, "Mul": 2}),
    (scaled_in_steps((raw.Sub, 255), (raw.RealDiv, 50)), IMAGE, {"BatchNormalization": 1}),
    # What would lose digits, or numbers: a large shift before a scale, and what is too large or small in between.
    (scaled_in_steps((raw.Sub, 1e6), (raw.RealDiv, 0.1)), IMAGE, {"BatchNormalization": 0, "Sub": 1}),
    (scaled_in_steps((raw.Sub, 255), (raw.RealDiv, 1e-2)), IMAGE, {"BatchNormalization": 0, "Sub": 1}),
    (scaled_in_steps((raw.AddV2, 3e38), (raw.Sub, 3e38)), IMAGE, {"BatchNormalization": 0, "Sub": 1}),
    (scaled_in_steps((raw.Mul, 1e30), (raw.Mul, 1e30)), IMAGE, {"BatchNormalization": 0, "Mul": 2}),
    (scaled_in_steps((raw.Mul, 1e-25), (raw.Mul, 1e25)), IMAGE, {"BatchNormalization": 0, "Mul": 2}),
    (convolution_of_mean, IMAGE, {"ReduceMean": 1, "Reshape": 0, "Transpose": 2}),
    (convolution_of_maximum, IMAGE, {"ReduceMax": 1, "Reshape": 0, "Transpose": 2}),
    (convolution_of_column_means, IMAGE, {"ReduceMean": 1, "Reshape": 1}),
    (convolution_of_shared, IMAGE, {"Sub": 1}),
    (convolution_of_planes, IMAGE, {"Mul": 1}),
    (widened, IMAGE, {"BatchNormalization": 0}),
    (resized, IMAGE, {"Reshape": 1, "Shape": 0}),
    (resized_by_another_axis, IMAGE, {"Reshape": 1, "Shape": 1}),
    (only_row, ROWS, {"Slice": 0, "Squeeze": 1}),
    (last_of_one, ROWS, {"Slice": 0, "Squeeze": 1}),
    (most_rows, ROWS, {"Slice": 1}),
    (row_from_behind, ROWS, {"Slice": 1, "Squeeze": 1}),
    (tensordot, ROWS, {"Reshape": 2, "Shape": 0, "Gather": 0, "ReduceProd": 0, "Concat": 0}),
    (tensordot_in_another_order, ROWS, {"Reshape": 2, "Shape": 0}),
    (tensordot_by_another_shape, ROWS, {"Reshape": 2, "Shape": 1, "ReduceProd": 2}),
)


@pytest.mark.allow_blocking
@pytest.mark.one_of("loop")
@pytest.mark.parametrize(("made", "shape", "wanted_ops"), CASES, ids=lambda each: getattr(each, "__name__", ""))
async def test_a_pattern(
    made: Made, shape: tuple[int, ...], wanted_ops: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(onnx_emitter, "HAS_BLOCKS", False)  # which test_onnx_blocks.py is on
    translated = Translated.of(made, [None, *shape[1:]])
    translated.assert_has(wanted_ops)
    await translated.assert_is_equal(shape, rtol=2e-5)


async def test_axes_that_constants_tell_are_known() -> None:
    """As in a tensordot, whose axes are joined from two constants."""
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [None, 4, 5])
        order = raw.ConcatV2([axes(0, 1), axes(2)], ax.constant(0))
        y = raw.BatchMatMulV2(raw.Transpose(x, order), const(np.ones((5, 5))), name="product")
    metadata, options = ax.RunMetadata(), ax.RunOptions(output_pass_graphs=True)
    async with ax.Session(graph, ax.SessionConfig(jit="onnxruntime")) as session:
        await session.run(y, {x: np.ones((2, 4, 5), np.float32)}, metadata=metadata, options=options)
    (found,) = (each for each in metadata.passes if each.name == "onnx_clusters")
    assert found.graph is not None
    assert not [node.name for node in found.graph.node if node.op == "Transpose"]
