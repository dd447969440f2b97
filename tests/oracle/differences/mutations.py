"""A case that TensorFlow has answered, changed a little: values, dtypes, sizes, indices, attrs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import numpy as np

from asyncexec.framework.op_def import ArgDef, AttrDef, OpDef
from asyncexec.framework.op_registry import registry
from asyncexec.framework.types import as_dtype
from asyncexec.ops.op_list import TensorFlowOps
from tests.ops.op_case import OpCase
from tests.oracle.differences.values import Random, plain, with_edges

DTYPES: Final = (
    "bfloat16 float16 float32 float64 int8 int16 int32 int64 uint8 uint16 uint32 uint64 complex64 complex128 "
    "bool string"
).split()
# Inputs that say how large the result is: the largest numbers there would ask for all of the memory.
SIZES: Final = frozenset({"shape", "size", "dims", "starts", "limits", "deltas", "start", "limit", "delta", "num"})
LISTED: Final = TensorFlowOps()


def as_array(value: Any) -> Any:
    return np.array(value, object) if isinstance(value, bytes) else np.asarray(value)


def arguments(op_def: OpDef, case: OpCase) -> list[ArgDef]:
    """The argument that each input of the case belongs to, as far as the lengths of lists are clear."""
    found: list[ArgDef] = []
    for index, arg in enumerate(op_def.inputs):
        after = sum(1 for other in op_def.inputs[index + 1 :] if not other.is_list)
        count = case.arg_lengths.get(arg.name, len(case.inputs) - len(found) - after) if arg.is_list else 1
        found += [arg] * count
    return found


def is_data(arg: ArgDef, value: Any) -> bool:
    """Whether an input holds values, not sizes, axes or indices: its dtype goes by attr T, or it is no integer."""
    array = as_array(value)
    if arg.name in SIZES:
        return False
    if array.dtype.kind not in "iu":
        return True
    return arg.type_attr in ("T", "dtype", "T1", "Tparams", "SrcT", "Tvalues")


def mutate(case: OpCase, rng: Random) -> OpCase:
    """*case* after one to three changes."""
    for _ in range(int(rng.integers(1, 4))):
        change = MUTATIONS[int(rng.integers(len(MUTATIONS)))]
        case = change(case, registry.lookup(case.op).op_def, rng)
    return replace(case, id="", compare=True)


def _changed(case: OpCase, index: int, value: Any) -> OpCase:
    inputs = [*case.inputs]
    inputs[index] = value
    return replace(case, inputs=inputs)


def _edges(case: OpCase, op_def: OpDef, rng: Random) -> OpCase:
    args = arguments(op_def, case)
    for index, (arg, value) in enumerate(zip(args, case.inputs, strict=False)):
        if is_data(arg, value) and rng.random() < 0.7:
            case = _changed(case, index, with_edges(rng, as_array(value)))
    return case


def _others(case: OpCase, op_def: OpDef, rng: Random) -> OpCase:
    for index, (arg, value) in enumerate(zip(arguments(op_def, case), case.inputs, strict=False)):
        array = as_array(value)
        if is_data(arg, value) and array.dtype != object:
            case = _changed(case, index, plain(rng, array.shape, array.dtype))
    return case


def _dtype(case: OpCase, op_def: OpDef, rng: Random) -> OpCase:
    """Another dtype for all inputs that share a type attr."""
    args = arguments(op_def, case)
    attrs = sorted({arg.type_attr for arg in args if arg.type_attr})
    if not attrs:
        return case
    name = attrs[int(rng.integers(len(attrs)))]
    listed = LISTED.find(case.op)
    allowed = (listed.op_def if listed else op_def).attrs[name].allowed
    names = [dtype for dtype in DTYPES if allowed is None or as_dtype(dtype) in allowed]
    if not names:
        return case
    chosen = as_dtype(names[int(rng.integers(len(names)))])
    for index, (arg, value) in enumerate(zip(args, case.inputs, strict=False)):
        if arg.type_attr == name:
            case = _changed(case, index, _cast(as_array(value), chosen, rng))
    if name in case.attrs:
        case = replace(case, attrs={**case.attrs, name: chosen.name})
    return case


def _cast(array: Any, dtype: Any, rng: Random) -> Any:
    if dtype.name == "string" or array.dtype == object:
        return plain(rng, array.shape, np.dtype(object) if dtype.name == "string" else dtype.as_numpy_dtype)
    with np.errstate(all="ignore"):
        return (array.real if array.dtype.kind == "c" and dtype.as_numpy_dtype.kind != "c" else array).astype(
            dtype.as_numpy_dtype
        )


def _sizes(case: OpCase, op_def: OpDef, rng: Random) -> OpCase:
    """Every axis of one size has another."""
    args = arguments(op_def, case)
    data = [i for i, (arg, value) in enumerate(zip(args, case.inputs, strict=False)) if is_data(arg, value)]
    sizes = sorted({size for i in data for size in np.shape(case.inputs[i]) if size <= 16})
    if not sizes:
        return case
    old, new = sizes[int(rng.integers(len(sizes)))], int(rng.choice([0, 1, 2, 3, 4, 6, 9]))
    for i in data:
        array = as_array(case.inputs[i])
        for axis in [axis for axis, size in enumerate(array.shape) if size == old]:
            array = array.take(np.arange(new) % old, axis) if old else _longer(array, axis, new, rng)
        case = _changed(case, i, array)
    return case


def _longer(array: Any, axis: int, size: int, rng: Random) -> Any:
    return plain(rng, (*array.shape[:axis], size, *array.shape[axis + 1 :]), array.dtype)


def _one_axis(case: OpCase, op_def: OpDef, rng: Random) -> OpCase:
    """One input has an axis more, an axis less, or an axis of one."""
    if not case.inputs:
        return case
    index = int(rng.integers(len(case.inputs)))
    array = as_array(case.inputs[index])
    if array.ndim == 0 or array.size == 0:
        return _changed(case, index, array[None])
    axis = int(rng.integers(array.ndim))
    picked = array.take([0], axis) if rng.random() < 0.6 else array.take(0, axis)
    return _changed(case, index, picked if rng.random() < 0.8 else array[None])


def _index(case: OpCase, op_def: OpDef, rng: Random) -> OpCase:
    """One of the integers that are no data is a little more or less."""
    whole = [
        i
        for i, (arg, value) in enumerate(zip(arguments(op_def, case), case.inputs, strict=False))
        if as_array(value).dtype.kind == "i" and as_array(value).size and not is_data(arg, value)
    ]
    if not whole:
        return _edges(case, op_def, rng)
    index = whole[int(rng.integers(len(whole)))]
    array = np.array(case.inputs[index])
    array.reshape(-1)[int(rng.integers(array.size))] += int(rng.choice([-2, -1, 1, 2]))
    return _changed(case, index, array)


def _attr(case: OpCase, op_def: OpDef, rng: Random) -> OpCase:
    names = [name for name in op_def.attrs if op_def.attrs[name].kind in ("int", "bool", "float", "string")]
    lengths = {arg.number_attr for arg in (*op_def.inputs, *op_def.outputs)}
    names = [name for name in names if name not in lengths]
    if not names:
        return _edges(case, op_def, rng)
    attr = op_def.attrs[names[int(rng.integers(len(names)))]]
    value = _other_value(attr, case.attrs.get(attr.name, attr.default), rng)
    return case if value is None else replace(case, attrs={**case.attrs, attr.name: value})


def _other_value(attr: AttrDef, value: Any, rng: Random) -> Any:
    if attr.kind == "bool":
        return not value
    if attr.kind == "string":
        choices = sorted(attr.allowed or ())
        return choices[int(rng.integers(len(choices)))].decode() if choices else None
    if not isinstance(value, (int, float)):
        return None
    if attr.kind == "int":
        return int(value) + int(rng.choice([-1, 1, 2])) if abs(value) < 1000 else None
    return float(rng.choice([0.0, 1.0, -1.0, 0.3, 1e-3, 2.5, value * 2]))


MUTATIONS: Final[tuple[Callable[[OpCase, OpDef, Random], OpCase], ...]] = (
    _edges,
    _edges,
    _others,
    _dtype,
    _sizes,
    _one_axis,
    _index,
    _attr,
)
