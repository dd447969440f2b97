"""ExecutorParams: what an executor is made of (``LocalExecutorParams`` in TensorFlow's ``executor.h``)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self, TypeVar

from asyncexec.compilation.bind_kernel import TRANSFERS, Binder, KernelBinder
from asyncexec.compilation.build_graph_view import build_graph_view
from asyncexec.compilation.graph_view import CONTROL_FLOW_OPS
from asyncexec.compilation.missing_kernels import naming_missing_kernels
from asyncexec.executor.diagnostics.kernel_stats import first_places
from asyncexec.executor.diagnostics.loop_holds import LoopHolds
from asyncexec.executor.engine.general_executor import GeneralExecutor
from asyncexec.executor.types.op_kernel import OpKernel, Pace
from asyncexec.executor.workers.offload import WorkerPool
from asyncexec.framework.cooperative import SLICE_NS, Stage, run_at_once
from asyncexec.framework.device import Device
from asyncexec.framework.device_factory import HOST_TYPE, DeviceOptions
from asyncexec.framework.resource_mgr import ResourceMgr
from asyncexec.graph.graph import Graph
from asyncexec.graph.node import Node
from asyncexec.optimization.lower_functional_ops import LowerFunctionalOps
from asyncexec.pruning.prune import ClientGraph

E = TypeVar("E", bound=GeneralExecutor)


@dataclass(frozen=True, slots=True, eq=False)
class ExecutorParams:
    """The graph of one device, and the means to make the kernels of its nodes.

    Attributes:
        graph: the graph to run; only the general executor uses its feeds and fetches.
        device: the device; ``device.name`` is its full name.
        binder: binds the kernels.
        has_control_flow: whether values may be dead.
        pool: the worker threads of the device; None if the executor has its own.
        slice_ns: how long a step may hold the event loop.
        holds: records how long steps hold the event loop.
        schedule_seed: the seed for the order of ready nodes.
    """

    graph: ClientGraph
    device: Device
    binder: Binder
    has_control_flow: bool
    pool: WorkerPool | None = None
    slice_ns: int = SLICE_NS
    holds: LoopHolds | None = None
    schedule_seed: int | None = None

    @classmethod
    def of(cls, graph: Graph) -> Self:
        """All nodes of *graph*, on a CPU device; errors of functions that do not fit their calls."""
        nodes = tuple(graph.operations)
        lowered = run_at_once(LowerFunctionalOps(graph).run(ClientGraph(nodes, (), (), nodes)))
        may_be_dead = any(node.op in CONTROL_FLOW_OPS or node.op in TRANSFERS for node in lowered.nodes)
        device = Device(DeviceOptions().attributes(HOST_TYPE, 0))
        return cls(lowered, device, KernelBinder(ResourceMgr(), device, checks_received=True), may_be_dead)

    @property
    def nodes(self) -> Sequence[Node]:
        """What runs, each node after its inputs, but for the back edges of loops."""
        return self.graph.nodes

    def create_kernels(self) -> dict[Node, OpKernel]:
        """The kernel of each node, in the order of ``nodes``.

        Raises:
            OpError: there is no kernel for a node, or it is in a loop; the error names it.
        """
        pace = Pace(self.slice_ns, self.holds or LoopHolds())
        with naming_missing_kernels(self.nodes):
            return {node: OpKernel(node, self.binder.bind(node), self.pool, pace) for node in self.nodes}


def general_executor(params: ExecutorParams, kind: type[E] = GeneralExecutor) -> Stage[E]:  # type: ignore[assignment]
    """The general executor, or a *kind* of it, as a stage.

    Raises:
        OpError: there is no kernel for a node, or the frames of the graph do not fit together.
    """
    view = yield from build_graph_view(params.graph, params.binder, has_control_flow=params.has_control_flow)
    places = yield from first_places(view.items)
    pool = params.pool or WorkerPool()
    executor = kind(view, pool, params.slice_ns, params.schedule_seed, params.holds, places)
    executor.first_places = yield from executor.stats.careful_places()
    return executor
