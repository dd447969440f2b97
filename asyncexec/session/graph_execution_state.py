"""GraphExecutionState: the stages from a graph and a signature to an executor, in order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import copy_context
from dataclasses import dataclass
from typing import Final, TypeAlias

from asyncexec.compilation.bind_kernel import TRANSFERS, KernelBinder
from asyncexec.compilation.build_graph_view import build_graph_view
from asyncexec.compilation.graph_view import CONTROL_FLOW_OPS
from asyncexec.executor.executor import Executor
from asyncexec.executor.executor_barrier import PartitionedExecutor, PartitionExecutor, StepChannels
from asyncexec.executor.offload import WorkerPool
from asyncexec.framework.clock import NS_PER_MS
from asyncexec.framework.collective import current_collective_executor
from asyncexec.framework.cooperative import STRIDE, Stage
from asyncexec.framework.device_factory import DeviceOptions, create_devices
from asyncexec.framework.resource_mgr import ResourceMgr
from asyncexec.graph.graph import Graph
from asyncexec.graph.node import Node, Tensor
from asyncexec.optimization.lower_functional_ops import LowerFunctionalOps
from asyncexec.partition.partition import partition
from asyncexec.partition.partitioned_graph import PartitionedGraph
from asyncexec.partition.send_recv import PartitionOptions
from asyncexec.placement.device_set import DeviceSet
from asyncexec.placement.placement_rules import PlacementRules
from asyncexec.placement.placer import Placer
from asyncexec.pruning.prune import ClientGraph, prune
from asyncexec.rendezvous.collective_executor import LocalCollectiveExecutor
from asyncexec.rendezvous.intra_process import IntraProcessRendezvous
from asyncexec.session.session_config import SessionConfig

AnyExecutor: TypeAlias = Executor | PartitionedExecutor
_COLLECTIVE: Final = "Collective"  # what the names of collective ops begin with


@dataclass(frozen=True, slots=True, eq=False)
class PreparedGraph:
    """What the stages make of a signature."""

    client_graph: ClientGraph
    partitions: Mapping[str, PartitionedGraph]  # by device
    executor: AnyExecutor

    def node_devices(self) -> Callable[[Node], str]:
        """A function that gives the device that a node of one of the partitions runs on."""
        if len(self.partitions) == 1:
            (only,) = self.partitions
            return lambda node: only
        devices = {node: name for name, part in self.partitions.items() for node in part.graph.nodes}
        return devices.__getitem__


@dataclass(slots=True)
class _Traits:
    """What the nodes of a graph ask of its executors."""

    has_control_flow: bool = False
    has_transfers: bool = False
    has_collectives: bool = False


class GraphExecutionState:
    """What a session needs to make executors."""

    def __init__(self, graph: Graph, config: SessionConfig, resource_mgr: ResourceMgr) -> None:
        self.devices = DeviceSet(create_devices(DeviceOptions(config.device_count)))
        self.devices.client_device = self.devices.devices[0]
        self.pools = {
            device.name: WorkerPool(device.num_workers or config.num_worker_threads) for device in self.devices
        }
        rules = PlacementRules(
            self.devices,
            allow_soft_placement=config.allow_soft_placement,
            log_placement=config.log_device_placement,
            needs_kernels=False,
        )
        self.placer = Placer(graph, rules)
        self._lower_functional_ops = LowerFunctionalOps(graph)
        self._binders = {device.name: KernelBinder(resource_mgr, device, debug=config.debug) for device in self.devices}
        self._slice_ns = int(config.slice_ms * NS_PER_MS)
        self._schedule_seed = config.schedule_seed
        self._debug = config.debug
        self._partition_options = PartitionOptions(
            tuple(device.name for device in self.devices),
            {device.name: device.incarnation for device in self.devices},
        )

    def prepare(
        self, feeds: Sequence[Tensor], fetches: Sequence[Tensor], targets: Sequence[Node]
    ) -> Stage[PreparedGraph]:
        """Place, prune, lower, partition and compile, as a stage."""
        yield from self.placer.place()
        client_graph = yield from prune(feeds, fetches, targets)
        client_graph = yield from self._lower_functional_ops.run(client_graph)
        placement = yield from self.placer.place_nodes(client_graph.nodes)
        partitions = yield from partition(
            client_graph, lambda node: placement.device_of(node).name, self._partition_options
        )
        executor = yield from self._compile(client_graph, partitions)
        return PreparedGraph(client_graph, partitions, executor)

    async def close(self) -> None:
        """End the worker threads of all devices, and wait for them."""
        for pool in self.pools.values():
            await pool.close()

    def _compile(self, client_graph: ClientGraph, partitions: Mapping[str, PartitionedGraph]) -> Stage[AnyExecutor]:
        traits = yield from _traits_of(partitions.values())
        executors: list[PartitionExecutor] = []
        for device, part in partitions.items():
            view = yield from build_graph_view(
                part.graph, self._binders[device], has_control_flow=traits.has_control_flow
            )
            executor = Executor(view, self.pools[device], self._slice_ns, self._schedule_seed)
            executors.append(PartitionExecutor(executor, part.feed_indices, part.fetch_indices))
        if len(executors) == 1 and not traits.has_transfers and not traits.has_collectives:
            return executors[0].executor
        return PartitionedExecutor(
            executors,
            len(client_graph.fetches),
            self._channels(partitions, has_collectives=traits.has_collectives),
            self._slice_ns,
            debug=self._debug,
        )

    @staticmethod
    def _channels(partitions: Mapping[str, PartitionedGraph], *, has_collectives: bool) -> Callable[[], StepChannels]:
        """A function that makes what the partitions of one step meet in."""
        if not has_collectives:
            return lambda: StepChannels(IntraProcessRendezvous())
        devices = {
            node.name: name
            for name, part in partitions.items()
            for node in part.graph.nodes
            if node.op.startswith(_COLLECTIVE)
        }

        def open_channels() -> StepChannels:
            collectives = LocalCollectiveExecutor(devices)
            context = copy_context()
            context.run(current_collective_executor.set, collectives)
            return StepChannels(IntraProcessRendezvous(), context, collectives.start_abort)

        return open_channels


def _traits_of(partitions: Iterable[PartitionedGraph]) -> Stage[_Traits]:
    found = _Traits()
    for part in partitions:
        nodes = part.graph.nodes
        for start in range(0, len(nodes), STRIDE):
            ops = {node.op for node in nodes[start : start + STRIDE]}
            found.has_control_flow |= not ops.isdisjoint(CONTROL_FLOW_OPS)
            found.has_transfers |= not ops.isdisjoint(TRANSFERS)
            found.has_collectives |= any(op.startswith(_COLLECTIVE) for op in ops)
            yield
    return found
