"""Pauses: a step ends where an op waits for a value from outside, and another session goes on with it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import asyncexec as ax
from asyncexec.checkpoint import FileStore, MemoryStore, SQLiteStore

Calls = list[Any]


def approval_graph(calls: Calls) -> ax.Graph:
    """A price that is fetched, an approval, and a note of it by a plain function; beside them a draw of the weather."""

    @ax.op
    async def price(item: str) -> int:
        calls.append(("price", item))
        return len(item) * 10

    @ax.op
    async def approved(amount: int) -> Any:
        return await ax.pause("approval", {"amount": amount})

    @ax.op
    def noted(text: str, answer: object) -> str:
        calls.append(("noted", text))
        return f"{text}: {answer}"

    with ax.Graph() as graph:
        item = ax.placeholder(ax.string, [], name="item")
        cost = ax.identity(price(item) + 1, name="cost")
        ax.identity(noted(ax.as_string(cost), approved(cost)), name="note")
        ax.identity(ax.random_uniform([3]), name="weather")
    return graph


async def paused(run: Any) -> ax.PausedError:
    with pytest.raises(ax.PausedError) as caught:
        await run
    return caught.value


@pytest.fixture(params=["memory", "sqlite", "files"])
async def make_store(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """Makes a store; each call gives one that has what the others have."""
    memory, made = MemoryStore(), []

    def make() -> Any:
        if request.param == "memory":
            return memory
        store = SQLiteStore(tmp_path / "journal.db") if request.param == "sqlite" else FileStore(tmp_path)
        made.append(store)
        return store

    yield make
    for store in made:
        if isinstance(store, SQLiteStore):
            await store.close()


async def test_another_session_goes_on(make_store: Callable[[], Any]) -> None:
    calls: Calls = []
    async with ax.Session(approval_graph(calls), journal=make_store()) as session:
        error = await paused(session.run({"all": ["note:0", "weather:0", ("cost:0",)]}, {"item:0": "tea"}))
    assert error.pauses[0].payload == {"amount": 31}
    assert (error.pauses[0].name, error.pauses[0].node) == ("approval", "approved")
    assert calls == [("price", "tea")]
    calls.clear()
    async with ax.Session(approval_graph(calls), journal=make_store()) as session:
        assert await session.pauses() == list(error.pauses)
        result = await session.resume(error.token, {"by": "Ada"})
        assert result["all"][0] == "31: {'by': 'Ada'}"
        assert result["all"][2] == (31,)
        assert calls == [("noted", "31")]
        assert await session.pauses() == []
    async with ax.Session(approval_graph(calls), journal=make_store()) as session:
        again = await session.resume_run(error.run_id)
        np.testing.assert_equal(again, result)  # the numbers that were drawn, too
        assert calls == [("noted", "31")]


async def test_a_session_whose_runs_are_begun_again_where_workers_are_lost() -> None:
    store, calls = MemoryStore(), list[Any]()
    config = ax.SessionConfig(retries=2)
    async with ax.Session(approval_graph(calls), config, journal=store) as session:
        error = await paused(session.run("note:0", {"item:0": "tea"}))
        assert await session.resume(error.token, "yes") == "31: yes"
    assert calls == [("price", "tea"), ("noted", "31")]


async def test_a_pause_is_no_part_of_memory() -> None:
    async with ax.Session(approval_graph([]), journal=MemoryStore()) as session:
        await paused(session.run("note:0", {"item:0": "tea"}))
        assert session.statistics().running_steps == 0
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_each_of_several_pauses_is_answered() -> None:
    @ax.op
    async def ask(name: str) -> str:
        return await ax.pause(name)

    with ax.Graph() as graph:
        both = ax.string_join([ask(ax.constant("first")), ask(ax.constant("second"))], "+", name="both")
    store = MemoryStore()
    async with ax.Session(graph, journal=store) as session:
        error = await paused(session.run(both))
        tokens = {pause.name: pause.token for pause in error.pauses}
        assert set(tokens) == {"first", "second"}
    async with ax.Session(graph, journal=store) as session:
        error = await paused(session.resume(tokens["second"], "b"))
        assert [pause.token for pause in error.pauses] == [tokens["first"]]
        assert await session.resume(tokens["first"], "a") == b"a+b"


async def test_an_op_may_pause_more_than_once() -> None:
    @ax.op
    async def sum_of_three() -> int:
        return sum([await ax.pause("number") for _ in range(3)])

    with ax.Graph() as graph:
        total = sum_of_three()
    async with ax.Session(graph, journal=MemoryStore()) as session:
        error = await paused(session.run(total))
        error = await paused(session.resume(error.token, 1))
        error = await paused(session.resume(error.token, 20))
        assert await session.resume(error.token, 300) == 321


async def test_pauses_of_one_op_side_by_side() -> None:
    @ax.op
    async def pair() -> str:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(ax.pause(name)) for name in "ab"]
        return "".join(task.result() for task in tasks)

    with ax.Graph() as graph:
        both = pair()
    async with ax.Session(graph, journal=MemoryStore()) as session:
        error = await paused(session.run(both))
        while True:
            try:
                result = await session.resume(error.token, error.pauses[0].name.upper())
            except ax.PausedError as another:
                error = another
            else:
                break
        assert result == "AB"


async def test_a_run_in_an_op_is_a_part_of_the_run() -> None:
    calls: Calls = []

    @ax.op
    async def inner(x: int) -> int:
        calls.append(x)
        return x + 1

    @ax.op
    async def ask(x: int) -> int:
        return x + await ax.pause("inner")

    @ax.op
    async def outer() -> int:
        session = ax.current_session()
        first = await session.run("inner:0")
        return int(first + await session.run("asked:0"))

    with ax.Graph() as graph:
        ax.identity(ask(inner(ax.constant(1, ax.int64), name="inner")), name="asked")
        total = outer()
    store = MemoryStore()
    async with ax.Session(graph, journal=store) as session:
        error = await paused(session.run(total))
    async with ax.Session(graph, journal=store) as session:
        assert await session.resume(error.token, 10) == 2 + 12
    assert calls == [1, 1]  # once in each of the two runs


async def test_partitions_that_wait_for_one_another() -> None:
    @ax.op
    async def ask(x: float) -> float:
        return x * await ax.pause("factor")

    with ax.Graph() as graph:
        with ax.device("/cpu:0"):
            asked = ask(ax.constant(2.0))
        with ax.device("/cpu:1"):
            result = asked + 1.0
    config = ax.SessionConfig(device_count={"CPU": 2})
    for medium in ("call_frame", "rendezvous"):
        config = ax.SessionConfig(device_count={"CPU": 2}, feed_fetch_medium=medium)
        async with ax.Session(graph, config, journal=MemoryStore()) as session:
            error = await paused(session.run(result))
            assert await session.resume(error.token, 4.0) == 9.0


async def test_a_plain_function_on_a_worker_thread_runs_once() -> None:
    threads: list[int] = []

    @ax.op(expensive=True)
    def slow(x: int) -> int:
        threads.append(threading.get_ident())
        return x + len(ax.call_key()[:1])

    @ax.op
    async def ask(x: int) -> int:
        return x + await ax.pause("more")

    with ax.Graph() as graph:
        total = ask(slow(ax.constant(1, ax.int64)))
    async with ax.Session(graph, journal=MemoryStore()) as session:
        error = await paused(session.run(total))
        assert await session.resume(error.token, 5) == 7
    assert len(threads) == 1
    assert threads != [threading.get_ident()]


async def test_the_key_of_a_call_is_its_own() -> None:
    keys: list[str] = []

    @ax.op
    async def call(x: int) -> int:
        keys.append(ax.call_key())
        if len(keys) == 1:
            raise ConnectionError
        return x

    with ax.Graph() as graph:
        first = call(ax.constant(1, ax.int64))
        second = call(first)
    options = ax.RunOptions(run_id="keys")
    async with ax.Session(graph, journal=MemoryStore()) as session:
        with pytest.raises(ax.errors.UnavailableError):
            await session.run(second, options=options)
        assert await session.unfinished_runs() == ["keys"]
        await session.run(second, options=options)
        assert await session.unfinished_runs() == []
    assert keys[0] == keys[1]
    assert keys[2] != keys[1]


async def test_a_named_run_goes_on_after_a_failure_and_is_done_once() -> None:
    calls: Calls = []

    @ax.op
    async def step(name: str) -> str:
        calls.append(name)
        if name == "b" and calls.count("b") == 1:
            raise ConnectionError
        return name

    with ax.Graph() as graph:
        a = step(ax.constant("a"))
        with ax.control_dependencies([a]):
            b = step(ax.constant("b"))
    store, options = MemoryStore(), ax.RunOptions(run_id="two-steps")
    async with ax.Session(graph, journal=store) as session:
        with pytest.raises(ax.errors.UnavailableError):
            await session.run([a, b], options=options)
    async with ax.Session(graph, journal=store) as session:
        assert await session.resume_run("two-steps") == ["a", "b"]
        both = await asyncio.gather(*(session.run([a, b], options=options) for _ in range(2)))
        assert both == [["a", "b"]] * 2
        assert calls == ["a", "b", "b"]
        await session.forget_run("two-steps")
        assert await store.list() == []
        await session.run([a, b], options=options)
    assert calls == ["a", "b", "b", "a", "b"]


async def test_a_token_is_good_for_one_value() -> None:
    async with ax.Session(approval_graph([]), journal=MemoryStore()) as session:
        token = (await paused(session.run("note:0", {"item:0": "tea"}))).token
        results = await asyncio.gather(*(session.resume(token, i) for i in range(5)), return_exceptions=True)
        failures = [each for each in results if isinstance(each, ax.errors.FailedPreconditionError)]
        assert len(failures) == 4
        assert "has been used" in str(failures[0])
        assert sum(isinstance(each, str) for each in results) == 1
        with pytest.raises(ax.errors.FailedPreconditionError, match="has been used"):
            await session.resume(token, 1)


async def test_two_sessions_and_one_token(make_store: Callable[[], Any]) -> None:
    calls: Calls = []
    graph = approval_graph(calls)
    async with ax.Session(graph, journal=make_store()) as one, ax.Session(graph, journal=make_store()) as other:
        token = (await paused(one.run("note:0", {"item:0": "tea"}))).token
        calls.clear()
        results = await asyncio.gather(one.resume(token, 1), other.resume(token, 2), return_exceptions=True)
    assert sum(isinstance(each, str) for each in results) == 1
    assert sum(isinstance(each, ax.errors.FailedPreconditionError) for each in results) == 1
    assert calls == [("noted", "31")]


async def test_without_a_journal_nothing_pauses() -> None:
    async with ax.Session(approval_graph([])) as session:
        with pytest.raises(ax.errors.FailedPreconditionError, match="outside of the ops of a run with a journal"):
            await session.run("note:0", {"item:0": "tea"})
        with pytest.raises(ax.errors.FailedPreconditionError, match="needs a session with a journal"):
            await session.run("cost:0", {"item:0": "tea"}, options=ax.RunOptions(run_id="x"))
        for call in (session.pauses(), session.resume("a", 1), session.unfinished_runs(), session.forget_run("a")):
            with pytest.raises(ax.errors.FailedPreconditionError, match="journal=store"):
                await call
    with pytest.raises(ax.errors.FailedPreconditionError, match="outside of the ops"):
        ax.pause("approval")
    with pytest.raises(ax.errors.FailedPreconditionError, match="outside of the ops"):
        ax.call_key()


async def test_a_callable_does_not_pause() -> None:
    async with ax.Session(approval_graph([]), journal=MemoryStore()) as session:
        call = session.make_callable("note:0", ["item:0"])
        with pytest.raises(ax.errors.FailedPreconditionError, match="outside of the ops of a run with a journal"):
            await call("tea")


async def test_a_plain_function_cannot_pause() -> None:
    @ax.op
    def ask() -> object:
        return ax.pause("never")

    with ax.Graph() as graph:
        asked = ask()
    async with ax.Session(graph, journal=MemoryStore()) as session:
        with pytest.raises(ax.errors.FailedPreconditionError, match="no async function") as caught:
            await session.run(asked)
    assert caught.value.node == "ask"


@pytest.mark.parametrize("token", ["", "x", "run~1", "a/b~" + "0" * 48, "../x~" + "0" * 48, "run~" + "0" * 48])
async def test_an_unknown_token(token: str) -> None:
    async with ax.Session(approval_graph([]), journal=MemoryStore()) as session:
        with pytest.raises(ax.errors.NotFoundError, match="no pause waits for the token"):
            await session.resume(token, 1)
        with pytest.raises(ax.errors.NotFoundError, match="has no run 'other'"):
            await session.resume_run("other")
        with pytest.raises(ax.errors.InvalidTypeError):
            await session.resume(7, 1)  # type: ignore[arg-type]  # that is what is tested


@pytest.mark.parametrize("run_id", ["", "a/b", "a b", "x" * 121, "..", "a~b"])
async def test_a_name_that_no_run_has(run_id: str) -> None:
    async with ax.Session(approval_graph([]), journal=MemoryStore()) as session:
        with pytest.raises(ax.errors.InvalidArgumentError):
            await session.run("cost:0", {"item:0": "tea"}, options=ax.RunOptions(run_id=run_id))


async def test_what_has_no_wire_form_is_refused() -> None:
    @ax.op
    async def give() -> object:
        return object()

    @ax.op
    async def ask(payload: object) -> object:
        return await ax.pause("it", payload)

    with ax.Graph() as graph:
        given = give()
        ax.identity(ask(given), name="bad_payload")
        ax.identity(ask(ax.constant("fine")), name="fine")
    async with ax.Session(graph, journal=MemoryStore()) as session:
        with pytest.raises(ax.errors.InvalidArgumentError, match=r"output 0 of 'give'.*builtins.object"):
            await session.run(given, options=ax.RunOptions(run_id="a"))
        with pytest.raises(ax.errors.InvalidArgumentError, match=r"builtins.object.*cannot be stored"):
            await session.run("bad_payload:0")
        token = (await paused(session.run("fine:0"))).token
        with pytest.raises(ax.errors.InvalidArgumentError, match=r"the value for .*builtins.object"):
            await session.resume(token, object())
        assert await session.resume(token, [1, None]) == [1, None]
        with pytest.raises(ax.errors.InvalidArgumentError, match="fetches of the type"):
            await session.run({1: given})


async def test_a_graph_that_has_changed_is_refused_and_the_token_stays_good() -> None:
    store = MemoryStore()
    async with ax.Session(approval_graph([]), journal=store) as session:
        token = (await paused(session.run("note:0", {"item:0": "tea"}))).token

    @ax.op
    async def approved(amount: int) -> int:
        return amount

    with ax.Graph() as changed:
        item = ax.placeholder(ax.string, [], name="item")
        ax.identity(ax.string_length(item), name="note")
    with ax.Graph() as empty:
        ax.constant(1)
    async with ax.Session(changed, journal=store) as session:
        with pytest.raises(ax.errors.FailedPreconditionError, match=r"the graph has changed since .*'(price|add|note)"):
            await session.resume(token, 1)
    async with ax.Session(empty, journal=store) as session:
        with pytest.raises(ax.errors.FailedPreconditionError, match=r"the graph has changed since .*note"):
            await session.resume(token, 1)
    async with ax.Session(approval_graph([]), journal=store) as session:
        assert await session.resume(token, 1) == "31: 1"


async def test_a_name_is_for_one_run() -> None:
    options = ax.RunOptions(run_id="one")
    async with ax.Session(approval_graph([]), journal=MemoryStore()) as session:
        assert await session.run("cost:0", {"item:0": "tea"}, options=options) == 31
        with pytest.raises(ax.errors.FailedPreconditionError, match="begun with other feeds"):
            await session.run("cost:0", {"item:0": "coffee"}, options=options)
        with pytest.raises(ax.errors.FailedPreconditionError, match="begun with the fetches 'cost:0'"):
            await session.run(["cost:0"], {"item:0": "tea"}, options=options)
        with pytest.raises(ax.errors.FailedPreconditionError, match="begun with the targets"):
            await session.run("cost:0", {"item:0": "tea"}, targets=["note"], options=options)


async def test_sessions_that_cannot_have_a_journal() -> None:
    with ax.Graph() as graph:
        x = ax.constant(1)
    with pytest.raises(ax.errors.InvalidTypeError, match="put, get, list and delete"):
        ax.Session(graph, journal="journal.db")  # type: ignore[arg-type]  # that is what is tested
    with pytest.raises(ax.errors.InvalidArgumentError, match="BREADTH_FIRST"):
        ax.Session(graph, ax.SessionConfig(executor_type="BREADTH_FIRST"), journal=MemoryStore())
    async with ax.Session(graph, journal=MemoryStore()) as session:
        assert await session.run(x) == 1
