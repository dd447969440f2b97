"""What every test gets: both event loops, no blocking calls in them, and nothing left behind.

- An ``async def`` test runs twice, on asyncio's loop and on uvloop; with mark ``virtual_clock`` once, on
  VirtualClockLoop.
- Of the variants of a test that differ only in what mark ``one_of`` names, one runs; the others are deep.  In folders
  about what happens within nodes and graphs, so it is with the loop.
- Tests that have mark ``first`` run first: nothing waits for them at the end.
- A collection of garbage looks only at what was made since the module of the test began.
- Every module of the package is imported before the first test: in a loop, none may read files.
- A call made by asyncexec that blocks a running loop (sleeping, files, sockets, locks that are held) raises
  ``blockbuster.BlockingError``, unless the test has mark ``allow_blocking``.
- A test fails that leaves a task, a thread or an open file descriptor behind.
- No convolution becomes native, but where a test asks for it: that is for the whole process, once much has been done.
- The graph is verified after each pass, and each step between passes.
- What a test records as its property "counts" is summed up at the end of the run.
- Hypothesis draws the same examples in each run; with ``--hypothesis-profile explore`` (as in check-deep), others.
"""

from __future__ import annotations

import asyncio
import gc
import inspect
import os
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Generator, Iterator, Mapping
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any
from unittest import mock
from zlib import crc32

import pytest
from blockbuster import BlockBuster
from hypothesis import settings

import asyncexec
from asyncexec.passes.pipeline import Pipeline
from asyncexec.session import executor_maker, library_passes
from asyncexec.testing import VirtualClockLoop
from tests.running import import_all_names

if sys.platform != "win32":
    import uvloop

# torch imports it if it is there, and a process that has TensorFlow's LLVM does not survive that of triton.
sys.modules.setdefault("triton", None)  # type: ignore[arg-type]

LoopFactory = Callable[[], asyncio.AbstractEventLoop]

# What a test started may need a moment to end after the test has: threads that were told to stop, for one.
GRACE_S = 10.0
OPEN_FILES = "/proc/self/fd" if Path("/proc/self/fd").exists() else None
# What mark ``one_of`` calls a parameter that pytest-asyncio has another name for.
PARAMETERS = {"loop": "_asyncio_loop_factory"}
# Parameters that are so wherever they occur.
ALWAYS_ONE_OF = {"stream_steps"}
# Folders whose tests ask nothing of the event loop: that a run gives what it should on either is for other tests.
ONE_LOOP_IN = {"compilation", "graph", "importers", "models", "ops", "optimization", "oracle", "passes", "placement"}

settings.register_profile("same", derandomize=True, deadline=None)
settings.register_profile("explore", derandomize=False, deadline=None)
settings.load_profile("same")

Pipeline.always_verifies_each = True


def pytest_asyncio_loop_factories(config: pytest.Config, item: pytest.Item) -> Mapping[str, LoopFactory]:
    """The loops an asynchronous test runs on, by the name that stands in its id."""
    virtual = item.get_closest_marker("virtual_clock")
    if virtual is not None:
        return {"virtual": partial(VirtualClockLoop, **virtual.kwargs)}
    factories: dict[str, LoopFactory] = {"asyncio": asyncio.new_event_loop}
    if sys.platform != "win32":
        factories["uvloop"] = uvloop.new_event_loop
    return factories


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect no garbage while tests are collected: they all stay, and each look takes longer than the one before."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_report_to_serializable() -> Generator[None, dict[str, Any], dict[str, Any]]:
    """Send no keywords of what has passed to the process that prints: they are most of a report, and not asked for."""
    data = yield
    if data["outcome"] == "passed" and "keywords" in data:
        data["keywords"] = {}
    return data


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sorts tests with mark ``first`` to the front, and marks as deep variants that need not run by default."""
    items.sort(key=lambda item: item.get_closest_marker("first") is None)
    keep_one_of_the_variants(items)


def keep_one_of_the_variants(items: list[pytest.Item]) -> None:
    """Marks as deep all but one of the variants that differ only in what ``one_of`` names.

    Which one stays goes round with the other parameters, and begins anywhere, so that each is there for some of them.
    """
    numbers: defaultdict[object, defaultdict[int, int]] = defaultdict(lambda: defaultdict(count().__next__))
    variants: defaultdict[tuple[Any, ...], list[pytest.Item]] = defaultdict(list)
    for item in items:
        params = item.callspec.params if hasattr(item, "callspec") else {}
        names = {name for mark in item.iter_markers("one_of") for name in mark.args}
        names |= ALWAYS_ONE_OF.intersection(params)
        if ONE_LOOP_IN.intersection(item.nodeid.split("/")[:2]) and PARAMETERS["loop"] in params:
            names.add("loop")
        if names:
            test, hidden = item.nodeid.partition("[")[0], {*names, *map(PARAMETERS.get, names)}
            others = [numbers[test, name][id(value)] for name, value in params.items() if name not in hidden]
            variants[test, *others].append(item)
    for (test, *others), found in variants.items():
        stays = found[(crc32(test.encode()) + sum(others)) % len(found)]
        for item in found:
            if item is not stays:
                item.add_marker("deep")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Tells what sweeps have counted: the sums of the properties "counts" of each test function."""
    sums: dict[str, Counter[str]] = {}
    for report in terminalreporter.getreports("passed"):
        for name, counts in getattr(report, "user_properties", ()):
            if name == "counts":
                sums.setdefault(report.location[2].partition("[")[0], Counter()).update(counts)
    for test, counted in sums.items():
        terminalreporter.write_line(f"{test}: {', '.join(f'{n} {what}' for what, n in counted.items())}")


@pytest.fixture(scope="session")
def blocking_guard() -> Iterator[BlockBuster]:
    """The guard that raises where asyncexec blocks a running loop; active for the whole session."""
    guard = BlockBuster(scanned_modules=[asyncexec])
    # Starting a thread waits until it runs, joining an ended one until it is gone: microseconds either way.
    guard.functions["threading.Lock.acquire"].can_block_in("executor/workers/offload.py", {"close"})
    guard.functions["threading.Lock.acquire"].can_block_in("process/load_threads.py", {"close"})
    guard.functions["threading.Lock.acquire"].can_block_in(
        "executor/workers/worker_threads.py", {"_start_thread", "leave", "join_threads"}
    )
    guard.functions["threading.Lock.acquire"].can_block_in("devices/device_events.py", {"_start_thread"})
    guard.functions["threading.Lock.acquire"].can_block_in("launchers/local_process.py", {"start"})
    guard.functions["threading.Lock.acquire"].can_block_in("executor/plans/native_calls.py", {"_start_thread"})
    guard.functions["threading.Lock.acquire"].can_block_in("executor/plans/tier.py", {"_make_elsewhere"})
    # What the system tells of the process is no file on a disk: a millisecond, and only before much is made.
    for function in guard.functions.values():
        function.can_block_in("process/blas_threads.py", {"_controllers"})
        function.can_block_in("process/free_memory.py", {"free_bytes"})
    guard.activate()
    yield guard
    guard.deactivate()


@pytest.fixture(autouse=True)
def no_blocking_calls(request: pytest.FixtureRequest, blocking_guard: BlockBuster) -> Iterator[None]:
    if request.node.get_closest_marker("allow_blocking") is None:
        yield
        return
    blocking_guard.deactivate()
    yield
    blocking_guard.activate()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--executor-type", default="DEFAULT", help="that of sessions whose config names none")


@pytest.fixture(scope="session", autouse=True)
def executor_type(pytestconfig: pytest.Config) -> Iterator[None]:
    with mock.patch.object(executor_maker, "DEFAULT_EXECUTOR_TYPE", pytestconfig.getoption("--executor-type")):
        yield


@pytest.fixture(scope="session", autouse=True)
def no_native_layers() -> Iterator[None]:
    """Convolutions become native for the process: what one test gets is not to depend on how much others convolved."""
    finder = library_passes.LayersFinder
    with mock.patch.multiple(finder, __call__=lambda *_: None, is_coming=lambda _: False):
        yield


@pytest.fixture(scope="session", autouse=True)
def all_names() -> None:
    import_all_names()


@pytest.fixture(scope="module", autouse=True)
def little_to_collect() -> None:
    """Lets collections look at nothing that there is before the module: tens of thousands of tests, for one."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="module")
def nothing_frozen(little_to_collect: None) -> None:
    """For tests of what asyncexec does with the collector itself."""
    gc.unfreeze()


@pytest.fixture(scope="session")
def warm_loops() -> None:
    """Runs each loop once: uvloop's first one opens a pipe that the process keeps."""
    if sys.platform != "win32":
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(asyncio.sleep(0))


@pytest.fixture(autouse=True)
def nothing_left_behind(no_blocking_calls: None, warm_loops: None) -> Iterator[None]:
    """Fails a test after which threads or open files are left that were not there before."""
    threads, files, interval = set(threading.enumerate()), open_files(), sys.getswitchinterval()
    yield
    left = new_threads(threads)
    if left:
        pytest.fail(f"the test left threads behind: {', '.join(thread.name for thread in left)}")
    if abs(sys.getswitchinterval() - interval) > 2e-6:  # Python cuts off what is less than a microsecond
        pytest.fail(f"the test left the switch interval of the GIL at {sys.getswitchinterval()} s")
    leaked = new_files(files)
    if leaked:
        pytest.fail(f"the test left files open: {sorted(leaked)}")


@pytest.fixture(autouse=True)
def no_task_left_behind(request: pytest.FixtureRequest, nothing_left_behind: None) -> Iterator[None]:
    """Asks the loop of an asynchronous test for leaked tasks, after all other fixtures of the test have ended.

    An asynchronous fixture would do the same, but take longer than most tests.
    """
    runner = request.getfixturevalue("_function_scoped_runner") if is_asynchronous(request.node) else None
    yield
    left = runner.run(leaked_tasks()) if runner is not None else None
    if left:
        pytest.fail(f"the test left tasks behind: {', '.join(map(repr, left))}")


async def leaked_tasks() -> set[asyncio.Task[Any]]:
    await asyncio.sleep(0)  # what was cancelled by the last act of the test ends in this turn of the loop
    return {task for task in asyncio.all_tasks() if task is not asyncio.current_task()}


def is_asynchronous(item: pytest.Item) -> bool:
    test = getattr(item, "obj", None)
    inner = getattr(getattr(test, "hypothesis", None), "inner_test", test)
    return inspect.iscoroutinefunction(inner)


def new_threads(before: set[threading.Thread]) -> set[threading.Thread]:
    """Threads that are not in *before* and do not end within the grace period."""
    deadline = time.monotonic() + GRACE_S
    left = {thread for thread in threading.enumerate() if thread not in before}
    for thread in left:
        thread.join(max(0.0, deadline - time.monotonic()))
    return {thread for thread in left if thread.is_alive()}


def new_files(before: set[tuple[str, str]]) -> set[tuple[str, str]]:
    """Open files that are not in *before*, and are not closed within the grace period, by the collector or a thread."""
    deadline = time.monotonic() + GRACE_S
    while left := open_files() - before:
        gc.collect()
        if time.monotonic() > deadline:
            break
    return left


def open_files() -> set[tuple[str, str]]:
    """Descriptor and target of every open file of this process, where the system tells them."""
    found = set()
    for fd in os.listdir(OPEN_FILES) if OPEN_FILES is not None else ():
        try:
            found.add((fd, os.readlink(f"{OPEN_FILES}/{fd}")))
        except FileNotFoundError:
            continue  # the descriptor that listed the folder
    return found
