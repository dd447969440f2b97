"""GraphExecutionState: the stages from a graph and a signature to an executor, in order."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import asyncexec.devices  # noqa: F401 - registers the types of devices
from asyncexec.devices.memory_types import memory_types
from asyncexec.executor.diagnostics.cost_model import CostModel
from asyncexec.executor.diagnostics.kernel_stats import KernelStats
from asyncexec.executor.diagnostics.loop_holds import LoopHolds
from asyncexec.executor.engine.executor_barrier import PartitionedExecutor
from asyncexec.executor.engine.general_executor import GeneralExecutor
from asyncexec.executor.engine.partition_runner import PartitionRunner
from asyncexec.executor.plans.compiled_plan import CompiledPlan
from asyncexec.executor.plans.region_plan import AnyExecutor, RegionPlan
from asyncexec.executor.plans.tier import AnyPlan, Tier
from asyncexec.executor.types.executor_factory import Compiles
from asyncexec.executor.workers.offload import WorkerPool
from asyncexec.executor.workers.process_pool import ProcessPool
from asyncexec.framework.clock import CLOCK, Clock
from asyncexec.framework.cooperative import STRIDE, Stage, outlast
from asyncexec.framework.device_factory import LOCAL_PREFIX, DeviceOptions, create_devices
from asyncexec.framework.lazy_module import LazyModule
from asyncexec.framework.resource_mgr import ResourceMgr
from asyncexec.framework.spans import Spans
from asyncexec.framework.step_stats import PassStats
from asyncexec.graph.graph import Graph
from asyncexec.graph.node import Node, Tensor
from asyncexec.partition.partitioned_graph import PartitionedGraph
from asyncexec.partition.send_recv import PartitionOptions
from asyncexec.passes.pipeline import DeviceOf, Pipeline, PipelineOptions, PlacedGraph, Prepared
from asyncexec.passes.registry import LEVELS, Level
from asyncexec.placement.device_set import DeviceSet
from asyncexec.placement.placement_rules import PlacementRules
from asyncexec.placement.placer import Placer
from asyncexec.pruning.prune import ClientGraph
from asyncexec.regions.program import UnstructuredError
from asyncexec.session.executor_maker import ExecutorMaker
from asyncexec.session.library_passes import library_passes
from asyncexec.session.plan_compiler import PlanCompiler, learn
from asyncexec.session.session_config import SessionConfig
from asyncexec.session.worker_statistics import WorkerStatistics
from asyncexec.session.workers import Workers

if TYPE_CHECKING:
    from asyncexec.session.client_channels import ClientChannels

_client_channels = LazyModule("asyncexec.session.client_channels")
_feed_fetch_rewrite = LazyModule("asyncexec.pruning.feed_fetch_rewrite")


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class PreparedGraph:
    """What the stages make of a signature.

    Attributes:
        client_graph: with its feeds and fetches, by whichever medium they travel, before any pass has edited it.
        partitions: by device.
        stand_ins: by the name of a node that was made for a feed or fetch, the node that errors name in its place.
        passes: what each step has changed.
        show_passes: makes *passes* again, with the graph after each, as a stage.
        brings_references: whether a step gives references to variables where such are fetched, and not what is in
            these: a _Send has read it.
        optimize: runs the pipeline again, with the optimizer passes, as a stage; None where they have run.
        whole: what can be compiled in one piece; None where the partitions are not just parts of it.
    """

    client_graph: ClientGraph
    partitions: Mapping[str, PartitionedGraph]
    executor: AnyExecutor
    stand_ins: Mapping[str, Node]
    brings_references: bool
    passes: Sequence[PassStats]
    show_passes: Callable[[], Stage[Sequence[PassStats]]]
    optimize: Callable[[], Stage[Prepared]] | None
    whole: PlacedGraph | None

    @property
    def may_be_compiled(self) -> bool:
        """Whether there may be a plan of it, or of its partitions that are of this process."""
        return self.whole is not None or (
            isinstance(self.executor, PartitionedExecutor) and bool(self.executor.runners)
        )

    def node_devices(self) -> Stage[Callable[[Node], str]]:
        """A function that gives the device that a node of one of the partitions runs on, as a stage."""
        if len(self.partitions) == 1:
            (only,) = self.partitions
            return lambda node: only
        devices: dict[Node, str] = {}
        for name, part in self.partitions.items():
            nodes = part.graph.nodes
            for start in range(0, len(nodes), STRIDE):
                devices.update(dict.fromkeys(nodes[start : start + STRIDE], name))
                yield
        return devices.__getitem__


class GraphExecutionState:
    """What a session needs to make executors."""

    def __init__(
        self,
        graph: Graph,
        config: SessionConfig,
        resource_mgr: ResourceMgr,
        clock: Clock = CLOCK,
        costs: CostModel | None = None,
        spans: Spans | None = None,
        workers: Workers | None = None,
        address_space: str = LOCAL_PREFIX,
    ) -> None:
        self.workers: Workers | None = workers
        own_devices = create_devices(DeviceOptions(config.device_count, address_space))
        self.devices: DeviceSet = DeviceSet([*own_devices, *(() if workers is None else workers.devices())])
        self.maker: ExecutorMaker = ExecutorMaker(own_devices, config, resource_mgr, clock, costs, spans)
        self.pools: Mapping[str, WorkerPool] = self.maker.pools
        self.holds: LoopHolds = self.maker.holds
        self.processes = resource_mgr.processes = ProcessPool(config.num_processes, self.maker.grace)
        rules = PlacementRules(
            self.devices,
            allow_soft_placement=config.allow_soft_placement,
            log_placement=config.log_device_placement,
            needs_kernels=False,
        )
        self.placer: Placer = Placer(graph, rules)
        self._rules = rules
        self._replicas: dict[str, Pipeline] = {}
        # Whether signatures are optimized that nobody asks to be, or not to be.
        self.optimizes = False
        self._level = LEVELS[config.optimization]
        self._is_watched = config.debug or config.schedule_seed is not None
        self.python_scalars: bool = config.python_scalars
        self._uses_rendezvous = config.feed_fetch_medium == "rendezvous" or not self.maker.executor_type.is_ours
        self._partition_options = _partition_options(self.devices)
        self._client = self._partition_options.client
        self.devices.client_device = self.devices.by_name(self._client)
        self.pipeline: Pipeline = Pipeline(
            graph,
            self.placer,
            self.devices,
            PipelineOptions(
                place_pruned_graph=config.place_pruned_graph,
                verifies_each=config.debug,
                partition_options=self._partition_options,
                session_passes=library_passes(config),
                connect=partial(self._connect_client, self.placer)
                if self._uses_rendezvous or workers is not None
                else None,
            ),
        )
        if workers is not None:
            self.maker.make_remote_args = workers.make_args

    @property
    def is_in_use(self) -> bool:
        """Nothing is but what steps of a session are."""
        return False

    def drop_loop(self) -> None:
        """Wait for no call of worker threads any more: the loop that they were made in is closed."""
        self.processes.drop_loop()
        for pool in self.pools.values():
            pool.drop_loop()

    def prepare(
        self,
        feeds: Sequence[Tensor],
        fetches: Sequence[Tensor],
        targets: Sequence[Node],
        *,
        optimized: bool | None = None,
        worker: str | None = None,
    ) -> Stage[PreparedGraph]:
        """Run the pipeline (passes/pipeline.py), with the optimizer passes if *optimized*, and compile, as a stage.

        With a *worker* nodes prefer its devices to those of all other processes.
        """
        self.refresh_devices()
        level = self._level if (self.optimizes if optimized is None else optimized) else Level.ALWAYS
        pipeline = self.pipeline if worker is None else self._replica(worker)
        run = partial(pipeline.run, feeds, fetches, targets)
        prepared = yield from run(level)
        channels: Any = prepared.connected
        keys = None if channels is None else channels.keys
        remote, own = self._split_by_process(prepared.partitions)
        runners = yield from self._runners(remote)
        executor = yield from self.maker.make(prepared.client_graph, own, keys, runners)

        def show_passes() -> Stage[Sequence[PassStats]]:
            return (yield from run(level, keeps_graphs=True)).passes

        return PreparedGraph(
            prepared.client_graph,
            prepared.partitions,
            executor,
            {} if channels is None else channels.stand_ins,
            channels is None,
            prepared.passes,
            show_passes,
            None if level == self._level else partial(run, self._level),
            prepared.whole,
        )

    def refresh_devices(self) -> None:
        """Take note of the devices of workers that have joined since."""
        known = () if self.workers is None else self.workers.devices()
        new = [device for device in known if self.devices.find(device.name) is None]
        for device in new:
            self.devices.add_device(device)
        if new:
            self._partition_options = _partition_options(self.devices)
            self._replicas.clear()
            self.pipeline.options = replace(self.pipeline.options, partition_options=self._partition_options)

    @property
    def may_compile(self) -> bool:
        """Whether signatures are ever compiled to Python: what is to be watched or shuffled, is not."""
        return self.maker.executor_type.compiles is not Compiles.NEVER and not self._is_watched

    @property
    def compiles_at_once(self) -> bool:
        """Whether a signature is compiled before its first run."""
        return self.maker.executor_type.compiles is Compiles.AT_ONCE

    def compile_plan(self, prepared: PreparedGraph, tier: Tier, *, optimizes: bool = False) -> Stage[AnyPlan | None]:
        """What ``_compile`` gives; the tier's limits of feeds are told which nodes that has on worker threads."""
        plan = yield from self._compile(prepared, tier, optimizes=optimizes)
        if plan is not None and tier.growth is not None:
            away: dict[KernelStats, set[int]] = {}
            for part in () if isinstance(plan, CompiledPlan) else prepared.executor.parts:
                away[part.stats] = yield from part.stats.away()
            tier.growth.ignore(away)
        return plan

    def _compile(self, prepared: PreparedGraph, tier: Tier, *, optimizes: bool) -> Stage[AnyPlan | None]:
        """*prepared* as a plan of Python functions (plan_compiler.py), as a stage; None where there is none by now.

        If it *optimizes*, the optimizer passes come first; where they change nothing, and it would have no fewer parts
        than the plan that *tier* has, there is none.  Nor is there one while it is not clear whether all kernels are
        cheap, if *tier*, whose runs the plan is for, may wait for that, or if the plan would be its first, of the
        optimized graph.

        Raises:
            UnstructuredError: the graph has no structure that Python has.
        """
        whole, partitions, executor = prepared.whole, prepared.partitions, prepared.executor
        if isinstance(executor, PartitionedExecutor) and executor.runners:
            # What the workers have of the graph is not optimized.
            return None if optimizes else (yield from self._compile_own(prepared, executor, _unknown_sizes(tier)))
        if whole is None or self._partition_options.own_memory.intersection(partitions):
            return None
        if isinstance(tier.compiled, RegionPlan):
            yield from learn(executor, tier.compiled.executor)
        compiler = self.maker.compiler(pauses_often=tier.was_slow, unknown_sizes=_unknown_sizes(tier))
        yield from compiler.read(executor)
        limits = yield from compiler.feed_limits(whole, prepared.executor)
        stays_on_loop = limits is not None and (tier.runs_on_loop or executor.stays_on_loop)
        may_stay = limits is not None and executor.may_stay_on_loop
        waits = tier.may_wait or (optimizes and tier.compiled is None)
        if may_stay and not stays_on_loop and waits and not self.compiles_at_once:
            return None
        better = (yield from prepared.optimize()) if optimizes and prepared.optimize is not None else None
        # To run several cheap partitions as one graph is worth more than what passes have made of each.
        if (
            better is not None
            and _has_changed(better.passes, prepared.passes)
            and not (better.whole is None and executor.is_all_cheap)
        ):
            whole, partitions = better.whole, better.partitions
            executor = yield from self.maker.make(prepared.client_graph, partitions, compiler=compiler)
            before = compiler.items
            yield from compiler.read(executor)
            if tier.compiled is not None:
                are_settled = yield from compiler.prepare_clusters(before)
                if stays_on_loop and not are_settled:  # to find out would take calls that are not quick
                    return None
            limits = None if whole is None else (yield from compiler.feed_limits(whole, prepared.executor))
        elif optimizes and (tier.runs_on_loop or not stays_on_loop):
            return None
        if whole is not None and limits is not None and stays_on_loop:
            try:
                return (yield from compiler.compile_whole(whole, limits, tier.growth))
            except UnstructuredError:
                if executor.is_all_cheap:
                    raise
        return (yield from self._compile_parts(prepared, compiler, partitions, executor))

    def _compile_parts(
        self,
        prepared: PreparedGraph,
        compiler: PlanCompiler,
        partitions: Mapping[str, PartitionedGraph],
        executor: AnyExecutor,
    ) -> Stage[RegionPlan | None]:
        """*partitions*, which *executor* runs, with regions; as one call on a worker thread, where that can be.

        None if it is *prepared* as it was.
        """
        folded = yield from compiler.compile_regions(partitions)
        if compiler.regions:
            executor, partitions = (
                (yield from self.maker.make(prepared.client_graph, folded, compiler=compiler)),
                folded,
            )
        if isinstance(executor, GeneralExecutor):
            ((device, part),) = partitions.items()
            plan = yield from compiler.compile_call(part.graph, device, executor)
            if plan is not None:
                return plan
        return None if executor is prepared.executor else RegionPlan(executor, compiler.regions.values())

    def _compile_own(
        self, prepared: PreparedGraph, executor: PartitionedExecutor, unknown_sizes: frozenset[str]
    ) -> Stage[RegionPlan | None]:
        """A plan with regions in the partitions of this process; workers make their own."""
        _, own = self._split_by_process(prepared.partitions)
        compiler = self.maker.compiler(unknown_sizes=unknown_sizes)
        yield from compiler.read(executor)
        folded = yield from compiler.compile_regions(own)
        if not compiler.regions:
            return None
        keys, runners = executor.client_keys, executor.runners
        made = yield from self.maker.make(prepared.client_graph, folded, keys, runners, compiler)
        return RegionPlan(made, compiler.regions.values())

    def _runners(self, remote: Mapping[str, Mapping[str, PartitionedGraph]]) -> Stage[Sequence[PartitionRunner]]:
        """What runs the partitions of workers, which are in *remote* by the names of these, as a stage."""
        runners: list[PartitionRunner] = []
        for worker, parts in remote.items():
            assert self.workers is not None  # whose devices they are
            runners.append((yield from self.workers.runner(worker, parts)))
        return runners

    def _replica(self, worker: str) -> Pipeline:
        """The pipeline of signatures whose nodes prefer the devices of *worker*."""
        if worker not in self._replicas:
            own = (each for each in self.devices.by_priority if str(each.parsed_name.address_space) == worker)
            placer = Placer(self.pipeline.graph, replace(self._rules, default_local_device=next(own)))
            connect = partial(self._connect_client, placer)
            options = replace(self.pipeline.options, place_pruned_graph=True, connect=connect)
            self._replicas[worker] = Pipeline(self.pipeline.graph, placer, self.devices, options)
        return self._replicas[worker]

    def _connect_client(
        self, placer: Placer, client_graph: ClientGraph, device_of: DeviceOf
    ) -> Stage[ClientChannels | None]:
        """*client_graph* with feeds and fetches by the rendezvous; None where a call frame carries them."""
        if not (self._uses_rendezvous or (yield from self._has_remote(client_graph, device_of))):
            return None
        devices = _feed_fetch_rewrite.ChannelDevices(
            self._client, partial(_device_of_feed, placer), device_of, self._partition_options.incarnation_of
        )
        channels: ClientChannels = yield from _client_channels.connect_client(client_graph, devices)
        return channels

    def worker_statistics(self) -> Sequence[WorkerStatistics]:
        """How the workers of the cluster are doing; none without a cluster."""
        return () if self.workers is None else self.workers.statistics()

    async def close(self) -> None:
        """End the worker processes and the threads of all devices, and what workers have, and wait for them."""
        workers = () if self.workers is None else (self.workers,)
        parts = (self.processes, self.maker.load_threads, *self.pools.values(), *workers)
        closing = asyncio.gather(*(part.close() for part in parts))
        await outlast(closing.done, lambda: asyncio.wait([closing]))
        closing.result()

    def _split_by_process(
        self, partitions: Mapping[str, PartitionedGraph]
    ) -> tuple[Mapping[str, dict[str, PartitionedGraph]], Mapping[str, PartitionedGraph]]:
        """The partitions of each worker, by its name; and those of this process."""
        remote: dict[str, dict[str, PartitionedGraph]] = {}
        own: dict[str, PartitionedGraph] = {}
        for name, part in partitions.items():
            device = self.devices.by_name(name)
            parts = remote.setdefault(str(device.parsed_name.address_space), {}) if device.is_remote else own
            parts[name] = part
        return remote, own

    def _has_remote(self, client_graph: ClientGraph, device_of: DeviceOf) -> Stage[bool]:
        """Whether a node of *client_graph* is on a device of another process, as a stage."""
        nodes = client_graph.nodes
        for start in range(0, len(nodes) if self.workers is not None else 0, STRIDE):
            if any(self.devices.by_name(device_of(node)).is_remote for node in nodes[start : start + STRIDE]):
                return True
            yield
        return False


def _device_of_feed(placer: Placer, tensor: Tensor) -> str:
    """Where what is fed was to be computed: its node need not run, and is in no client graph then."""
    return placer.device_of(placer.placed_node(tensor.op.name) or tensor.op).name


def _partition_options(devices: DeviceSet) -> PartitionOptions:
    """What the partitioner is to know of *devices*."""
    options = PartitionOptions(
        tuple(device.name for device in devices),
        {device.name: device.incarnation for device in devices},
        own_memory=frozenset(device.name for device in devices if not device.shares_host_memory),
    )
    if not options.own_memory:
        return options

    def input_on_host(node: Node, slot: int, device: str) -> bool:
        return device in options.own_memory and memory_types(node.op_def, node.attrs).inputs_on_host[slot]

    def output_on_host(node: Node, slot: int, device: str) -> bool:
        return device in options.own_memory and memory_types(node.op_def, node.attrs).outputs_on_host[slot]

    return replace(options, input_on_host=input_on_host, output_on_host=output_on_host)


def _has_changed(passes: Iterable[PassStats], before: Iterable[PassStats]) -> bool:
    """Whether passes that did not run *before* have changed the graph."""
    known = {each.name for each in before}
    return any(each.num_added or each.num_removed or each.num_changed for each in passes if each.name not in known)


def _unknown_sizes(tier: Tier) -> frozenset[str]:
    """The names of the nodes of *tier* that no plan is to have, as nothing tells beforehand how much they make."""
    return frozenset() if tier.growth is None else tier.growth.unknown
