"""Constants, identities, shapes and casts on any array library.

What they mean is told in asyncexec.ops (structure.py, array.py, cast.py, layout.py, broadcasting.py).  Shapes, axes and
permutations come in host memory, and shapes go there (memory_types.py), as numpy arrays.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Final

import numpy as np

from asyncexec.devices.array_library import ArrayLibrary
from asyncexec.devices.kernel_table import KernelTable, check_size, shape_list, size_of
from asyncexec.framework import types
from asyncexec.framework.device_factory import HOST_TYPE
from asyncexec.framework.errors import InvalidArgumentError, UnimplementedError
from asyncexec.framework.kernel import AsyncKernel, Kernel, OpKernelConstruction, pass_on
from asyncexec.framework.kernel_registry import registry as kernel_registry
from asyncexec.framework.types import DType
from asyncexec.ops.array.array_common import canonical_axis, int_vector
from asyncexec.ops.math.elementwise import COMPLEXES

# Ops that never look at a tensor's elements, unless those are in host memory.
_PLACEHOLDERS: Final = "Placeholder PlaceholderV2 PlaceholderWithDefault"
_CONTROL_FLOW: Final = "Enter Exit NextIteration Switch _SwitchN Merge"
_WITHOUT_DTYPES: Final = "NoOp ControlTrigger LoopCond"
FOR_ANY_VALUE: Final = f"{_PLACEHOLDERS} {_CONTROL_FLOW} {_WITHOUT_DTYPES}"
# (source, result) of a Cast -> bits of the source's mantissa that the result lacks.
_LOST_BITS: Final = {
    (types.float32, types.bfloat16): 16,
    (types.float32, types.float16): 13,
    (types.float64, types.float32): 29,
    (types.float64, types.float16): 42,
}


def register_structure(table: KernelTable) -> None:
    """Add the kernels of this module."""
    table.add("Const", _const, attrs="dtype")
    table.add("Identity StopGradient PreventGradient Snapshot", _identity)
    table.add(_PLACEHOLDERS, _as_on_the_cpu, attrs="dtype", only_holds=True)
    table.add(_CONTROL_FLOW, _as_on_the_cpu, only_holds=True)
    table.add(_WITHOUT_DTYPES, _as_on_the_cpu, attrs="")
    table.add("IdentityN", _identity_n, only_holds=True)
    table.add("Shape ShapeN", _shape)
    table.add("Size", _size)
    table.add("Rank", _rank)
    table.add("Reshape", _reshape)
    table.add("ExpandDims", _expand_dims)
    table.add("Squeeze", _squeeze)
    table.add("Fill", _fill)
    table.add("ZerosLike", partial(_like, "zeros_like"))
    table.add("OnesLike", partial(_like, "ones_like"))
    table.add("Transpose", _transpose)
    table.add("BroadcastTo", _broadcast_to)
    table.add("Cast", _cast, attrs="SrcT DstT")


def _const(library: ArrayLibrary, op: OpKernelConstruction) -> Kernel:
    value = library.from_host(np.asarray(op.attr("value")))
    return lambda: value


def _as_on_the_cpu(library: ArrayLibrary, op: OpKernelConstruction) -> Kernel | AsyncKernel:
    return kernel_registry.lookup(op.op, HOST_TYPE, op.attrs).factory(op)


def _identity(library: ArrayLibrary, op: OpKernelConstruction) -> Kernel:
    return pass_on


def _identity_n(library: ArrayLibrary, op: OpKernelConstruction) -> Kernel:
    return lambda *values: values


def _shape(library: ArrayLibrary, op: OpKernelConstruction) -> Kernel:
    np_dtype = op.np_dtype("out_type")

    def sizes(x: object) -> Any:
        try:
            return np.array(shape_list(x), np_dtype)
        except OverflowError:
            raise InvalidArgumentError(f"Shape output type is 32-bit but the shape is {shape_list(x)}") from None

    if op.op == "Shape":
        return sizes
    return lambda *inputs: tuple(sizes(x) for x in inputs)


def _size(library: ArrayLibrary, op: OpKernelConstruction) -> Kernel:
    out_type = op.np_dtype("out_type").type
    limit = int(np.iinfo(out_type).max)

    def size(x: Any) -> Any:
        count = size_of(x.shape)
        if count > limit:
            raise InvalidArgumentError(
                f"Number of elements was larger than representable by 32-bit output type: {count}"
            )
        return out_type(count)

    return size


def _rank(library: ArrayLibrary, op: OpKernelConstruction) -> Kernel:
    return lambda x: np.int32(x.ndim)


def target_shape(given: Sequence[int], wanted: Sequence[int]) -> tuple[int, ...]:
    """*wanted* with the one size that may be -1 worked out; InvalidArgumentError when the elements do not fit."""
    if wanted and min(wanted) < -1:
        index = list(wanted).index(min(wanted))
        raise InvalidArgumentError(f"Size {index} must be non-negative, not {min(wanted)}")
    if list(wanted).count(-1) > 1:
        raise InvalidArgumentError(f"Only one input size may be -1, not as in {list(wanted)}")
    size = size_of(given)
    known = size_of([dim for dim in wanted if dim != -1])
    if -1 in wanted and not known and not size:  # nothing can be inferred: from the sizes that are not 0, then
        size = size_of([dim for dim in given if dim])
        known = size_of([dim for dim in wanted if dim > 0])
    inferred = size // known if known else 0
    shape = tuple(inferred if dim == -1 else dim for dim in wanted)
    if size_of(shape) != size_of(given):
        raise InvalidArgumentError(
            f"Input to reshape is a tensor of shape {list(given)} with {size_of(given)} values, "
            f"but it should become {list(wanted)}"
        )
    return shape


def _reshape(library: ArrayLibrary, op: OpKernelConstruction) -> Kernel:
    reshape = library.xp.reshape
    return lambda x, shape: reshape(x, target_shape(shape_list(x), int_vector(shape, "sizes input")))


def _expand_dims(library: ArrayLibrary, op: OpKernelConstruction) -> Kernel:
    expand = library.xp.expand_dims

    def expand_dims(x: Any, dim: Any) -> Any:
        if dim.size != 1:
            raise InvalidArgumentError(f"'dim' must be a tensor with a single value, not of shape {shape_list(dim)}")
        return expand(x, axis=canonical_axis(dim.item(), x.ndim + 1, "dim"))

    return expand_dims


def _squeeze(library: ArrayLibrary, op: OpKernelConstruction) -> Kernel:
    xp, squeezed = library.xp, op.attr("squeeze_dims")

    def squeeze(x: Any) -> Any:
        axes = {canonical_axis(axis, x.ndim, "squeeze_dims") for axis in squeezed}
        for axis in axes:
            if x.shape[axis] != 1:
                raise InvalidArgumentError(
                    f"Can not squeeze dim[{axis}], expected a dimension of 1, got {x.shape[axis]}"
                )
        chosen = axes if squeezed else {axis for axis, size in enumerate(x.shape) if size == 1}
        return xp.reshape(x, tuple(size for axis, size in enumerate(x.shape) if axis not in chosen))

    return squeeze


def _fill(library: ArrayLibrary, op: OpKernelConstruction) -> Kernel:
    xp, np_dtype = library.xp, op.np_dtype("T")

    def fill(dims: object, value: Any) -> Any:
        shape = int_vector(dims, "dims")
        if value.ndim:
            raise InvalidArgumentError(f"value must be a scalar, got shape {shape_list(value)}")
        check_size(shape, np_dtype)
        return xp.broadcast_to(value, tuple(shape))

    return fill


def _like(name: str, library: ArrayLibrary, op: OpKernelConstruction) -> Kernel:
    make: Kernel = getattr(library.xp, name)
    return make


def _transpose(library: ArrayLibrary, op: OpKernelConstruction) -> Kernel:
    permute = library.xp.permute_dims

    def transpose(x: Any, perm: Any) -> Any:
        axes = int_vector(perm, "perm")
        found = tuple(axis + x.ndim if axis < 0 else axis for axis in axes)
        if sorted(found) != list(range(x.ndim)):
            raise InvalidArgumentError(f"perm {axes} is not a permutation of the dimensions of {shape_list(x)}")
        return permute(x, found)

    return transpose


def _broadcast_to(library: ArrayLibrary, op: OpKernelConstruction) -> Kernel:
    xp, np_dtype = library.xp, op.np_dtype("T")

    def broadcast_to(x: Any, shape: Any) -> Any:
        dims = int_vector(shape, "shape")
        check_size(dims, np_dtype)
        lead = len(dims) - x.ndim
        if lead < 0 or any(size not in (1, wanted) for size, wanted in zip(x.shape, dims[lead:], strict=True)):
            raise InvalidArgumentError(f"Incompatible shapes: {shape_list(x)} vs. {dims}")
        return xp.broadcast_to(x, tuple(dims))

    return broadcast_to


def _cast(library: ArrayLibrary, op: OpKernelConstruction) -> Kernel:
    xp, source, target = library.xp, op.attr("SrcT"), op.attr("DstT")
    if source is target:
        return pass_on
    own = library.dtype(target)
    if op.attr("Truncate") and (source, target) in _LOST_BITS:
        return _truncating(library, source, target)
    if source.is_complex and not target.is_complex:
        return lambda x: xp.astype(xp.real(x), own)
    if source is types.bool and target in COMPLEXES:
        return lambda x: xp.astype(xp.astype(x, xp.float32), own)
    return lambda x: xp.astype(x, own)


def _truncating(library: ArrayLibrary, source: DType, target: DType) -> Kernel:
    view, own, bits = library.view, library.dtype(target), getattr(library.xp, f"int{8 * source.itemsize}")
    if view is None:
        raise UnimplementedError(
            f"Cast {source.name} to {target.name} with Truncate has no kernel on a {library.name} device",
            hint="place the node on a CPU device",
        )
    mask, floats = -(2 ** _LOST_BITS[source, target]), library.dtype(source)
    return lambda x: library.xp.astype(view(view(x, bits) & mask, floats), own)
