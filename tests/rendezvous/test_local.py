"""LocalRendezvous: what it does at once, and any order of calls against a plain model of it."""

from __future__ import annotations

import asyncio
import gc
import sys
from collections import defaultdict, deque
from importlib import import_module
from typing import Any
from weakref import WeakSet

import pytest
from anyio import WouldBlock
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from asyncexec.framework.derived import is_derived
from asyncexec.framework.errors import AbortedError, CancelledError, OpError
from asyncexec.framework.rendezvous import (
    NO_ARGS,
    Received,
    RendezvousInterface,
    RendezvousStatistics,
    RendezvousWaiter,
)
from asyncexec.rendezvous.local import LocalRendezvous
from tests.rendezvous.conformance import FOO, TENSORFLOW_CASES, RendezvousConformance
from tests.running import settle, started

KEYS = st.sampled_from(["a", "b"])


class TestLocal(RendezvousConformance):
    @pytest.fixture
    def rendezvous(self) -> RendezvousInterface:
        return LocalRendezvous()


@pytest.mark.parametrize("case", [f"{file}:{case}" for file, cases in TENSORFLOW_CASES.items() for case in cases])
def test_every_case_of_tensorflow_has_its_test(case: str) -> None:
    file, name = case.split(":")
    module, _, test = TENSORFLOW_CASES[file][name].rpartition(":")
    assert callable(getattr(import_module(module) if module else RendezvousConformance, test))


def test_tensorflow_has_14_cases() -> None:
    assert len(TENSORFLOW_CASES["rendezvous_test.cc"]) == 14


async def test_a_value_that_is_there_needs_no_task_and_no_waiting() -> None:
    rendezvous = LocalRendezvous()
    rendezvous.send(FOO, 1)
    rendezvous.send(FOO, 2, is_dead=True)
    rendezvous.send(FOO, 3)
    received: list[Any] = []
    assert rendezvous.recv_nowait(FOO) == (1, False, NO_ARGS)
    assert rendezvous.recv_async(FOO, NO_ARGS, lambda *outcome: received.append(outcome)) is None
    assert received == [(None, (2, True, NO_ARGS))]
    with pytest.raises(StopIteration) as stopped:
        rendezvous.recv(FOO).send(None)  # type: ignore[attr-defined]
    assert stopped.value.value == (3, False, NO_ARGS)


async def test_a_waiter_is_called_back_within_the_send() -> None:
    rendezvous, received = LocalRendezvous(), list[Any]()
    rendezvous.recv_async(FOO, NO_ARGS, lambda *outcome: received.append(outcome))
    rendezvous.send(FOO, 1)
    assert received == [(None, (1, False, NO_ARGS))]


async def test_a_callback_may_send_and_receive() -> None:
    rendezvous, received = LocalRendezvous(), list[Any]()

    def pass_on(error: OpError | None, item: Received | None) -> None:
        assert item is not None
        rendezvous.recv_async(FOO, NO_ARGS, lambda _, item: received.append(item))
        rendezvous.send(FOO, item[0] + 1)

    rendezvous.recv_async(FOO, NO_ARGS, pass_on)
    rendezvous.send(FOO, 1)
    assert received == [(2, False, NO_ARGS)]


async def test_any_hashable_is_a_key() -> None:
    rendezvous = LocalRendezvous()
    rendezvous.send(("edge", 0, 3), 1)
    rendezvous.send(7, 2)
    assert rendezvous.unreceived() == ["('edge', 0, 3)", "7"]
    assert rendezvous.recv_nowait(7)[0] == 2


async def test_thousands_of_tasks_cancelled_before_a_send() -> None:
    rendezvous = LocalRendezvous()
    tasks = [asyncio.ensure_future(rendezvous.recv(FOO)) for _ in range(3 * sys.getrecursionlimit())]
    await settle(1)
    for task in tasks[:-1]:
        task.cancel()
    rendezvous.send(FOO, 1)
    assert (await tasks[-1])[0] == 1
    await asyncio.wait(tasks)


async def test_a_task_that_was_cancelled_and_then_aborted_is_cancelled() -> None:
    rendezvous = LocalRendezvous()
    tasks = [await started(rendezvous.recv(FOO)) for _ in range(2)]
    tasks[0].cancel()
    rendezvous.start_abort(AbortedError("falling sky"))
    tasks[1].cancel()
    await asyncio.wait(tasks)
    assert all(task.cancelled() for task in tasks)
    assert rendezvous.statistics() == RendezvousStatistics(0, 0)


async def test_an_error_that_was_raised_holds_no_cycle() -> None:
    rendezvous = LocalRendezvous()
    waiting = await started(rendezvous.recv(FOO))
    rendezvous.start_abort(AbortedError("falling sky"))
    gc.collect()
    gc.disable()
    try:
        alive: WeakSet[Any] = WeakSet()
        try:
            await waiting
        except AbortedError as error:
            alive.add(error)
        del waiting
        await asyncio.sleep(0)
        assert not alive
    finally:
        gc.enable()


class Value:
    """A value that can be told apart from every other, and seen to be freed."""


class Calls(RuleBasedStateMachine):
    """Callbacks only, so that the order of everything is known: values and waiters of each key, as lists."""

    def __init__(self) -> None:
        super().__init__()
        self.rendezvous = LocalRendezvous()
        self.values: dict[str, deque[Value]] = defaultdict(deque)
        self.waiters: dict[str, deque[int]] = defaultdict(deque)
        self.expected: dict[int, Any] = {}  # by number of the receive
        self.outcomes: dict[int, Any] = {}
        self.handles: dict[int, tuple[str, RendezvousWaiter]] = {}
        self.alive: WeakSet[Value] = WeakSet()
        self.is_aborted = False
        self.number = 0

    @rule(key=KEYS)
    def send(self, key: str) -> None:
        value = Value()
        self.alive.add(value)
        if self.is_aborted:
            with pytest.raises(AbortedError):
                self.rendezvous.send(key, value)
            return
        if self.waiters[key]:
            self.expected[self.waiters[key].popleft()] = value
        else:
            self.values[key].append(value)
        self.rendezvous.send(key, value)

    @rule(key=KEYS)
    def recv_async(self, key: str) -> None:
        number = self.number = self.number + 1
        if self.is_aborted:
            self.expected[number] = AbortedError
        elif self.values[key]:
            self.expected[number] = self.values[key].popleft()
        else:
            self.waiters[key].append(number)

        def done(error: OpError | None, received: Received | None) -> None:
            assert number not in self.outcomes
            assert error is None or is_derived(error)
            self.outcomes[number] = type(error) if received is None else received[0]

        handle = self.rendezvous.recv_async(key, NO_ARGS, done)
        assert (handle is None) == (number in self.outcomes)
        if handle is not None:
            self.handles[number] = (key, handle)

    @rule(key=KEYS)
    def recv_nowait(self, key: str) -> None:
        if self.is_aborted or not self.values[key]:
            with pytest.raises(AbortedError if self.is_aborted else WouldBlock):
                self.rendezvous.recv_nowait(key)
        else:
            assert self.rendezvous.recv_nowait(key)[0] is self.values[key].popleft()

    @rule(key=KEYS)
    def take_back(self, key: str) -> None:
        """A receive that is undone."""
        if self.values[key]:
            self.rendezvous.put_back(key, self.rendezvous.recv_nowait(key))

    @precondition(lambda self: self.handles)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        number = data.draw(st.sampled_from(sorted(self.handles)))
        key, handle = self.handles[number]
        is_waiting = number in self.waiters[key]
        if is_waiting:
            self.waiters[key].remove(number)
            self.expected[number] = CancelledError
        assert handle.cancel() == is_waiting

    @precondition(lambda self: self.number > 8)
    @rule()
    def abort(self) -> None:
        for numbers in self.waiters.values():
            self.expected.update(dict.fromkeys(numbers, AbortedError))
        self.values.clear()
        self.waiters.clear()
        self.is_aborted = True
        self.rendezvous.start_abort(AbortedError("falling sky"))

    @invariant()
    def every_receive_has_had_its_outcome(self) -> None:
        assert self.outcomes == self.expected
        waiting = RendezvousStatistics(sum(map(len, self.values.values())), sum(map(len, self.waiters.values())))
        assert self.rendezvous.statistics() == waiting
        assert sorted(self.rendezvous.unreceived()) == sorted(key for key in self.values for _ in self.values[key])

    def teardown(self) -> None:
        self.outcomes.clear()
        self.expected.clear()
        self.values.clear()
        self.rendezvous.start_abort(AbortedError("the end"))
        assert self.rendezvous.statistics() == RendezvousStatistics(0, 0)
        assert not self.alive


TestCalls = Calls.TestCase
TestCalls.settings = settings(max_examples=50, stateful_step_count=40, deadline=None)

ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["send", "recv", "nowait"]), KEYS),
        st.tuples(st.just("cancel"), st.integers(0, 30)),
        st.tuples(st.just("turn"), st.integers(1, 3)),
    ),
    max_size=40,
)


async def play(rendezvous: RendezvousInterface, actions: list[tuple[str, Any]], *, aborts: bool) -> None:
    """Receives in tasks, cancelled at any time: each value goes to one receive, those of a key in their order."""
    sent: dict[str, list[int]] = defaultdict(list)
    places: dict[str, list[list[int]]] = defaultdict(list)  # one for each receive, in the order in which they began
    tasks: list[asyncio.Task[None]] = []

    async def recv(key: str) -> None:
        place: list[int] = []
        places[key].append(place)
        place.append((await rendezvous.recv(key))[0])

    for number, (action, argument) in enumerate(actions):
        if action == "send":
            sent[argument].append(number)
            rendezvous.send(argument, number)
        elif action == "recv":
            tasks.append(asyncio.ensure_future(recv(argument)))
        elif action == "nowait" and rendezvous.statistics().num_waiters == 0:
            try:
                places[argument].append([rendezvous.recv_nowait(argument)[0]])
            except WouldBlock:
                assert argument not in rendezvous.unreceived()
        elif action == "cancel" and argument < len(tasks):
            tasks[argument].cancel()
        elif action == "turn":
            await settle(argument)
    await settle()
    received = {key: [value for place in found for value in place] for key, found in places.items()}
    if not any(action == "cancel" for action, _ in actions):
        assert all(values == sent[key][: len(values)] for key, values in received.items())
    if not aborts:
        for key in ("a", "b"):
            while key in rendezvous.unreceived():
                received.setdefault(key, []).append(rendezvous.recv_nowait(key)[0])
        assert {key: sorted(values) for key, values in received.items() if values} == {
            key: values for key, values in sent.items() if values
        }
    rendezvous.start_abort(AbortedError("the end"))
    for outcome in await asyncio.gather(*tasks, return_exceptions=True):
        assert outcome is None or isinstance(outcome, (AbortedError, asyncio.CancelledError))
    assert rendezvous.statistics() == RendezvousStatistics(0, 0)
    assert all(len(set(values)) == len(values) for values in received.values())


@given(actions=ACTIONS, aborts=st.booleans())
@settings(max_examples=100, deadline=None)
async def test_no_value_is_lost_or_received_twice(actions: list[tuple[str, Any]], aborts: bool) -> None:
    await play(LocalRendezvous(), actions, aborts=aborts)


@pytest.mark.deep
@given(actions=ACTIONS, aborts=st.booleans())
@settings(max_examples=5000, deadline=None)
async def test_no_value_is_lost_or_received_twice_deep(actions: list[tuple[str, Any]], aborts: bool) -> None:
    await play(LocalRendezvous(), actions, aborts=aborts)
