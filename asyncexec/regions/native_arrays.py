"""Small arrays of known shapes in native code: what kernels do to them, as calls of numpy's own loops.

A kernel is called with stand-ins, which take note of what it does to them.  So there is one text of each kernel, and
native code gives the bits that the kernel gives.  A stand-in has an array of its own, which is where native code finds
its numbers, and views of stand-ins are views of these.  What asks for the numbers themselves is not native.

What is unusual, a NaN in an ArgMax or an index out of range, is left to Python.  A kernel that looks for such things
tells by its attribute ``if_usual`` what it does where there are none.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from asyncexec.framework.array_address import address_of
from asyncexec.regions import native_array_text as texts
from asyncexec.regions.native_emitter import LLVM_NAMES, Emitter, NotNativeError, Operand, load, store
from asyncexec.regions.ufunc_loops import UfuncLoop, loop_of

Array: TypeAlias = np.ndarray[Any, Any]

MAX_BYTES: Final = 2**21  # of all that native code of a loop keeps
_MAX_CALLS: Final = 64  # of a loop over elements, for one operation
_ARITHMETIC: Final = frozenset({np.add, np.subtract, np.multiply, np.maximum, np.minimum, np.negative, np.positive})
# In times of a cheap instruction: to call a loop; and in that time: elements of arithmetic, and products.
_CALL, _VECTOR, _PRODUCTS = 30, 8, 20
_REDUCED: Final = frozenset({np.add, np.multiply, np.maximum, np.minimum, np.logical_and, np.logical_or})
# What gives the same whether numpy's scalars do it or a loop of a ufunc.
_SCALAR: Final = frozenset(
    {
        *(np.add, np.subtract, np.multiply, np.true_divide, np.negative, np.absolute, np.maximum, np.minimum),
        *(np.sqrt, np.square, np.less, np.less_equal, np.greater, np.greater_equal, np.equal, np.not_equal),
        *(np.logical_and, np.logical_or, np.logical_not, np.isnan, np.isfinite, np.isinf),
    }
)
_FACTS: Final = frozenset({np.size, np.ndim, np.shape})
_MAX_ROW: Final = 2**12  # numbers: of longer rows numpy takes some at a time


class _Rows(NamedTuple):
    """How a loop is called: so many *times*, where arrays *move* on after each; and with these *sizes* and *steps*."""

    times: int
    moves: Sequence[int]
    sizes: Sequence[int]
    steps: Sequence[int]


class ArrayEmitter(Emitter):
    """Lines of a function that has arrays.

    Attributes:
        kept: what is to live as long as the native code does; helpers: the functions that it calls.
        most_products: multiplications of the largest product of matrices.
    """

    def __init__(self) -> None:
        super().__init__()
        self.kept: list[Array] = []
        self.helpers: dict[str, None] = {}
        self.most_products: int = 0
        self._num_bytes = 0

    def keep(self, array: Array) -> Array:
        """*array*, which native code reads or writes; NotNativeError if that becomes too much."""
        self.kept.append(array)
        self._num_bytes += array.nbytes
        if self._num_bytes > MAX_BYTES or array.dtype.type not in LLVM_NAMES:
            raise NotNativeError
        return array

    def hold(self, array: Array) -> Array:
        """*array*, which is there anyway: a constant, or a view of what is kept."""
        if not any(array is each for each in self.kept):
            self.kept.append(array)
        return array

    def helper(self, *texts: str) -> None:
        """Have the functions of these *texts* in the module."""
        self.helpers.update(dict.fromkeys(texts))

    def number(self, operand: Operand) -> NativeArray:
        """What stands for a scalar."""
        slot = self.keep(np.zeros((), operand.type))
        store(self, operand, pointer(slot))
        return NativeArray(self, slot)

    def operand(self, number: NativeArray) -> Operand:
        """The scalar that *number* stands for."""
        return load(self, number.array.dtype.type, pointer(number.array))

    def copy(self, source: Array, target: Array) -> None:
        """Let *target* have the numbers of *source*."""
        if source.flags.c_contiguous and target.flags.c_contiguous:
            self.helper(texts.MEMCPY)
            self.lines.append(texts.memcpy(pointer(target), pointer(source), source.nbytes))
            self.cost += _CALL
        elif source.dtype == np.bool_:
            self.ufunc(np.logical_or, [source, source, target])
        else:
            self.ufunc(np.positive, [source, target])

    def ufunc(self, ufunc: np.ufunc, operands: Sequence[Array]) -> None:
        """Call *ufunc* for *operands*, of which the last is the output.

        What numpy calls a loop with where one operand is spread over others, or lies otherwise, is its own affair; and
        some loops take a shortcut where an operand is a number (``power``).
        """
        *inputs, out = operands
        is_plain = all(not each.ndim or (each.shape, each.strides) == (out.shape, out.strides) for each in inputs)
        if ufunc not in _SCALAR and len(inputs) > 1 and not is_plain:
            raise NotNativeError
        found = loop_of(ufunc, [each.dtype for each in operands])
        self.loop(found, operands, 1 / _VECTOR if ufunc in _ARITHMETIC else 1)

    def own_loop(self, name: str, text: str, operands: Sequence[Array]) -> None:
        """Call the function *name*, which *text* defines, as if it were one of numpy's."""
        self.helper(text)
        self.loop(name, operands)

    def loop(self, loop: UfuncLoop | str, operands: Sequence[Array], cost: float = 1) -> None:
        """Call *loop* for *operands*, of which the last is the output; an element has this *cost*."""
        out = operands[-1]
        if not out.size:
            return
        if any(np.may_share_memory(each, out) and not _is_same(each, out) for each in operands[:-1]):
            raise NotNativeError
        spread = [np.broadcast_to(each, out.shape) for each in operands[:-1]]
        sizes, strides = _joined(out.shape, [each.strides for each in (*spread, out)])
        *others, times, count = (1, 1, *sizes)
        steps, moves = ([each[-back] if len(each) >= back else 0 for each in strides] for back in (1, 2))
        if not sizes:  # numpy takes a shortcut where a step is 0, which it is of a number alone
            steps = [each.itemsize if each.ndim else 0 for each in operands]
        rows = _Rows(times, moves, [count], steps)
        places = list(itertools.product(*map(range, others[2:])))
        if len(places) > _MAX_CALLS:
            raise NotNativeError
        for place in places:
            offsets = [sum(map(int.__mul__, place, each)) for each in strides]
            self._call(loop, [address_of(each) + offset for each, offset in zip(operands, offsets, strict=True)], rows)
        self.cost += int(out.size * cost)

    def reduce(self, ufunc: np.ufunc, rows: Array, out: Array) -> None:
        """Let *ufunc* take the numbers of each of *rows* one by one, beginning with that in *out*."""
        count, item = rows.shape[1], out.itemsize
        found = loop_of(ufunc, [rows.dtype] * 3)
        walk = _Rows(len(rows), (item, rows.strides[0], item), [count], (0, rows.itemsize, 0))
        self._call(found, [address_of(each) for each in (out, rows, out)], walk)
        self.cost += rows.size

    def product(self, left: Array, right: Array, out: Array) -> None:
        """Multiply matrices, or stacks of them."""
        operands = left, right, out
        found = loop_of(np.matmul, [each.dtype for each in operands])
        if not out.size:
            return
        batch, core = out.shape[:-2], (out.shape[-2], left.shape[-1], out.shape[-1])
        stacks = [np.broadcast_to(each, (*batch, *each.shape[-2:])) for each in operands]
        sizes, strides = _joined(batch, [each.strides[:-2] for each in stacks])
        if len(sizes) > 1:
            raise NotNativeError
        times, moves = sizes[0] if sizes else 1, [each[0] if each else 0 for each in strides]
        steps = [0, 0, 0, *(step for each in operands for step in each.strides[-2:])]
        self._call(found, [address_of(each) for each in operands], _Rows(times, moves, (1, *core), steps))
        self.most_products = max(self.most_products, math.prod(core))
        self.cost += times * math.prod(core) // _PRODUCTS

    def _call(self, loop: UfuncLoop | str, starts: Sequence[int], rows: _Rows) -> None:
        """Call *loop* for all of *rows*, of arrays that begin at *starts*."""
        self.helper(texts.REPEATED)
        function, data = (f"@{loop}", 0) if isinstance(loop, str) else (_at(loop.function), loop.data)
        tables = map(self._table, (starts, rows.moves, rows.sizes, rows.steps))
        pointers = ", ".join(f"ptr {each}" for each in (function, _at(data), *map(_at, tables)))
        self.lines.append(f" call void @repeated({pointers}, i64 {len(starts)}, i64 {rows.times})")
        self.cost += _CALL * rows.times

    def _table(self, numbers: Sequence[int]) -> int:
        return address_of(self.keep(np.array(numbers, np.int64)))


def pointer(array: Array) -> str:
    """What stands for the address of *array* in the text."""
    return _at(address_of(array))


def _at(place: int) -> str:
    return f"inttoptr (i64 {place} to ptr)"


def _is_same(one: Array, other: Array) -> bool:
    return (address_of(one), one.shape, one.strides) == (address_of(other), other.shape, other.strides)


def _joined(shape: Sequence[int], strides: Sequence[Sequence[int]]) -> tuple[tuple[int, ...], list[tuple[int, ...]]]:
    """Sizes and strides with as few dimensions as may be, as numpy goes over them: the closest elements last."""
    order = [axis for axis, size in enumerate(shape) if size != 1]
    order.sort(key=lambda axis: -abs(strides[-1][axis]))
    sizes: list[int] = []
    found: list[list[int]] = []  # by dimension
    for axis in order:
        here = [each[axis] for each in strides]
        if found and found[-1] == [step * shape[axis] for step in here]:
            sizes[-1] *= shape[axis]
            found[-1] = here
        else:
            sizes.append(shape[axis])
            found.append(here)
    return tuple(sizes), [tuple(dimension[index] for dimension in found) for index in range(len(strides))]


class NativeArray(np.lib.mixins.NDArrayOperatorsMixin):
    """Stands for an array: what is done to it becomes native code.

    Attributes:
        array: where the numbers are.
    """

    def __init__(self, to: ArrayEmitter, array: Array) -> None:
        self._to = to
        self.array = array

    def _like(self, array: Array) -> NativeArray:
        """A view of it; a copy would not have its numbers."""
        if array.size and not np.may_share_memory(array, self.array):
            raise NotNativeError
        return NativeArray(self._to, array)

    def _new(self, array: Array) -> NativeArray:
        return NativeArray(self._to, self._to.keep(array))

    # What kernels ask for.

    @property
    def shape(self) -> tuple[int, ...]:
        shape: tuple[int, ...] = self.array.shape
        return shape

    @property
    def ndim(self) -> int:
        return self.array.ndim

    @property
    def size(self) -> int:
        return self.array.size

    @property
    def nbytes(self) -> int:
        return self.array.nbytes

    @property
    def itemsize(self) -> int:
        return self.array.itemsize

    @property
    def dtype(self) -> np.dtype[Any]:
        dtype: np.dtype[Any] = self.array.dtype
        return dtype

    @property
    def flags(self) -> Any:
        return self.array.flags

    @property
    def T(self) -> NativeArray:  # noqa: N802 - as numpy has it
        return self._like(self.array.T)

    def __len__(self) -> int:
        return len(self.array)

    def __getitem__(self, where: object) -> NativeArray:
        places = where if isinstance(where, tuple) else (where,)
        if not all(each is None or each is Ellipsis or isinstance(each, (int, np.integer, slice)) for each in places):
            raise NotNativeError
        rest = () if any(each is Ellipsis for each in places) else (Ellipsis,)  # without one, a number would be a copy
        return self._like(self.array[(*places, *rest)])

    def reshape(self, *shape: object) -> NativeArray:
        return self._like(self.array.reshape(*shape))

    def transpose(self, *axes: Any) -> NativeArray:
        return self._like(self.array.transpose(*axes))

    def swapaxes(self, one: int, other: int) -> NativeArray:
        return self._like(self.array.swapaxes(one, other))

    def astype(self, dtype: Any, *, copy: bool = True) -> NativeArray:
        wanted = np.dtype(dtype)
        if wanted == self.dtype and not copy:
            return self
        made = self._new(np.zeros_like(self.array, wanted))  # in the same order
        if wanted == self.dtype:
            self._to.copy(self.array, made.array)
        else:
            self._to.own_loop(*texts.conversion(self.dtype.type, wanted.type), [self.array, made.array])
        return made

    def argmax(self, axis: int) -> NativeArray:
        return self._search(axis, "argmax")

    def argmin(self, axis: int) -> NativeArray:
        return self._search(axis, "argmin")

    def _search(self, axis: int, which: str) -> NativeArray:
        """The first of the largest or smallest numbers of each row; one with a NaN is left to Python."""
        if not self.array.flags.c_contiguous or normalize_axis_index(axis, self.ndim) != self.ndim - 1 or not self.size:
            raise NotNativeError
        made = self._new(np.zeros(self.shape[:-1], np.int64))
        name, parts = texts.search(self.dtype.type, which)
        self._to.helper(*parts)
        count = self.shape[-1]
        ends = f"ptr {pointer(self.array)}, ptr {pointer(made.array)}"
        self._to.bail_if(self._to.value(f"call i1 @{name}({ends}, i64 {self.size // count}, i64 {count})"))
        self._to.cost += _CALL * made.size + self.size // 2
        return made

    def take(self, indices: object, axis: int = 0) -> NativeArray:
        """The parts at *indices* along the first axis; one out of range is left to Python."""
        return _take(self._to, self.array, indices, axis)

    # What numpy is asked to do.

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> NativeArray:
        (out,) = options.pop("out", (None,))
        if method == "reduce" and out is None and ufunc in _REDUCED:
            return self._reduced(ufunc, *inputs, **options)
        if method != "__call__" or options or ufunc.nout != 1 or not (out is None or isinstance(out, NativeArray)):
            raise NotNativeError
        arrays = [each.array if isinstance(each, NativeArray) else each for each in inputs]
        if not all(isinstance(each, (np.ndarray, np.generic)) or type(each) in (int, float) for each in arrays):
            raise NotNativeError
        if ufunc not in _SCALAR and not any(map(np.ndim, arrays)):
            raise NotNativeError
        with np.errstate(all="ignore"):
            result = np.asarray(ufunc(*arrays) if out is None else ufunc(*arrays, out=out.array))
        made = self._new(result) if out is None else out
        if ufunc.signature is not None:
            if ufunc is not np.matmul or any(np.ndim(each) < 2 for each in arrays):
                raise NotNativeError
            left, right = map(self._to.hold, arrays)
            self._to.product(left, right, made.array)
        else:
            dtype = next(each.dtype for each in arrays if isinstance(each, (np.ndarray, np.generic)))
            given = [_of_dtype(each, dtype) for each in arrays]
            self._to.ufunc(ufunc, [*map(self._to.hold, given), made.array])
        return made

    def _reduced(self, ufunc: np.ufunc, x: NativeArray, axis: Any = 0, **options: Any) -> NativeArray:
        """One number of each row, which is of the last dimensions."""
        if not options.keys() <= {"dtype", "keepdims", "initial"}:
            raise NotNativeError
        axes = tuple(range(x.ndim) if axis is None else np.atleast_1d(axis).tolist())
        rest = x.ndim - len(axes)
        with np.errstate(all="ignore"):
            result = np.asarray(ufunc.reduce(x.array, axes, **options))
        is_last = sorted(normalize_axis_index(each, x.ndim) for each in axes) == list(range(rest, x.ndim))
        if not is_last or not x.size or not x.array.flags.c_contiguous or result.dtype != x.dtype:
            raise NotNativeError
        rows = x.array.reshape(result.size, -1)
        if rows.shape[1] > _MAX_ROW:
            raise NotNativeError
        first = np.full_like(result, options.get("initial", ufunc.identity))
        made = self._new(result)
        self._to.copy(self._to.keep(first), made.array)
        self._to.reduce(ufunc, rows, made.array.reshape(-1))
        return made

    def __array_function__(self, function: Callable[..., Any], _: Any, inputs: Any, options: Any) -> Any:
        if function in _FACTS and not options and len(inputs) == 1:
            return function(self.array)
        if function is np.concatenate and len(inputs) <= 2 and set(options) <= {"axis"}:
            return _concatenate(self._to, *inputs, **options)
        if function is np.where and not options and len(inputs) == 3:
            return _choose(self._to, inputs)
        raise NotNativeError

    # What would ask for the numbers.

    def __array__(self, *_: object, **__: object) -> Array:
        raise NotNativeError

    def __iter__(self) -> Iterator[Any]:
        raise NotNativeError

    def __bool__(self) -> bool:
        raise NotNativeError

    def __getattr__(self, name: str) -> Any:
        raise NotNativeError


def _of_dtype(value: object, dtype: np.dtype[Any]) -> Array:
    """*value* as an array; Python's numbers have no dtype of their own."""
    if type(value) is float and dtype.kind != "f":
        raise NotNativeError
    return np.asarray(value, dtype) if type(value) in (int, float) else np.asarray(value)


def _concatenate(to: ArrayEmitter, parts: Sequence[object], axis: int = 0) -> NativeArray:
    arrays = [part.array if isinstance(part, NativeArray) else to.hold(np.asarray(part)) for part in parts]
    made = NativeArray(to, to.keep(np.concatenate(arrays, axis)))
    if any(array.dtype != made.dtype for array in arrays):
        raise NotNativeError
    ends = list(itertools.accumulate(array.shape[axis] for array in arrays))
    axis = normalize_axis_index(axis, made.ndim)
    for array, end in zip(arrays, ends, strict=True):
        here = (*(slice(None),) * axis, slice(end - array.shape[axis], end))
        to.copy(array, made.array[here])
    return made


def _choose(to: ArrayEmitter, inputs: Sequence[object]) -> NativeArray:
    arrays = [to.hold(np.asarray(each.array if isinstance(each, NativeArray) else each)) for each in inputs]
    made = NativeArray(to, to.keep(np.where(*arrays)))
    if arrays[0].dtype != np.bool_ or any(array.dtype != made.dtype for array in arrays[1:]):
        raise NotNativeError
    to.own_loop(*texts.choice(made.dtype.type), [*arrays, made.array])
    return made


def _take(to: ArrayEmitter, params: Array, indices: object, axis: int) -> NativeArray:
    if not isinstance(indices, NativeArray) or normalize_axis_index(axis, params.ndim) or not indices.ndim:
        raise NotNativeError
    places = indices.array
    if not (params.flags.c_contiguous and places.flags.c_contiguous) or places.dtype.type not in (np.int32, np.int64):
        raise NotNativeError
    made = NativeArray(to, to.keep(np.zeros((*places.shape, *params.shape[1:]), params.dtype)))
    row = params.nbytes // max(1, len(params))
    name, text = texts.take(places.dtype.type)
    to.helper(texts.MEMCPY)
    to.helper(text)
    ends = f"ptr {pointer(params)}, ptr {pointer(places)}, ptr {pointer(made.array)}"
    to.bail_if(to.value(f"call i1 @{name}({ends}, i64 {row}, i64 {len(params)}, i64 {places.size})"))
    to.cost += _CALL + made.nbytes // 64 + places.size
    return made
