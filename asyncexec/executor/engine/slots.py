"""The slots of a frame, where values wait for the nodes that take them."""

from __future__ import annotations

from typing import Any

from asyncexec.compilation.graph_view import NOTHING, NodeItem


def take_inputs(slots: list[object], item: NodeItem) -> list[Any]:
    """The values in the slots of *item*, which are empty afterwards: who takes a tensor is the last to hold it."""
    start, count = item.input_start, item.num_inputs
    if count == 1:
        values = [slots[start]]
        slots[start] = NOTHING
    elif count == 2:
        second = start + 1
        values = [slots[start], slots[second]]
        slots[start] = slots[second] = NOTHING
    elif not count:
        values = []
    else:
        end = start + count
        values = slots[start:end]
        slots[start:end] = [NOTHING] * count
    return values
