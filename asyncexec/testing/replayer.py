"""Replayer: gives recorded nodes what they gave, in the order and at the times of the recorded run.

The calls of the record have an order, in which they ended.  Each waits for its turn: until those before it have ended,
and its time has come by the clock of the loop, which is a virtual one.  A call that nobody has made when its turn comes
is left out: on the virtual clock, its timer ends only when there is nothing else to do.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, ClassVar, Final

from asyncexec.compilation.recorded_nodes import is_recorded
from asyncexec.executor.diagnostics.run_recorder import RecordedCall, Where, digest_of_inputs
from asyncexec.executor.diagnostics.step_observer import Executed
from asyncexec.executor.diagnostics.step_stats_collector import StepStatsCollector
from asyncexec.framework.errors import DeadlineExceededError, FailedPreconditionError, NotFoundError
from asyncexec.graph.node import Node
from asyncexec.session.run_record import Opaque, RunRecord

_MOMENT_S: Final = 1e-9
_GRACE_S: Final = 1.0  # of the virtual clock, after the end of the recorded run


class Replayer(StepStatsCollector):
    """Plays the nodes of one step as *run* tells, but for those that *is_live* says are called.

    Attributes:
        differences: how the replayed step differs from the recorded one so far, in order.
        order: the played calls that have ended, in that order.
    """

    __slots__ = ("_began_s", "_calls", "_is_live", "_live", "_loop", "_next", "_open", "_places", "_run", "_timer",
                 "_waiting", "_where", "differences", "order")  # fmt: skip

    wants_outputs: ClassVar[bool] = True

    def __init__(self, run: RunRecord, is_live: Callable[[Node], bool]) -> None:
        super().__init__()
        self._run = run
        self._is_live = is_live
        self._loop = asyncio.get_running_loop()
        self._began_s = self._loop.time()
        cut_s = _cut_s(run)
        self._calls = [call for call in run.calls if (call.end_s or 0.0) < cut_s]
        self._places = {(call.node, call.where): place for place, call in enumerate(self._calls)}
        self._open = {(call.node, call.where) for call in (*run.calls, *run.open_calls)} - self._places.keys()
        self._live: set[str] = set()  # names of recorded nodes that are called
        self._next = 0
        self._waiting: dict[int, asyncio.Future[None]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._where: Where = ()
        self.differences: list[str] = []
        self.order: list[RecordedCall] = []
        self._look()

    @property
    def is_trace(self) -> bool:
        return False

    @property
    def elapsed_s(self) -> float:
        """Virtual seconds since the begin of the run."""
        return self._loop.time() - self._began_s

    def plays(self, node: Node) -> bool:
        """Whether *node* is played."""
        if not is_recorded(node):
            return False
        if self._is_live(node):
            self._live.add(node.name)
            return False
        return True

    def kernel_of(self, node: Node) -> Callable[..., Coroutine[Any, Any, Any]]:
        """What gives the outputs of *node*."""

        def play(*inputs: object) -> Coroutine[Any, Any, object]:
            return self._play(node, self._where, inputs)

        return play

    def note_launch(self, item: Executed, where: Sequence[str], inputs: Sequence[object]) -> None:
        self._where = tuple(where)  # whose kernel is called now

    def record(self, *args: object, **kwargs: object) -> None:
        """Nothing: there is a record."""

    def close(self) -> None:
        """The step has ended."""
        if self._timer is not None:
            self._timer.cancel()
        for place, call in enumerate(self._calls[self._next :], self._next):
            if place not in self._waiting:
                self._miss(call)

    async def _play(self, node: Node, where: Where, inputs: Sequence[object]) -> Any:
        place = self._places.get((node.name, where))
        if place is None:
            return await self._wait_for_end(node, where)
        call = self._calls[place]
        self._compare(call, inputs)
        if place >= self._next:
            self._waiting[place] = self._loop.create_future()
            self._look()
            await self._waiting[place]
            del self._waiting[place]
            self._next = place + 1
            self._loop.call_soon(self._look)  # when this node has ended
        self.order.append(call)
        if call.error is not None:
            raise call.error
        return call.outputs if node.op_def.returns_tuple else call.outputs[0]

    async def _wait_for_end(self, node: Node, where: Where) -> None:
        """*node* had not ended in the recorded run, or had not begun: it waits until that is over, and then fails."""
        shown = _shown(node.name, where)
        await asyncio.sleep(max(0.0, self._run.outcome.time_s - self.elapsed_s) + _GRACE_S)
        if (node.name, where) in self._open:
            self._differ(f"{shown} is waited for; in the recorded run it had not ended")
            raise FailedPreconditionError("this node had not ended in the recorded run", node=node)
        self._differ(f"{shown} is called; in the recorded run it was not")
        raise NotFoundError(
            "the record has no result of this node: it was not called in the recorded run",
            node=node,
            hint="replay(path, graph=graph, call=[...]) calls ops that are new",
        )

    def _compare(self, call: RecordedCall, inputs: Sequence[object]) -> None:
        if call.inputs and not any(isinstance(value, Opaque) for value in inputs):
            digest = digest_of_inputs(inputs)
            if digest and digest != call.inputs:
                self._differ(f"{told_of(call)} gets other inputs")

    def _look(self) -> None:
        """Let the call whose turn it is end in time; or leave it out, if nobody has made it by then."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._next < len(self._calls):
            end_s = self._calls[self._next].end_s
            at_s = max(self._loop.time(), self._began_s + min(end_s or 0.0, self._run.outcome.time_s))
            if self._next in self._waiting:
                self._timer = self._loop.call_at(at_s, self._end)
            else:
                self._timer = self._loop.call_at(at_s + _MOMENT_S, self._leave_out)

    def _end(self) -> None:
        future = self._waiting[self._next]
        if not future.done():
            future.set_result(None)

    def _leave_out(self) -> None:
        self._miss(self._calls[self._next])
        self._next += 1
        self._look()

    def _miss(self, call: RecordedCall) -> None:
        if call.node not in self._live:
            self._differ(f"{told_of(call)} is not called")

    def _differ(self, how: str) -> None:
        self.differences.append(how)


def _cut_s(run: RunRecord) -> float:
    """When the deadline of *run*, or a cancellation, has ended it: what ended at that moment came too late."""
    outcome = run.outcome
    if outcome.is_cancelled:
        return outcome.time_s
    is_late = isinstance(outcome.error, DeadlineExceededError) and outcome.error.node is None
    return math.inf if not is_late or run.timeout_s is None else run.timeout_s


def told_of(call: RecordedCall) -> str:
    """How a call is named to people."""
    return _shown(call.node, call.where)


def _shown(node: str, where: Where) -> str:
    return f"node {node!r}" + (f" in iteration {', '.join(where)}" if where else "")
