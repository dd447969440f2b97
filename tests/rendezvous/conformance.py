"""What every rendezvous does, whichever it is: subclass RendezvousConformance and give it a rendezvous.

TENSORFLOW_CASES says which test stands for which of TensorFlow's.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Hashable
from random import Random
from typing import Any, Final
from weakref import ref

import pytest
from anyio import WouldBlock

from asyncexec.framework.cancellation import CancellationManager
from asyncexec.framework.derived import is_derived
from asyncexec.framework.errors import AbortedError, CancelledError, InternalError, OpError
from asyncexec.framework.rendezvous import (
    NO_ARGS,
    Received,
    RendezvousArgs,
    RendezvousInterface,
    RendezvousStatistics,
    RendezvousWaiter,
    create_key,
)
from tests.running import settle, started

DEVICE: Final = "/job:mnist/replica:1/task:2/device:CPU:"
FOO: Final = create_key(f"{DEVICE}0", 7890, f"{DEVICE}1", "foo")
BAR: Final = create_key(f"{DEVICE}1", 7890, f"{DEVICE}0", "bar")
EMPTY: Final = RendezvousStatistics(0, 0)

# rendezvous_test.cc: all 14.  rpc_rendezvous_mgr_test.cc: the 6 without its worker cache.  buf_rendezvous_test.cc:
# those that are not of buffers only.  There a key is used once; here values queue (MultiSends), so ErrorDuplicatePut
# has no counterpart; and an incarnation is part of the key, so that of another one is another key.
TENSORFLOW_CASES: Final = {
    "rendezvous_test.cc": {
        "Key": "tests.framework.test_rendezvous_key:test_a_key_has_five_parts",
        "SendRecv": "test_send_then_recv",
        "RecvSend": "test_recv_then_send",
        "PingPong": "test_ping_pong",
        "CancelBeforeRecv": "test_cancelled_before_it_waits",
        "CancelAfterRecv": "test_cancelled_while_it_waits",
        "CancelEmptyQueue": "test_a_value_that_came_before_the_cancel_wins",
        "CancelMultiple": "test_a_cancelled_waiter_takes_no_value",
        "RandomSendRecv": "test_a_hundred_pairs_in_any_order",
        "MultiSends": "test_values_on_one_key_come_in_order",
        "RecvAbort": "test_an_abort_wakes_who_waits",
        "RecvSleepAbort": "test_an_abort_a_second_later",
        "AbortThenRecvOrSend": "test_after_an_abort_nothing_is_sent_or_received",
        "TransferDummyDeviceContext": "test_the_senders_arguments_come_with_the_value",
    },
    "rpc_rendezvous_mgr_test.cc": {
        "LocalSendRecv": "tests.distributed.test_cluster:test_many_steps_at_once",
        "LocalAbort": "tests.distributed.test_cluster:test_a_cancelled_step_ends_on_all_workers",
        "LocalCancel": "test_cancelled_while_it_waits",
        "CancelAfterReceived": "test_a_value_that_came_before_the_cancel_wins",
        "CleanupAll": "tests.distributed.test_cluster:test_nothing_is_left_of_the_values_of_a_step",
        "TransferDummyDeviceContext": "test_the_senders_arguments_come_with_the_value",
    },
    "buf_rendezvous_test.cc": {
        "CorrectUseProducerFirst": "test_send_then_recv",
        "CorrectUseConsumerFirst": "test_recv_then_send",
        "ErrorDeleteNonEmpty": "test_what_nobody_received_is_named",
        "AbortNonEmpty": "test_an_abort_wakes_who_waits",
        "AbortEmpty": "test_the_first_abort_counts",
        "UseAfterAbort": "test_after_an_abort_nothing_is_sent_or_received",
        "DeviceIncarnationMismatch": "test_another_incarnation_is_another_key",
    },
}


class DummyDeviceContext:
    """The context of a device that computes on the host's memory; to be told apart by its number."""

    def __init__(self, stream_id: int) -> None:
        self.stream_id = stream_id

    async def copy_in(self, value: Any) -> Any:
        return value

    async def copy_out(self, value: Any) -> Any:
        return value

    async def sync(self) -> None: ...


class Outcome:
    """What a callback was called with; it fails the test when called twice."""

    def __init__(self) -> None:
        self.is_done = asyncio.Event()
        self.error: OpError | None = None
        self.received: Received | None = None

    def __call__(self, error: OpError | None, received: Received | None) -> None:
        assert not self.is_done.is_set()
        assert (error is None) != (received is None)
        self.error, self.received = error, received
        self.is_done.set()

    async def value(self) -> Any:
        await self.is_done.wait()
        assert self.error is None
        assert self.received is not None
        return self.received[0]


def cancelled_by(manager: CancellationManager, waiter: RendezvousWaiter | None) -> None:
    """Have *waiter* cancelled by *manager*, at once if that is cancelled already."""
    assert waiter is not None
    if not manager.register_callback(manager.get_cancellation_token(), waiter.cancel):
        waiter.cancel()


class RendezvousConformance:
    """The tests; a subclass overrides ``rendezvous``."""

    @pytest.fixture
    def rendezvous(self) -> RendezvousInterface:
        raise NotImplementedError

    async def test_send_then_recv(self, rendezvous: RendezvousInterface) -> None:
        rendezvous.send(FOO, "hello")
        assert await rendezvous.recv(FOO) == ("hello", False, NO_ARGS)
        assert rendezvous.statistics() == EMPTY

    async def test_recv_then_send(self, rendezvous: RendezvousInterface) -> None:
        waiting = await started(rendezvous.recv(FOO))
        assert not waiting.done()
        assert rendezvous.statistics() == RendezvousStatistics(0, 1)
        rendezvous.send(FOO, "hello")
        assert await waiting == ("hello", False, NO_ARGS)
        assert rendezvous.statistics() == EMPTY

    async def test_ping_pong(self, rendezvous: RendezvousInterface) -> None:
        async def answer() -> None:
            value, is_dead, _ = await rendezvous.recv(FOO)
            rendezvous.send(BAR, value, is_dead=is_dead)

        answering = await started(answer())
        rendezvous.send(FOO, "secret msg")
        assert (await rendezvous.recv(BAR))[0] == "secret msg"
        await answering

    @pytest.mark.parametrize("is_dead", [False, True])
    async def test_deadness_comes_with_the_value(self, rendezvous: RendezvousInterface, is_dead: bool) -> None:
        rendezvous.send(FOO, None, is_dead=is_dead)
        assert (await rendezvous.recv(FOO))[:2] == (None, is_dead)

    async def test_keys_do_not_meet(self, rendezvous: RendezvousInterface) -> None:
        waiting = await started(rendezvous.recv(FOO))
        rendezvous.send(BAR, "bar")
        await settle()
        assert not waiting.done()
        rendezvous.send(FOO, "foo")
        assert (await waiting)[0] == "foo"
        assert (await rendezvous.recv(BAR))[0] == "bar"

    async def test_another_incarnation_is_another_key(self, rendezvous: RendezvousInterface) -> None:
        rendezvous.send(create_key(f"{DEVICE}0", 1, f"{DEVICE}1", "foo"), "old")
        rendezvous.send(create_key(f"{DEVICE}0", 2, f"{DEVICE}1", "foo"), "new")
        assert (await rendezvous.recv(create_key(f"{DEVICE}0", 2, f"{DEVICE}1", "foo")))[0] == "new"

    async def test_nothing_there_would_block(self, rendezvous: RendezvousInterface) -> None:
        with pytest.raises(WouldBlock):
            rendezvous.recv_nowait(FOO)
        assert rendezvous.statistics() == EMPTY

    async def test_a_callback_gets_the_value(self, rendezvous: RendezvousInterface) -> None:
        outcomes = [Outcome(), Outcome()]
        rendezvous.recv_async(FOO, NO_ARGS, outcomes[0])
        rendezvous.send(FOO, "first")
        rendezvous.send(FOO, "second")
        assert await outcomes[0].value() == "first"
        rendezvous.recv_async(FOO, NO_ARGS, outcomes[1])
        assert await outcomes[1].value() == "second"

    async def test_cancelled_before_it_waits(self, rendezvous: RendezvousInterface) -> None:
        manager, outcome = CancellationManager(), Outcome()
        manager.start_cancel()
        cancelled_by(manager, rendezvous.recv_async(FOO, NO_ARGS, outcome))
        await outcome.is_done.wait()
        self.assert_cancelled(outcome)

    async def test_cancelled_while_it_waits(self, rendezvous: RendezvousInterface) -> None:
        manager, outcome = CancellationManager(), Outcome()
        cancelled_by(manager, rendezvous.recv_async(FOO, NO_ARGS, outcome))
        await settle()
        assert not outcome.is_done.is_set()
        manager.start_cancel()
        await outcome.is_done.wait()
        self.assert_cancelled(outcome)
        assert rendezvous.statistics() == EMPTY

    async def test_a_value_that_came_before_the_cancel_wins(self, rendezvous: RendezvousInterface) -> None:
        outcome = Outcome()
        waiter = rendezvous.recv_async(FOO, NO_ARGS, outcome)
        assert waiter is not None
        rendezvous.send(FOO, "hello")
        assert await outcome.value() == "hello"
        assert not waiter.cancel()
        assert not waiter.cancel()

    async def test_a_cancelled_waiter_takes_no_value(self, rendezvous: RendezvousInterface) -> None:
        manager, outcomes = CancellationManager(), [Outcome() for _ in range(4)]
        for index, outcome in enumerate(outcomes):
            waiter = rendezvous.recv_async(FOO, NO_ARGS, outcome)
            if index % 2:
                cancelled_by(manager, waiter)
        manager.start_cancel()
        rendezvous.send(FOO, "hello")
        rendezvous.send(FOO, "again")
        assert [await outcomes[0].value(), await outcomes[2].value()] == ["hello", "again"]
        for outcome in outcomes[1::2]:
            await outcome.is_done.wait()
            self.assert_cancelled(outcome)

    @pytest.mark.parametrize("cancelled", range(3))
    async def test_a_cancelled_task_takes_no_value(self, rendezvous: RendezvousInterface, cancelled: int) -> None:
        tasks = [await started(rendezvous.recv(FOO)) for _ in range(3)]
        tasks.pop(cancelled).cancel()
        rendezvous.send(FOO, 0)  # the cancelled task has not run yet
        rendezvous.send(FOO, 1)
        assert [(await task)[0] for task in tasks] == [0, 1]
        assert rendezvous.statistics() == EMPTY

    async def test_a_task_cancelled_in_the_turn_of_its_value_leaves_it_to_the_next(
        self, rendezvous: RendezvousInterface
    ) -> None:
        tasks = [await started(rendezvous.recv(FOO)) for _ in range(2)]
        rendezvous.send(FOO, "hello")
        tasks[0].cancel()
        assert (await tasks[1])[0] == "hello"
        assert tasks[0].cancelled()

    async def test_a_task_cancelled_in_the_turn_of_its_value_leaves_it_first(
        self, rendezvous: RendezvousInterface
    ) -> None:
        task = await started(rendezvous.recv(FOO))
        rendezvous.send(FOO, "first")
        rendezvous.send(FOO, "second")
        task.cancel()
        await settle()
        assert [(await rendezvous.recv(FOO))[0] for _ in range(2)] == ["first", "second"]

    async def test_a_hundred_pairs_in_any_order(self, rendezvous: RendezvousInterface) -> None:
        random, tasks = Random(17), []

        async def send(key: Hashable, value: str) -> None:
            await settle(random.randrange(10))
            rendezvous.send(key, value)

        async def recv(key: Hashable, value: str) -> None:
            await settle(random.randrange(10))
            assert (await rendezvous.recv(key))[0] == value

        for index in range(100):
            key = create_key(f"{DEVICE}0", 7890, f"{DEVICE}1", str(index))
            tasks += [send(key, str(index)), recv(key, str(index))]
        random.shuffle(tasks)
        await asyncio.gather(*tasks)
        assert rendezvous.statistics() == EMPTY

    @pytest.mark.parametrize("stride", [1, 3, 100])
    async def test_values_on_one_key_come_in_order(self, rendezvous: RendezvousInterface, stride: int) -> None:
        async def send() -> None:
            for index in range(100):
                rendezvous.send(FOO, index)
                if not index % stride:
                    await asyncio.sleep(0)

        sending = asyncio.ensure_future(send())
        assert [(await rendezvous.recv(FOO))[0] for _ in range(100)] == list(range(100))
        await sending

    async def test_waiters_on_one_key_are_served_in_order(self, rendezvous: RendezvousInterface) -> None:
        tasks = [await started(rendezvous.recv(FOO)) for _ in range(5)]
        for index in range(5):
            rendezvous.send(FOO, index)
        assert [(await task)[0] for task in tasks] == list(range(5))

    async def test_an_abort_wakes_who_waits(self, rendezvous: RendezvousInterface) -> None:
        tasks = [await started(rendezvous.recv(key)) for key in (FOO, FOO, BAR)]
        outcome = Outcome()
        rendezvous.recv_async(FOO, NO_ARGS, outcome)
        rendezvous.start_abort(AbortedError("falling sky"))
        for task in tasks:
            with pytest.raises(AbortedError, match="falling sky") as raised:
                await task
            assert is_derived(raised.value)
        await outcome.is_done.wait()
        assert isinstance(outcome.error, AbortedError)
        assert is_derived(outcome.error)
        assert rendezvous.statistics() == EMPTY

    async def test_an_abort_a_second_later(self, rendezvous: RendezvousInterface) -> None:
        waiting = await started(rendezvous.recv(FOO))
        await settle(50)
        rendezvous.start_abort(AbortedError(""))
        with pytest.raises(AbortedError):
            await waiting

    async def test_after_an_abort_nothing_is_sent_or_received(self, rendezvous: RendezvousInterface) -> None:
        rendezvous.send(FOO, "lost")
        rendezvous.start_abort(AbortedError("falling sky"))
        outcome = Outcome()
        with pytest.raises(AbortedError, match="falling sky"):
            rendezvous.send(FOO, "late")
        with pytest.raises(AbortedError, match="falling sky"):
            await rendezvous.recv(FOO)
        with pytest.raises(AbortedError, match="falling sky"):
            rendezvous.recv_nowait(FOO)
        assert rendezvous.recv_async(FOO, NO_ARGS, outcome) is None
        assert isinstance(outcome.error, AbortedError)
        assert rendezvous.unreceived() == []

    async def test_the_first_abort_counts(self, rendezvous: RendezvousInterface) -> None:
        assert rendezvous.error is None
        cause = InternalError("the cause", node="n")
        rendezvous.start_abort(cause)
        rendezvous.start_abort(AbortedError("what it led to"))
        assert rendezvous.error is cause
        with pytest.raises(InternalError, match="the cause") as raised:
            await rendezvous.recv(FOO)
        assert raised.value is not cause
        assert raised.value.node == "n"
        assert not is_derived(cause)

    async def test_cancelling_after_an_abort_changes_nothing(self, rendezvous: RendezvousInterface) -> None:
        outcome = Outcome()
        waiter = rendezvous.recv_async(FOO, NO_ARGS, outcome)
        assert waiter is not None
        rendezvous.start_abort(AbortedError("falling sky"))
        await outcome.is_done.wait()
        assert not waiter.cancel()
        assert isinstance(outcome.error, AbortedError)

    async def test_a_callback_of_an_abort_may_cancel_another_waiter(self, rendezvous: RendezvousInterface) -> None:
        other, waiters = Outcome(), []
        rendezvous.recv_async(FOO, NO_ARGS, lambda *_: [waiter.cancel() for waiter in waiters])
        waiters.append(rendezvous.recv_async(FOO, NO_ARGS, other))
        rendezvous.start_abort(AbortedError("falling sky"))
        await other.is_done.wait()
        assert isinstance(other.error, AbortedError)

    async def test_the_senders_arguments_come_with_the_value(self, rendezvous: RendezvousInterface) -> None:
        sender, receiver = (RendezvousArgs(DummyDeviceContext(number)) for number in (123, 1))
        rendezvous.send(FOO, 5.0, args=sender)
        outcome = Outcome()
        rendezvous.recv_async(FOO, receiver, outcome)
        assert await outcome.value() == 5.0
        assert outcome.received is not None
        assert outcome.received[2] is sender

    async def test_what_nobody_received_is_named(self, rendezvous: RendezvousInterface) -> None:
        for key in (FOO, FOO, BAR, BAR):
            rendezvous.send(key, "hello")
        await rendezvous.recv(FOO)
        assert sorted(rendezvous.unreceived()) == sorted([FOO, BAR, BAR])
        assert rendezvous.statistics() == RendezvousStatistics(3, 0)

    async def test_what_was_received_is_kept_by_nobody(self, rendezvous: RendezvousInterface) -> None:
        value = DummyDeviceContext(0)
        kept = ref(value)
        waiting = await started(rendezvous.recv(FOO))
        rendezvous.send(FOO, value)
        await waiting
        rendezvous.send(FOO, value)
        await rendezvous.recv(FOO)
        rendezvous.send(BAR, value)
        rendezvous.start_abort(AbortedError(""))
        del value, waiting
        await settle()  # the turn of the loop that the task woke has its result
        gc.collect()
        assert kept() is None

    @staticmethod
    def assert_cancelled(outcome: Outcome) -> None:
        assert isinstance(outcome.error, CancelledError)
        assert "RecvAsync is cancelled." in str(outcome.error)
        assert is_derived(outcome.error)
