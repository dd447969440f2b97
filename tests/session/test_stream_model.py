"""Random streams against a plain model, on both loops: each item is run once, and comes out once, in its place.

Items fail in every stage or do not fit, sources fail, consumers leave, senders and takers are cancelled, and streams
and sessions closed, in any turn of the loop; whatever happens, nothing is left at work and the next run is right.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings

import asyncexec as ax
from tests.conftest import LoopFactory
from tests.session.stream_cases import Action, Case, Item, Model, Source, World, cases, pass_turns, stream_graph

LOOPS = [asyncio.new_event_loop]
with contextlib.suppress(ImportError):
    import uvloop

    LOOPS.append(uvloop.new_event_loop)

on_both_loops = pytest.mark.parametrize("loop_factory", LOOPS, ids=["asyncio", "uvloop"][: len(LOOPS)])
CONFIG = ax.SessionConfig(device_count={"CPU": 2}, slow_inline_ms=None)
# What a sender or taker may be told when a stream or session has ended.
ENDS = (ax.errors.AbortedError, ax.errors.FailedPreconditionError, ax.errors.CancelledError)


class Run:
    """Runs a case, and keeps what comes out: outputs, the numbers of the items as they were sent, and errors."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.world = World((*case.items, Item()))  # one more for the run behind the stream
        self.outputs: list[Any] = []
        self.errors: list[BaseException] = []
        self.sent: list[int] = []
        self._made = stream_graph(case.kind)
        self._senders: list[asyncio.Task[None]] = []
        self._takers: list[asyncio.Task[None]] = []
        self._has_left = False

    async def run(self) -> None:
        self._made.world = self.world
        others = asyncio.all_tasks()
        async with ax.Session(self._made.graph, CONFIG) as session:
            is_sent = self.case.source == "send"
            consumer = asyncio.ensure_future(self._send_and_take(session) if is_sent else self._map(session))
            actions = [asyncio.ensure_future(self._act(session, consumer, *each)) for each in self.case.actions]
            _, hanging = await asyncio.wait([consumer], timeout=10)
            assert not hanging, self.case
            self._keep_error(consumer)
            for action in actions:
                action.cancel()
            if actions:
                await asyncio.wait(actions)
            # At once: nothing is at work any more.
            assert not self.world.under_way
            assert asyncio.all_tasks() == others
            assert session.statistics().running_steps == 0
            if not self.has_closed_the_session:
                x = len(self.case.items)
                assert await session.run(self._made.fetches, {self._made.x: x}) == {"y": 2 * x + 1, "total": x, "x": x}

    @property
    def has_closed_the_session(self) -> bool:
        return any(action == "close_session" for _, action, _ in self.case.actions)

    def _keep_error(self, task: asyncio.Task[None]) -> None:
        if task.cancelled():
            self.errors.append(asyncio.CancelledError())
        elif (error := task.exception()) is not None:
            self.errors.append(error)

    async def _act(self, session: ax.Session, consumer: asyncio.Task[None], turn: int, action: str, whom: int) -> None:
        await pass_turns(turn)
        if action == "close_session":
            await session.close()
        elif action == "close_stream":
            await self._close_stream()
        else:
            victims = {"cancel_consumer": [consumer], "cancel_taker": self._takers, "cancel_sender": self._senders}
            for victim in victims[action][whom : whom + 1]:
                victim.cancel()

    async def _map(self, session: ax.Session) -> None:
        source = Source(self.case, self._made.x)
        items = source if self.case.source == "async" else iter(source)
        self.sent = source.drawn
        async with session.map(self._made.fetches, items, **self._options()) as outputs:
            await self._take(outputs)

    def _options(self) -> dict[str, Any]:
        return {"window": self.case.window, "ordered": self.case.ordered, "on_error": self.case.on_error}

    async def _send_and_take(self, session: ax.Session) -> None:
        case = self.case
        numbers, source = iter(range(len(case.items))), Source(case, self._made.x)
        async with session.stream(self._made.fetches, **self._options()) as stream:
            self._close_stream: Callable[[], Any] = stream.close
            self._senders = [
                asyncio.ensure_future(self._send(stream, source, numbers)) for _ in range(case.num_senders)
            ]
            self._takers = [asyncio.ensure_future(self._take(stream)) for _ in range(case.num_takers)]
            try:
                await self._end(stream)
            finally:
                for task in (*self._senders, *self._takers):
                    task.cancel()
                await asyncio.wait([*self._senders, *self._takers])

    async def _end(self, stream: ax.Stream) -> None:
        """Close the stream when all is sent; what cancelled takers have not taken is taken here."""
        takers = asyncio.gather(*self._takers, return_exceptions=True)
        senders = asyncio.gather(*self._senders, return_exceptions=True)
        await asyncio.wait([takers, senders], return_when=asyncio.FIRST_COMPLETED)
        rest = asyncio.ensure_future(self._take(stream))  # else senders may wait for room for ever
        try:
            for error in await senders:
                assert error is None or isinstance(error, (asyncio.CancelledError, *ENDS))
            await stream.close()
            await rest
        finally:
            rest.cancel()
            await asyncio.wait([rest])
            self.errors += [error for error in await takers if isinstance(error, ax.errors.OpError)]

    async def _send(self, stream: ax.Stream, source: Source, numbers: Any) -> None:
        for number in numbers:
            await pass_turns(self.case.source_turns)
            await stream.send(source.feeds(number))
            self.sent.append(number)
            assert len(self.sent) - len(self.outputs) <= self.case.window

    async def _take(self, outputs: Any) -> None:
        if self._has_left:
            return
        async for out in outputs:
            self.outputs.append(out)
            if len(self.outputs) == self.case.leave_after:
                self._has_left = True
                await outputs.aclose()
                return
            await pass_turns(self.case.taker_turns)


def plain(out: Any) -> Any:
    """An output, as the model has it."""
    if isinstance(out, ax.errors.OpError):
        return out.message
    return int(out["y"]), int(out["total"])


def check(run: Run) -> None:
    case, model = run.case, Model(run.case, run.sent)
    found = [plain(out) for out in run.outputs]
    possible = [model.output(number) for number in range(len(run.sent))]
    # Only what may come out does, once, and in its place.
    assert not Counter(found) - Counter(possible)
    if case.ordered:
        assert found == possible[: len(found)]
    check_calls(run, found, model)
    errors = [
        error for error in run.errors if not isinstance(error, (asyncio.CancelledError, ax.errors.CancelledError))
    ]
    assert len(errors) <= 1
    if case.is_undisturbed and not run.has_closed_the_session:
        check_end(run, found, errors, model)


def check_calls(run: Run, found: list[Any], model: Model) -> None:
    """Each kernel has run once at most for each item; and just once for those whose value came out."""
    calls, case = run.world.calls, run.case
    calls = Counter({key: number for key, number in calls.items() if key[1] < len(case.items)})
    assert set(calls.values()) <= {1}
    assert {x for _, x in calls} <= set(run.sent)
    values = [out for out in found if not isinstance(out, str)]
    for y, _ in values:
        assert all(calls[stage, (y - 1) // 2] == 1 for stage in ("early", "late", "after", "aside"))
    assert run.world.most <= case.window


def check_end(run: Run, found: list[Any], errors: list[BaseException], model: Model) -> None:
    """Nobody interfered: all has come out, or the first failure and what is before it."""
    case, failing = run.case, model.failing()
    if case.on_error == "raise" and failing:
        (error,) = errors
        assert isinstance(error, ax.errors.InvalidArgumentError)
        assert error.message in [model.output(number) for number in failing]
        if case.ordered:
            assert error.message == model.output(failing[0])
            assert found == model.all_outputs()
    else:
        assert Counter(found) == Counter(model.all_outputs())
        if case.expects_sources_error:
            assert isinstance(errors[0], OSError)
        else:
            assert errors == []


def check_case(loop_factory: LoopFactory, case: Case) -> None:
    run = Run(case)
    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(run.run())
    check(run)


@pytest.mark.one_of("loop_factory")
@on_both_loops
@settings(max_examples=100, deadline=None)
@given(case=cases())
def test_streams(loop_factory: LoopFactory, case: Case) -> None:
    check_case(loop_factory, case)


BUSY = Case((Item("ok", 2, 1), Item("late", 1), Item("ok", 0, 2), Item("ok", 3)), 1, source="send", on_error="yield")


@pytest.mark.one_of("loop_factory")
@on_both_loops
@pytest.mark.parametrize(
    "action", ["cancel_consumer", "cancel_taker", "cancel_sender", "close_session", "close_stream"]
)
def test_interference_in_every_turn(loop_factory: LoopFactory, action: Action) -> None:
    """Two senders and two takers wait for one another."""
    for turn in range(1, 30):
        for whom in range(1 + (action in ("cancel_taker", "cancel_sender"))):
            check_case(loop_factory, replace(BUSY, num_senders=2, num_takers=2, actions=((turn, action, whom),)))


@pytest.mark.deep
@pytest.mark.timeout(1800)
@on_both_loops
@settings(max_examples=20_000, deadline=None)
@given(case=cases())
def test_streams_many_times(loop_factory: LoopFactory, case: Case) -> None:
    check_case(loop_factory, case)
