"""A step of a run with a journal: its async and stateful nodes run once, however often the run is begun again.

Each such node is a task.  It takes its outputs from the journal if they are there; else it calls the kernel, and stores
the outputs before other nodes see them.  Cheap nodes without state are computed again.

A node that waits for a value from outside ends its task, and gives nothing: its iteration does not end, and the step
goes on until nothing else is left to do.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from contextvars import copy_context
from typing import Any, Final

from asyncexec.compilation.graph_view import GraphView, NodeItem
from asyncexec.durable.journal_scope import CallScope, JournaledStep, Parked, call_here
from asyncexec.executor.diagnostics.kernel_stats import ASYNC, CAREFUL, INLINE
from asyncexec.executor.engine.executor_state import explained
from asyncexec.executor.engine.frame import IterationState, TaggedNode
from asyncexec.executor.engine.kernel_outputs import checked_outputs
from asyncexec.executor.engine.kernel_surroundings import call_among_kernels
from asyncexec.executor.engine.part_of_step import PartOfStep
from asyncexec.executor.workers.worker_calls import WorkerCalls
from asyncexec.framework import types
from asyncexec.framework.kernel import KernelKind
from asyncexec.graph.node import Node

BOUNDARY: Final = "LoopBoundary"
# Ops with state that ends with the step, or that change nothing and give nothing new.
_OF_A_STEP: Final = ("TensorArray", "Stack", "TemporaryVariable", "Collective", "Anonymous")
_WITHOUT_EFFECT: Final = frozenset(
    {
        "Assert",
        "CheckNumerics",
        "CheckNumericsV2",
        "DisableCopyOnRead",
        "GuaranteeConst",
        "InitializeTableFromTextFileV2",
        "InitializeTableV2",
        "StatelessRandomGetAlg",
        "VariableShape",
        "_Arg",
        "_DeviceArg",
        "_DeviceRetval",
        "_Retval",
    }
)


def is_journaled(node: Node, kind: KernelKind) -> bool:
    """Whether *node* runs once in a run with a journal."""
    if node.op.startswith(_OF_A_STEP) or node.op in _WITHOUT_EFFECT:
        return False
    if any(dtype.is_ref or (dtype.is_opaque and dtype is not types.object) for dtype in node.properties.output_dtypes):
        return False
    return kind is KernelKind.ASYNC or node.op == BOUNDARY or node.op_def.is_stateful


def journaled_items(view: GraphView) -> frozenset[int]:
    """The ids of the items that run once."""
    own = (item for item in view.items if item.transfer is None and not item.is_relay)
    return frozenset(item.id for item in own if is_journaled(item.node, item.kind))


class JournaledState(PartOfStep):
    """A step of a run with a journal."""

    __slots__ = ("_journaled", "_step")

    _step: JournaledStep
    _journaled: frozenset[int]

    def join(self, step: JournaledStep, journaled: frozenset[int]) -> None:
        """Be a part of *step*, whose nodes with ids in *journaled* run once."""
        self._step, self._journaled = step, journaled
        self._places = self._awaiting(self._places)

    @property
    def is_parked(self) -> bool:
        return bool(self._step.asked)

    def be_careful(self, places: list[int] | None = None) -> None:
        super().be_careful(places)
        self._places = self._awaiting(self._places)

    def _awaiting(self, places: list[int]) -> list[int]:
        """*places*, but nodes that run once are tasks."""
        return [ASYNC if number in self._journaled else place for number, place in enumerate(places)]

    def _start_awaiting(self, entry: TaggedNode, item: NodeItem, inputs: list[object], now: int) -> None:
        twin = copy.copy(item)  # whose outputs are finished
        twin.finish, twin.is_undoable = None, False
        context = copy_context() if self.context is None else self.context.copy()
        self._start_task(entry, twin, self._run_once(entry, item, inputs), now, context)

    async def _run_once(self, entry: TaggedNode, item: NodeItem, inputs: list[Any]) -> object:
        step = self._step
        frames = _frames_of(entry[1])
        loops = step.located(frames)
        if item.node.op == BOUNDARY:
            return await self._boundary(frames, inputs, item.node.get_attr("every"))
        path = (*loops, item.node.name)
        found = step.journal.take(path)
        if found is not None:
            return tuple(found) if item.returns_tuple else found[0]
        is_async = item.kind is KernelKind.ASYNC
        scope = CallScope(step, path, loops[len(step.prefix) :], is_async=is_async)
        call_here.set(scope)
        try:
            outputs = await (_awaited(item, inputs) if is_async else self._called(item, inputs))
            if item.returns_tuple and not scope.asked:
                outputs = tuple(checked_outputs(item, outputs))
        except (Exception, Parked, BaseExceptionGroup) as error:
            self._check_asked(scope)
            await step.journal.give_back(scope.answered, error)
            raise
        self._check_asked(scope)
        if item.id in self._journaled:
            await step.journal.put(path, item.node.op, outputs if item.returns_tuple else (outputs,))
        return outputs

    def _check_asked(self, scope: CallScope) -> None:
        """Raise Parked if the call has asked for something, whatever it has made of that."""
        if scope.asked:
            self._step.asked += scope.asked
            raise Parked from None

    async def _called(self, item: NodeItem, inputs: list[object]) -> Any:
        """The outputs of a kernel that is a plain function."""
        place = self._stats.places[item.id]
        if place not in (INLINE, CAREFUL):
            kernel = copy_context().run
            return await WorkerCalls(self._pool).call(kernel, (item.checked_kernel, *inputs), item.node.name)
        now_ns = self.holds.clock.now_ns
        start = now_ns()
        try:
            outputs = call_among_kernels(item.kernel, *inputs)
        except Exception as raised:
            error = explained(raised, item, inputs)
            if error is raised:
                raise
            raise error from error.__cause__
        elapsed = now_ns() - start
        if elapsed > self._stats.expensive_ns:
            self._stats.update_inline(item.id, elapsed, inputs, outputs)
        return outputs

    async def _boundary(
        self, frames: Sequence[tuple[str, int]], inputs: list[object], every: int
    ) -> tuple[object, ...]:
        """The variables of a loop at the beginning of an iteration; where it goes on, those that were stored."""
        if not frames:
            return tuple(inputs)
        journal, path = self._step.journal, self._step.located(frames)
        (name, number) = frames[-1]
        loop = (*path[:-1], name)
        if not number:
            found = journal.take_boundary(loop)
            return tuple(inputs if found is None else found)
        number += journal.first_iteration(loop)
        if not number % every:
            await journal.put_boundary(loop, number, inputs)
        return tuple(inputs)

    def _fail(self, entry: TaggedNode, item: NodeItem, raised: BaseException) -> None:
        if not isinstance(raised, Parked):  # else the node gives nothing, and its iteration does not end
            super()._fail(entry, item, raised)


async def _awaited(item: NodeItem, inputs: list[object]) -> Any:
    """The outputs of an async kernel.  A change in a queue is not undone: the journal has it."""
    outputs = await item.kernel(*inputs)
    return outputs if item.finish is None else item.finish(outputs)


def _frames_of(iteration: IterationState) -> list[tuple[str, int]]:
    """The frames and iterations around, from the outside in; none in the root."""
    found: list[tuple[str, int]] = []
    while (parent := iteration.frame.parent_iteration) is not None:
        found.append((iteration.frame.info.name, iteration.number))
        iteration = parent
    found.reverse()
    return found
