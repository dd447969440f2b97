"""Whether a signature has state: what a step leaves for the next one, in a variable, a queue or a table.

A step without state can be begun again, and its items can run in any process: what it gives is the same.  What a step
makes for itself (TensorArrays, stacks) is no state.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final
from weakref import WeakKeyDictionary

from asyncexec.framework import types
from asyncexec.framework.clock import Clock
from asyncexec.framework.cooperative import STRIDE, Stage, run_in_slices
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.graph_def import FunctionDef, NodeDef
from asyncexec.framework.op_def import NameAttrList, OpDef
from asyncexec.framework.op_registry import registry as op_registry
from asyncexec.graph.node import Node
from asyncexec.graph.recursion import functions_named_by
from asyncexec.partition.partitioned_graph import PartitionedGraph
from asyncexec.session.graph_execution_state import PreparedGraph

_OF_A_STEP: Final = ("TensorArray", "Stack")  # what the names of ops begin with whose resources end with the step
_WITHOUT_HANDLE: Final = frozenset(
    {
        "DeleteSessionTensor",
        "GetSessionHandle",
        "GetSessionTensor",
        "KeyedStateRead",
        "StreamStateRead",
        "StreamStateWrite",
    }
)


class StateFinder:
    """Finds the state of signatures, once for each.

    Args:
        clock: measures the slices of the search.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._found: WeakKeyDictionary[PreparedGraph, str | None] = WeakKeyDictionary()

    async def find(self, graph: PreparedGraph) -> str | None:
        """The name of a node of *graph* that has state, with its op; None where there is none."""
        if graph not in self._found:
            self._found[graph] = await run_in_slices(find_state(graph.partitions.values()), self._clock)
        return self._found[graph]

    async def check_has_none(self, graph: PreparedGraph, what: str) -> None:
        """InvalidArgumentError, which names the node, if *graph* has state: *what* is for those without."""
        found = await self.find(graph)
        if found is not None:
            raise InvalidArgumentError(
                f"{what} is for signatures without state, and {found} has state",
                hint="a part of a step may run twice; feed what the variables hold, or keep them out of this signature",
            )


def find_state(partitions: Iterable[PartitionedGraph]) -> Stage[str | None]:
    """The name of a node with state among *partitions*, and what functions these reach, as a stage."""
    ahead: list[str] = []
    library: Mapping[str, FunctionDef] = {}
    for part in partitions:
        nodes = part.graph.nodes
        for start in range(0, len(nodes), STRIDE):
            for node in nodes[start : start + STRIDE]:
                if _has_state(node.op_def):
                    return f"{node.name!r} ({node.op})"
                library = node.graph.functions
                ahead += _functions_of(node, library)
            yield
    return (yield from _find_in_functions(ahead, library))


def _find_in_functions(ahead: list[str], library: Mapping[str, FunctionDef]) -> Stage[str | None]:
    seen: set[str] = set()
    while ahead:
        name = ahead.pop()
        if name in seen or name not in library:
            continue
        seen.add(name)
        for node in library[name].node_def:
            if _names_state(node):
                return f"{node.name!r} ({node.op}) of function {name!r}"
            ahead += functions_named_by(node)
        yield
    return None


def _names_state(node: NodeDef) -> bool:
    registration = op_registry.find(node.op)  # None: a call of a function
    return registration is not None and _has_state(registration.op_def)


def _has_state(op_def: OpDef) -> bool:
    if op_def.name.startswith(_OF_A_STEP):
        return False
    return op_def.name in _WITHOUT_HANDLE or any(
        arg.is_ref or arg.dtype is types.resource for arg in (*op_def.inputs, *op_def.outputs)
    )


def _functions_of(node: Node, library: Collection[str]) -> Iterator[str]:
    if node.op in library:
        yield node.op
    for value in node.attrs.values():
        yield from _names_in(value)


def _names_in(value: object) -> Iterator[str]:
    if isinstance(value, NameAttrList):
        yield value.name
    elif isinstance(value, (list, tuple)):
        yield from (each.name for each in value if isinstance(each, NameAttrList))
