"""How many nodes functions become when they are written out: counted before any is made.

Functions that call functions twice double with every level: a library of 30 of them is a billion nodes.  So each
function is counted once, and from then on its size is known.  Where functions are given functions as attrs, each
combination is counted once.  Only what certainly becomes nodes counts: what is refused here could not be lowered.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from asyncexec.framework.cooperative import STRIDE, Stage
from asyncexec.framework.errors import InvalidArgumentError, OpError, ResourceExhaustedError
from asyncexec.framework.graph_def import AttrValue, FunctionDef, NodeDef, make_attr
from asyncexec.framework.graph_def import NameAttrList as NameAttrListProto
from asyncexec.framework.op_def import NameAttrList
from asyncexec.framework.op_registry import registry as op_registry
from asyncexec.graph.graph import Graph
from asyncexec.graph.node import Node
from asyncexec.optimization import private_nodes
from asyncexec.optimization.expansion import MAX_DEPTH
from asyncexec.optimization.function_body import FUNCTIONAL_OPS

_CALLING: Final = FUNCTIONAL_OPS | {"Catch"}  # whose functions are written out as well, each in a graph of its own
MAX_INSTANCES: Final = 2**12  # of functions that are given functions
MAX_NESTED: Final = 2**10  # functions in the attrs of one, and in theirs

# A function with the functions that are its attrs, as a number.
Instance: TypeAlias = int
Instances: TypeAlias = tuple[Instance, ...]  # the value of an attr, one or a list
Given: TypeAlias = Mapping[str, Instances]


@dataclass(frozen=True, slots=True)
class _Outline:
    """What a function certainly becomes.

    Attributes:
        num_nodes: its own nodes, and one for the call.
        calls: the functions that its nodes call.
        defaults: functions that are its attrs where a call gives no others.
    """

    num_nodes: int
    calls: Sequence[AttrValue]
    defaults: Mapping[str, AttrValue]


class FunctionSizes:
    """Counts the nodes of the functions of *graph*, and keeps what it has counted.

    A call of a function that is *called* is one node.
    """

    def __init__(self, graph: Graph, called: Container[str] = ()) -> None:
        self._functions = graph.functions
        self._called = called
        self._outlines: dict[str, _Outline] = {}
        self._numbers: dict[tuple[object, ...], Instance] = {}
        self._instances: list[tuple[str, Given]] = []
        self._num_nested: list[int] = []  # by instance
        self._sizes: dict[Instance, int] = {}

    def check(self, nodes: Sequence[Node]) -> Stage[None]:
        """See, as a stage, whether what *nodes* call can be written out.

        Raises:
            ResourceExhaustedError: it would be too many nodes, or functions are given too many functions.
            InvalidArgumentError: functions are nested too deep in attrs.
        """
        total = 0
        for count, node in enumerate(nodes, 1):
            if node.op in _CALLING or node.op in self._functions:
                try:
                    for instance in self._called_by(node):
                        total = yield from self._add(instance, total, is_body=node.op == "_FunctionBody")
                except RecursionError:
                    text = "functions are nested too deep in the attrs of functions"
                    raise InvalidArgumentError(text, node=node) from None
                except OpError as error:
                    raise error.locate(node) from None
            if not count % STRIDE:
                yield

    def _add(self, start: Instance, total: int, *, is_body: bool) -> Stage[int]:
        """*total* and the size of *start*, which is written out in any case if it *is_body*.

        Depth first, without recursion: a library may be as deep as it likes.
        """
        path: list[tuple[Instance, int, Iterator[Instance]]] = []  # with the total before it, and what it calls
        steps = 0
        instance: Instance | None = start
        while True:
            if instance is not None:
                total = self._enter(instance, total, path, is_body=is_body and not path and not steps)
                if total > private_nodes.MAX_NODES:
                    raise private_nodes.too_many_nodes()
            if not path:
                return total
            finished, before, calls = path[-1]
            instance = next(calls, None)
            if instance is None:
                path.pop()
                self._sizes[finished] = total - before
            steps += 1
            if not steps % STRIDE:
                yield

    def _enter(
        self, instance: Instance, total: int, path: list[tuple[Instance, int, Iterator[Instance]]], *, is_body: bool
    ) -> int:
        """*total* and the size of *instance*, if that is known; or with its own nodes, and its calls to come."""
        if self._instances[instance][0] in self._called and not is_body:
            return total + 1
        known = self._sizes.get(instance)
        if known is not None:
            return total + known
        name, given = self._instances[instance]
        outline = self._outline(name)
        if len(path) < MAX_DEPTH:  # what is deeper is refused when it is lowered
            path.append((instance, total, self._calls(outline, given)))
        return total + outline.num_nodes

    def _called_by(self, node: Node) -> Instances:
        """What *node*, of the client graph, calls."""
        if node.op in self._functions:
            return (self._decoded(NameAttrList(node.op, node.attrs)),)
        return tuple(one for name in node.op_def.attrs for one in self._functions_in(node.attrs[name]))

    def _functions_in(self, value: object) -> Instances:
        values = value if isinstance(value, tuple) else (value,)
        return tuple(self._decoded(one) for one in values if isinstance(one, NameAttrList))

    def _decoded(self, function: NameAttrList) -> Instance:
        return self._instance(function.name, {name: self._functions_in(each) for name, each in function.attrs.items()})

    def _calls(self, outline: _Outline, given: Given) -> Iterator[Instance]:
        """What a function calls that is given the attrs *given*."""
        if outline.defaults:
            given = {name: self._bound(value, {}) for name, value in outline.defaults.items()} | dict(given)
        return (instance for call in outline.calls for instance in self._bound(call, given))

    def _bound(self, value: AttrValue, given: Given) -> Instances:
        """The functions in *value*, an attr in the body of a function that is given *given*."""
        if value.placeholder is not None:
            return given.get(value.placeholder, ())
        functions = (value.func,) if value.func is not None else value.list.func if value.list is not None else ()
        return tuple(
            self._instance(one.name, {name: self._bound(each, given) for name, each in one.attr.items()})
            for one in functions
        )

    def _instance(self, name: str, given: Given) -> Instance:
        given = {attr: instances for attr, instances in given.items() if instances}
        key = (name, *sorted(given.items()))
        number = self._numbers.get(key)
        if number is not None:
            return number
        num_nested = 1 + sum(self._num_nested[one] for instances in given.values() for one in instances)
        if num_nested > MAX_NESTED:
            raise ResourceExhaustedError(f"function {name!r} is given more than {MAX_NESTED} functions in its attrs")
        number = self._numbers[key] = len(self._instances)
        if number > MAX_INSTANCES + len(self._functions):
            raise ResourceExhaustedError(
                f"functions are given functions in more than {MAX_INSTANCES} combinations, {name!r} in one of them"
            )
        self._instances.append((name, given))
        self._num_nested.append(num_nested)
        return number

    def _outline(self, name: str) -> _Outline:
        outline = self._outlines.get(name)
        if outline is None:
            function = self._functions.get(name)
            outline = self._outlines[name] = _Outline(1, (), {}) if function is None else self._read(function)
        return outline

    def _read(self, function: FunctionDef) -> _Outline:
        num_nodes = 1
        calls: list[AttrValue] = []
        for node in self._live_nodes(function):
            if node.op in self._functions:
                calls.append(make_attr("func", NameAttrListProto.model_construct(name=node.op, attr=node.attr)))
            elif node.op in _CALLING:
                attrs = op_registry.lookup(node.op).op_def.attrs
                calls += [value for attr, value in node.attr.items() if attr in attrs]
            elif node.op != "Identity":  # which may be left out
                num_nodes += 1
        attrs_of_function = function.signature.attr
        defaults = {attr.name: attr.default_value for attr in attrs_of_function if attr.default_value is not None}
        return _Outline(num_nodes, calls, defaults)

    def _live_nodes(self, function: FunctionDef) -> list[NodeDef]:
        """What runs: what is returned, and what is stateful, with all that these need."""
        nodes = {node.name: node for node in function.node_def}
        stateful = [node.name for node in function.node_def if self._is_stateful(node)]
        pending = [*map(_node_name, function.ret.values()), *function.control_ret.values(), *stateful]
        live: dict[str, NodeDef] = {}
        while pending:
            name = pending.pop()
            if name in nodes and name not in live:
                live[name] = nodes[name]
                pending += map(_node_name, nodes[name].input)
        return list(live.values())

    def _is_stateful(self, node: NodeDef) -> bool:
        function = self._functions.get(node.op)
        if function is not None:
            return function.signature.is_stateful
        registration = op_registry.find(node.op)
        return registration is not None and registration.op_def.is_stateful


def _node_name(source: str) -> str:
    return source.removeprefix("^").partition(":")[0]
