"""WorkerSession: what a worker has of one session of a coordinator: resources, graphs, and the steps under way.

After ``WorkerSession``, ``GraphMgr`` and ``RpcRendezvousMgr`` in ``tensorflow/core/distributed_runtime``.  Values of a
step may come before the word that it begins, from workers that have heard it earlier.  Those that come after its end
are dropped: the coordinator tells with each step that it forgets which is the oldest that it has not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from asyncexec.distributed.collective_executor import ClusterCollectiveExecutor
from asyncexec.distributed.graph_wire import ConstantKey, Registration, WorkerPolicy, decode_partitions
from asyncexec.distributed.messages import Done, Forget, Halt, Kind, Run, RunFlags, pack_done
from asyncexec.distributed.step_rendezvous import Channel, StepRendezvous
from asyncexec.distributed.transport.connection import Connection
from asyncexec.distributed.wire_errors import encode_error
from asyncexec.distributed.worker_step import WorkerStep
from asyncexec.executor.diagnostics.step_stats_collector import StepStatsCollector
from asyncexec.executor.engine.executor_barrier import PartitionedExecutor
from asyncexec.executor.plans.region_plan import RegionPlan
from asyncexec.executor.plans.tier import Tier
from asyncexec.executor.workers.worker_calls import WorkerCalls
from asyncexec.framework.cancellation import CancellationManager
from asyncexec.framework.cooperative import Stage, run_in_slices
from asyncexec.framework.derived import make_derived
from asyncexec.framework.errors import AbortedError, CancelledError, OpError
from asyncexec.framework.executor import ExecutorArgs
from asyncexec.framework.resource_mgr import ResourceMgr
from asyncexec.graph.graph import Graph
from asyncexec.graph.node import Node
from asyncexec.partition.partitioned_graph import PartitionedGraph
from asyncexec.process.gc_pause import paused_gc
from asyncexec.session.function_runtime import SessionFunctionRuntime
from asyncexec.session.graph_execution_state import GraphExecutionState
from asyncexec.session.session_config import SessionConfig
from asyncexec.session.session_loop import SessionLoop


class _Registered:
    """A graph that the coordinator has registered.

    Attributes:
        executor: what runs it, once it is compiled.
        constants: the large ones that have come; all_are_there: set when no other is missing.
        device_of: the name of a node's device.
        tier: which executor runs it by now.
        has_collectives: whether its steps need a CollectiveExecutor.
    """

    def __init__(self, has_collectives: bool) -> None:
        self.has_collectives = has_collectives
        self.executor: asyncio.Future[PartitionedExecutor]
        self.constants: dict[ConstantKey, Any] = {}
        self.all_are_there = asyncio.Event()
        self.missing: set[ConstantKey] = set()
        self.device_of: Callable[[Node], str] = lambda node: ""
        self.tier: Tier = Tier(None)

    @property
    def plan(self) -> RegionPlan | None:
        """The plan that steps are to be run by, if there is one."""
        found = self.tier.compiled
        return found if isinstance(found, RegionPlan) else None

    @staticmethod
    def executor_of(plan: RegionPlan) -> PartitionedExecutor:
        """What runs the steps of *plan*."""
        assert isinstance(plan.executor, PartitionedExecutor)  # others send to its rendezvous
        return plan.executor

    def note_run(self, plan: RegionPlan | None, elapsed_ns: int) -> None:
        """Let the tier know of a run, by *plan* if it was by one."""
        if plan is None:
            self.tier.note_run(elapsed_ns)
        else:
            self.tier.note_compiled_run(plan, elapsed_ns)

    def take(self, key: ConstantKey, value: Any) -> None:
        """Take a constant, if it is one that is missing."""
        if key in self.missing:
            self.missing.remove(key)
            self.constants[key] = value
            self.check()

    def check(self) -> None:
        """Let the graph be compiled if nothing is missing."""
        if not self.missing:
            self.all_are_there.set()


class WorkerSession:
    """See the head of this module.

    Args:
        number: of the session, which the numbers of its steps begin with.
        worker: the name of this worker.
        connection: leads to the coordinator.
        config: how executors are to behave.
        policy: what clients may do.
        shared: the resources that sessions of this worker share; None for none.
        route: gives the channel to another worker, by the name of a device; None for this one.
    """

    def __init__(
        self,
        number: int,
        worker: str,
        connection: Connection,
        config: SessionConfig,
        policy: WorkerPolicy,
        shared: ResourceMgr | None,
        route: Callable[[str], Channel | None],
    ) -> None:
        self.number = number
        self.connection = connection
        self._worker = worker
        self._policy = policy
        self._route = route
        self._resources = ResourceMgr(shared)
        self._library = Graph()
        self._state = GraphExecutionState(self._library, config, self._resources, address_space=worker)
        self._calls = WorkerCalls(next(iter(self._state.pools.values())))
        self._loop = SessionLoop([self._state, self._resources])
        self._resources.functions = SessionFunctionRuntime(self._library, self._state, self._loop)
        self._graphs: dict[int, _Registered] = {}
        self._steps: dict[int, WorkerStep] = {}
        self._constants: dict[int, dict[ConstantKey, Any]] = {}  # of graphs that are yet to be registered
        self._forgotten: set[int] = set()
        self._oldest = 0  # all steps before have been forgotten
        self._endings: set[asyncio.Task[None]] = set()  # of steps that are known no more, or are told of
        self._clock = self._state.holds.clock
        self._loop.enter()

    @property
    def num_steps(self) -> int:
        """How many steps have begun, or got values, and are not forgotten."""
        return len(self._steps)

    def register(self, registration: Registration) -> None:
        """Compile a graph; its steps wait for that, and get what is wrong."""
        found = self._graphs[registration.graph_id] = _Registered(registration.has_collectives)
        found.missing.update(registration.constants)
        for key, value in self._constants.pop(registration.graph_id, {}).items():
            found.take(key, value)
        found.check()
        found.executor = asyncio.get_running_loop().create_task(self._compile(registration, found))
        found.executor.add_done_callback(_look)

    def take_constant(self, graph_id: int, key: ConstantKey, value: Any) -> None:
        """Take a large constant of a graph that is registered, or about to be."""
        found = self._graphs.get(graph_id)
        if found is None:
            self._constants.setdefault(graph_id, {})[key] = value
        else:
            found.take(key, value)

    def deregister(self, graph_id: int) -> None:
        """Forget a graph; its steps go on."""
        self._graphs.pop(graph_id, None)

    def run(self, run: Run) -> None:
        """Begin a step."""
        registered = self._graphs.get(run.graph_id)
        if registered is None:
            self._tell(run.step_id, AbortedError(f"there is no graph {run.graph_id} here"))
            return
        step = self._step(run.step_id)
        if step is None:
            self._tell(run.step_id, AbortedError("the step has ended before it began here"))
            return
        collector = StepStatsCollector(self._clock) if run.flags & RunFlags.TRACE else None
        plan, began_ns = registered.plan if collector is None else None, self._clock.now_ns()
        args = ExecutorArgs(step.rendezvous, run.step_id, collector, CancellationManager())
        if registered.has_collectives:
            args.collective_executor = ClusterCollectiveExecutor(step.rendezvous, self._worker, self._calls.call)

        def on_end(error: BaseException | None, collector: StepStatsCollector | None) -> None:
            if collector is None:
                self._tell(run.step_id, error)
                registered.note_run(plan, self._clock.now_ns() - began_ns)
            else:
                telling = self._tell_traced(registered, run, error, collector)
                self._keep(asyncio.get_running_loop().create_task(telling))

        step.begin(registered.executor if plan is None else registered.executor_of(plan), args, on_end)

    def refuse_run(self, run: Run, error: OpError) -> None:
        """Begin no step, and tell why."""
        self._tell(run.step_id, error)

    def arrive(self, step_id: int, key: str, value: Any, is_dead: bool) -> None:
        """Take a value that another process has pushed."""
        step = self._step(step_id)
        if step is not None:
            step.rendezvous.arrive(key, value, is_dead)

    def refuse(self, step_id: int, error: OpError) -> None:
        """End a step: what came for it was no value."""
        step = self._step(step_id)
        if step is not None:
            step.rendezvous.start_abort(error)

    def halt(self, halt: Halt) -> None:
        """End this worker's part of a step that has failed elsewhere."""
        step = self._steps.get(halt.step_id)
        if step is not None:
            error = make_derived(CancelledError("the step has ended elsewhere"))
            step.halt(error, is_left=halt.is_left)

    def forget(self, forget: Forget) -> None:
        """Drop what is left of a step that has ended everywhere."""
        step = self._steps.pop(forget.step_id, None)
        if step is not None:
            step.forget()
            if step.is_running:
                self._keep(asyncio.get_running_loop().create_task(step.wait()))
        self._forgotten.add(forget.step_id)
        if forget.oldest > self._oldest:
            self._oldest = forget.oldest
            self._forgotten = {each for each in self._forgotten if each >= forget.oldest}

    def lose(self, worker: str, error: OpError) -> None:
        """Let the steps under way expect nothing from *worker* any more."""
        for step in list(self._steps.values()):
            step.lose(worker, error)

    async def close(self, error: OpError) -> None:
        """End all steps with *error*, and let go of everything."""
        steps, self._steps = self._steps, {}
        for step in steps.values():
            step.halt(error, is_left=True)
            step.rendezvous.start_abort(error)
        for registered in self._graphs.values():
            registered.executor.cancel()
        for step in steps.values():
            await step.wait()
        await asyncio.gather(
            *(registered.executor for registered in self._graphs.values()), *self._endings, return_exceptions=True
        )
        self._graphs.clear()
        self._resources.close()
        await self._state.close()

    def _keep(self, ending: asyncio.Task[None]) -> None:
        self._endings.add(ending)
        ending.add_done_callback(self._endings.discard)

    def _step(self, step_id: int) -> WorkerStep | None:
        """What there is of a step, made now if it is new; None if it has been forgotten."""
        step = self._steps.get(step_id)
        if step is None and step_id >= self._oldest and step_id not in self._forgotten:
            step = self._steps[step_id] = WorkerStep(StepRendezvous(step_id, self._route))
        return step

    async def _compile(self, registration: Registration, found: _Registered) -> PartitionedExecutor:
        await found.all_are_there.wait()
        async with self._loop.build_lock:
            with paused_gc():
                return await run_in_slices(self._compile_stage(registration, found), self._clock)

    def _compile_stage(self, registration: Registration, found: _Registered) -> Stage[PartitionedExecutor]:
        constants, found.constants = found.constants, {}
        wire = yield from registration.wire(constants)
        partitions = yield from decode_partitions(wire, self._policy, self._library)
        found.device_of = _device_of(partitions)
        executor = yield from self._state.maker.make_open(partitions)
        if self._state.may_compile:
            found.tier = Tier(lambda: self._state.maker.compile_open(partitions, executor), None, self._clock)
        return executor

    def _tell(self, step_id: int, error: BaseException | None, stats: dict[str, Any] | None = None) -> None:
        if not self.connection.is_open:
            return  # who would be told is gone
        told = None if error is None else encode_error(error, objects=self._policy.objects)
        self.connection.send(Kind.DONE, pack_done(Done(step_id, told, stats)), after_tensors=True)

    async def _tell_traced(
        self, registered: _Registered, run: Run, error: BaseException | None, collector: StepStatsCollector
    ) -> None:
        stats = await run_in_slices(collector.step_stats(registered.device_of), self._clock)
        self._tell(run.step_id, error, stats.model_dump(mode="json"))


def _device_of(partitions: dict[str, PartitionedGraph]) -> Callable[[Node], str]:
    if len(partitions) == 1:
        (only,) = partitions
        return lambda node: only
    devices = {node.graph: name for name, part in partitions.items() for node in part.graph.nodes[:1]}
    return lambda node: devices[node.graph]


def _look(executor: asyncio.Task[PartitionedExecutor]) -> None:
    """Where no step ever asks, nobody is told."""
    if not executor.cancelled():
        executor.exception()
