"""Dimensions and sizes from one data format to another: DataFormatDimMap, DataFormatVecPermute.

Rules from ``tensorflow/core/kernels/data_format_ops.cc``.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from asyncexec.framework.arrays import ArrayOrScalar
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.kernel import Kernel, OpKernelConstruction, as_value
from asyncexec.framework.kernel_registry import register_kernel
from asyncexec.framework.op_registry import register_op
from asyncexec.framework.shape_inference import unchanged

_ATTRS: Final = "T: {int32, int64} = int32; src_format: string = 'NHWC'; dst_format: string = 'NCHW'"
for _op in ("DataFormatDimMap", "DataFormatVecPermute"):
    register_op(_op, "x: T -> y: T", _ATTRS, shape=unchanged)


def _formats(construction: OpKernelConstruction) -> tuple[str, str]:
    source, target = (construction.attr(name).decode("latin-1") for name in ("src_format", "dst_format"))
    for name, text in (("Source", source), ("Destination", target)):
        if len(text) not in (4, 5):
            raise InvalidArgumentError(f"{name} format must be of length 4 or 5, received {text}")
    if len(set(source)) != len(source) or set(source) != set(target) or len(target) != len(source):
        raise InvalidArgumentError(
            f"Destination and source format must determine a permutation, got {source} and {target}"
        )
    return source, target


@register_kernel("DataFormatDimMap")
def data_format_dim_map(construction: OpKernelConstruction) -> Kernel:
    """Where the dimensions with some numbers are in another format; the last one's place for what is far below 0."""
    source, target = _formats(construction)
    places = np.array([target.index(name) for name in source], construction.np_dtype("T"))
    count = places.dtype.type(len(places))
    return lambda x: as_value(places[np.maximum(np.fmod(np.asarray(x) + count, count), -1)])


@register_kernel("DataFormatVecPermute")
def data_format_vec_permute(construction: OpKernelConstruction) -> Kernel:
    """Sizes, or pairs of them, in the order of another format; the batch's and the channels' may be missing."""
    formats = _formats(construction)

    def kernel(x: Any) -> ArrayOrScalar:
        count = len(formats[0])
        if np.ndim(x) not in (1, 2):
            raise InvalidArgumentError(f"input must be a vector or 2D tensor, but got shape {list(np.shape(x))}")
        if len(x) not in (count, count - 2):
            where = "1D input" if x.ndim == 1 else "First dimension of 2D input"
            raise InvalidArgumentError(f"{where} must be of size {count - 2} or {count}, but got shape {list(x.shape)}")
        if x.ndim == 2 and x.shape[1] != 2:
            raise InvalidArgumentError(f"Second dimension of 2D input must be of size 2, but got shape {list(x.shape)}")
        source, target = formats
        if len(x) < count:
            source, target = (text.replace("N", "").replace("C", "") for text in formats)
            if len(source) != len(x):
                raise InvalidArgumentError(f"{formats[0]} has no N and C that the input could lack")
        return x[[source.index(name) for name in target]]

    return kernel
