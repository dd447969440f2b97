"""StridedSliceAssign and ResourceStridedSliceAssign: a strided slice of a variable is replaced."""

from __future__ import annotations

from asyncexec.framework.kernel import Kernel, OpKernelConstruction
from asyncexec.framework.kernel_registry import register_kernel
from asyncexec.framework.op_registry import register_op
from asyncexec.framework.shape_inference import no_outputs
from asyncexec.ops.array.array_common import boxed, has_boxes
from asyncexec.ops.array.slicing import Masks, strided_update
from asyncexec.ops.state.variable_state import Variable

_ATTRS = (
    "T: type; Index: {int32, int64}; begin_mask: int = 0; end_mask: int = 0; ellipsis_mask: int = 0;"
    " new_axis_mask: int = 0; shrink_axis_mask: int = 0"
)
_INPUTS = "begin: Index, end: Index, strides: Index, value: T"
register_op("ResourceStridedSliceAssign", f"ref: resource, {_INPUTS} ->", _ATTRS, shape=no_outputs, is_stateful=True)
register_op("StridedSliceAssign", f"ref: Ref(T), {_INPUTS} -> output_ref: Ref(T)", _ATTRS, shape=lambda c: [c.input(0)])


@register_kernel("ResourceStridedSliceAssign", "StridedSliceAssign", handles=Variable)
def strided_slice_assign(c: OpKernelConstruction) -> Kernel:
    """The variable with another value, or nothing of a resource."""
    replaced, dtype = strided_update(Masks.of(c.attrs)), c.attr("T")
    gives_reference = c.op == "StridedSliceAssign"

    def assign(variable: Variable, begin: object, end: object, strides: object, value: object) -> object:
        variable.require_dtype(dtype)
        variable.lookup()
        given = boxed(value) if has_boxes(dtype) else value
        variable.update(lambda old: replaced(boxed(old), begin, end, strides, given))
        return variable if gives_reference else ()

    return assign
