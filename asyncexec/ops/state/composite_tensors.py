"""Ragged, sparse and other composite tensors as one value of dtype variant (``composite_tensor_ops.cc``)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.kernel import Kernel, OpKernelConstruction
from asyncexec.framework.kernel_registry import register_kernel
from asyncexec.framework.op_registry import register_op
from asyncexec.framework.shape_inference import scalars, unknown
from asyncexec.framework.types import DType
from asyncexec.ops.parsing.wire import DELIMITED, VARINT, fields

# The names of ``TypeSpecProto.TypeSpecClass``.
_CLASSES: Final = (
    *("UNKNOWN", "SPARSE_TENSOR_SPEC", "INDEXED_SLICES_SPEC", "RAGGED_TENSOR_SPEC", "TENSOR_ARRAY_SPEC"),
    *("DATA_DATASET_SPEC", "DATA_ITERATOR_SPEC", "OPTIONAL_SPEC", "PER_REPLICA_SPEC", "VARIABLE_SPEC"),
    *("ROW_PARTITION_SPEC", "REGISTERED_TYPE_SPEC", "EXTENSION_TYPE_SPEC"),
)


@dataclass(frozen=True, slots=True, eq=False)
class CompositeTensor:
    """A value of dtype variant: the parts of a composite tensor, and which class it is of."""

    type_spec_class: int
    components: tuple[Any, ...]
    dtypes: tuple[DType, ...]


register_op(
    "CompositeTensorVariantFromComponents",
    "components: Tcomponents -> encoded: variant",
    "metadata: string; Tcomponents: list(type) >= 0",
    shape=scalars,
)
register_op(
    "CompositeTensorVariantToComponents",
    "encoded: variant -> components: Tcomponents",
    "metadata: string; Tcomponents: list(type) >= 0",
    shape=unknown,
)


def _class_of(metadata: bytes) -> int:
    """The class that a CompositeTensorVariantMetadata tells; 0 where it tells none."""
    try:
        specs = [content for number, kind, content in fields(metadata) if (number, kind) == (1, DELIMITED)]
        found = [content for spec in specs for number, kind, content in fields(spec) if (number, kind) == (1, VARINT)]
    except ValueError as error:
        raise InvalidArgumentError(f"Error parsing metadata: {error}") from None
    return int(found[-1]) if found else 0


def _name(type_spec_class: int) -> str:
    return _CLASSES[type_spec_class] if type_spec_class < len(_CLASSES) else str(type_spec_class)


@register_kernel("CompositeTensorVariantFromComponents")
def composite_from_components(c: OpKernelConstruction) -> Kernel:
    """The parts as one value."""
    type_spec_class, dtypes = _class_of(c.attr("metadata")), tuple(c.attr("Tcomponents"))
    return lambda *components: CompositeTensor(type_spec_class, components, dtypes)


@register_kernel("CompositeTensorVariantToComponents")
def composite_to_components(c: OpKernelConstruction) -> Kernel:
    """The parts of a value of the class that is asked for."""
    wanted, dtypes = _class_of(c.attr("metadata")), tuple(c.attr("Tcomponents"))

    def kernel(encoded: object) -> tuple[Any, ...]:
        if not isinstance(encoded, CompositeTensor):
            raise InvalidArgumentError(
                f"The input `encoded` is not a valid CompositeTensorVariant tensor, got a {type(encoded).__name__}"
            )
        if encoded.type_spec_class != wanted:
            raise InvalidArgumentError(
                f"Expected a {_name(wanted)} (based on `type_spec`), but `encoded` contains a "
                f"{_name(encoded.type_spec_class)}"
            )
        if len(encoded.dtypes) != len(dtypes):
            raise InvalidArgumentError(
                f"Encoded value has {len(encoded.dtypes)} tensor components; expected {len(dtypes)} components based "
                "on type_spec"
            )
        for place, (found, asked) in enumerate(zip(encoded.dtypes, dtypes, strict=True)):
            if found is not asked:
                raise InvalidArgumentError(
                    f"Tensor component {place} had dtype {found.name}; expected dtype {asked.name}"
                )
        return encoded.components

    return kernel
