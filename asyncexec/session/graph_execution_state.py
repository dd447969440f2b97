"""GraphExecutionState: the stages from a graph and a signature to an executor, in order."""

from __future__ import annotations

from collections.abc import Sequence

from asyncexec.compilation.bind_kernel import KernelBinder
from asyncexec.compilation.build_graph_view import build_graph_view
from asyncexec.executor.executor import Executor
from asyncexec.executor.offload import WorkerPool
from asyncexec.framework.clock import NS_PER_MS
from asyncexec.framework.cooperative import Stage
from asyncexec.framework.resource_mgr import ResourceMgr
from asyncexec.graph.graph import Graph
from asyncexec.graph.node import Node, Tensor
from asyncexec.optimization.lower_functional_ops import LowerFunctionalOps
from asyncexec.placement.device_set import DeviceSet
from asyncexec.placement.placer import Placer
from asyncexec.pruning.prune import ClientGraph, prune
from asyncexec.session.session_config import SessionConfig


class GraphExecutionState:
    """What a session needs to make executors."""

    def __init__(self, graph: Graph, config: SessionConfig, resource_mgr: ResourceMgr, pool: WorkerPool) -> None:
        self.devices = DeviceSet(config.device_count)
        self.placer = Placer(
            graph,
            self.devices,
            allow_soft_placement=config.allow_soft_placement,
            log_placement=config.log_device_placement,
        )
        self._lower_functional_ops = LowerFunctionalOps(graph)
        self._binder = KernelBinder(resource_mgr, debug=config.debug)
        self._pool = pool
        self._slice_ns = int(config.slice_ms * NS_PER_MS)
        self._schedule_seed = config.schedule_seed

    def build_executor(
        self, feeds: Sequence[Tensor], fetches: Sequence[Tensor], targets: Sequence[Node]
    ) -> Stage[tuple[ClientGraph, Executor]]:
        """Place, prune, lower and compile, as a stage."""
        yield from self.placer.place()
        client_graph = yield from prune(feeds, fetches, targets)
        client_graph = yield from self._lower_functional_ops.run(client_graph)
        view = yield from build_graph_view(client_graph, self._binder)
        return client_graph, Executor(view, self._pool, self._slice_ns, self._schedule_seed)
