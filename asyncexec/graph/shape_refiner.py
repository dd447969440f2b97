"""Shapes of the outputs of each node, and the values that are known before anything runs.

After ``tensorflow/core/common_runtime/shape_refiner.cc`` and ``eval_const_tensor.cc``: a shape function may ask for the
constant value of an input, or for what is known of a shape that an input spells.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from asyncexec.framework.errors import InvalidArgumentError, OpError
from asyncexec.framework.kernel import AsyncKernel, KernelKind, OpKernelConstruction
from asyncexec.framework.kernel_registry import registry as kernel_registry
from asyncexec.framework.shape_inference import InferenceContext
from asyncexec.framework.tensor_shape import MAX_RANK, UNKNOWN_SHAPE, Dim, TensorShape, unknown_shape
from asyncexec.graph.node import Node, NodeProperties, Tensor

# Only small values matter to shapes: nothing larger is computed while a graph is built.
MAX_CONSTANT_ELEMENTS: Final = 1024
MAX_DEPTH: Final = 32
_SIZED_BY_VALUES: Final = frozenset("Range Fill BroadcastTo Tile Pad ScatterNd DynamicStitch".split())
_PURE_SHAPE_OPS: Final = frozenset(
    "Add AddV2 Sub Mul Neg Minimum Maximum FloorDiv FloorMod RealDiv Cast Identity Pack Unpack Concat ConcatV2 Slice "
    "StridedSlice Range Fill ZerosLike OnesLike ExpandDims Squeeze Reshape Gather GatherV2 Prod Sum Min Max ScatterNd "
    "BroadcastArgs Select SelectV2 Less Greater Equal NotEqual LessEqual GreaterEqual Ceil Floor Tile "
    "Split SplitV Transpose InvertPermutation ListDiff DynamicStitch LogicalAnd LogicalOr LogicalNot Where "
    "BroadcastTo ReverseV2 Pad Mod Square StopGradient".split()
)


_MAX_TOLD: Final = 4  # shapes in an error


class ShapeRefiner:
    """Infers the output shapes of nodes as they are added to a graph."""

    def __init__(self) -> None:
        self._memo: dict[tuple[object, ...], tuple[TensorShape, ...]] = {}
        self._values: dict[tuple[Node, int], object] = {}
        self._partial_shapes: dict[tuple[Node, int], TensorShape] = {}

    def infer(self, node: Node) -> None:
        """Set ``node.output_shapes``; InvalidArgumentError, naming the node, when its inputs cannot fit."""
        properties = node.properties
        key = (properties, *[tensor.op.output_shapes[tensor.index].dims for tensor in node.inputs])
        known = self._memo.get(key)
        if known is not None:
            node.output_shapes = known
            return
        shapes = [tensor.shape for tensor in node.inputs]
        context = InferenceContext(
            properties.registration.op_def,
            properties.attrs,
            shapes,
            properties.input_dtypes,
            lambda index: self.constant_value(node.inputs[index]),
            lambda index: self.partial_shape(node.inputs[index]),
        )
        try:
            inferred = tuple(properties.registration.shape_function(context))
        except OpError as error:
            if error.hint is None and 0 < len(shapes) <= _MAX_TOLD:
                error.hint = f"its inputs are of shapes {', '.join(map(str, shapes))}"
            raise error.locate(node) from None
        except Exception as error:
            raise InvalidArgumentError(f"its output shapes cannot be inferred: {error}", node=node) from error
        num_outputs = len(properties.output_dtypes)
        if len(inferred) != num_outputs:
            told = f"its shape function gives {len(inferred)} shapes, but it has {num_outputs} outputs"
            raise InvalidArgumentError(told, node=node, hint="do its attrs contradict each other?")
        node.output_shapes = inferred
        if not context.values_were_read and properties.op != "Const":
            self._memo[key] = inferred

    def constant_value(self, tensor: Tensor, depth: int = 0) -> Any | None:
        """The value of *tensor* where it is known without running anything and is small, else None."""
        node = tensor.op
        if node.op == "Const":
            return node.attrs["value"]
        if node.op in ("Shape", "Size", "Rank", "ShapeN"):
            return _shape_value(node, tensor.index)
        if node.op not in _PURE_SHAPE_OPS or depth >= MAX_DEPTH:
            return None
        key = (node, tensor.index)
        if key not in self._values:
            self._values[key] = self._evaluate(node, tensor.index, depth)
        return self._values[key]

    def _evaluate(self, node: Node, index: int, depth: int) -> object | None:
        if any(
            (size := shape.num_elements) is not None and size > MAX_CONSTANT_ELEMENTS for shape in node.output_shapes
        ):
            return None
        inputs = []
        for source in node.inputs:
            value = self.constant_value(source, depth + 1)
            if value is None or np.size(value) > MAX_CONSTANT_ELEMENTS:
                return None
            inputs.append(value)
        if node.op in _SIZED_BY_VALUES and not node.output_shapes[0].is_fully_defined:
            return None
        return _run_kernel(node.properties, inputs, index)

    def partial_shape(self, tensor: Tensor, depth: int = 0) -> TensorShape:
        """What is known of the shape that the integer vector *tensor* spells; nothing of one too long to be a shape."""
        key = (tensor.op, tensor.index)
        known = self._partial_shapes.get(key)
        if known is None:
            known = self._partial_shapes[key] = self._spelled_shape(tensor, depth)
        return known

    def _spelled_shape(self, tensor: Tensor, depth: int) -> TensorShape:
        node = tensor.op
        value = self.constant_value(tensor)
        if value is not None:
            if np.size(value) > MAX_RANK:
                return UNKNOWN_SHAPE
            return TensorShape(None if size < 0 else int(size) for size in np.atleast_1d(value))
        if depth < MAX_DEPTH:
            match node.op:
                case "Shape" | "ShapeN":
                    return node.inputs[tensor.index].shape
                case "Cast" | "Identity":
                    return self.partial_shape(node.inputs[0], depth + 1)
                case "Pack":
                    return TensorShape(self._partial_dim(source, depth + 1) for source in node.inputs)
                case "ConcatV2" | "Concat":
                    parts = node.inputs[:-1] if node.op == "ConcatV2" else node.inputs[1:]
                    return self._joined(parts, depth + 1)
                case "StridedSlice":
                    return self._sliced(node, depth + 1)
        return _as_long_as(tensor.shape)

    def _partial_dim(self, tensor: Tensor, depth: int) -> Dim:
        value = self.constant_value(tensor)
        if value is not None:
            size = int(np.asarray(value).reshape(-1)[0])
            return None if size < 0 else size
        node = tensor.op
        if node.op in ("Cast", "Identity") and depth < MAX_DEPTH:
            return self._partial_dim(node.inputs[0], depth + 1)
        if node.op == "StridedSlice" and node.get_attr("shrink_axis_mask") == 1:
            source, begin = self.partial_shape(node.inputs[0], depth), self.constant_value(node.inputs[1])
            if source.dims is not None and begin is not None and np.size(begin) == 1:
                index = int(np.asarray(begin).reshape(-1)[0])
                return source.dims[index] if -len(source.dims) <= index < len(source.dims) else None
        return None

    def _joined(self, parts: Sequence[Tensor], depth: int) -> TensorShape:
        joined = TensorShape(())
        for part in parts:
            joined = joined.concatenate(self.partial_shape(part, depth))
        return joined

    def _sliced(self, node: Node, depth: int) -> TensorShape:
        masks = ("ellipsis_mask", "new_axis_mask", "shrink_axis_mask")
        bounds = [self.constant_value(source) for source in node.inputs[1:]]
        if any(bound is None or np.size(bound) != 1 for bound in bounds) or any(node.get_attr(mask) for mask in masks):
            return _as_long_as(node.output_shapes[0])
        begin, end, stride = (int(np.asarray(bound).reshape(-1)[0]) for bound in bounds)
        whole = self.partial_shape(node.inputs[0], depth)
        if whole.dims is None:
            return _as_long_as(node.output_shapes[0])
        first = None if node.get_attr("begin_mask") & 1 else begin
        last = None if node.get_attr("end_mask") & 1 else end
        return whole[first:last:stride]  # type: ignore[no-any-return]


def _as_long_as(vector: TensorShape) -> TensorShape:
    """A shape of unknown sizes, of the rank that a vector of that shape spells; a longer one may be sliced yet."""
    rank = vector[0] if vector.rank == 1 else None
    return UNKNOWN_SHAPE if rank is None or rank > MAX_RANK else unknown_shape(rank)


def _shape_value(node: Node, index: int) -> Any | None:
    shape = node.inputs[index].shape
    if shape.rank is None or (node.op != "Rank" and not shape.is_fully_defined):
        return None
    if node.op == "Rank":
        return np.int32(shape.rank)
    np_dtype = node.properties.output_dtypes[0].as_numpy_dtype
    if node.op == "Size":
        return np_dtype.type(shape.num_elements)
    return np.array(shape.as_tuple(), np_dtype)


def _run_kernel(properties: NodeProperties, inputs: list[object], index: int) -> Any | None:
    op_def = properties.op_def
    try:
        registration = kernel_registry.lookup(op_def.name, "CPU", properties.attrs)
        kernel = registration.factory(
            OpKernelConstruction(
                "constant", op_def, properties.attrs, properties.input_dtypes, properties.output_dtypes
            )
        )
        if isinstance(kernel, AsyncKernel) or registration.kind is KernelKind.ASYNC:
            return None
        with np.errstate(all="ignore"):
            result = kernel(*inputs)
    except Exception:
        return None  # it will fail with the same error, and a better place to name, when the graph runs
    return result[index] if op_def.returns_tuple else result
