"""When a signature is compiled: behind its runs and in later turns of the loop, for no longer than the runs took."""

from __future__ import annotations

import asyncio
import gc
import threading
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from asyncexec.executor.diagnostics.kernel_stats import LARGE_SIZE
from asyncexec.executor.plans.region_plan import RegionPlan
from asyncexec.executor.plans.tier import OPTIMIZE_AFTER, TURN_NS, WARM_UP, AnyPlan, Tier
from asyncexec.framework.clock import Clock
from asyncexec.framework.cooperative import TURNS, Stage

PART_NS = TURN_NS // 10  # how long each part of the work takes
PARTS = 100
PLAN = cast(AnyPlan, SimpleNamespace(limits=None, compiles_nothing=False, is_quick=True, may_be_called=False))


class Work:
    """What compiles something, part by part, and the clock of a world in which nothing else takes time."""

    def __init__(self, failure: Exception | None = None) -> None:
        self.now_ns = 0
        self.failure = failure
        self.done = 0

    def compile(self) -> Stage[AnyPlan | None]:
        for _ in range(PARTS):
            self.now_ns += PART_NS
            self.done += 1
            yield
        if self.failure is not None:
            raise self.failure
        return PLAN

    def tier(self) -> Tier:
        tier = Tier(self.compile, clock=Clock(now_ns=lambda: self.now_ns))
        tier._num_runs = WARM_UP
        return tier


@pytest.mark.parametrize(
    ("sizes", "varying", "is_compiled"),
    [
        ((1, 1), (0, 1), True),
        ((LARGE_SIZE + 1, 1), (0, 1), False),
        ((1, LARGE_SIZE + 1), (0,), True),  # each run has so much of it
        ((LARGE_SIZE, LARGE_SIZE), (0, 1), True),
    ],
)
async def test_feeds_that_may_be_larger_than_measured_are_not_for_the_compiled_plan(
    sizes: tuple[int, int], varying: tuple[int, ...], is_compiled: bool
) -> None:
    tier = Tier(None, varying=varying)
    feeds = [np.zeros(size, np.uint8) for size in sizes]
    assert tier.plan_for(feeds) is None
    tier.compiled = PLAN
    assert (tier.plan_for(feeds) is PLAN) == is_compiled


async def test_a_plan_with_limits_has_the_feeds_within_them() -> None:
    tier = Tier(None, varying=(0,))
    admitted: list[int] = []
    limits = SimpleNamespace(admit=lambda feeds: feeds[0].nbytes in admitted)
    tier.compiled = plan = cast(AnyPlan, SimpleNamespace(limits=limits))
    for size in (10, LARGE_SIZE + 1):
        assert tier.plan_for([np.zeros(size, np.uint8)]) is None
        admitted.append(size)
    assert tier.plan_for([np.zeros(10, np.uint8)]) is plan
    assert (
        tier.plan_for([np.zeros(LARGE_SIZE + 1, np.uint8)]) is None
    )  # the others in it were not measured with so much


async def turns(count: int) -> None:
    """Let others go on so many times."""
    for _ in range(count * TURNS):
        await asyncio.sleep(0)


@dataclass
class SlowPlan:
    """A plan that has turned out to hold the event loop, or not."""

    is_quick: bool
    may_be_called = compiles_nothing = False


@pytest.mark.parametrize("is_quick", [True, False])
async def test_plan_that_held_the_loop_is_remembered(is_quick: bool) -> None:
    plan = cast(AnyPlan, SlowPlan(is_quick))
    tier = Tier(None)
    tier.compiled = plan
    tier.note_compiled_run(plan)
    assert (tier.compiled is plan) is is_quick
    assert tier.was_slow is not is_quick


async def test_what_comes_to_no_plan_is_optimized_once_it_has_had_its_chances() -> None:
    tried: list[str] = []

    def make(name: str, plan: AnyPlan | None) -> Stage[AnyPlan | None]:
        tried.append(name)
        yield from ()
        return plan

    tier = Tier(partial(make, "as it is", None), partial(make, "optimized", PLAN))
    runs = 0
    while tier.compiled is None:
        tier.note_run(1_000_000)
        runs += 1
    assert tried == ["as it is", "as it is", "as it is", "optimized"]
    assert runs == WARM_UP + 8 * WARM_UP + 64 * WARM_UP
    assert tier.compiled is PLAN


async def test_a_plan_in_which_nothing_is_compiled_gives_way_to_one_in_which_something_is() -> None:
    bare = cast(AnyPlan, SimpleNamespace(compiles_nothing=True, is_quick=True))
    is_cheap, tried = False, []

    def make(name: str) -> Stage[AnyPlan | None]:
        tried.append(name)
        yield from ()
        return PLAN if is_cheap else bare if name == "optimized" else None

    tier = Tier(partial(make, "as it is"), partial(make, "optimized"))
    while tier.compiled is None:
        tier.note_run(1_000_000)
    assert tier.compiled is bare
    del tried[:]
    for _ in range(8**3 * WARM_UP):
        tier.note_compiled_run(bare, 1_000_000)
    assert (tier.compiled, tried) == (bare, ["as it is"])  # and it is not made anew
    is_cheap = True
    for _ in range(8**4 * WARM_UP):
        tier.note_compiled_run(bare, 1_000_000)
    assert tier.compiled is PLAN
    for _ in range(OPTIMIZE_AFTER):
        tier.note_compiled_run(PLAN, 1_000_000)
    assert tried == ["as it is", "as it is", "optimized"]
    assert not tier.is_counting


@pytest.mark.parametrize("begins_on_loop", [False, True])
async def test_regions_give_way_to_one_plan_once_no_node_is_on_a_worker_thread(begins_on_loop: bool) -> None:
    executor = SimpleNamespace(stays_on_loop=begins_on_loop)
    regions = RegionPlan(cast(Any, executor), [cast(Any, SlowPlan(is_quick=True))])
    plan, tried = regions, []

    def make(name: str) -> Stage[AnyPlan | None]:
        tried.append(name)
        yield from ()
        return plan

    tier = Tier(partial(make, "as it is"), partial(make, "optimized"))
    while tier.compiled is None:
        tier.note_run(1_000_000)
    for _ in range(100 * OPTIMIZE_AFTER):
        tier.note_compiled_run(regions, 1_000_000)
    assert tried == ["as it is", "optimized"]
    assert tier.is_counting is not begins_on_loop
    executor.stays_on_loop, plan = True, cast(Any, PLAN)
    for _ in range(8 * OPTIMIZE_AFTER):
        tier.note_compiled_run(tier.compiled, 1_000_000)
    assert (tier.compiled is PLAN) is not begins_on_loop  # else there was another reason for regions
    assert tried == ["as it is", "optimized", "optimized"][: 3 - begins_on_loop]
    assert not tier.is_counting


async def test_a_long_run_pays_for_all_of_it_slice_by_slice() -> None:
    work = Work()
    tier = work.tier()
    tier.note_run(20 * TURN_NS)
    slices = [work.done]
    while tier.compiled is None:
        await turns(1)
        slices.append(work.done)
        assert len(slices) < PARTS
    assert tier.compiled is PLAN
    assert slices == [*range(10, PARTS, 10), PARTS, PARTS]


async def test_short_runs_pay_for_as_long_as_they_took() -> None:
    work = Work()
    tier = work.tier()
    for runs in range(1, 7):
        tier.note_run(3 * TURN_NS // 2)
        assert work.done == 15 * runs - 5
        await turns(10)
        assert work.done == 15 * runs
        tier.note_run(TURN_NS // 2)  # in which half a slice of compiling was
        assert work.done == 15 * runs
    assert tier.compiled is None


async def test_runs_at_once_share_a_turn() -> None:
    work = Work()
    tier = work.tier()
    for _ in range(4):
        tier.note_run(3 * TURN_NS)
    assert work.done == 40
    await turns(1)
    assert work.done == 50


async def test_one_signature_goes_on_in_a_turn() -> None:
    works = [Work() for _ in range(3)]
    tiers = [work.tier() for work in works]
    for tier in tiers:
        tier.note_run(4 * TURN_NS)
    assert [work.done for work in works] == [10, 10, 10]
    for turn in range(1, 7):
        await turns(1)
        assert sum(work.done for work in works) == 30 + 10 * turn
    assert [work.done for work in works] == [30, 30, 30]


async def test_nothing_goes_on_for_a_signature_that_is_gone() -> None:
    work = Work()
    tier = work.tier()
    tier.note_run(20 * TURN_NS)
    del tier
    await turns(3)
    assert work.done == 10


@pytest.mark.parametrize("turns_before", [0, 1])
def test_a_loop_that_ends_first_is_not_waited_for(turns_before: int) -> None:
    work = Work()
    tier = work.tier()

    async def run(after: int) -> None:
        tier.note_run(4 * TURN_NS)
        await turns(after)

    loop = asyncio.new_event_loop()
    loop.run_until_complete(run(turns_before))
    loop.close()
    asyncio.run(run(20))
    assert work.done == 80 - 10 * turns_before  # the turns of the first loop are taken for a part of the second run


def test_a_turn_of_a_loop_that_the_session_has_left_does_nothing() -> None:
    work = Work()
    tier = work.tier()

    async def run() -> None:
        tier.note_run(4 * TURN_NS)

    async def wait() -> None:
        await turns(5)

    first, second = asyncio.new_event_loop(), asyncio.new_event_loop()
    first.run_until_complete(run())
    second.run_until_complete(run())
    done = work.done
    first.run_until_complete(wait())
    assert work.done == done
    second.run_until_complete(wait())
    assert work.done > done
    first.close()
    second.close()


@pytest.mark.allow_blocking
def test_two_threads_do_not_go_on_at_once() -> None:
    """A session that nothing runs in may go to the loop of another thread, while a turn of its own loop is not over."""
    reached, may_go_on = threading.Event(), threading.Event()

    def stage() -> Stage[AnyPlan | None]:
        reached.set()
        assert may_go_on.wait(60)
        yield
        return PLAN

    tier = Tier(stage)

    async def run() -> None:
        tier.note_run(TURN_NS, WARM_UP)

    thread = threading.Thread(target=asyncio.run, args=(run(),))
    thread.start()
    assert reached.wait(60)
    asyncio.run(run())
    assert tier.compiled is None
    may_go_on.set()
    thread.join()
    for _ in range(3):
        asyncio.run(run())
    assert tier.compiled is PLAN


async def test_what_fails_is_told_and_tried_no_more() -> None:
    work = Work(ValueError("no such thing"))
    tier = work.tier()
    tier.note_run(20 * TURN_NS)
    with pytest.warns(RuntimeWarning, match="ValueError: no such thing"):
        await turns(20)
    tier.note_run(20 * TURN_NS)
    await turns(20)
    assert (work.done, tier.compiled) == (PARTS, None)


async def test_what_it_makes_is_not_collected_in_a_slice() -> None:
    before, inside = gc.get_threshold(), []

    def compile_it() -> Stage[AnyPlan | None]:
        inside.append(gc.get_threshold())
        yield
        return PLAN

    tier = Tier(compile_it)
    tier.note_run(TURN_NS, WARM_UP)
    assert len(inside) == 1
    assert inside[0] != before == gc.get_threshold()


async def test_a_call_that_takes_long_is_made_on_another_thread_meanwhile_runs_go_on() -> None:
    has_begun, may_end, threads = asyncio.Event(), threading.Event(), []
    loop = asyncio.get_running_loop()

    def import_it() -> None:
        threads.append(threading.current_thread())
        loop.call_soon_threadsafe(has_begun.set)
        may_end.wait()

    def compile_it() -> Stage[AnyPlan | None]:
        yield import_it
        return PLAN

    tier = Tier(compile_it)
    tier.note_run(TURN_NS, WARM_UP)
    await has_begun.wait()
    tier.note_run(TURN_NS)
    before = tier.compiled
    may_end.set()
    while tier.compiled is None:  # noqa: ASYNC110 - the thread tells the loop
        await asyncio.sleep(0)
    assert (before, len(threads)) == (None, 1)
    assert threads[0] is not threading.current_thread()


async def test_runs_that_follow_one_another_go_on_once_a_call_elsewhere_is_over() -> None:
    """The loop has no turn in which to tell of its end."""

    def compile_it() -> Stage[AnyPlan | None]:
        threads.append(threading.get_ident())
        yield lambda: threads.append(threading.get_ident())
        return PLAN

    threads: list[int] = []
    tier = Tier(compile_it)
    tier._num_runs = WARM_UP
    while tier.compiled is None:
        tier.note_run(TURN_NS)
    here, there = threads
    assert here == threading.get_ident() != there
