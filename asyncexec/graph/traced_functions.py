"""The functions of a graph that were traced here, as nodes.

The library of a graph (``Graph.functions``) holds the same functions as FunctionDefs, for files.  A FunctionDef names
ops and carries no Python objects; so what runs is made of the nodes themselves, which know the very op they were made
with and its limiter.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from asyncexec.graph.graph import Graph
    from asyncexec.graph.node import Node, Tensor


@dataclass(frozen=True, slots=True, eq=False)
class TracedFunction:
    """One trace of a Python function.

    Attributes:
        name: the function's, in the library.
        graph: holds the nodes of the body, and nothing else.
        args: Placeholders of *graph*: of the tensors that a caller gives, then of those that are captured.
        returns: tensors of *graph*.
        controls: nodes of *graph* that run whatever is returned.
        captures: tensors of other graphs, for the last of *args*.
        control_captures: nodes of other graphs that a call has to wait for.
        is_stateful: whether something in it is.
        changed_args: positions of args that are resources, and changed.
        changes_world: whether anything happens outside of the graph whose order is to be kept.
        result: what the Python function returned; who traced it knows how to read it.
    """

    name: str
    graph: Graph
    args: tuple[Node, ...]
    returns: tuple[Tensor, ...]
    controls: tuple[Node, ...]
    captures: tuple[Tensor, ...]
    control_captures: tuple[Node, ...]
    is_stateful: bool
    changed_args: frozenset[int]
    changes_world: bool
    result: Any


class TracedFunctions:
    """All of a graph: by name, and by what they were traced for."""

    def __init__(self) -> None:
        self._by_name: dict[str, TracedFunction] = {}
        self._by_key: dict[Hashable, list[TracedFunction]] = {}
        self._counts: dict[str, int] = {}

    def unique_name(self, name: str, is_taken: Callable[[str], bool]) -> str:
        """*name*, or *name* with a number, which is not taken and was never given before."""
        count = self._counts.get(name)
        candidate = name if count is None else f"{name}_{count}"
        while candidate in self._by_name or is_taken(candidate):
            count = (count or 0) + 1
            candidate = f"{name}_{count}"
        self._counts[name] = (count or 0) + 1
        return candidate

    def add(self, function: TracedFunction) -> None:
        """Keep *function*, which is found by its name from now on."""
        self._by_name[function.name] = function

    def share(self, function: TracedFunction, key: Hashable) -> None:
        """Let other calls that have the same *key* use *function*."""
        self._by_key.setdefault(key, []).append(function)

    def find(self, name: str) -> TracedFunction | None:
        """The function *name*, or None when no function of that name was traced here."""
        return self._by_name.get(name)

    def traced_for(self, key: Hashable) -> list[TracedFunction]:
        """Those traced for *key*, in order."""
        return self._by_key.get(key, [])
