"""A session without a memory limit refuses what does not fit into the memory that is free, with the node's name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import asyncexec as ax
from asyncexec.compilation import growing_kernels
from asyncexec.compilation.growing_kernels import checks_room, may_grow
from asyncexec.framework.errors import InvalidArgumentError, ResourceExhaustedError
from asyncexec.ops.string import string_elements
from asyncexec.process import free_memory

FREE = 100_000


@pytest.fixture(autouse=True)
def little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(free_memory, "LARGE_BYTES", 1000)
    monkeypatch.setattr(growing_kernels, "LARGE_BYTES", 1000)
    monkeypatch.setattr(free_memory, "free_bytes", lambda: FREE)


def doubled(x: Any) -> Any:
    for _ in range(15):
        x = ax.concat([x, x], 0)
    return x


def doubled_text(x: Any) -> Any:
    text = ax.as_string(ax.reduce_sum(x))
    for _ in range(45):
        text = ax.string_join([text, text])
    return text


N = 30_000


def from_variable(x: Any) -> Any:
    variable = ax.raw_ops.VarHandleOp(dtype=ax.float32, shape=[1, 4])
    assign = ax.raw_ops.AssignVariableOp(resource=variable, value=ax.reshape(x, [1, 4]))
    with ax.control_dependencies([assign]):
        return ax.raw_ops.ResourceGather(resource=variable, indices=ax.zeros([N // 2], ax.int32), dtype=ax.float32)


def from_array(x: Any) -> Any:
    handle, flow = ax.raw_ops.TensorArrayV3(size=1, dtype=ax.float32, clear_after_read=False)
    flow = ax.raw_ops.TensorArrayWriteV3(handle=handle, index=0, value=x, flow_in=flow)
    indices = ax.zeros([N // 2], ax.int32)
    return ax.raw_ops.TensorArrayGatherV3(handle=handle, indices=indices, flow_in=flow, dtype=ax.float32)


def sparse_product(x: Any) -> Any:
    places, ones = ax.range(0, 1000, dtype=ax.int64), ax.ones([1000])
    zeros = ax.zeros_like(places)
    shapes = ax.constant([1000, 1], ax.int64), ax.constant([1, 1000], ax.int64)
    a, b = (
        ax.raw_ops.SparseTensorToCSRSparseMatrix(indices=ax.stack(pair, axis=1), values=ones, dense_shape=shape)
        for pair, shape in zip(([places, zeros], [zeros, places]), shapes, strict=True)
    )
    product = ax.raw_ops.SparseMatrixSparseMatMul(a=a, b=b, type=ax.float32)
    return ax.raw_ops.SparseMatrixNNZ(sparse_matrix=product)


GROWING: dict[str, tuple[Callable[[Any], Any], str]] = {
    "doubling": (doubled, "ConcatV2"),
    "doubled text": (doubled_text, "StringJoin"),
    "outer product": (lambda x: ax.multiply(ax.reshape(x, [-1, 1]), ax.reshape(x, [1, -1])), "Mul"),
    "matrix product": (lambda x: ax.matmul(ax.reshape(x, [-1, 1]), ax.reshape(x, [1, -1])), "MatMul"),
    "choice": (
        lambda x: ax.raw_ops.SelectV2(condition=ax.reshape(x, [-1, 1]) > 0.0, t=ax.reshape(x, [1, -1]), e=0.0),
        "SelectV2",
    ),
    "rows of a variable": (from_variable, "ResourceGather"),
    "rows of an array": (from_array, "TensorArrayGatherV3"),
    "sparse product": (sparse_product, "SparseMatrixSparseMatMul"),
    "tile": (lambda x: ax.tile(x, [N]), "Tile"),
    "fill": (lambda x: ax.fill(ax.shape(x) * N, 1.0), "Fill"),
    "pad": (lambda x: ax.pad(x, [[0, N]]), "Pad"),
    "range": (lambda x: ax.range(0, ax.size(x) * N), "Range"),
    "one hot": (lambda x: ax.one_hot(ax.cast(x, ax.int32), N), "OneHot"),
    "gather": (lambda x: ax.gather(ax.reshape(x, [1, -1]), ax.zeros([N // 2], ax.int32)), "GatherV2"),
    "random": (lambda x: ax.raw_ops.RandomUniform(shape=ax.shape(x) * N, dtype=ax.float32), "RandomUniform"),
    "random integers": (
        lambda x: ax.raw_ops.StatelessRandomUniformInt(shape=ax.shape(x) * N, seed=[1, 2], minval=0, maxval=9),
        "StatelessRandomUniformInt",
    ),
    "samples of each": (
        lambda x: ax.raw_ops.RandomPoissonV2(shape=ax.shape(x) * N, rate=x, dtype=ax.float32),
        "RandomPoissonV2",
    ),
    "segments": (
        lambda x: ax.raw_ops.UnsortedSegmentSum(
            data=x, segment_ids=ax.cast(x, ax.int32), num_segments=ax.size(x) * 3 * N
        ),
        "UnsortedSegmentSum",
    ),
    "bins": (
        lambda x: ax.raw_ops.HistogramFixedWidth(values=x, value_range=[0.0, 1.0], nbins=ax.size(x) * N),
        "HistogramFixedWidth",
    ),
    "image": (
        lambda x: ax.raw_ops.ResizeBicubic(images=ax.reshape(x, [1, -1, 1, 1]), size=ax.shape(x) * [400, 400]),
        "ResizeBicubic",
    ),
    "crops": (
        lambda x: ax.raw_ops.CropAndResize(
            image=ax.reshape(x, [1, -1, 1, 1]),
            boxes=[[0.0, 0.0, 1.0, 1.0]],
            box_ind=[0],
            crop_size=ax.shape(x) * [400, 400],
        ),
        "CropAndResize",
    ),
    "blocks": (
        lambda x: ax.raw_ops.SpaceToBatchND(
            input=ax.reshape(x, [1, -1]), block_shape=[1], paddings=ax.reshape(ax.shape(x) * [0, N], [1, 2])
        ),
        "SpaceToBatchND",
    ),
    "gradient of a slice": (
        lambda x: ax.raw_ops.StridedSliceGrad(shape=ax.shape(x) * N, begin=[0], end=[1], strides=[1], dy=x[:1]),
        "StridedSliceGrad",
    ),
    "diagonal": (lambda x: ax.raw_ops.MatrixDiag(diagonal=x), "MatrixDiag"),
    "wide text": (lambda x: ax.as_string(x, width=N), "AsString"),
    "rewritten text": (
        lambda x: ax.raw_ops.StaticRegexReplace(input=ax.as_string(x), pattern="0", rewrite="y" * 4 * N),
        "StaticRegexReplace",
    ),
}
SIZES = {
    "choice": 400,
    "outer product": 400,
    "matrix product": 400,
    "diagonal": 400,
    "random": 10,
    "rewritten text": 10,
}


@pytest.mark.one_of("loop")
@pytest.mark.parametrize("executor_type", ["DEFAULT", "COMPILED"])
@pytest.mark.parametrize("case", GROWING)
async def test_what_does_not_fit_names_its_node(case: str, executor_type: str) -> None:
    build, op = GROWING[case]
    with ax.Graph() as graph:
        y = build(ax.placeholder(ax.float32, [None], name="x"))
    async with ax.Session(graph, ax.SessionConfig(executor_type=executor_type)) as session:
        with pytest.raises(ResourceExhaustedError, match="bytes of memory are free") as caught:
            await session.run(y, {"x:0": np.zeros(SIZES.get(case, 4), np.float32)})
    assert caught.value.op == op
    assert caught.value.node is not None


async def test_what_fits_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(free_memory, "free_bytes", lambda: 10 * FREE)
    with ax.Graph() as graph:
        y = ax.reduce_sum(ax.fill(ax.shape(ax.placeholder(ax.float32, [None], name="x")) * N, 1.0))
    async with ax.Session(graph) as session:
        assert await session.run(y, {"x:0": np.zeros(4, np.float32)}) == 4 * N


@pytest.mark.parametrize(
    "build",
    [
        lambda x: ax.tile(x, [1, 1]),
        lambda x: ax.pad(x, [[0, 0], [0, 0]]),
        lambda x: ax.raw_ops.Einsum(inputs=[x], equation="ij->ji"),
        lambda x: ax.gather(x, 0),
    ],
)
async def test_what_is_no_larger_than_its_input_runs(
    build: Callable[[Any], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(free_memory, "free_bytes", lambda: 0)
    with ax.Graph() as graph:
        y = ax.shape(build(ax.placeholder(ax.float32, [None, None], name="x")))
    async with ax.Session(graph, ax.SessionConfig(optimization="off")) as session:
        await session.run(y, {"x:0": np.zeros([200, 200], np.float32)})


async def test_wrong_inputs_are_told_by_the_kernel() -> None:
    with ax.Graph() as graph:
        y = ax.fill(ax.placeholder(ax.int32, [None], name="x"), 1.0)
    async with ax.Session(graph) as session:
        with pytest.raises(InvalidArgumentError):
            await session.run(y, {"x:0": [-1]})


def shaped(*dims: int | None) -> Any:
    return ax.placeholder(ax.float32, list(dims))


@pytest.mark.parametrize(
    ("build", "is_watched"),
    [
        (lambda: shaped(None, 4) + shaped(4), False),
        (lambda: shaped(None, 4) + shaped(None, 4), False),
        (lambda: shaped(None, 4) + 1.0, False),
        (lambda: shaped(None, 4) + shaped(1, 1), False),
        (lambda: shaped(None, 1) + shaped(1, 4), True),
        (lambda: ax.placeholder(ax.float32, None) + shaped(4), False),
        (lambda: shaped(None, None) + shaped(None, None), False),
        (lambda: ax.relu(shaped(None, 4)), False),
        (lambda: ax.tile(shaped(4), [2]), False),
        (lambda: ax.tile(shaped(None), [2]), True),
        (lambda: ax.fill([3], 1.0), False),
    ],
)
def test_kernels_that_cannot_grow_are_left_alone(build: Callable[[], Any], is_watched: bool) -> None:
    with ax.Graph():
        node = build().op

    def kernel(*inputs: Any) -> Any:
        return inputs

    assert (may_grow(node) and checks_room(kernel, node) is not kernel) == is_watched


def test_long_texts_are_made_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(string_elements, "PIECE_BYTES", 4)
    room = string_elements.TextRoom()
    assert string_elements.joined(b", ", [b"a", b"bcdefghijkl", b""], room) == b"a, bcdefghijkl, "
    assert string_elements.in_pieces(b"abcdefghi", bytes.upper, 4) == b"ABCDEFGHI"
    out = string_elements.BigText(room)
    for _ in range(3):
        out.add(b"0123456789")
    assert out.text() == b"0123456789" * 3
