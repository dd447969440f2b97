"""The first two versions of the TensorArray ops, whose handles are references to strings, or strings.

A handle is the :class:`TensorArray` itself there, too (``tensor_array.py``).  The first version has TensorArrayPack and
TensorArrayUnpack besides, which take all elements.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from asyncexec.framework.kernel import CheckedKernel, Kernel, OpKernelConstruction, require_kind
from asyncexec.framework.kernel_registry import register_function, register_kernel
from asyncexec.framework.op_registry import register_op
from asyncexec.framework.shape_inference import InferenceContext, no_outputs, scalars
from asyncexec.framework.tensor_shape import UNKNOWN_SHAPE, TensorShape
from asyncexec.ops.state.tensor_array import (
    HANDLE_SHAPE,
    array_gradient,
    array_size,
    close_array,
    concat_array,
    concat_shape,
    create_array,
    gather_array,
    gather_shape,
    read_array,
    read_shape,
    scatter_array,
    scatter_shape,
    split_array,
    split_shape,
    write_array,
    write_shape,
)
from asyncexec.ops.state.tensor_array_state import TensorArray


def _create_shape(c: InferenceContext) -> Sequence[TensorShape]:
    c.scalar(0)
    return [HANDLE_SHAPE]


def _gradient_shape(c: InferenceContext) -> Sequence[TensorShape]:
    c.scalar(1)
    return [HANDLE_SHAPE]


def _pack_shape(c: InferenceContext) -> Sequence[TensorShape]:
    c.scalar(1)
    return [UNKNOWN_SHAPE]


def _unpack_shape(c: InferenceContext) -> Sequence[TensorShape]:
    c.scalar(2)
    return scalars(c)


_SIZES: Final = "dynamic_size: bool = False; clear_after_read: bool = True; tensor_array_name: string = ''"
_ELEMENT: Final = "element_shape: shape = shape(?)"
for _version, _handle in (("", "Ref(string)"), ("V2", "string")):
    register_op(
        f"TensorArray{_version}",
        f"size: int32 -> handle: {_handle}",
        f"dtype: type; {_ELEMENT}; {_SIZES}" if _version else f"dtype: type; {_SIZES}; {_ELEMENT}",
        is_stateful=True,
        shape=_create_shape,
    )
    register_op(
        f"TensorArrayGrad{_version}",
        f"handle: string, flow_in: float32 -> grad_handle: {_handle}",
        "source: string",
        is_stateful=True,
        shape=_gradient_shape,
    )
    register_op(
        f"TensorArrayWrite{_version}",
        f"handle: {_handle}, index: int32, value: T, flow_in: float32 -> flow_out: float32",
        "T: type",
        shape=write_shape,
    )
    register_op(
        f"TensorArrayRead{_version}",
        f"handle: {_handle}, index: int32, flow_in: float32 -> value: dtype",
        "dtype: type",
        shape=read_shape,
    )
    register_op(
        f"TensorArrayGather{_version}",
        f"handle: {_handle}, indices: int32, flow_in: float32 -> value: dtype",
        f"dtype: type; {_ELEMENT}",
        shape=gather_shape,
    )
    register_op(
        f"TensorArrayScatter{_version}",
        f"handle: {_handle}, indices: int32, value: T, flow_in: float32 -> flow_out: float32",
        "T: type",
        shape=scatter_shape,
    )
    register_op(
        f"TensorArrayConcat{_version}",
        f"handle: {_handle}, flow_in: float32 -> value: dtype, lengths: int64",
        "dtype: type; element_shape_except0: shape = shape(?)",
        shape=concat_shape,
    )
    register_op(
        f"TensorArraySplit{_version}",
        f"handle: {_handle}, value: T, lengths: int64, flow_in: float32 -> flow_out: float32",
        "T: type",
        shape=split_shape,
    )
    register_op(f"TensorArraySize{_version}", f"handle: {_handle}, flow_in: float32 -> size: int32", shape=scalars)
    register_op(f"TensorArrayClose{_version}", f"handle: {_handle} ->", shape=no_outputs)
register_op(
    "TensorArrayPack",
    "handle: Ref(string), flow_in: float32 -> value: dtype",
    f"dtype: type; {_ELEMENT}",
    shape=_pack_shape,
)
register_op(
    "TensorArrayUnpack",
    "handle: Ref(string), value: T, flow_in: float32 -> flow_out: float32",
    "T: type",
    shape=_unpack_shape,
)


def _check_handle(*inputs: object) -> None:
    require_kind(inputs[0], TensorArray)


def _register(name: str, factory: Callable[[OpKernelConstruction], Kernel], *versions: str) -> None:
    @register_kernel(*(f"TensorArray{name}{version}" for version in versions or ("", "V2")))
    def make(construction: OpKernelConstruction) -> Kernel:
        kernel: Any = factory(construction)
        return CheckedKernel(kernel, _check_handle)


for _name, _factory in (
    ("Write", write_array),
    ("Read", read_array),
    ("Gather", gather_array),
    ("Scatter", scatter_array),
    ("Concat", concat_array),
    ("Split", split_array),
):
    _register(_name, _factory)
register_function("TensorArraySize", "TensorArraySizeV2", function=array_size)
register_function("TensorArrayClose", "TensorArrayCloseV2", function=close_array)


@register_kernel("TensorArray", "TensorArrayV2")
def _create(construction: OpKernelConstruction) -> Kernel:
    create: Any = create_array(construction)
    return lambda size: create(size)[0]


def _gradient(construction: OpKernelConstruction) -> Kernel:
    gradient: Any = array_gradient(construction)
    return lambda array, flow: gradient(array, flow)[0]


def _pack(construction: OpKernelConstruction) -> Kernel:
    gather: Any = gather_array(construction)
    return lambda array, flow: gather(array, np.arange(len(array), dtype=np.int32), flow)


def _unpack(construction: OpKernelConstruction) -> Kernel:
    scatter: Any = scatter_array(construction)

    def unpack(array: TensorArray, value: Any, flow: object) -> object:
        return scatter(array, np.arange(len(value) if np.ndim(value) else 0, dtype=np.int32), value, flow)

    return unpack


_register("Grad", _gradient)
_register("Pack", _pack, "")
_register("Unpack", _unpack, "")
