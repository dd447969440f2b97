"""Exceptions that reach a thread which waits in a ``BlockingSession``: Ctrl-C, other signals, other threads'."""

from __future__ import annotations

import _thread
import asyncio
import ctypes
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import asyncexec as ax
from asyncexec.framework.attr_value import AttrValue
from tests.signals import handlers, press_ctrl_c, terminate

ONE_AT_A_TIME = ax.SessionConfig(max_concurrent_steps=1)
Interrupt = Callable[[], object]
Call = Callable[["Waiting", ax.BlockingSession], Any]


class Terminated(BaseException):
    """What the handler of a signal raises."""


def raise_in(thread: threading.Thread, error: type[BaseException]) -> None:
    """As debuggers do, and libraries that stop threads."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident or 0), ctypes.py_object(error))


@pytest.fixture(autouse=True)
def ctrl_c() -> Iterator[None]:
    def on_term(*_: object) -> None:
        raise Terminated

    with handlers(SIGTERM=on_term):
        yield


class Waiting:
    """A graph whose ``y`` calls *interrupt*, waits until it is cancelled, and takes some turns to clean up; z = x + 1.

    For an x of 0, y is 0.

    Attributes:
        log: what the kernel of y has done.
        cleaning: called when it cleans up, and awaited.
    """

    def __init__(self, interrupt: Interrupt = press_ctrl_c) -> None:
        self.interrupt = interrupt
        self.log: list[str] = []
        self.cleaning: Callable[[], Any] = self.settle

        @ax.op
        async def wait(x: float) -> float:
            if not x:
                return float(x)
            self.log.append("began")
            try:
                self.interrupt()
                await asyncio.Event().wait()
            finally:
                await self.cleaning()
                self.log.append("cleaned up")
            return float(x)

        with ax.Graph() as self.graph:
            self.x = ax.placeholder(ax.float32, [], name="x")
            self.y = wait(self.x, name="y")
            self.z = ax.add(self.x, 1.0, name="z")

    async def settle(self) -> None:
        for _ in range(5):
            await asyncio.sleep(0)

    async def until_it_began(self) -> None:
        while not self.log:  # noqa: ASYNC110 - the kernel tells nobody
            await asyncio.sleep(0)

    def check_usable(self, session: ax.BlockingSession) -> None:
        """A later run works, and nothing is left of those before."""
        assert session.run(self.z, {self.x: 1.0}) == 2.0
        assert [float(z) for z in session.map(self.z, [{self.x: 1.0}, {self.x: 2.0}])] == [2.0, 3.0]
        statistics = session._session.statistics()
        assert (statistics.running_steps, statistics.queued_steps) == (0, 0)
        assert session._open_thread().call(other_tasks) == []


async def other_tasks() -> list[str]:
    return [repr(task) for task in asyncio.all_tasks() - {asyncio.current_task()}]


def run(waiting: Waiting, session: ax.BlockingSession) -> Any:
    return session.run(waiting.y, {waiting.x: 1.0})


def call(waiting: Waiting, session: ax.BlockingSession) -> Any:
    return session.make_callable(waiting.y, [waiting.x])(1.0)


def take_of_map(waiting: Waiting, session: ax.BlockingSession) -> Any:
    return list(session.map(waiting.y, [{waiting.x: float(x)} for x in (1, 2, 3)], window=2))


CALLS = pytest.mark.parametrize("call", [run, call, take_of_map], ids=lambda call: call.__name__)


@CALLS
@pytest.mark.parametrize(
    ("interrupt", "expected"),
    [(press_ctrl_c, KeyboardInterrupt), (_thread.interrupt_main, KeyboardInterrupt), (terminate, Terminated)],
    ids=["ctrl-c", "interrupt_main", "handler"],
)
def test_an_interrupt_ends_the_step_before_it_comes_out(
    call: Call, interrupt: Interrupt, expected: type[BaseException]
) -> None:
    waiting = Waiting(interrupt)
    with ax.BlockingSession(waiting.graph, ONE_AT_A_TIME) as session:
        for times in (1, 2):
            with pytest.raises(expected):
                call(waiting, session)
            assert waiting.log == ["began", "cleaned up"] * times
            waiting.check_usable(session)


@CALLS
def test_a_second_interrupt_comes_out_at_once(call: Call) -> None:
    waiting = Waiting()
    release = asyncio.Event()

    async def clean_up() -> None:
        press_ctrl_c()
        await release.wait()

    waiting.cleaning = clean_up
    with ax.BlockingSession(waiting.graph, ONE_AT_A_TIME) as session:
        with pytest.raises(KeyboardInterrupt):
            call(waiting, session)
        assert waiting.log == ["began"]
        session._open_thread()._send(release.set)
        waiting.check_usable(session)
        assert waiting.log == ["began", "cleaned up"]


def test_interrupts_until_the_caller_is_out_cancel_the_step_once() -> None:
    """A second cancellation would have interrupted the clean-up."""
    waiting = Waiting()
    release = asyncio.Event()

    async def clean_up() -> None:
        press_ctrl_c()
        await release.wait()
        waiting.log.append("had its time")

    waiting.cleaning = clean_up
    with ax.BlockingSession(waiting.graph) as session:
        with pytest.raises(KeyboardInterrupt):
            run(waiting, session)
        session._open_thread()._send(release.set)
        waiting.check_usable(session)
    assert waiting.log == ["began", "had its time", "cleaned up"]


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, TimeoutError])
@CALLS
def test_an_exception_that_another_thread_sends(call: Call, error: type[BaseException]) -> None:
    waiting = Waiting(lambda: raise_in(thread, error))
    caught: list[BaseException] = []

    def work() -> None:
        try:
            call(waiting, session)
        except BaseException as raised:
            caught.append(raised)
        waiting.check_usable(session)
        waiting.log.append("usable")

    with ax.BlockingSession(waiting.graph, ONE_AT_A_TIME) as session:
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        waiting.check_usable(session)
    assert list(map(type, caught)) == [error]
    assert waiting.log == ["began", "cleaned up", "usable"]


def test_an_interrupt_of_one_thread_leaves_the_calls_of_others() -> None:
    waiting = Waiting()
    results: list[Any] = []

    @ax.op
    async def late(x: float) -> float:
        await released.wait()
        return float(x)

    released = asyncio.Event()
    with waiting.graph:
        other = late(waiting.x)
    with ax.BlockingSession(waiting.graph) as session:
        thread = threading.Thread(target=lambda: results.append(session.run(other, {waiting.x: 3.0})))
        thread.start()
        with pytest.raises(KeyboardInterrupt):
            run(waiting, session)
        assert results == []
        session._open_thread()._send(released.set)
        thread.join()
    assert results == [3.0]


def test_an_interrupt_of_a_call_that_waits_for_its_turn() -> None:
    """The step before it goes on, and nobody keeps its place in the queue."""
    waiting = Waiting(lambda: began.set())
    began = threading.Event()

    async def interrupt_when_queued(session: ax.Session) -> None:
        while not session.statistics().queued_steps:  # noqa: ASYNC110 - it tells nobody
            await asyncio.sleep(0)
        press_ctrl_c()

    with ax.BlockingSession(waiting.graph, ONE_AT_A_TIME) as session:
        ended: list[BaseException] = []

        def work() -> None:
            try:
                run(waiting, session)
            except ax.errors.CancelledError as error:
                ended.append(error)

        threads = [threading.Thread(target=work)]
        threads[0].start()
        began.wait()
        thread = session._open_thread()
        threads.append(threading.Thread(target=lambda: thread.call(interrupt_when_queued, session._session)))
        threads[1].start()
        with pytest.raises(KeyboardInterrupt):
            session.run(waiting.z, {waiting.x: 1.0})
        statistics = session._session.statistics()
        assert (statistics.running_steps, statistics.queued_steps) == (1, 0)
        assert waiting.log == ["began"]
    for each in threads:
        each.join()
    assert len(ended) == 1
    assert waiting.log == ["began", "cleaned up"]


def test_an_interrupt_while_a_function_is_on_a_worker_thread() -> None:
    """It is given its grace period, and then left to its thread."""
    left = threading.Event()

    @ax.op(expensive=True)
    def work(x: float) -> float:
        press_ctrl_c()
        left.wait()
        return float(x)

    waiting = Waiting()
    with waiting.graph:
        stuck = work(waiting.x, name="stuck")
    config = ax.SessionConfig(max_concurrent_steps=1, cancel_grace_s=0.0)
    with ax.BlockingSession(waiting.graph, config) as session:
        with (
            pytest.warns(ax.KernelWarning, match="'stuck' has not come back"),
            pytest.raises(KeyboardInterrupt),
        ):
            session.run(stuck, {waiting.x: 1.0})
        waiting.check_usable(session)
        left.set()


def test_a_function_on_a_worker_thread_is_told_of_an_interrupt() -> None:
    log: list[str] = []

    @ax.op(expensive=True)
    def work(x: float) -> float:
        told = threading.Event()
        manager = ax.cancellation_manager()
        assert manager is not None
        manager.register_callback(manager.get_cancellation_token(), told.set)
        press_ctrl_c()
        told.wait()
        log.append("returned")
        return float(x)

    waiting = Waiting()
    with waiting.graph:
        polite = work(waiting.x)
    with ax.BlockingSession(waiting.graph, ax.SessionConfig(cancel_grace_s=None)) as session:
        with pytest.raises(KeyboardInterrupt):
            session.run(polite, {waiting.x: 1.0})
        assert log == ["returned"]
        waiting.check_usable(session)


def test_an_interrupt_of_extend() -> None:
    waiting = Waiting()
    node = ax.NodeDef(name="negated", op="Neg", input=["z"], attr={"T": AttrValue(type="DT_FLOAT")})

    async def interrupt_when_it_waits() -> None:
        while not lock.waiting:  # noqa: ASYNC110 - it tells nobody
            await asyncio.sleep(0)
        press_ctrl_c()

    async def hold() -> asyncio.Task[None]:
        await lock.acquire()
        return asyncio.create_task(interrupt_when_it_waits())

    async def release() -> None:
        lock.release()

    with ax.BlockingSession(waiting.graph) as session:
        lock, thread = session._session._loop.build_lock, session._open_thread()
        waiting.check_usable(session)
        thread.call(hold)
        with pytest.raises(KeyboardInterrupt):
            session.extend(ax.GraphDef(node=[node]))
        thread.call(release)
        waiting.check_usable(session)
        session.extend(ax.GraphDef(node=[node]))
        assert session.run("negated:0", {waiting.x: 1.0}) == -2.0


def test_an_interrupt_in_the_block_of_a_map_ends_its_items() -> None:
    waiting = Waiting(lambda: None)
    with ax.BlockingSession(waiting.graph, ONE_AT_A_TIME) as session:
        items = [{waiting.x: 0.0}, {waiting.x: 1.0}]

        def work() -> None:
            for _ in session.map(waiting.y, items, window=2):
                session._open_thread().call(waiting.until_it_began)
                press_ctrl_c()

        with pytest.raises(KeyboardInterrupt):
            work()
        assert waiting.log == ["began", "cleaned up"]
        waiting.check_usable(session)


def test_an_interrupt_while_a_map_that_was_left_ends() -> None:
    waiting = Waiting(lambda: None)

    async def clean_up() -> None:
        press_ctrl_c()
        await waiting.settle()

    waiting.cleaning = clean_up
    with ax.BlockingSession(waiting.graph) as session:
        mapped = session.map(waiting.y, [{waiting.x: 0.0}, {waiting.x: 1.0}], window=2)
        assert next(mapped) == 0.0
        session._open_thread().call(waiting.until_it_began)
        with pytest.raises(KeyboardInterrupt):
            mapped.close()  # type: ignore[attr-defined]
        assert waiting.log == ["began", "cleaned up"]
        waiting.check_usable(session)


def begin_in_thread(waiting: Waiting, session: ax.BlockingSession) -> tuple[threading.Thread, list[BaseException]]:
    """The step is under way when this returns; what its caller gets."""
    caught: list[BaseException] = []

    def work() -> None:
        try:
            run(waiting, session)
        except BaseException as raised:
            caught.append(raised)

    thread = threading.Thread(target=work)
    thread.start()
    session._open_thread().call(waiting.until_it_began)
    return thread, caught


def test_an_interrupt_of_close_ends_the_drain() -> None:
    waiting = Waiting(lambda: None)
    session = ax.BlockingSession(waiting.graph, ax.SessionConfig(drain_timeout_s=None)).__enter__()
    thread, caught = begin_in_thread(waiting, session)
    session._open_thread()._send(press_ctrl_c_when_closed(session))
    with pytest.raises(KeyboardInterrupt):
        session.close()
    assert waiting.log == ["began", "cleaned up"]
    thread.join()
    assert list(map(type, caught)) == [ax.errors.CancelledError]
    with pytest.raises(ax.errors.FailedPreconditionError, match="not open"):
        run(waiting, session)
    session.close()


def press_ctrl_c_when_closed(session: ax.BlockingSession) -> Callable[[], None]:
    """A callback of the loop."""

    def look() -> None:
        if session._session._admission._is_closed:
            press_ctrl_c()
        else:
            asyncio.get_running_loop().call_soon(look)

    return look


def test_a_second_interrupt_of_close_lets_it_end_in_the_background() -> None:
    waiting = Waiting(lambda: None)
    release = asyncio.Event()

    async def clean_up() -> None:
        press_ctrl_c()
        await release.wait()

    waiting.cleaning = clean_up
    session = ax.BlockingSession(waiting.graph, ax.SessionConfig(drain_timeout_s=None)).__enter__()
    thread, caught = begin_in_thread(waiting, session)
    loop_thread = session._open_thread()
    loop_thread._send(press_ctrl_c_when_closed(session))
    with pytest.raises(KeyboardInterrupt):
        session.close()
    assert waiting.log == ["began"]
    with pytest.raises(ax.errors.CancelledError, match="has been closed"):
        session.run(waiting.z, {waiting.x: 1.0})
    loop_thread._send(release.set)
    session.close()  # waits for the end
    thread.join()
    assert waiting.log == ["began", "cleaned up"]
    assert list(map(type, caught)) == [ax.errors.CancelledError]


def test_an_interrupt_gets_out_of_the_block_when_the_session_is_closed() -> None:
    waiting = Waiting()
    session = ax.BlockingSession(waiting.graph)
    with pytest.raises(KeyboardInterrupt), session:
        run(waiting, session)
    assert waiting.log == ["began", "cleaned up"]
    assert session._thread is None


@pytest.mark.allow_blocking
async def test_an_interrupt_inside_a_running_loop() -> None:
    """As in a notebook."""
    waiting = Waiting()
    with handlers(), ax.BlockingSession(waiting.graph, ONE_AT_A_TIME) as session:
        with pytest.raises(KeyboardInterrupt):
            run(waiting, session)
        assert waiting.log == ["began", "cleaned up"]
        waiting.check_usable(session)


def test_a_call_from_a_kernel_in_the_loop_of_the_session_is_refused() -> None:
    waiting = Waiting()

    @ax.op(expensive=False)
    def nested(x: float) -> float:
        return float(session.run(waiting.z, {waiting.x: x}))

    with waiting.graph:
        fetch = nested(waiting.x, name="nested")
    with ax.BlockingSession(waiting.graph) as session:
        with pytest.raises(ax.errors.FailedPreconditionError, match="cannot wait") as caught:
            session.run(fetch, {waiting.x: 1.0})
        assert caught.value.node == "nested"
        waiting.check_usable(session)
