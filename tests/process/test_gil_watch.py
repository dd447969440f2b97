"""Who holds the GIL on a worker thread is found out, and who does not is left in peace."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import asyncexec as ax
from asyncexec.framework.clock import NS_PER_MS
from asyncexec.framework.interpreter import gil_is_enabled
from asyncexec.framework.kernel_warning import KernelWarning
from asyncexec.process import gil_watch
from asyncexec.process.gil_watch import Finding, GilWatch
from tests.running import raw_op

MS = NS_PER_MS


def watch() -> GilWatch:
    return GilWatch(lambda: ["node"])


@pytest.fixture
def gil(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is one, whatever the build."""
    monkeypatch.setattr(gil_watch, "gil_is_enabled", lambda: True)


def busy(wall_ms: int = 100, cpu_ms: int = 100) -> Finding:
    return Finding("node", wall_ms * MS, cpu_ms * MS)


def watched(held_ms: int, free_ms: int) -> Finding:
    return busy()._replace(held_ns=held_ms * MS, free_ns=free_ms * MS)


@pytest.mark.parametrize(
    ("findings", "verdicts"),
    [
        ([watched(60, 0)], [True]),
        ([watched(30, 0), watched(30, 5)], [False, True]),
        ([watched(60, 20)], [False]),
        ([watched(60, 20), watched(60, 0)], [False, True]),
        ([watched(0, 60), watched(500, 0)], [False, False]),
        ([watched(60, 0), watched(60, 0)], [True, False]),
        ([busy()] * 40, [False] * 40),
        ([busy(9, 9)] * 40, [False] * 40),
        ([busy()] + [watched(0, 1)] * 31, [False] * 32),
    ],
    ids=[
        "held",
        "held in two calls",
        "doubtful",
        "settled later",
        "free once is free",
        "told once",
        "never watched",
        "never a suspect",
        "watched often",
    ],
)
def test_verdicts(findings: list[Finding], verdicts: list[bool]) -> None:
    found = watch()
    assert [found.judge(finding) for finding in findings] == verdicts
    assert found.is_judged("node") == (findings not in ([watched(60, 20)], [busy()] * 40))


@pytest.mark.usefixtures("gil")
def test_only_suspects_are_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    found, started = watch(), list[bool]()
    monkeypatch.setattr(gil_watch._Probe, "start", lambda self: started.append(True))
    monkeypatch.setattr(gil_watch._Probe, "stop", lambda self: None)
    for finding in (busy(9, 9), busy(1000, 10)):  # short, or waiting and not computing
        found.judge(finding)
        _, after = found.call("node", lambda: 1)
        assert after is not None
        assert after.held_ns is None
    found.judge(busy(100, 25))  # four share the GIL
    _, after = found.call("node", lambda: 1)
    assert after is not None
    assert (after.held_ns, after.free_ns) == (0, 0)
    assert started == [True]


class Watched:
    """How many calls are watched."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.number, self.now = 0, 1000 * MS
        monkeypatch.setattr(gil_watch._Probe, "start", self._start)
        monkeypatch.setattr(gil_watch._Probe, "stop", lambda probe: None)
        self.watch = GilWatch(lambda: ["node"], ax.Clock(now_ns=lambda: self.now))

    def _start(self, *_: object) -> None:
        self.number += 1

    def pass_time(self, milliseconds: int) -> None:
        self.now += milliseconds * MS


@pytest.mark.usefixtures("gil")
def test_one_call_at_a_time_is_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = Watched(monkeypatch)
    found = seen.watch
    for name in ("one", "other"):
        found.judge(busy()._replace(name=name))
    found.call("one", lambda: found.call("other", lambda: 1))
    assert seen.number == 1


@pytest.mark.usefixtures("gil")
def test_a_rest_after_each_watch_but_for_who_seems_guilty(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = Watched(monkeypatch)
    found = seen.watch
    for name in ("one", "other"):
        found.judge(busy()._replace(name=name))
    found.call("one", lambda: seen.pass_time(10))
    seen.pass_time(79)
    found.call("one", lambda: 1)
    found.call("other", lambda: 1)
    assert seen.number == 1
    found.judge(watched(10, 0)._replace(name="other"))
    found.call("other", lambda: seen.pass_time(10))
    assert seen.number == 2
    seen.pass_time(81)
    found.call("one", lambda: 1)
    assert seen.number == 3


@pytest.mark.usefixtures("gil")
def test_an_error_ends_the_probe() -> None:
    found = watch()
    found.judge(busy())
    with pytest.raises(ZeroDivisionError):
        found.call("node", lambda: 1 // 0)
    assert [thread for thread in threading.enumerate() if "gil-probe" in thread.name] == []


def test_where_there_is_no_gil_nobody_is_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = Watched(monkeypatch)
    found = seen.watch
    found.judge(busy())
    monkeypatch.setattr(gil_watch, "gil_is_enabled", lambda: False)
    assert found.call("node", lambda: 1) == (1, None)
    assert seen.number == 0
    monkeypatch.setattr(gil_watch, "gil_is_enabled", lambda: True)  # an extension that was imported wants it
    found.call("node", lambda: 1)
    assert seen.number == 1


def compute_in_python(x: Any) -> int:
    return sum(i * i for i in range(2_000_000))


def compute_in_numpy(x: Any) -> Any:
    array = np.ones(200_000)
    for _ in range(100):
        np.exp(array, out=array)
        np.log(array, out=array)
    return array


def wait(x: Any) -> None:
    threading.Event().wait(0.012)


@pytest.mark.deep
@pytest.mark.timeout(600)
@pytest.mark.skipif(not gil_is_enabled(), reason="a free-threaded build has no GIL to hold")
async def test_a_kernel_that_holds_the_gil_is_named_once() -> None:
    """On a machine that is too busy to tell it is not, so there are some attempts, which may take a minute."""
    with ax.Graph() as graph:
        fetch = raw_op("InPython", compute_in_python, is_expensive=True)(ax.constant(1.0), name="selfish")
    caught: list[warnings.WarningMessage] = []
    for _ in range(20):
        async with ax.Session(graph) as session:
            (pool,) = session._state.pools.values()
            with warnings.catch_warnings(record=True, category=KernelWarning, action="always") as caught:
                while not pool._gil_watch.is_judged("selfish"):
                    await session.run(fetch)
                for _ in range(5):
                    await session.run(fetch)
        if caught:
            break
    (warning,) = caught
    assert "node 'selfish' holds the GIL" in str(warning.message)
    assert "executor='process'" in str(warning.message)


@pytest.mark.parametrize("kernel", [compute_in_numpy, wait], ids=["computes without it", "waits"])
@pytest.mark.usefixtures("gil")
async def test_a_kernel_that_lets_go_of_the_gil_is_not(kernel: Callable[..., Any]) -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.object, [], name="x")
        fetch = raw_op("Fair", kernel, is_expensive=True)(x, name="fair")
    async with ax.Session(graph, ax.SessionConfig(slow_inline_ms=None)) as session:
        (pool,) = session._state.pools.values()
        runs = 0
        while not pool._gil_watch.is_judged("fair"):
            await session.run(fetch, {x: runs})
            runs += 1
        assert runs > 1
