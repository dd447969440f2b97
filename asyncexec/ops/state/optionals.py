"""Optionals, which are values of dtype variant, and parameters that nobody reads.

Rules from ``data/optional_ops.cc``, ``data/optional_ops_util.cc`` and ``function_ops.cc``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.kernel import Kernel, OpKernelConstruction, as_value
from asyncexec.framework.kernel_registry import register_function, register_kernel
from asyncexec.framework.op_registry import register_op
from asyncexec.framework.shape_inference import InferenceContext, scalars
from asyncexec.framework.tensor_shape import TensorShape
from asyncexec.framework.types import DType
from asyncexec.framework.variant_ops import add, register_variant_ops, zeros_like
from asyncexec.ops.array.array_common import zeros


@dataclass(frozen=True, slots=True, eq=False)
class Optional:
    """A value of dtype variant: the tensors of one, or nothing."""

    dtypes: tuple[DType, ...] = ()
    components: tuple[Any, ...] | None = None


_NOTHING = Optional()


def _zeros_like(value: Optional) -> Optional:
    if value.components is None:
        return value
    return Optional(value.dtypes, tuple(map(zeros_like, value.components)))


def _add(a: Optional, b: Optional) -> Optional:
    if (a.components is None) != (b.components is None):
        raise InvalidArgumentError("Cannot add optionals because one has a value and the other doesn't.")
    if a.components is None or b.components is None:
        return a
    if a.dtypes != b.dtypes:
        raise InvalidArgumentError("Cannot add optionals because they have different dtypes or numbers of components.")
    return Optional(a.dtypes, tuple(map(add, a.components, b.components)))


register_variant_ops(Optional, zeros_like=_zeros_like, add=_add)

register_op("OptionalNone", "-> optional: variant", shape=scalars)
register_op(
    "OptionalFromValue",
    "components: Toutput_types -> optional: variant",
    "Toutput_types: list(type) >= 1",
    shape=scalars,
)
register_op("OptionalHasValue", "optional: variant -> has_value: bool", shape=scalars)


def _value_shapes(c: InferenceContext) -> Sequence[TensorShape]:
    shapes: Sequence[TensorShape] = c.attr("output_shapes")
    if len(shapes) != c.num_outputs:
        raise InvalidArgumentError(f"`output_shapes` must be the same length as `output_types` ({c.num_outputs})")
    return shapes


register_op(
    "OptionalGetValue",
    "optional: variant -> components: output_types",
    "output_types: list(type) >= 1; output_shapes: list(shape) >= 1",
    shape=_value_shapes,
)
register_op("FakeParam", "-> output: dtype", "dtype: type; shape: shape", shape=lambda c: [c.attr("shape")])


def _as_optional(value: object, op: str) -> Optional:
    if not isinstance(value, Optional):
        raise InvalidArgumentError(f"{op}: Input must be an optional, not {type(value).__name__}")
    return value


register_function("OptionalNone", function=lambda: _NOTHING)
register_function(
    "OptionalHasValue",
    function=lambda value: np.bool_(_as_optional(value, "OptionalHasValue").components is not None),
)


@register_kernel("OptionalFromValue")
def optional_from_value(c: OpKernelConstruction) -> Kernel:
    """An optional of all inputs."""
    dtypes: tuple[DType, ...] = c.attr("Toutput_types")
    return lambda *components: Optional(dtypes, components)


@register_kernel("OptionalGetValue")
def optional_get_value(c: OpKernelConstruction) -> Kernel:
    """The tensors of an optional that has some, of the dtypes and shapes that are asked for."""
    dtypes, shapes = c.attr("output_types"), c.attr("output_shapes")

    def kernel(value: object) -> tuple[Any, ...]:
        found = _as_optional(value, "OptionalGetValue")
        if found.components is None:
            raise InvalidArgumentError("The given optional does not have a value.")
        if len(found.components) != len(dtypes):
            raise InvalidArgumentError(
                f"The given optional has {len(found.components)} components, expected {len(dtypes)}."
            )
        for index, (component, dtype, shape) in enumerate(zip(found.components, dtypes, shapes, strict=True)):
            if found.dtypes[index] is not dtype:
                raise InvalidArgumentError(
                    f"The given optional does not match the expected type for component {index}. Expected: "
                    f"{dtype.name}. Actual: {found.dtypes[index].name}."
                )
            if not shape.accepts(np.shape(component)):
                raise InvalidArgumentError(
                    f"The given optional does not match the expected shape for component {index}. Expected: {shape}. "
                    f"Actual: {list(np.shape(component))}."
                )
        return found.components

    return kernel


@register_kernel("FakeParam")
def fake_param(c: OpKernelConstruction) -> Kernel:
    """A value of the shape, as empty as that allows: nobody reads it."""
    shape: TensorShape = c.attr("shape")
    sizes = (0,) if shape.dims is None else tuple(size or 0 for size in shape.dims)
    dtype: DType = c.attr("dtype")
    if dtype.is_opaque:
        return lambda: np.full(sizes, None, object) if sizes else None
    value = as_value(zeros(sizes, dtype.as_numpy_dtype))
    return lambda: value
