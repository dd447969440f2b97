"""Random single nodes of the general ops, for comparison with ``onnx.reference``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np

SHAPES: tuple[tuple[int, ...], ...] = ((), (0,), (1,), (5,), (2, 3), (3, 0), (1, 4, 1), (2, 3, 4), (2, 1, 3, 2))
FLOATS = (np.float32, np.float64, np.float16, ml_dtypes.bfloat16)
INTS = (np.int32, np.int64)
ALL_INTS = (np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64)
NUMBERS = (*FLOATS, *INTS)
ANY = (np.float32, np.float16, np.int64, np.uint8, np.bool_, np.float64)


@dataclass
class RandomNode:
    """A node and what it takes."""

    op_type: str
    inputs: list[Any]
    attrs: dict[str, Any] = field(default_factory=dict)
    outputs: int = 1
    opset: int = 22


class Draw:
    """What the generators draw from: shapes, axes and values of one dtype."""

    def __init__(self, seed: int, dtype: Any) -> None:
        self.rng = np.random.default_rng(seed)
        self.dtype = np.dtype(dtype)

    def shape(self, least_rank: int = 0, least_size: int = 0) -> tuple[int, ...]:
        fit = [shape for shape in SHAPES if len(shape) >= least_rank and min(shape, default=1) >= least_size]
        return fit[self.rng.integers(len(fit))]

    def values(self, shape: Sequence[int], low: float = -4, high: float = 4) -> Any:
        kind = self.dtype.kind
        if kind == "b":
            return self.rng.random(shape) < 0.5
        if kind in "iu":
            return self.rng.integers(0 if kind == "u" else int(low), int(high) + 1, shape).astype(self.dtype)
        return (self.rng.random(shape) * (high - low) + low).astype(self.dtype)

    def axis(self, rank: int) -> int:
        return int(self.rng.integers(-rank, rank))

    def axes(self, rank: int) -> list[int]:
        picked = self.rng.permutation(rank)[: self.rng.integers(1, rank + 1)] if rank else []
        return [int(axis) - (rank if self.flag() else 0) for axis in picked]

    def flag(self) -> int:
        return int(self.rng.integers(2))

    def pick(self, *choices: Any) -> Any:
        return choices[self.rng.integers(len(choices))]

    def part(self, shape: Sequence[int]) -> tuple[int, ...]:
        """A shape that broadcasts to *shape*."""
        kept = [1 if self.rng.random() < 0.3 else dim for dim in shape]
        return tuple(kept[self.rng.integers(len(kept) + 1) :])


Generator = Callable[[Draw, str], RandomNode]
OPS: dict[str, tuple[Generator, Sequence[Any]]] = {}


def node_of(*ops: str, dtypes: Sequence[Any] = ANY) -> Callable[[Generator], Generator]:
    def decorate(generator: Generator) -> Generator:
        OPS.update(dict.fromkeys(ops, (generator, dtypes)))
        return generator

    return decorate


def ints(values: Sequence[int]) -> Any:
    return np.array(values, np.int64)


@node_of("Ceil", "Cos", "Cosh", "Exp", "Floor", "Round", "Sin", "Sinh", "Tanh", "Atan", "Asinh", dtypes=FLOATS)
@node_of("Erf", dtypes=[np.float32, np.float16, ml_dtypes.bfloat16])  # the library computes it in single
@node_of("Abs", "Neg", "Sign", dtypes=NUMBERS)
@node_of("Identity", "Size", "Shape")
@node_of("IsNaN", "IsInf", dtypes=FLOATS)
@node_of("BitwiseNot", dtypes=ALL_INTS)
@node_of("Not", dtypes=[np.bool_])
def of_any_value(draw: Draw, op: str) -> RandomNode:
    x = np.array(draw.values(draw.shape()))
    if x.dtype.kind not in "iub" and x.size > 2 and op not in ("Round", "Cosh", "Sinh", "Exp"):
        x.reshape(-1)[:2] = [np.inf, np.nan]
    return RandomNode(op, [x])


@node_of("Sqrt", "Log", "Reciprocal", dtypes=FLOATS)
def of_positive(draw: Draw, op: str) -> RandomNode:
    return RandomNode(op, [draw.values(draw.shape(), 0.5, 9)])


@node_of("Acos", "Asin", "Atanh", "Tan", dtypes=FLOATS)
def of_units(draw: Draw, op: str) -> RandomNode:
    return RandomNode(op, [draw.values(draw.shape(), -0.9, 0.9)])


@node_of("Add", "Sub", "Mul", dtypes=NUMBERS)
@node_of("Less", "Greater", "LessOrEqual", "GreaterOrEqual", dtypes=NUMBERS)
@node_of("Equal", dtypes=(*NUMBERS, np.bool_))
@node_of("And", "Or", "Xor", dtypes=[np.bool_])
@node_of("BitwiseAnd", "BitwiseOr", "BitwiseXor", dtypes=ALL_INTS)
def of_two(draw: Draw, op: str) -> RandomNode:
    shape = draw.shape()
    inputs = [draw.values(shape), draw.values(draw.part(shape))]
    return RandomNode(op, inputs if draw.flag() else inputs[::-1])


@node_of("Div", "Mod", dtypes=(*FLOATS, np.int64, np.int32))
def of_quotients(draw: Draw, op: str) -> RandomNode:
    shape = draw.shape()
    divisor = draw.values(draw.part(shape), 1, 5)
    attrs = {"fmod": draw.flag() or int(divisor.dtype.kind not in "iu")} if op == "Mod" else {}
    # The library's Div rounds integers down, where ONNX and everyone else cut them off.
    low = 0 if op == "Div" and divisor.dtype.kind in "iu" else -9
    return RandomNode(op, [draw.values(shape, low, 9), divisor], attrs)


@node_of("Pow", dtypes=(np.float32, np.float64, np.int32, np.int64))
def of_powers(draw: Draw, op: str) -> RandomNode:
    shape = draw.shape()
    return RandomNode(op, [draw.values(shape, 1, 4), draw.rng.integers(0, 4, draw.part(shape)).astype(draw.dtype)])


@node_of("BitShift", dtypes=[np.uint8, np.uint16, np.uint32, np.uint64])
def of_shifts(draw: Draw, op: str) -> RandomNode:
    shape = draw.shape()
    return RandomNode(
        op, [draw.values(shape, 0, 200), draw.values(shape, 0, 7)], {"direction": draw.pick("LEFT", "RIGHT")}
    )


@node_of("Max", "Min", dtypes=NUMBERS)
@node_of("Sum", "Mean", dtypes=FLOATS)
def of_several(draw: Draw, op: str) -> RandomNode:
    shape = draw.shape()
    return RandomNode(op, [draw.values(shape), *(draw.values(draw.part(shape)) for _ in range(draw.rng.integers(3)))])


@node_of("Clip", dtypes=NUMBERS)
def of_limits(draw: Draw, op: str) -> RandomNode:
    low, high = draw.values((), -2, -1), draw.values((), 1, 2)
    return RandomNode(op, [draw.values(draw.shape()), low, high][: draw.pick(1, 2, 3)])


@node_of("Where")
def of_choices(draw: Draw, op: str) -> RandomNode:
    shape = draw.shape()
    return RandomNode(op, [draw.rng.random(draw.part(shape)) < 0.5, draw.values(shape), draw.values(draw.part(shape))])


@node_of("CumSum", "CumProd", dtypes=(np.float32, np.float64, *INTS))
def of_running(draw: Draw, op: str) -> RandomNode:
    shape = draw.shape(1)
    axis = np.array(draw.axis(len(shape)), np.int64)
    return RandomNode(op, [draw.values(shape), axis], {"exclusive": draw.flag(), "reverse": draw.flag()}, opset=26)


@node_of("ReduceSum", "ReduceProd", "ReduceMax", "ReduceMin", "ReduceL1", dtypes=NUMBERS)
@node_of("ReduceSumSquare", dtypes=(*FLOATS, np.int64))  # the library makes int64 of int32
@node_of("ReduceMean", "ReduceL2", "ReduceLogSumExp", dtypes=FLOATS)
def of_axes(draw: Draw, op: str) -> RandomNode:
    shape = draw.shape(least_size=0 if op in ("ReduceSum", "ReduceMax", "ReduceMin", "ReduceProd") else 1)
    attrs = {"keepdims": draw.flag(), "noop_with_empty_axes": draw.flag()}
    axes = [ints(draw.axes(len(shape)))] if shape and draw.rng.random() < 0.8 else []
    return RandomNode(op, [draw.values(shape, -2, 2), *axes], attrs)


@node_of("ReduceLogSum", dtypes=FLOATS)
def of_positive_axes(draw: Draw, op: str) -> RandomNode:
    shape = draw.shape(1, 1)
    return RandomNode(op, [draw.values(shape, 1, 2), ints(draw.axes(len(shape)))], {"keepdims": draw.flag()})


@node_of("ArgMax", "ArgMin", dtypes=(np.float32, np.float16, np.int32, np.int64))
def of_places(draw: Draw, op: str) -> RandomNode:
    shape = draw.shape(1, 1)
    attrs = {"axis": draw.axis(len(shape)), "keepdims": draw.flag(), "select_last_index": draw.flag()}
    return RandomNode(op, [draw.values(shape, -2, 2)], attrs)


@node_of("TopK", dtypes=(np.float32, np.float64, np.int32, np.int64))
def of_top(draw: Draw, op: str) -> RandomNode:
    shape = draw.shape(1, 1)
    axis = draw.axis(len(shape))
    k = ints([draw.rng.integers(1, shape[axis] + 1)])
    return RandomNode(op, [draw.values(shape, -2, 2), k], {"axis": axis, "largest": draw.flag()}, outputs=2)


@node_of("Unique", dtypes=(np.float32, np.int64, np.int32))
def of_kinds(draw: Draw, op: str) -> RandomNode:
    return RandomNode(op, [draw.values((draw.pick(0, 1, 9),), -2, 2)], {"sorted": draw.flag()}, outputs=4)


@node_of("Reshape")
def of_reshapes(draw: Draw, op: str) -> RandomNode:
    shape = draw.shape()
    wanted = list(draw.rng.permutation(shape))
    if wanted and draw.flag() and 0 not in shape:
        wanted[draw.rng.integers(len(wanted))] = -1
    return RandomNode(op, [draw.values(shape), ints(wanted)], {"allowzero": int(0 in shape)})


@node_of("Flatten")
def of_flatten(draw: Draw, op: str) -> RandomNode:
    shape = draw.shape(1)
    return RandomNode(op, [draw.values(shape)], {"axis": int(draw.rng.integers(0, len(shape) + 1))})


@node_of("Squeeze")
def of_squeeze(draw: Draw, op: str) -> RandomNode:
    shape = draw.pick((1,), (1, 4, 1), (2, 1, 3), (3, 1, 0), (2, 3))
    ones = [axis - draw.pick(0, len(shape)) for axis, dim in enumerate(shape) if dim == 1]
    return RandomNode(op, [draw.values(shape), ints(ones)] if ones and draw.flag() else [draw.values(shape)])


@node_of("Unsqueeze")
def of_unsqueeze(draw: Draw, op: str) -> RandomNode:
    shape, count = draw.shape(), draw.pick(1, 2)
    rank = len(shape) + count
    axes = [int(axis) - draw.pick(0, rank) for axis in draw.rng.permutation(rank)[:count]]
    return RandomNode(op, [draw.values(shape), ints(axes)])


@node_of("Transpose")
def of_transpose(draw: Draw, op: str) -> RandomNode:
    shape = draw.shape()
    perm = [int(axis) for axis in draw.rng.permutation(len(shape))]
    return RandomNode(op, [draw.values(shape)], {"perm": perm} if shape and draw.flag() else {})


@node_of("Expand")
def of_expand(draw: Draw, op: str) -> RandomNode:
    shape = draw.shape(1)
    inputs = [shape, draw.part(shape)]
    given, wanted = inputs if draw.flag() else inputs[::-1]
    return RandomNode(op, [draw.values(given), ints(wanted)])


@node_of("Tile")
def of_tile(draw: Draw, op: str) -> RandomNode:
    shape = draw.shape(1)
    return RandomNode(op, [draw.values(shape), ints(draw.rng.integers(0, 4, len(shape)))])


@node_of("Concat")
def of_concat(draw: Draw, op: str) -> RandomNode:
    shape = list(draw.shape(1))
    axis, values = draw.axis(len(shape)), []
    for _ in range(draw.rng.integers(1, 4)):
        shape[axis] = int(draw.rng.integers(0, 4))
        values.append(draw.values(shape))
    return RandomNode(op, values, {"axis": axis})


@node_of("Split")
def of_split(draw: Draw, op: str) -> RandomNode:
    shape = draw.shape(1)
    axis = draw.axis(len(shape))
    if draw.flag():
        sizes = [shape[axis] // 2, 0, shape[axis] - shape[axis] // 2]
        return RandomNode(op, [draw.values(shape), ints(sizes)], {"axis": axis}, outputs=3)
    return RandomNode(op, [draw.values(shape)], {"axis": axis, "num_outputs": 2}, outputs=2)


@node_of("Slice")
def of_slice(draw: Draw, op: str) -> RandomNode:
    shape = draw.shape(1)
    axes = draw.axes(len(shape))
    starts, ends = (draw.rng.integers(-7, 8, len(axes)) for _ in range(2))
    # A start before the first element counts as the first one; the library, and Python, go nowhere from there.
    steps = [
        draw.pick(*((-2, -1) if start >= -shape[axis] else ()), 1, 3) for axis, start in zip(axes, starts, strict=True)
    ]
    return RandomNode(op, [draw.values(shape), starts, ends, ints(axes), ints(steps)])


@node_of("Gather")
def of_gather(draw: Draw, op: str) -> RandomNode:
    shape = draw.shape(1, 1)
    axis = draw.axis(len(shape))
    return RandomNode(
        op, [draw.values(shape), draw.rng.integers(-shape[axis], shape[axis], draw.shape())], {"axis": axis}
    )


def _element_indices(draw: Draw) -> tuple[tuple[int, ...], int, Any]:
    shape = draw.shape(1, 1)
    axis = draw.axis(len(shape))
    sizes = [int(draw.rng.integers(1, dim + 1)) for dim in shape]
    # each place at most once, so that no order of updates matters
    order = np.argsort(draw.rng.random([*sizes, shape[axis]]), -1)
    sizes[axis] = int(draw.rng.integers(0, shape[axis] + 1))
    places = np.moveaxis(order.take(0, axis), -1, axis % len(shape))
    return shape, axis, places[tuple(slice(size) for size in sizes)].astype(np.int64)


@node_of("GatherElements")
def of_gather_elements(draw: Draw, op: str) -> RandomNode:
    shape, axis, indices = _element_indices(draw)
    return RandomNode(op, [draw.values(shape), indices], {"axis": axis})


@node_of("ScatterElements", dtypes=NUMBERS)
def of_scatter_elements(draw: Draw, op: str) -> RandomNode:
    shape, axis, indices = _element_indices(draw)
    attrs = {"axis": axis, "reduction": draw.pick("none", "add", "mul", "min", "max")}
    return RandomNode(op, [draw.values(shape), indices, draw.values(indices.shape)], attrs)


@node_of("GatherND")
def of_gather_nd(draw: Draw, op: str) -> RandomNode:
    shape = (2, 3, 4)
    batch_dims = draw.pick(0, 1)
    depth = int(draw.rng.integers(1, 4 - batch_dims))
    lead = (2, draw.pick(1, 3)) if batch_dims else draw.shape()
    points = [draw.rng.integers(-dim, dim, lead) for dim in shape[batch_dims : batch_dims + depth]]
    return RandomNode(op, [draw.values(shape), np.stack(points, -1)], {"batch_dims": batch_dims})


@node_of("ScatterND", dtypes=NUMBERS)
def of_scatter_nd(draw: Draw, op: str) -> RandomNode:
    shape = (3, 4, 2)
    depth = draw.pick(1, 2, 3)
    points = np.stack(np.unravel_index(draw.rng.permutation(int(np.prod(shape[:depth])))[:2], shape[:depth]), -1)
    updates = draw.values((2, *shape[depth:]))
    attrs = {"reduction": draw.pick("none", "add", "mul", "min", "max")}
    return RandomNode(op, [draw.values(shape), points.astype(np.int64), updates], attrs)


@node_of("Compress")
def of_compress(draw: Draw, op: str) -> RandomNode:
    shape = draw.shape(1, 1)
    axis = draw.axis(len(shape))
    if draw.flag():
        return RandomNode(op, [draw.values(shape), draw.rng.random(shape[axis]) < 0.5], {"axis": axis})
    return RandomNode(op, [draw.values(shape), draw.rng.random(int(np.prod(shape))) < 0.5])


@node_of("NonZero")
def of_non_zero(draw: Draw, op: str) -> RandomNode:
    return RandomNode(op, [draw.values(draw.shape(1), -1, 1)])


@node_of("OneHot", dtypes=(np.int32, np.int64))
def of_one_hot(draw: Draw, op: str) -> RandomNode:
    shape = draw.shape()
    values = np.array([2, 5], draw.pick(np.float32, np.int64))
    axis = int(draw.rng.integers(-len(shape) - 1, len(shape) + 1))
    return RandomNode(op, [draw.values(shape, -6, 6), np.array(4, np.int64), values], {"axis": axis})


@node_of("EyeLike", dtypes=(np.float32, np.int64, np.float64))
def of_eye_like(draw: Draw, op: str) -> RandomNode:
    return RandomNode(op, [draw.values(draw.pick((3, 4), (4, 2), (0, 3)))], {"k": draw.pick(-2, 0, 1), "dtype": 1})


@node_of("ConstantOfShape", dtypes=[np.int64])
def of_constant(draw: Draw, op: str) -> RandomNode:
    return RandomNode(op, [ints(draw.shape())])


@node_of("Range", dtypes=(np.float32, np.float64, np.int32, np.int64, np.int16))
def of_range(draw: Draw, op: str) -> RandomNode:
    step = np.array(draw.pick(-2, -1, 1, 3), draw.dtype)
    return RandomNode(op, [np.array(draw.values(())), np.array(draw.values((), -9, 9)), step])


@node_of("Pad", dtypes=(np.float32, np.float64, np.int64, np.int32))
def of_pad(draw: Draw, op: str) -> RandomNode:
    shape = draw.shape(1, 2 if draw.flag() else 1)
    mode = draw.pick("constant", "reflect", "edge", "wrap")
    axes = draw.axes(len(shape))
    least = [dim for axis in axes for dim in [shape[axis]]]
    sizes = [int(draw.rng.integers(0, max(1, dim))) for dim in least * 2]
    value = [np.array(draw.values(()))] if mode == "constant" else [None]
    return RandomNode(op, [draw.values(shape), ints(sizes), *value, ints(axes)], {"mode": mode})


@node_of("Trilu", dtypes=(np.float32, np.int64, np.float64))
def of_trilu(draw: Draw, op: str) -> RandomNode:
    k = np.array(draw.rng.integers(-6, 7), np.int64)
    return RandomNode(op, [draw.values(draw.shape(2)), k], {"upper": draw.flag()})


@node_of("ReverseSequence", dtypes=(np.float32, np.int64))
def of_reverse(draw: Draw, op: str) -> RandomNode:
    time = draw.flag()
    x = draw.values((3, 4, 2))
    lengths = draw.rng.integers(1, x.shape[time] + 1, x.shape[1 - time])
    return RandomNode(op, [x, lengths], {"time_axis": time, "batch_axis": 1 - time})


@node_of("DepthToSpace", dtypes=(np.float32, np.int64))
def of_depth(draw: Draw, op: str) -> RandomNode:
    return RandomNode(op, [draw.values((2, 8, 1, 3))], {"blocksize": 2, "mode": draw.pick("DCR", "CRD")})


@node_of("MatMul", dtypes=NUMBERS)
def of_products(draw: Draw, op: str) -> RandomNode:
    shapes = [
        ((3, 4), (4, 2)),
        ((4,), (4, 2)),
        ((2, 3, 4), (4,)),
        ((5, 1, 3, 4), (2, 4, 1)),
        ((3, 0), (0, 2)),
        ((4,), (4,)),
    ]
    a, b = shapes[draw.rng.integers(len(shapes))]
    return RandomNode(op, [draw.values(a, -2, 2), draw.values(b, -2, 2)])


@node_of("Gemm", dtypes=(np.float32, np.float64))
def of_gemm(draw: Draw, op: str) -> RandomNode:
    flip_a, flip_b = draw.flag(), draw.flag()
    a, b = draw.values((4, 3) if flip_a else (3, 4)), draw.values((2, 4) if flip_b else (4, 2))
    c = [draw.values(draw.part((3, 2)))] if draw.flag() else []
    return RandomNode(op, [a, b, *c], {"alpha": 0.5, "beta": draw.pick(0.0, 2.0), "transA": flip_a, "transB": flip_b})


@node_of("Einsum", dtypes=(np.float32, np.float64))
def of_einsum(draw: Draw, op: str) -> RandomNode:
    sizes = {"i": 2, "j": 3, "k": 4, "b": 2}
    equation = draw.pick("ij,jk->ik", "bij,bjk->bik", "ij->ji", "ij->", "i,j", "ij,ij", "bij,kj->ibk", "ij,jk,ki->i")
    parts = equation.partition("->")[0].split(",")
    return RandomNode(op, [draw.values([sizes[label] for label in part]) for part in parts], {"equation": equation})


@node_of("Det", dtypes=(np.float32, np.float64))
def of_det(draw: Draw, op: str) -> RandomNode:
    return RandomNode(op, [draw.values(draw.pick((3, 3), (2, 4, 4), (1, 1)))])


@node_of("Cast", dtypes=(np.float32, np.float64, np.float16, np.int64, np.int32, np.uint8, np.bool_, np.int8))
def of_cast(draw: Draw, op: str) -> RandomNode:
    to = draw.pick(1, 2, 3, 6, 7, 9, 10, 11, 16, 17, 18, 19, 20)
    low = 0 if to == 2 else -4  # what a negative float is as an unsigned integer is not defined
    return RandomNode(
        op, [draw.values(draw.shape(), low, 4)], {"to": to, "saturate": draw.flag()} if to > 16 else {"to": to}
    )
