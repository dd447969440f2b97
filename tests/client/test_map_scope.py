"""Any map, with calls that take any time and fail anywhere: every item comes out once, in its place."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import asyncexec as ax
from asyncexec.client.remote_fetches import RemoteFetches
from asyncexec.client.remote_scope import StreamRules
from asyncexec.client.remote_signature import RemoteSignature
from asyncexec.client.remote_streams import MapScope, RemoteMap
from asyncexec.service.protocol_messages import message
from asyncexec.testing import VirtualClockLoop
from tests.client.servers import FLOATS


@dataclass(frozen=True)
class Case:
    """Items as (seconds that their calls take, whether they fail), and how they are mapped.

    *cancels* are the seconds between cancellations of whoever takes results.
    """

    items: list[tuple[int, bool]]
    window: int
    ordered: bool
    on_error: Literal["raise", "yield"]
    cancels: list[int]


CASES = st.builds(
    Case,
    st.lists(st.tuples(st.integers(0, 5), st.booleans()), max_size=12),
    st.integers(1, 5),
    st.booleans(),
    st.sampled_from(["raise", "yield"]),
    st.lists(st.integers(0, 3), max_size=4),
)


class Mapped:
    """A map of the items of *case*, and what came of it."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.under_way = self.most_under_way = self.num_drawn = 0
        self.results: list[Any] = []
        self.failure: Exception | None = None

    def draw(self) -> Iterator[dict[str, int]]:
        for number in range(len(self.case.items)):
            self.num_drawn += 1
            yield {"x": number}

    async def call(self, data: bytes) -> Any:
        request = message("ModelInferRequest").FromString(data)
        number = int(np.frombuffer(request.raw_input_contents[0], np.float32)[0])
        seconds, fails = self.case.items[number]
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        try:
            await asyncio.sleep(seconds)
        finally:
            self.under_way -= 1
        if fails:
            raise ax.errors.UnavailableError(str(number))
        return number

    async def run(self) -> None:
        wanted = RemoteFetches("m", "", RemoteSignature.of("m", FLOATS), "y")
        rules = StreamRules(self.case.window, self.case.ordered, self.case.on_error)
        async with RemoteMap(lambda: MapScope(rules, wanted, self.call), self.draw()) as values:
            await self.take(values)
            assert [each async for each in values] == []  # it has ended for good
        assert self.under_way == 0
        assert asyncio.all_tasks() == {asyncio.current_task()}

    async def take(self, values: RemoteMap) -> None:
        cancels = list(self.case.cancels)
        while True:
            taker = asyncio.ensure_future(anext(values))
            if cancels:
                await asyncio.sleep(cancels.pop())
                taker.cancel()
            try:
                self.results.append(await taker)
            except asyncio.CancelledError:
                continue
            except StopAsyncIteration:
                return
            except ax.errors.UnavailableError as error:
                self.failure = error
                return


def shown(result: Any) -> Any:
    return str(result) if isinstance(result, Exception) else result


def check(case: Case) -> None:
    found = Mapped(case)
    with asyncio.Runner(loop_factory=VirtualClockLoop) as runner:
        runner.run(found.run())
    expected = [f"item {i}: {i}" if fails else i for i, (_, fails) in enumerate(case.items)]
    results = [shown(each) for each in found.results]
    assert found.most_under_way <= case.window
    if case.on_error == "yield":
        assert found.failure is None
        assert (results if case.ordered else sorted(results, key=str)) == (
            expected if case.ordered else sorted(expected, key=str)
        )
        return
    failed = [i for i, (_, fails) in enumerate(case.items) if fails]
    if not failed:
        assert found.failure is None
        assert sorted(results) == list(range(len(case.items)))
        return
    assert found.failure is not None
    if case.ordered:
        assert results == list(range(failed[0]))
        assert str(found.failure) == f"item {failed[0]}: {failed[0]}"
    else:
        assert len(set(results)) == len(results)
        assert set(results) <= {i for i, (_, fails) in enumerate(case.items) if not fails}
        assert str(found.failure) in {f"item {i}: {i}" for i in failed}


@given(CASES)
def test_every_item_comes_out_once_in_its_place(case: Case) -> None:
    check(case)


@pytest.mark.deep
@given(st.lists(CASES, min_size=20, max_size=20))
def test_every_item_comes_out_once_in_its_place_many_times(cases: list[Case]) -> None:
    for case in cases:
        check(case)
