"""StepObserver: what watches the nodes of a step: a trace, a recorder, a replayer."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final, Protocol

from asyncexec.executor.diagnostics.output_sizes import Sizes
from asyncexec.framework.kernel import KernelKind
from asyncexec.graph.node import Node

NOT_KNOWN: Final = object()  # in the place of outputs


class Executed(Protocol):
    """A node as an executor has it: a NodeItem, or an OpKernel."""

    @property
    def node(self) -> Node: ...
    @property
    def kind(self) -> KernelKind: ...
    @property
    def guarded(self) -> Sequence[Node]: ...
    @property
    def returns_tuple(self) -> bool: ...


class StepObserver(Protocol):
    """Is told of every live node of a step, by the one that runs them.  A step with an observer queues them all."""

    @property
    def wants_outputs(self) -> bool:
        """Whether ``record`` is to be told the outputs of each node, those on worker threads, too."""
        ...

    def record_constants(self, nodes: Collection[Node]) -> None:
        """The values of *nodes* were there from the start."""

    def note_launch(self, item: Executed, where: Sequence[str], inputs: Sequence[object]) -> None:
        """*item* is going to be called with *inputs* in the iterations *where*: as a task, or on a worker thread."""

    def record(
        self,
        item: Executed,
        scheduled_ns: int,
        start_ns: int,
        end_ns: int,
        thread_id: int = 0,
        error: BaseException | None = None,
        outputs: object = NOT_KNOWN,
        sizes: Sizes = (),
        where: Sequence[str] = (),
    ) -> None:
        """An execution of *item* in the iterations *where*, which has given *outputs*, or ended with *error*."""
