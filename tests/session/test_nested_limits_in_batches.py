"""Batches that want what one of those who wait for them keeps meanwhile: nobody waits for ever.

A batch runs in the context of its first caller; what the others are a part of counts as well.
"""

from __future__ import annotations

import asyncio
import gc
import weakref
from contextvars import ContextVar
from typing import Any

import numpy as np
import pytest

import asyncexec as ax
from tests.running import import_all_names, settle, started

PRECONDITION = ax.errors.FailedPreconditionError
pytestmark = pytest.mark.virtual_clock


@pytest.fixture(scope="module", autouse=True)
def all_names() -> None:
    import_all_names()


class Service:
    """A batched function whose body is an op under *limiter*, and an op under the same that runs it.

    The body waits for *gate* before it wants a slot, once it has begun.
    """

    def __init__(self, limiter: ax.Limiter, **batch: Any) -> None:
        self.limiter = limiter
        self.gate = asyncio.Event()
        self.gate.set()
        self.batches: list[list[float]] = []

        @ax.op(outputs=[ax.float32])
        async def wait(rows: Any) -> Any:
            self.batches.append(rows.tolist())
            await self.gate.wait()
            return rows

        @ax.op(outputs=[ax.float32], limiter=limiter)
        async def work(rows: Any) -> Any:
            return rows * 10

        @ax.batch(**{"max_size": 2, "timeout_s": 1.0, **batch})
        def score(rows: Any) -> Any:
            return work(wait(rows))

        @ax.op(outputs=[ax.float32], limiter=limiter)
        async def hold(rows: Any) -> Any:
            return await self.ask(rows)

        with ax.Graph() as self.graph:
            self.x = ax.placeholder(ax.float32, [None])
            self.score = score(self.x)
            self.hold = hold(self.x, name="holder")
        self.session = ax.Session(self.graph)

    def ask(self, rows: Any) -> Any:
        """A call of the batched function, from a caller that holds nothing of its own."""
        return self.session.run(self.score, {self.x: np.asarray(rows, np.float32)})

    def ask_while_holding(self, rows: Any) -> Any:
        """The same from within an op that holds a slot."""
        return self.session.run(self.hold, {self.x: np.asarray(rows, np.float32)})


@pytest.mark.parametrize("total", [1, 2])
@pytest.mark.parametrize("holder_is_first", [False, True])
async def test_in_one_batch_with_others(total: int, *, holder_is_first: bool) -> None:
    """Who holds the slot gets the error, whoever came first, and the others what they asked for."""
    service = Service(ax.Limiter(total))
    async with service.session:
        asks = [service.ask, service.ask_while_holding]
        runs = [await started(ask([i])) for i, ask in enumerate(reversed(asks) if holder_is_first else asks)]
        plain, holder = reversed(runs) if holder_is_first else runs
        assert (await plain).tolist() == [10.0 if holder_is_first else 0.0]
        if total == 1:
            with pytest.raises(PRECONDITION, match="holds one of the 1 slots of its limiter") as caught:
                await holder
            assert (caught.value.node, "another limiter" in (caught.value.hint or "")) == ("score", True)
        else:
            assert (await holder).tolist() == [0.0 if holder_is_first else 10.0]
    assert service.batches == [[0, 1]]
    assert (service.limiter.statistics().inside, service.limiter.statistics().waiting) == (0, 0)


async def test_alone_in_its_batch() -> None:
    service = Service(ax.Limiter(1), max_size=1)
    async with service.session:
        with pytest.raises(PRECONDITION, match="holds one of the 1 slots"):
            await service.ask_while_holding([1])
        assert (await service.ask([2])).tolist() == [20.0]


async def test_a_slot_that_will_be_given_back_is_waited_for() -> None:
    """By somebody who waits for nobody; so the holder of the other slot waits in vain for none."""
    service = Service(ax.Limiter(2), max_size=1)
    async with service.session:
        async with service.limiter:
            holder = await started(service.ask_while_holding([1]))
            await settle(20)
            assert (service.limiter.statistics().waiting, holder.done()) == (1, False)
        assert (await holder).tolist() == [10.0]


async def test_one_of_those_who_hold_all_slots_is_enough() -> None:
    service = Service(ax.Limiter(2))
    async with service.session:
        first, second = [await started(service.ask_while_holding([i])) for i in range(2)]
        with pytest.raises(PRECONDITION, match="holds one of the 2 slots"):
            await first
        assert (await second).tolist() == [10.0]
    assert (service.limiter.statistics().inside, service.limiter.statistics().waiting) == (0, 0)


async def test_behind_a_batch_that_comes_to_want_a_slot() -> None:
    service = Service(ax.Limiter(1), max_size=1)
    service.gate.clear()
    async with service.session:
        plain = await started(service.ask([1]))
        holder = await started(service.ask_while_holding([2]))
        assert service.batches == [[1]]
        service.gate.set()
        with pytest.raises(PRECONDITION, match="holds one of the 1 slots"):
            await holder
        assert (await plain).tolist() == [10.0]
    assert service.batches == [[1]]


async def test_who_holds_a_slot_comes_behind_a_batch_that_waits_for_it() -> None:
    service = Service(ax.Limiter(1), max_size=1)
    begun, go = asyncio.Event(), asyncio.Event()

    @ax.op(outputs=[ax.float32], limiter=service.limiter)
    async def late(rows: Any) -> Any:
        begun.set()
        await go.wait()
        return await service.ask(rows)

    with service.graph:
        held = late(service.x, name="late")
    async with service.session:
        holder = await started(service.session.run(held, {service.x: [2.0]}))
        await begun.wait()
        plain = await started(service.ask([1]))
        await settle(20)
        assert service.limiter.statistics().waiting == 1
        go.set()
        with pytest.raises(PRECONDITION, match="holds one of the 1 slots") as caught:
            await holder
        assert caught.value.node == "score"
        assert (await plain).tolist() == [10.0]


async def test_not_behind_a_batch_where_there_is_room_for_another() -> None:
    """It waits for no batch but its own, which wants no slot."""
    service = Service(ax.Limiter(1), max_size=2, max_running=2)
    begun, go = asyncio.Event(), asyncio.Event()

    @ax.batch(max_size=2, timeout_s=1.0, max_running=2)
    def free(rows: Any) -> Any:
        return rows + 1.0

    @ax.op(outputs=[ax.float32], limiter=service.limiter)
    async def hold(rows: Any) -> Any:
        begun.set()
        await go.wait()
        return await service.session.run(freed, {service.x: rows})

    with service.graph:
        freed = free(service.x)
        held = hold(service.x)
    async with service.session:
        holder = await started(service.session.run(held, {service.x: [1.0]}))
        await begun.wait()
        plain = await started(service.ask([1, 2]))
        await settle(20)
        assert service.limiter.statistics().waiting == 1
        go.set()
        assert (await holder).tolist() == [2.0]
        assert (await plain).tolist() == [10.0, 20.0]


async def test_who_holds_a_slot_waits_for_a_batch_that_waits_for_another() -> None:
    """Through an op of the first batch that asks for the second."""
    service = Service(ax.Limiter(1))

    @ax.op(outputs=[ax.float32])
    async def ask_on(rows: Any) -> Any:
        return await service.ask(rows)

    @ax.batch(max_size=2, timeout_s=1.0)
    def outer(rows: Any) -> Any:
        return ask_on(rows)

    @ax.op(outputs=[ax.float32], limiter=service.limiter)
    async def hold(rows: Any) -> Any:
        return await service.session.run(asked, {service.x: rows})

    with service.graph:
        asked = outer(service.x)
        held = hold(service.x, name="outermost")
    async with service.session:
        plain = await started(service.session.run(asked, {service.x: [1.0]}))
        holder = await started(service.session.run(held, {service.x: [2.0]}))
        with pytest.raises(PRECONDITION, match="holds one of the 1 slots") as caught:
            await holder
        assert caught.value.node == "outer"
        assert (await plain).tolist() == [10.0]


async def test_a_batch_of_who_holds_a_slot_comes_behind_one_that_waits_for_it() -> None:
    """Through an op of its own batch, which is called from there later."""
    service = Service(ax.Limiter(1), max_size=1)
    go = asyncio.Event()

    @ax.op(outputs=[ax.float32])
    async def ask_late(rows: Any) -> Any:
        await go.wait()
        return await service.ask(rows)

    @ax.batch(max_size=1, timeout_s=1.0)
    def outer(rows: Any) -> Any:
        return ask_late(rows)

    @ax.op(outputs=[ax.float32], limiter=service.limiter)
    async def hold(rows: Any) -> Any:
        return await service.session.run(asked, {service.x: rows})

    with service.graph:
        asked = outer(service.x)
        held = hold(service.x, name="outermost")
    async with service.session:
        holder = await started(service.session.run(held, {service.x: [1.0]}))
        plain = await started(service.ask([2]))
        await settle(20)
        assert service.limiter.statistics().waiting == 1
        go.set()
        with pytest.raises(PRECONDITION, match="holds one of the 1 slots") as caught:
            await holder
        assert caught.value.node == "outer"
        assert (await plain).tolist() == [20.0]


async def test_a_caller_that_has_left_counts_no_more() -> None:
    """Its slot is somebody else's by then, and the batch that it began waits for it."""
    service = Service(ax.Limiter(1))
    service.gate.clear()
    async with service.session:
        holder = await started(service.ask_while_holding([1]))
        plain = await started(service.ask([2]))
        holder.cancel()
        with pytest.raises(asyncio.CancelledError):
            await holder
        async with service.limiter:
            service.gate.set()
            await settle()
            assert service.limiter.statistics().waiting == 1
        assert (await plain).tolist() == [20.0]


# --- turns of batches ------------------------------------------------------------------------------------------------


class Pair:
    """Two batched functions, of batches of one kind each; a row of the other's is asked for by each row below zero."""

    def __init__(self, inner_size: int) -> None:
        self.gate = asyncio.Event()
        with ax.Graph() as self.graph:
            self.x = ax.placeholder(ax.float32, [None])
            self.outer = ax.batch(max_size=1, timeout_s=1.0)(lambda rows: self._op("outer")(rows))(self.x)
            self.inner = ax.batch(max_size=inner_size, timeout_s=1.0)(lambda rows: self._op("inner")(rows))(self.x)
        self.session = ax.Session(self.graph)

    def _op(self, name: str) -> Any:
        @ax.op(name=f"AskFrom{name.title()}", outputs=[ax.float32])
        async def ask_the_other(rows: Any) -> Any:
            if rows[0] == -2:
                await self.gate.wait()
            if rows[0] < 0:
                found = await self.ask("inner" if name == "outer" else "outer", rows[:1] * 0 + 7)
                return rows * 0 + found
            return rows + 1

        return ask_the_other

    def ask(self, name: str, rows: Any) -> Any:
        return self.session.run(getattr(self, name), {self.x: np.asarray(rows, np.float32)})


async def test_a_batch_asks_for_one_that_somebody_else_in_it_is_called_from() -> None:
    pair = Pair(inner_size=2)
    async with pair.session:
        plain = await started(pair.ask("inner", [-1]))
        within = await started(pair.ask("outer", [-1]))  # its turn lasts until the same inner batch has ended
        assert (await plain).tolist() == [8.0]
        assert (await within).tolist() == [8.0]


async def test_a_batch_asks_for_one_that_waits_behind_it() -> None:
    pair = Pair(inner_size=1)
    async with pair.session:
        plain = await started(pair.ask("inner", [-2]))
        within = await started(pair.ask("outer", [-1]))
        pair.gate.set()
        assert (await plain).tolist() == [8.0]
        assert (await within).tolist() == [8.0]


async def test_a_batch_asks_for_one_that_waits_for_its_turn() -> None:
    pair = Pair(inner_size=1)
    async with pair.session:
        within = await started(pair.ask("outer", [-2]))
        plain = await started(pair.ask("inner", [-1]))  # waits behind the outer batch
        pair.gate.set()
        assert (await within).tolist() == [8.0]
        assert (await plain).tolist() == [8.0]


# --- context variables -----------------------------------------------------------------------------------------------


async def test_a_batch_sees_the_context_variables_of_its_first_caller() -> None:
    user: ContextVar[str] = ContextVar("user")
    seen: list[str] = []

    @ax.op(outputs=[ax.float32])
    async def look(rows: Any) -> Any:
        seen.append(user.get())
        user.set("somebody")
        return rows

    @ax.batch(max_size=2, timeout_s=1.0)
    def score(rows: Any) -> Any:
        return look(rows)

    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [1])
        y = score(x)

    async with ax.Session(graph) as session:

        async def ask(name: str) -> str:
            user.set(name)
            await session.run(y, {x: [1.0]})
            return user.get()

        assert await asyncio.gather(*map(ask, ("ann", "bob", "cid"))) == ["ann", "bob", "cid"]
    assert seen == ["ann", "cid"]


async def test_nothing_holds_a_batch_that_has_ended() -> None:
    """A task that its op has left behind has a copy of its context."""
    go, left = asyncio.Event(), []

    @ax.op(outputs=[ax.float32])
    async def leave_a_task(rows: Any) -> Any:
        left.append(asyncio.create_task(go.wait()))
        return rows

    @ax.batch(max_size=2, timeout_s=1.0)
    def score(rows: Any) -> Any:
        return leave_a_task(rows)

    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [1])
        y = score(x)
    async with ax.Session(graph) as session:
        given = np.ones(1, np.float32)
        gone = weakref.ref(given)
        gc.disable()
        try:
            await asyncio.gather(session.run(y, {x: given}), session.run(y, {x: [2.0]}))
            del given
            await settle()
            assert gone() is None
        finally:
            gc.enable()
        go.set()
        await asyncio.wait(left)
