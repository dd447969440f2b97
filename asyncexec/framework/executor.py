"""Executor: runs the steps of one graph.  Here are its words.

After ``tensorflow/core/common_runtime/executor.h``.  A graph of an executor has no feeds and no fetches: values come by
its ``_Recv`` nodes, and go by its ``_Send`` nodes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from asyncexec.framework.cancellation import CancellationManager
from asyncexec.framework.collective import CollectiveExecutor
from asyncexec.framework.rendezvous import RendezvousInterface

if TYPE_CHECKING:
    from asyncexec.executor.diagnostics.step_stats_collector import StepStatsCollector
    from asyncexec.executor.workers.offload import WorkerPool
    from asyncexec.ops.state.session_state import SessionState


@dataclass(slots=True)
class ExecutorArgs:
    """The arguments of the executors of one step (``Executor::Args`` in TensorFlow).

    Attributes:
        rendezvous: passes values between Sends and Recvs; aborted when the step fails.
        step_id: the number of the step, unique in a session.
        stats_collector: records which node ran, and when; None for no records.
        cancellation_manager: cancels the step, and is cancelled when the step fails.
        session_state: keeps tensors under handles; None for that of the session.
        collective_executor: runs collective ops of several executors together; aborted when the step fails.
        runner: the worker threads for expensive kernels; None for those of the executor, if it has any.
        sync_on_finish: whether a step ends only when its device has done all its work.
    """

    rendezvous: RendezvousInterface
    step_id: int = 0
    stats_collector: StepStatsCollector | None = None
    cancellation_manager: CancellationManager | None = None
    session_state: SessionState | None = None
    collective_executor: CollectiveExecutor | None = None
    runner: WorkerPool | None = None
    sync_on_finish: bool = False


class Executor(ABC):
    """Runs the steps of one graph, on one device; any number of steps may be under way at once.

    Subclasses implement ``run``.  ``ax.executor_factory`` registers them.  Errors of the step come out of ``run``.

    Raises:
        TypeError: the subclass has no ``run``.
    """

    __slots__ = ()

    Args: TypeAlias = ExecutorArgs

    @abstractmethod
    async def run(self, args: ExecutorArgs) -> None:
        """One step of the graph, to its end: every node runs once, or as often as its loop goes round.

        Raises:
            OpError: the first failure; it names the node.  The rest of the step has ended by then.
            asyncio.CancelledError: the caller was cancelled.
        """


# The step that a kernel is called for, where whoever runs it tells; the kernels of a few ops ask.
current_step: Final[ContextVar[ExecutorArgs | None]] = ContextVar("asyncexec_current_step", default=None)
