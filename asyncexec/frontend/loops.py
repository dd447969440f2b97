"""``while_loop``: a loop in the graph, whose iterations overlap where nothing in them has to wait.

Names and arguments are those of ``tensorflow/python/ops/while_loop.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, overload

import numpy as np

from asyncexec.framework import types
from asyncexec.framework.arrays import Array
from asyncexec.framework.errors import InvalidArgumentError, InvalidTypeError, OpError
from asyncexec.framework.tensor_shape import UNKNOWN_SHAPE, TensorShape, as_shape
from asyncexec.frontend.calls import TensorLike, composite, dtype_of
from asyncexec.frontend.control_flow import scalar_bool
from asyncexec.frontend.control_flow_context import LoopContext, LoopVariable, errors_at_caller
from asyncexec.frontend.create_op import as_tensor
from asyncexec.frontend.math_functions import less, logical_and
from asyncexec.frontend.nests import flatten, flatten_like, leaves, members, pack
from asyncexec.frontend.tensor_array import TensorArray
from asyncexec.graph.current_graph import current_graph
from asyncexec.graph.node import Node, Tensor

V = TypeVar("V", bound="Tensor[Any] | Array | np.generic | float | str | bytes")  # of a loop variable


@overload
def while_loop(
    cond: Callable[..., object],
    body: Callable[..., object],
    loop_vars: tuple[V, ...],
    *,
    shape_invariants: object = None,
    parallel_iterations: int = 10,
    maximum_iterations: TensorLike | None = None,
    checkpoint: int | None = None,
    name: str | None = None,
) -> tuple[Tensor[Any], ...]: ...
@overload
def while_loop(
    cond: Callable[..., object],
    body: Callable[..., object],
    loop_vars: list[V],
    *,
    shape_invariants: object = None,
    parallel_iterations: int = 10,
    maximum_iterations: TensorLike | None = None,
    checkpoint: int | None = None,
    name: str | None = None,
) -> list[Tensor[Any]]: ...
@overload
def while_loop(
    cond: Callable[[Tensor[Any]], object],
    body: Callable[[Tensor[Any]], object],
    loop_vars: V,
    *,
    shape_invariants: object = None,
    parallel_iterations: int = 10,
    maximum_iterations: TensorLike | None = None,
    checkpoint: int | None = None,
    name: str | None = None,
) -> Tensor[Any]: ...
@overload
def while_loop(
    cond: Callable[..., object],
    body: Callable[..., object],
    loop_vars: object,
    *,
    shape_invariants: object = None,
    parallel_iterations: int = 10,
    maximum_iterations: TensorLike | None = None,
    checkpoint: int | None = None,
    name: str | None = None,
) -> Any: ...
def while_loop(
    cond: Callable[..., object],
    body: Callable[..., object],
    loop_vars: object,
    *,
    shape_invariants: object = None,
    parallel_iterations: int = 10,
    maximum_iterations: TensorLike | None = None,
    checkpoint: int | None = None,
    name: str | None = None,
) -> Any:
    """The loop variables after ``while cond(*loop_vars): loop_vars = body(*loop_vars)``.

    Both functions are called once, now, with tensors that stand for the variables of any iteration.  They may use
    tensors from outside.  An iteration begins as soon as its predicate is known, even if earlier iterations have not
    ended.  Each node runs as soon as its inputs are there.  So calls that do not depend on one another overlap, while
    values that pass from iteration to iteration stay in order.

    >>> i, total = ax.while_loop(lambda i, total: i < 5, lambda i, total: (i + 1, total + i), (0, 0))
    >>> show(i, total)
    5
    10

    Args:
        cond: returns a bool scalar.
        body: returns the loop variables for the next iteration: the same nest, the same dtypes, shapes that fit.
        loop_vars: a nest of tensors, TensorArrays and values that become constants.  The functions get the members of a
            list or tuple as separate arguments, and anything else (a dict, a dataclass, a single tensor) as one
            argument.
        shape_invariants: the same nest of shapes, for variables whose shape changes: the part of the shape that stays
            the same.  By default a variable keeps its first shape.
        parallel_iterations: the number of iterations that may be under way at once.
        maximum_iterations: the largest number of iterations, an integer scalar.
        checkpoint: the variables are stored whenever so many iterations have ended: 1 is after each.  The store is the
            journal of the session, ``ax.Session(graph, journal=store)``.  A run with a ``run_id``, or one that has
            paused, goes on there after a crash; *cond* and *body* of earlier iterations are not computed again.  One
            iteration is under way at a time then, in sessions without a journal, too.  The page *Pauses* tells more.
        name: the name scope of the nodes, and the name of the loop in messages.

    Returns:
        The same nest as *loop_vars*.

    Raises:
        InvalidTypeError: the predicate is no bool, or the body returns another structure or other dtypes.
        InvalidArgumentError: the predicate is no scalar, the body returns a shape that does not fit, there are no
            variables, *parallel_iterations* is less than 1, or *checkpoint* is no number of 1 or more.
    """
    with errors_at_caller():
        for label, function in (("cond", cond), ("body", body)):
            if not callable(function):
                raise InvalidTypeError(f"{label} of while_loop must be a function, not {function!r}")
        with composite(name, "while", [_graph_hint(leaf) for leaf in flatten(loop_vars)]) as scope:
            iterations = checked_iterations(parallel_iterations)
            every = _checked_checkpoint(checkpoint)
            loop = LoopContext(current_graph(), scope[:-1], iterations if every is None else 1)
            return _WhileLoop(loop, loop_vars, shape_invariants, maximum_iterations, every).built(cond, body)


def checked_iterations(parallel_iterations: object) -> int:
    """*parallel_iterations*; InvalidArgumentError unless it is an int of 1 or more."""
    if not isinstance(parallel_iterations, (int, np.integer)) or parallel_iterations < 1:
        raise InvalidArgumentError(f"parallel_iterations is 1 or more, not {parallel_iterations!r}")
    return int(parallel_iterations)


def _checked_checkpoint(checkpoint: object) -> int | None:
    if checkpoint is None:
        return None
    if not isinstance(checkpoint, (int, np.integer)) or isinstance(checkpoint, bool) or checkpoint < 1:
        raise InvalidArgumentError(
            f"checkpoint is a number of iterations of 1 or more, not {checkpoint!r}",
            hint="the store is that of the session: ax.Session(graph, journal=store)",
        )
    return int(checkpoint)


def _graph_hint(leaf: object) -> object:
    return leaf.flow if isinstance(leaf, TensorArray) else leaf


class _WhileLoop:
    """A while_loop while it is being built."""

    def __init__(
        self,
        loop: LoopContext,
        loop_vars: Any,
        shape_invariants: object,
        maximum_iterations: TensorLike | None,
        checkpoint: int | None,
    ) -> None:
        self._loop = loop
        self._checkpoint = checkpoint
        self._where = f"while_loop {loop.name!r}"
        self._nest = loop_vars
        self._is_unpacked = isinstance(loop_vars, (list, tuple))
        self._maximum = None if maximum_iterations is None else self._scalar_integer(maximum_iterations)
        # Before all others, for it is what a loop can run ahead by.
        self._counter = None if self._maximum is None else self._add_counter(self._maximum)
        self._leaves = list(leaves(loop_vars, "loop_vars"))
        if not self._leaves:
            raise InvalidArgumentError(f"{self._where} has no loop variables")
        shapes = self._shapes(shape_invariants)
        self._variables = [self._add(*pair, shape) for pair, shape in zip(self._leaves, shapes, strict=True)]

    def built(self, cond: Callable[..., object], body: Callable[..., object]) -> object:
        loop, variables = self._loop, self._variables
        with loop.graph.control_flow_scope(loop):
            if self._checkpoint is not None:
                loop.add_boundary(self._checkpoint)
            decided = cond(*self._arguments([variable.merged for variable in variables]))
            loop.decide(self._predicate(decided))
            result = body(*self._arguments([variable.current for variable in variables]))
            if self._counter is not None:
                loop.set_next(self._counter, self._counter.current + 1)
            for variable, (_, leaf), value in zip(variables, self._leaves, self._matched(result), strict=True):
                loop.set_next(variable, next_value(variable, leaf, value, self._where))
        return self._packed([variable.final for variable in variables])

    def _add_counter(self, maximum: Tensor) -> LoopVariable:
        zero = as_tensor(0, dtype_of(maximum), "iterations")
        return self._loop.add_variable(zero, zero.shape, "the counter of maximum_iterations")

    def _scalar_integer(self, value: TensorLike) -> Tensor:
        tensor = as_tensor(value, name="maximum_iterations")
        if not dtype_of(tensor).is_integer or tensor.shape.rank not in (None, 0):
            raise InvalidTypeError(
                f"maximum_iterations of {self._where} is {dtype_of(tensor).name} of shape {tensor.shape}, "
                "but must be a scalar of integers"
            )
        return tensor

    def _shapes(self, shape_invariants: Any) -> list[TensorShape | None]:
        if shape_invariants is None:
            return [None] * len(self._leaves)
        nest, invariants = self._nest, shape_invariants
        if self._is_unpacked and isinstance(invariants, (list, tuple)):
            nest, invariants = list(nest), list(invariants)
        found = flatten_like(nest, invariants, "shape_invariants", "loop_vars", exactly=False)
        return [as_shape(shape) for shape in found]

    def _add(self, label: str, leaf: object, invariant: TensorShape | None) -> LoopVariable:
        try:
            tensor = leaf.flow if isinstance(leaf, TensorArray) else as_tensor(leaf)
        except OpError as error:
            raise type(error)(f"{label} of {self._where}: {error.message}", hint=error.hint) from None
        if self._checkpoint is not None and (isinstance(leaf, TensorArray) or dtype_of(tensor) is types.resource):
            raise InvalidTypeError(
                f"{label} of {self._where} is a {'TensorArray' if isinstance(leaf, TensorArray) else 'resource'}, "
                "which no checkpoint can have",
                hint="use a tensor that grows: ax.concat, with shape_invariants=",
            )
        if dtype_of(tensor).is_opaque:
            return self._loop.add_variable(tensor, UNKNOWN_SHAPE, label)
        shape = tensor.shape if invariant is None or isinstance(leaf, TensorArray) else invariant
        if not shape.is_compatible_with(tensor.shape):
            raise InvalidArgumentError(
                f"{label} of {self._where} has the shape {tensor.shape} at first, which does not fit its "
                f"shape invariant {shape}",
                node=tensor.op,
            )
        return self._loop.add_variable(tensor, shape, label)

    def _arguments(self, tensors: list[Tensor]) -> list[object]:
        packed = self._packed(tensors)
        return list(packed) if self._is_unpacked else [packed]

    def _packed(self, tensors: list[Tensor]) -> Any:
        return pack(self._nest, [like(leaf, tensor) for (_, leaf), tensor in zip(self._leaves, tensors, strict=True)])

    def _predicate(self, decided: object) -> Tensor:
        if isinstance(decided, (list, tuple)) and len(decided) == 1:
            decided = decided[0]
        predicate = scalar_bool(decided, f"the predicate of {self._where}")
        if self._counter is None:
            return predicate
        return logical_and(less(self._counter.merged, self._maximum), predicate)

    def _matched(self, result: object) -> list[object]:
        nest = self._nest
        if self._is_unpacked:
            nest = list(nest)
            if len(nest) == 1 and (members(result) is None or not isinstance(result, (list, tuple))):
                result = [result]
            elif isinstance(result, (list, tuple)):
                result = list(result)
        return flatten_like(nest, result, f"{self._where}: the result of body", "the nest of loop_vars")


def like(leaf: object, tensor: Tensor) -> Any:
    """What stands for *leaf* when *tensor* is its value: the tensor, or a TensorArray of that flow."""
    return leaf.with_state(tensor) if isinstance(leaf, TensorArray) else tensor


def next_value(variable: LoopVariable, leaf: object, value: object, where: str) -> Tensor:
    """*value* as the tensor that *variable*, which was *leaf* at first, becomes.

    Raises:
        InvalidTypeError: it is of another dtype, or no tensor.
        InvalidArgumentError: its shape does not fit.
    """
    what = f"{variable.label} of {where}"
    if isinstance(leaf, TensorArray) or isinstance(value, TensorArray):
        return _next_flow(leaf, value, what)
    wanted = dtype_of(variable.merged)
    if isinstance(value, Node):
        raise InvalidTypeError(f"{what} becomes the operation {value.name!r}, but must become a tensor", node=value)
    try:
        tensor = as_tensor(value) if isinstance(value, Tensor) else as_tensor(value, wanted)
    except OpError as error:
        raise type(error)(f"{what} is {wanted.name}: {error.message}", hint=error.hint) from None
    if dtype_of(tensor) is not wanted:
        raise InvalidTypeError(
            f"{what} is {wanted.name} at first, but {dtype_of(tensor).name} after an iteration",
            node=tensor.op,
            hint=f"put ax.cast(x, ax.{wanted.name}) around what body returns" if wanted.is_numeric else None,
        )
    if wanted is not types.object and not variable.shape.is_compatible_with(tensor.shape):
        raise InvalidArgumentError(
            f"{what} has the shape {variable.shape} at first, but {tensor.shape} after an iteration",
            node=tensor.op,
            hint="say what stays the same by shape_invariants=, with None for sizes that change",
        )
    return tensor


def _next_flow(leaf: object, value: object, what: str) -> Tensor:
    if not isinstance(leaf, TensorArray) or not isinstance(value, TensorArray):
        one, other = ("a TensorArray", "something else")[:: 1 if isinstance(leaf, TensorArray) else -1]
        raise InvalidTypeError(f"{what} is {one} at first, but {other} after an iteration")
    if value.handle is not leaf.handle:
        raise InvalidArgumentError(
            f"{what} becomes another TensorArray than it is at first", hint="return what its write() returned"
        )
    return value.flow
