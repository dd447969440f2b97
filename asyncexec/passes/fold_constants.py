"""Constant folding: what depends on nothing but constants is computed once, by the same kernels.

After ``tensorflow/core/common_runtime/constant_folding.cc`` and Grappler's ``constant_folding.cc``.  A folded node
becomes a Const of its name, which waits for whatever the constants that it took were waiting for: so it is dead, and in
the frame of a loop, where it would have been before.  The shape of a tensor is a constant where it is known; that
constant waits for the tensor, so that what computes the tensor still runs, and fails, as before.

Only cheap kernels of pure ops are called, and only for as many elements as take a millisecond at most.  A node whose
kernel raises is left as it is: it raises again, in its place, when it runs.  So is one whose array is fetched, or taken
by a user's function: these may write to what is made for them, and a constant is kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from asyncexec.framework.cooperative import STRIDE, Stage
from asyncexec.framework.errors import OpError
from asyncexec.framework.kernel import AsyncKernel, Kernel, KernelKind, OpKernelConstruction
from asyncexec.framework.kernel_registry import registry as kernel_registry
from asyncexec.framework.op_registry import registry as op_registry
from asyncexec.framework.ownership import keeper
from asyncexec.framework.types import DType, as_dtype, variant
from asyncexec.graph.node import Node, NodeProperties, Tensor
from asyncexec.passes.node_facts import is_user_op, nbytes
from asyncexec.passes.pass_graph import PassGraph

_SHAPE_OPS: Final = frozenset({"Shape", "Size", "Rank"})
_MAX_CONTROLS: Final = 8  # of a folded node, so that they do not add up along a chain
_MAX_OUTPUTS: Final = 64
_MAX_TAKERS: Final = 64  # that hand an array on, and are looked at
# Ops that may give the array that they take, or a view of it.
_HAND_ON: Final = frozenset(
    "Identity IdentityN StopGradient PreventGradient Snapshot CheckNumerics EnsureShape Reshape ExpandDims "
    "Squeeze Slice StridedSlice Transpose ConjugateTranspose Bitcast Cast Split SplitV Unpack Concat ConcatV2 "
    "Pack Real Conj AddN Enter RefEnter Exit RefExit NextIteration Switch Merge TensorListFromTensor "
    "TensorListStack TensorListSetItem TensorListPushBack TensorListGetItem BroadcastTo Tile GatherV2 Pad PadV2 "
    "SelectV2 Select Sum Mean Max Min Prod All Any Reverse ReverseV2 SpaceToBatchND BatchToSpaceND".split()
)
_STRING: Final = as_dtype("string")


@dataclass(frozen=True, slots=True)
class FoldLimits:
    """How much may be folded.

    Attributes:
        max_bytes: of one constant, as in TensorFlow (``kMaxConstantSize``).
        max_total_bytes: of all constants that one pass makes.
        max_elements: that one kernel may take and give, so that it is over within a millisecond.
    """

    max_bytes: int = 10 << 20
    max_total_bytes: int = 64 << 20
    max_elements: int = 1 << 17


def fold_constants(graph: PassGraph, limits: FoldLimits | None = None) -> Stage[None]:
    """The pass."""
    return _Folding(graph, limits or FoldLimits()).run()


class _Folding:
    """Folds the constants of one graph."""

    def __init__(self, graph: PassGraph, limits: FoldLimits) -> None:
        self._graph = graph
        self._limits = limits
        self._left = limits.max_total_bytes
        self._constants: set[Node] = set()
        self._kernels: dict[Any, Kernel | None] = {}
        self._const_properties = op_registry.lookup("Const")

    def run(self) -> Stage[None]:
        graph, constants = self._graph, self._constants
        for count, node in enumerate(graph):
            op = node.properties.op
            if op == "Const":
                if not graph.is_fed(node.outputs[0]):
                    constants.add(node)
            elif op in _SHAPE_OPS:
                self._fold_shape(node)
            elif node.inputs:
                for tensor in node.inputs:
                    if tensor.op not in constants:
                        break
                else:
                    self._fold(node)
                    yield
            if not count % STRIDE:
                yield

    def _fold_shape(self, node: Node) -> None:
        tensor, graph = node.inputs[0], self._graph
        source = tensor.op
        value = _known_shape(node, tensor)
        if value is None or self._is_fed(node) or not graph.runs_on_host(node):
            return
        if np.ndim(value) and self._is_given_away(node):
            return
        if graph.is_fed(tensor):
            controls: tuple[Node, ...] = ()
        elif graph.facts.of(source).is_flow or tensor.dtype.is_ref:
            return  # what waits for it need not see what takes something from it
        else:
            controls = source.control_inputs if source in self._constants else (source,)
        self._become_constant(node, value, (*node.control_inputs, *controls))

    def _fold(self, node: Node) -> None:
        graph = self._graph
        facts = graph.facts.of(node)
        if not facts.is_pure or self._is_fed(node) or not graph.runs_on_host(node):
            return
        controls = dict.fromkeys(node.control_inputs)
        for tensor in node.inputs:
            controls.update(dict.fromkeys(tensor.op.control_inputs))
        num_outputs = len(node.properties.output_dtypes)
        if len(controls) > _MAX_CONTROLS or num_outputs > _MAX_OUTPUTS:
            return
        if num_outputs > 1 and (graph.is_kept(node) or not graph.is_taken(node)):
            return
        values = self._evaluate(node)
        if values is None or (any(map(np.ndim, values)) and self._is_given_away(node)):
            return
        if len(values) == 1:
            self._become_constant(node, values[0], tuple(controls))
        else:
            self._replace_outputs(node, values, tuple(controls))

    def _is_fed(self, node: Node) -> bool:
        graph = self._graph
        return graph.is_kept(node) and any(graph.is_fed(tensor) for tensor in node.outputs)

    def _is_given_away(self, node: Node) -> bool:
        """Whether who gets what *node* makes may write to it."""
        graph, seen = self._graph, {node}
        found = [node]
        for each in found:
            if graph.is_kept(each):
                return True
            for taker in graph.consumers(each):
                if is_user_op(taker.properties):
                    return True
                if taker not in seen and _may_hand_on(taker, each):
                    seen.add(taker)
                    found.append(taker)
            if len(found) > _MAX_TAKERS:
                return True
        return False

    def _become_constant(self, node: Node, value: object, controls: Sequence[Node]) -> None:
        properties = self._properties(value, node.properties.output_dtypes[0])
        self._graph.convert(node, properties, (), controls)
        self._constants.add(node)

    def _replace_outputs(self, node: Node, values: Sequence[object], controls: Sequence[Node]) -> None:
        """A constant for each output; the node itself stays if something waits for it."""
        graph, made = self._graph, {}
        for index, (value, dtype) in enumerate(zip(values, node.properties.output_dtypes, strict=True)):
            properties, shape = self._properties(value, dtype), node.output_shapes[index]
            name = f"{node.name}/folded_{index}"
            constant = graph.make(properties, name, (), controls, like=node, shapes=[shape])
            self._constants.add(constant)
            made[index] = constant.outputs[0]
        graph.replace_tensors(node, made)

    def _properties(self, value: object, dtype: DType) -> NodeProperties:
        return NodeProperties(self._const_properties, {"value": keeper(dtype)(value), "dtype": dtype}, (), (dtype,))

    def _evaluate(self, node: Node) -> tuple[Any, ...] | None:
        """The outputs of *node*; None where they cannot be known, or should not be kept."""
        if not self._is_small(node):
            return None
        kernel = self._kernel(node)
        if kernel is None:
            return None
        inputs = [tensor.op.properties.attrs["value"] for tensor in node.inputs]
        try:
            with np.errstate(all="ignore"):
                result = kernel(*inputs)
        except Exception:  # whatever it is, the node raises it again when it runs
            return None
        values = tuple(result) if node.op_def.returns_tuple else (result,)
        if not all(map(_is_right, values, node.properties.output_dtypes, node.output_shapes)):
            return None
        sizes = [nbytes(value) for value in values]
        if max(sizes, default=0) > self._limits.max_bytes or sum(sizes) > self._left:
            return None
        self._left -= sum(sizes)
        return values

    def _is_small(self, node: Node) -> bool:
        """Whether *node* takes and gives little enough, as far as that can be told before it runs."""
        limits, elements = self._limits, 0
        for tensor in node.inputs:
            elements += np.size(tensor.op.properties.attrs["value"])
        for shape, dtype in zip(node.output_shapes, node.properties.output_dtypes, strict=True):
            size = shape.num_elements
            if size is None:
                return False
            elements += size
            if dtype is not _STRING and size * dtype.itemsize > limits.max_bytes:
                return False
        return elements <= limits.max_elements

    def _kernel(self, node: Node) -> Kernel | None:
        """The kernel of *node*, where it is cheap."""
        key = (node.properties, tuple([shape.dims for shape in node.output_shapes]))
        if key not in self._kernels:
            self._kernels[key] = cheap_kernel(node)
        return self._kernels[key]


def cheap_kernel(node: Node) -> Kernel | None:
    """The kernel of *node* on the host, where it is cheap."""
    properties = node.properties
    found = kernel_registry.find(node.op, "CPU", properties.attrs)
    if found is None or found.kind is not KernelKind.CHEAP or found.is_expensive:
        return None
    construction = OpKernelConstruction(
        node.name,
        properties.op_def,
        properties.attrs,
        properties.input_dtypes,
        properties.output_dtypes,
        output_shapes=node.output_shapes,
    )
    try:
        kernel = found.factory(construction)
    except OpError:
        return None
    return None if isinstance(kernel, AsyncKernel) else kernel


def _known_shape(node: Node, tensor: Tensor) -> Any:
    """What *node*, a Shape, Size or Rank, gives of *tensor*; None where that is not known."""
    shape, dtype = tensor.shape, node.properties.output_dtypes[0].as_numpy_dtype
    if shape.rank is None or (node.op != "Rank" and not shape.is_fully_defined):
        return None
    if node.op == "Rank":
        return dtype.type(shape.rank)
    sizes = shape.as_tuple()
    if max(sizes, default=0) > np.iinfo(dtype).max or (shape.num_elements or 0) > np.iinfo(dtype).max:
        return None
    return dtype.type(shape.num_elements) if node.op == "Size" else np.array(sizes, dtype)


def _may_hand_on(taker: Node, node: Node) -> bool:
    """Whether *taker* may give an array of *node*, or a view of it; a shape, say, it only looks at."""
    taken, given = set(node.properties.output_dtypes), set(taker.properties.output_dtypes)
    holds_others = taker.properties.op == "Bitcast" or variant in taken | given
    return taker.properties.op in _HAND_ON and (holds_others or not taken.isdisjoint(given))


def _is_right(value: Any, dtype: DType, shape: Any) -> bool:
    """Whether *value* is what the op promises."""
    got = np.dtype(object) if isinstance(value, bytes) else getattr(value, "dtype", None)
    return got == dtype.as_numpy_dtype and bool(shape.accepts(np.shape(value)))
