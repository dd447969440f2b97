"""Parts that several threads share."""

from __future__ import annotations

import threading
from collections import Counter
from unittest import mock

import numpy as np
import pytest

from asyncexec.ops.array.windows import Axis
from asyncexec.ops.nn.convolution_matmul import convolve
from asyncexec.ops.nn.depthwise import depthwise
from asyncexec.process import shards
from asyncexec.process.cores import CoreBudget
from asyncexec.process.shards import LARGE, cores_granted, share


@pytest.fixture(autouse=True)
def _idle_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shards, "core_budget", CoreBudget(lambda: 3))


def threads_of(num_parts: int, num_bytes: int = LARGE) -> Counter[str]:
    """By which threads parts were worked on, of which the first ones wait for as many threads as there are cores."""
    seen: Counter[str] = Counter()
    meet = threading.Barrier(min(3, num_parts))

    def work(part: int) -> None:
        seen[threading.current_thread().name] += 1
        if part < meet.parties:
            meet.wait(timeout=60)

    share(work, range(num_parts), num_bytes)
    return seen


def test_each_part_is_done_once_by_as_many_threads_as_there_are_idle_cores() -> None:
    before = threading.active_count()
    seen = threads_of(20)
    assert len(seen) == 3
    assert seen.total() == 20
    assert threading.current_thread().name in seen
    assert threading.active_count() == before


def test_what_is_little_is_done_by_the_caller() -> None:
    seen: set[int] = set()
    share(lambda _: seen.add(threading.get_ident()), range(20), LARGE - 1)
    assert seen == {threading.get_ident()}


async def test_on_the_thread_of_an_event_loop_nobody_helps() -> None:
    seen: set[int] = set()
    share(lambda _: seen.add(threading.get_ident()), range(20), LARGE)
    assert seen == {threading.get_ident()}


def test_parts_of_parts_are_done_by_who_has_the_part() -> None:
    seen: list[set[int]] = []

    def work(part: int) -> None:
        inner: set[int] = set()
        share(lambda _: inner.add(threading.get_ident()), range(5), LARGE)
        seen.append(inner)

    share(work, range(6), LARGE)
    assert [len(each) for each in seen] == [1] * 6


def test_no_more_threads_are_taken_than_the_call_was_granted() -> None:
    events: list[str] = []

    class Around:
        def __enter__(self) -> None:
            events.append("in")

        def __exit__(self, *exc_info: object) -> None:
            events.append("out")

    with cores_granted(1, Around):
        seen: set[int] = set()
        share(lambda _: seen.add(threading.get_ident()), range(20), LARGE)
    assert seen == {threading.get_ident()}
    assert events == ["in", "out"]


def test_the_first_error_is_raised_once_all_threads_have_ended() -> None:
    before = threading.active_count()

    def work(part: int) -> None:
        if part == 7:
            raise ZeroDivisionError("part 7")

    with pytest.raises(ZeroDivisionError, match="part 7"):
        share(work, range(20), LARGE)
    assert threading.active_count() == before
    assert shards.core_budget.begin(is_large=True) == 3  # it was given back
    shards.core_budget.end()


def test_where_no_more_threads_can_start_those_that_are_there_do_all_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    before, start = threading.active_count(), threading.Thread.start

    def start_one(thread: threading.Thread) -> None:
        if threading.active_count() > before:
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", start_one)
    done: list[int] = []
    meet = threading.Barrier(2)

    def work(part: int) -> None:
        if part < meet.parties:
            meet.wait(timeout=60)
        done.append(part)

    share(work, range(20), LARGE)
    assert sorted(done) == list(range(20))
    assert threading.active_count() == before


def test_a_stop_iteration_of_a_part_is_an_error_as_any() -> None:
    with pytest.raises(StopIteration):
        share(lambda _: next(iter(())), range(20), LARGE)


def test_numpy_says_of_errors_what_it_says_to_the_caller() -> None:
    def work(part: int) -> None:
        np.divide(np.ones(4), np.zeros(4))

    with np.errstate(all="raise"), pytest.raises(FloatingPointError):
        share(work, range(20), LARGE)
    with np.errstate(all="ignore"):
        share(work, range(20), LARGE)


@pytest.mark.parametrize("shape", [(4, 72, 72, 24), (1, 160, 160, 24)], ids=["images", "rows"])
@pytest.mark.parametrize("out", [32, 64], ids=["by shifts", "by patches"])
def test_shared_convolutions_are_what_one_thread_gives(shape: tuple[int, ...], out: int) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=shape).astype(np.float32)
    filters = rng.normal(size=(3, 3, shape[-1], out)).astype(np.float32)
    axes = [Axis(size, 3, 1, 1, size, 1, 1) for size in shape[1:3]]
    with mock.patch.object(threading, "Thread", wraps=threading.Thread) as threads:
        shared = convolve(x, filters, axes)
        spread = depthwise(x, filters[..., :1], axes)
    assert threads.called
    with cores_granted(1):
        np.testing.assert_array_equal(shared, convolve(x, filters, axes))
        np.testing.assert_array_equal(spread, depthwise(x, filters[..., :1], axes))
