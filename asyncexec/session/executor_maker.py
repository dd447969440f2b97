"""ExecutorMaker: makes the executors of a session's partitions, of kernels bound on its devices."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from asyncexec.compilation.bind_kernel import TRANSFERS, Binder, KernelBinder
from asyncexec.compilation.graph_view import CONTROL_FLOW_OPS
from asyncexec.executor.diagnostics.cost_model import CostModel
from asyncexec.executor.diagnostics.loop_holds import LoopHolds
from asyncexec.executor.diagnostics.step_stats_collector import StepStatsCollector
from asyncexec.executor.engine.executor_barrier import MakeArgs, PartitionedExecutor, PartitionExecutor
from asyncexec.executor.engine.grace_period import Grace
from asyncexec.executor.engine.partition_runner import PartitionRunner
from asyncexec.executor.plans.region_plan import AnyExecutor, RegionPlan
from asyncexec.executor.types.executor_factory import DEFAULT_EXECUTOR_TYPE, executor_types
from asyncexec.executor.types.executor_params import ExecutorParams
from asyncexec.executor.workers.offload import WorkerPool
from asyncexec.executor.workers.worker_calls import WorkerCalls
from asyncexec.framework.clock import Clock, ns_of_ms
from asyncexec.framework.collective import OPS_PREFIX as COLLECTIVE_OPS
from asyncexec.framework.cooperative import STRIDE, Stage
from asyncexec.framework.device import Device
from asyncexec.framework.device_factory import LOCAL_PREFIX
from asyncexec.framework.executor import ExecutorArgs
from asyncexec.framework.memory_budget import MemoryBudget
from asyncexec.framework.resource_mgr import ResourceMgr
from asyncexec.framework.spans import Spans
from asyncexec.partition.partitioned_graph import PartitionedGraph
from asyncexec.process.load_threads import LoadThreads
from asyncexec.pruning.prune import ClientGraph
from asyncexec.session.library_passes import find_layers
from asyncexec.session.plan_compiler import PlanCompiler
from asyncexec.session.session_config import SessionConfig
from asyncexec.session.step_args import FullArgs, rendezvous_alone

if TYPE_CHECKING:
    from asyncexec.executor.engine.client_end import ClientKeys


@dataclass(slots=True)
class _Traits:
    """What the nodes of a graph ask of its executors."""

    has_control_flow: bool = False
    has_transfers: bool = False
    has_collectives: bool = False


class ExecutorMaker:
    """Makes executors.

    Args:
        devices: of this process; the first on host memory is the client's.

    Attributes:
        executor_type: that of the session.
        pools: the worker threads of each device, by its name.
        holds: is told how long steps hold the event loop.
        load_threads: on which the models of clusters are loaded.
        grace: how long what steps have launched may take to end.
        make_remote_args: makes what the partitions of a step are given that workers take part in; with calls that
            merge large values, where there are collectives.
    """

    make_remote_args: Callable[[StepStatsCollector | None, WorkerCalls | None], ExecutorArgs]

    def __init__(
        self,
        devices: Sequence[Device],
        config: SessionConfig,
        resource_mgr: ResourceMgr,
        clock: Clock,
        costs: CostModel | None,
        spans: Spans | None,
    ) -> None:
        self.executor_type = executor_types.lookup(config.executor_type or DEFAULT_EXECUTOR_TYPE)
        self.grace = Grace(config.worker_grace_s, config.async_grace_s, config.cancel_grace_s)
        self.pools: Mapping[str, WorkerPool] = {
            device.name: _worker_pool(device.num_workers or config.num_worker_threads, self.grace, clock)
            for device in devices
        }
        calls = {name: WorkerCalls(pool) for name, pool in self.pools.items()}
        resource_mgr.lookup_or_create(dict, "_session", "worker_calls", lambda: calls)
        slow_ms = config.slow_inline_ms
        self.holds: LoopHolds = LoopHolds(None if slow_ms is None else ns_of_ms(slow_ms), clock, costs)
        self._devices = {device.name: device for device in devices}
        self._client = next(device.name for device in devices if device.shares_host_memory)
        is_worker = not self._client.startswith(f"{LOCAL_PREFIX}/")  # which gets values from other processes
        observed = spans if spans is not None and spans.hooks else None
        budget = None if observed is None else next((h for h in observed.hooks if isinstance(h, MemoryBudget)), None)
        self.load_threads: LoadThreads = LoadThreads()
        self._binders = {
            device.name: KernelBinder(
                resource_mgr,
                device,
                debug=config.debug,
                checks_received=is_worker,
                spans=observed,
                budget=budget,
                leaves_blas=config.blas_threads == "host",
                forces_onnx=config.jit == "onnxruntime",
                find_layers=find_layers(config),
                load_threads=self.load_threads,
            )
            for device in devices
        }
        self._slice_ns = ns_of_ms(config.slice_ms)
        self._schedule_seed = config.schedule_seed
        self._debug = config.debug
        self._step_ids = itertools.count(1)

    def compiler(self, *, pauses_often: bool = False, unknown_sizes: frozenset[str] = frozenset()) -> PlanCompiler:
        """What compiles a signature of these devices to Python, but for nodes of *unknown_sizes*."""
        pool = self.pools[self._client]
        return PlanCompiler(
            self._binders, self._slice_ns, self.holds, pool, pauses_often=pauses_often, unknown_sizes=unknown_sizes
        )

    def make(
        self,
        client_graph: ClientGraph,
        partitions: Mapping[str, PartitionedGraph],
        client_keys: ClientKeys | None = None,
        runners: Sequence[PartitionRunner] = (),
        compiler: PlanCompiler | None = None,
    ) -> Stage[AnyExecutor]:
        """The executor of *partitions*, with the regions of *compiler*, if there are any, as a stage.

        *runners* run the other partitions of the signature.
        """
        traits = yield from _traits_of(partitions.values())
        traits.has_control_flow |= bool(runners)  # what they send may be dead
        traits.has_collectives |= any(runner.has_collectives for runner in runners)
        executors = yield from self._executors(partitions, traits, compiler)
        has_channels = client_keys is not None or traits.has_transfers or traits.has_collectives
        if len(executors) == 1 and not (has_channels or runners):
            return executors[0].executor
        return PartitionedExecutor(
            executors,
            len(client_graph.fetches),
            self._args_maker(traits, has_runners=bool(runners)),
            self._slice_ns,
            debug=self._debug,
            client_keys=client_keys,
            holds=self.holds,
            runners=runners,
            grace=self.grace,
        )

    def make_open(
        self, partitions: Mapping[str, PartitionedGraph], compiler: PlanCompiler | None = None
    ) -> Stage[PartitionedExecutor]:
        """What runs *partitions*, of a signature that another process has prepared, as a stage.

        Each step comes with its arguments: others send to its rendezvous, too.
        """
        traits = _Traits(has_control_flow=True)  # what others send may be dead
        executors = yield from self._executors(partitions, traits, compiler)
        return PartitionedExecutor(executors, 0, None, self._slice_ns, holds=self.holds)

    def compile_open(
        self, partitions: Mapping[str, PartitionedGraph], executor: PartitionedExecutor
    ) -> Stage[RegionPlan | None]:
        """*partitions*, which *executor* has run, with regions, as a stage; None where there are none.

        Raises:
            UnstructuredError: a loop has no structure that Python has.
        """
        compiler = self.compiler()
        yield from compiler.read(executor)
        folded = yield from compiler.compile_regions(partitions)
        if not compiler.regions:
            return None
        return RegionPlan((yield from self.make_open(folded, compiler)), compiler.regions.values())

    def _executors(
        self, partitions: Mapping[str, PartitionedGraph], traits: _Traits, compiler: PlanCompiler | None
    ) -> Stage[list[PartitionExecutor]]:
        if compiler is not None:
            traits.has_control_flow |= compiler.may_give_dead
        executors: list[PartitionExecutor] = []
        for device, part in partitions.items():
            binder: Binder = self._binders[device] if compiler is None else compiler.binder(device)
            yield from self._binders[device].prepare(part.graph.nodes)
            params = ExecutorParams(
                part.graph,
                self._devices[device],
                binder,
                traits.has_control_flow,
                self.pools[device],
                self._slice_ns,
                self.holds,
                self._schedule_seed,
            )
            executor = yield from self.executor_type.make(params)
            if compiler is not None:
                yield from compiler.restore(executor.stats)
            executors.append(PartitionExecutor(executor, part.feed_indices, part.fetch_indices))
            yield
        return executors

    def _args_maker(self, traits: _Traits, *, has_runners: bool) -> MakeArgs:
        calls = WorkerCalls(self.pools[self._client])
        if has_runners:
            make, merging = self.make_remote_args, calls if traits.has_collectives else None
            return lambda collector: make(collector, merging)
        if self.executor_type.is_ours and not traits.has_collectives:
            return rendezvous_alone
        return FullArgs(self._step_ids, calls, traits.has_collectives)


def _worker_pool(num_threads: int | None, grace: Grace, clock: Clock) -> WorkerPool:
    """A pool of so many threads; where no number is named, of those that sessions share."""
    return WorkerPool(num_threads, grace, clock=clock, is_shared=num_threads is None)


def _traits_of(partitions: Iterable[PartitionedGraph]) -> Stage[_Traits]:
    found = _Traits()
    for part in partitions:
        nodes = part.graph.nodes
        for start in range(0, len(nodes), STRIDE):
            ops = {node.properties.op for node in nodes[start : start + STRIDE]}
            found.has_control_flow |= not ops.isdisjoint(CONTROL_FLOW_OPS)
            found.has_transfers |= not ops.isdisjoint(TRANSFERS)
            found.has_collectives |= any(op.startswith(COLLECTIVE_OPS) for op in ops)
            yield
    return found
