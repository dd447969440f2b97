"""PartitionRunner: runs the partitions of a step that are not of this process.  Here are its words.

After ``WorkerInterface`` and ``MasterSession::ReffedClientGraph`` in ``tensorflow/core/distributed_runtime``.  What
goes into such partitions, and comes out of them, travels by the rendezvous of the step, feeds and fetches too.  So all
that is left is to begin, to abort and to release (see step_scope.py), and to be told of the end.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeAlias

from asyncexec.framework.executor import ExecutorArgs
from asyncexec.framework.under_way import NodeUnderWay

# Called once, in the event loop of the step: with what the partitions have failed with, if they have.
OnEnd: TypeAlias = Callable[[BaseException | None], None]


class RunningPartitions(Protocol):
    """What a PartitionRunner runs of one step."""

    def abort(self, error: BaseException) -> None:
        """End them: the step has failed with *error*.  ``OnEnd`` is called when they have ended."""
        ...

    def cancel(self, error: BaseException) -> None:
        """The same, and nobody waits for its results."""
        ...

    def release(self) -> None:
        """The whole step has ended: forget what it has left where they ran.  ``OnEnd`` is not called any more."""
        ...

    def under_way(self) -> NodeUnderWay:
        """What there is to say of them, for who asks what a late step waits for."""
        ...


class PartitionRunner(Protocol):
    """Runs some partitions in each step of one signature.

    Attributes:
        worker: the name of who runs them, such as ``/job:worker/replica:0/task:1``.
        has_collectives: whether any of them takes part in collectives.
    """

    @property
    def worker(self) -> str: ...

    @property
    def has_collectives(self) -> bool: ...

    def start(self, args: ExecutorArgs, on_end: OnEnd) -> RunningPartitions:
        """Begin a step.  Where that cannot be, *on_end* is told, later."""
        ...
