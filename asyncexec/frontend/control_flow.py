"""``cond``, ``switch_case`` and ``case``: branches in the graph, of which one runs.

Names and arguments are those of ``tensorflow/python/ops/cond.py``, ``control_flow_switch_case.py`` and
``control_flow_case.py``; what is built is a Switch for each tensor that a branch takes from outside, and a Merge for
each result.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar, overload

import numpy as np

from asyncexec.framework import types
from asyncexec.framework.errors import InvalidArgumentError, InvalidTypeError, OpError
from asyncexec.framework.types import DType
from asyncexec.frontend.basic_functions import Assert, cast, identity
from asyncexec.frontend.calls import TensorLike, composite, dtype_of, tensors_op
from asyncexec.frontend.control_flow_context import BranchContext, errors_at_caller
from asyncexec.frontend.create_op import TensorSource, as_tensor, object_hint
from asyncexec.frontend.math_functions import add_n, less_equal, maximum, minimum
from asyncexec.frontend.nests import flatten, flatten_like, leaves, pack
from asyncexec.frontend.tensor_array import TensorArray
from asyncexec.graph.current_graph import control_dependencies
from asyncexec.graph.node import Node, Operation, Tensor

BranchFunction: TypeAlias = Callable[[], Any]

# What a branch gives, where a type checker can know that its values are tensors; else it may be anything.
N = TypeVar("N", bound="Tensor[Any] | Operation | list[Tensor[Any]] | tuple[Tensor[Any], ...] | dict[str, Tensor[Any]]")


@overload
def cond(pred: TensorLike, true_fn: Callable[[], N], false_fn: BranchFunction, name: str | None = None) -> N: ...
@overload
def cond(pred: TensorLike, true_fn: BranchFunction, false_fn: BranchFunction, name: str | None = None) -> Any: ...
def cond(pred: TensorLike, true_fn: BranchFunction, false_fn: BranchFunction, name: str | None = None) -> Any:
    """The result of *true_fn* if *pred* is true when the graph runs, else that of *false_fn*.

    Both functions are called now, without arguments, and add nodes.  When the graph runs, only the nodes of the taken
    branch run.  The functions may use tensors from outside.

    >>> x = ax.constant(3)
    >>> show(ax.cond(x > 0, lambda: x * 10, lambda: -x))
    30

    Args:
        pred: a bool scalar.  A Python bool decides at once: only that branch is called.
        true_fn: returns a tensor, an operation, a TensorArray, a value that becomes a constant, or a nest of these.
        false_fn: returns a nest of the same structure, with tensors of the same dtypes.
        name: the name scope of the nodes.

    Returns:
        The nest that true_fn returns, with the values of the taken branch.  Operations in it have run when those of the
        branch have run.  Nodes that a branch adds run only if its result needs them.

    Raises:
        InvalidTypeError: *pred* is no bool, or the branches give different structures or dtypes.
        InvalidArgumentError: *pred* is no scalar.
    """
    with errors_at_caller():
        _check_callable(cond=[("true_fn", true_fn), ("false_fn", false_fn)])
        if isinstance(pred, (bool, np.bool_)):
            return true_fn() if pred else false_fn()
        with composite(name, "cond", [pred]) as scope:
            where = f"cond {scope[:-1]!r}"
            selector = identity(scalar_bool(pred, f"the predicate of {where}"), "pred_id")
            contexts = [BranchContext(f"{branch} of {where}", selector, i, 2) for i, branch in enumerate(_SIDES)]
            return _joined(contexts[::-1], [true_fn, false_fn], list(_SIDES[::-1]), where)


_SIDES = ("false_fn", "true_fn")


@overload
def switch_case(
    branch_index: TensorLike,
    branch_fns: Mapping[int, Callable[[], N]] | Sequence[Callable[[], N]],
    default: BranchFunction | None = None,
    name: str | None = None,
) -> N: ...
@overload
def switch_case(
    branch_index: TensorLike,
    branch_fns: Mapping[int, BranchFunction] | Sequence[BranchFunction],
    default: BranchFunction | None = None,
    name: str | None = None,
) -> Any: ...
def switch_case(
    branch_index: TensorLike,
    branch_fns: Mapping[int, BranchFunction] | Sequence[BranchFunction],
    default: BranchFunction | None = None,
    name: str | None = None,
) -> Any:
    """The result of the function at *branch_index* when the graph runs.

    >>> show(ax.switch_case(ax.constant(1), [lambda: ax.constant("tea"), lambda: ax.constant("bread")]))
    b'bread'

    Args:
        branch_index: an integer scalar.  A Python int decides at once.
        branch_fns: functions as of ``cond``, in a list, or by numbers from 0 on.
        default: the function for a number out of range, by default the last function.
        name: the name scope of the nodes.

    Raises:
        InvalidTypeError, InvalidArgumentError: as of ``cond``; numbers with gaps; no functions.
    """
    with errors_at_caller():
        functions = _numbered(branch_fns)
        labels = [f"branch {i}" for i in range(len(functions))]
        if default is not None:
            functions, labels = [*functions, default], [*labels, "default"]
        _check_callable(switch_case=list(zip(labels, functions, strict=True)))
        last = len(functions) - 1
        if isinstance(branch_index, (int, np.integer)) and not isinstance(branch_index, bool):
            return functions[branch_index if 0 <= branch_index < last else last]()
        with composite(name, "switch_case", [branch_index]) as scope:
            where = f"switch_case {scope[:-1]!r}"
            selector = identity(_branch_number(branch_index, last, where), "branch_index")
            contexts = [
                BranchContext(f"{label} of {where}", selector, i, len(functions)) for i, label in enumerate(labels)
            ]
            return _joined(contexts, functions, labels, where)


@overload
def case(
    pred_fn_pairs: Mapping[object, Callable[[], N]] | Sequence[tuple[TensorLike, Callable[[], N]]],
    default: BranchFunction | None = None,
    exclusive: bool = False,
    name: str | None = None,
) -> N: ...
@overload
def case(
    pred_fn_pairs: Mapping[object, BranchFunction] | Sequence[tuple[TensorLike, BranchFunction]],
    default: BranchFunction | None = None,
    exclusive: bool = False,
    name: str | None = None,
) -> Any: ...
def case(
    pred_fn_pairs: Mapping[object, BranchFunction] | Sequence[tuple[TensorLike, BranchFunction]],
    default: BranchFunction | None = None,
    exclusive: bool = False,
    name: str | None = None,
) -> Any:
    """The result of the function of the first true predicate, or else that of *default*.

    >>> x = ax.constant(7)
    >>> show(ax.case([(x < 5, lambda: x), (x < 10, lambda: x * 10)], default=lambda: -x))
    70

    Args:
        pred_fn_pairs: pairs of a bool scalar and a function as of ``cond``, or a mapping of them.
        default: the function for the case that no predicate is true.  Without it, that case raises
            InvalidArgumentError when the graph runs.
        exclusive: whether several true predicates raise InvalidArgumentError when the graph runs.
        name: the name scope of the nodes.

    Raises:
        InvalidTypeError, InvalidArgumentError: as of ``cond``; no pairs.
    """
    with errors_at_caller():
        pairs: list[Any] = list(pred_fn_pairs.items() if isinstance(pred_fn_pairs, Mapping) else pred_fn_pairs)
        if not pairs or any(not isinstance(pair, (tuple, list)) or len(pair) != 2 for pair in pairs):
            raise InvalidTypeError("case takes pairs of a predicate and a function, one at least")
        _check_callable(case=[(f"function {i}", function) for i, (_, function) in enumerate(pairs)])
        predicates = [predicate for predicate, _ in pairs]
        with composite(name, "case", predicates), control_dependencies(_one_at_most(predicates) if exclusive else []):
            rest = default
            if rest is None:
                predicate, function = pairs.pop()
                rest = _asserting(predicate, function)
            for predicate, function in reversed(pairs):
                rest = _chosen(predicate, function, rest)
            return rest()


def _one_at_most(predicates: Sequence[TensorLike]) -> list[Node]:
    """What fails unless all of *predicates*, or all but one, are false."""
    scalars = [scalar_bool(predicate, "a predicate of case") for predicate in predicates]
    count = add_n([cast(scalar, types.int32) for scalar in scalars])
    message = "case: more than one of the predicates is true, though they are to be exclusive:"
    return [Assert(less_equal(count, 1), [message, *scalars])]


def _chosen(predicate: TensorLike, function: BranchFunction, rest: BranchFunction) -> BranchFunction:
    return lambda: cond(predicate, function, rest)


def _asserting(predicate: TensorLike, function: BranchFunction) -> BranchFunction:
    """*function*, whose results are there only if *predicate* is true."""

    def checked() -> object:
        found = function()
        message = "case: none of the predicates is true, and there is no default"
        with control_dependencies([Assert(predicate, [message])]):
            passed = [leaf if isinstance(leaf, (Node, TensorArray)) else identity(leaf) for leaf in flatten(found)]
        return pack(found, passed)

    return checked


def scalar_bool(value: TensorLike, what: str) -> Tensor:
    """*value* as a tensor of the current graph, if it may be a scalar of bool.

    Raises:
        InvalidTypeError: it is of another dtype.
        InvalidArgumentError: it is no scalar.
    """
    tensor = as_tensor(value)
    if dtype_of(tensor) is not types.bool:
        hint = object_hint(tensor, types.bool) if dtype_of(tensor) is types.object else "compare it"
        raise InvalidTypeError(
            f"{what} is of {dtype_of(tensor).name}, but must be a scalar of bool", node=tensor.op, hint=hint
        )
    if tensor.shape.rank not in (None, 0):
        raise InvalidArgumentError(
            f"{what} is of shape {tensor.shape}, but must be a scalar",
            node=tensor.op,
            hint="use ax.reduce_all or ax.reduce_any; to choose element by element, ax.where",
        )
    return tensor


def _branch_number(index: TensorLike, last: int, where: str) -> Tensor:
    tensor = as_tensor(index)
    dtype = dtype_of(tensor)
    if not dtype.is_integer or tensor.shape.rank not in (None, 0):
        raise InvalidTypeError(
            f"the index of {where} is {dtype.name} of shape {tensor.shape}, but must be a scalar of integers",
            node=tensor.op,
        )
    if dtype is types.int32:
        return tensor
    bounded = minimum(tensor, last)
    return cast(bounded if dtype.is_unsigned else maximum(bounded, -1), types.int32)


def _numbered(functions: Mapping[int, BranchFunction] | Sequence[BranchFunction]) -> list[BranchFunction]:
    if not functions:
        raise InvalidArgumentError("switch_case needs a function to choose from")
    if not isinstance(functions, Mapping):
        return list(functions)
    if set(functions) != set(range(len(functions))):
        raise InvalidArgumentError(
            f"the numbers of switch_case's functions run from 0 on without gaps, and are not {list(functions)}"
        )
    return [functions[i] for i in range(len(functions))]


def _check_callable(**functions: Sequence[tuple[str, object]]) -> None:
    for what, named in functions.items():
        for label, function in named:
            if not callable(function):
                raise InvalidTypeError(
                    f"{label} of {what} is {type(function).__name__} {function!r}, but must be a function",
                    hint="put 'lambda:' before it",
                )


def _joined(
    contexts: Sequence[BranchContext], functions: Sequence[BranchFunction], labels: Sequence[str], where: str
) -> object:
    """Build each function in its context, and merge what they give."""
    graph = contexts[0].graph
    results: list[object] = []
    for context, function in zip(contexts, functions, strict=True):
        with graph.control_flow_scope(context):
            results.append(function())
    first = results[0]
    rows = [
        flatten_like(first, result, f"{where}: the result of {label}", f"that of {labels[0]}")
        for label, result in zip(labels, results, strict=True)
    ]
    paths = [path for path, _ in leaves(first, "result")]
    merged = [
        _Leaf(contexts, labels, f"{where}: {path}").merged(column)
        for path, column in zip(paths, zip(*rows, strict=True), strict=True)
    ]
    return pack(first, merged)


class _Leaf:
    """One place in the nest of results, and what each branch has there."""

    def __init__(self, contexts: Sequence[BranchContext], labels: Sequence[str], where: str) -> None:
        self._contexts = contexts
        self._labels = labels
        self._where = where

    def merged(self, column: Sequence[Any]) -> object:
        first = column[0]
        for kind, what in ((Node, "an operation"), (TensorArray, "a TensorArray")):
            others = [label for label, leaf in zip(self._labels, column, strict=True) if not isinstance(leaf, kind)]
            if others and len(others) < len(column):
                raise InvalidTypeError(f"{self._where} is {what} in one branch, but not in {others[0]}")
        if isinstance(first, Node):
            return self._merge([self._signal(*pair) for pair in zip(self._contexts, column, strict=True)]).op
        if isinstance(first, TensorArray):
            return self._merged_array(first, column)
        return self._merge(self._tensors(column))

    def _tensors(self, column: Sequence[object]) -> list[Tensor]:
        """The leaves as tensors; a plain value becomes a constant of the dtype that a tensor beside it has."""
        known = [leaf for leaf in column if isinstance(leaf, (Tensor, TensorSource))]
        dtype = None if not known else as_tensor_dtype(known[0])
        tensors = [self._tensor(*triple, dtype) for triple in zip(self._contexts, self._labels, column, strict=True)]
        for label, tensor in zip(self._labels, tensors, strict=True):
            if dtype_of(tensor) is not dtype_of(tensors[0]):
                raise InvalidTypeError(
                    f"{self._where} is {dtype_of(tensors[0]).name} in {self._labels[0]}, "
                    f"but {dtype_of(tensor).name} in {label}",
                    node=tensor.op,
                )
        return tensors

    def _tensor(self, context: BranchContext, label: str, leaf: object, dtype: DType | None) -> Tensor:
        is_tensor = isinstance(leaf, (Tensor, TensorSource))
        with context.graph.control_flow_scope(context):
            try:
                return context.capture(as_tensor(leaf, None if is_tensor else dtype))
            except OpError as error:
                error.message = f"{self._where}, in {label}: {error.message}"
                error.args = (str(error),)
                raise

    def _merged_array(self, first: TensorArray, column: Sequence[TensorArray]) -> TensorArray:
        for label, array in zip(self._labels, column, strict=True):
            if array.dtype is not first.dtype:
                raise InvalidTypeError(
                    f"{self._where} is a TensorArray of {first.dtype.name} in {self._labels[0]}, "
                    f"but of {array.dtype.name} in {label}"
                )
        flow = self._merge(self._tensors([array.flow for array in column]))
        if all(array.handle is first.handle for array in column):
            return first.with_state(flow)
        return first.with_state(flow, self._merge(self._tensors([array.handle for array in column])))

    def _signal(self, context: BranchContext, node: Node) -> Tensor:
        with context.graph.control_flow_scope(context), control_dependencies([node]):
            return identity(context.pivot.outputs[0])

    def _merge(self, tensors: Sequence[Tensor]) -> Tensor:
        by_index = sorted(zip(self._contexts, tensors, strict=True), key=lambda pair: pair[0].index)
        return tensors_op("Merge", [[tensor for _, tensor in by_index]])[0]


def as_tensor_dtype(value: Tensor | TensorSource) -> DType:
    """The dtype of *value*, a tensor or what stands for one."""
    dtype: DType = getattr(value, "dtype")  # noqa: B009 - every TensorSource has one
    return dtype.base_dtype
