"""WorkerSession: what a worker has of one session of a coordinator: resources, graphs, and the steps under way.

After ``WorkerSession``, ``GraphMgr`` and ``RpcRendezvousMgr`` in ``tensorflow/core/distributed_runtime``.  Values of a
step may come before the word that it begins, from workers that have heard it earlier.  Those that come after its end
are dropped: the coordinator tells with each step that it forgets which is the oldest that it has not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, Final

from asyncexec.distributed.collective_executor import ClusterCollectiveExecutor
from asyncexec.distributed.graph_wire import ConstantKey, Registration, WorkerPolicy, decode_partitions
from asyncexec.distributed.messages import Abort, Done, Forget, Kind, Run, RunFlags, pack_done
from asyncexec.distributed.step_rendezvous import Channel, StepRendezvous
from asyncexec.distributed.traced_steps import pack_stats
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
from asyncexec.framework.errors import (
    AbortedError,
    CancelledError,
    InvalidArgumentError,
    OpError,
    ResourceExhaustedError,
)
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

# A long step keeps others from being the oldest, while thousands of short ones end.
_MAX_FORGOTTEN: Final = 100_000


class _Registered:
    """A graph that the coordinator has registered.

    Attributes:
        executor: what runs it, once it is compiled.
        constants: the large ones that have come; all_are_there: set when no other is missing.
        device_of: the name of a node's device.
        refused_by: why a constant was none.
        tier: which executor runs it by now.
        has_collectives: whether its steps need a CollectiveExecutor.
    """

    def __init__(self, has_collectives: bool) -> None:
        self.has_collectives = has_collectives
        self.tier: Tier = Tier(None)
        self.executor: asyncio.Future[PartitionedExecutor]
        self.constants: dict[ConstantKey, Any] = {}
        self.all_are_there = asyncio.Event()
        self.missing: set[ConstantKey] = set()
        self.refused_by: OpError | None = None
        self.device_of: Callable[[Node], str] = lambda node: ""

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

    def take(self, key: ConstantKey, value: object) -> None:
        """Take a constant, if it is one that is missing."""
        if key in self.missing:
            self.missing.remove(key)
            self.constants[key] = value
            self.check()

    def check(self) -> None:
        """Let the graph be compiled if nothing is missing."""
        if not self.missing:
            self.all_are_there.set()

    def refuse(self, error: OpError) -> None:
        """Let the graph not be compiled, if it has not been."""
        self.refused_by = error
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
        self._clock = self._state.holds.clock
        self._loop = SessionLoop([self._state, self._resources])
        self._resources.functions = SessionFunctionRuntime(self._library, self._state, self._loop)
        self._graphs: dict[int, _Registered] = {}
        self._steps: dict[int, WorkerStep] = {}
        self._compiling: set[asyncio.Future[PartitionedExecutor]] = set()
        self._oldest = 0  # all steps before have been forgotten
        self._forgotten: dict[int, None] = {}  # of those after, the last that have been, in that order
        self._floor = 0  # the last that is no more among them: what is not known up to there counts as forgotten
        self._early: dict[int, int] = {}  # of steps that have values, and have not begun: how many bytes
        self._early_bytes = 0  # of all of them
        self._tensors_from_workers = self._bytes_from_workers = 0  # that the client has not been told of
        self._late: set[WorkerStep] = set()  # that have been forgotten, and have not ended
        self._telling: set[asyncio.Task[None]] = set()
        self._loop.enter()

    @property
    def num_steps(self) -> int:
        """How many steps have begun, or got values, and are not forgotten, or have not ended."""
        return len(self._steps) + len(self._late)

    def register(self, registration: Registration) -> None:
        """Compile a graph; its steps wait for that, and get what is wrong.

        Raises:
            InvalidArgumentError: there is a graph of that number.
            ResourceExhaustedError: there are too many graphs.
        """
        graph_id = registration.graph_id
        if graph_id in self._graphs:
            raise InvalidArgumentError(f"graph {graph_id} has been registered before")
        if len(self._graphs) >= self._policy.limits.max_graphs:
            raise ResourceExhaustedError(
                f"a session has at most {self._policy.limits.max_graphs} graphs on a worker (max_graphs)"
            )
        found = self._graphs[graph_id] = _Registered(registration.has_collectives)
        found.missing.update(registration.constants)
        found.check()
        found.executor = asyncio.get_running_loop().create_task(self._compile(registration, found))
        found.executor.add_done_callback(self._look)
        self._compiling.add(found.executor)

    def take_constant(self, graph_id: int, key: ConstantKey, value: object) -> None:
        """Take a large constant of a graph that is registered."""
        found = self._graphs.get(graph_id)
        if found is not None:
            found.take(key, value)

    def refuse_constant(self, graph_id: int, error: OpError) -> None:
        """Let a graph fail: what came for it was no constant."""
        found = self._graphs.get(graph_id)
        if found is not None:
            found.refuse(error)

    def deregister(self, graph_id: int) -> None:
        """Forget a graph; its steps go on, if they have it."""
        found = self._graphs.pop(graph_id, None)
        if found is not None:
            found.executor.cancel()

    def run(self, run: Run) -> None:
        """Begin a step."""
        registered = self._graphs.get(run.graph_id)
        if registered is None:
            self._tell(run.step_id, AbortedError(f"there is no graph {run.graph_id} here"))
            return
        step = self._begun(run.step_id)
        if step is None:
            return
        collector = StepStatsCollector(self._clock) if run.flags & RunFlags.TRACE else None
        plan, began_ns = registered.plan if collector is None else None, self._clock.now_ns()
        args = ExecutorArgs(step.rendezvous, run.step_id, collector, CancellationManager())
        if registered.has_collectives:
            args.collective_executor = ClusterCollectiveExecutor(step.rendezvous, self._worker, self._calls.call)

        def on_end(error: BaseException | None, collector: StepStatsCollector | None) -> None:
            self._late.discard(step)
            if collector is None:
                self._tell(run.step_id, error)
                registered.note_run(plan, self._clock.now_ns() - began_ns)
            else:
                telling = asyncio.get_running_loop().create_task(self._tell_traced(registered, run, error, collector))
                self._telling.add(telling)
                telling.add_done_callback(self._telling.discard)

        step.begin(registered.executor if plan is None else registered.executor_of(plan), args, on_end)

    def refuse_run(self, run: Run, error: OpError) -> None:
        """Begin no step, and tell why."""
        self._tell(run.step_id, error)

    def _begun(self, step_id: int) -> WorkerStep | None:
        """What there is of a step that begins; None where it cannot, which has been told."""
        step = self._steps.get(step_id)
        if step_id in self._early:
            self._early_bytes -= self._early.pop(step_id)
        elif step is not None or self._is_forgotten(step_id):
            self._tell(step_id, AbortedError(f"step {step_id} has begun before"))
            return None
        elif len(self._steps) - len(self._early) < self._policy.limits.max_steps:
            step = self._steps[step_id] = WorkerStep(StepRendezvous(step_id, self._route))
        else:
            most = f"a session has at most {self._policy.limits.max_steps} steps on a worker (max_steps)"
            self._tell(step_id, ResourceExhaustedError(most))
        return step

    def arrive(self, step_id: int, key: str, value: object, is_dead: bool) -> None:
        """Take a value that another process has pushed.

        Raises:
            ResourceExhaustedError: too much has come for steps that have not begun.
        """
        step = self._step(step_id)
        if step is None:
            return
        if not step.has_begun:
            self._count_early(step_id, key, value)
        step.rendezvous.arrive(key, value, is_dead)

    def count_from_worker(self, num_bytes: int) -> None:
        """Take note of a value that another worker has pushed, and whose payload has so many bytes."""
        self._tensors_from_workers += 1
        self._bytes_from_workers += num_bytes

    def refuse(self, step_id: int, error: OpError) -> None:
        """End a step: what came for it was no value, or one of its values cannot be sent."""
        step = self._step(step_id)
        if step is not None and not step.fail(error):
            self._tell(step_id, error)

    def abort(self, told: Abort) -> None:
        """End this worker's part of a step that has failed elsewhere."""
        step = self._steps.get(told.step_id)
        if step is not None:
            (step.cancel if told.is_cancelled else step.abort)(_aborted())

    def forget(self, forget: Forget) -> None:
        """Drop what is left of a step that has ended everywhere, and of all before the oldest that has not."""
        self._drop(forget.step_id)
        if forget.oldest > self._oldest:
            self._oldest = forget.oldest
            self._forgotten = {each: None for each in self._forgotten if each >= forget.oldest}
        self._forgotten[forget.step_id] = None
        if len(self._forgotten) > _MAX_FORGOTTEN:
            first = next(iter(self._forgotten))
            del self._forgotten[first]
            self._floor = max(self._floor, first)
        while self._steps and (first := next(iter(self._steps))) < self._oldest:
            self._drop(first)

    def _is_forgotten(self, step_id: int) -> bool:
        return step_id < self._oldest or step_id <= self._floor or step_id in self._forgotten

    def lose(self, worker: str, error: OpError) -> None:
        """Let the steps under way expect nothing from *worker* any more, and send it nothing."""
        for step_id, step in list(self._steps.items()):
            if not step.lose(worker, error):
                self._tell(step_id, error)  # who waits there for our values does not know

    async def close(self, error: OpError) -> None:
        """End all steps with *error*, and let go of everything."""
        steps, self._steps = self._steps, {}
        for step in steps.values():
            step.cancel(error)
            step.rendezvous.start_abort(error)
        for executor in self._compiling:
            executor.cancel()
        for step in (*steps.values(), *self._late):
            await step.wait()
        await asyncio.gather(*self._compiling, *self._telling, return_exceptions=True)
        self._graphs.clear()
        await self._resources.background.end()
        self._resources.close()
        await self._state.close()

    def _step(self, step_id: int) -> WorkerStep | None:
        """What there is of a step, made now if it is yet to begin; None if it has been forgotten."""
        step = self._steps.get(step_id)
        if step is None and not self._is_forgotten(step_id):
            if len(self._early) >= self._policy.limits.max_steps:
                most = f"at most {self._policy.limits.max_steps} steps (max_steps)"
                raise ResourceExhaustedError(f"a worker keeps values of {most} of a session that have not begun")
            self._early[step_id] = 0
            step = self._steps[step_id] = WorkerStep(StepRendezvous(step_id, self._route))
        return step

    def _count_early(self, step_id: int, key: str, value: object) -> None:
        num_bytes = len(key) + _num_bytes(value)
        most = self._policy.limits.max_early_bytes
        if self._early_bytes + num_bytes > most:
            raise ResourceExhaustedError(
                f"a worker keeps at most {most} bytes (max_early_bytes) for steps of a session that have not begun"
            )
        self._early[step_id] += num_bytes
        self._early_bytes += num_bytes

    def _drop(self, step_id: int) -> None:
        step = self._steps.pop(step_id, None)
        if step is None:
            return
        if not step.has_begun:
            self._early_bytes -= self._early.pop(step_id)
        elif not step.has_ended:
            self._late.add(step)
            step.cancel(_aborted())
        step.release()

    async def _compile(self, registration: Registration, found: _Registered) -> PartitionedExecutor:
        await found.all_are_there.wait()
        if found.refused_by is not None:
            raise found.refused_by
        async with self._loop.build_lock:
            with paused_gc():
                return await run_in_slices(self._compile_stage(registration, found), self._clock)

    def _compile_stage(self, registration: Registration, found: _Registered) -> Stage[PartitionedExecutor]:
        constants, found.constants = found.constants, {}
        self._check_devices(registration.partitions)
        wire = yield from registration.wire(constants)
        partitions = yield from decode_partitions(wire, self._policy, self._library)
        found.device_of = _device_of(partitions)
        executor = yield from self._state.maker.make_open(partitions)
        if self._state.may_compile:
            found.tier = Tier(lambda: self._state.maker.compile_open(partitions, executor), None, self._clock)
        return executor

    def _check_devices(self, names: Iterable[str]) -> None:
        own = [device.name for device in self._state.devices.devices]
        for name in names:
            if name not in own:
                raise InvalidArgumentError(f"there is no device {name!r} here; there is {', '.join(own)}")

    def _tell(self, step_id: int, error: BaseException | None, stats: dict[str, object] | None = None) -> None:
        if not self.connection.is_open:
            return  # who would be told is gone
        told = None if error is None else encode_error(error, objects=self._policy.objects)
        from_workers = self._tensors_from_workers, self._bytes_from_workers
        self._tensors_from_workers = self._bytes_from_workers = 0
        try:
            self.connection.send(Kind.DONE, pack_done(Done(step_id, told, stats, *from_workers)), after_tensors=True)
        except InvalidArgumentError as refusal:  # it is too long
            told = encode_error(ResourceExhaustedError(refusal.message), objects=False)
            self.connection.send(Kind.DONE, pack_done(Done(step_id, told, None, *from_workers)), after_tensors=True)

    def _look(self, executor: asyncio.Future[PartitionedExecutor]) -> None:
        """A graph is compiled, or is not; where no step ever asks, nobody is told."""
        self._compiling.discard(executor)
        if not executor.cancelled():
            executor.exception()

    async def _tell_traced(
        self, registered: _Registered, run: Run, error: BaseException | None, collector: StepStatsCollector
    ) -> None:
        try:
            stats = await run_in_slices(collector.step_stats(registered.device_of), self._clock)
        except Exception as failure:
            self._tell(run.step_id, error or failure)
        else:
            self._tell(run.step_id, error, pack_stats(stats, collector.epoch_offset_ns))


def _aborted() -> OpError:
    return make_derived(CancelledError("the step has ended elsewhere"))


def _num_bytes(value: object) -> int:
    found = getattr(value, "nbytes", None)
    return int(found) if found is not None else len(value) if isinstance(value, bytes) else 0


def _device_of(partitions: dict[str, PartitionedGraph]) -> Callable[[Node], str]:
    if len(partitions) == 1:
        (only,) = partitions
        return lambda node: only
    devices = {node.graph: name for name, part in partitions.items() for node in part.graph.nodes[:1]}
    return lambda node: devices[node.graph]
