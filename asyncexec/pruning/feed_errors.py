"""What is wrong with feeding a tensor that a node takes, by whichever medium feeds travel."""

from __future__ import annotations

from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.graph.node import Node, Tensor


def fed_reference(node: Node, slot: int) -> InvalidArgumentError:
    """*node* takes a reference at *slot*, and what is fed there is a value."""
    return InvalidArgumentError(
        f"input {slot} takes a reference to a variable, but a value is fed for {node.inputs[slot].name!r}", node=node
    )


def fed_inside_loop(node: Node, tensor: Tensor) -> InvalidArgumentError:
    """*node* takes *tensor* in each iteration, and is fed once."""
    return InvalidArgumentError(
        f"{tensor.name!r} is fed, but {node.name!r}, which takes it, is inside a loop", node=node
    )
