"""PartialRun: one step whose feeds come one by one, and whose fetches are asked for as they are needed.

The rules are those of ``DirectSession::PRunSetup`` and ``PRun`` in TensorFlow's ``direct_session.cc``: what is to be
fed and fetched is named when the step begins; each of it once; and a fetch that needs what has not been fed is an error
at once, for it might wait for ever.  Where the step and its caller both fail, the step's error comes out, as in
``partial_run_mgr.cc``.

A task drives the step.  It sleeps while there is nothing to run, and is woken by a feed, by a kernel that has ended and
by a fetch that wants to be told whether its value can still come.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Self, TypeVar, overload

from asyncexec.compilation.graph_view import NOTHING
from asyncexec.executor.engine.general_executor import GeneralExecutor
from asyncexec.executor.engine.step_scope import StepScope
from asyncexec.framework.cooperative import STRIDE, Stage, outlast, run_in_slices
from asyncexec.framework.errors import CancelledError, FailedPreconditionError, InvalidArgumentError, OpError
from asyncexec.framework.ownership import read_only
from asyncexec.framework.spans import Spans
from asyncexec.graph.graph import Graph
from asyncexec.graph.node import Node, Tensor
from asyncexec.session.executors_and_keys import ExecutorsAndKeys, explained
from asyncexec.session.fetch_mapper import FetchMapper
from asyncexec.session.fetch_types import Fetches
from asyncexec.session.function_call_frame import detach_in_slices, fed_tensor

T = TypeVar("T")


class _Waiter:
    """A fetch that waits for the values at some positions."""

    __slots__ = ("future", "positions")

    def __init__(self, positions: Sequence[int]) -> None:
        self.positions = positions
        self.future: asyncio.Future[list[Any]] = asyncio.get_running_loop().create_future()


class PartialRun:
    """One step, as ``Session.partial_run`` gives it.  Several tasks of its event loop may call its methods at once.

    Raises:
        InvalidArgumentError: a tensor was not named when the step began, or is fed or fetched twice.
        FailedPreconditionError: the step has ended, or was opened in another event loop.
    """

    def __init__(
        self,
        graph: Graph,
        prepared: ExecutorsAndKeys,
        spans: Spans,
        on_end: Callable[[StepScope], object],
    ) -> None:
        self._graph = graph
        self._spans = spans
        self._prepared = prepared
        self._feed_positions = {(tensor.op, tensor.index): i for i, tensor in enumerate(prepared.feeds)}
        self._fetch_positions = {(tensor.op, tensor.index): i for i, tensor in enumerate(prepared.fetches)}
        self._pending_feeds = set(range(len(prepared.feeds)))
        self._pending_fetches = set(range(len(prepared.fetches)))
        self.scope: StepScope = prepared.executor.start(None)
        self._loop = asyncio.get_running_loop()
        self._waiters: list[_Waiter] = []
        self._failure: BaseException | None = None
        self._is_failure_seen = False
        self._is_leaving = False
        self._driver: asyncio.Task[None] | None = None
        self._on_end = on_end

    @property
    def has_failed(self) -> bool:
        """Whether the step has failed; then nothing can be fed or fetched any more."""
        return self._failure is not None

    async def feed(self, feeds: Mapping[Any, object]) -> None:
        """Feed *feeds*: values by tensor or name, as ``Session.run`` takes them.

        Large values are converted in slices, between which other tasks run.  When this returns, the caller may change
        them.

        Raises:
            InvalidArgumentError: a tensor was not named at the beginning, has been fed already, or its value does not
                fit.  Then none of *feeds* is fed.
            OpError: the step has failed.
            CancelledError: the session has been closed.
            FailedPreconditionError: it is not under way, or began in another event loop.
        """
        self._check_under_way()
        given: dict[int, object] = {}
        for key, value in feeds.items():
            tensor = fed_tensor(self._graph, key)
            position = self._feed_position(tensor)
            if position in given:
                raise _fed_already(tensor)
            given[position] = value
        values = await run_in_slices(self._converted(given), self.scope.holds.clock)
        self._check_under_way()  # others have had their turn
        for position in values:
            self._feed_position(self._prepared.feeds[position])
        self._pending_feeds.difference_update(values)
        for position, converted in values.items():
            self.scope.deliver_feed(position, converted)

    def _feed_position(self, tensor: Tensor) -> int:
        position = self._feed_positions.get((tensor.op, tensor.index))
        if position is None:
            raise InvalidArgumentError(
                f"feed {tensor.name!r} was not specified when the partial run began", node=tensor.op
            )
        if position not in self._pending_feeds:
            raise _fed_already(tensor)
        return position

    def _converted(self, given: Mapping[int, object]) -> Stage[dict[int, Any]]:
        prepared = self._prepared
        values: dict[int, object] = {}
        for position, value in given.items():
            values[position] = yield from detach_in_slices(
                prepared.feeds[position], prepared.converters[position], value
            )
            yield
        return values

    @overload
    async def fetch(self, fetches: Tensor[T]) -> T: ...
    @overload
    async def fetch(self, fetches: Fetches) -> Any: ...
    async def fetch(self, fetches: Fetches) -> Any:
        """The values of *fetches*, a tensor, a name or a nest of them, as soon as they are there.

        Arrays are read-only, because the step may still use them.  A caller that is cancelled while it waits may call
        again.

        Raises:
            InvalidArgumentError: a tensor was not named at the beginning, has been fetched already, cannot be computed
                from the values fed so far, or is dead.
            OpError: the step has failed.
            CancelledError: the session has been closed.
            FailedPreconditionError: it is not under way, or began in another event loop.
        """
        self._check_under_way()
        mapper = FetchMapper(self._graph, fetches)
        if mapper.targets:
            raise InvalidArgumentError(
                f"operation {mapper.targets[0].name!r} has no value to fetch in a partial run",
                node=mapper.targets[0],
                hint="name it as a target of partial_run; it runs when its inputs are there",
            )
        positions = [self._position(tensor) for tensor in mapper.tensors]
        if self._pending_feeds:
            await self._check_computable(mapper.tensors)
        values = await self._values(positions)
        self._pending_fetches.difference_update(positions)
        self._hand_over(positions)
        given = self._prepared.given(positions, values)
        # The step goes on, and may use them.
        return mapper.build(
            [
                value if tensor.dtype.is_opaque else read_only(value)
                for tensor, value in zip(mapper.tensors, given, strict=True)
            ]
        )

    def _hand_over(self, positions: Sequence[int]) -> None:
        """What the fetches at *positions* come from is used: the caller has their values."""
        scope, executor = self.scope, self._prepared.executor
        if isinstance(executor, GeneralExecutor):
            first = executor.view.fetch_slots.start
            if scope.undo_log is not None:
                scope.undo_log.forget({first + position for position in positions})
        else:  # on several devices, all is taken for used
            scope.undo_log = None

    def _position(self, tensor: Tensor) -> int:
        position = self._fetch_positions.get((tensor.op, tensor.index))
        if position is None:
            raise InvalidArgumentError(
                f"fetch {tensor.name!r} was not specified when the partial run began", node=tensor.op
            )
        if position not in self._pending_fetches:
            raise InvalidArgumentError(f"{tensor.name!r} has already been fetched in this partial run", node=tensor.op)
        return position

    async def _check_computable(self, tensors: Iterable[Tensor]) -> None:
        pending = {(feed.op, feed.index) for i, feed in enumerate(self._prepared.feeds) if i in self._pending_feeds}
        for tensor in tensors:
            missing = await run_in_slices(
                _missing_feed(tensor, self._feed_positions.keys(), pending), self.scope.holds.clock
            )
            if missing is not None:
                raise InvalidArgumentError(
                    f"fetch {tensor.name!r} can't be computed from the feeds that have been fed so far: it needs "
                    f"{missing.name!r}",
                    node=tensor.op,
                    hint=f"feed {missing.name!r} first",
                )

    async def _values(self, positions: Sequence[int]) -> list[Any]:
        self._check_under_way()
        waiter = _Waiter(positions)
        self._waiters.append(waiter)
        self.scope.wake()  # for the driver to look
        try:
            return await waiter.future
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            self._is_failure_seen |= error is self._failure
            raise
        finally:
            if waiter in self._waiters:
                self._waiters.remove(waiter)
            del waiter  # the future holds an error whose traceback holds this frame

    async def __aenter__(self) -> Self:
        self._driver = asyncio.get_running_loop().create_task(self._drive())
        self._driver.add_done_callback(lambda _: self._on_end(self.scope))  # if it never begins, too
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        assert self._driver is not None  # __aenter__ has been called
        if self._loop.is_closed():
            self.scope.release()
            if error is None:
                self._check_loop()
            return
        if asyncio.get_running_loop() is not self._loop:
            self._loop.call_soon_threadsafe(self.scope.abort, CancelledError("the partial run has been left"))
            self._check_loop()
        self._is_leaving = True
        try:
            await self._end(self._driver, is_complete=error is None and not self._pending_feeds | self._pending_fetches)
            if not self._is_failure_seen and (error is None or isinstance(error, Exception)):
                self._raise_failure()
        finally:
            self._failure = None
            del error  # its traceback may hold this frame

    async def _end(self, driver: asyncio.Task[None], *, is_complete: bool) -> None:
        try:
            if is_complete:
                self.scope.wake()
                await asyncio.wait([driver])
        finally:
            if not driver.done():
                self._is_failure_seen = True  # it is ours
                self.scope.cancel(CancelledError("the partial run has been left"))
            await outlast(driver.done, lambda: asyncio.wait([driver]))

    async def _drive(self) -> None:
        try:
            with self._spans.step():  # of this task: the caller's code is no part of it
                await self.scope.run(self._look)
        except OpError as raised:  # whoever fetches, or leaves, gets it
            self._failure = explained(raised, self._prepared)
        except BaseException as raised:
            self._failure = raised
        if not self._loop.is_closed():
            self._tell_of_end()

    def _tell_of_end(self) -> None:
        self._on_end(self.scope)  # before anybody is told of it
        failure = self._failure or CancelledError("the partial run has ended")
        for waiter in self._waiters:
            if not waiter.future.done():
                waiter.future.set_exception(failure)

    def _look(self) -> bool:
        """Serve those who wait; whether the step may get more to do."""
        if not self._pending_feeds and self._is_stuck():
            return False
        if self._waiters:
            values = self.scope.fetched()
            can_come = self.scope.has_ready or self.scope.is_waiting
            for waiter in self._waiters:
                if not waiter.future.done():
                    self._serve(waiter, values, can_come=can_come)
        return not self._is_leaving

    def _is_stuck(self) -> bool:
        """Whether the step, which has all its feeds, waits for what only itself could bring about; it is aborted then.

        While feeds are missing it may wait for what they are to bring.
        """
        scope = self.scope
        return scope._failure is not None or (scope.is_waiting and not scope.has_ready and scope.is_stuck())

    def _serve(self, waiter: _Waiter, values: Sequence[object], *, can_come: bool) -> None:
        chosen = [values[position] for position in waiter.positions]
        missing = next((i for i, value in zip(waiter.positions, chosen, strict=True) if value is NOTHING), None)
        if missing is None:
            waiter.future.set_result(chosen)
        elif not can_come:
            waiter.future.set_exception(self._prepared.missing_fetch(missing))

    def _check_loop(self) -> None:
        if asyncio.get_running_loop() is not self._loop:
            raise FailedPreconditionError(
                "the event loop that this partial run began in is closed"
                if self._loop.is_closed()
                else "this partial run is being used in another event loop than the one it began in"
            )

    def _check_under_way(self) -> None:
        self._check_loop()
        self._raise_failure()
        if self._driver is None or self._is_leaving or self._driver.done():
            raise FailedPreconditionError("this partial run is not under way", hint="use it in its 'async with' block")

    def _raise_failure(self) -> None:
        failure = self._failure
        if failure is not None:
            self._is_failure_seen = True
            try:
                raise failure
            finally:
                del failure


def _fed_already(tensor: Tensor) -> InvalidArgumentError:
    return InvalidArgumentError(f"{tensor.name!r} has already been fed in this partial run", node=tensor.op)


def check_partial(mapper: FetchMapper, feeds: Sequence[Tensor], targets: Sequence[Node]) -> None:
    """Raise InvalidArgumentError if this is nothing that a partial run can begin with."""
    if not (mapper.tensors or mapper.targets or targets):
        raise InvalidArgumentError("a partial run must have at least one target to fetch or execute")
    fed = {(tensor.op, tensor.index) for tensor in feeds}
    for tensor in mapper.tensors:
        if (tensor.op, tensor.index) in fed:
            raise InvalidArgumentError(f"{tensor.name!r} is both fed and fetched", node=tensor.op)


def _missing_feed(
    tensor: Tensor, fed: Iterable[tuple[Node, int]], pending: set[tuple[Node, int]]
) -> Stage[Tensor | None]:
    """A feed that *tensor* needs and that is in *pending*, which is a part of *fed*; None if there is none."""
    cut, cut_nodes = frozenset(fed), {node for node, _ in fed}
    by_node = dict(pending)
    seen, queue, count = {tensor.op}, deque([tensor.op]), 0
    while queue:
        node = queue.popleft()
        for source in node.inputs:
            if (source.op, source.index) in pending:
                return source
            if (source.op, source.index) not in cut and source.op not in seen:
                seen.add(source.op)
                queue.append(source.op)
        for control in node.control_inputs:
            if control in by_node and not control.inputs:
                return control.outputs[by_node[control]]
            if control not in seen and (control not in cut_nodes or control.inputs):
                seen.add(control)
                queue.append(control)
        count += 1
        if not count % STRIDE:
            yield
    return None
