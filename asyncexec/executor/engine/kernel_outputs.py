"""What a kernel gave, as a sequence of as many outputs as its op has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from asyncexec.compilation.graph_view import NodeItem
from asyncexec.framework.errors import InternalError
from asyncexec.graph.node import Node


def checked_outputs(item: NodeItem, outputs: object) -> Sequence[Any]:
    """*outputs*, if they are as many as the op has (None will do for none); InternalError otherwise."""
    return checked_results(item.node, item.num_outputs, outputs)


def checked_results(node: Node, wanted: int, outputs: object) -> Sequence[object]:
    """*outputs* of *node*'s kernel, if they are so many (None will do for none); InternalError otherwise."""
    if outputs is None and not wanted:
        return ()
    if isinstance(outputs, (tuple, list)) and len(outputs) == wanted:
        return outputs
    given = f"{len(outputs)} outputs" if isinstance(outputs, (tuple, list)) else type(outputs).__name__
    raise InternalError(f"the kernel gave {given}, but {node.op} has {wanted} outputs", node=node)
