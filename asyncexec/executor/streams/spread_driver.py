"""SpreadDriver: drives the items of a stream whose steps run on workers.

An item whose worker was lost keeps its place in the window and in the order of results; it waits among others until it
may begin again.
"""

from __future__ import annotations

from collections.abc import Awaitable

from asyncexec.executor.streams.spread import Spread
from asyncexec.executor.streams.stream_driver import StreamDriver
from asyncexec.executor.streams.stream_item import Errand, StreamItem
from asyncexec.executor.streams.stream_options import StreamPlan
from asyncexec.framework.error_text import one_line
from asyncexec.framework.errors import UnavailableError


class SpreadDriver(StreamDriver):
    """See the head of this module."""

    def _may_go_on(self) -> bool:
        plan = self._plan
        if plan is None or plan.spread is None:
            return bool(self.window.inbox) and self._cuts_let_begin()
        return plan.spread.choose(self._losses()) is not None

    def _losses(self) -> list[int]:
        """How often the worker was lost of each item that may begin next."""
        losses = [0 if item.errand is None else len(item.errand.losses) for item in self.window.again]
        return [*losses, 0] if self.window.inbox and self._cuts_let_begin() else losses

    def _begin_on_worker(self, spread: Spread, end: int) -> int | None:
        joining = spread.join()
        if joining is not None:  # items go on meanwhile
            self._keep(self._loop.create_task(self._take_in(joining), context=self._context))
        found = spread.choose(self._losses())
        if found is None or not (self._places is None or self._may_begin(self._places)):
            return None
        index, worker = found
        again = self.window.again
        if index == len(again):
            return self._begin(self.window.inbox.popleft(), end, worker)
        item = again[index]
        del again[index]
        plan, errand = self._plan, item.errand
        assert plan is not None
        assert errand is not None  # it has begun before
        item.has_place = True
        errand.worker = worker
        spread.begin(worker, len(errand.losses))
        try:
            self._start_step(item, plan, errand)
        except BaseException as error:  # a KeyboardInterrupt, say
            self._end_item(item, error)
            return self._now_ns()
        return self._advance(item, self._now_ns(), end)

    async def _take_in(self, joining: Awaitable[None]) -> None:
        await joining
        self._schedule()

    def _start_on_worker(self, item: StreamItem, plan: StreamPlan, values: list[object], worker: str) -> None:
        assert plan.spread is not None
        errand = item.errand = Errand(values, worker)
        plan.spread.begin(worker, 0)
        self._start_step(item, plan, errand)

    def _start_step(self, item: StreamItem, plan: StreamPlan, errand: Errand) -> None:
        maker = plan.replicas[errand.worker]
        item.is_queued = True
        item.step, item.maker = maker.start(list(errand.values), plan.collector), maker
        item.step.watch(item)

    def _end_errand(self, item: StreamItem, errand: Errand, error: BaseException | None) -> BaseException | None:
        """What *item*, whose step has ended with *error*, has failed with; it keeps its *errand* if it begins again."""
        plan = self._plan
        assert plan is not None
        assert plan.spread is not None
        plan.spread.end(errand.worker)
        if self.window.again or self.window.inbox:
            self._schedule()  # there is room for another
        if not isinstance(error, UnavailableError) or error.lost_worker is None:
            item.errand = None
            return error
        losses, retries = errand.losses, plan.spread.retries
        losses.append(f"attempt {len(losses) + 1} of {retries + 1}: {one_line(error)}")
        if len(losses) <= retries:
            item.step = None
            self._give_back_place(item)
            self.window.again.append(item)
            self._schedule()
            return None
        item.errand = None
        told = error.located(error.node, error.op, error.user_line)  # others have the same error
        if retries:
            told.add_attempts(losses)
        return told
