"""RegionPlan: a signature whose clusters of cheap nodes are compiled; the general executor runs them and the others."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from asyncexec.compilation.bind_kernel import BoundKernel, KernelBinder
from asyncexec.compilation.graph_view import NodeItem
from asyncexec.compilation.shared_inputs import is_user_function
from asyncexec.executor.engine.executor_barrier import PartitionedExecutor
from asyncexec.executor.engine.general_executor import GeneralExecutor
from asyncexec.executor.engine.step_scope import StepScope
from asyncexec.executor.engine.transfer_scope import CATCHABLE
from asyncexec.executor.plans.compiled_plan import CompiledPlan
from asyncexec.executor.plans.tiled_plan import TiledPlan
from asyncexec.framework.cancellation import call_around
from asyncexec.framework.cooperative import Stage
from asyncexec.framework.errors import CancelledError
from asyncexec.framework.kernel import Kernel, KernelKind
from asyncexec.graph.node import Node

AnyExecutor: TypeAlias = GeneralExecutor | PartitionedExecutor


class RegionPlan:
    """What the steps of one signature share that has regions.

    Args:
        executor: runs the steps; a region is one item of it.
        plans: of the regions.
    """

    __slots__ = ("_plans", "executor")

    is_plain = may_be_called = False
    num_tries = 0
    limits = None

    def __init__(self, executor: AnyExecutor, plans: Iterable[CompiledPlan | TiledPlan]) -> None:
        self.executor: AnyExecutor = executor
        self._plans = tuple(plans)

    @property
    def is_quick(self) -> bool:
        """Whether no region has turned out to hold the loop for long at a stretch."""
        return all(plan.is_quick for plan in self._plans)

    @property
    def compiles_nothing(self) -> bool:
        """Whether it has no regions: it is there as its graph has been optimized."""
        return not self._plans

    @property
    def is_cheap(self) -> bool:
        """Whether none of the nodes between the regions runs on a worker thread any more."""
        return self.executor.stays_on_loop

    @property
    def takes_large_feeds(self) -> bool:
        """Whether no region calls kernels in the event loop that nobody has measured by larger inputs."""
        return all(isinstance(plan, TiledPlan) for plan in self._plans)

    def start(self, feeds: Sequence[object] | None) -> StepScope:
        """A step with the values of *feeds*, or one whose feeds come by ``deliver_feed``; nothing has run yet."""
        return self.executor.start(feeds)


class Rebinder:
    """The kernels of a graph that has been optimized, or has regions: those of regions are their plans.

    Args:
        binder: has bound the graph before, and gives what is new.
        items: the nodes as they have been bound before, by name.
        plans: of the regions.
        is_same_graph: whether the others are bound as they are; else only what may keep something between two calls is,
            and users' functions are still to be kept from writing to what others may see.
    """

    debug = False

    def __init__(
        self,
        binder: KernelBinder,
        items: Mapping[str, NodeItem],
        plans: Mapping[Node, CompiledPlan | TiledPlan],
        *,
        is_same_graph: bool,
    ) -> None:
        self._binder = binder
        self._items = items
        self._plans = plans
        self._is_same_graph = is_same_graph
        self.protects_inputs: bool = not is_same_graph
        self.constant: Callable[[Node], Any] = binder.constant

    def bind(self, node: Node, fed: Container[tuple[Node, int]] = ()) -> BoundKernel:
        """The kernel of *node*."""
        plan = self._plans.get(node)
        if isinstance(plan, TiledPlan):
            return BoundKernel(plan, KernelKind.EXPENSIVE)
        if plan is not None:
            return region_kernel(plan)
        item = self._items.get(node.name)
        if item is None or not (self._is_same_graph or _keeps_its_kernel(node, item)):
            return self._binder.bind(node, fed)
        return BoundKernel(
            item.checked_kernel,
            item.kind,
            item.is_expensive,
            item.finish,
            item.transfer,
            item.gives_new,
            item.is_undoable,
            item.is_elementwise,
        )

    def stage(self, node: Node, fed: Container[tuple[Node, int]]) -> Stage[BoundKernel]:
        """The same as a stage."""
        yield from ()
        return self.bind(node, fed)


def _keeps_its_kernel(node: Node, item: NodeItem) -> bool:
    """Whether the kernel of *item*, which was of the same name, is that of *node*, and may remember its calls."""
    return node.properties is item.node.properties and node.op_def.is_stateful and not is_user_function(node)


def region_kernel(plan: CompiledPlan) -> BoundKernel:
    """What runs a region: one call, or where it may take long, a step that goes on in slices."""
    kernel = _region_function(plan) if plan.is_plain else _region_step(plan)
    kernel.gives_all = plan.gives_all  # type: ignore[attr-defined]
    if plan.may_change_threads:
        kernel.on_worker = _on_worker(plan)  # type: ignore[attr-defined]
    return (
        BoundKernel(kernel, KernelKind.CHEAP, is_expensive=False)
        if plan.is_plain
        else BoundKernel(kernel, KernelKind.ASYNC)
    )


def _region_step(plan: CompiledPlan) -> Kernel:
    """The steps of *plan*, as the kernel of an async node."""

    async def run(*inputs: object) -> tuple[Any, ...]:
        step = plan.start(inputs)
        del inputs  # the plan lets go of each when it is taken for the last time
        if not step.run_inline():
            await step.run()
        return tuple(step.fetched())

    return run


def _region_function(plan: CompiledPlan) -> Kernel:
    """The function of *plan*, whose errors name its nodes; the executor times it, and tells it when it took long."""
    function, call, now_ns = plan.function, plan.call, plan.holds.clock.now_ns

    def run(*inputs: object) -> Any:
        if plan.clock is not now_ns:  # that was so: it times itself by the CPU's time now
            return call(plan.take, inputs)
        try:
            return function(*inputs)
        except CATCHABLE as raised:
            plan.fail(raised)

    def note_slow(elapsed_ns: int) -> None:
        if plan.clock is now_ns:  # else it has timed itself, and may have slept
            plan.note(elapsed_ns)

    run.note_slow = note_slow  # type: ignore[attr-defined]
    return run


def _on_worker(plan: CompiledPlan) -> Kernel:
    """What gives the same on a worker thread, where it holds up nobody; it pauses to see whether somebody waits."""

    def run(*inputs: object) -> Any:
        call = call_around.get()
        manager = None if call is None or plan.is_plain else call.manager()
        pauses = plan.begin(*inputs)
        del inputs
        while True:
            try:
                next(pauses)
            except StopIteration as stop:
                return stop.value
            except CATCHABLE as raised:
                plan.fail(raised)
            if manager is not None and manager.is_cancelled:
                pauses.close()
                raise CancelledError("nobody waits for the call any more")

    return run
