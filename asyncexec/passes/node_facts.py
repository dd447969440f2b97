"""What passes may take for granted of a node: worked out once for each op and attrs.

A node is *pure* when what it gives depends on nothing but its inputs and attrs, and nothing else comes of it but that
value or an error.  So two of them with the same inputs are one, and one whose inputs are known is a constant.  Ops that
are stateful, those of users among them, are not pure, nor are random numbers, what touches files, and what takes or
gives references, resources, variants or Python objects.  Control flow is not pure: which side of it is dead depends on
more than values.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from asyncexec.framework import types
from asyncexec.framework.cooperative import STRIDE, Stage
from asyncexec.framework.kernel import KernelKind
from asyncexec.framework.kernel_registry import registry as kernel_registry
from asyncexec.framework.op_def import NameAttrList
from asyncexec.framework.types import DType
from asyncexec.graph.control_flow_info import ENTERS, EXITS, MERGES, NEXT_ITERATIONS, SWITCHES
from asyncexec.graph.node import Node, NodeProperties, Tensor

FLOW_OPS: Final = ENTERS | EXITS | MERGES | NEXT_ITERATIONS | SWITCHES | {"LoopCond", "ControlTrigger"}
PLACEHOLDERS: Final = frozenset({"Placeholder", "PlaceholderV2", "PlaceholderWithDefault"})
IDENTITIES: Final = frozenset({"Identity", "StopGradient", "PreventGradient"})
# Not stateful by TensorFlow's book, and yet not for us to move or to merge.
_NOT_PURE: Final = frozenset({"Abort", "NoOp"})


@dataclass(frozen=True, slots=True, eq=False)
class Facts:
    """The facts of nodes that share op and attrs.

    Attributes:
        is_pure: see the head of this module.
        is_flow: it is control flow.
        has_plain_dtypes: all that it takes and gives are values: numbers, booleans, strings.
    """

    op: str
    is_pure: bool
    is_flow: bool
    has_plain_dtypes: bool


class FactsCache:
    """Facts by properties."""

    def __init__(self) -> None:
        self._facts: dict[NodeProperties, Facts] = {}

    def of(self, node: Node) -> Facts:
        """The facts of *node*."""
        properties = node.properties
        facts = self._facts.get(properties)
        if facts is None:
            facts = self._facts[properties] = _facts(properties)
        return facts


def _facts(properties: NodeProperties) -> Facts:
    op_def = properties.registration.op_def
    op = op_def.name
    is_flow = op in FLOW_OPS
    has_plain_dtypes = all(map(_is_plain, (*properties.input_dtypes, *properties.output_dtypes)))
    is_pure = (
        has_plain_dtypes
        and bool(properties.output_dtypes)
        and not (is_flow or op_def.is_stateful or (op_def.touches_outside and not is_user_op(properties)))
        and op not in PLACEHOLDERS
        and op not in _NOT_PURE
        and not any(isinstance(value, NameAttrList) for value in properties.attrs.values())
        and (_has_sync_kernel(op, properties) if properties.registration.kernel is None else is_user_op(properties))
    )
    return Facts(op, is_pure, is_flow, has_plain_dtypes)


def is_user_op(properties: NodeProperties) -> bool:
    """Whether the kernel of a node with *properties* is a user's function."""
    kernel = properties.registration.kernel
    return kernel is not None and kernel.is_user_function


def _is_plain(dtype: DType) -> bool:
    return not (dtype.is_ref or dtype.is_opaque or dtype in (types.resource, types.variant))


def _has_sync_kernel(op: str, properties: NodeProperties) -> bool:
    found = kernel_registry.find(op, "CPU", properties.attrs)
    return found is not None and found.kind is not KernelKind.ASYNC


def is_switch_like(node: Node) -> bool:
    """Whether *node* may run while one of its outputs is dead: to wait for it is not to wait for that output."""
    return node.properties.op in SWITCHES


def attrs_key(properties: NodeProperties) -> object:
    """Equal for properties of the same op with the same attrs, bit by bit."""
    return (
        properties.registration,
        properties.input_dtypes,
        properties.output_dtypes,
        tuple([(name, _attr_key(value)) for name, value in sorted(properties.attrs.items())]),
    )


def _attr_key(value: object) -> object:
    if isinstance(value, NameAttrList):
        return value.name, tuple([(name, _attr_key(each)) for name, each in sorted(value.attrs.items())])
    if isinstance(value, tuple):
        return tuple(map(_attr_key, value))
    if isinstance(value, (np.ndarray, np.generic)):
        return value_key(value)
    return type(value).__name__, repr(value) if isinstance(value, float) else value


def value_key(value: object) -> object:
    """Equal for arrays of the same dtype, shape, layout and bits."""
    if isinstance(value, np.ndarray) and value.dtype.hasobject:
        return "objects", value.shape, value.strides, tuple(value.ravel().tolist())
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.dtype.name, value.shape, value.strides, value.tobytes()
    if isinstance(value, np.generic):
        return value.dtype.str, value.dtype.name, value.tobytes()
    return type(value).__name__, value


def nbytes(value: Any) -> int:
    """The bytes that a value takes; of strings, with their characters."""
    if isinstance(value, np.ndarray) and value.dtype.hasobject:
        return sum(8 + len(each) for each in value.ravel().tolist())
    return len(value) if isinstance(value, bytes) else int(value.nbytes)


def ops_of(nodes: Sequence[Node]) -> Stage[set[str]]:
    """The ops of *nodes*, as a stage."""
    ops: set[str] = set()
    for start in range(0, len(nodes), STRIDE):
        ops.update([node.properties.op for node in nodes[start : start + STRIDE]])
        yield
    return ops


def is_constant(tensor: Tensor) -> bool:
    """Whether *tensor* is what a Const gives; that it is not fed is for the caller to know."""
    return tensor.op.properties.op == "Const"
