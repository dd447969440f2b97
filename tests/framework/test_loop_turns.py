"""LoopTurns: what begins in one turn of the event loop, and who is next."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from asyncexec.framework.loop_turns import LoopTurns
from tests.fake_time import FakeTime

SLICE_NS = 1_000
TICK = "|"


async def begun(parts: Sequence[tuple[str, str]], cost_ns: int, turns: LoopTurns, time: FakeTime) -> str:
    """The names of *parts*, each of a group, in the order in which they begin; TICK is between turns of the loop."""
    found: list[str] = []

    async def part(name: str, group: str) -> None:
        await turns.enter(group)
        found.append(name)
        time.now_ns += cost_ns

    async def tick() -> None:
        while True:
            await asyncio.sleep(0)
            found.append(TICK)

    async with asyncio.TaskGroup() as group:
        ticker = asyncio.create_task(tick())
        await asyncio.gather(*[group.create_task(part(*each)) for each in parts])
        ticker.cancel()
    return "".join(found).strip(TICK)


async def test_no_more_begin_in_a_turn_than_a_slice_has_time_for() -> None:
    time = FakeTime()
    turns = LoopTurns(time.clock, SLICE_NS)
    found = await begun([(f"{i % 10}", f"{i}") for i in range(60)], SLICE_NS // 4, turns, time)
    assert len(found.replace(TICK, "")) == 60
    most = max(map(len, found.split(TICK)))
    assert 4 <= most <= 8  # the number is found by doubling it
    assert found.count(TICK) >= 60 // 8


async def test_what_takes_longer_than_a_slice_begins_alone() -> None:
    time = FakeTime()
    found = await begun([(name, name) for name in "abcd"], 2 * SLICE_NS, LoopTurns(time.clock, SLICE_NS), time)
    assert [each for each in found.split(TICK) if each] == ["a", "b", "c", "d"]


async def test_of_one_group_the_last_is_next_and_groups_take_turns() -> None:
    time = FakeTime()
    parts = [("a", "g"), ("b", "g"), ("c", "g"), ("x", "h"), ("y", "h"), ("d", "g")]
    found = await begun(parts, 2 * SLICE_NS, LoopTurns(time.clock, SLICE_NS), time)
    assert found.replace(TICK, "") == "a" + "dycxb"


async def test_who_is_cancelled_is_passed_over() -> None:
    time = FakeTime()
    turns = LoopTurns(time.clock, SLICE_NS)
    found: list[str] = []

    async def part(name: str) -> None:
        await turns.enter("g")
        found.append(name)
        time.now_ns += 2 * SLICE_NS

    _, other, last = tasks = [asyncio.create_task(part(name)) for name in "abc"]
    await asyncio.sleep(0)
    assert found == ["a"]
    last.cancel()
    await asyncio.wait(tasks)
    assert last.cancelled()
    assert not other.cancelled()
    assert found == ["a", "b"]


def test_another_loop_begins_anew() -> None:
    time = FakeTime()
    turns = LoopTurns(time.clock, SLICE_NS)
    left = asyncio.new_event_loop()
    left.run_until_complete(turns.enter("g"))
    time.now_ns += 2 * SLICE_NS
    left.close()  # with a turn to come
    asyncio.run(turns.enter("g"))
    asyncio.run(turns.enter("g"))
