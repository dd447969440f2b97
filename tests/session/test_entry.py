"""Values that a compiled signature takes as they are fed, and those that are converted or refused before."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pytest

import asyncexec as ax
from asyncexec.executor.plans.compiled_plan import CompiledPlan
from asyncexec.session.entry import write_entry
from asyncexec.session.large_feeds import MAX_BYTES
from tests.regions.programs import COMPILED, TAGGED
from tests.running import worker_jobs


class Table(np.ndarray[Any, Any]):
    """Arrays of a kind of their own."""


def table(*sizes: int) -> Table:
    return np.ones(sizes, np.float32).view(Table)


SHAPES: list[Any] = [[], [3], [None], [None, 2], [2, None, 2], [0], None]
DTYPES = [ax.float32, ax.int32, ax.complex64, ax.bool]
VALUES = [
    1,
    2.5,
    True,
    1j,
    None,
    "text",
    np.float32(4),
    np.float64(4.5),
    np.int32(3),
    np.bool_(False),
    np.array(7, np.float32),
    np.array(7, np.int32),
    [1, 2, 3],
    [[1, 2]],
    [],
    np.arange(3, dtype=np.float32),
    np.arange(3, dtype=">f4"),
    np.arange(3, dtype=np.int32),
    np.ones((1, 2), np.float32),
    np.ones((2, 1, 2), np.float32),
    np.ones((0, 2), np.float32),
    np.ones((2, 3), np.float32),
    np.ma.masked_array([1, 2, 3], [True, False, False], dtype=np.float32),
    table(1, 2),
    np.ones((2, 1, 2), np.complex64),
    np.zeros(0, bool),
    np.zeros((MAX_BYTES // 8 + 1, 2), np.float32),
]


def fed(shape: Any, dtype: Any) -> ax.Graph:
    with ax.Graph() as graph:
        x = ax.placeholder(dtype, shape, name="x")
        ax.stack([x, x], name="y")
    return graph


async def outcome(session: ax.Session, value: Any) -> tuple[Any, ...]:
    try:
        found = await session.run("y:0", {"x:0": value})
    except ax.errors.OpError as error:
        return type(error), str(error)
    return type(found), found.dtype, found.shape, found.tobytes()


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: dtype.name)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
async def test_a_compiled_signature_takes_what_the_general_executor_takes(shape: Any, dtype: Any) -> None:
    graph = fed(shape, dtype)
    async with ax.Session(graph, COMPILED) as compiled, ax.Session(graph, TAGGED) as general:
        for value in VALUES * 2:
            assert await outcome(compiled, value) == await outcome(general, value), value


@pytest.mark.parametrize(
    ("shape", "fits", "misfits"),
    [
        ([], np.float32(1), [np.float64(1), 1.0, np.zeros((), np.float32)]),
        ([2], np.zeros(2, np.float32), [np.zeros(3, np.float32), np.zeros(2), table(2)]),
        ([None, 2], np.zeros((5, 2), np.float32), [np.zeros((5, 3), np.float32), np.zeros(2, np.float32)]),
        (None, np.zeros((5, 2), np.float32), [np.zeros((), np.float32), np.zeros(MAX_BYTES, np.float32)]),
    ],
    ids=str,
)
def test_the_entry_gives_none_for_what_is_to_be_converted(shape: Any, fits: Any, misfits: list[Any]) -> None:
    with ax.Graph():
        feeds = [ax.placeholder(ax.float32, []), ax.placeholder(ax.float32, shape)]
    entry = write_entry(feeds, lambda *values: list(values))
    assert entry is not None
    one = np.float32(1)
    found = entry((one, fits))
    assert found[0] is one
    assert found[1] is fits
    assert entry({"a": one, "b": fits}.values()) == found or fits.ndim
    assert [entry((one, misfit)) for misfit in misfits] == [None] * len(misfits)
    assert entry((1.0, fits)) is None


def test_there_is_no_entry_for_what_is_always_converted() -> None:
    with ax.Graph():
        text, thing = ax.placeholder(ax.string, []), ax.placeholder(ax.object, [None])
        many = [ax.placeholder(ax.float32, []) for _ in range(200)]
    assert write_entry([text], list) is None
    assert write_entry([thing], list) is None
    assert write_entry(many, list) is None
    no_feeds = write_entry([], lambda: [1])
    assert no_feeds is not None
    assert no_feeds(()) == [1]


async def test_feeds_in_another_order_and_of_other_types_are_converted() -> None:
    with ax.Graph() as graph:
        a, b = ax.placeholder(ax.float32, [], name="a"), ax.placeholder(ax.int32, [2], name="b")
        y = ax.cast(b, ax.float32) - a
    pair = np.array([5, 7], np.int32)
    async with ax.Session(graph, COMPILED) as session:
        call, other = session.make_callable(y, [a, b]), session.make_callable(y, [b, a])
        for _ in range(3):
            for one in (np.float32(1), 1.0, 1):
                assert (await call(one, pair)).tolist() == [4, 6]
                assert (await other(pair, one)).tolist() == [4, 6]
                assert (await other([5, 7], one)).tolist() == [4, 6]
        with pytest.raises(ax.errors.InvalidTypeError, match="'a:0'"):
            await call("text", pair)
        assert session.statistics().failed_steps == 0  # no step has begun
        assert (await call(1, pair)).tolist() == [4, 6]


class Feeds(Mapping[Any, Any]):
    """Feeds whose values come when they are asked for."""

    def __init__(self, keys: Sequence[Any], value: Callable[[], Any]) -> None:
        self._keys = keys
        self._value = value

    def __len__(self) -> int:
        return len(self._keys)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._keys)

    def __getitem__(self, key: Any) -> Any:
        return self._value()


class Uneven(dict[Any, Any]):
    def values(self) -> Any:
        return [1.0, 2.0]


async def test_a_mapping_is_read_in_the_context_of_its_caller() -> None:
    tenant = contextvars.ContextVar("tenant", default=0)
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [], name="x")
        y = x * 2.0

    def fail(error: BaseException) -> Any:
        raise error

    async with ax.Session(graph, COMPILED) as session:
        tenant.set(21)
        for _ in range(4):
            assert await session.run(y, Feeds([x], lambda: np.float32(tenant.get()))) == 42
            for error in (KeyError("x"), AttributeError("x"), ValueError("x")):
                with pytest.raises(type(error)) as caught:
                    await session.run(y, Feeds([x], partial(fail, error)))
                assert caught.value is error
            with pytest.raises(ax.errors.InvalidArgumentError, match="1 keys and 2 values"):
                await session.run(y, Uneven({x: 1.0}))
        assert session.statistics().failed_steps == 0


async def test_a_plan_of_single_numbers_is_not_timed_and_others_are(monkeypatch: pytest.MonkeyPatch) -> None:
    noted: list[CompiledPlan] = []
    monkeypatch.setattr(CompiledPlan, "note", lambda plan, _: noted.append(plan))
    with ax.Graph() as graph:
        x, v = ax.placeholder(ax.float32, [], name="x"), ax.placeholder(ax.float32, [3], name="v")
        light = ax.cond(x > 0, lambda: x + 1.0, lambda: x - 1.0)
        other = ax.reduce_sum(v) + x
    async with ax.Session(graph, COMPILED) as session:
        for fetch, feeds in ((light, {x: 1}), (other, {x: 1, v: [1, 2, 3]})):
            await session.run(fetch, feeds)
            prepared = list(session._cache.values())[-1]
            prepared.tier.plain._slow_ns = -1  # all is slow
            noted.clear()
            await session.run(fetch, feeds)
            assert bool(noted) == (fetch is other)


@pytest.mark.allow_blocking
async def test_a_plan_for_small_feeds_is_called_and_large_ones_go_to_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = worker_jobs(monkeypatch)
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [None, None, None, 2], name="x")
        filters = np.ones((1, 1, 2, 2), np.float32)
        y = ax.raw_ops.Conv2D(x, filters, strides=[1, 1, 1, 1], padding="VALID", name="y")
    small, large = np.ones((1, 2, 2, 2), np.float32), np.ones((8, 600, 600, 2), np.float32)
    async with ax.Session(graph) as session:
        for _ in range(1000):  # until it has been measured, and compiled
            assert (await session.run(y, {x: small})).tolist() == (2 * small).tolist()
            (prepared,) = session._cache.values()
            plan = prepared.tier.compiled
            if isinstance(plan, CompiledPlan):
                break
            await asyncio.sleep(0)
        assert isinstance(plan, CompiledPlan)
        assert plan.limits is not None
        assert prepared.tier.plain is plan
        jobs.clear()
        for _ in range(3):
            assert (await session.run(y, {x: small})).tolist() == (2 * small).tolist()
        assert not jobs
        assert np.array_equal(await session.run(y, {x: large}), 2 * large)
        assert jobs == ["y"]
        assert (await session.run(y, {x: small})).tolist() == (2 * small).tolist()
        assert jobs == ["y"]


async def test_a_session_used_in_another_loop_is_not_called_from_here() -> None:
    go = asyncio.Event()

    @ax.op(outputs=[ax.float32], shapes=[[]])
    async def wait(x: Any) -> Any:
        await go.wait()
        return x

    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [], name="x")
        late, soon = wait(x), x + 1.0
    session = ax.Session(graph, COMPILED)
    assert await session.run(soon, {x: 1}) == 2
    waiting = asyncio.ensure_future(session.run(late, {x: 1}))
    await asyncio.sleep(0)

    def elsewhere() -> Any:
        async def main() -> Any:
            for _ in range(2):  # that it was refused once is no leave
                with pytest.raises(ax.errors.FailedPreconditionError, match="another event loop"):
                    await session.run(soon, {x: 1})

        asyncio.run(main())

    await asyncio.to_thread(elsewhere)
    assert await session.run(soon, {x: 1}) == 2
    go.set()
    assert await waiting == 1
    await session.close()
