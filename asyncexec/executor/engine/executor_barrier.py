"""A step over partitions: one executor each, all in one step (``ExecutorBarrier`` in TensorFlow's ``executor.h``).

All partitions run in one event loop, and one scope drives them in turns: what one sends is there for the other in the
same turn, without a task and without waking anybody.  The first failure ends all of them, and aborts the rendezvous
once; what fails because of the abort is not reported.  Partitions of other processes are started and aborted with the
others, and tell when they have ended (partition_runner.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextvars import copy_context
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from asyncexec.compilation.graph_view import NOTHING, NodeItem
from asyncexec.executor.diagnostics.loop_holds import LoopHolds
from asyncexec.executor.diagnostics.step_stats_collector import StepStatsCollector
from asyncexec.executor.engine.frame import TaskGroup
from asyncexec.executor.engine.general_executor import GeneralExecutor
from asyncexec.executor.engine.grace_period import Grace, GracePeriod
from asyncexec.executor.engine.part_of_step import PartOfStep
from asyncexec.executor.engine.partition_runner import PartitionRunner, RunningPartitions
from asyncexec.executor.engine.standing_recvs import find_standing
from asyncexec.executor.engine.step_scope import Launched, StepScope
from asyncexec.executor.engine.transfer_scope import Standing
from asyncexec.executor.types.host_executor import HostExecutor
from asyncexec.framework.cancellation import CancellationManager
from asyncexec.framework.cooperative import SLICE_NS
from asyncexec.framework.derived import is_derived, without_frames
from asyncexec.framework.errors import CancelledError, InternalError, OpError
from asyncexec.framework.executor import ExecutorArgs, current_step
from asyncexec.framework.kernel_warning import warn_of_kernel
from asyncexec.framework.lazy_module import LazyModule
from asyncexec.framework.under_way import NodeUnderWay

if TYPE_CHECKING:
    from asyncexec.durable.journal_scope import JournaledStep
    from asyncexec.executor.engine.client_end import ClientEnd, ClientKeys
    from asyncexec.framework.collective import CollectiveExecutor

_client_end = LazyModule("asyncexec.executor.engine.client_end")

_ANSWER_S: Final = 0.05  # how long the word that a step has ended may take from another process

MakeArgs: TypeAlias = Callable[[StepStatsCollector | None], ExecutorArgs]


@dataclass(frozen=True, slots=True, eq=False)
class PartitionExecutor:
    """The executor of one partition, and which of the step's feeds and fetches are its own."""

    executor: GeneralExecutor
    feed_indices: tuple[int, ...]
    fetch_indices: tuple[int, ...]


class PartitionedExecutor:
    """What the steps of one signature share, where its graph is in several partitions or sends something.

    Args:
        partitions: one executor each.
        num_fetches: of the whole graph.
        make_args: makes what the partitions of a step are given; None where each step comes with it, and others meet
            it there.
        slice_ns: how long the step may hold the event loop.
        debug: let a step fail in which something was sent that nobody received.
        client_keys: where feeds and fetches travel by the rendezvous, the keys that they have there.
        holds: is told how long steps hold the event loop; by default that of the first partition.
        runners: run the partitions that are not of this process.
        grace: how long what these run may take to end once the step has failed.

    Attributes:
        is_host: whether the partitions are run by executors of users, which may abort the rendezvous before they fail.
        is_open: whether others send to the rendezvous, too, so that a Recv may get a value when nothing else runs.
    """

    __slots__ = (
        "_make_args",
        "_sent_again",
        "_standing",
        "client_keys",
        "debug",
        "grace",
        "holds",
        "is_host",
        "is_open",
        "num_fetches",
        "partitions",
        "runners",
        "slice_ns",
    )

    def __init__(
        self,
        partitions: Sequence[PartitionExecutor],
        num_fetches: int,
        make_args: MakeArgs | None,
        slice_ns: int = SLICE_NS,
        *,
        debug: bool = False,
        client_keys: ClientKeys | None = None,
        holds: LoopHolds | None = None,
        runners: Sequence[PartitionRunner] = (),
        grace: Grace | None = None,
    ) -> None:
        self.is_host: bool = any(isinstance(part.executor, HostExecutor) for part in partitions)
        self.is_open: bool = make_args is None
        self._standing = find_standing([part.executor for part in partitions])
        self.partitions: Sequence[PartitionExecutor] = partitions
        self.num_fetches: int = num_fetches
        self._make_args = make_args
        self.slice_ns: int = slice_ns
        self.debug: bool = debug
        self.holds: LoopHolds = holds or partitions[0].executor.stats.holds
        self.runners: Sequence[PartitionRunner] = runners
        # The word that a worker has ended its part comes later than that.
        self.grace: Grace = Grace(*(None if each is None else each + _ANSWER_S for each in grace or Grace()))
        self.client_keys: ClientKeys | None = client_keys
        self._sent_again: frozenset[str] = frozenset()
        if client_keys is not None and runners:  # whose partitions may have loops
            self._sent_again = frozenset(key for key in client_keys.fetches if isinstance(key, str))
        elif client_keys is not None:
            self._sent_again = _fetched_in_loops(partitions)

    @property
    def awaits(self) -> bool:
        """Whether there are async kernels, or partitions that run elsewhere."""
        return bool(self.runners) or any(part.executor.awaits for part in self.partitions)

    @property
    def stays_on_loop(self) -> bool:
        """Whether no node runs on a worker thread, as long as none has larger inputs than it has had."""
        return all(part.executor.stays_on_loop for part in self.partitions)

    @property
    def may_stay_on_loop(self) -> bool:
        """Whether some more runs may show that no node needs a worker thread."""
        return all(part.executor.may_stay_on_loop for part in self.partitions)

    @property
    def is_all_cheap(self) -> bool:
        """Whether every node runs in the step's own coroutine, or only hands a value on."""
        return not self.runners and all(part.executor.is_all_cheap for part in self.partitions)

    @property
    def parts(self) -> Sequence[GeneralExecutor]:
        """The executors of the partitions."""
        return [part.executor for part in self.partitions]

    def start(
        self,
        feeds: Sequence[object] | None,
        collector: StepStatsCollector | None = None,
        *,
        journaled: JournaledStep | None = None,
    ) -> ExecutorBarrier:
        """A step with the values of *feeds*, or one whose feeds come by ``deliver_feed``; nothing has run yet."""
        assert self._make_args is not None
        return self.start_with(self._make_args(collector), feeds, journaled)

    def start_with(
        self, args: ExecutorArgs, feeds: Sequence[object] | None = (), journaled: JournaledStep | None = None
    ) -> ExecutorBarrier:
        """A step whose partitions are given *args*, and *journaled* in a run with a journal; nothing has run yet."""
        context = None
        if args.collective_executor is not None:
            context = copy_context()
            context.run(current_step.set, args)
        states = [
            part.executor.start(
                None if feeds is None else [feeds[i] for i in part.feed_indices],
                args.stats_collector,
                args,
                context,
                journaled,
            )
            for part in self.partitions
        ]
        standing: dict[str, Standing] = {key: (recv, states[index]) for key, (recv, index) in self._standing.items()}
        for state in states:
            state.standing = standing
        step = ExecutorBarrier(self, states, args, standing)
        if self.client_keys is not None:
            step.client = _client_end.ClientEnd(self.client_keys, self._sent_again, feeds, args.rendezvous, step)
        if self.runners:
            step.start_runners()
        return step


def _fetched_in_loops(partitions: Sequence[PartitionExecutor]) -> frozenset[str]:
    """The keys of fetches that may have a value in each iteration of a loop."""
    return frozenset(
        item.transfer.root_key
        for part in partitions
        for item in part.executor.view.items
        if item.frame and item.transfer is not None and item.transfer.is_fetch
    )


class ExecutorBarrier(StepScope):
    """One step of a PartitionedExecutor.  When it has run, ``fetched()`` has the values.

    Attributes:
        client: where feeds and fetches travel by the rendezvous, the client's end of it.
    """

    __slots__ = ("_args", "_collectives", "_derived", "_plan", "_running", "_standing", "_started", "_states", "client")

    def __init__(
        self,
        plan: PartitionedExecutor,
        states: Sequence[PartOfStep],
        args: ExecutorArgs,
        standing: dict[str, Standing],
    ) -> None:
        super().__init__(plan.slice_ns, plan.holds)
        self._plan = plan
        self._states = states
        self._args = args
        self._standing = standing
        self._started: list[RunningPartitions] = []  # elsewhere
        self._running: set[RunningPartitions] = set()  # those of them that have not ended
        self._derived: BaseException | None = None  # why a partition failed, because of another that is yet to fail
        self._collectives: CollectiveExecutor | None = None  # where collectives meet that all are in this step
        self.client: ClientEnd | None = None
        for state in states:
            state.scope = self
        if args.collective_executor is not None and not (plan.is_host or plan.is_open):
            self._collectives = args.collective_executor
            self._collectives.on_wait(self.wake)

    def start_runners(self) -> None:
        """Begin what other processes run."""
        for runner in self._plan.runners:
            self._start_runner(runner)

    def _start_runner(self, runner: PartitionRunner) -> None:
        def on_end(error: BaseException | None) -> None:
            if running not in self._running:
                return  # it comes too late
            self._running.remove(running)
            if error is None:
                self.wake()
            else:
                self.abort(error)

        running = runner.start(self._args, on_end)
        self._started.append(running)
        self._running.add(running)

    @property
    def has_ready(self) -> bool:
        return any(state.has_ready for state in self._states)

    @property
    def is_waiting(self) -> bool:
        if self._running or self._args.rendezvous.has_in_flight or any(state.is_waiting for state in self._states):
            return True
        return self._plan.is_open and any(state.waiting_recvs() for state in self._states)

    def deliver_feed(self, index: int, value: object) -> None:
        if self.client is not None and self._args.rendezvous.error is None:  # else the step has failed, or is about to
            self.client.send_feed(index, value)
        for state, part in zip(self._states, self._plan.partitions, strict=True):
            if index in part.feed_indices:
                state.deliver_feed(part.feed_indices.index(index), value)
        self.wake()

    def fetched(self) -> list[Any]:
        if self.client is not None:
            return self.client.fetched()
        values = [NOTHING] * self._plan.num_fetches
        for state, part in zip(self._states, self._plan.partitions, strict=True):
            for index, value in zip(part.fetch_indices, state.fetched(), strict=True):
                values[index] = value
        return values

    def run_ready(self, now: int, end: int) -> int:
        """Run ready nodes of all partitions until there are none, the time *end* has come, or one fails.

        Returns the time that it is then.
        """
        states = self._states
        while self._failure is None and now <= end:
            has_run = False
            for state in states:
                if state.ready:
                    now = state.run_ready(now, end)
                    has_run = True
            if not has_run:
                break
        return now

    def _abort(self, error: BaseException) -> None:
        for state in self._states:
            state._abort(error)
        # Channels keep what they are aborted with: it must not hold the step, which holds them.
        reason = without_frames(error) if isinstance(error, OpError) else CancelledError("the step has ended")
        args = self._args
        args.rendezvous.start_abort(reason)
        if args.collective_executor is not None:
            args.collective_executor.start_abort(reason)
        if args.cancellation_manager is not None:
            _cancel(args.cancellation_manager)
        for running in list(self._running):
            if self._grace_period is None:
                running.abort(error)
            else:
                running.cancel(error)

    def is_stuck(self) -> bool:
        self._check_collectives()
        return self._failure is not None

    def _check_collectives(self) -> None:
        """Abort the step if it waits for members of collectives that it alone could bring."""
        collectives = self._collectives
        if collectives is None or self._running or self._args.rendezvous.has_in_flight:
            return
        if any(state.has_jobs for state in self._states):
            return
        stuck = collectives.stuck()
        if stuck and len(stuck) == sum(state.num_tasks for state in self._states):
            shown = ", ".join(
                f"{member.node} (group {member.group_key}, instance {member.instance_key})" for member in stuck[:5]
            )
            self.abort(
                InternalError(
                    f"{shown} of {len(stuck)} waiting collectives will never be met: nothing else runs",
                    hint="all devices of a group must begin its collectives in the same order, and in each step",
                )
            )

    def fail_node(self, item: NodeItem, error: BaseException) -> None:
        if self._plan.is_host and is_derived(error):
            self.abort(error)
        else:
            super().fail_node(item, error)

    def abort(self, error: BaseException) -> None:
        if self._plan.is_host and is_derived(error) and any(state.num_tasks for state in self._states):
            self._derived = error  # what it comes from is still on its way
            self.wake()
        else:
            super().abort(error)

    def _missing(self) -> BaseException | None:
        if self._derived is not None or any(state.is_parked for state in self._states):
            return self._derived
        waiting = [name for state in self._states for name in state.waiting_recvs()]
        waiting += [recv.node.name for recv, _ in self._standing.values()]
        if waiting:
            names = list(dict.fromkeys(waiting))
            return InternalError(
                f"{', '.join(names[:5])} of {len(waiting)} waiting Recvs will get no value: nothing else runs",
                hint="each Recv needs a Send that runs, and each Merge of a loop a value in every iteration",
            )
        if self._plan.debug and (unreceived := self._unreceived()):
            return InternalError(f"sent, but never received: {', '.join(unreceived[:5])}")
        return None

    def _unreceived(self) -> list[str]:
        keys = self._args.rendezvous.unreceived()
        return keys if self.client is None else [key for key in keys if not self.client.may_ignore(key)]

    def release(self) -> BaseException | None:
        failure = super().release()
        self._derived = None
        for state in self._states:  # the step has ended: what holds each other would keep tensors alive
            state.scope = None
            state.release()
        for running in self._started:
            running.release()
        self._started.clear()
        self._standing.clear()
        if self._collectives is not None:
            self._collectives.on_wait(None)
        if self.client is not None:
            self.client.release()
        return failure

    def _cancel_launched(self, grace_period: GracePeriod) -> None:
        for state in self._states:
            state._cancel_launched(grace_period)

    def _abandon_launched(self) -> None:
        for state in self._states:
            state._abandon_launched()
        self._running.clear()

    def _launched(self) -> Iterator[Launched]:
        return iter(())

    def found_under_way(self) -> Iterator[NodeUnderWay | tuple[str, StepScope]]:
        for state in self._states:
            yield from state.found_under_way()
        waiting = [name for state in self._states for name in state.waiting_recvs()]
        for name in (*waiting, *(recv.node.name for recv, _ in self._standing.values())):
            yield NodeUnderWay(name, "_Recv", ("waited for a value of another device",), None)
        for running in self._running:
            yield running.under_way()

    def task_groups(self) -> Iterable[TaskGroup]:
        return [group for state in self._states for group in state.task_groups()]

    async def _wait_for_launched(self) -> None:
        for state in self._states:
            if state.is_waiting:
                await state._wait_for_launched()
                return
        if not self._running:
            await self._wait()
            return
        grace_period = self._grace_period
        assert grace_period is not None  # the step ends
        await self._wait(grace_period.left_s(self._plan.grace))
        if self._running and grace_period.left_s(self._plan.grace) == 0:
            warn_of_kernel(f"{', '.join(each.under_way().node for each in self._running)} did not end the step in time")
            self._running.clear()


def _cancel(manager: CancellationManager) -> None:
    try:
        manager.start_cancel()
    except Exception as error:  # of a callback; the step has failed with something else
        warn_of_kernel(f"a cancellation callback of a step has failed: {type(error).__name__}: {error}")
