"""The ops of iterators (``core/kernels/data/iterator_ops.cc``)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from asyncexec.framework.errors import InvalidArgumentError, OutOfRangeError
from asyncexec.framework.kernel import AsyncKernel, Kernel, KernelKind, OpKernelConstruction, require_kind
from asyncexec.framework.kernel_registry import register_kernel
from asyncexec.framework.shape_inference import InferenceContext, no_outputs, scalars
from asyncexec.framework.tensor_shape import TensorShape
from asyncexec.framework.types import variant
from asyncexec.ops.data.dataset import Dataset, Element, as_dataset
from asyncexec.ops.data.functions import FunctionAttr
from asyncexec.ops.data.iterators import GetNext, IteratorHandles, IteratorResource, check_element
from asyncexec.ops.op_list import register_listed_op
from asyncexec.ops.state.optionals import Optional
from asyncexec.ops.string.string_elements import scalar_string

_ASYNC: Final = KernelKind.ASYNC


def _component_shapes(c: InferenceContext) -> Sequence[TensorShape]:
    shapes: Sequence[TensorShape] = c.attr("output_shapes")
    if len(shapes) != c.num_outputs:
        raise InvalidArgumentError(
            f"`output_shapes` must be the same length as `output_types` ({len(shapes)} vs. {c.num_outputs})"
        )
    return shapes


for _name in (
    "Iterator IteratorV2 AnonymousIterator AnonymousIteratorV2 AnonymousIteratorV3 OneShotIterator IteratorGetDevice "
    "ExperimentalIteratorGetDevice IteratorGetNextAsOptional IteratorToStringHandle IteratorFromStringHandle "
    "IteratorFromStringHandleV2"
).split():
    register_listed_op(_name, scalars)
for _name in ("MakeIterator", "DeleteIterator"):
    register_listed_op(_name, no_outputs)
for _name in ("IteratorGetNext", "IteratorGetNextSync"):
    register_listed_op(_name, _component_shapes)


def _new(c: OpKernelConstruction) -> IteratorResource:
    return IteratorResource(c.attr("output_types"), c.attr("output_shapes"), c.resource_mgr.background)


@register_kernel("Iterator", "IteratorV2")
def iterator(c: OpKernelConstruction) -> Kernel:
    """The iterator of the node, or the one of the name that it tells."""
    container, shared = (c.attr(name).decode("utf-8", "replace") for name in ("container", "shared_name"))
    found = c.resource_mgr.lookup_or_create(
        IteratorResource, container or "_iterators", shared or f"_iterator_{c.name}", lambda: _new(c)
    )
    found.check_types(c.attr("output_types"), c.attr("output_shapes"))
    return lambda: found


@register_kernel("AnonymousIterator", "AnonymousIteratorV3")
def anonymous_iterator(c: OpKernelConstruction) -> Kernel:
    """A new iterator in each step, which ends with the last handle of it."""
    return lambda: _new(c)


@register_kernel("AnonymousIteratorV2")
def anonymous_iterator_v2(c: OpKernelConstruction) -> Kernel:
    """The same, with a deleter, which holds nothing."""
    return lambda: (_new(c), None)


@register_kernel("MakeIterator", kind=_ASYNC)
def make_iterator(c: OpKernelConstruction) -> Kernel:
    """Let an iterator begin with a dataset."""

    async def kernel(dataset: object, handle: object) -> tuple[()]:
        await require_kind(handle, IteratorResource).begin(as_dataset(dataset))
        return ()

    return kernel


@register_kernel("DeleteIterator", kind=_ASYNC)
def delete_iterator(c: OpKernelConstruction) -> Kernel:
    """Let an iterator end, and what it reads ahead."""

    async def kernel(handle: object, _: object) -> tuple[()]:
        await require_kind(handle, IteratorResource).end()
        return ()

    return kernel


@register_kernel("OneShotIterator", kind=_ASYNC)
def one_shot_iterator(c: OpKernelConstruction) -> Kernel:
    """An iterator over the dataset that a function gives, which runs when the node first does."""
    if c.attr("shared_name"):
        raise InvalidArgumentError("OneShotIteratorOp does not currently support the 'shared_name' attr.")
    factory = FunctionAttr(c, "dataset_factory", "", (variant,)).capture(())
    found = c.node_state(IteratorResource, lambda: _new(c))

    async def make() -> Dataset:
        (dataset,) = await factory()
        return as_dataset(dataset)

    async def kernel() -> IteratorResource:
        await found.begin_once(make)
        return found

    return kernel


@register_kernel("IteratorGetNext", "IteratorGetNextSync", kind=_ASYNC)
def iterator_get_next(c: OpKernelConstruction) -> AsyncKernel:
    """The next element."""
    dtypes, shapes = c.attr("output_types"), c.attr("output_shapes")

    def finish(element: Element | None) -> Element:
        if element is None:
            raise OutOfRangeError("End of sequence")
        return check_element(element, dtypes, shapes)

    return AsyncKernel(_get_next, finish, is_undoable=True)


def _get_next(handle: object) -> GetNext:
    return GetNext(require_kind(handle, IteratorResource))


@register_kernel("IteratorGetNextAsOptional", kind=_ASYNC)
def iterator_get_next_as_optional(c: OpKernelConstruction) -> AsyncKernel:
    """The next element, or an optional without value."""
    dtypes, shapes = tuple(c.attr("output_types")), c.attr("output_shapes")

    def finish(element: Element | None) -> Optional:
        return Optional() if element is None else Optional(dtypes, check_element(element, dtypes, shapes))

    return AsyncKernel(_get_next, finish, is_undoable=True)


def _handles(c: OpKernelConstruction) -> IteratorHandles:
    return c.resource_mgr.lookup_or_create(IteratorHandles, "_iterator_handles", "_handles", IteratorHandles)


@register_kernel("IteratorToStringHandle")
def iterator_to_string_handle(c: OpKernelConstruction) -> Kernel:
    """A string that stands for an iterator in its session."""
    return lambda handle: _handles(c).string_of(require_kind(handle, IteratorResource))


@register_kernel("IteratorFromStringHandle", "IteratorFromStringHandleV2")
def iterator_from_string_handle(c: OpKernelConstruction) -> Kernel:
    """The iterator that a string stands for."""

    def kernel(string: object) -> IteratorResource:
        found = _handles(c).find(scalar_string(string, "string_handle"))
        found.check_types(c.attr("output_types"), c.attr("output_shapes"))
        return found

    return kernel


@register_kernel("IteratorGetDevice", "ExperimentalIteratorGetDevice")
def iterator_get_device(c: OpKernelConstruction) -> Kernel:
    """The device that an iterator is on."""
    device = c.device.encode()

    def kernel(handle: object) -> bytes:
        require_kind(handle, IteratorResource)
        return device

    return kernel
