"""``map_fn``, ``scan``, ``foldl`` and ``foldr``: a function applied to the elements of tensors, one after the other.

Names and arguments are those of ``tensorflow/python/ops/map_fn.py`` and ``functional_ops.py``.  They are loops over
TensorArrays; the elements of a tensor are its parts along the first dimension.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeVar, overload

from asyncexec.framework import types
from asyncexec.framework.errors import InvalidArgumentError, InvalidTypeError, OpError
from asyncexec.framework.tensor_shape import SCALAR, UNKNOWN_SHAPE, TensorShape
from asyncexec.framework.types import as_dtype
from asyncexec.frontend.calls import DTypeLike, TensorLike, composite, dtype_of, in_graph_of
from asyncexec.frontend.catching import as_object, catch
from asyncexec.frontend.control_flow_context import LoopContext, LoopVariable, errors_at_caller
from asyncexec.frontend.create_op import as_tensor
from asyncexec.frontend.loops import checked_iterations, next_value
from asyncexec.frontend.math_functions import greater_equal, less
from asyncexec.frontend.nests import flatten, flatten_like, leaves, members, pack
from asyncexec.frontend.tensor_array import TensorArray, length_of
from asyncexec.graph.current_graph import current_graph
from asyncexec.graph.node import Node, Tensor

R = TypeVar("R", "Tensor[Any]", "list[Tensor[Any]]")  # what is mapped, and what comes out, stacked


@overload
def map_fn(
    fn: Callable[[Any], R],
    elems: TensorLike,
    dtype: DTypeLike = None,
    parallel_iterations: int = 10,
    *,
    fn_output_signature: DTypeLike = None,
    on_error: Literal["raise", "yield"] = "raise",
    name: str | None = None,
) -> R: ...
@overload
def map_fn(
    fn: Callable[[Any], Any],
    elems: TensorLike,
    dtype: DTypeLike = None,
    parallel_iterations: int = 10,
    *,
    fn_output_signature: DTypeLike = None,
    on_error: Literal["raise", "yield"] = "raise",
    name: str | None = None,
) -> Any: ...
def map_fn(
    fn: Callable[[Any], Any],
    elems: TensorLike,
    dtype: DTypeLike = None,
    parallel_iterations: int = 10,
    *,
    fn_output_signature: DTypeLike = None,
    on_error: Literal["raise", "yield"] = "raise",
    name: str | None = None,
) -> Any:
    """The results of *fn* for the elements of *elems*, stacked, in order.

    ``map_fn(fetch, urls, parallel_iterations=32)`` has up to 32 calls of an async op under way at once.

    >>> show(ax.map_fn(lambda x: x * x, ax.constant([1, 2, 3])))
    [1 4 9]

    Args:
        fn: takes an element (a nest of elements if *elems* is a nest) and returns a tensor or a nest of tensors.
        elems: a tensor, or a nest of tensors with the same number of elements.
        dtype: the dtype, or nest of dtypes, that *fn* must return; by default any.
        parallel_iterations: the number of elements that may be under way at once.
        fn_output_signature: another name for *dtype*.
        on_error: "raise": a failure of *fn* for one element fails the step.  "yield": the other elements go on, and the
            error (``ax.errors.OpError``) takes the place of the result.
        name: the name scope of the nodes.

    Returns:
        The nest that *fn* returns.  Results of dtype ``ax.object`` are an array of Python objects, and so are all
        results with ``on_error="yield"``.

    Raises:
        InvalidTypeError: *fn* returns no tensors, or another dtype than *dtype*.
        InvalidArgumentError: *elems* are scalars, or have different numbers of elements; *on_error* is unknown.
    """
    with errors_at_caller():
        if on_error not in ("raise", "yield"):
            raise InvalidArgumentError(f"on_error is 'raise' or 'yield', not {on_error!r}")
        signature = dtype if fn_output_signature is None else fn_output_signature
        with composite(name, "map", _tensors_of(elems)) as scope:
            rows = _Rows(elems, scope[:-1])
            sweep = _Sweep(rows, scope[:-1], parallel_iterations)
            with sweep.loop.graph.control_flow_scope(sweep.loop):
                element = sweep.begin()
                if on_error == "yield":
                    result = _result_or_error(fn, element, signature, scope[:-1])
                    outputs = flatten(result)
                else:
                    result = fn(element)
                    outputs = _outputs(result, signature, scope[:-1])
                written = [sweep.collect(output) for output in outputs]
                sweep.end()
            return pack(result, [sweep.stacked(*each) for each in written])


def scan(
    fn: Callable[[Any, Any], Any],
    elems: TensorLike,
    initializer: TensorLike | None = None,
    reverse: bool = False,
    parallel_iterations: int = 10,
    name: str | None = None,
) -> Any:
    """All values of ``a = fn(a, element)`` over the elements of *elems*, stacked.

    >>> show(ax.scan(lambda a, x: a + x, ax.constant([1, 2, 3])))
    [1 3 6]

    Args:
        fn: takes the value so far and an element, and returns the next value.
        elems: a tensor, or a nest of tensors with the same number of elements.
        initializer: the first value; by default the first element, which is then also the first result.
        reverse: whether to begin with the last element; each result has the position of its element.
        parallel_iterations: the number of elements that may be under way at once.
        name: the name scope of the nodes.

    Raises:
        InvalidTypeError, InvalidArgumentError: as of ``while_loop`` with the value as loop variable.
    """
    return _folded(fn, elems, initializer, reverse, parallel_iterations, name or "scan", collects=True)


def foldl(
    fn: Callable[[Any, Any], Any],
    elems: TensorLike,
    initializer: TensorLike | None = None,
    parallel_iterations: int = 10,
    name: str | None = None,
) -> Any:
    """The last value of ``a = fn(a, element)`` over the elements of *elems* from first to last.

    Arguments and errors are those of ``scan``.  Without *initializer*, InvalidArgumentError if there are no elements.

    >>> show(ax.foldl(lambda a, x: a * 10 + x, ax.constant([1, 2, 3])))
    123
    """
    return _folded(fn, elems, initializer, False, parallel_iterations, name or "foldl", collects=False)


def foldr(
    fn: Callable[[Any, Any], Any],
    elems: TensorLike,
    initializer: TensorLike | None = None,
    parallel_iterations: int = 10,
    name: str | None = None,
) -> Any:
    """The last value of ``a = fn(a, element)`` over the elements of *elems* from last to first.

    Arguments and errors are those of ``scan``.  Without *initializer*, InvalidArgumentError if there are no elements.

    >>> show(ax.foldr(lambda a, x: a * 10 + x, ax.constant([1, 2, 3])))
    321
    """
    return _folded(fn, elems, initializer, True, parallel_iterations, name or "foldr", collects=False)


def _folded(
    fn: Callable[[Any, Any], Any],
    elems: TensorLike,
    initializer: TensorLike | None,
    reverse: bool,
    parallel_iterations: int,
    name: str,
    *,
    collects: bool,
) -> object:
    with errors_at_caller(), composite(name, name, [*_tensors_of(elems), *_tensors_of(initializer)]) as scope:
        rows = _Rows(elems, scope[:-1])
        first = rows.read(rows.last if reverse else 0) if initializer is None else initializer
        sweep = _Sweep(rows, scope[:-1], parallel_iterations, reverse=reverse, skips_first=initializer is None)
        initial = [as_tensor(leaf) for leaf in flatten(first)]
        labels = [label for label, _ in leaves(first, "the value")]
        values = [sweep.loop.add_variable(t, _kept_shape(t), label) for t, label in zip(initial, labels, strict=True)]
        arrays = [_array_for(tensor, rows.count) for tensor in initial] if collects else []
        if initializer is None:
            start = rows.last if reverse else 0
            arrays = [array.write(start, tensor) for array, tensor in zip(arrays, initial, strict=False)]
        with sweep.loop.graph.control_flow_scope(sweep.loop):
            element = sweep.begin()
            result = fn(pack(first, [value.current for value in values]), element)
            found = flatten_like(first, result, f"{scope[:-1]!r}: the result of fn", "the initializer")
            following = [next_value(v, None, leaf, scope[:-1]) for v, leaf in zip(values, found, strict=True)]
            for value, tensor in zip(values, following, strict=True):
                sweep.loop.set_next(value, tensor)
            written = [sweep.collect(t, array) for t, array in zip(following, arrays, strict=False)]
            sweep.end()
        if collects:
            return pack(first, [sweep.stacked(*each) for each in written])
        return pack(first, [value.final for value in values])


def _kept_shape(tensor: Tensor) -> TensorShape:
    return UNKNOWN_SHAPE if tensor.dtype.is_opaque else tensor.shape


def _tensors_of(nest: object) -> list[Any]:
    return [nest] if _is_vector_of_values(nest) else flatten(nest)


def _is_vector_of_values(nest: object) -> bool:
    """Whether a list stands for a constant: its members have no elements, so they cannot be a nest of *elems*."""
    return (
        isinstance(nest, (list, tuple))
        and bool(nest)
        and all(isinstance(member, (bool, int, float, complex, str, bytes)) for member in nest)
    )


def _outputs(result: object, signature: object, where: str) -> list[Tensor]:
    """The leaves of what a mapped function gave, as tensors."""
    dtypes: Sequence[Any] = [None] * len(flatten(result))
    if signature is not None:
        dtypes = [as_dtype(dtype) for dtype in flatten_like(result, signature, "dtype", "the result of fn")]
    outputs = []
    for (path, leaf), dtype in zip(leaves(result, "the result of fn"), dtypes, strict=True):
        if isinstance(leaf, (Node, TensorArray)):
            kind = "an operation" if isinstance(leaf, Node) else "a TensorArray"
            raise InvalidTypeError(f"{where!r}: {path} is {kind}, but must be a tensor")
        try:
            outputs.append(as_tensor(leaf, dtype))
        except OpError as error:
            raise type(error)(f"{where!r}: {path}: {error.message}", hint=error.hint) from None
    if not outputs:
        raise InvalidTypeError(f"{where!r}: fn gives no tensor")
    return outputs


def _result_or_error(fn: Callable[[Any], Any], element: object, signature: object, where: str) -> object:
    """The nest that *fn* gives for *element*, as objects, each of which is the error where it fails."""
    result: object = None

    def tried() -> Any:
        nonlocal result
        result = fn(element)
        return pack(result, [as_object(output) for output in _outputs(result, signature, where)])

    return catch(tried, lambda error: pack(result, [error] * len(flatten(result))), name="element")


def _array_for(tensor: Tensor, count: object) -> TensorArray:
    return TensorArray(dtype_of(tensor), count, element_shape=tensor.shape, infer_shape=False)


class _Rows:
    """The elements of a nest of tensors.

    Attributes:
        count: how many there are, an int or an int32 scalar tensor.
    """

    def __init__(self, elems: object, where: str) -> None:
        self._nest = None if _is_vector_of_values(elems) else elems
        tensors = in_graph_of(_tensors_of(elems))
        if not tensors:
            raise InvalidArgumentError(f"{where!r}: elems has no tensors")
        for tensor in tensors:
            if tensor.shape.rank == 0 and not tensor.dtype.is_opaque:
                raise InvalidArgumentError(f"{where!r}: {tensor.name!r} is a scalar and has no elements")
        self.count = _common_length(tensors, where)
        self._arrays = [
            TensorArray(
                dtype_of(tensor),
                self.count,
                element_shape=tensor.shape[1:] if tensor.shape.rank else None,
                infer_shape=False,
            ).unstack(tensor)
            for tensor in tensors
        ]

    @property
    def last(self) -> Any:
        return self.count - 1

    def read(self, index: Any) -> Any:
        """The elements at *index*, in the nest that the tensors are in."""
        elements = [array.read(index) for array in self._arrays]
        return elements[0] if self._nest is None or members(self._nest) is None else pack(self._nest, elements)


def _common_length(tensors: Sequence[Tensor], where: str) -> Any:
    counts = {tensor.shape[0]: tensor for tensor in tensors if tensor.shape.rank and tensor.shape[0] is not None}
    if len(counts) > 1:
        shown = ", ".join(f"{count} ({tensor.name!r})" for count, tensor in counts.items())
        raise InvalidArgumentError(f"{where!r}: elems have different numbers of elements: {shown}")
    return next(iter(counts)) if counts else length_of(tensors[0])


class _Sweep:
    """A loop that goes over rows, and collects what is made of them."""

    def __init__(
        self, rows: _Rows, name: str, parallel_iterations: int, *, reverse: bool = False, skips_first: bool = False
    ) -> None:
        self.loop = LoopContext(current_graph(), name, checked_iterations(parallel_iterations))
        self._rows = rows
        self._reverse = reverse
        first = rows.last if reverse else 0
        if skips_first:
            first = first + (-1 if reverse else 1)
        self._index = self.loop.add_variable(as_tensor(first, types.int32), SCALAR, "the index")

    def begin(self) -> Any:
        """Begin the body: the element of this iteration."""
        index = self._index.merged
        self.loop.decide(greater_equal(index, 0) if self._reverse else less(index, self._rows.count))
        return self._rows.read(self._index.current)

    def end(self) -> None:
        """End the body."""
        self.loop.set_next(self._index, self._index.current + (-1 if self._reverse else 1))

    def collect(self, tensor: Tensor, array: TensorArray | None = None) -> tuple[TensorArray, LoopVariable]:
        """Write *tensor* at the place of this iteration, into *array* or a new one."""
        with self.loop.outside():
            if array is None:
                array = _array_for(tensor, self._rows.count)
            flow = self.loop.add_variable(array.flow, SCALAR, "a TensorArray")
        self.loop.set_next(flow, array.with_state(flow.current).write(self._index.current, tensor).flow)
        return array, flow

    def stacked(self, array: TensorArray, flow: LoopVariable) -> Tensor:
        """What was collected, after the loop."""
        stacked = array.with_state(flow.final).stack()
        if isinstance(self._rows.count, int) and stacked.shape.rank:
            stacked.set_shape([self._rows.count, *stacked.shape[1:]])
        return stacked
