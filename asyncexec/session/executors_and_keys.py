"""ExecutorsAndKeys: what a session keeps for each signature of feeds, fetches and targets it has run."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from numpy import ndarray

from asyncexec.compilation.graph_view import NOTHING
from asyncexec.executor.plans.tier import Tier
from asyncexec.framework.cooperative import PART, STRIDE, Stage, in_parts, run_in_slices
from asyncexec.framework.errors import InternalError, InvalidArgumentError, OpError
from asyncexec.graph.graph import Graph
from asyncexec.graph.node import Node, Tensor
from asyncexec.process.gc_pause import paused_gc
from asyncexec.pruning.prune import ClientGraph, path_to
from asyncexec.session.call_arguments import feed_tensors_stage, target_nodes_stage
from asyncexec.session.dead_fetches import why_dead
from asyncexec.session.fetch_mapper import Build, FetchMapper
from asyncexec.session.function_call_frame import Converter, SlowConverter, feed_converter
from asyncexec.session.graph_execution_state import AnyExecutor, GraphExecutionState, PreparedGraph
from asyncexec.session.large_feeds import LargeFeedError, convert_in_pieces, is_large


@dataclass(frozen=True, slots=True, eq=False)
class ExecutorsAndKeys:
    """One signature, ready to be run.

    Attributes:
        graph: what was made of it, stage by stage.
        feeds: the tensors fed, in the order of the values.
        converters: one for each feed.
        guarded: the same, for values that do not take long.
        executor: runs the steps.
        awaits: whether it has async kernels.
        references: positions of fetches that are references to variables.
        arrays: positions of fetches that may be arrays that somebody keeps.
        build: puts the values of the fetches together.
        tier: which executor runs the steps.
    """

    graph: PreparedGraph
    feeds: tuple[Tensor, ...]
    converters: tuple[Converter, ...]
    guarded: tuple[Converter, ...]
    executor: AnyExecutor
    awaits: bool
    references: tuple[int, ...]
    arrays: tuple[int, ...]
    build: Build
    tier: Tier

    @property
    def client_graph(self) -> ClientGraph:
        return self.graph.client_graph

    def result(self, values: list[Any]) -> Any:
        """The caller's nest, from the *values* that a step fetched."""
        for value in values:
            if value is NOTHING:
                raise self.missing_fetch(next(i for i, each in enumerate(values) if each is NOTHING))
        for position in self.references:
            values[position] = self._read(position, values[position])
        for position in self.arrays:
            value = values[position]
            if type(value) is ndarray and not value.flags.writeable:
                values[position] = value.view()  # nobody's: not even its shape can be changed by way of the one kept
        return self.build(values)

    def missing_fetch(self, position: int) -> InvalidArgumentError:
        """The error that says why the fetch at *position* has no value."""
        tensor = self.client_graph.fetches[position]
        return InvalidArgumentError(
            f"fetch {tensor.name!r} does not have a value: {why_dead(tensor, self.client_graph)}",
            node=tensor.op,
            hint="fetch what cond or while_loop returns",
        )

    def read_references(self, positions: Sequence[int], values: Sequence[Any]) -> list[Any]:
        """The *values* of the fetches at *positions*, where they are references what these refer to."""
        return [
            self._read(position, value) if position in self.references else value
            for position, value in zip(positions, values, strict=True)
        ]

    def _read(self, position: int, variable: Any) -> Any:
        tensor = self.client_graph.fetches[position]
        try:
            return variable.read()
        except OpError as error:
            raise error.locate(tensor.op) from None
        except AttributeError:
            raise InternalError(f"{tensor.name!r} gave no reference to a variable", node=tensor.op) from None

    def convert(self, values: Collection[Any]) -> list[Any]:
        """The values fed, as they travel along edges; LargeFeedError if that would take long."""
        if len(values) > PART:
            raise LargeFeedError
        return [convert(value) for convert, value in zip(self.guarded, values, strict=True)]

    def convert_large(self, values: Sequence[Any]) -> Stage[list[Any]]:
        """The same as a stage, however large they are."""
        converted: list[Any] = []
        for tensor, convert, value in zip(self.feeds, self.converters, values, strict=True):
            dtype = tensor.dtype.base_dtype
            if not dtype.is_opaque and is_large(value, dtype):
                converted.append((yield from convert_in_pieces(value, SlowConverter(tensor))))
            else:
                converted.append(convert(value))
            yield
        return converted


def build_executors(
    state: GraphExecutionState, graph: Graph, mapper: FetchMapper, feed_keys: Sequence[Any], targets: Sequence[Any]
) -> Stage[ExecutorsAndKeys]:
    """What a session of *graph* keeps for the signature of what *mapper* has read, feeds and targets, as a stage.

    Errors as of feed_tensors, target_nodes and GraphExecutionState.prepare.
    """
    feeds = yield from feed_tensors_stage(graph, feed_keys)
    nodes = yield from target_nodes_stage(graph, targets)
    fetches = tuple(mapper.tensors)
    prepared = yield from state.prepare(feeds, fetches, [*mapper.targets, *nodes])
    converters: list[Converter] = []
    guarded: list[Converter] = []
    for count, tensor in enumerate(feeds):
        converters.append(feed_converter(tensor))
        guarded.append(feed_converter(tensor, is_guarded=True))
        if not count % STRIDE:
            yield
    fed: set[tuple[Node, int]] = set()
    for part in in_parts(feeds):
        fed.update([(tensor.op, tensor.index) for tensor in part])
        yield
    references: list[int] = []
    arrays: list[int] = []
    for position, tensor in enumerate(fetches):
        if state.brings_references and tensor.dtype.is_ref and (tensor.op, tensor.index) not in fed:
            references.append(position)
        if not tensor.dtype.is_opaque and tensor.shape.dims != ():
            arrays.append(position)
        if not position % STRIDE:
            yield
    tier = Tier(None)
    if state.may_compile and prepared.whole is not None:
        better = None if prepared.optimize is None else lambda: state.compile_plan(prepared, optimizes=True)
        tier = Tier(lambda: state.compile_plan(prepared), better, state.holds.clock)
        if state.compiles_at_once:
            yield from tier.compile_at_once()
    return ExecutorsAndKeys(
        prepared,
        feeds,
        tuple(converters),
        tuple(guarded),
        prepared.executor,
        prepared.executor.awaits,
        tuple(references),
        tuple(arrays),
        mapper.build,
        tier,
    )


async def build_in_slices(
    state: GraphExecutionState, graph: Graph, mapper: FetchMapper, feed_keys: Sequence[Any], targets: Sequence[Any]
) -> ExecutorsAndKeys:
    """What ``build_executors`` gives; others have the loop meanwhile."""
    with paused_gc():
        stage = build_executors(state, graph, mapper, feed_keys, targets)
        return await run_in_slices(stage, state.holds.clock)


def explained(error: OpError, prepared: ExecutorsAndKeys) -> OpError:
    """Where a placeholder was not fed, say which fetch or target needs it; name no nodes but the user's."""
    stand_in = prepared.graph.stand_ins.get(error.node or "")
    if stand_in is not None:
        return error.located(stand_in.name, stand_in.op, stand_in.user_line)
    if error.op in ("Placeholder", "PlaceholderV2") and error.hint is None:
        node = next((node for node in prepared.client_graph.nodes if node.name == error.node), None)
        if node is not None:
            path = [step.name for step in path_to(node, prepared.client_graph)]
            shown = path if len(path) <= 8 else [*path[:4], "...", *path[-3:]]
            error.hint = f"it is needed by way of {' -> '.join(shown)}"
            error.args = (str(error),)
    return error
