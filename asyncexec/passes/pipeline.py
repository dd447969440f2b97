"""The pipeline: everything that happens from a graph and a signature to the graphs that devices run, in one list.

::

    place_base_graph      every node of the graph, needed or not; not with ``place_pruned_graph``
    prune                 what the signature needs
    PRE_PLACEMENT         passes, ``lower_functional_ops`` (functions are inlined) among them at phase 10
    place                 what is left
    POST_PLACEMENT        passes, the optimizer of the whole graph among them from phase 100 on
    rewrite_for_exec      feeds and fetches get their medium
    POST_REWRITE_FOR_EXEC passes
    partition             one graph a device, joined by Send and Recv
    POST_PARTITIONING     passes, for each of these; the optimizer of partitions is among them at phase 100

After ``GraphExecutionState::BuildGraph`` and ``DirectSession::CreateGraphs`` in ``tensorflow/core/common_runtime``.
Passes see the part of the graph that the signature needs: what is left out by pruning first is what they would remove.
Nothing is copied unless a pass edits the graph, and then once.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Protocol

import asyncexec.passes.builtin_passes  # noqa: F401 - registers the passes
from asyncexec.framework.cooperative import STRIDE, Stage
from asyncexec.framework.errors import InternalError, InvalidArgumentError
from asyncexec.framework.graph_def import GraphDef
from asyncexec.framework.lazy_module import LazyModule
from asyncexec.framework.step_stats import PassStats
from asyncexec.graph.graph import Graph
from asyncexec.graph.graph_ends import MUST_BE_FED
from asyncexec.graph.graph_to_def import NodeEncoder
from asyncexec.graph.node import Node, Tensor
from asyncexec.graph.refused_ops import check_allowed
from asyncexec.optimization.lower_functional_ops import LowerFunctionalOps
from asyncexec.partition.partition import partition
from asyncexec.partition.partitioned_graph import PartitionedGraph
from asyncexec.partition.send_recv import PartitionOptions
from asyncexec.passes.pass_stats import pass_stats
from asyncexec.passes.registry import GraphPass, Level, PassGrouping, PassRegistry
from asyncexec.passes.registry import registry as pass_registry
from asyncexec.passes.verify import BrokenGraphError, verify
from asyncexec.placement.device_set import DeviceSet
from asyncexec.placement.placement_rules import Placement
from asyncexec.placement.placer import Placer
from asyncexec.process.imports import imported
from asyncexec.pruning.prune import ClientGraph, prune

if TYPE_CHECKING:
    from asyncexec.passes.pass_graph import PassGraph

_EDITING: Final = "asyncexec.passes.pass_graph"
_pass_graph = LazyModule(_EDITING)

DeviceOf = Callable[[Node], str]


class Connected(Protocol):
    """A graph whose feeds and fetches have their medium."""

    @property
    def graph(self) -> ClientGraph: ...
    @property
    def device_of(self) -> DeviceOf: ...


@dataclass(frozen=True, slots=True, eq=False)
class PipelineOptions:
    """What the pipeline is told by the session.

    Attributes:
        place_pruned_graph: place what a signature needs, and nothing else.
        verifies_each: verify the graph after each step; else after users' passes, and at the end.
        partition_options: those of the partitioner.
        session_passes: passes of this session alone, by grouping and phase among the registered ones.
        connect: gives feeds and fetches their medium; None, or the stage gives None, where a call frame carries them.
    """

    place_pruned_graph: bool
    verifies_each: bool
    partition_options: PartitionOptions
    session_passes: Sequence[GraphPass] = ()
    connect: Callable[[ClientGraph, DeviceOf], Stage[Connected | None]] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class PlacedGraph:
    """A graph, and the full name of the device of each node."""

    graph: ClientGraph
    device_of: DeviceOf


@dataclass(frozen=True, slots=True, eq=False)
class Prepared:
    """What the pipeline makes of a signature.

    Attributes:
        client_graph: what the signature runs, before any pass has edited it: users know its nodes.
        partitions: by device.
        passes: what each step has changed.
        connected: what ``PipelineOptions.connect`` has made.
        whole: what was partitioned, or the only partition; None where feeds and fetches have another medium than a call
            frame, or a pass has changed several partitions since.
    """

    client_graph: ClientGraph
    partitions: Mapping[str, PartitionedGraph]
    passes: Sequence[PassStats]
    connected: Connected | None = None
    whole: PlacedGraph | None = None


class Pipeline:
    """The pipeline of one session."""

    # Tests verify after each step, whatever sessions ask for.
    always_verifies_each = False

    def __init__(
        self,
        graph: Graph,
        placer: Placer,
        devices: DeviceSet,
        options: PipelineOptions,
        registry: PassRegistry = pass_registry,
    ) -> None:
        self.graph = graph
        self.placer = placer
        self.devices = devices
        self.options = options
        self.registry = registry
        self.lowering: LowerFunctionalOps = LowerFunctionalOps(graph)

    def run(
        self,
        feeds: Sequence[Tensor],
        fetches: Sequence[Tensor],
        targets: Sequence[Node],
        level: Level = Level.ALWAYS,
        *,
        keeps_graphs: bool = False,
    ) -> Stage[Prepared]:
        """What is to run for a signature, by the passes up to *level*, as a stage.

        With *keeps_graphs* the statistics of each step have the graph after it.

        Raises:
            PermissionDeniedError: it has ops of an imported graph that reach outside of it, and are not allowed.
            OpError: the graph cannot be placed, lowered or partitioned; or a pass broke it, which the message names:
                InvalidArgumentError for a user's, InternalError for one of ours.
        """
        signature = (feeds, fetches, targets)
        verifies_each = self.options.verifies_each or self.always_verifies_each
        try:
            return (yield from _Run(self, level, verifies_each, keeps_graphs).run(*signature))
        except BrokenGraphError:  # once more, to find the pass that did it
            return (yield from _Run(self, level, True, keeps_graphs).run(*signature))


class _Run:
    """One run of the pipeline."""

    def __init__(self, pipeline: Pipeline, level: Level, verifies_each: bool, keeps_graphs: bool) -> None:
        self._pipeline = pipeline
        self._level = level
        self._verifies_each = verifies_each
        self._keeps_graphs = keeps_graphs
        self._stats: list[PassStats] = []
        self._placement: Placement | None = None
        self._open: PassGraph | None = None  # the graph as passes edit it
        self._is_own = False  # whether nobody else has the nodes
        self._is_edited = False
        self._plain: ClientGraph | None = None  # before it was edited
        self._like: ClientGraph | None = None

    def run(self, feeds: Sequence[Tensor], fetches: Sequence[Tensor], targets: Sequence[Node]) -> Stage[Prepared]:
        pipeline, options = self._pipeline, self._pipeline.options
        if not options.place_pruned_graph:
            yield from pipeline.placer.place()

        graph = yield from prune(feeds, fetches, targets)
        self._like = graph
        if self._verifies_each:
            try:
                yield from verify(graph, graph)
            except BrokenGraphError:  # it came like that: the stage that cannot do with it says what is wrong
                self._verifies_each = False
        yield from self._note("prune", "", pipeline.graph.num_nodes, graph)

        graph = yield from self._passes(PassGrouping.PRE_PLACEMENT, graph)

        self._placement = yield from pipeline.placer.place_nodes(graph.nodes)

        graph = yield from self._passes(PassGrouping.POST_PLACEMENT, graph)

        plain = self._plain or graph
        device_of: DeviceOf = self._device_of
        before = len(graph.nodes)
        connected = None if options.connect is None else (yield from options.connect(graph, device_of))
        if connected is not None:
            graph, device_of, self._open, self._like = connected.graph, connected.device_of, None, None
            yield from self._note("connect_client", "", before, graph)

        if self._named(PassGrouping.POST_REWRITE_FOR_EXEC):
            yield from self._learn_devices(graph, device_of)
            device_of = self._device_of
            graph = yield from self._passes(PassGrouping.POST_REWRITE_FOR_EXEC, graph)
        if self._is_edited and not self._verifies_each:
            yield from verify(graph, self._like)

        yield from check_allowed(graph.nodes)
        partitions = yield from partition(graph, device_of, options.partition_options)
        yield from self._note_partitions(len(graph.nodes), partitions)

        whole = PlacedGraph(graph, device_of) if connected is None else None
        if self._named(PassGrouping.POST_PARTITIONING):
            before_passes = [part.graph for part in partitions.values()]
            yield from self._partition_passes(graph, partitions)
            after_passes = [part.graph for part in partitions.values()]
            if whole is not None and any(map(operator.is_not, before_passes, after_passes)):
                whole = PlacedGraph(after_passes[0], device_of) if len(after_passes) == 1 else None
        return Prepared(plain, partitions, self._stats, connected, whole)

    def _device_of(self, node: Node) -> str:
        assert self._placement is not None
        return self._placement.device_of(node).name

    def _named(self, grouping: PassGrouping) -> list[GraphPass]:
        pipeline = self._pipeline
        found = pipeline.registry.passes(grouping, self._level)
        own = [one for one in pipeline.options.session_passes if one.grouping is grouping]
        return sorted([*found, *own], key=lambda one: one.phase) if own else found

    def _passes(self, grouping: PassGrouping, graph: ClientGraph) -> Stage[ClientGraph]:
        """*graph* after the passes of *grouping*."""
        for one in self._named(grouping):
            if one.applies is not None and not (yield from one.applies(graph.nodes)):
                continue
            before = len(graph.nodes)
            if one.rewrite is not None:
                rewritten = yield from one.rewrite(self._pipeline.lowering, graph)
                if rewritten is not graph:
                    self._open, graph = None, rewritten
                    self._like = ClientGraph((), graph.feeds, graph.fetches, graph.targets)
                yield from self._note(one.name, grouping.value, before, graph, one)
            else:
                graph = yield from self._edit(one, graph)
        return graph

    def _edit(self, one: GraphPass, graph: ClientGraph, device: str = "") -> Stage[ClientGraph]:
        """*graph* after a pass that edits it."""
        opened = self._open
        if opened is None:
            if not self._is_own and not device:
                self._plain = graph
            yield from imported([_EDITING])
            make = _pass_graph.PassGraph.of_own if self._is_own else _pass_graph.PassGraph.open
            opened = yield from make(graph, self._pipeline.graph, self._placement)
            assert opened is not None
            self._open, self._is_own, self._is_edited = opened, True, True
        opened.forget_changes()
        before = len(opened)
        if one.is_ours and one.function is not None:
            yield from opened.apply(one.function)  # type: ignore[arg-type]
        else:
            yield from _applied(one, opened)
            yield from opened.tidy()
        graph = opened.client_graph() if not opened.changes.are_none else graph_of(opened, graph)
        stats = opened.changes.stats(one.name, one.grouping.value, before, len(opened), device)
        yield from self._note(one.name, one.grouping.value, before, graph, one, stats)
        return graph

    def _learn_devices(self, graph: ClientGraph, device_of: DeviceOf) -> Stage[None]:
        """Let the placement know the nodes that have been made since."""
        placement, devices = self._placement, self._pipeline.devices
        assert placement is not None
        by_name = {device.name: device for device in devices}
        for count, node in enumerate(graph.nodes):
            device = by_name[device_of(node)]
            if device is not placement.default:
                placement.elsewhere[node] = device
            if not count % STRIDE:
                yield

    def _partition_passes(self, graph: ClientGraph, partitions: dict[str, PartitionedGraph]) -> Stage[None]:
        by_name = {device.name: device for device in self._pipeline.devices}
        is_own, placement = self._is_own, self._placement
        for name, part in partitions.items():
            if part.graph is not graph:
                self._open = None
            self._placement, self._is_own = Placement(by_name[name]), is_own
            if self._open is not None:
                self._open.placement = self._placement
            after = self._like = part.graph
            for one in self._named(PassGrouping.POST_PARTITIONING):
                after = yield from self._edit(one, after, name)
            if not self._verifies_each and after is not part.graph:
                yield from verify(after, part.graph)
            partitions[name] = replace(part, graph=after)
            self._open = None
        self._placement = placement

    def _note(
        self,
        name: str,
        grouping: str,
        before: int,
        graph: ClientGraph,
        one: GraphPass | None = None,
        stats: PassStats | None = None,
    ) -> Stage[None]:
        """Keep what the step *name* has made of the graph, and verify it."""
        if stats is None:
            stats = pass_stats(name, grouping, before, len(graph.nodes))
        self._stats.append(stats)
        if self._verifies_each or (one is not None and not one.is_ours):
            try:
                yield from verify(graph, self._like)
            except BrokenGraphError as error:
                raise _named_error(error, name, is_ours=one is None or one.is_ours) from None
        if self._keeps_graphs:
            stats.graph = yield from _graph_def(graph, self._placement)

    def _note_partitions(self, before: int, partitions: Mapping[str, PartitionedGraph]) -> Stage[None]:
        for name, part in partitions.items():
            after = len(part.graph.nodes)
            stats = pass_stats("partition", "", before, after, name)
            self._like = None
            yield from self._note("partition", "", before, part.graph, None, stats)


def graph_of(opened: PassGraph, graph: ClientGraph) -> ClientGraph:
    """*graph* if it is that of *opened*, which has not been changed; else a new one."""
    is_same = len(graph.nodes) == len(opened) and (not graph.nodes or graph.nodes[0] in opened)
    return graph if is_same else opened.client_graph()


def _applied(one: GraphPass, graph: PassGraph) -> Stage[None]:
    assert one.function is not None
    try:
        result = one.function(graph)
        if isinstance(result, Generator):
            result = yield from result
    except Exception as error:
        error.add_note(f"in graph pass {one.name!r}")
        raise
    if result is not None and result is not graph:
        raise InvalidArgumentError(
            f"graph pass {one.name!r} returned {type(result).__name__}",
            hint="a pass changes the graph that it is given, and returns that or nothing",
        )


def _named_error(error: BrokenGraphError, name: str, *, is_ours: bool) -> InternalError | InvalidArgumentError:
    message = f"graph pass {name!r} broke the graph: {error}"
    if is_ours:
        return InternalError(message, node=error.node)
    return InvalidArgumentError(message, node=error.node, hint="nothing of what the pass did is kept")


def _graph_def(graph: ClientGraph, placement: Placement | None) -> Stage[GraphDef]:
    encoder, here = NodeEncoder(), set(graph.nodes)
    fed = [tensor.op for tensor in graph.feeds if tensor.op not in here and tensor.op.op in MUST_BE_FED]
    found = []
    for count, node in enumerate((*fed, *graph.nodes)):
        device = node.device if placement is None else placement.device_of(node).name
        found.append(encoder.node_def(node, device=device))
        if not count % STRIDE:
            yield
    return GraphDef.model_construct(node=tuple(found))
