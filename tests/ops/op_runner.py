"""Runs an OpCase on our own registry: attrs completed, shape function asked, kernel bound and called."""

from __future__ import annotations

import asyncio
import inspect
from typing import Any

import numpy as np

import asyncexec.ops  # noqa: F401 - registers the ops
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.kernel import OpKernelConstruction
from asyncexec.framework.kernel_registry import registry as kernel_registry
from asyncexec.framework.op_def import NameAttrList, OpDef
from asyncexec.framework.op_registry import registry as op_registry
from asyncexec.framework.resource_mgr import ResourceMgr
from asyncexec.framework.shape_inference import InferenceContext
from asyncexec.framework.tensor_shape import TensorShape
from asyncexec.framework.types import DType, as_dtype
from tests.ops.op_case import OpCase


def as_input(value: Any) -> Any:
    """A value as it travels along an edge: scalars instead of 0-d arrays."""
    if isinstance(value, bytes):
        return value
    array = np.asarray(value)
    return array[()] if array.ndim == 0 else array


def dtype_of(value: Any) -> DType:
    if isinstance(value, bytes):
        return as_dtype("string")
    dtype = np.asarray(value).dtype
    return as_dtype("string") if dtype.kind == "O" else as_dtype(dtype)


def decode_attr(kind: str, value: Any) -> Any:
    if kind.startswith("list("):
        return tuple(decode_attr(kind[5:-1], item) for item in value)
    if kind == "type":
        return as_dtype(value)
    if kind == "string":
        return value.encode() if isinstance(value, str) else value
    if kind == "shape":
        return TensorShape(value)
    if kind == "func":
        return NameAttrList(value)
    return value


def infer_attrs(op_def: OpDef, case: OpCase) -> dict[str, Any]:
    """The case's attrs, with the type attrs and list lengths that follow from its inputs."""
    attrs = {name: decode_attr(op_def.attrs[name].kind, value) for name, value in case.attrs.items()}
    rest = list(case.inputs)
    for index, arg in enumerate(op_def.inputs):
        if not arg.is_list:
            count = 1
        elif arg.name in case.arg_lengths:
            count = case.arg_lengths[arg.name]
        elif arg.number_attr in attrs:
            count = attrs[arg.number_attr]
        else:
            after = sum(1 for other in op_def.inputs[index + 1 :] if not other.is_list)
            count = len(rest) - after
        taken, rest = rest[:count], rest[count:]
        if arg.number_attr is not None:
            attrs.setdefault(arg.number_attr, count)
        if arg.type_attr is not None and taken:
            attrs.setdefault(arg.type_attr, dtype_of(taken[0]))
        if arg.type_list_attr is not None:
            attrs.setdefault(arg.type_list_attr, tuple(dtype_of(value) for value in taken))
    return op_def.complete_attrs(attrs)


def run_case(case: OpCase, resource_mgr: ResourceMgr | None = None) -> list[Any]:
    """The outputs of the op, checked against its own OpDef and shape function.

    The kernel must leave its inputs as they are.  Raises whatever the op raises, at shape inference (with every input
    known) or when the kernel runs.
    """
    registration = op_registry.lookup(case.op)
    op_def = registration.op_def
    attrs = infer_attrs(op_def, case)
    inputs = [as_input(value) for value in case.inputs]
    input_dtypes, output_dtypes = op_def.input_dtypes(attrs), op_def.output_dtypes(attrs)
    if len(input_dtypes) != len(inputs):
        raise InvalidArgumentError(f"{case.op} takes {len(input_dtypes)} inputs, not {len(inputs)}")
    shapes = [TensorShape(np.shape(value)) for value in inputs]
    known = InferenceContext(op_def, attrs, shapes, input_dtypes, inputs.__getitem__)
    static = list(registration.shape_function(known))
    blind = InferenceContext(op_def, attrs, shapes, input_dtypes)
    vague = list(registration.shape_function(blind))
    blank = InferenceContext(op_def, attrs, [TensorShape(None)] * len(shapes), input_dtypes)
    blank_shapes = list(registration.shape_function(blank))
    resource_mgr = ResourceMgr() if resource_mgr is None else resource_mgr
    construction = OpKernelConstruction(case.op.lower(), op_def, attrs, input_dtypes, output_dtypes, resource_mgr)
    factory = kernel_registry.lookup(case.op, "CPU", attrs).factory
    before = [value.copy() if isinstance(value, np.ndarray) else value for value in inputs]
    with np.errstate(all="ignore"):
        result = factory(construction)(*inputs)
        if inspect.isawaitable(result):
            result = asyncio.run(_finish(result))
    assert all(map(is_same, before, inputs)), f"{case.label}: the kernel has changed an input"
    outputs = list(result) if op_def.returns_tuple and output_dtypes else [result] if output_dtypes else []
    assert len(outputs) == len(output_dtypes), f"{case.label}: {len(outputs)} outputs, not {len(output_dtypes)}"
    for index, (value, dtype) in enumerate(zip(outputs, output_dtypes, strict=True)):
        check_output(case, index, value, dtype, (static[index], vague[index], blank_shapes[index]))
    return outputs


def is_same(one: Any, other: Any) -> bool:
    """Whether two values are alike to the last bit."""
    if not isinstance(one, np.ndarray):
        return True  # it cannot be changed
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    return one.tolist() == other.tolist() if one.dtype.kind == "O" else one.tobytes() == other.tobytes()


async def _finish(awaitable: Any) -> Any:
    with np.errstate(all="ignore"):
        return await awaitable


def check_output(case: OpCase, index: int, value: Any, dtype: DType, shapes: tuple[TensorShape, ...]) -> None:
    where = f"{case.label} output {index}"
    if dtype.is_opaque:
        return
    assert not (isinstance(value, np.ndarray) and value.ndim == 0), f"{where} is a 0-d array, not a scalar"
    if dtype.base_dtype.name == "string":
        assert isinstance(value, bytes) or (value.dtype == object), f"{where}: {type(value)}"
        if isinstance(value, np.ndarray):
            assert all(isinstance(item, bytes) for item in value.flat), f"{where} holds something not bytes"
    else:
        assert isinstance(value, (np.ndarray, np.generic)), f"{where} is a {type(value)}"
        assert value.dtype == dtype.as_numpy_dtype, f"{where} is {value.dtype}, not {dtype}"
    for shape in shapes:
        assert shape.accepts(np.shape(value)), f"{where}: of shape {np.shape(value)}, inferred {shape}"
