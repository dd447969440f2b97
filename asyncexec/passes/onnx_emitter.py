"""Emitter: TensorFlow's nodes -> an OnnxModel, one translation after the other.

Images
------
ONNX has the channels of an image in front of its rows (NCHW), TensorFlow's graphs mostly have them last (NHWC).  A
value of rank 4 is known in one *layout* or in both; a Transpose is emitted when it is first taken in the other.  So
elementwise nodes, which take what they find, stay in NCHW between two convolutions, and transposes are left at the
borders of a cluster only.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final, TypeAlias

import numpy as np

from asyncexec.framework.arrays import Array
from asyncexec.framework.cooperative import Stage
from asyncexec.graph.node import Node, Tensor
from asyncexec.passes.onnx_blocks import HAS_BLOCKS, Blocks
from asyncexec.passes.onnx_fusions import Fuser, needed
from asyncexec.process.onnx_model import FROM_NCHW, OPSET, TO_NCHW, Dims, OnnxModel, OnnxNode, Work

Key: TypeAlias = tuple[Node, int]  # a tensor

_PASSING: Final = frozenset({"Identity", "StopGradient", "PreventGradient"})
_RANK: Final = 4  # of images


class UntranslatableError(Exception):
    """A node is none of those that ONNX has with the same meaning."""


class Emitter:
    """Gathers the nodes of one model.

    Args:
        is_fed: whether the caller gives the value of a tensor, so that its node tells nothing of it.
        variables: values of variables, which are constants of the model.

    Attributes:
        is_fed: as it was given.
        inputs: the tensors from outside that the model takes.
        work: multiplications of a call, roughly.
        serial_work: those of them that are done step by step; step_work: how many are in one step, at most.
    """

    def __init__(self, is_fed: Callable[[Tensor], bool], variables: Mapping[Key, Array] | None = None) -> None:
        self.is_fed = is_fed
        self._variables = variables or {}
        self._nodes: list[OnnxNode] = []
        self._constants: dict[str, Array] = {}
        self._values: dict[Key, dict[bool, str]] = {}  # by whether it is NCHW
        self._dims: dict[str, Dims] = {}
        self._guards: list[str] = []
        self._num_names = 0
        self.inputs: list[Tensor] = []
        self.work: float = 0.0
        self.serial_work: float = 0.0
        self.step_work: float = 0.0

    @property
    def kinds_of_work(self) -> Work:
        """What of the work threads can share."""
        return Work(self.work - self.serial_work, self.serial_work, self.step_work)

    # Constants.

    def constant(self, tensor: Tensor) -> Array | None:
        """The value of *tensor* if it is a constant, behind any Identity; else None."""
        return constant_of(tensor, self.is_fed, self._variables)

    def known(self, tensor: Tensor) -> Array:
        """The value of *tensor*; UntranslatableError where it is not a constant."""
        found = self.constant(tensor)
        if found is None:
            raise UntranslatableError(f"{tensor.name} is not a constant")
        return found

    def axes(self, tensor: Tensor, rank: int) -> list[int]:
        """The axes that *tensor*, a constant, names, each in range(rank)."""
        axes = [int(axis) for axis in self.known(tensor).reshape(-1)]
        require(all(-rank <= axis < rank for axis in axes), "an axis is out of range")
        return [axis % rank for axis in axes]

    def literal(self, value: Any, dtype: Any = None) -> str:
        """The name of a constant."""
        name = self._name()
        self._constants[name] = np.asarray(value, dtype)
        return name

    # Values.

    def is_nchw(self, tensor: Tensor) -> bool:
        """Whether *tensor* is known in NCHW alone."""
        known = self._values.get((tensor.op, tensor.index), {})
        return True in known and False not in known

    def take(self, tensor: Tensor, *, nchw: bool = False) -> str:
        """The name of *tensor* in that layout."""
        known = self._values.setdefault((tensor.op, tensor.index), {})
        if nchw not in known:
            value = self.constant(tensor)
            if value is not None:
                known[nchw] = self.literal(value.transpose(TO_NCHW) if nchw else value)
            elif (not nchw) in known:
                known[nchw] = self.op("Transpose", known[not nchw], perm=TO_NCHW if nchw else FROM_NCHW)
                self._note_dims(known[nchw], tensor, nchw=nchw)
            else:
                known[False] = self._name()
                self.inputs.append(tensor)
                self._note_dims(known[False], tensor, nchw=False)
                return self.take(tensor, nchw=nchw)
        return known[nchw]

    def give(self, node: Node, name: str, *, nchw: bool = False, index: int = 0) -> None:
        """Let *name* be an output of *node*."""
        self._values.setdefault((node, index), {})[nchw] = name
        self._note_dims(name, node.outputs[index], nchw=nchw)

    def op(self, op: str, *inputs: str, **attrs: object) -> str:
        """A node with one output, and the name of that."""
        (name,) = self.ops(op, inputs, 1, **attrs)
        return name

    def ops(self, op: str, inputs: Sequence[str], num_outputs: int, **attrs: object) -> list[str]:
        """A node, and the names of its outputs."""
        names = [self._name() for _ in range(num_outputs)]
        self._nodes.append(OnnxNode(op, tuple(inputs), tuple(names), attrs))
        return names

    def _note_dims(self, name: str, tensor: Tensor, *, nchw: bool) -> None:
        dims = tensor.shape.dims
        if dims is not None:
            self._dims[name] = tuple(dims[axis] for axis in TO_NCHW) if nchw else tuple(dims)

    def guard_nan(self, name: str, *, is_image: bool = False) -> None:
        """Let the outputs of the model hold only where there is no NaN in *name*, of float32, of NCHW if an image."""
        values = self.op("GlobalAveragePool", name) if is_image else name  # as it lies in blocks, by all threads
        self._guards.append(self.op("ReduceSum", values, keepdims=0))

    def model(self, outputs: Sequence[Tensor], opset: int = OPSET) -> Stage[OnnxModel]:
        """The model that gives *outputs*, of nodes of that *opset*, as a stage."""
        names = [self.op("Identity", self.take(tensor)) for tensor in outputs]
        inputs = tuple(
            (name := self._values[tensor.op, tensor.index][False], tensor.dtype.as_numpy_dtype, self._dims.get(name))
            for tensor in self.inputs
        )
        outputs_and_guards = (*names, *self._guards)
        fuser = Fuser(self._nodes, self._constants, self._dims, is_on=opset == OPSET)
        nodes = yield from fuser.nodes(outputs_and_guards)
        sizes = {}
        if HAS_BLOCKS and opset == OPSET:
            blocks = Blocks(
                nodes, self._constants, self._dims, [name for name, _, dims in inputs if dims and dims[0] is None]
            )
            nodes = needed((yield from blocks.nodes(outputs_and_guards)), outputs_and_guards)
            sizes = blocks.sizes
        used = {name for node in nodes for name in node.inputs}
        constants: Mapping[str, Array] = {name: array for name, array in self._constants.items() if name in used}
        return OnnxModel(
            inputs, outputs_and_guards, tuple(nodes), constants, len(self._guards), self.kinds_of_work, opset, sizes
        )

    def _name(self) -> str:
        self._num_names += 1
        return f"t{self._num_names}"


Translation: TypeAlias = Callable[[Emitter, Node], None]


def require(condition: object, why: str) -> None:
    """UntranslatableError unless *condition* holds."""
    if not condition:
        raise UntranslatableError(why)


def rank_of(tensor: Tensor) -> int:
    """The rank of *tensor*; UntranslatableError where it is not known."""
    rank = tensor.shape.rank
    if rank is None:
        raise UntranslatableError(f"the rank of {tensor.name} is not known")
    return rank


def is_image(tensor: Tensor) -> bool:
    """Whether *tensor* has the rank of images."""
    return tensor.shape.rank == _RANK


def dim_of(tensor: Tensor, axis: int) -> int | None:
    """A size of *tensor*, where it is known; UntranslatableError where the rank is, and it has no such axis."""
    dims = tensor.shape.dims
    if dims is None:
        return None
    require(-len(dims) <= axis < len(dims), f"{tensor.name} has no axis {axis}")
    return dims[axis]


def num_elements(tensor: Tensor) -> float:
    """How many elements *tensor* has, if unknown sizes are 1."""
    found = 1.0
    for dim in tensor.shape.dims or ():
        found *= 1 if dim is None else dim
    return found


def constant_of(
    tensor: Tensor, is_fed: Callable[[Tensor], bool], variables: Mapping[Key, Array] | None = None
) -> Array | None:
    """The value of *tensor*, where it is that of a constant or of one of *variables*; else None."""
    origin = origin_of(tensor, is_fed, variables or {})
    if origin is None:
        return None
    if variables and (origin.op, origin.index) in variables:
        return variables[origin.op, origin.index]
    value = origin.op.attrs["value"]
    return np.asarray(value) if isinstance(value, (np.ndarray, np.generic)) else None


def origin_of(tensor: Tensor, is_fed: Callable[[Tensor], bool], variables: Collection[Key]) -> Tensor | None:
    """What *tensor* has its value of, behind any Identity: a constant that waits for nothing, or one of *variables*."""
    while not is_fed(tensor):
        node = tensor.op
        if (node, tensor.index) in variables:
            return tensor
        if node.control_inputs or not (node.op == "Const" or node.op in _PASSING):
            return None
        if node.op == "Const":
            return tensor
        tensor = node.inputs[0]
    return None
