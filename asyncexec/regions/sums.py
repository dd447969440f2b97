"""Sums of many scalars, as a call for each group of summands.

A group is added as soon as its summands are there: then few of them are kept at a time, where one call would take all.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from asyncexec.framework.kernel import Kernel
from asyncexec.graph.node import Node
from asyncexec.ops.math.binary_math import add_group, add_in_groups, add_up, groups_of
from asyncexec.regions.program import Call, Liveness, Scope, Value
from asyncexec.regions.states import State

MANY: Final = 64  # inputs, from which on a node takes more than some microseconds
_MOST: Final = 4096  # summands: the calls are made without a pause


def split_sum(
    node: Node, kernel: Kernel, scope: Scope, inputs: Sequence[State], liveness: Liveness
) -> tuple[Kernel, list[Value]]:
    """The last call of *node*, with what it takes: of a sum, the calls for all other groups have been made."""
    values = [state.value for state in inputs]
    if kernel is not add_in_groups or len(values) > _MOST:
        return kernel, values
    *groups, last = groups_of(len(values))
    kernel, totals = add_up, list[Value]()
    for group in groups:
        call = Call(scope, liveness, node, kernel, [*totals, *values[group]])
        call.come_after(*[state.after for state in inputs[group]])
        kernel, totals = add_group, [Value(call, is_scalar=True)]
        call.outputs = totals
    return kernel, [*totals, *values[last]]
