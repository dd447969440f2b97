"""Nodes with very many inputs, outputs or control inputs, and signatures of very many feeds or fetches.

What is done for each is as many turns of the loop longer than for few of them as it has parts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

import numpy as np
import pytest

import asyncexec as ax
from asyncexec.framework.cooperative import PART, in_parts
from tests.running import import_all_names, raw_op
from tests.session.turns import slow_session, turns_during

PARTS: Final = 4
MANY: Final = PARTS * PART
FEW: Final = 3

Signature: TypeAlias = tuple[Any, dict[Any, Any], Any]  # fetches, feeds, what comes out


@pytest.fixture(scope="module", autouse=True)
def op_modules() -> None:
    """Import what is used here: a test that runs in a loop must not read files."""
    import_all_names()


def count_inputs(*values: Any) -> Any:
    return np.int32(len(values))


counted = raw_op("CountInputs", count_inputs, dtype=ax.int32)


def inputs(x: ax.Tensor, count: int) -> Signature:
    return counted(*[-x] * count), {x: 1.0}, count


def inputs_of_which_some_are_constants(x: ax.Tensor, count: int) -> Signature:
    return counted(*[x, ax.constant(1.0)] * (count // 2)), {x: 1.0}, count // 2 * 2


def inputs_in_a_loop(x: ax.Tensor, count: int) -> Signature:
    zero = ax.constant(0, ax.int32)
    return ax.while_loop(lambda i: i < 1, lambda i: counted(*[i] * count), [zero]), {}, [count]


def outputs(x: ax.Tensor, count: int) -> Signature:
    numbers = tuple(np.int32(i) for i in range(count))
    given = raw_op("GiveMany", lambda _: numbers, outputs=count, dtype=ax.int32)(x)
    return [given[0], given[-1]], {x: 1.0}, [0, count - 1]


def outputs_in_a_loop(x: ax.Tensor, count: int) -> Signature:
    numbers = tuple(np.int32(i) for i in range(count))
    give = raw_op("GiveManyAgain", lambda _: numbers, outputs=count, dtype=ax.int32)
    zero = ax.constant(0, ax.int32)
    return ax.while_loop(lambda i: i < 1, lambda i: give(i)[-1], [zero]), {}, [count - 1]


def control_inputs(x: ax.Tensor, count: int) -> Signature:
    with ax.control_dependencies([ax.no_op() for _ in range(count)]):
        return ax.identity(x), {x: 2.0}, 2.0


def fetches(x: ax.Tensor, count: int) -> Signature:
    several = [-x, x * 2.0]
    return several * (count // 2), {x: 2.0}, [-2.0, 4.0] * (count // 2)


def feeds(x: ax.Tensor, count: int) -> Signature:
    values = {ax.placeholder(ax.float32, []): np.float32(1) for _ in range(count)}
    return counted(*values), values, count


def feeds_of_a_loop(x: ax.Tensor, count: int) -> Signature:
    values = {ax.placeholder(ax.int32, []): np.int32(1) for _ in range(count)}
    first = counted(*values)
    return ax.while_loop(lambda i: i < 1, lambda i: i + 1, [first]), values, [count]


ALL: Final[Sequence[Callable[[ax.Tensor, int], Signature]]] = [
    inputs, inputs_of_which_some_are_constants, inputs_in_a_loop, outputs, outputs_in_a_loop, control_inputs, fetches,
    feeds, feeds_of_a_loop,
]  # fmt: skip
# Parts of the many that each stage hands on one by one: pruning, laying out, wiring, frames.
STAGES: Final = {"inputs": 3, "inputs_in_a_loop": 4, "fetches": 1, "outputs": 1, "outputs_in_a_loop": 2, "feeds": 5}


async def turns_of_first_run(make: Callable[[ax.Tensor, int], Signature], count: int) -> int:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [], name="x")
        fetched, fed, wanted = make(x, count)
    async with slow_session(graph) as session:
        turns, found = await turns_during(session.run(fetched, fed))
        assert found == wanted
        assert await session.run(fetched, fed) == wanted
    return turns


@pytest.mark.one_of("loop")
@pytest.mark.parametrize("make", ALL, ids=lambda make: make.__name__)
async def test_first_run(make: Callable[[ax.Tensor, int], Signature]) -> None:
    few, many = [await turns_of_first_run(make, count) for count in (FEW * 2, MANY)]
    assert many - few >= STAGES.get(make.__name__, 1) * (PARTS - 1)


async def test_a_run_with_a_node_of_many_inputs_can_be_cancelled_while_it_is_built() -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [], name="x")
        y, _, _ = inputs(x, MANY)
    async with slow_session(graph) as session:
        turns, _ = await turns_during(session.run(x * 2.0, {x: 1.0}))
        for wait in range(turns, turns + 3 * PARTS):
            running = asyncio.ensure_future(session.run(y, {x: 1.0}))
            for _ in range(wait):
                await asyncio.sleep(0)
            assert running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
        assert await session.run(y, {x: 1.0}) == MANY


@pytest.mark.parametrize("length", [0, 1, PART, PART + 1, 3 * PART])
def test_in_parts(length: int) -> None:
    parts = list(in_parts(range(length)))
    assert [number for part in parts for number in part] == list(range(length))
    assert all(len(part) <= PART for part in parts)
    assert len(parts) == max(1, -(-length // PART))
