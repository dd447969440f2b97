"""Variables and TensorArrays that kernels on several threads change: no change is lost."""

from __future__ import annotations

from threading import Barrier, Event, Thread
from typing import Any

import numpy as np

import asyncexec as ax
from asyncexec.framework.tensor_shape import TensorShape
from asyncexec.framework.types import float64
from asyncexec.ops.tensor_array_state import TensorArray
from asyncexec.ops.variable_state import Variable

THREADS = 4
SIZE = 400_000  # numpy lets others run meanwhile


def test_gradients_are_all_added() -> None:
    array = TensorArray("a", float64, 1, TensorShape([SIZE])).gradient("g")
    start, ones = Barrier(THREADS), np.ones(SIZE)

    def add() -> None:
        start.wait()
        for _ in range(10):
            array.write(0, ones)

    threads = [Thread(target=add) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    np.testing.assert_array_equal(array.read(0), np.full(SIZE, 10.0 * THREADS))


async def test_gradients_of_one_step_are_all_added() -> None:
    with ax.Graph() as graph:
        fed = [ax.placeholder(ax.float64, [None]) for _ in range(2 * THREADS)]
        array = ax.create_op("TensorArrayV3", [np.int32(1)], {"dtype": ax.float64})
        handle, flow = ax.create_op("TensorArrayGradV3", list(array), {"source": "g"})
        written = [ax.create_op("TensorArrayWriteV3", [handle, np.int32(0), value, flow]) for value in fed]
        total = ax.create_op("TensorArrayReadV3", [handle, np.int32(0), ax.add_n(written)], {"dtype": ax.float64})
    async with ax.Session(graph, ax.SessionConfig(num_worker_threads=THREADS)) as session:
        value = await session.run(total, {each: np.ones(SIZE) for each in fed})
    np.testing.assert_array_equal(value, np.full(SIZE, 2.0 * THREADS))


def test_an_assignment_during_an_update_is_not_lost() -> None:
    variable = Variable("v", float64, TensorShape([]))
    variable.assign(np.float64(1))
    has_begun, is_assigned = Event(), Event()

    def slow(old: Any) -> Any:
        has_begun.set()
        is_assigned.wait(0.1)  # which it is not, where it waits for this
        return old + 1

    def assign() -> None:
        variable.assign(np.float64(100))
        is_assigned.set()

    update = Thread(target=variable.update, args=(slow,))
    update.start()
    has_begun.wait()
    other = Thread(target=assign)
    other.start()
    update.join()
    other.join()
    assert variable.read() in (100, 101)  # by the order of the two
