"""Nodes that come in blocks of channels: which are made, and that results stay what they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import pytest

import asyncexec as ax
from asyncexec.passes import onnx_emitter
from asyncexec.process.onnx_session import load
from tests.passes.onnx_models import Made, Translated

pytestmark = pytest.mark.ort
pytest.importorskip("onnxruntime")
pytest.importorskip("onnx")

raw: Final = ax.raw_ops


def random(*shape: int) -> ax.Tensor:
    rng = np.random.default_rng([*shape])
    return ax.constant(rng.normal(size=shape).astype(np.float32))


def ints(value: Any) -> ax.Tensor:
    return ax.constant(np.array(value, np.int32))


def conv(x: ax.Tensor, channels: int, size: int = 3, **attrs: Any) -> ax.Tensor:
    depth = x.shape.dims[3]
    return raw.Conv2D(x, random(size, size, depth, channels), **{"strides": [1, 1, 1, 1], "padding": "SAME", **attrs})


def swish(x: ax.Tensor) -> ax.Tensor:
    scaled = raw.Mul(ax.constant(np.float32(1)), x)
    return raw.Mul(x, raw.Sigmoid(scaled))


def mean(x: ax.Tensor, *, keep_dims: bool = True) -> ax.Tensor:
    return raw.Mean(x, ints([1, 2]), keep_dims=keep_dims)


def mean_of_convolution(x: ax.Tensor) -> ax.Tensor:
    return mean(conv(x, 32))


def mean_without_axes(x: ax.Tensor) -> ax.Tensor:
    return raw.MatMul(mean(swish(conv(x, 32)), keep_dims=False), random(32, 5))


def mean_of_input(x: ax.Tensor) -> ax.Tensor:
    return conv(mean(x), 16, 1)


def mean_of_rows(x: ax.Tensor) -> ax.Tensor:
    return raw.Mean(conv(x, 32), ints([1]), keep_dims=True)


def excited(x: ax.Tensor) -> ax.Tensor:
    """By a pixel, which comes first as often as the image."""
    image = swish(conv(raw.Pad(x, ints([[0, 0], [0, 1], [0, 1], [0, 0]])), 32))
    pixel = raw.Sigmoid(raw.BiasAdd(conv(swish(raw.BiasAdd(conv(mean(image), 8, 1), random(8))), 32, 1), random(32)))
    second = conv(raw.Mul(image, pixel), 16)
    return raw.AddV2(conv(raw.Mul(raw.Sigmoid(conv(mean(second), 16, 1)), second), 16, 1), second)


def excited_by_row(x: ax.Tensor) -> ax.Tensor:
    image = conv(x, 32)
    return raw.Mul(image, raw.Sigmoid(conv(raw.Mean(image, ints([2]), keep_dims=True), 32, 1)))


def excited_by_one_channel(x: ax.Tensor) -> ax.Tensor:
    image = conv(x, 32)
    return raw.Mul(image, raw.Sigmoid(conv(mean(image), 1, 1)))


def upward(x: ax.Tensor, rows: int, channels: int) -> ax.Tensor:
    batch = raw.StridedSlice(raw.Shape(x), ints([0]), ints([1]), ints([1]), shrink_axis_mask=1)
    sizes = raw.Pack([batch, ints(rows), ints(rows), ints(channels)])
    filters = random(2, 2, channels, x.shape.dims[3])
    made = raw.Conv2DBackpropInput(sizes, filters, x, strides=[1, 2, 2, 1], padding="SAME")
    made.set_shape([None, rows, rows, channels])
    return raw.BiasAdd(made, random(channels))


def joined(x: ax.Tensor) -> ax.Tensor:
    """As in a U-Net, with all that may scale and shift channels behind a convolution."""
    skipped = raw.Relu(conv(x, 16))
    down = raw.MaxPool(skipped, ksize=[1, 2, 2, 1], strides=[1, 2, 2, 1], padding="VALID")
    both = raw.ConcatV2([upward(conv(down, 24), 12, 8), skipped, x], ints(3))
    added = raw.BiasAdd(conv(both, 16), random(16))
    vectors = (ax.constant(np.linspace(0.5, end, 16, dtype=np.float32)) for end in (1, 2, 3, 4))
    scaled = raw.FusedBatchNormV3(added, *vectors, epsilon=0.01, is_training=False)[0]
    return raw.Relu(scaled)


def mean_of_joined(x: ax.Tensor) -> ax.Tensor:
    return mean(joined(x))


def joined_and_taken(x: ax.Tensor) -> ax.Tensor:
    """A convolution that more than one node takes."""
    made = conv(raw.ConcatV2([conv(x, 16), x], ints(3)), 16)
    return raw.AddV2(raw.BiasAdd(made, random(16)), made)


def all_in_blocks(x: ax.Tensor) -> ax.Tensor:
    return conv(raw.ConcatV2([conv(x, 16), conv(x, 32)], ints(3)), 16)


def pooled(x: ax.Tensor, before: Callable[[ax.Tensor], ax.Tensor] = raw.Relu, *, pad: int = 1) -> ax.Tensor:
    padded = raw.Pad(before(conv(x, 16)), ints([[0, 0], [pad, 2], [0, 1], [0, 0]]))
    return conv(raw.MaxPool(padded, ksize=[1, 3, 3, 1], strides=[1, 2, 2, 1], padding="VALID"), 8)


def pooled_of_negative(x: ax.Tensor) -> ax.Tensor:
    return pooled(x, raw.Tanh)


def pooled_with_rows_of_zeros(x: ax.Tensor) -> ax.Tensor:
    return pooled(x, pad=3)


def rows_of(scale: float | None = None, pad: int = 0, **attrs: Any) -> Made:
    def made(x: ax.Tensor) -> ax.Tensor:
        if scale is not None:
            shifted = raw.Sub(raw.Mul(x, ax.constant(np.float32(scale))), ax.constant(np.array([1, 2, 3], np.float32)))
            x = shifted
        if pad:
            x = raw.Pad(x, ints([[0, 0], [pad, 1], [0, pad], [0, 0]]))
        return conv(x, 20, **attrs)

    made.__name__ = f"rows_{scale}_{pad}_{'_'.join(map(str, attrs.values()))}"
    return made


def many_channels(x: ax.Tensor) -> ax.Tensor:
    return conv(conv(raw.ConcatV2([x, x], ints(3)), 3), 20)


def mean_of_rows_of_a_product(x: ax.Tensor) -> ax.Tensor:
    product = raw.MatMul(raw.Reshape(x, ints([2, 432])), random(432, 5))
    return raw.Mean(raw.Reshape(product, ints([10])), ints([0]), keep_dims=False)


def product_without_axes(x: ax.Tensor) -> ax.Tensor:
    whole = raw.Mean(raw.MatMul(raw.Reshape(x, ints([2, 432])), random(432, 5)), ints([0, 1]), keep_dims=True)
    return raw.Reshape(whole, ints(np.zeros(0)))


IN_ROWS: Final = {"Transpose": 1, "Conv": 1, "Pad": 0}
CASES: Final = (
    (mean_of_convolution, {"GlobalAveragePool": 1, "ReduceMean": 0, "Flatten": 0}),
    (mean_without_axes, {"GlobalAveragePool": 1, "ReduceMean": 0, "Flatten": 1}),
    (mean_of_input, {"GlobalAveragePool": 0, "ReduceMean": 1}),
    (mean_of_rows, {"GlobalAveragePool": 0, "ReduceMean": 1}),
    (excited, {"GlobalAveragePool": 2, "Resize": 2, "Mul": 4}),
    (excited_by_row, {"Resize": 0}),
    (excited_by_one_channel, {"Resize": 0}),
    (joined, {"Conv": 4, "Concat": 1, "Add": 1, "BatchNormalization": 0, "ConvTranspose": 1}),
    (mean_of_joined, {"GlobalAveragePool": 2, "ReduceMean": 0}),  # one looks for NaN
    (joined_and_taken, {"Conv": 3, "Concat": 0, "Add": 3}),
    (all_in_blocks, {"Conv": 3, "Concat": 1, "Add": 0}),
    (pooled, {"Pad": 0, "MaxPool": 1}),
    (pooled_of_negative, {"Pad": 1, "MaxPool": 1}),
    (pooled_with_rows_of_zeros, {"Pad": 1, "MaxPool": 1}),
    (rows_of(), IN_ROWS),
    (rows_of(padding="VALID"), IN_ROWS),
    (rows_of(strides=[1, 2, 2, 1]), IN_ROWS),
    (rows_of(strides=[1, 3, 2, 1], size=4), IN_ROWS),
    (rows_of(padding="EXPLICIT", explicit_paddings=[0, 0, 2, 1, 0, 3, 0, 0], size=4), IN_ROWS),
    (rows_of(0.5, 2, padding="VALID", strides=[1, 2, 2, 1]), {**IN_ROWS, "Mul": 1, "Add": 1}),
    (rows_of(None, 3, strides=[1, 2, 2, 1], size=5), IN_ROWS),
    (rows_of(dilations=[1, 2, 2, 1]), {"Transpose": 2}),
    (many_channels, {"Transpose": 2}),
    (mean_of_rows_of_a_product, {"ReduceMean": 1}),
    (product_without_axes, {"Reshape": 2}),
)


@pytest.fixture(autouse=True)
def has_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the processor is."""
    monkeypatch.setattr(onnx_emitter, "HAS_BLOCKS", True)


@pytest.mark.allow_blocking
@pytest.mark.one_of("loop")
@pytest.mark.parametrize("batch", [None, 2])
@pytest.mark.parametrize(("made", "wanted_ops"), CASES, ids=lambda each: getattr(each, "__name__", ""))
async def test_nodes_in_blocks(made: Made, wanted_ops: dict[str, int], batch: int | None) -> None:
    translated = Translated.of(made, [batch, 12, 12, 3])
    translated.assert_has(wanted_ops)
    await translated.assert_is_equal((2, 12, 12, 3), rtol=5e-5)


def test_a_nan_before_a_pooling_in_blocks_is_seen() -> None:
    session = load(Translated.of(joined, [None, 12, 12, 3]).model)
    given = np.ones((2, 12, 12, 3), np.float32)
    assert session.run([given]) is not None
    given[1, 3, 3, 1] = np.nan
    assert session.run([given]) is None


@pytest.mark.parametrize(("first", "second"), [((1, 12, 12, 3), (4, 12, 12, 3)), ((2, 8, 8, 3), (2, 7, 7, 3))])
async def test_images_that_cannot_be_joined_are_an_error(first: tuple[int, ...], second: tuple[int, ...]) -> None:
    with ax.Graph() as graph:
        one, other = (ax.placeholder(ax.float32, [None, None, None, 3]) for _ in range(2))
        y = conv(raw.ConcatV2([conv(one, 16), other], ints(3)), 16, strides=[1, 2, 2, 1])
    async with ax.Session(graph, ax.SessionConfig(jit="onnxruntime")) as session:
        good = await session.run(y, {one: np.ones(first, np.float32), other: np.ones(first, np.float32)})
        assert good.shape[0] == first[0]
        with pytest.raises(ax.errors.InvalidArgumentError, match="Dimensions of inputs should match"):
            await session.run(y, {one: np.ones(first, np.float32), other: np.ones(second, np.float32)})
