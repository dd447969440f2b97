"""Translations of convolutions, products, poolings and normalizations."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from asyncexec.graph.node import Node
from asyncexec.passes.onnx_emitter import (
    Emitter,
    Translation,
    UntranslatableError,
    dim_of,
    is_image,
    num_elements,
    rank_of,
    require,
)

_NHWC: Final = "NHWC"
_IMAGE_RANK: Final = 4


def _text(node: Node, name: str, default: str = "") -> str:
    value = node.attrs.get(name, default)
    return value.decode() if isinstance(value, bytes) else str(value)


def _plane(node: Node, name: str) -> list[int]:
    """The two sizes of the plane in the attr *name*, of four; the others are 1."""
    values = [int(value) for value in node.attrs.get(name) or (1, 1, 1, 1)]
    require(len(values) == _IMAGE_RANK, f"{name} has no four sizes")
    rows, columns = (1, 2) if _text(node, "data_format", _NHWC) == _NHWC else (2, 3)
    require(all(value == 1 for i, value in enumerate(values) if i not in (rows, columns)), f"{name} of no plane")
    return [values[rows], values[columns]]


def _window(node: Node) -> dict[str, Any]:
    """How a window moves: the attrs of ONNX."""
    padding = _text(node, "padding")
    attrs: dict[str, object] = {"strides": _plane(node, "strides")}
    if padding == "SAME":
        attrs["auto_pad"] = "SAME_UPPER"
    elif padding == "EXPLICIT":
        pads = [int(value) for value in node.attrs["explicit_paddings"]]
        require(len(pads) == 2 * _IMAGE_RANK, "explicit_paddings has no eight sizes")
        first = 2 if _text(node, "data_format", _NHWC) == _NHWC else 4
        require(not any(pads[:first]) and not any(pads[first + 4 :]), "padding of no plane")
        top, bottom, left, right = pads[first : first + 4]
        attrs["pads"] = [top, left, bottom, right]
    else:
        require(padding == "VALID", padding)
    return attrs


def _dilated(node: Node, size: Sequence[int]) -> dict[str, object]:
    """How a filter of *size* moves; ONNX Runtime does not reckon with holes in it, so padding is told in full."""
    attrs, dilations = _window(node), _plane(node, "dilations")
    if "auto_pad" in attrs and dilations != [1, 1]:
        require(attrs["strides"] == [1, 1], "strides and dilations")
        totals = [(length - 1) * step for length, step in zip(size, dilations, strict=True)]
        del attrs["auto_pad"]
        attrs["pads"] = [*(total // 2 for total in totals), *(total - total // 2 for total in totals)]
    return {**attrs, "dilations": dilations, "kernel_shape": list(size)}


def _image(e: Emitter, node: Node, slot: int = 0) -> str:
    """An input of *node* in NCHW."""
    tensor = node.inputs[slot]
    require(is_image(tensor), "no image")
    return e.take(tensor, nchw=_text(node, "data_format", _NHWC) == _NHWC)


def _give_image(e: Emitter, node: Node, name: str) -> None:
    e.give(node, name, nchw=_text(node, "data_format", _NHWC) == _NHWC)


def _channels(node: Node, slot: int = 0) -> int:
    found = dim_of(node.inputs[slot], 3 if _text(node, "data_format", _NHWC) == _NHWC else 1)
    if not found:
        raise UntranslatableError("the number of channels is not known")
    return found


def _filter_dims(node: Node) -> list[int]:
    dims = node.inputs[1].shape.dims
    require(dims is not None and len(dims) == _IMAGE_RANK and all(dims), "the filter's shape is not known")
    return [int(dim or 0) for dim in dims or ()]


def conv2d(e: Emitter, node: Node) -> None:
    rows, columns, depth, _ = _filter_dims(node)
    channels = _channels(node)
    require(channels % depth == 0, "channels do not fit the filter")
    attrs = {**_dilated(node, (rows, columns)), "group": channels // depth}
    x, weights = _image(e, node), e.constant(node.inputs[1])
    if weights is not None:
        w = e.literal(weights.transpose(3, 2, 0, 1))
    else:
        w = e.op("Transpose", e.take(node.inputs[1]), perm=[3, 2, 0, 1])
    e.work += num_elements(node.outputs[0]) * rows * columns * depth
    _give_image(e, node, e.op("Conv", x, w, **attrs))


def depthwise(e: Emitter, node: Node) -> None:
    rows, columns, depth, multiplier = _filter_dims(node)
    require(_channels(node) == depth, "channels do not fit the filter")
    attrs = {**_dilated(node, (rows, columns)), "group": depth}
    weights = e.known(node.inputs[1])
    w = e.literal(weights.reshape(rows, columns, 1, depth * multiplier).transpose(3, 2, 0, 1))
    e.work += num_elements(node.outputs[0]) * rows * columns
    _give_image(e, node, e.op("Conv", _image(e, node), w, **attrs))


def conv2d_transpose(e: Emitter, node: Node) -> None:
    """Conv2DBackpropInput, whose sizes have to be known, but for that of the batch."""
    require(_text(node, "data_format", _NHWC) == _NHWC, "data_format")
    require(_text(node, "padding") in ("SAME", "VALID"), "padding")
    rows, columns, depth, filters = _filter_dims(node)
    require(_channels(node, 2) == filters, "channels do not fit the filter")
    require(dim_of(node.outputs[0], 3) == depth, "channels do not fit the filter")
    strides, dilations = _plane(node, "strides"), _plane(node, "dilations")
    pads, more = [0, 0, 0, 0], [0, 0]
    for axis, size in enumerate((rows, columns)):
        given, wanted = dim_of(node.inputs[2], axis + 1), dim_of(node.outputs[0], axis + 1)
        if given is None or wanted is None:
            raise UntranslatableError("sizes are not known")
        reach = (size - 1) * dilations[axis] + 1
        whole = (given - 1) * strides[axis] + reach
        total = max(whole - wanted, 0) if _text(node, "padding") == "SAME" else 0
        pads[axis], pads[axis + 2] = total // 2, total - total // 2
        more[axis] = wanted - (whole - total)
        require(0 <= more[axis] < strides[axis], "sizes do not fit")
    weights = e.known(node.inputs[1])
    name = e.op(
        "ConvTranspose",
        _image(e, node, 2),
        e.literal(weights.transpose(3, 2, 0, 1)),
        kernel_shape=[rows, columns],
        strides=strides,
        dilations=dilations,
        pads=pads,
        output_padding=more,
    )
    e.work += num_elements(node.inputs[2]) * rows * columns * depth
    _give_image(e, node, name)


def bias_add(e: Emitter, node: Node) -> None:
    x, bias = node.inputs
    rank = rank_of(x)
    first = _text(node, "data_format", _NHWC) != _NHWC
    nchw = not first and rank == _IMAGE_RANK and e.is_nchw(x)
    if first or nchw:
        require(rank > 2, "rank")
        sizes, value = [-1, *[1] * (rank - 2)], e.constant(bias)
        if value is not None:
            added = e.literal(value.reshape(sizes))
        else:
            added = e.op("Reshape", e.take(bias), e.literal(sizes, np.int64))
    else:
        added = e.take(bias)
    e.give(node, e.op("Add", e.take(x, nchw=nchw), added), nchw=nchw)


def batch_norm(e: Emitter, node: Node) -> None:
    """Of inference; the other outputs are the means and variances that it takes, which nobody is to want."""
    require(not node.attrs.get("is_training"), "it is training")
    x = _image(e, node)
    others = [e.take(tensor) for tensor in node.inputs[1:5]]
    _give_image(e, node, e.op("BatchNormalization", x, *others, epsilon=float(node.attrs["epsilon"])))


def _pool_attrs(node: Node) -> dict[str, object]:
    size, attrs = _plane(node, "ksize"), _window(node)
    skips = any(stride > length for stride, length in zip(attrs["strides"], size, strict=True))
    require(not (skips and "auto_pad" in attrs), "strides")
    return {**attrs, "kernel_shape": size}


def max_pool(e: Emitter, node: Node) -> None:
    """A NaN among the inputs is not always handed on, so it is looked for."""
    attrs = _pool_attrs(node)
    pads = _zeros_around(e, node, attrs)
    if pads is None:
        x = _image(e, node)
    else:
        x, attrs["pads"] = _image(e, node.inputs[0].op), pads
    e.guard_nan(x, is_image=True)
    _give_image(e, node, e.op("MaxPool", x, **attrs))


def _zeros_around(e: Emitter, node: Node, attrs: Mapping[str, Any]) -> list[int] | None:
    """The zeros above, left, below and right of what *node* takes, if these are as good as nothing: no number is less.

    None where there are none, or where they count.
    """
    pad = node.inputs[0].op
    if pad.op != "Pad" or "auto_pad" in attrs or "pads" in attrs or _text(node, "data_format", _NHWC) != _NHWC:
        return None
    value, sides = pad.inputs[0], e.constant(pad.inputs[1])
    if e.is_fed(node.inputs[0]) or e.is_fed(value) or value.op.op not in ("Relu", "Relu6") or not is_image(value):
        return None
    if sides is None or sides[[0, 3]].any() or (sides < 0).any():
        return None
    (top, bottom), (left, right) = sides[1:3].tolist()
    rows, columns = attrs["kernel_shape"]
    return [top, left, bottom, right] if max(top, bottom) < rows and max(left, right) < columns else None


def avg_pool(e: Emitter, node: Node) -> None:
    require(_text(node, "padding") != "EXPLICIT", "padding")
    x = _image(e, node)
    _give_image(e, node, e.op("AveragePool", x, **_pool_attrs(node)))


# Products.


def _operand(e: Emitter, node: Node, slot: int, *, transposed: bool) -> str:
    tensor = node.inputs[slot]
    if not transposed:
        return e.take(tensor)
    value, rank = e.constant(tensor), rank_of(tensor)
    if value is not None:
        return e.literal(value.swapaxes(-1, -2))
    return e.op("Transpose", e.take(tensor), perm=[*range(rank - 2), rank - 1, rank - 2])


def _product(flag_a: str, flag_b: str, *, broadcasts: bool = True) -> Translation:
    def product(e: Emitter, node: Node) -> None:
        a, b = node.inputs
        require(min(rank_of(a), rank_of(b)) > 1, "rank")
        require(broadcasts or rank_of(a) == rank_of(b), "rank")
        require(broadcasts or a.shape.dims[:-2] == b.shape.dims[:-2] or rank_of(a) == 2, "sizes")  # type: ignore[index]
        by_a, by_b = bool(node.attrs.get(flag_a)), bool(node.attrs.get(flag_b))
        inner = dim_of(a, -2 if by_a else -1) or dim_of(b, -1 if by_b else -2) or 1
        e.work += num_elements(node.outputs[0]) * inner
        left, right = _operand(e, node, 0, transposed=by_a), _operand(e, node, 1, transposed=by_b)
        e.give(node, e.op("MatMul", left, right))

    return product


def einsum(e: Emitter, node: Node) -> None:
    equation = _text(node, "equation").replace(" ", "")
    inputs, _, output = equation.partition("->")
    left, _, right = inputs.partition(",")
    require("->" in equation and len(node.inputs) == 2, "no product")
    for labels in (left, right, output):
        require(labels.isalpha() and len(set(labels)) == len(labels), "labels")
    require(set(output) <= set(left + right), "labels")
    a, b = node.inputs
    require((rank_of(a), rank_of(b)) == (len(left), len(right)), "rank")
    summed = [label for label in left if label not in output]
    require(summed and all(label in right for label in summed), "no product")
    require(all(label in output for label in right if label not in left), "no product")
    inner = 1
    for label in summed:
        inner *= dim_of(a, left.index(label)) or dim_of(b, right.index(label)) or 1
    e.work += num_elements(node.outputs[0]) * inner
    weights = e.constant(b)
    own = [label for label in right if label not in summed]
    rest = left[: len(left) - len(summed)]
    if weights is None or left[len(rest) :] != "".join(summed) or output != rest + "".join(own) or not rest:
        e.give(node, _einsum_of(e, node, left, right, output))
        return
    order = [right.index(label) for label in (*summed, *own)]
    matrix = weights.transpose(order).reshape(inner, -1)
    x = e.take(a)
    if len(summed) > 1:
        x = e.op("Reshape", x, e.literal([*[0] * len(rest), inner], np.int64))
    y = e.op("MatMul", x, e.literal(matrix))
    if len(own) != 1:
        sizes = [weights.shape[right.index(label)] for label in own]
        y = e.op("Reshape", y, e.literal([*[0] * len(rest), *sizes], np.int64))
    e.give(node, y)


def _einsum_of(e: Emitter, node: Node, left: str, right: str, output: str) -> str:
    """A product of matrices between transposes, where each operand has one label of its own, and one is summed."""
    a, b = node.inputs
    batch = [label for label in left if label in right and label in output]
    rows, columns, summed = (
        [label for label in labels if label not in others]
        for labels, others in ((left, right), (right, left), (left, output))
    )
    if not len(rows) == len(columns) == len(summed) == 1:
        return e.op("Einsum", e.take(a), e.take(b), equation=f"{left},{right}->{output}")
    product = [*batch, *rows, *columns]
    given = (
        _transposed(e, e.take(a), left, [*batch, *rows, *summed]),
        _transposed(e, e.take(b), right, [*batch, *summed, *columns]),
    )
    return _transposed(e, e.op("MatMul", *given), product, output)


def _transposed(e: Emitter, name: str, labels: Sequence[str], wanted: Sequence[str]) -> str:
    """*name*, whose axes have *labels*, with the axes in the order *wanted*."""
    perm = [labels.index(label) for label in wanted]
    return name if perm == sorted(perm) else e.op("Transpose", name, perm=perm)


# Resizing.


def resize_bilinear(e: Emitter, node: Node) -> None:
    rows, columns = (int(size) for size in e.known(node.inputs[1]))
    aligned, half = bool(node.attrs.get("align_corners")), bool(node.attrs.get("half_pixel_centers"))
    require(min(rows, columns) > 1 and not (aligned and half), "sizes")
    _resize(
        e,
        node,
        rows,
        columns,
        mode="linear",
        how="align_corners" if aligned else "half_pixel" if half else "asymmetric",
    )


def resize_nearest(e: Emitter, node: Node) -> None:
    """By powers of two, where all ways to round are the same."""
    rows, columns = (int(size) for size in e.known(node.inputs[1]))
    require(not node.attrs.get("align_corners"), "align_corners")
    for axis, size in ((1, rows), (2, columns)):
        given = dim_of(node.inputs[0], axis)
        if not given or size % given:
            raise UntranslatableError("sizes")
        factor = size // given
        require(factor & (factor - 1) == 0, "sizes")
    _resize(e, node, rows, columns, mode="nearest", how="asymmetric", nearest_mode="floor")


def _resize(e: Emitter, node: Node, rows: int, columns: int, *, mode: str, how: str, **attrs: object) -> None:
    x = node.inputs[0]
    channels = dim_of(x, 3) if is_image(x) else None
    if not channels or x.dtype.name != "float32":
        raise UntranslatableError("the number of channels is not known")
    given = e.take(x, nchw=True)
    factors = [size / (dim_of(x, axis) or math.inf) for axis, size in ((1, rows), (2, columns))]
    if all(factor >= 1 and factor.is_integer() for factor in factors):  # in blocks of channels, as convolutions have it
        scales = e.literal([1, 1, *factors], np.float32)
        name = e.op("Resize", given, "", scales, mode=mode, coordinate_transformation_mode=how, **attrs)
        e.give(node, name, nchw=True)
        return
    batch = e.op("Slice", e.op("Shape", given), e.literal([0], np.int64), e.literal([1], np.int64))
    sizes = e.op("Concat", batch, e.literal([channels, rows, columns], np.int64), axis=0)
    name = e.op("Resize", given, "", "", sizes, mode=mode, coordinate_transformation_mode=how, **attrs)
    e.give(node, name, nchw=True)


# Ops that make a cluster worth its while.
HEAVY: Final[Mapping[str, Translation]] = {
    "Conv2D": conv2d,
    "DepthwiseConv2dNative": depthwise,
    "Conv2DBackpropInput": conv2d_transpose,
    "MatMul": _product("transpose_a", "transpose_b"),
    "BatchMatMul": _product("adj_x", "adj_y", broadcasts=False),
    "BatchMatMulV2": _product("adj_x", "adj_y"),
    "BatchMatMulV3": _product("adj_x", "adj_y"),
    "Einsum": einsum,
}
NN: Final[Mapping[str, Translation]] = {
    **HEAVY,
    "BiasAdd": bias_add,
    **dict.fromkeys(("FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3"), batch_norm),
    "MaxPool": max_pool,
    "AvgPool": avg_pool,
    "ResizeBilinear": resize_bilinear,
    "ResizeNearestNeighbor": resize_nearest,
}
