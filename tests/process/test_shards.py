"""Parts that several threads share."""

from __future__ import annotations

import gc
import threading
import weakref
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from contextvars import copy_context
from typing import Any
from unittest import mock

import numpy as np
import pytest

from asyncexec.ops.array.windows import Axis
from asyncexec.ops.math import shared_product
from asyncexec.ops.nn.convolution_matmul import convolve
from asyncexec.ops.nn.depthwise import depthwise
from asyncexec.process import shards
from asyncexec.process.cores import CoreBudget
from asyncexec.process.shards import LARGE, cores_granted, is_shared, let_help, share, waited_ns


@pytest.fixture(autouse=True)
def _idle_cores(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Two threads that help this one."""
    monkeypatch.setattr(shards, "core_budget", CoreBudget(lambda: 3))
    monkeypatch.setattr(shared_product, "num_cores", lambda: 3)
    with ThreadPoolExecutor(2) as pool:

        def help_with(go_on: shards.GoOn, count: int) -> None:
            def work() -> None:
                while go_on():
                    pass

            for _ in range(count):
                pool.submit(copy_context().run, work)

        let_help(help_with)
        yield
        let_help(None)


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
    seen = threads_of(20)
    assert len(seen) == 3
    assert seen.total() == 20
    assert threading.current_thread().name in seen


def test_a_thread_knows_how_long_it_has_waited_for_who_helps() -> None:
    before, caller, begun, may_end = waited_ns(), threading.current_thread(), threading.Event(), threading.Event()

    def work(part: int) -> None:
        if threading.current_thread() is caller:
            assert begun.wait(60)
            may_end.set()
        else:
            begun.set()
            assert may_end.wait(60)

    share(work, range(2), LARGE)
    assert waited_ns() > before


def test_what_is_little_is_done_by_the_caller() -> None:
    seen: set[int] = set()
    share(lambda _: seen.add(threading.get_ident()), range(20), LARGE - 1)
    assert seen == {threading.get_ident()}


@pytest.mark.parametrize(("num_parts", "wanted"), [(1, False), (2, True)])
def test_a_part_knows_whether_others_may_be_under_way(num_parts: int, wanted: bool) -> None:
    seen: list[bool] = []
    share(lambda _: seen.append(is_shared()), range(num_parts), LARGE)
    assert seen == [wanted] * num_parts
    assert not is_shared()


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
    assert not events
    meet = threading.Barrier(2)

    def work(part: int) -> None:
        if part < meet.parties:
            meet.wait(timeout=60)
        seen.add(threading.get_ident())

    with cores_granted(2, Around):
        share(work, range(20), LARGE)
    assert len(seen) == 2
    assert events == ["in", "out"]


def test_the_first_error_is_raised_once_all_threads_have_ended() -> None:
    def work(part: int) -> None:
        if part == 7:
            raise ZeroDivisionError("part 7")

    with pytest.raises(ZeroDivisionError, match="part 7"):
        share(work, range(20), LARGE)
    assert shards.core_budget.begin(is_large=True) == 3  # it was given back
    shards.core_budget.end()


def test_helpers_that_come_late_or_never_are_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    late: list[shards.GoOn] = []
    let_help(lambda go_on, count: late.extend([go_on] * count))
    done: list[int] = []
    share(done.append, range(20), LARGE)
    assert done == list(range(20))
    assert [go_on() for go_on in late] == [False, False]


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
    with mock.patch.object(shards, "_share", wraps=shards._share) as shares:
        shared = convolve(x, filters, axes)
        spread = depthwise(x, filters[..., :1], axes)
    assert shares.called
    with cores_granted(1):
        np.testing.assert_array_equal(shared, convolve(x, filters, axes))
        np.testing.assert_array_equal(spread, depthwise(x, filters[..., :1], axes))


@pytest.mark.parametrize("shapes", [((300, 400), (400, 200)), ((12, 128, 64), (12, 64, 128))])
def test_nobody_helps_with_products_for_which_blas_may_take_all_cores(shapes: tuple[tuple[int, ...], ...]) -> None:
    """As where the session leaves BLAS to the host application, or nothing finds it."""
    asked: list[int] = []
    let_help(lambda _, count: asked.append(count))
    a, b = (np.ones(shape, np.float32) for shape in shapes)
    shared_product.multiply(a, b)
    assert not asked
    with cores_granted(3):
        shared_product.multiply(a, b)
    assert asked == [2]


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ((300, 400), (400, 200)),
        ((100, 900), (900, 600)),
        ((1, 128, 700), (700, 300)),
        ((1, 256, 300), (1, 300, 300)),
        ((12, 128, 64), (12, 64, 128)),
        ((2, 3, 128, 64), (3, 64, 128)),
    ],
)
def test_shared_products_are_those_of_numpy(left: tuple[int, ...], right: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    a, b = (rng.normal(size=shape).astype(np.float32) for shape in (left, right))
    with cores_granted(3):
        shared = shared_product.multiply(a, b)
    np.testing.assert_allclose(shared, a @ b, rtol=1e-4, atol=1e-4)
    with cores_granted(1):
        np.testing.assert_array_equal(shared, shared_product.multiply(a, b))


def test_nothing_of_a_call_that_fails_outlives_its_error() -> None:
    def failing() -> weakref.ref[Any]:
        scratch = np.zeros(8).view(Scratch)

        def work(part: int) -> None:
            scratch[part] = 1 / (5 - part)

        with suppress(ZeroDivisionError):
            share(work, range(8), LARGE)
        return weakref.ref(scratch)

    class Scratch(np.ndarray[Any, Any]):
        """An array that can be watched."""

    let_help(lambda go_on, count: None)  # those who come late would hold it until then
    gc.disable()
    try:
        assert failing()() is None
    finally:
        gc.enable()
