"""PlanCompiler: the Python functions of one signature, of kernels that the general executor has bound and measured."""

from __future__ import annotations

import importlib
from collections.abc import Container, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Final

from asyncexec.compilation.bind_kernel import KernelBinder
from asyncexec.compilation.graph_view import NodeItem
from asyncexec.compilation.onnx_kernel import OnnxKernel
from asyncexec.executor.diagnostics.kernel_stats import (
    ASYNC,
    SIZED,
    TRANSFER,
    WORKER,
    KernelStats,
)
from asyncexec.executor.diagnostics.loop_holds import LoopHolds
from asyncexec.executor.engine.general_executor import GeneralExecutor
from asyncexec.executor.engine.kernel_outputs import checked_results
from asyncexec.executor.plans.compiled_plan import CompiledPlan
from asyncexec.executor.plans.compiled_state import AwaitedNode
from asyncexec.executor.plans.feed_growth import FeedGrowth
from asyncexec.executor.plans.feed_limits import FeedLimits, FeedSizes
from asyncexec.executor.plans.region_plan import AnyExecutor, Rebinder
from asyncexec.executor.plans.tiled_plan import TiledPlan
from asyncexec.executor.plans.worker_plan import WorkerPlan
from asyncexec.executor.workers.offload import WorkerPool
from asyncexec.executor.workers.worker_chain import may_go_along
from asyncexec.framework.cooperative import STRIDE, Stage, in_parts
from asyncexec.framework.element_rule import ElementRule
from asyncexec.framework.kernel import DEAD, Kernel, KernelKind
from asyncexec.framework.lazy_module import LazyModule
from asyncexec.graph.node import Node
from asyncexec.partition.partitioned_graph import PartitionedGraph
from asyncexec.passes.builtin_passes import import_passes
from asyncexec.passes.pipeline import PlacedGraph
from asyncexec.process.imports import imported
from asyncexec.pruning.prune import ClientGraph
from asyncexec.regions.clusters import KEYED, LATE
from asyncexec.regions.code import Code, Surroundings
from asyncexec.regions.fold import Region, fold
from asyncexec.regions.program import AwaitedKernel, UnstructuredError
from asyncexec.regions.schedule import schedule
from asyncexec.regions.source import write_code
from asyncexec.regions.structure import Bind, find_structure
from asyncexec.regions.work import MAX_WORK, UNKNOWN, is_light
from asyncexec.session.entry import write_entry
from asyncexec.session.library_passes import has_llvmlite

_NATIVE: Final = ("asyncexec.executor.plans.native_calls", "asyncexec.executor.plans.native_tiles")
native_calls: LazyModule = LazyModule(_NATIVE[0])
native_tiles: LazyModule = LazyModule(_NATIVE[1])

_HARD: Final = (WORKER, ASYNC, SIZED, TRANSFER)


def import_compilers() -> None:
    """Import what compiles and optimizes signatures: else the first of them do so, which holds their event loop."""
    import_passes()
    if has_llvmlite():
        for name in _NATIVE:
            importlib.import_module(name)


def _imported_compilers() -> Stage[None]:
    """Import what compiles to native code, where that can be, as a stage."""
    return imported(_NATIVE if has_llvmlite() else ())


class PlanCompiler:
    """Compiles one signature.

    Args:
        binders: by device; they give what has not been bound yet.
        slice_ns: how long a step may hold the event loop; holds: is told how long it was.
        pool: of the client's device; its threads compile.
        pauses_often: whether plans pause around each call of which nothing is known.
        unknown_sizes: the names of nodes that no plan may have, as nothing tells beforehand how much they make.

    Attributes:
        items: the nodes as the general executor runs them, by name.
        regions: the plans of the regions, by the nodes that stand for them.
        may_give_dead: whether what a region gives may be dead.
    """

    def __init__(
        self,
        binders: Mapping[str, KernelBinder],
        slice_ns: int,
        holds: LoopHolds,
        pool: WorkerPool,
        *,
        pauses_often: bool = False,
        unknown_sizes: frozenset[str] = frozenset(),
    ) -> None:
        self._unknown_sizes = unknown_sizes
        self._binders = binders
        self._pool = pool
        self._slice_ns = slice_ns
        self._holds = holds
        self._most_work = UNKNOWN if pauses_often else MAX_WORK
        self._measured: dict[str, tuple[KernelStats, int]] = {}  # by name, where a node has which id
        self._small: set[str] = set()
        self.items: dict[str, NodeItem] = {}
        self.regions: dict[Node, CompiledPlan | TiledPlan] = {}
        self.may_give_dead: bool = False

    def read(self, executor: AnyExecutor) -> Stage[None]:
        """Learn from *executor* which kernels the nodes have, and where they run; what was read before is forgotten.

        If that was of the same graph before it was optimized, what has been measured is still good.
        """
        yield from _imported_compilers()
        small_before, self._small = self._small, set()
        before, self.items, self._measured = self.items, {}, {}
        for part in executor.parts:
            for count, item in enumerate(part.view.items):
                if not item.is_relay:
                    name = item.node.name
                    _find_native_rule(item)
                    self.items[name], self._measured[name] = item, (part.stats, item.id)
                    is_small = part.has_run and item.id not in part.stats.not_small
                    if is_small or (name in small_before and _is_copy(item.node, before[name].node)):
                        self._small.add(name)
                if not count % STRIDE:
                    yield

    def prepare_clusters(self, before: Mapping[str, NodeItem]) -> Stage[bool]:
        """Let clusters load their models, as a stage; whether it is known of all by now which way is quicker.

        *before* are the items, by name, of the graph that has been optimized.
        """
        are_settled = True
        for items in in_parts(list(self.items.values())):
            for item in items:
                if isinstance(item.kernel, OnnxKernel):
                    known = before.get(item.node.name)
                    other = known.kernel if known is not None and isinstance(known.kernel, OnnxKernel) else None
                    yield partial(item.kernel.prepare, other)
                    are_settled = are_settled and item.kernel.is_settled
            yield
        return are_settled

    def feed_limits(self, whole: PlacedGraph, executor: AnyExecutor) -> Stage[FeedLimits | None]:
        """What the kernels of *whole* that are SIZED ask of feeds, by what *executor* has measured, as a stage.

        None where something else than feeds decides what one of them costs.
        """
        if self._unknown_sizes:
            return None
        limits = FeedLimits(whole.graph.feeds)
        sized: set[str] = set()
        for names in in_parts(list(self.items)):
            sized.update(filter(self._is_sized, names))
            yield
        known: dict[str, tuple[KernelStats, int]] = {}
        for part in executor.parts if sized else ():
            for items in in_parts(part.view.items):
                known.update((item.node.name, (part.stats, item.id)) for item in items if item.node.name in sized)
                yield
        for nodes in in_parts(whole.graph.nodes) if sized else ():
            for node in nodes:
                if node.name in sized and not (node.name in known and limits.add(node, *known[node.name])):
                    return None
            yield
        return limits

    def compile_whole(self, whole: PlacedGraph, limits: FeedLimits, growth: FeedGrowth | None) -> Stage[CompiledPlan]:
        """The plan of *whole*, of nodes that are cheap or awaited, or cheap with feeds within *limits*, as a stage.

        Its entry takes no feeds larger than *growth* has them.

        Raises:
            UnstructuredError: it has no structure that Python has, or what it awaits does not come one after the other.
        """
        awaits = False
        for items in in_parts(list(self.items.values())):
            awaits = awaits or any(item.kind is KernelKind.ASYNC for item in items)
            yield
        fed = {tensor.op.op for tensor in whole.graph.feeds}
        if KEYED in fed:
            raise UnstructuredError("a state comes once its key has been computed")
        if awaits and not fed.isdisjoint(LATE):
            raise UnstructuredError("what is awaited need not wait for a state that comes late")

        def bind(node: Node, fed: frozenset[tuple[Node, int]]) -> Kernel | AwaitedKernel:
            item = self.items.get(node.name)
            if item is not None and item.kind is KernelKind.ASYNC:
                return self._awaited(item)
            return self._kernel(node, fed, whole.device_of(node))

        program = yield from find_structure(whole.graph, bind)
        block = yield from schedule(program)
        code = yield from write_code(program, block, self._surroundings())
        light = is_light(program)
        plan = CompiledPlan(code, self._slice_ns, self._holds, self._pool, limits=limits or None, is_light=light)
        if plan.limits is None:
            plan.entry = write_entry(whole.graph.feeds, code.quick or code.function, growth)
        return plan

    def compile_regions(self, partitions: Mapping[str, PartitionedGraph]) -> Stage[dict[str, PartitionedGraph]]:
        """*partitions* with regions, whose plans are in ``regions`` then; UnstructuredError where a loop is none."""
        found: dict[str, PartitionedGraph] = {}
        surroundings = replace(self._surroundings(), absent=DEAD, gives_tuple=True)
        for device, part in partitions.items():
            folded = yield from fold(part.graph, self._is_hard, self._is_elementwise, self._bind_on(device))
            for region in folded.regions:
                its_surroundings = replace(surroundings, pauses=False, native=None) if region.is_group else surroundings
                code = yield from write_code(region.program, region.block, its_surroundings)
                plan = CompiledPlan(code, self._slice_ns, self._holds, self._pool, is_region=True)
                if region.is_group:
                    in_place = yield from write_code(
                        region.program, region.block, replace(its_surroundings, works_in_place=True)
                    )
                    self.regions[region.node] = self._tiled(region, plan, in_place)
                else:
                    self.regions[region.node] = plan
                self.may_give_dead |= region.may_give_dead
                yield
            found[device] = replace(part, graph=folded.graph)
        return found

    def compile_call(self, graph: ClientGraph, device: str, executor: GeneralExecutor) -> Stage[WorkerPlan | None]:
        """The plan of *graph* on *device*, with the regions in it, as one call on a worker thread, as a stage.

        None unless *executor*, which is that of *graph*, has one expensive node, the others may run on any thread, and
        all wait for it, or it for them: it keeps nobody waiting.
        """
        expensive: list[NodeItem] = []
        kernels: dict[str, Kernel] = {}
        passive: set[str] = set()
        for items in in_parts(executor.view.items):
            for item in items:
                place = executor.stats.places[item.id]
                if place in (WORKER, SIZED):
                    expensive.append(item)
                elif not (item.is_relay or may_go_along(item)):
                    return None
                if item.action:
                    passive.add(item.node.name)
                if not item.is_relay:
                    kernels[item.node.name] = getattr(item.checked_kernel, "on_worker", item.checked_kernel)
            if len(expensive) > 1:
                return None
            yield
        if not expensive:
            return None
        (item,) = expensive
        if not (
            yield from _is_line(graph, item.node.name, {each.node.name for each in executor.view.items if each.action})
        ):
            return None

        def bind(node: Node, fed: frozenset[tuple[Node, int]]) -> Kernel:
            kernel = kernels.get(node.name)
            return self._kernel(node, fed, device) if kernel is None else kernel  # of a constant

        try:
            program = yield from find_structure(graph, bind)
        except UnstructuredError:
            return None
        block = yield from schedule(program)
        code = yield from write_code(program, block, replace(self._surroundings(), pauses=False, native=None))
        plan = CompiledPlan(code, self._slice_ns, self._holds, self._pool)
        input_bytes = FeedSizes(graph.feeds).input_bytes(item.node)
        return WorkerPlan(executor, self.regions.values(), plan, item, input_bytes)

    def _tiled(self, region: Region, plan: CompiledPlan, in_place: Code) -> TiledPlan:
        """The plan of the group *region*, for which *plan* calls the kernels, and *in_place* for a tile."""
        native = native_tiles.native_tiles(region.program, region.block) if has_llvmlite() else None
        return TiledPlan(plan, CompiledPlan(in_place, self._slice_ns, self._holds, self._pool), native)

    def _surroundings(self) -> Surroundings:
        native = native_calls.counted if has_llvmlite() else None
        return Surroundings(checked_results, self._is_small, self._is_long, native=native, most_work=self._most_work)

    def restore(self, stats: KernelStats) -> Stage[None]:
        """Let *stats* know of all kernels, but for those of regions, what has been measured."""
        for count, item in enumerate(stats.items):
            known = self._measured.get(item.node.name)
            if known is not None and not item.is_relay and _is_copy(item.node, known[0].items[known[1]].node):
                stats.adopt(item.id, *known)
            if not count % STRIDE:
                yield

    def binder(self, device: str) -> Rebinder:
        """What gives the kernels of a graph made since: of regions, if there are any, else of what was optimized."""
        return Rebinder(self._binders[device], self.items, self.regions, is_same_graph=bool(self.regions))

    def _is_hard(self, node: Node) -> bool:
        known = self._measured.get(node.name)
        if node.name in self._unknown_sizes:
            return True
        return known is not None and known[0].places[known[1]] in _HARD

    def _is_sized(self, name: str) -> bool:
        stats, item_id = self._measured[name]
        return stats.places[item_id] == SIZED

    def _is_long(self, node: Node) -> bool:
        """Whether a call of *node*, which is not on a worker thread, may take long."""
        return node.name in self._measured and self._is_sized(node.name)

    def _is_elementwise(self, node: Node) -> bool:
        """Whether *node* is elementwise, and has not been seen to take small values alone."""
        item = self.items.get(node.name)
        return item is not None and item.is_elementwise and (self._is_hard(node) or node.name not in self._small)

    def _is_small(self, node: Node) -> bool:
        return node.name in self._small

    def _bind_on(self, device: str) -> Bind:
        return lambda node, fed: self._kernel(node, fed, device)

    def _awaited(self, item: NodeItem) -> AwaitedKernel:
        if item.is_undoable:
            raise UnstructuredError(f"{item.node.name!r} does what may have to be undone")
        stats, _ = self._measured[item.node.name]
        return AwaitedKernel(item.kernel, AwaitedNode(item, stats))

    def _kernel(self, node: Node, fed: frozenset[tuple[Node, int]], device: str) -> Kernel:
        item = self.items.get(node.name)
        return self._binders[device].bind(node, fed).kernel if item is None else item.checked_kernel


def _is_line(graph: ClientGraph, name: str, passive: Container[str]) -> Stage[bool]:
    """Whether each node of *graph* that computes comes before the one of that *name*, or behind it, as a stage."""
    behind: set[Node] = set()
    for nodes in in_parts(graph.nodes):
        for node in nodes:
            if node.name == name or any(source in behind for source in _sources(node)):
                behind.add(node)
        yield
    before: set[Node] = set()
    for nodes in in_parts(graph.nodes[::-1]):
        for node in nodes:
            if node.name == name or node in before:
                before.update(_sources(node))
            elif not (node in behind or node.op == "Const" or node.name in passive):
                return False
        yield
    return True


def _sources(node: Node) -> Iterator[Node]:
    yield from (tensor.op for tensor in node.inputs)
    yield from node.control_inputs


def learn(executor: AnyExecutor, since: AnyExecutor) -> Stage[None]:
    """Let *executor* know what *since*, which has run some of the same nodes after it, has measured, as a stage."""
    known: dict[str, tuple[KernelStats, int]] = {}
    for part in since.parts:
        for items in in_parts(part.view.items):
            known.update((item.node.name, (part.stats, item.id)) for item in items)
            yield
    for part in executor.parts:
        for count, item in enumerate(part.view.items):
            found = known.get(item.node.name)
            if found is not None and not item.is_relay:
                part.stats.adopt(item.id, *found)
            if not count % STRIDE:
                yield


def _find_native_rule(item: NodeItem) -> None:
    """Let the kernel of *item* find native code, if it has a rule that may become some."""
    rule: ElementRule | None = getattr(item.kernel, "element_rule", None)
    if rule is not None and rule.find_native is None and has_llvmlite():
        rule.find_native = native_tiles.native_rule(rule)


def _is_copy(node: Node, before: Node) -> bool:
    """Whether *node* is *before*, of which it has the name, in a graph that was copied and edited."""
    return node.properties is before.properties
