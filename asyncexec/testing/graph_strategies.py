"""Hypothesis strategies for graphs with control flow, and what to feed and fetch.

``programs()`` draws what a user may write: arithmetic, ``cond``, ``switch_case`` and ``while_loop`` in one another, and
control dependencies.  ``raw_programs()`` draws Switches, Merges and loops that no frontend would make.  A Program is
shown as text that ``Program.parse`` takes back.

Needs the package ``hypothesis``; nothing else in ``asyncexec.testing`` does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Self

import hypothesis.strategies as st
import numpy as np

import asyncexec as ax
from asyncexec.framework.graph_def import GraphDef
from asyncexec.graph.graph_text import graph_text, parse_graph_text
from asyncexec.testing.raw_graph_builder import CALL, PARALLEL_ITERATIONS, RawGraphBuilder, picked, picked_names

MAX_DEPTH: Final = 3  # of branches and loops in one another
MAX_NODES: Final = 250  # after which nothing new is begun


@dataclass(frozen=True, slots=True, repr=False)
class Program:
    """A graph with values to feed and tensors to fetch, both by name."""

    graph_def: GraphDef
    feeds: Mapping[str, Any]
    fetches: tuple[str, ...]

    @classmethod
    def parse(cls, text: str, feeds: Mapping[str, object], *fetches: str) -> Self:
        """A Program whose graph is written as of ``asyncexec.graph.graph_text``."""
        return cls(parse_graph_text(text), feeds, fetches)

    def graph(self, replacements: Mapping[str, str] | None = None) -> ax.Graph:
        """The graph, new; the nodes called ``call...`` in *replacements* are of the op types it gives."""
        graph_def = self.graph_def
        if replacements:
            nodes = [
                node.model_copy(update={"op": replacements[node.name]}) if node.name in replacements else node
                for node in graph_def.node
            ]
            graph_def = graph_def.model_copy(update={"node": tuple(nodes)})
        with ax.Graph() as graph:
            ax.import_graph_def(graph_def)
        return graph

    @property
    def calls(self) -> list[str]:
        """The names of the nodes called ``call...``."""
        return [node.name for node in self.graph_def.node if node.name.rpartition("/")[2].startswith(CALL)]

    def __repr__(self) -> str:
        text = "\n".join(f"    {line}" for line in graph_text(self.graph_def).splitlines())
        feeds = {name: np.asarray(value).tolist() for name, value in self.feeds.items()}
        fetches = "".join(f", {fetch!r}" for fetch in self.fetches)
        return f'Program.parse("""\n{text}\n""", {feeds}{fetches})'

    def _repr_pretty_(self, printer: Any, is_cycle: bool) -> None:
        """What hypothesis asks for; it would show the fields."""
        printer.text(repr(self))


class Kind(NamedTuple):
    """What a value is: values of one kind may stand for one another."""

    dtype: ax.DType
    dims: tuple[int, ...] = ()


class Value(NamedTuple):
    tensor: ax.Tensor
    kind: Kind


INT: Final = Kind(ax.int32)
KINDS: Final = (INT, Kind(ax.int64), Kind(ax.float32), Kind(ax.int32, (2,)), Kind(ax.float32, (2,)))
SCALARS: Final = tuple(kind for kind in KINDS if not kind.dims)

_BINARY: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "add": ax.add,
    "subtract": ax.subtract,
    "multiply": ax.multiply,
    "maximum": ax.maximum,
    "minimum": ax.minimum,
    "select": lambda a, b: ax.where(ax.less(a, b), a, b),
}
_STATEMENTS: Final = ("arithmetic", "call", "cast", "cond", "switch_case", "while_loop")
_SIMPLE: Final = _STATEMENTS[:3]


def programs(*, max_statements: int = 5, dead_fetches: bool = False) -> st.SearchStrategy[Program]:
    """Programs as users write them.

    Args:
        max_statements: at most how many there are in each branch, body, and outside of them all.
        dead_fetches: whether a fetch may be inside of a branch, where it has a value only if that is taken.
    """
    return st.composite(_program)(max_statements, dead_fetches)


def raw_programs(*, max_statements: int = 20) -> st.SearchStrategy[Program]:
    """Programs of low-level nodes, in which much is dead, and fetches may be."""
    return st.composite(_raw_program)(max_statements)


def _program(draw: st.DrawFn, max_statements: int, dead_fetches: bool) -> Program:
    with ax.Graph() as graph:
        builder = _Builder(draw, graph, max_statements)
        scope = builder.block([builder.fed() for _ in range(draw(st.integers(1, 3)))], 0)
        builder.feed_in_between(scope)
    candidates = [value.tensor.name for value in scope if value.tensor.name not in builder.feeds]
    if dead_fetches:
        candidates += builder.branch_values
    candidates = candidates or [graph.operations[-1].outputs[0].name]
    return Program(graph.as_graph_def(), builder.feeds, picked_names(draw, candidates[::-1]))


def _raw_program(draw: st.DrawFn, max_statements: int) -> Program:
    builder = RawGraphBuilder(draw)
    builder.build(max_statements)
    return Program(parse_graph_text(builder.text), builder.feeds, builder.fetches())


class _Builder:
    """Adds what is drawn to a graph.  A scope is the values that can be used at a place, the latest last."""

    def __init__(self, draw: st.DrawFn, graph: ax.Graph, max_statements: int) -> None:
        self._draw = draw
        self._graph = graph
        self._max_statements = max_statements
        self._loops = 0  # around what is being built
        self.feeds: dict[str, Any] = {}
        # Names of values inside of branches, but not of loops.
        self.branch_values: list[str] = []

    def fed(self) -> Value:
        """A placeholder."""
        kind = self._draw(st.sampled_from(KINDS))
        tensor = ax.placeholder(kind.dtype, kind.dims, name="x")
        self.feeds[tensor.name] = self._draw(_contents(kind))
        return Value(tensor, kind)

    def feed_in_between(self, scope: list[Value]) -> None:
        """Maybe feed a value that would have been computed."""
        value = picked(self._draw, [None, *scope])
        if value is not None and value.tensor.name not in self.feeds:
            self.feeds[value.tensor.name] = self._draw(_contents(value.kind))

    def block(self, scope: list[Value], depth: int) -> list[Value]:
        """*scope* with the results of some statements."""
        scope, outside = list(scope), len(scope)
        for _ in range(self._draw(st.integers(0, self._max_statements))):
            is_full = depth >= MAX_DEPTH or self._graph.num_nodes > MAX_NODES
            statement = self._draw(st.sampled_from(_SIMPLE if is_full else _STATEMENTS))
            with self._condition(scope):
                scope += getattr(self, f"_{statement}")(scope, depth)
        if depth and not self._loops:
            self.branch_values += [value.tensor.name for value in scope[outside:]]
        return scope

    def _condition(self, scope: list[Value]) -> Any:
        """Maybe a control dependency."""
        value = picked(self._draw, [None, None, *scope])
        return nullcontext() if value is None else ax.control_dependencies([value.tensor])

    def _value(self, scope: list[Value], kind: Kind) -> ax.Tensor:
        """A value of that kind: from *scope*, the latest first, or a constant."""
        found: list[ax.Tensor] = [value.tensor for value in reversed(scope) if value.kind == kind]
        position = self._draw(st.integers(0, len(found)))
        if position < len(found):
            return found[position]
        return ax.constant(self._draw(_contents(kind)), kind.dtype)

    def _predicate(self, scope: list[Value]) -> ax.Tensor:
        kind = self._draw(st.sampled_from(SCALARS))
        return ax.less(self._value(scope, kind), self._value(scope, kind))

    def _kinds(self) -> list[Kind]:
        return self._draw(st.lists(st.sampled_from(KINDS), min_size=1, max_size=3))

    # Statements.

    def _arithmetic(self, scope: list[Value], depth: int) -> list[Value]:
        kind = self._draw(st.sampled_from(KINDS))
        operation = _BINARY[self._draw(st.sampled_from(list(_BINARY)))]
        return [Value(operation(self._value(scope, kind), self._value(scope, kind)), kind)]

    def _call(self, scope: list[Value], depth: int) -> list[Value]:
        kind = self._draw(st.sampled_from(KINDS))
        return [Value(ax.identity(self._value(scope, kind), CALL), kind)]

    def _cast(self, scope: list[Value], depth: int) -> list[Value]:
        """Between the kinds of scalars; of floats, what they are compared to."""
        kind, other = self._draw(st.sampled_from(SCALARS)), self._draw(st.sampled_from(SCALARS))
        tensor = self._value(scope, kind)
        if kind.dtype.is_floating:
            tensor = ax.less(tensor, 0.5)
        return [Value(ax.cast(tensor, other.dtype), other)]

    def _cond(self, scope: list[Value], depth: int) -> list[Value]:
        kinds = self._kinds()

        def branch() -> list[ax.Tensor]:
            inner = self.block(scope, depth + 1)
            return [self._value(inner, kind) for kind in kinds]

        return list(map(Value, ax.cond(self._predicate(scope), branch, branch), kinds))

    def _switch_case(self, scope: list[Value], depth: int) -> list[Value]:
        kinds = self._kinds()

        def branch() -> list[ax.Tensor]:
            inner = self.block(scope, depth + 1)
            return [self._value(inner, kind) for kind in kinds]

        branches = [branch] * self._draw(st.integers(2, 3))
        return list(map(Value, ax.switch_case(self._value(scope, INT), branches), kinds))

    def _while_loop(self, scope: list[Value], depth: int) -> list[Value]:
        """Goes round at most 4 - *depth* times, and stops early if a predicate of its own says so."""
        kinds = self._kinds()
        stops_early = self._draw(st.booleans())
        limit = ax.minimum(self._value(scope, INT), 4 - depth)

        def is_going_on(count: ax.Tensor, *tensors: ax.Tensor) -> ax.Tensor:
            is_within = ax.less(count, limit)
            if not stops_early:
                return is_within
            return ax.logical_and(is_within, self._predicate([*scope, *map(Value, tensors, kinds)]))

        def body(count: ax.Tensor, *tensors: ax.Tensor) -> list[ax.Tensor]:
            inner = self.block([*scope, Value(count, INT), *map(Value, tensors, kinds)], depth + 1)
            return [count + 1, *(self._value(inner, kind) for kind in kinds)]

        initial = [ax.constant(0), *(self._value(scope, kind) for kind in kinds)]
        parallel_iterations = self._draw(st.sampled_from(PARALLEL_ITERATIONS))
        self._loops += 1
        results = ax.while_loop(is_going_on, body, initial, parallel_iterations=parallel_iterations)
        self._loops -= 1
        return list(map(Value, results, [INT, *kinds]))


def _contents(kind: Kind) -> st.SearchStrategy[object]:
    """Small numbers: of floats, such as stay exact for a while."""
    numbers: st.SearchStrategy[object] = st.integers(-3, 5)
    if kind.dtype.is_floating:
        numbers = st.sampled_from([0.0, 1.0, -1.0, 0.5, -2.25, 3.0])
    as_numpy = kind.dtype.as_numpy_dtype
    if kind.dims:
        return st.lists(numbers, min_size=kind.dims[0], max_size=kind.dims[0]).map(lambda v: np.array(v, as_numpy))
    return numbers.map(as_numpy.type)
