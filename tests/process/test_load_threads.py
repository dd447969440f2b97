"""Loads of models end with the session that they are for."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import pytest

from asyncexec.framework.errors import CancelledError
from asyncexec.process import load_threads
from asyncexec.process.load_threads import LoadStop, LoadThreads


class Options:
    """Stands for those of ONNX Runtime; a load with them goes on until it is cancelled."""

    def __init__(self) -> None:
        self.cancelled = threading.Event()

    def set_load_cancellation_flag(self, value: bool, /) -> None:
        assert value
        self.cancelled.set()


def load(stop: LoadStop, begun: Callable[[], object], raised: list[BaseException]) -> None:
    """Load until somebody says that it is not wanted."""
    options = Options()
    try:
        with stop.watching(options):
            begun()
            options.cancelled.wait()
            raise RuntimeError("model load canceled")
    except Exception as error:
        raised.append(error)


async def test_closing_ends_what_is_being_loaded() -> None:
    threads, raised, loop = LoadThreads(), list[BaseException](), asyncio.get_running_loop()
    events = [asyncio.Event() for _ in range(3)]
    started = [
        threads.start(load, threads.stop, lambda event=event: loop.call_soon_threadsafe(event.set), raised)
        for event in events
    ]
    for event in events:
        await event.wait()
    await threads.close()
    assert [type(error) for error in raised] == [CancelledError] * 3
    assert not any(thread is not None and thread.is_alive() for thread in started)


async def test_several_may_close_it_at_once() -> None:
    threads, raised, loop, begun = LoadThreads(), list[BaseException](), asyncio.get_running_loop(), asyncio.Event()
    threads.start(load, threads.stop, lambda: loop.call_soon_threadsafe(begun.set), raised)
    await begun.wait()
    await asyncio.gather(*(threads.close() for _ in range(3)))
    assert [type(error) for error in raised] == [CancelledError]


async def test_a_thread_that_cannot_be_started_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    threads = LoadThreads()

    def start(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(load_threads, "start_thread", start)
    with pytest.raises(RuntimeError, match="new thread"):
        threads.start(pytest.fail)
    await threads.close()


async def test_nothing_is_loaded_once_it_is_closed() -> None:
    threads = LoadThreads()
    await threads.close()
    assert threads.start(pytest.fail) is None
    with pytest.raises(CancelledError), threads.stop.watching(Options()):
        pytest.fail("nothing is loaded")


async def test_what_has_ended_by_itself_is_not_waited_for() -> None:
    threads, done = LoadThreads(), list[int]()
    thread = threads.start(done.append, 1)
    assert thread is not None
    await asyncio.to_thread(thread.join)
    await threads.close()
    await threads.close()
    assert done == [1]


def test_an_error_of_a_load_that_is_wanted_stays_what_it_is() -> None:
    stop = LoadStop()
    with pytest.raises(ValueError, match="no model"), stop.watching(Options()):
        raise ValueError("no model")
    stop.set()
