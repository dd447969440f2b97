"""``ax.BlockingSession`` and ``ax.run``: running from code that is not async."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from typing import Any

import pytest

import asyncexec as ax
from asyncexec.framework.attr_value import AttrValue
from asyncexec.framework.extras import is_installed
from tests.on_threads import at_once


@pytest.fixture
def graph() -> ax.Graph:
    @ax.op
    async def soon(x: float) -> None:
        await asyncio.sleep(0)

    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [], name="x")
        ax.add(x, 1.0, name="y")
        soon(x, name="soon")
    return graph


def test_run(graph: ax.Graph) -> None:
    with ax.BlockingSession(graph) as session:
        assert session.graph is graph
        assert session.run({"y": ["y:0"]}, {"x:0": 1.0}) == {"y": [2.0]}
        assert session.run("soon", {"x:0": 1.0}, targets=["y"]) is None
        metadata = ax.RunMetadata()
        session.run("y:0", {"x:0": 1.0}, options=ax.RunOptions(trace=True), metadata=metadata)
        assert metadata.step_stats.dev_stats


def test_callable(graph: ax.Graph) -> None:
    with ax.BlockingSession(graph) as session:
        call = session.make_callable("y:0", ["x:0"], targets=["soon"])
        assert [call(value) for value in (1.0, 2.0)] == [2.0, 3.0]
        with pytest.raises(ax.errors.InvalidArgumentError, match="takes 1 values"):
            call()


def test_extend(graph: ax.Graph) -> None:
    node = ax.NodeDef(name="z", op="Neg", input=["y"], attr={"T": AttrValue(type="DT_FLOAT")})
    with ax.BlockingSession(graph) as session:
        session.extend(ax.GraphDef(node=[node]))
        assert session.run("z:0", {"x:0": 1.0}) == -2.0
        with ax.Graph() as other:
            ax.raw_ops.ReadFile(filename=b"/none", name="read")
        session.extend(other.as_graph_def(), allowed_ops=["ReadFile"])
        with pytest.raises(ax.errors.NotFoundError):
            session.run("read:0")


def test_errors_are_those_of_the_session(graph: ax.Graph) -> None:
    with ax.BlockingSession(graph) as session:
        with pytest.raises(ax.errors.InvalidArgumentError, match="placeholder tensor 'x'"):
            session.run("y:0")
        with pytest.raises(ax.errors.InvalidArgumentError, match="'zz'"):
            session.make_callable("zz")
        assert session.run("y:0", {"x:0": 1.0}) == 2.0


def test_outside_of_its_block(graph: ax.Graph) -> None:
    session = ax.BlockingSession(graph)
    calls: list[Any] = [lambda: session.run("y:0"), lambda: session.make_callable("y:0")]
    for call in calls:
        with pytest.raises(ax.errors.FailedPreconditionError, match="not open"):
            call()
    with session, pytest.raises(ax.errors.FailedPreconditionError, match="open already"):
        session.__enter__()
    for call in calls:
        with pytest.raises(ax.errors.FailedPreconditionError, match="not open"):
            call()
    session.close()


def test_callable_after_close(graph: ax.Graph) -> None:
    with ax.BlockingSession(graph) as session:
        call = session.make_callable("y:0", ["x:0"])
    with pytest.raises(ax.errors.FailedPreconditionError, match="not open"):
        call(1.0)


def test_closed_session_does_not_open_again(graph: ax.Graph) -> None:
    session = ax.BlockingSession(graph)
    with session:
        pass
    with session, pytest.raises(ax.errors.CancelledError, match="has been closed"):
        session.run("y:0", {"x:0": 1.0})


@pytest.mark.allow_blocking
async def test_inside_a_running_loop(graph: ax.Graph) -> None:
    """As in a notebook: it has a loop of its own, on a thread of its own."""

    def use() -> Any:
        with ax.BlockingSession(graph) as session:
            return session.run("y:0", {"x:0": 1.0})

    assert use() == 2.0
    assert await asyncio.to_thread(use) == 2.0


def test_from_several_threads(graph: ax.Graph) -> None:
    results: list[float] = []
    with ax.BlockingSession(graph) as session:

        def work() -> None:
            results.extend(session.run("y:0", {"x:0": float(i)}) for i in range(50))

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(results) == sorted([i + 1.0 for i in range(50)] * 4)


def test_closed_from_another_thread_while_it_runs() -> None:
    with ax.Graph() as graph:
        taken = ax.FIFOQueue(1, [ax.float32], [[]]).dequeue()
    entered = threading.Event()
    caught: list[BaseException] = []
    with ax.BlockingSession(graph) as session:

        def work() -> None:
            entered.set()
            try:
                session.run(taken)
            except BaseException as error:
                caught.append(error)

        thread = threading.Thread(target=work)
        thread.start()
        entered.wait()
    thread.join()
    assert type(caught[0]) in (ax.errors.CancelledError, ax.errors.FailedPreconditionError)


def test_entered_where_no_thread_can_be_started(graph: ax.Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    session = ax.BlockingSession(graph)
    with monkeypatch.context() as patched:

        def start(thread: threading.Thread) -> None:
            raise RuntimeError("can't start new thread")

        patched.setattr(threading.Thread, "start", start)
        with pytest.raises(RuntimeError, match="can't start"):
            session.__enter__()
    with session:
        assert session.run("y:0", {"x:0": 1.0}) == 2.0


def test_entered_where_no_loop_can_be_made(graph: ax.Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> asyncio.AbstractEventLoop:
        raise OSError("too many open files")

    session = ax.BlockingSession(graph)
    with monkeypatch.context() as patched:
        patched.setattr("asyncexec.session.running._loop_factory", lambda: fail)
        with pytest.raises(OSError, match="too many"):
            session.__enter__()
    with session:
        assert session.run("y:0", {"x:0": 1.0}) == 2.0


def test_closed_by_several_threads_at_once(graph: ax.Graph) -> None:
    session = ax.BlockingSession(graph).__enter__()
    at_once(*[session.close] * 4)
    assert session._thread is None


def test_a_session_that_nobody_closes_is_closed_with_a_warning(graph: ax.Graph) -> None:
    session = ax.BlockingSession(graph).__enter__()
    assert session.run("y:0", {"x:0": 1.0}) == 2.0
    with pytest.warns(ResourceWarning, match="unclosed .*BlockingSession"):
        del session


def test_a_session_that_nobody_closes_ends_what_goes_on_in_it() -> None:
    began, ended = threading.Event(), threading.Event()

    @ax.op
    async def wait(x: float) -> float:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return x

    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [])
        fetch = wait(x)
    session = ax.BlockingSession(graph).__enter__()
    run: list[asyncio.Task[Any]] = []

    async def begin(inner: ax.Session) -> None:
        run.append(asyncio.create_task(inner.run(fetch, {x: 1.0})))

    session._open_thread().call(begin, session._session)
    began.wait()  # a task that is cancelled before its first step does nothing
    with pytest.warns(ResourceWarning, match="unclosed .*BlockingSession"):
        del session
    ended.wait()


# A session that nobody closes: its loop has nothing to do, or a daemon thread has begun a step that goes on and on.
FORGETFUL = """
import asyncio, sys, threading
import asyncexec as ax
from asyncexec.session import running

loop, kind = sys.argv[1:]
if loop == "asyncio":
    running.is_installed = lambda name: False
began = threading.Event()

@ax.op
async def turns(x: float) -> float:
    began.set()
    while True:
        await asyncio.sleep(0)

@ax.op(expensive=True)
def works(x: float) -> float:
    began.set()
    while True:
        pass

with ax.Graph() as graph:
    x = ax.placeholder(ax.float64, [])
    fetches = {"idle": x + 1.0, "turns": turns(x), "works": works(x)}
session = ax.BlockingSession(graph).__enter__()
print(session.run(fetches["idle"], {x: 1.0}))
if kind != "idle":
    threading.Thread(target=session.run, args=(fetches[kind], {x: 1.0}), daemon=True).start()
    began.wait()
"""


@pytest.mark.one_of("loop")
@pytest.mark.parametrize("kind", ["idle", "turns", "works"])
@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_a_forgotten_session_does_not_hold_the_exit_of_the_process(loop: str, kind: str) -> None:
    command = [sys.executable, "-W", "always::ResourceWarning", "-c", FORGETFUL, loop, kind]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "2.0\n"), done.stderr
    assert ("unclosed <ax.BlockingSession" in done.stderr) == (kind == "idle")
    assert "Traceback" not in done.stderr


def test_what_the_block_raises_comes_out(graph: ax.Graph) -> None:
    with pytest.raises(KeyError, match="mine"), ax.BlockingSession(graph):
        raise KeyError("mine")


async def loop_name() -> str:
    return type(asyncio.get_running_loop()).__module__.partition(".")[0]


def test_run_takes_a_coroutine_or_a_function() -> None:
    expected = "uvloop" if is_installed("uvloop") else "asyncio"
    assert ax.run(loop_name()) == ax.run(loop_name) == expected


def test_run_without_uvloop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("asyncexec.session.running.is_installed", lambda name: False)
    assert ax.run(loop_name) == "asyncio"


def test_run_ends_what_the_main_function_left() -> None:
    ended: list[str] = []

    async def linger() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("linger")

    async def main() -> str:
        main.task = asyncio.ensure_future(linger())  # type: ignore[attr-defined]
        await asyncio.sleep(0)
        return "done"

    assert ax.run(main) == "done"
    assert ended == ["linger"]


async def test_run_inside_a_loop() -> None:
    for main in (loop_name, loop_name()):
        with pytest.raises(ax.errors.FailedPreconditionError, match="one is running here"):
            ax.run(main)
