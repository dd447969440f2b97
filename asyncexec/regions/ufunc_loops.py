"""Where numpy's own loops are: the C functions that its ufuncs call for the elements of arrays.

They stand in the object of each ufunc, as ``numpy/ufuncobject.h`` has it, a part of numpy's C interface; an object that
tells other things of itself there than to Python is none that we know.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, ClassVar, Final, NamedTuple

import numpy as np

from asyncexec.regions.native_emitter import NotNativeError

_HEAD: Final = object.__basicsize__  # of each Python object


class _UfuncObject(ctypes.Structure):
    """What follows the head of a ``PyUFuncObject``, as far as it is needed."""

    _fields_: ClassVar = [
        ("nin", ctypes.c_int),
        ("nout", ctypes.c_int),
        ("nargs", ctypes.c_int),
        ("identity", ctypes.c_int),
        ("functions", ctypes.POINTER(ctypes.c_void_p)),
        ("data", ctypes.POINTER(ctypes.c_void_p)),
        ("ntypes", ctypes.c_int),
        ("reserved", ctypes.c_int),
        ("name", ctypes.c_char_p),
        ("types", ctypes.POINTER(ctypes.c_ubyte)),
    ]


class UfuncLoop(NamedTuple):
    """Addresses: of a function with the arguments (arrays, sizes, strides, data), and of its data."""

    function: int
    data: int


def loop_of(ufunc: np.ufunc, dtypes: Sequence[np.dtype[Any]]) -> UfuncLoop:
    """The loop of *ufunc* for inputs and outputs of these *dtypes*; NotNativeError if it has none for just them."""
    known = _UfuncObject.from_address(id(ufunc) + _HEAD)
    counts = known.nin, known.nout, known.nargs, known.ntypes
    if counts != (ufunc.nin, ufunc.nout, ufunc.nargs, ufunc.ntypes) or known.name != ufunc.__name__.encode():
        raise NotNativeError
    kinds = [[np.dtype(letter) for letter in types.replace("->", "")] for types in ufunc.types]
    if bytes(known.types[: known.nargs * known.ntypes]) != bytes(kind.num for each in kinds for kind in each):
        raise NotNativeError
    if list(dtypes) not in kinds:
        raise NotNativeError
    index = kinds.index(list(dtypes))
    function, data = known.functions[index], known.data[index] if known.data else None
    if function is None:
        raise NotNativeError
    return UfuncLoop(function, data or 0)
