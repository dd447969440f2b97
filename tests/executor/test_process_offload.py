"""Ops in processes: values and errors as on threads, and nothing is left of a process, a segment, or a broken pool."""

from __future__ import annotations

import asyncio
import functools
import multiprocessing
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import asyncexec as ax
from asyncexec.executor.workers import message, process_pool
from asyncexec.executor.workers.message import pack, unpack
from asyncexec.executor.workers.process_pool import ProcessPool
from asyncexec.framework.process_calls import FunctionReference
from tests.executor import process_functions as functions
from tests.running import settle, started
from tests.signals import handlers

pytestmark = pytest.mark.one_of("loop")

SEGMENTS = Path("/dev/shm")
LARGE = 100_000  # float64: more than travels in a pipe
ONE = ax.SessionConfig(num_processes=1)
ONCE = pytest.mark.virtual_clock  # not on every loop: processes take their time to start


@pytest.fixture(autouse=True)
def nothing_of_processes_is_left() -> Iterator[None]:
    yield
    assert multiprocessing.active_children() == []
    assert segments() == []


def segments() -> list[str]:
    return sorted(path.name for path in SEGMENTS.glob(f"asyncexec-{os.getpid():x}-*")) if SEGMENTS.exists() else []


@pytest.fixture
def graph() -> ax.Graph:
    return ax.Graph()


async def test_runs_in_another_process_and_stays_there(graph: ax.Graph) -> None:
    with graph:
        fetch = functions.process_id(ax.constant(1.0))
    async with ax.Session(graph, ONE) as session:
        assert multiprocessing.active_children() == []  # none before it is needed
        first = await session.run(fetch)
        (child,) = multiprocessing.active_children()
        assert first == child.pid != os.getpid()
        assert await session.run(fetch) == first


@ONCE
async def test_as_many_processes_as_allowed(graph: ax.Graph) -> None:
    with graph:
        fetches = [functions.process_id(ax.constant(float(i))) for i in range(12)]
    async with ax.Session(graph, ax.SessionConfig(num_processes=2)) as session:
        found = await session.run(fetches)
        assert 1 <= len(set(found)) <= 2
        assert len(multiprocessing.active_children()) <= 2


async def test_large_arrays_both_ways(graph: ax.Graph) -> None:
    with graph:
        array = ax.placeholder(ax.float64, [None])
        total, scaled = functions.sum_and_scaled(array, factor=3.0)
        flag = functions.is_writeable(array)
    async with ax.Session(graph, ONE) as session:
        for size in (3, LARGE):
            value = np.arange(size, dtype=np.float64)
            got_total, got_scaled = await session.run([total, scaled], {array: value})
            assert got_total == value.sum()
            np.testing.assert_array_equal(got_scaled, value * 3)
            assert got_scaled.flags.writeable
            assert segments() == []
        assert not await session.run(flag, {array: value})


@ONCE
async def test_any_picklable_value(graph: ax.Graph) -> None:
    value = {"a": [np.arange(LARGE), "text", None], "b": np.ones((3, LARGE), np.float32).T}
    with graph:
        given = ax.placeholder(ax.object, [])
        fetch = functions.describe(given)
    async with ax.Session(graph, ONE) as session:
        found = await session.run(fetch, {given: value})
    assert found["in_main"] is False
    np.testing.assert_array_equal(found["value"]["a"][0], value["a"][0])
    np.testing.assert_array_equal(found["value"]["b"], value["b"])
    assert found["value"]["a"][1:] == ["text", None]


@ONCE
async def test_inputs_that_the_function_keeps_stay_what_they_were(graph: ax.Graph) -> None:
    with graph:
        array = ax.placeholder(ax.float64, [None])
        fetch = functions.keep(array)
    async with ax.Session(graph, ONE) as session:
        assert await session.run(fetch, {array: np.ones(LARGE)}) == LARGE
        assert await session.run(fetch, {array: np.full(LARGE, 2.0)}) == 3 * LARGE


@ONCE
async def test_text_and_named_arguments(graph: ax.Graph) -> None:
    with graph:
        fetch = functions.shout(ax.constant("hello"), mark=ax.constant("?"))
    async with ax.Session(graph, ONE) as session:
        assert await session.run(fetch) == "HELLO?"


@ONCE
async def test_function_that_is_wrapped_in_another_name(graph: ax.Graph) -> None:
    with graph:
        fetch = functions.wrapped_elsewhere(ax.constant(np.float64(1.5)))
    async with ax.Session(graph, ONE) as session:
        assert await session.run(fetch) == 2.5


def test_plain_values_call_the_plain_function() -> None:
    assert functions.process_id(1.0) == os.getpid()


@ONCE
@pytest.mark.parametrize(
    ("kind", "expected", "cause"),
    [("value", ax.errors.InvalidArgumentError, ValueError), ("odd", ax.errors.UnknownError, RuntimeError)],
)
async def test_errors_come_with_the_traceback_of_the_process(
    graph: ax.Graph, kind: str, expected: type[Exception], cause: type[Exception]
) -> None:
    with graph:
        fetch = functions.fail(ax.constant(kind), name="culprit")
    async with ax.Session(graph, ONE) as session:
        with pytest.raises(expected) as caught:
            await session.run(fetch)
        assert isinstance(caught.value, ax.errors.OpError)
        assert caught.value.node == "culprit"
        raised = caught.value.__cause__
        assert type(raised) is cause
        assert "in fail" in raised.__notes__[0]
        if kind == "odd":
            assert str(raised) == "OddError: an odd error"


@ONCE
async def test_what_is_no_exception_comes_out_as_it_is() -> None:
    pool = ProcessPool(1)
    try:
        with pytest.raises(SystemExit) as caught:
            await pool.call(reference("fail"), ("exit",), {})
        assert caught.value.code == 7
    finally:
        await pool.close()


@ONCE
async def test_an_exit_in_a_process_reaches_the_caller_and_the_process_goes_on(graph: ax.Graph) -> None:
    with graph:
        kind, x = ax.placeholder(ax.string, []), ax.placeholder(ax.float64, [])
        fails, works = functions.fail(kind), functions.process_id(x)
    async with ax.Session(graph, ax.SessionConfig(max_concurrent_steps=1, num_processes=1)) as session:
        first = await session.run(works, {x: 1.0})
        for _ in range(2):
            with pytest.raises(SystemExit) as caught:
                await session.run(fails, {kind: "exit"})
            assert caught.value.code == 7
        assert await session.run(works, {x: 1.0}) == first


INTERRUPTED_AT_THE_START = """
import os, signal
import asyncexec as ax

if __name__ == "__mp_main__":  # as a terminal does, in the middle of the imports of the process
    os.kill(os.getpid(), signal.SIGINT)

@ax.op(executor="process")
def blocked(x: float) -> int:
    return len(signal.pthread_sigmask(signal.SIG_BLOCK, ()))

if __name__ == "__main__":
    with ax.Graph() as graph:
        fetch = blocked(ax.constant(1.0, ax.float64))
    with ax.BlockingSession(graph, ax.SessionConfig(num_processes=1)) as session:
        print("blocked signals:", session.run(fetch))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="no signals can be blocked there")
def test_ctrl_c_does_not_end_a_process_that_starts(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(INTERRUPTED_AT_THE_START)
    with handlers():
        done = subprocess.run([sys.executable, program], capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr, done.returncode) == ("blocked signals: 0\n", "", 0)


def reference(name: str) -> FunctionReference:
    return FunctionReference(functions.__name__, name, is_wrapped=True)


@ONCE
@pytest.mark.parametrize(("op", "how"), [("leave", "with exit code 3"), ("crash", "by signal 9")])
async def test_a_process_that_ends_fails_its_call_and_is_replaced(graph: ax.Graph, op: str, how: str) -> None:
    with graph:
        (x,) = [ax.placeholder(ax.float64, [])]
        ends = getattr(functions, op)(x, name="bang")
        works = functions.process_id(x)
    async with ax.Session(graph, ONE) as session:
        first = await session.run(works, {x: 3.0})
        with pytest.raises(ax.errors.UnavailableError, match=f"ended {how}") as caught:
            await session.run(ends, {x: 3.0})
        assert caught.value.node == "bang"
        assert await session.run(works, {x: 3.0}) != first


@ONCE
async def test_what_cannot_be_pickled(graph: ax.Graph) -> None:
    with graph:
        back = functions.unpicklable(ax.constant(1.0), name="back")
        there = functions.describe.options(name="there")(ax.identity(ax.placeholder(ax.object, [], name="given")))
    async with ax.Session(graph, ONE) as session:
        with pytest.raises(ax.errors.InvalidArgumentError, match="result cannot be sent back") as caught:
            await session.run(back)
        assert caught.value.node == "back"
        with pytest.raises(ax.errors.InvalidArgumentError, match="input cannot be sent") as caught:
            await session.run(there, {"given:0": lambda: 1})
        assert caught.value.node == "there"


async def has_begun(folder: Path) -> int:
    """The id of the process that a call runs in, once it does (the test's own time limit bounds it)."""
    while not (found := await asyncio.to_thread(lambda: list(folder.iterdir()))):  # noqa: ASYNC110
        await asyncio.sleep(0.001)
    return int(found[0].name)


@pytest.mark.allow_blocking
async def test_a_call_that_is_cancelled_is_killed(graph: ax.Graph, tmp_path: Path) -> None:
    with graph:
        endless = functions.run_for_ever(ax.constant(str(tmp_path)))
        works = functions.process_id(ax.constant(1.0))
    async with ax.Session(graph, ax.SessionConfig(num_processes=1, worker_grace_s=None)) as session:
        run = await started(session.run(endless))
        pid = await has_begun(tmp_path)
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
        assert pid not in [child.pid for child in multiprocessing.active_children()]
        assert await session.run(works) != pid
        assert session._state.processes.statistics().abandoned == 0


@pytest.mark.allow_blocking
async def test_a_step_that_has_failed_waits_for_its_call(graph: ax.Graph, tmp_path: Path) -> None:
    """Its process is not killed, unless the caller is cancelled meanwhile."""
    go = asyncio.Event()

    async def fail(x: float) -> None:
        await go.wait()
        raise ValueError("enough")

    with graph:
        folder, works = ax.placeholder(ax.string, []), functions.process_id(ax.constant(1.0))
        fetches = [functions.run_until_told(folder), ax.op(fail)(ax.constant(1.0))]
    config = ax.SessionConfig(num_processes=1, worker_grace_s=None, cancel_grace_s=0)
    async with ax.Session(graph, config) as session:
        for is_cancelled in (False, True):
            begun = tmp_path / str(is_cancelled)
            begun.mkdir()
            run = await started(session.run(fetches, {folder: str(begun)}))
            pid = await has_begun(begun)
            go.set()
            await settle()
            assert not run.done()
            if is_cancelled:
                run.cancel()
            else:
                (begun / "end").touch()
            await asyncio.wait([run])
            assert run.cancelled() if is_cancelled else isinstance(run.exception(), ax.errors.InvalidArgumentError)
            assert (await session.run(works) == pid) is not is_cancelled
            go.clear()


@pytest.mark.allow_blocking
async def test_an_attempt_past_its_timeout_is_killed(graph: ax.Graph, tmp_path: Path) -> None:
    with graph:
        endless = functions.run_for_ever(ax.constant(str(tmp_path)), timeout=0.01)
        works = functions.process_id(ax.constant(1.0))
    async with ax.Session(graph, ax.SessionConfig(num_processes=1, worker_grace_s=None)) as session:
        pid = await session.run(works)
        while await session.run(works) == pid:
            with pytest.raises(ax.errors.DeadlineExceededError, match=r"timeout of 0\.01 s"):
                await session.run(endless)


@pytest.mark.allow_blocking
async def test_a_call_that_has_not_begun_is_dropped(graph: ax.Graph, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    with graph:
        endless = functions.run_for_ever(ax.constant(str(tmp_path)))
        never = functions.run_for_ever(ax.constant(str(tmp_path / "other")))
    (tmp_path / "other").rmdir()
    async with ax.Session(graph, ONE) as session:
        first = await started(session.run(endless))
        await has_begun(tmp_path)
        second = await started(session.run(never))
        assert session._state.processes.statistics().queued == 1
        second.cancel()
        with pytest.raises(asyncio.CancelledError):
            await second
        assert session._state.processes.statistics().queued == 0
        first.cancel()
        await asyncio.wait([first])


@pytest.mark.allow_blocking
async def test_close_ends_what_is_under_way(graph: ax.Graph, tmp_path: Path) -> None:
    with graph:
        endless = functions.run_for_ever(ax.constant(str(tmp_path)))
    session = ax.Session(graph, ax.SessionConfig(num_processes=1, worker_grace_s=0.0))
    run = await started(session.run(endless))
    await has_begun(tmp_path)
    await session.close()
    with pytest.raises(ax.errors.CancelledError):
        await run


@pytest.mark.allow_blocking
@ONCE
async def test_killed_before_there_is_a_process() -> None:
    """The call is interrupted while its process is still on its way."""
    lease, process = process_pool._Lease(), process_pool._WorkerProcess()
    lease.kill()
    lease.begin(process)
    with pytest.raises(ax.errors.UnavailableError, match="by signal 9"):
        await asyncio.to_thread(process.call, reference("process_id"), (1.0,), {})
    assert process.is_killed


@ONCE
async def test_retries(graph: ax.Graph, tmp_path: Path) -> None:
    with graph:
        fetch = functions.flaky(ax.constant(str(tmp_path)), retries=1)
    async with ax.Session(graph, ONE) as session:
        assert await session.run(fetch) == 5


@ONCE
async def test_free_threaded_builds_use_threads(graph: ax.Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_pool, "gil_is_enabled", lambda: False)
    with graph:
        fetch = functions.process_id(ax.constant(1.0))
    async with ax.Session(graph, ONE) as session:
        assert await session.run(fetch) == os.getpid()
        assert multiprocessing.active_children() == []


def plain_sum(a: float, b: float) -> float:
    return a + b


def test_functions_that_no_process_can_import() -> None:
    def inner(x: float) -> float:
        return x

    with pytest.raises(ax.errors.InvalidArgumentError, match="defined inside another"):
        ax.op(executor="process")(inner)
    with pytest.raises(ax.errors.InvalidArgumentError, match="lambda"):
        ax.op(executor="process", name="some")(lambda x: x)
    with pytest.raises(ax.errors.InvalidArgumentError, match="no name"):
        ax.op(executor="process", name="some")(functools.partial(plain_sum, 1))


def test_async_functions_and_unknown_executors() -> None:
    async def fetch(x: float) -> float:
        return x

    with pytest.raises(ax.errors.InvalidArgumentError, match="async function"):
        ax.op(executor="process")(fetch)
    with pytest.raises(ax.errors.InvalidArgumentError, match="no executor 'thread'"):
        ax.op(executor="thread")(fetch)  # type: ignore[call-overload]


@ONCE
async def test_a_name_that_stands_for_something_else(graph: ax.Graph) -> None:
    with graph:
        fetch = functions.hides(ax.constant(1.0), name="culprit")
    async with ax.Session(graph, ONE) as session:
        with pytest.raises(ax.errors.InvalidArgumentError, match="hidden is something else") as caught:
            await session.run(fetch)
        assert caught.value.node == "culprit"


def test_without_room_for_a_segment_values_travel_in_the_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    value = np.arange(LARGE)
    packed, segment = pack(value, f"asyncexec-{os.getpid():x}-test")
    assert segment is not None
    copied: Any = unpack(packed, segment, copy=True)
    segment.close()
    segment.unlink()
    np.testing.assert_array_equal(copied, value)
    monkeypatch.setattr(message, "_has_room", lambda size: False)
    packed, segment = pack(value, f"asyncexec-{os.getpid():x}-test")
    assert segment is None
    np.testing.assert_array_equal(unpack(packed, None, copy=True), value)


async def test_no_step_waits_for_the_loop_of_another(graph: ax.Graph) -> None:
    """Sessions have processes of their own."""
    with graph:
        fetch = functions.process_id(ax.constant(1.0))
    async with ax.Session(graph, ONE) as first, ax.Session(graph, ONE) as second:
        found = await asyncio.gather(first.run(fetch), second.run(fetch))
        assert len(set(found)) == 2
        await settle()
