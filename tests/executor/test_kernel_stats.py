"""Where kernels run, decided by what they cost: fed by hand, without a clock."""

from __future__ import annotations

import numpy as np
import pytest

import asyncexec as ax
from asyncexec.compilation.bind_kernel import BoundKernel
from asyncexec.compilation.graph_view import NodeItem
from asyncexec.executor.diagnostics.kernel_stats import (
    ASYNC,
    INLINE,
    SIZED,
    WORKER,
    KernelStats,
    num_bytes,
)
from asyncexec.framework.clock import NS_PER_S
from asyncexec.framework.kernel import KernelKind

EXPENSIVE_NS = ax.CostModel().expensive_ns


@pytest.fixture(scope="module")
def node() -> ax.Operation:
    with ax.Graph():
        return ax.no_op()


def stats_of(node: ax.Operation, kind: KernelKind, is_expensive: bool | None = None) -> KernelStats:
    return KernelStats([NodeItem(0, node, BoundKernel(print, kind, is_expensive), 0, 0, 0)])


@pytest.mark.parametrize(
    ("kind", "is_expensive", "place"),
    [
        (KernelKind.CHEAP, None, INLINE),
        (KernelKind.CHEAP, False, INLINE),
        (KernelKind.EXPENSIVE, None, SIZED),
        (KernelKind.EXPENSIVE, True, WORKER),
        (KernelKind.EXPENSIVE, False, INLINE),
        (KernelKind.ASYNC, None, ASYNC),
    ],
)
def test_first_place(node: ax.Operation, kind: KernelKind, is_expensive: bool | None, place: int) -> None:
    assert stats_of(node, kind, is_expensive).places[:-1] == [place]


@pytest.mark.parametrize("sample_ns", [4 * EXPENSIVE_NS + 4, 100 * EXPENSIVE_NS, 10**12])
def test_two_runs_of_milliseconds_move_a_kernel(node: ax.Operation, sample_ns: int) -> None:
    stats = stats_of(node, KernelKind.CHEAP)
    stats.update(0, sample_ns)
    assert stats.places[:-1] == [INLINE]
    stats.update(0, sample_ns)
    assert stats.places[:-1] == [WORKER]


def test_two_pauses_are_soon_forgotten(node: ax.Operation) -> None:
    stats = stats_of(node, KernelKind.CHEAP)
    for _ in range(2):
        stats.update(0, 10**12)
    runs = 0
    while stats.places[:-1] == [WORKER]:
        stats.update(0, 1000)
        runs += 1
    assert runs <= 4


def test_pauses_far_apart_do_not_add_up(node: ax.Operation) -> None:
    """The cheap runs between them are not sampled; time stands for them."""
    stats = stats_of(node, KernelKind.CHEAP)
    for i in range(1, 1000):
        stats.update(0, 3 * EXPENSIVE_NS, now_ns=i * 10 * NS_PER_S)
        assert stats.places[:-1] == [INLINE]
    for i in range(5):
        stats.update(0, 3 * EXPENSIVE_NS, now_ns=10_000 * NS_PER_S + i)
    assert stats.places[:-1] == [WORKER]


def test_on_a_worker_every_run_is_seen_and_time_changes_nothing(node: ax.Operation) -> None:
    stats = stats_of(node, KernelKind.CHEAP)
    for _ in range(2):
        stats.update(0, 10**12, now_ns=0)
    for i in range(1, 10):
        stats.update(0, 2 * EXPENSIVE_NS, now_ns=i * 3600 * NS_PER_S)
        assert stats.places[:-1] == [WORKER]


def test_a_kernel_just_above_the_limit_moves_in_time(node: ax.Operation) -> None:
    stats = stats_of(node, KernelKind.CHEAP)
    stats.update(0, 2 * EXPENSIVE_NS)
    assert stats.places[:-1] == [INLINE]
    for _ in range(5):
        stats.update(0, 2 * EXPENSIVE_NS)
    assert stats.places[:-1] == [WORKER]


@pytest.mark.parametrize(
    ("kind", "is_expensive"),
    [(KernelKind.CHEAP, False), (KernelKind.EXPENSIVE, True), (KernelKind.ASYNC, None)],
)
def test_what_was_said_is_final(node: ax.Operation, kind: KernelKind, is_expensive: bool | None) -> None:
    stats = stats_of(node, kind, is_expensive)
    before = stats.places[:-1]
    for sample_ns in (0, 10**12, 10**12, 0, 0):
        stats.update(0, sample_ns)
        assert stats.places[:-1] == before


def test_a_sized_kernel_is_judged_by_what_it_costs_a_byte(node: ax.Operation) -> None:
    stats = stats_of(node, KernelKind.EXPENSIVE)
    assert not stats.is_quick(0, 32)  # nothing is known
    stats.update_sized(0, 32, 3_200, is_inline=False)
    assert stats.is_quick(0, 32)
    assert not stats.is_quick(0, 72_000_000)
    stats.update(0, 10**12)
    assert stats.places[:-1] == [SIZED]


def test_a_call_on_a_thread_takes_longer_than_it_would_in_the_loop(node: ax.Operation) -> None:
    stats = stats_of(node, KernelKind.EXPENSIVE)
    stats.update_sized(0, 1_000, EXPENSIVE_NS * 11 // 10, is_inline=False)
    assert stats.is_quick(0, 1_000)
    stats = stats_of(node, KernelKind.EXPENSIVE)
    stats.update_sized(0, 1_000, EXPENSIVE_NS * 5 // 4, is_inline=False)
    assert not stats.is_quick(0, 1_000)


def test_a_sized_kernel_at_the_limit_does_not_go_to_and_fro(node: ax.Operation) -> None:
    stats = stats_of(node, KernelKind.EXPENSIVE)
    stats.update_sized(0, 1_000, EXPENSIVE_NS, is_inline=False)
    for _ in range(20):
        stats.update_sized(0, 1_000, EXPENSIVE_NS * 7 // 5, is_inline=True)
        assert stats.is_quick(0, 1_000)
    stats.update_sized(0, 1_000, EXPENSIVE_NS * 2, is_inline=True)
    assert not stats.is_quick(0, 1_000)
    num_away = 0
    while not stats.is_quick(0, 1_000):
        stats.update_sized(0, 1_000, EXPENSIVE_NS, is_inline=False)
        num_away += 1
    assert num_away > 1


def test_num_bytes() -> None:
    assert num_bytes([np.zeros((2, 3), np.float32), np.float64(1), b"abc", object()]) == 24 + 8 + 3 + 1


@pytest.mark.parametrize("is_settled", [True, False])
def test_a_sized_kernel_that_may_take_another_way_next_time_is_not_quick(
    node: ax.Operation, *, is_settled: bool
) -> None:
    class Kernel:
        def __call__(self) -> None: ...

    kernel = Kernel()
    kernel.is_settled = is_settled  # type: ignore[attr-defined]
    stats = KernelStats([NodeItem(0, node, BoundKernel(kernel, KernelKind.EXPENSIVE, None), 0, 0, 0)])
    stats.update_sized(0, 32, 3_200, is_inline=False)
    assert stats.is_quick(0, 32) == is_settled


@pytest.mark.parametrize(("elapsed_ns", "place"), [(EXPENSIVE_NS, INLINE), (EXPENSIVE_NS + 1, SIZED)])
def test_what_is_sized_stays_so_where_it_was_slow_on_small_inputs(
    node: ax.Operation, elapsed_ns: int, place: int
) -> None:
    stats = stats_of(node, KernelKind.CHEAP)
    stats.places[0] = SIZED
    stats.update_sized(0, 1_000, elapsed_ns, is_inline=False)
    assert stats.places[:-1] == [place]


@pytest.mark.parametrize("count", [1, 4096, 4097, 100_000])
def test_of_very_many_texts_some_tell_how_long_all_are(count: int) -> None:
    texts = np.array([b"0123456789"] * count, object)
    assert num_bytes([texts]) == pytest.approx(18 * count, rel=0.01)
    assert num_bytes([np.zeros(0, object)]) == 0
