"""Ops that give, pass or take a value as it is: constants, placeholders, identities, arguments, sends.

Rules from ``tensorflow/core/ops/array_ops.cc``, ``no_op.cc``, ``function_ops.cc`` and ``sendrecv_ops.cc``.  ``_Send``,
``_Recv`` and their host forms have no kernels: what they do depends on the step that runs them.  An ``_Arg`` of a graph
is fed, as a placeholder is; those of a function that is called are in ``calling.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

import numpy as np

from asyncexec.framework.errors import AbortedError, InvalidArgumentError
from asyncexec.framework.kernel import Kernel, OpKernelConstruction, do_nothing, pass_on
from asyncexec.framework.kernel_registry import register_function, register_kernel
from asyncexec.framework.op_registry import register_op
from asyncexec.framework.shape_inference import InferenceContext, no_outputs, unchanged, unknown
from asyncexec.framework.tensor_shape import SCALAR, TensorShape
from asyncexec.framework.types import DType, as_dtype
from asyncexec.framework.types import object as object_dtype


def pass_all_through(*values: object) -> tuple[object, ...]:
    """The values themselves."""
    return values


def _holds(dtype: DType, value: object) -> bool:
    if isinstance(value, bytes):
        return dtype is as_dtype("string")
    return bool(np.asarray(value).dtype == dtype.as_numpy_dtype)


def _const_shape(c: InferenceContext) -> Sequence[TensorShape]:
    value, dtype = c.attr("value"), c.attr("dtype")
    if dtype is object_dtype:
        return [SCALAR]
    if not _holds(dtype, value):
        got = "string" if isinstance(value, bytes) else np.asarray(value).dtype.name
        raise InvalidArgumentError(f"Inconsistent types: attr dtype is {dtype.name}, but the value is {got}")
    return [TensorShape(np.shape(value))]


def _declared_shape(c: InferenceContext) -> Sequence[TensorShape]:
    return [c.attr("shape")]


def _default_shape(c: InferenceContext) -> Sequence[TensorShape]:
    declared: TensorShape = c.attr("shape")
    c.input(0).merge_with(declared)
    return [declared]


def _all_unchanged(c: InferenceContext) -> Sequence[TensorShape]:
    return list(c.input_shapes)


def _arg_shape(c: InferenceContext) -> Sequence[TensorShape]:
    shapes = c.attrs.get("_output_shapes")
    return [shapes[0]] if shapes else unknown(c)


register_op("Const", "-> output: dtype", "value: tensor; dtype: type", shape=_const_shape)
register_op("Placeholder", "-> output: dtype", "dtype: type; shape: shape = shape(?)", shape=_declared_shape)
register_op("PlaceholderV2", "-> output: dtype", "dtype: type; shape: shape", shape=_declared_shape)
register_op(
    "PlaceholderWithDefault", "input: dtype -> output: dtype", "dtype: type; shape: shape", shape=_default_shape
)
register_op("Identity", "input: T -> output: T", "T: type", shape=unchanged)
register_op("IdentityN", "input: T -> output: T", "T: list(type) >= 1", shape=_all_unchanged)
register_op(
    "RefIdentity",
    "input: Ref(T) -> output: Ref(T)",
    "T: type",
    shape=unchanged,
    allows_uninitialized_input=True,
)
register_op("StopGradient", "input: T -> output: T", "T: type", shape=unchanged)
register_op("PreventGradient", "input: T -> output: T", "T: type; message: string = ''", shape=unchanged)
register_op("NoOp", "->", shape=no_outputs)
register_op("Abort", "->", "error_msg: string = ''; exit_without_error: bool = False", shape=no_outputs)
for _op in ("_Arg", "_DeviceArg"):
    register_op(_op, "-> output: T", "T: type; index: int >= 0", shape=_arg_shape, is_stateful=True)
for _op in ("_Retval", "_DeviceRetval"):
    register_op(_op, "input: T ->", "T: type; index: int >= 0", shape=no_outputs, is_stateful=True)

_CHANNEL = (
    "tensor_name: string; send_device: string; send_device_incarnation: int; recv_device: string; "
    "client_terminated: bool = False"
)
for _op in ("_Send", "_HostSend"):
    register_op(_op, "tensor: T ->", f"T: type; {_CHANNEL}", shape=no_outputs, is_stateful=True)
for _op in ("_Recv", "_HostRecv"):
    register_op(_op, "-> tensor: tensor_type", f"tensor_type: type; {_CHANNEL}", is_stateful=True)

register_function(
    "Identity",
    "PlaceholderWithDefault",
    "RefIdentity",
    "StopGradient",
    "PreventGradient",
    function=pass_on,
)
register_function("IdentityN", function=pass_all_through)
register_function("NoOp", function=do_nothing)


@register_kernel("Const")
def _const(construction: OpKernelConstruction) -> Kernel:
    value = construction.attr("value")
    return lambda: value


@register_kernel("Placeholder", "PlaceholderV2")
def _placeholder(construction: OpKernelConstruction) -> Kernel:
    dtype, shape = construction.attr("dtype"), construction.attr("shape")
    message = f"You must feed a value for placeholder tensor '{construction.name}' with dtype {dtype.name}"
    if shape.dims:
        message += f" and shape {shape}"

    def ask_for_feed() -> NoReturn:
        raise InvalidArgumentError(message)

    return ask_for_feed


@register_kernel("_Arg", "_DeviceArg")
def _arg(construction: OpKernelConstruction) -> Kernel:
    message = (
        f"You must feed a value for argument {construction.attr('index')}, '{construction.name}', "
        f"with dtype {construction.attr('T').name}"
    )

    def ask_for_feed() -> NoReturn:
        raise InvalidArgumentError(message)

    return ask_for_feed


@register_kernel("_Retval", "_DeviceRetval")
def _retval(construction: OpKernelConstruction) -> Kernel:
    return lambda _: ()


@register_kernel("Abort")
def _abort(construction: OpKernelConstruction) -> Kernel:
    message = construction.attr("error_msg").decode("utf-8", "replace") or "Abort was run"

    def abort() -> NoReturn:
        raise AbortedError(message)

    return abort
