"""FunctionRuntime of a session: a function of its graph as an executor of its own, compiled once.

What is compiled is a graph with the body of the function, which the lowering writes out like any other: so its nodes
are placed, partitioned, measured and offloaded as those of the session's graph are.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from asyncexec.compilation.graph_view import NOTHING
from asyncexec.durable.journal_scope import JournaledStep
from asyncexec.executor.diagnostics.step_stats_collector import StepStatsCollector
from asyncexec.executor.engine.executor_barrier import ExecutorBarrier
from asyncexec.executor.engine.part_of_step import PartOfStep
from asyncexec.framework import types
from asyncexec.framework.call_frame import CallFrame, current_call
from asyncexec.framework.cooperative import Stage, run_in_slices
from asyncexec.framework.errors import InvalidArgumentError, NotFoundError
from asyncexec.framework.function_runtime import FunctionCall
from asyncexec.framework.loop_turns import LoopTurns
from asyncexec.framework.op_def import NameAttrList
from asyncexec.framework.op_registry import registry as op_registry
from asyncexec.framework.step_stats import StepStats, StepTrace, begin_trace, end_trace
from asyncexec.framework.tensor_id import is_valid_node_name
from asyncexec.graph.function_library import function_registration
from asyncexec.graph.graph import Graph, properties_of
from asyncexec.graph.node import Node, Tensor
from asyncexec.ops.flow.calling import ARG, RETVAL
from asyncexec.ops.flow.functional import FUNCTION_BODY
from asyncexec.optimization.function_body import attr_key
from asyncexec.optimization.function_graph import bound_attrs
from asyncexec.process.gc_pause import paused_gc
from asyncexec.session.graph_execution_state import GraphExecutionState, PreparedGraph
from asyncexec.session.session_loop import SessionLoop

_NOT_IN_NAMES: Final = re.compile(r"[^A-Za-z0-9_.-]")
_MAX_NAME: Final = 1_000


class SessionFunctionRuntime:
    """Runs functions of *graph* in the session that *state* is of.

    *loop* is the session's, which builds one graph at a time.
    """

    def __init__(self, graph: Graph, state: GraphExecutionState, loop: SessionLoop) -> None:
        self._graph = graph
        self._state = state
        self._loop = loop
        self.clock = state.holds.clock
        self.turns: LoopTurns = LoopTurns(self.clock)
        self._called: dict[Any, _CalledFunction] = {}
        self._names: set[str] = set()

    def called(self, function: NameAttrList, device: str, host: str) -> _CalledFunction:
        """See FunctionRuntime."""
        key = attr_key(function), device, host
        if key not in self._called:
            self._called[key] = _CalledFunction(self, function, self._unique_name(function.name), device, host)
        return self._called[key]

    def _unique_name(self, wanted: str) -> str:
        """What nodes of a called function are named below: state of kernels is found by these names."""
        base = name = _as_node_name(wanted)
        count = 0
        while name in self._names or self._graph.find_operation(name) is not None:
            count += 1
            name = f"{base}_{count}"
        self._names.add(name)
        return name

    def instantiate(self, call: FunctionCall) -> _Function:
        """A handle of the function."""
        return _Function(self, call)

    def output_dtypes(self, function: NameAttrList) -> tuple[types.DType, ...]:
        """See FunctionRuntime."""
        found = self._graph.functions.get(function.name)
        if found is None:
            raise NotFoundError(f"there is no function {function.name!r} in the library of the graph")
        return function_registration(found).op_def.output_dtypes(function.attrs)

    async def compile(self, function: _Compiled) -> PreparedGraph:
        """The graph of *function*, ready to run.  Errors as of a session's own graphs."""
        async with self._loop.build_lock:
            if function.prepared is None:  # nobody else has done so meanwhile
                made = function.make_graph(self._graph)
                with paused_gc():
                    stage = self._state.prepare(made.feeds, made.fetches, made.targets)
                    function.prepared = await run_in_slices(stage, self._state.holds.clock)
            return function.prepared


@dataclass(frozen=True, slots=True)
class _Signature:
    """A graph that is made for a function, and how it is run."""

    feeds: Sequence[Tensor]
    fetches: Sequence[Tensor]
    targets: Sequence[Node]


class _Compiled(ABC):
    """What is compiled when it is first run."""

    __slots__ = ("_runtime", "prepared")

    def __init__(self, runtime: SessionFunctionRuntime) -> None:
        self._runtime = runtime
        self.prepared: PreparedGraph | None = None

    @abstractmethod
    def make_graph(self, outer: Graph) -> _Signature:
        """The graph that runs it, with the functions of *outer*."""

    async def compile(self) -> None:
        """See FunctionHandle."""
        if self.prepared is None:
            await self._runtime.compile(self)

    async def _run_step(
        self,
        feeds: Sequence[Any],
        collector: StepStatsCollector | None,
        journaled: JournaledStep | None,
        frame: CallFrame | None = None,
    ) -> PartOfStep | ExecutorBarrier:
        """A step that has run, on *frame* if there is one."""
        prepared = self.prepared or await self._runtime.compile(self)
        step = prepared.executor.start(feeds, collector, journaled=journaled)
        if frame is not None:
            frame.step = step
        if not step.run_inline():
            await step.run()
        if journaled is not None:
            journaled.check()
        return step

    async def _include_stats(self, collector: StepStatsCollector, traces: Sequence[StepTrace]) -> None:
        """Let *traces* have what *collector* knows of a step."""
        if self.prepared is not None:
            stats = await run_in_slices(_step_stats(self.prepared, collector), self._runtime.clock)
            for trace in traces:
                trace.include(stats)


class _Function(_Compiled):
    """A function that has been instantiated."""

    __slots__ = ("call",)

    def __init__(self, runtime: SessionFunctionRuntime, call: FunctionCall) -> None:
        super().__init__(runtime)
        self.call: FunctionCall = call

    def make_graph(self, outer: Graph) -> _Signature:
        caller = _CallGraph(outer, self.call)
        return _Signature(caller.feeds, caller.node.outputs, [caller.node])

    async def run(
        self,
        gathered: object,
        others: Sequence[Any],
        traces: Sequence[StepTrace] = (),
        journaled: JournaledStep | None = None,
    ) -> list[Any]:
        """What the function gives; see FunctionHandle."""
        feeds = [gathered, *others]
        if not traces:
            return self._fetched(await self._run_step(feeds, None, journaled))
        collector = StepStatsCollector(self._runtime.clock)
        token = begin_trace(collector)
        try:
            return self._fetched(await self._run_step(feeds, collector, journaled))
        finally:
            end_trace(token)
            await self._include_stats(collector, traces)

    def _fetched(self, step: PartOfStep | ExecutorBarrier) -> list[object]:
        values = step.fetched()
        if any(value is NOTHING for value in values):
            assert self.call.function is not None  # an op gives all its outputs
            name = self.call.function.name
            raise InvalidArgumentError(f"function {name!r} gave no value for an output", node=self.call.name)
        return values


class _CalledFunction(_Compiled):
    """A function that nodes call; its nodes are named below *name*."""

    __slots__ = ("_device", "_function", "_host", "_name")

    def __init__(
        self, runtime: SessionFunctionRuntime, function: NameAttrList, name: str, device: str, host: str
    ) -> None:
        super().__init__(runtime)
        self._function = function
        self._name = name
        self._device = device
        self._host = host

    def make_graph(self, outer: Graph) -> _Signature:
        """_Args, the body of the function, and _Retvals, which are on the call frame."""
        graph, name = _graph_like(outer), self._name
        op_def = function_registration(outer.functions[self._function.name]).op_def
        attrs = bound_attrs(op_def, self._function.attrs)
        takes, gives = op_def.input_dtypes(attrs), op_def.output_dtypes(attrs)
        args = [
            graph.add_node(f"_arg_{name}_{i}", properties_of(ARG, {"T": dtype, "index": i}), device=self._host).outputs[
                0
            ]
            for i, dtype in enumerate(takes)
        ]
        properties = properties_of(FUNCTION_BODY, {"Tin": takes, "Tout": gives, "f": self._function})
        body = graph.add_node(name, properties, args, device=self._device)
        retvals = [
            graph.add_node(
                f"_retval_{name}_{i}",
                properties_of(RETVAL, {"T": tensor.dtype, "index": i}),
                [tensor],
                device=self._host,
            )
            for i, tensor in enumerate(body.outputs)
        ]
        return _Signature((), (), [body, *retvals])

    async def run(self, frame: CallFrame, trace: StepTrace | None, journaled: JournaledStep | None) -> list[Any]:
        """See CalledFunction."""
        collector = None if trace is None else StepStatsCollector(self._runtime.clock)
        token = current_call.set(frame)
        try:
            await self._run_step((), collector, journaled, frame)
            return frame.take_retvals()
        finally:
            frame.release()
            with suppress(ValueError):  # closed from another context, with its event loop
                current_call.reset(token)
            if collector is not None and trace is not None:
                await self._include_stats(collector, (trace,))


def _as_node_name(function: str) -> str:
    """A name of a node like that of *function*, which may be any string."""
    name = _NOT_IN_NAMES.sub("_", function[:_MAX_NAME])
    return name if is_valid_node_name(name, allow_internal=True) else f"f{name}"


def _graph_like(outer: Graph) -> Graph:
    """An empty graph with the functions of *outer*."""
    graph = Graph()
    graph.functions, graph.traced = outer.functions, outer.traced
    graph.versions, graph.allowed_ops = outer.versions, outer.allowed_ops
    return graph


def _step_stats(prepared: PreparedGraph, collector: StepStatsCollector) -> Stage[StepStats]:
    device_of = yield from prepared.node_devices()
    return (yield from collector.step_stats(device_of))


class _CallGraph:
    """A graph that has nothing but a call of a function of *outer*, or one of an op, and what stands for its inputs.

    Attributes:
        node: the call.
        feeds: the object to gather inputs from, then the other inputs.
    """

    def __init__(self, outer: Graph, call: FunctionCall) -> None:
        graph = self._graph = _graph_like(outer)
        gathered = self._placeholder(f"{call.name}/gathered", types.object)
        if call.function is None:
            properties = properties_of(call.gather, {"Tin": call.output_dtypes})
            self.node: Node = graph.add_node(call.name, properties, [gathered], device=call.device)
            self.feeds: list[Tensor] = [gathered]
            return
        others = [self._placeholder(f"{call.name}/other_{i}", dtype) for i, dtype in enumerate(call.other_dtypes)]
        gather = graph.add_node(
            f"{call.name}/gather", properties_of(call.gather, {"Tin": call.gathered_dtypes}), [gathered]
        )
        attrs = {"Tin": (*call.gathered_dtypes, *call.other_dtypes), "Tout": call.output_dtypes, "f": call.function}
        properties = properties_of(FUNCTION_BODY, attrs)
        self.node = graph.add_node(call.name, properties, [*gather.outputs, *others], device=call.device)
        self.feeds = [gathered, *others]

    def _placeholder(self, name: str, dtype: types.DType) -> Tensor:
        properties = properties_of(op_registry.lookup("Placeholder"), {"dtype": dtype})
        return self._graph.add_node(name, properties).outputs[0]
