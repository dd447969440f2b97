"""Variables on workers, as saving sees them: nodes read and assign them, which are added to the graph on first use."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from asyncexec.framework.tensor_shape import TensorShape
from asyncexec.framework.types import DType
from asyncexec.frontend.create_op import create_op
from asyncexec.graph.current_graph import control_dependencies
from asyncexec.graph.graph import Graph
from asyncexec.graph.node import Node, Tensor

if TYPE_CHECKING:
    from asyncexec.session.direct_session import Session

_SCOPE: Final = "save"


@dataclass(frozen=True, slots=True)
class RemoteVariable:
    """A variable on a worker, with the nodes that read and assign it.

    Attributes:
        read: gives its value; assign: the operation that assigns what is fed for *fed*.
    """

    name: str
    dtype: DType
    shape: TensorShape
    read: Tensor[Any]
    fed: Tensor[Any]
    assign: Node


class RemoteVariables:
    """Those of one session."""

    def __init__(self) -> None:
        self._known: dict[Node, RemoteVariable] = {}

    def of(self, graph: Graph, nodes: Iterable[Node]) -> dict[str, RemoteVariable]:
        """The variables of *nodes*, which make them, by name."""
        for node in nodes:
            if node not in self._known:
                self._known[node] = _with_nodes(graph, node)
        return {self._known[node].name: self._known[node] for node in nodes}


def _with_nodes(graph: Graph, node: Node) -> RemoteVariable:
    dtype, shape = node.attrs["dtype"], node.attrs["shape"]
    name = (node.attrs["shared_name"] or node.name.encode()).decode()
    handle = node.outputs[0]
    scope = f"{_SCOPE}/{node.name}"
    with graph, control_dependencies(None), graph.placed_with(node):
        fed = create_op("Placeholder", (), {"dtype": dtype, "shape": shape}, f"{scope}/value")
        if node.op == "VarHandleOp":
            read = create_op("ReadVariableOp", [handle], {"dtype": dtype}, f"{scope}/Read")
            assign = create_op("AssignVariableOp", [handle, fed], {}, f"{scope}/Assign")
        else:
            read = create_op("Identity", [handle], {}, f"{scope}/Read")
            assign = create_op("Assign", [handle, fed], {"validate_shape": False}, f"{scope}/Assign")
    return RemoteVariable(name, dtype, shape, read, fed, assign if isinstance(assign, Node) else assign.op)


async def read_remote(session: Session, variables: Mapping[str, RemoteVariable]) -> dict[str, Any]:
    """The values of *variables*, which one step reads.

    Raises:
        FailedPreconditionError: one has no value.
    """
    if not variables:
        return {}
    found: dict[str, object] = await session.run({name: each.read for name, each in variables.items()})
    return found


async def assign_remote(
    session: Session, variables: Mapping[str, RemoteVariable], values: Mapping[str, object]
) -> None:
    """Assign *values* to *variables* in one step."""
    if variables:
        feeds = {each.fed: values[name] for name, each in variables.items()}
        await session.run([], feeds, targets=[each.assign for each in variables.values()])
