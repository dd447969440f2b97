"""ControlFlowContext: what a branch or a loop that is being built does to the nodes made inside of it.

After ``ControlFlowContext`` in ``tensorflow/python/ops/control_flow_ops.py``.  Every node belongs to the context that
its outputs live in, None for the graph at large.  A tensor of an outer context has to be captured on its way in, by an
op that each context chooses; one of an inner context, or of another branch, can never be had.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.graph.node import Node, Tensor


class ControlFlowContext(ABC):
    """A branch or a loop, while it is being built.

    Attributes:
        description: what it is, for messages, such as ``loop 'while'``.
        outer: the context around it, or None.
        ends_at_merge: whether a Merge outside takes its results as they are.
    """

    ends_at_merge: ClassVar[bool] = False

    def __init__(self, description: str, outer: ControlFlowContext | None) -> None:
        self.description = description
        self.outer = outer

    @property
    @abstractmethod
    def pivot(self) -> Node:
        """What is live in here whenever this is: nodes without inputs wait for it."""

    @abstractmethod
    def capture(self, tensor: Tensor) -> Tensor:
        """*tensor* as it can be had in here; InvalidArgumentError when it cannot."""

    @abstractmethod
    def capture_control(self, node: Node) -> Node:
        """What to wait for in here so as to wait for *node*; InvalidArgumentError when there is nothing."""

    @abstractmethod
    def admit(self, node: Node) -> None:
        """Rewrite the inputs of *node*, which is about to become part of this."""


def unreachable(node: Node, inside: ControlFlowContext) -> InvalidArgumentError:
    """The error of somebody who wants *node*, which is *inside* something that he is not in."""
    return InvalidArgumentError(
        f"{node.name!r} is inside {inside.description}, and cannot be used outside of it",
        hint="return it from there, and use what cond or while_loop returns",
    )
