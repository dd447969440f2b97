"""A value with which the op that has paused fails may be replaced; one that it has passed on may not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import aiosqlite
import pytest

import asyncexec as ax
from asyncexec.checkpoint import FileStore, MemoryStore, SQLiteStore

NAMED = ax.RunOptions(run_id="order-17")


def order(calls: list[Any], broken: list[Any] | None = None) -> ax.Graph:
    """A price, to which a discount is asked for; then a plain function that may be *broken*."""

    @ax.op
    async def price() -> float:
        calls.append("price")
        return 10.0

    @ax.op
    async def reduced(amount: float) -> float:
        discount = await ax.pause("discount", {"amount": amount})
        calls.append(discount)
        return amount - discount  # type: ignore[no-any-return]

    @ax.op
    def booked(amount: float) -> float:
        if broken:
            raise ConnectionError("the ledger is down")
        return amount

    with ax.Graph() as graph:
        booked(reduced(price()), name="result")
    return graph


async def paused(run: Any) -> ax.PausedError:
    with pytest.raises(ax.PausedError) as caught:
        await run
    return caught.value


async def check_used(resuming: Any) -> None:
    with pytest.raises(ax.errors.FailedPreconditionError, match="has been used"):
        await resuming


@pytest.mark.parametrize("kind", ["memory", "files", "sqlite"])
async def test_another_process_gives_another_value(kind: str, tmp_path: Path) -> None:
    calls: list[Any] = []
    memory = MemoryStore()

    @asynccontextmanager
    async def session_of() -> AsyncIterator[ax.Session]:
        async with AsyncExitStack() as stack:
            store: Any = memory
            if kind == "files":
                store = FileStore(tmp_path)
            elif kind == "sqlite":
                store = await stack.enter_async_context(SQLiteStore(tmp_path / "journal.db"))
            yield await stack.enter_async_context(ax.Session(order(calls), journal=store))

    async with session_of() as session:
        token = (await paused(session.run("result:0"))).token
    for wrong in ("ten", None, {"percent": 3}):
        async with session_of() as session:
            with pytest.raises(ax.errors.InvalidArgumentError, match="unsupported operand"):
                await session.resume(token, wrong)
            (pause,) = await session.pauses()
            assert (pause.token, pause.name, pause.payload) == (token, "discount", {"amount": 10.0})
    async with session_of() as session:
        assert await session.resume(token, 3.0) == 7.0
        assert await session.pauses() == []
        await check_used(session.resume(token, 4.0))
    assert calls == ["price", "ten", None, {"percent": 3}, 3.0]


async def test_a_value_that_the_op_has_passed_on_stays() -> None:
    calls: list[Any] = []
    broken = [True]
    async with ax.Session(order(calls, broken), journal=MemoryStore()) as session:
        token = (await paused(session.run("result:0", options=NAMED))).token
        with pytest.raises(ax.errors.UnavailableError, match="the ledger is down"):
            await session.resume(token, 3.0)
        assert await session.pauses() == []
        await check_used(session.resume(token, 4.0))
        broken.clear()
        assert await session.resume_run("order-17") == 7.0
    assert calls == ["price", 3.0]


async def test_a_failure_of_something_else_keeps_the_value() -> None:
    """The run goes on with it, though another one may be given."""
    broken = [True]

    @ax.op
    async def charge() -> str:
        amount = await ax.pause("amount")
        if broken:
            raise ConnectionError("the network is down")
        return f"charged {amount}"

    with ax.Graph() as graph:
        charge(name="charge")
    async with ax.Session(graph, journal=MemoryStore()) as session:
        token = (await paused(session.run("charge:0", options=NAMED))).token
        with pytest.raises(ax.errors.UnavailableError):
            await session.resume(token, 3)
        assert await session.unfinished_runs() == ["order-17"]
        broken.clear()
        assert await session.resume_run("order-17") == "charged 3"
        assert await session.pauses() == []
        assert await session.unfinished_runs() == []
        await check_used(session.resume(token, 4))


async def test_one_of_two_corrections_is_taken() -> None:
    calls: list[Any] = []
    store = MemoryStore()
    graph = order(calls)
    async with ax.Session(graph, journal=store) as one, ax.Session(graph, journal=store) as other:
        token = (await paused(one.run("result:0"))).token
        with pytest.raises(ax.errors.InvalidArgumentError):
            await one.resume(token, "ten")
        results = await asyncio.gather(
            *(session.resume(token, value) for session, value in ((one, 1.0), (other, 2.0), (one, 3.0))),
            return_exceptions=True,
        )
    assert sum(isinstance(each, ax.errors.FailedPreconditionError) for each in results) == 2
    assert len(calls) == 3  # the price, the wrong value, and one that is right


async def test_a_process_that_was_killed_in_the_op_goes_on_with_its_value() -> None:
    store, tried, is_tried = MemoryStore(), [], asyncio.Event()

    @ax.op
    async def charge() -> float:
        amount = await ax.pause("amount")
        tried.append(amount)
        if len(tried) == 1:
            is_tried.set()
            await asyncio.Event().wait()
        return float(amount)

    with ax.Graph() as graph:
        charge(name="charge")
    async with ax.Session(graph, journal=store) as session:
        token = (await paused(session.run("charge:0", options=NAMED))).token
        killed = asyncio.create_task(session.resume(token, 3.0))
        await is_tried.wait()
        killed.cancel()
        await asyncio.wait([killed])
    async with ax.Session(graph, journal=store) as session:
        assert await session.pauses() == []
        await check_used(session.resume(token, 4.0))
        assert await session.resume_run("order-17") == 3.0
    assert tried == [3.0, 3.0]


async def test_each_pause_of_the_op_may_be_corrected() -> None:
    """In the second iteration of a loop; the values of others stay."""

    @ax.op
    async def ratio() -> float:
        return (await ax.pause("part")) / (await ax.pause("whole"))  # type: ignore[no-any-return]

    with ax.Graph() as graph:
        start = ax.constant(0), ax.constant(0.0, ax.float64)
        _, result = ax.while_loop(lambda i, _: i < 3, lambda i, total: (i + 1, total + ratio()), start, checkpoint=1)

    async with ax.Session(graph, journal=MemoryStore()) as session:
        error = await paused(session.run(result, options=NAMED))
        for value in (1.0, 2.0, 3.0):
            error = await paused(session.resume(error.token, value))
        with pytest.raises(ax.errors.OpError, match="division by zero"):
            await session.resume(error.token, 0.0)
        pauses = {pause.name: pause for pause in await session.pauses()}
        assert {(name, pause.iteration[-1]) for name, pause in pauses.items()} == {("part", "1"), ("whole", "1")}
        error = await paused(session.resume(pauses["whole"].token, 4.0))
        await check_used(session.resume(pauses["part"].token, 4.0))
        error = await paused(session.resume(error.token, 8.0))
        assert await session.resume(error.token, 2.0) == 0.5 + 0.75 + 4.0
        assert await session.pauses() == []


async def test_writes_of_a_failed_op_are_not_committed(tmp_path: Path) -> None:
    """Where the op and the journal have one connection, and the op does not roll back what it has written."""
    rolls_back = [False]
    async with aiosqlite.connect(tmp_path / "orders.db") as database:
        await database.execute("CREATE TABLE orders (amount REAL)")

        @ax.op
        async def book() -> float:
            amount = await ax.pause("amount")
            if amount == "":
                raise ValueError("no amount")
            await database.execute("INSERT INTO orders VALUES (1.0)")
            try:
                return float(amount)
            except ValueError:
                if rolls_back:
                    await database.rollback()
                raise

        with ax.Graph() as graph:
            book(name="book")
        async with ax.Session(graph, journal=SQLiteStore(database)) as session:
            token = (await paused(session.run("book:0", options=NAMED))).token
            rolls_back.clear()
            with pytest.raises(ValueError, match="no amount"):
                await session.resume(token, "")
            with pytest.raises(ValueError, match="ten") as raised:
                await session.resume(token, "ten")
            assert any("cannot be given other values" in note for note in raised.value.__notes__)
            await database.rollback()
            await check_used(session.resume(token, 3.0))
            rolls_back.append(True)
            with pytest.raises(ValueError, match="ten"):
                await session.resume_run("order-17")
            assert await session.resume(token, 3.0) == 3.0
        async with database.execute("SELECT amount FROM orders") as rows:
            assert await rows.fetchall() == [(1.0,)]
