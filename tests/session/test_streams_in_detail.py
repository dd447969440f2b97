"""What streams promise and only a look at the right moment shows: when a state is handed on, which places are taken."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest

import asyncexec as ax
from asyncexec.framework.kernel import KernelKind
from tests.running import STILL_CLOCK, raw_op, settle, started

DEVICES: list[dict[str, Any]] = [{}, {"device_count": {"CPU": 2}}]


@pytest.mark.parametrize("settings", DEVICES, ids=["one device", "two devices"])
@pytest.mark.parametrize("goes_on", [True, False])
async def test_when_a_state_is_handed_on(goes_on: bool, settings: dict[str, Any]) -> None:
    """As soon as it is written, so that items overlap, also where the stream goes on after failures."""
    log: list[str] = []
    gates = [asyncio.Event() for _ in range(3)]

    async def act(x: Any, _: Any) -> Any:
        log.append(f"{int(x)} began")
        await gates[int(x)].wait()
        if int(x) == 1:
            raise ValueError("told to")
        log.append(f"{int(x)} ended")
        return np.int64(x)

    def note(before: Any, x: Any) -> Any:
        log.append(f"{int(x)} read {int(before)}")
        return np.int64(before)

    with ax.Graph() as graph:
        x = ax.placeholder(ax.int64, [], name="x")
        state = ax.stream_state(np.int64(10))
        before = raw_op("Note", note, dtype=ax.int64)(state.value, x)
        written = state.update(ax.reshape(before, []) + np.int64(1))
        with ax.device(f"/cpu:{settings.get('device_count', {}).get('CPU', 1) - 1}"):
            out = raw_op("Act", act, kind=KernelKind.ASYNC, dtype=ax.int64)(x, written)
    async with ax.Session(graph, ax.SessionConfig(**settings), clock=STILL_CLOCK) as session:
        items = [{x: i} for i in range(3)]
        outputs = session.map(out, items, window=3, on_error="yield" if goes_on else "raise")

        async def collect() -> list[Any]:
            return [value async for value in outputs]

        run = await started(collect())
        await settle(20)
        assert set(log) == {line for i in range(3) for line in (f"{i} read {10 + i}", f"{i} began")}
        for gate in gates:
            gate.set()
        if goes_on:
            first, failed, last = await run
            assert (first, last) == (0, 2)
            assert isinstance(failed, ax.errors.InvalidArgumentError)
        else:
            with pytest.raises(ax.errors.InvalidArgumentError, match="item 1"):
                await run


class Places:
    """A graph whose kernel waits for a gate, and counts its calls under way."""

    def __init__(self) -> None:
        self.under_way = self.most = 0
        self.gate = asyncio.Event()
        with ax.Graph() as self.graph:
            self.x = ax.placeholder(ax.int64, [], name="x")
            self.y = raw_op("Wait", self._wait, kind=KernelKind.ASYNC, dtype=ax.int64)(self.x)

    async def _wait(self, x: Any) -> Any:
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        try:
            await self.gate.wait()
            await asyncio.sleep(0)
        finally:
            self.under_way -= 1
        return np.int64(x)


@pytest.mark.parametrize("limit", [1, 2])
async def test_a_stream_takes_a_place_for_each_item(limit: int) -> None:
    """Also when it has waited for one: runs and items together are never more than allowed, and no place is lost."""
    places = Places()
    async with ax.Session(places.graph, ax.SessionConfig(max_concurrent_steps=limit)) as session:
        for _ in range(3):
            places.gate.clear()
            runs = [await started(session.run(places.y, {places.x: i})) for i in range(limit)]

            async def collect() -> list[int]:
                return [int(y) async for y in session.map(places.y, [{places.x: i} for i in range(12)], window=6)]

            stream = await started(collect())
            await settle(20)
            assert places.under_way == limit
            places.gate.set()
            assert await stream == list(range(12))
            await asyncio.gather(*runs)
    assert places.most == limit


async def test_a_place_that_is_waited_for_is_not_there_yet() -> None:
    """Whatever else makes the stream look for something to do."""
    places = Places()
    async with ax.Session(places.graph, ax.SessionConfig(max_concurrent_steps=1)) as session:
        run = await started(session.run(places.y, {places.x: 1}))
        async with session.stream(places.y, window=4) as stream:
            for number in range(3):
                await stream.send({places.x: number})
                await settle(20)
                assert places.under_way == 1
            places.gate.set()
            await stream.close()
            assert [int(y) async for y in stream] == [0, 1, 2]
        assert await run == 1
    assert places.most == 1


@pytest.mark.parametrize("turns", range(8))
async def test_a_place_that_comes_when_its_stream_has_ended_goes_to_others(turns: int) -> None:
    """The stream waits for a place, and is left when that has been granted, or is about to be."""
    places = Places()
    async with ax.Session(places.graph, ax.SessionConfig(max_concurrent_steps=1)) as session:
        run = await started(session.run(places.y, {places.x: 1}))
        async with session.stream(places.y, window=2) as stream:
            sending = await started(stream.send({places.x: 2}))
            await settle(20)
            assert places.under_way == 1
            places.gate.set()
            await settle(turns)
        await sending
        assert await run == 1
        for number in range(2):
            assert await session.run(places.y, {places.x: number}) == number
        assert places.most == 1


async def test_a_state_that_only_the_update_of_another_reads_is_carried_too() -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.int64, [], name="x")
        last, before_last = ax.stream_state(np.int64(-1)), ax.stream_state(np.int64(-2))
        last.update(x)
        before_last.update(last.value)
        seen = before_last.value + np.int64(0)
    async with ax.Session(graph) as session:
        assert session.statistics().completed_steps == session.statistics().failed_steps == 0
        assert [int(y) async for y in session.map(seen, [{x: i} for i in range(5)])] == [-2, -1, 0, 1, 2]
