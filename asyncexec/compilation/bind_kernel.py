"""Node -> kernel: found in the registry, built for the node, reading variables where a value is wanted."""

from __future__ import annotations

from typing import Any

import numpy as np

from asyncexec.framework.errors import InternalError, OpError
from asyncexec.framework.kernel import Kernel, KernelKind, OpKernelConstruction
from asyncexec.framework.kernel_registry import KernelRegistration
from asyncexec.framework.kernel_registry import registry as kernel_registry
from asyncexec.framework.resource_mgr import ResourceMgr
from asyncexec.graph.node import Node, NodeProperties

BoundKernel = tuple[Kernel, KernelKind, bool | None]


class KernelBinder:
    """Binds the kernels of one session; nodes of a stateless op with the same attrs share theirs."""

    def __init__(self, resource_mgr: ResourceMgr, *, debug: bool = False) -> None:
        self._resource_mgr = resource_mgr
        self._debug = debug
        self._shared: dict[NodeProperties, BoundKernel] = {}

    def bind(self, node: Node) -> BoundKernel:
        """The kernel of *node*, its kind, and whether the user said that it is expensive.

        Raises:
            UnimplementedError: there is none for its op and dtypes.
            OpError: the node's attrs are such that the kernel refuses them.
        """
        properties = node.properties
        bound = self._shared.get(properties)
        if bound is None:
            bound = self._make(node)
            if not properties.op_def.is_stateful:
                self._shared[properties] = bound
        kernel, kind, is_expensive = bound
        references = reference_inputs(node)
        if references:
            kernel = _reading(kernel, references)
        if self._debug:
            kernel = _checked_async(kernel, node) if kind is KernelKind.ASYNC else _checked(kernel, node)
        return kernel, kind, is_expensive

    def _make(self, node: Node) -> BoundKernel:
        properties = node.properties
        construction = OpKernelConstruction(
            node.name,
            properties.op_def,
            properties.attrs,
            properties.input_dtypes,
            properties.output_dtypes,
            self._resource_mgr,
            node.output_shapes,
        )
        try:
            found: KernelRegistration = properties.registration.kernel or kernel_registry.lookup(
                node.op, "CPU", properties.attrs
            )
            return found.factory(construction), found.kind, found.is_expensive
        except OpError as error:
            raise error.locate(node) from error.__cause__


def reference_inputs(node: Node) -> tuple[int, ...]:
    """Inputs that take a value and get a reference to a variable."""
    wanted = node.properties.input_dtypes
    return tuple(
        slot
        for slot, tensor in enumerate(node.inputs)
        if tensor.op.properties.output_dtypes[tensor.index].is_ref and not wanted[slot].is_ref
    )


def _reading(kernel: Kernel, references: tuple[int, ...]) -> Kernel:
    def reading(*inputs: Any) -> Any:
        values = list(inputs)
        for slot in references:
            values[slot] = values[slot].read()
        return kernel(*values)

    return reading


def _checked(kernel: Kernel, node: Node) -> Kernel:
    def checked(*inputs: Any) -> Any:
        return check_outputs(node, kernel(*inputs))

    return checked


def _checked_async(kernel: Kernel, node: Node) -> Kernel:
    async def checked(*inputs: Any) -> Any:
        return check_outputs(node, await kernel(*inputs))

    return checked


def check_outputs(node: Node, result: Any) -> Any:
    """*result* of *node*'s kernel, once it is what the op promises; InternalError where it is not."""
    dtypes = node.properties.output_dtypes
    outputs = (result,) if not node.op_def.returns_tuple else result
    if dtypes and (not isinstance(outputs, (tuple, list)) or len(outputs) != len(dtypes)):
        raise InternalError(f"the kernel gave {type(result).__name__}, not {len(dtypes)} outputs", node=node)
    for index, (value, dtype) in enumerate(zip(outputs, dtypes, strict=True) if dtypes else ()):
        if dtype.is_opaque or dtype.is_ref:
            continue
        got = np.dtype(object) if isinstance(value, bytes) else getattr(value, "dtype", None)
        if got != dtype.as_numpy_dtype or (isinstance(value, np.ndarray) and not value.ndim):
            raise InternalError(f"output {index} is {type(value).__name__} {got}, not {dtype.name}", node=node)
        if not node.output_shapes[index].accepts(np.shape(value)):
            raise InternalError(
                f"output {index} has the shape {list(np.shape(value))}, inferred was {node.output_shapes[index]}", node=node
            )
    return result
