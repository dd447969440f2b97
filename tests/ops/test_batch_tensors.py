"""Batch, Unbatch and UnbatchGrad: the last call leads its batch, and everybody gets back what belongs to it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import asyncexec as ax
from asyncexec.framework.errors import Code
from tests.fake_time import FakeTime
from tests.running import import_all_names, settle, started

TIMEOUT_S = 0.5
NO_INDEX = np.empty((0, 3), np.int64)


@pytest.fixture(scope="module", autouse=True)
def all_names() -> None:
    import_all_names()


class Batching:
    """A graph with a Batch of two inputs, ten times the first, and an Unbatch of that."""

    def __init__(self, *, max_size: int = 4, timeout_s: float = 0.1, allowed: Sequence[int] = (), waiting: int = 10):
        attrs = {
            "num_batch_threads": 1,
            "max_batch_size": max_size,
            "batch_timeout_micros": round(timeout_s * 1e6),
            "grad_timeout_micros": 0,
            "max_enqueued_batches": waiting,
            "allowed_batch_sizes": tuple(allowed),
        }
        with ax.Graph() as self.graph:
            self.x, self.y = ax.placeholder(ax.float32, name="x"), ax.placeholder(ax.int64, name="y")
            *self.rows, self.index, self.id = ax.create_op("Batch", [[self.x, self.y]], attrs=attrs, name="batch")
            timeout = {"timeout_micros": round(TIMEOUT_S * 1e6)}
            tenfold = ax.multiply(self.rows[0], 10.0, name="tenfold")
            self.out = ax.create_op("Unbatch", [tenfold, self.index, self.id], attrs=timeout, name="unbatch")

    def feeds(self, value: float, rows: int, width: int = 2) -> dict[Any, Any]:
        return {self.x: np.full((rows, width), value, np.float32), self.y: np.arange(rows)}

    def call(self, session: ax.Session, value: float, rows: int, width: int = 2) -> Any:
        fetches = [self.rows, self.index, self.id, self.out]
        return session.run(fetches, self.feeds(value, rows, width))


# Rows of the calls that come one after the other, and the allowed sizes of batches.
CASES: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = {
    "one": ((1,), ()),
    "three": ((1, 1, 2), ()),
    "not_full": ((1, 2), ()),
    "padded": ((1, 2), (2, 4)),
    "of_a_size": ((2,), (2, 4)),
    "two_batches": ((2, 1, 3), ()),
    "full_at_once": ((4, 1), ()),
}


def check(sizes: Sequence[int], allowed: Sequence[int], results: Sequence[Any]) -> list[list[int]]:
    """Hold what the calls got against each other; which calls were in each batch."""
    ids = [int(number) for _, _, number, _ in results]
    batches: list[list[int]] = []
    for i, ((rows, counts), index, _, out) in enumerate(results):
        assert out.tolist() == [[10.0 * i] * 2] * sizes[i]
        assert index.shape[1] == 3
        if not len(index):
            assert (rows.shape, counts.shape) == ((0, 2), (0,))
            continue
        members = [ids.index(number) for number in index[:, 0]]
        assert members[-1] == i  # the last leads
        batches.append(members)
        stops = np.cumsum([sizes[member] for member in members]).tolist()
        assert index[:, 1:].tolist() == [list(each) for each in zip([0, *stops], stops, strict=False)]
        padding = next((size for size in allowed if size >= stops[-1]), stops[-1]) - stops[-1]
        expected = [member for member in members for _ in range(sizes[member])] + [members[0]] * padding
        assert rows[:, 0].tolist() == expected
        assert counts.tolist() == [k for member in members for k in range(sizes[member])] + [0] * padding
    return batches


EXPECTED = {
    "one": [[0]],
    "three": [[0, 1, 2]],
    "not_full": [[0, 1]],
    "padded": [[0, 1]],
    "of_a_size": [[0]],
    "two_batches": [[0, 1], [2]],
    "full_at_once": [[0], [1]],
}


@pytest.mark.virtual_clock
@pytest.mark.parametrize("name", CASES)
async def test_the_last_call_gets_the_rows_and_everybody_its_own(name: str) -> None:
    sizes, allowed = CASES[name]
    model = Batching(allowed=allowed)
    async with ax.Session(model.graph) as session:
        tasks = [await started(model.call(session, i, rows)) for i, rows in enumerate(sizes)]
        assert check(sizes, allowed, await asyncio.gather(*tasks)) == EXPECTED[name]


@pytest.mark.oracle
@pytest.mark.parametrize("name", CASES)
def test_tensorflow_does_the_same(name: str, tmp_path: Path) -> None:
    import tensorflow as tf

    sizes, allowed = CASES[name]
    model = Batching(allowed=allowed)
    path = tmp_path / "graph.pb"
    ax.save_graph_def(model.graph.as_graph_def(), path)
    results: list[Any] = [None] * len(sizes)
    with tf.Graph().as_default() as loaded:
        tf.import_graph_def(tf.compat.v1.GraphDef.FromString(path.read_bytes()), name="")
        with tf.compat.v1.Session(graph=loaded) as session:
            fetches = [["batch:0", "batch:1"], "batch:2", "batch:3", "unbatch:0"]

            def call(i: int) -> None:
                feeds = {key.name: value for key, value in model.feeds(i, sizes[i]).items()}
                results[i] = session.run(fetches, feeds)

            threads = [threading.Thread(target=call, args=(i,)) for i in range(len(sizes))]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
    batches = check(sizes, allowed, results)  # threads come in any order
    assert sorted(member for members in batches for member in members) == list(range(len(sizes)))


@pytest.mark.virtual_clock
async def test_a_call_without_rows_gets_none_back() -> None:
    model = Batching()
    async with ax.Session(model.graph) as session:
        (rows, counts), index, number, out = await model.call(session, 1, 0)
    assert (rows.shape, counts.shape, out.shape) == ((0, 2), (0,), (0, 2))
    assert index.tolist() == [[number, 0, 0]]


@pytest.mark.virtual_clock
async def test_rows_of_other_shapes_are_batched_apart() -> None:
    model = Batching()
    async with ax.Session(model.graph, clock=FakeTime().clock) as session:
        results = await asyncio.gather(*(model.call(session, i, 1, width) for i, width in enumerate((2, 3, 2))))
    assert [out.tolist() for *_, out in results] == [[[0.0, 0.0]], [[10.0] * 3], [[20.0, 20.0]]]
    assert [len(index) for _, index, _, _ in results] == [0, 1, 2]


@pytest.mark.virtual_clock
async def test_a_cancelled_call_leaves_and_another_leads() -> None:
    model = Batching()
    async with ax.Session(model.graph) as session:
        stays, leaves = await started(model.call(session, 1, 1)), await started(model.call(session, 2, 1))
        leaves.cancel()
        rows, index, number, out = await stays
        assert leaves.cancelled()
    assert (index.tolist(), out.tolist()) == ([[number, 0, 1]], [[10.0, 10.0]])
    assert rows[0].tolist() == [[1.0, 1.0]]


BAD: dict[str, tuple[dict[str, Any], Any, Any]] = {
    "too_many_rows": ({}, np.zeros((5, 2)), np.zeros(5)),
    "unequal_rows": ({}, np.zeros((1, 2)), np.zeros(2)),
    "a_scalar": ({}, np.float32(1), np.zeros(1)),
    "sizes_descend": ({"allowed": (4, 2)}, np.zeros((1, 2)), np.zeros(1)),
    "last_size_is_not_the_largest": ({"allowed": (2, 3)}, np.zeros((1, 2)), np.zeros(1)),
    "batches_of_no_rows": ({"max_size": 0}, np.zeros((1, 2)), np.zeros(1)),
}


@pytest.mark.parametrize("name", BAD)
async def test_a_bad_call_names_the_batch(name: str) -> None:
    options, x, y = BAD[name]
    model = Batching(**options)
    async with ax.Session(model.graph) as session:
        with pytest.raises(ax.errors.InvalidArgumentError) as caught:
            await session.run(model.out, {model.x: x, model.y: y})
    assert caught.value.node == "batch"


class Unbatching:
    """A graph with a fed Unbatch, and a fed UnbatchGrad."""

    def __init__(self) -> None:
        with ax.Graph() as self.graph:
            self.data, self.grad = ax.placeholder(ax.float32, name="data"), ax.placeholder(ax.float32, name="grad")
            self.index, self.id = ax.placeholder(ax.int64, name="index"), ax.placeholder(ax.int64, name="id")
            timeout = {"timeout_micros": round(TIMEOUT_S * 1e6)}
            inputs = [self.data, self.index]
            self.rows = ax.create_op("Unbatch", [*inputs, self.id], attrs=timeout, name="unbatch")
            self.gradients = ax.create_op("UnbatchGrad", [*inputs, self.grad, self.id], attrs={}, name="gradient")

    def unbatch(self, session: ax.Session, number: Any, data: Any = (), index: Any = NO_INDEX) -> Any:
        return session.run(self.rows, {self.data: data, self.index: index, self.id: number})

    def gradient(self, session: ax.Session, number: int, grad: Any, data: Any = (), index: Any = NO_INDEX) -> Any:
        feeds = {self.data: data, self.index: index, self.grad: grad, self.id: number}
        return session.run(self.gradients, feeds)


async def one(session: ax.Session, *calls: Callable[[], Any]) -> list[Any]:
    """The result of each call, or its status code, one call after the other."""
    found: list[Any] = []
    for call in calls:
        try:
            found.append((await call()).tolist())
        except ax.errors.OpError as error:
            found.append((error.code, error.node))
    return found


LATE = (Code.DEADLINE_EXCEEDED, "unbatch")
INVALID = (Code.INVALID_ARGUMENT, "unbatch")
TWO = [[7, 0, 1], [8, 1, 3]]


# Calls of Unbatch, one after the other: the id, data and index; and what comes of each.
UNBATCH: tuple[tuple[list[tuple[Any, ...]], list[Any]], ...] = (
    ([(7, [1, 2, 3], TWO), (8,)], [[1.0], [2.0, 3.0]]),
    ([(8,)], [LATE]),
    ([(7, [1, 2, 3], TWO), (8,), (8,)], [[1.0], [2.0, 3.0], LATE]),
    ([(9, [1, 2, 3], TWO), (7,)], [LATE, LATE]),  # nothing for 9; what it brought has waited too long then
    ([(7, [1, 2, 3], [[7, 0, 1], [8, 1, 2]]), (8,)], [[1.0], [2.0]]),  # 3 is padding
    ([(7, [1, 2], TWO)], [INVALID]),
    ([(7, [1], TWO)], [INVALID]),
    ([(7, [1], [[7, 0]])], [INVALID]),
    ([([7], [1], [[7, 0, 1]])], [INVALID]),
    ([(7, [1, 2], [[7, 0, 1], [7, 1, 2]]), (7,)], [[1.0], [2.0]]),
)
# What TensorFlow ends the process for.
FATAL: tuple[tuple[list[tuple[Any, ...]], list[Any]], ...] = (
    ([(7, [1, 2, 3], [[7, 0, 1], [8, 1, 2], [8, 2, 3]])], [(Code.ALREADY_EXISTS, "unbatch")]),
    ([(7, [1, 2], [[7, 1, 0], [8, 0, 2]])], [INVALID]),
    ([(7, 1.0, [[7, 0, 1]])], [INVALID]),
)


@pytest.mark.virtual_clock
@pytest.mark.parametrize(("calls", "expected"), UNBATCH + FATAL)
async def test_unbatch_gives_rows_by_id(calls: Sequence[tuple[Any, ...]], expected: list[Any]) -> None:
    model = Unbatching()
    async with ax.Session(model.graph) as session:
        assert await one(session, *(lambda call=call: model.unbatch(session, *call) for call in calls)) == expected


@pytest.mark.oracle
@pytest.mark.parametrize(("calls", "expected"), UNBATCH)
def test_tensorflow_gives_the_same_rows(calls: Sequence[tuple[Any, ...]], expected: list[Any], tmp_path: Path) -> None:
    import tensorflow as tf

    path = tmp_path / "graph.pb"
    ax.save_graph_def(Unbatching().graph.as_graph_def(), path)
    found: list[Any] = []
    with tf.Graph().as_default() as loaded:
        tf.import_graph_def(tf.compat.v1.GraphDef.FromString(path.read_bytes()), name="")
        with tf.compat.v1.Session(graph=loaded) as session:
            for number, *rest in calls:
                data, index = rest or ([], NO_INDEX)
                try:
                    rows = session.run("unbatch:0", {"data:0": data, "index:0": index, "id:0": number})
                    found.append(rows.tolist())
                except tf.errors.OpError as error:
                    found.append((error.error_code, error.op.name))
    assert found == expected


@pytest.mark.virtual_clock
async def test_a_call_waits_for_the_leader() -> None:
    model = Unbatching()
    async with ax.Session(model.graph) as session:
        early = await started(model.unbatch(session, 8))
        with pytest.raises(ax.errors.AlreadyExistsError, match="Multiple session runs with the same batch key"):
            await model.unbatch(session, 8)
        await asyncio.sleep(TIMEOUT_S / 2)
        assert (await model.unbatch(session, 7, [1.0, 2.0, 3.0], TWO)).tolist() == [1.0]
        assert (await early).tolist() == [2.0, 3.0]


@pytest.mark.virtual_clock
async def test_closing_the_session_forgets_rows_and_calls() -> None:
    model = Unbatching()
    loop: Any = asyncio.get_running_loop()
    session = ax.Session(model.graph)
    await model.unbatch(session, 7, [1.0, 2.0, 3.0], TWO)
    waits = await started(model.unbatch(session, 9))
    await session.close()
    assert isinstance((await asyncio.gather(waits, return_exceptions=True))[0], ax.errors.CancelledError)
    await settle()
    assert all(handle.cancelled() for handle in loop._scheduled)


async def test_gradients_come_together_at_the_leader() -> None:
    model = Unbatching()
    async with ax.Session(model.graph) as session:
        first = await model.gradient(session, 8, [5.0, 6.0])
        assert first.shape == (0,)
        index = [[8, 0, 2], [7, 2, 3], [9, 3, 4]]
        leader = await started(model.gradient(session, 7, [4.0], [0.0] * 4, index))
        assert not leader.done()
        assert (await model.gradient(session, 9, [3.0])).shape == (0,)
        assert (await leader).tolist() == [5.0, 6.0, 4.0, 3.0]


@pytest.mark.parametrize(
    ("calls", "expected"),
    [
        ([(8, [1]), (8, [1])], [[], Code.INVALID_ARGUMENT]),
        ([(8, [1], [1], NO_INDEX)], [Code.INVALID_ARGUMENT]),
        ([(8, [1], [1], [[8, 0]])], [Code.INVALID_ARGUMENT]),
        ([(8, [1], [1, 1], [[8, 0, 1], [8, 1, 2]])], [Code.INTERNAL]),
        ([(8, [1], [1], [[8, 0, 1]])], [[1.0]]),
    ],
)
async def test_gradients_that_do_not_fit_are_refused(calls: Sequence[tuple[Any, ...]], expected: list[Any]) -> None:
    model = Unbatching()
    async with ax.Session(model.graph) as session:
        found = await one(session, *(lambda call=call: model.gradient(session, *call) for call in calls))
    assert [each if isinstance(each, list) else each[0] for each in found] == expected


async def test_a_leader_that_is_cancelled_lets_another_wait() -> None:
    model = Unbatching()
    async with ax.Session(model.graph) as session:
        index = [[7, 0, 1], [8, 1, 2]]
        leader = await started(model.gradient(session, 7, [1.0], [0.0] * 2, index))
        leader.cancel()
        await asyncio.wait([leader])
        other = await started(model.gradient(session, 6, [1.0], [0.0], [[8, 0, 1]]))
        await model.gradient(session, 8, [2.0])
        assert (await other).tolist() == [2.0]


def test_shapes() -> None:
    model = Batching()
    assert model.index.shape.dims == (None, 3)
    assert model.id.shape.dims == ()
    with ax.Graph():
        x, index, number = ax.placeholder(ax.float32, [2, 3]), ax.placeholder(ax.int64), ax.placeholder(ax.int64)
        rows = ax.create_op("Unbatch", [x, index, number], attrs={"timeout_micros": 1})
        assert rows.shape.dims == (None, 3)
        assert ax.create_op("UnbatchGrad", [x, index, x, number], attrs={}).shape.dims == (None, None)
