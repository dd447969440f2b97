"""What the nodes of a loop make of its variables, from one round to the next."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np

from asyncexec.framework.arrays import Array
from asyncexec.framework.types import float32
from asyncexec.graph.control_flow_info import ENTERS, MERGES, NEXT_ITERATIONS
from asyncexec.graph.node import Node, Tensor
from asyncexec.passes.fold_constants import cheap_kernel
from asyncexec.passes.node_facts import IDENTITIES
from asyncexec.passes.recurrent_algebra import (
    Columns,
    Sum,
    UnknownFormError,
    activation,
    added,
    constant,
    multiplied,
    product,
    source,
    width,
)


class Outside(NamedTuple):
    """A value from outside of the loop, the same in every round."""

    tensor: Tensor


class Variable(NamedTuple):
    """A variable of the loop, that is no float."""

    merge: Node


class Following(NamedTuple):
    """A number, and one more."""

    variable: Variable


class Limits(NamedTuple):
    """Whether some variables are all less than others, or numbers."""

    pairs: tuple[tuple[Variable, object], ...]


class Read(NamedTuple):
    """The source that the step *at* a variable of *tensor* is; the node *made* cut that into a list or an array."""

    tensor: Tensor
    at: Variable
    made: Node


class Written(NamedTuple):
    """A list in which an element has been replaced, *at* a variable or a number; or an array that *made* is."""

    variable: Variable
    at: object
    value: Sum
    made: Node | None = None


class Matrix(NamedTuple):
    """A matrix of floats, computed in each round."""

    sum: Sum


class Joined(NamedTuple):
    """Matrices side by side, with the numbers of their columns, where these are known."""

    parts: tuple[tuple[Sum, int | None], ...]


# Arrays and numbers are constants.
Known: TypeAlias = Any

_TWO: Final = 2  # axes of what is computed


class Body:
    """The nodes of a loop, each seen once, after its inputs.

    Args:
        pred: of the Switches that let the variables into the next round.
        value_of: the value of a tensor from outside, if it is a constant; else None.
        is_invariant: whether a Merge has the same value in every round.

    Attributes:
        known: by node and output, what it is; of a Merge, what it is before the round.
    """

    def __init__(
        self, pred: Tensor, value_of: Callable[[Tensor], object], is_invariant: Callable[[Node], Tensor | None]
    ) -> None:
        self._pred = pred
        self._value_of = value_of
        self._is_invariant = is_invariant
        self._columns = Columns()
        self.known: dict[tuple[Node, int], Known] = {}

    def add(self, node: Node) -> None:
        """Find out what *node* gives.

        Raises:
            UnknownFormError: it is nothing that a recurrent cell does.
        """
        found = self._of(node)
        for index, known in enumerate(found):
            self.known[node, index] = known

    def of(self, tensor: Tensor) -> Known:
        """What *tensor* is, which a node of the loop takes."""
        key = (tensor.op, tensor.index)
        if key not in self.known:
            raise UnknownFormError(f"nobody knows {tensor.name}")
        return self.known[key]

    def _of(self, node: Node) -> Sequence[Known]:
        if node.op in ENTERS:
            return [self._outside(node.inputs[0])]
        if node.op in MERGES:
            return [self._variable(node)]
        if node.op == "Const":
            return [node.attrs["value"]]
        if node.op in ("NoOp", "ControlTrigger"):
            return []
        inputs = [self.of(tensor) for tensor in node.inputs]
        if node.op in IDENTITIES or node.op in NEXT_ITERATIONS or node.op == "LoopCond":
            return inputs
        if node.op == "Switch" and node.inputs[1] is self._pred:
            return [inputs[0], inputs[0]]
        if all(isinstance(value, (np.ndarray, np.generic)) for value in inputs):
            return _computed(node, inputs)
        form = _FORMS.get(node.op)
        if form is None:
            raise UnknownFormError(f"{node.op} is in no cell")
        found = form(self, node, inputs)
        return found if isinstance(found, list) else [found]

    def _outside(self, tensor: Tensor) -> Known:
        value = self._value_of(tensor)
        return Outside(tensor) if value is None else value

    def _variable(self, merge: Node) -> Known:
        before = self._is_invariant(merge)
        if before is not None:
            return self._outside(before)
        return Matrix(source(merge)) if merge.outputs[0].dtype is float32 else Variable(merge)

    # Forms.

    def _get_item(self, node: Node, inputs: Sequence[Known]) -> Known:
        values, at = inputs[:2]
        _require(isinstance(values, Outside) and isinstance(at, Variable) and node.attrs["element_dtype"] is float32)
        made = values.tensor.op
        _require(made.op == "TensorListFromTensor")
        return Matrix(source(Read(made.inputs[0], at, made)))

    def _read(self, node: Node, inputs: Sequence[Known]) -> Known:
        handle, at, flow = inputs
        _require(isinstance(handle, Outside) and isinstance(at, Variable) and isinstance(flow, Outside))
        made = flow.tensor.op
        _require(made.op == "TensorArrayScatterV3" and made.inputs[0].op is handle.tensor.op)
        _require(node.attrs["dtype"] is float32)
        return Matrix(source(Read(made.inputs[2], at, made)))

    def _write(self, node: Node, inputs: Sequence[Known]) -> Known:
        handle, at, value, flow = inputs
        _require(isinstance(handle, Outside) and isinstance(at, Variable))
        _require(isinstance(value, Matrix) and isinstance(flow, Matrix) and list(flow.sum) == [()])
        merge: Any = next(iter(flow.sum[()].weights), None)
        _require(isinstance(merge, Node) and flow.sum == source(merge))
        return Written(Variable(merge), at, value.sum, handle.tensor.op)

    def _set_item(self, node: Node, inputs: Sequence[Known]) -> Known:
        values, at, value = inputs
        _require(isinstance(values, Variable) and isinstance(value, Matrix))
        _require(isinstance(at, Variable) or is_number(at))
        return Written(values, at, value.sum)

    def _sum(self, node: Node, inputs: Sequence[Known]) -> Known:
        for one, other in (inputs, inputs[::-1]):
            if isinstance(one, Variable):
                _require(is_number(other) and other == 1)
                return Following(one)
        return Matrix(added(*map(_as_sum, inputs)))

    def _difference(self, node: Node, inputs: Sequence[Known]) -> Known:
        one, other = map(_as_sum, inputs)
        return Matrix(added(one, multiplied(constant(-1), other)))

    def _product(self, node: Node, inputs: Sequence[Known]) -> Known:
        return Matrix(multiplied(*map(_as_sum, inputs)))

    def _bias_add(self, node: Node, inputs: Sequence[Known]) -> Known:
        _require(node.attrs["data_format"] == b"NHWC")
        return self._sum(node, inputs)

    def _mat_mul(self, node: Node, inputs: Sequence[Known]) -> Known:
        a, b = inputs
        _require(isinstance(b, np.ndarray) and b.ndim == _TWO and b.dtype == np.float32)
        _require(isinstance(a, (Matrix, Joined)) and not node.attrs["transpose_a"])
        matrix = b.T if node.attrs["transpose_b"] else b
        return Matrix(_joined_product(a, matrix) if isinstance(a, Joined) else product(a.sum, matrix))

    def _concat(self, node: Node, inputs: Sequence[Known]) -> Known:
        *values, axis = inputs
        _require(is_number(axis) and int(axis) in (1, -1))
        given = zip(values, node.inputs, strict=False)
        return Joined(tuple((_as_sum(value), _num_columns(_as_sum(value), tensor)) for value, tensor in given))

    def _activation(self, node: Node, inputs: Sequence[Known]) -> Known:
        return Matrix(activation(node.op, _as_sum(inputs[0])))

    def _split(self, node: Node, inputs: Sequence[Known]) -> Known:
        axis, value = inputs
        _require(is_number(axis) and int(axis) in (1, -1))
        whole, count = width(_as_sum(value)), len(node.outputs)
        _require(whole % count == 0)
        size = whole // count
        return [Matrix(self._columns.of(_as_sum(value), i * size, (i + 1) * size)) for i in range(count)]

    def _strided_slice(self, node: Node, inputs: Sequence[Known]) -> Known:
        value, *bounds = inputs
        _require(all(isinstance(each, np.ndarray) and each.shape == (_TWO,) for each in bounds))
        begin, end, strides = bounds
        masks = {
            name: int(node.attrs[f"{name}_mask"]) for name in ("begin", "end", "ellipsis", "new_axis", "shrink_axis")
        }
        keeps_rows = masks["ellipsis"] == 1 or (not masks["ellipsis"] and masks["begin"] & masks["end"] & 1)
        _require(keeps_rows and not masks["new_axis"] and not masks["shrink_axis"] and (strides == 1).all())
        whole = width(_as_sum(value))
        first = None if masks["begin"] & 2 else int(begin[1])
        last = None if masks["end"] & 2 else int(end[1])
        start, stop, _ = slice(first, last).indices(whole)
        _require(start < stop)
        return Matrix(self._columns.of(_as_sum(value), start, stop))

    def _less(self, node: Node, inputs: Sequence[Known]) -> Known:
        one, other = inputs
        _require(isinstance(one, Variable))
        return Limits(((one, other),))

    def _both(self, node: Node, inputs: Sequence[Known]) -> Known:
        _require(all(isinstance(each, Limits) for each in inputs))
        return Limits(tuple(pair for each in inputs for pair in each.pairs))


_FORMS: Final[Mapping[str, Callable[[Body, Node, Sequence[Known]], Known]]] = {
    "TensorListGetItem": Body._get_item,
    "TensorListSetItem": Body._set_item,
    "TensorArrayReadV3": Body._read,
    "TensorArrayWriteV3": Body._write,
    "ConcatV2": Body._concat,
    "Add": Body._sum,
    "AddV2": Body._sum,
    "BiasAdd": Body._bias_add,
    "Sub": Body._difference,
    "Mul": Body._product,
    "MatMul": Body._mat_mul,
    "Sigmoid": Body._activation,
    "Tanh": Body._activation,
    "Split": Body._split,
    "StridedSlice": Body._strided_slice,
    "Less": Body._less,
    "LogicalAnd": Body._both,
}


def _computed(node: Node, inputs: Sequence[Known]) -> Sequence[Known]:
    """What *node* makes of constants."""
    kernel = cheap_kernel(node)
    if kernel is None:
        raise UnknownFormError(f"{node.op} is not computed before")
    try:
        with np.errstate(all="ignore"):
            result = kernel(*inputs)
    except Exception as error:  # whatever it is, the node raises it when it runs
        raise UnknownFormError(str(error)) from error
    return list(result) if node.op_def.returns_tuple else [result]


def _num_columns(value: Sum, tensor: Tensor) -> int | None:
    """How many columns *value* has, which is what *tensor* gives."""
    sources = [name for affine in value.values() for name in affine.weights]
    read = sources[0] if len(sources) == 1 and isinstance(sources[0], Read) else None
    dims = tensor.shape.dims or (None if read is None else read.tensor.shape.dims)
    return dims[-1] if dims else None


def _joined_product(joined: Joined, matrix: Array) -> Sum:
    """The product of matrices side by side; one of them may have as many columns as the others leave."""
    widths = [columns for _, columns in joined.parts]
    if None in widths:
        _require(widths.count(None) == 1)
        widths[widths.index(None)] = len(matrix) - sum(columns or 0 for columns in widths)
    known = [columns or 0 for columns in widths]
    _require(min(known) > 0 and sum(known) == len(matrix))
    ends = np.cumsum(known)
    found: Sum = {}
    for (value, _), begin, end in zip(joined.parts, ends - known, ends, strict=True):
        found = added(found, product(value, matrix[begin:end]))
    return found


def is_number(known: Known) -> bool:
    """Whether *known* is a constant without axes."""
    return isinstance(known, (np.ndarray, np.generic)) and not np.ndim(known)


def _as_sum(known: Known) -> Sum:
    if isinstance(known, Matrix):
        return known.sum
    if isinstance(known, (np.ndarray, np.generic)) and known.dtype == np.float32:
        return constant(known)
    raise UnknownFormError("it is no matrix of floats")


def _require(condition: object) -> None:
    if not condition:
        raise UnknownFormError("it is in no cell")
