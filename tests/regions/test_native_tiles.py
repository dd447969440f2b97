"""Groups whose tiles are native code: the same bits as by the kernels, whatever the values and however many."""

from __future__ import annotations

import contextlib
import gc
import itertools
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Final
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import asyncexec as ax
from asyncexec.executor.plans import native_tiles, tiled_plan
from asyncexec.executor.plans.native_calls import COMPILER, NativeCompiler, Pauses
from asyncexec.executor.plans.native_tiles import NativeTile, NativeTiles
from asyncexec.executor.plans.tiled_plan import TiledPlan
from asyncexec.regions import groups
from asyncexec.regions.native_emitter import nan_of
from tests.regions.native import never_native
from tests.regions.programs import TAGGED
from tests.regions.test_native_code import OPS, VALUES, make
from tests.regions.test_tiled_groups import bits, tile

TILE: Final = 64  # elements of float32
F: Final = ax.float32
FLOATS: Final = (ax.float32, ax.float64)
INTEGERS: Final = (ax.int32, ax.int64)


@pytest.fixture(autouse=True)
def small_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Groups are compiled at once, and tiles are small; a single node is a group, too."""
    monkeypatch.setattr(tiled_plan, "TILE_BYTES", 4 * TILE)
    monkeypatch.setattr(native_tiles, "HOT_ELEMENTS", 1)
    monkeypatch.setattr(groups, "_FEW", 1)
    monkeypatch.setattr(COMPILER, "submit", COMPILER.compile)
    monkeypatch.setattr(Pauses, "__call__", lambda pauses, *event: None)


@contextlib.contextmanager
def counted() -> Iterator[list[bool]]:
    """Of each tile that native code was asked for, whether it did that."""
    done: list[bool] = []
    do = NativeTile._do

    def noted(tile: NativeTile, *args: Any) -> bool:
        done.append(do(tile, *args))
        return done[-1]

    with mock.patch.object(NativeTile, "_do", noted):
        yield done


def tile_of(plan: TiledPlan, inputs: Sequence[Any]) -> NativeTile:
    """The native code of *plan*, for such *inputs*."""
    native = plan._find_native
    assert isinstance(native, NativeTiles)
    native(inputs, 1)
    found = native(inputs, 1)
    assert found is not None
    return found


def part(value: Any, start: int, end: int) -> Any:
    return value[start:end] if isinstance(value, np.ndarray) else value


def native_bits(native: NativeTile, inputs: Sequence[Any], like: np.ndarray[Any, Any]) -> bytes | None:
    """What *native* gives for *inputs*; None if it refuses."""
    out = np.empty(like.shape, like.dtype)
    do = native.bind(inputs, [out])
    assert do is not None
    return out.tobytes() if do(0, len(out)) else None


# Which inputs may be scalars where the others are arrays; of other ops all may.
_SCALARS: Final[dict[str, Sequence[int | None]]] = {"Select": [None], "AddN": [None], "ClipByValue": [1, 2]}


@pytest.mark.one_of("loop", "of_scalars")
@pytest.mark.parametrize("of_scalars", [False, True])
@pytest.mark.parametrize(("op", "kinds"), OPS, ids=lambda value: value if isinstance(value, str) else value[-1].name)
async def test_bits_are_those_of_the_kernel(op: str, kinds: Sequence[ax.DType], of_scalars: bool) -> None:
    """Each special value with each other, in arrays of many lengths; each input in turn may be a scalar."""
    for slot in _SCALARS.get(op, range(len(kinds))) if of_scalars and len(kinds) > 1 else [None]:
        await check_kernel(op, kinds, slot)


async def check_kernel(op: str, kinds: Sequence[ax.DType], slot: int | None) -> None:
    """The input *slot* is a scalar.  Nearly all that are no NaN are done natively."""
    with ax.Graph() as graph:
        fed = [ax.placeholder(kind, [] if index == slot else [None]) for index, kind in enumerate(kinds)]
        result = make(op, fed)
    values = [VALUES[kind][:1] if index == slot else VALUES[kind] for index, kind in enumerate(kinds)]
    columns = [np.array(column) for column in zip(*itertools.product(*values), strict=True)]
    num_native = num_numbers = 0
    async with ax.Session(graph) as session:
        empty = {
            each: column[0] if each.shape.rank == 0 else column[:0] for each, column in zip(fed, columns, strict=True)
        }
        (plan,) = await tile(session, result, empty)
        native: NativeTile | None = None
        for scalar in [None] if slot is None else VALUES[kinds[slot]]:
            inputs = [scalar if index == slot else column for index, column in enumerate(columns)]
            native = native or tile_of(plan, inputs)
            accepted, num = accepted_by(native, plan, inputs)
            num_native += len(accepted)
            num_numbers += num
            chosen = [value[accepted] if isinstance(value, np.ndarray) else value for value in inputs]
            if accepted:
                check_lengths(native, plan, chosen, range(1, 131) if slot is None else (1, 7, 16, 33, 130))
    assert num_native > 0.5 * num_numbers


def accepted_by(native: NativeTile, plan: TiledPlan, inputs: Sequence[Any]) -> tuple[list[int], int]:
    """The elements that *native* does when they are alone, and how many there are without a NaN."""
    arrays = [value for value in inputs if isinstance(value, np.ndarray)]
    found, numbers = [], 0
    for index in range(len(arrays[0])):
        each = [part(value, index, index + 1) for value in inputs]
        numbers += not any(np.any(value != value) for value in each)
        with np.errstate(all="ignore"):
            try:
                (expected,) = plan._plan.function(*each)
            except ax.errors.OpError:
                assert native_bits(native, each, arrays[0][:1]) is None
                continue
        got = native_bits(native, each, expected)
        if got is not None:
            assert got == expected.tobytes(), each
            found.append(index)
    return found, numbers


def check_lengths(native: NativeTile, plan: TiledPlan, inputs: Sequence[Any], lengths: Iterable[int]) -> None:
    """Compare parts of *inputs*, all of which *native* accepts one by one, with what the kernels give."""
    (size,) = {len(value) for value in inputs if isinstance(value, np.ndarray)}
    rng = np.random.default_rng(size)
    for length in [*lengths, size]:
        at = rng.integers(0, size, length)
        each = [value[at] if isinstance(value, np.ndarray) else value for value in inputs]
        with np.errstate(all="ignore"):
            (expected,) = plan._plan.function(*each)
        assert native_bits(native, each, expected) == expected.tobytes(), (length, each)


# Whole groups.


def usual(kind: ax.DType, size: int) -> np.ndarray[Any, Any]:
    """Special values in any order; of the NaNs only the one that invalid operations give."""
    numbers = [value for value in VALUES[kind] if value == value]
    if kind in FLOATS:
        numbers.append(nan_of(kind.as_numpy_dtype.type))
    return np.random.default_rng(size).choice(np.array(numbers), size)


async def expected_of(graph: ax.Graph, fetches: Any, feeds: Any) -> Any:
    async with ax.Session(graph, TAGGED) as session:
        return await session.run(fetches, feeds)


async def test_a_group_is_native_from_its_second_call_on() -> None:
    """With scalars beside arrays, several outputs, and dtypes of all sizes."""
    with ax.Graph() as graph:
        x, factor = ax.placeholder(F, [None, 3], name="x"), ax.placeholder(F, [], name="factor")
        a = x * factor + 0.5
        fetches = [a, ax.cast(a, ax.float64), ax.where(a < x, ax.maximum(a, x), x - a), a < x]
    feeds = {x: usual(F, 2997).reshape(-1, 3), factor: np.float32(-1.5)}
    expected = await expected_of(graph, fetches, feeds)
    async with ax.Session(graph) as session:
        await tile(session, fetches, feeds)
        for num_tiles in (0, 12, 12):
            with counted() as done:
                assert bits(await session.run(fetches, feeds)) == bits(expected)
            assert done == [True] * num_tiles


async def test_a_tile_that_native_code_refuses_is_done_by_the_kernels() -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(F, [None], name="x")
        y = (x + 1.0) * x
        is_small = ax.placeholder(ax.bool, [None], name="is_small")
        z = ax.logical_or(ax.logical_not(is_small), x < 0.5)
    value = usual(F, 20 * TILE)
    value[9 * TILE] = np.array(0x7FC00123, np.uint32).view(np.float32)  # a NaN that tells something
    bools = np.random.default_rng(0).integers(0, 2, value.size).astype(np.uint8)
    bools[17 * TILE] = 2  # as other libraries write truth values
    feeds = {x: value, is_small: bools.view(np.bool_)}
    expected = await expected_of(graph, [y, z], feeds)
    async with ax.Session(graph) as session:
        await tile(session, [y, z], feeds)
        await session.run([y, z], feeds)
        with counted() as done:
            assert bits(await session.run([y, z], feeds)) == bits(expected)
        assert sorted(done) == [False] * 2 + [True] * 3


async def test_native_code_that_refuses_all_is_not_asked_for_ever() -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(F, [None], name="x")
        y = (x + 1.0) * x
    value = np.full(1000 * TILE, np.float32("nan"))
    expected = await expected_of(graph, y, {x: value})
    async with ax.Session(graph) as session:
        await tile(session, y, {x: value})
        with counted() as done:
            for _ in range(4):
                assert bits([await session.run(y, {x: value})]) == bits([expected])
        assert not any(done)
        assert 16 <= len(done) <= 250  # those of the first call that is native


async def test_an_error_in_a_native_tile_names_the_node() -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.int32, [None], name="x")
        y = ax.floordiv(x * 3, x - 5, name="divides") + 1
    good, bad = np.arange(6, 900, dtype=np.int32), np.arange(900, 0, -1, dtype=np.int32)
    expected = await expected_of(graph, y, {x: good})
    with pytest.raises(ax.errors.InvalidArgumentError) as raised:
        await expected_of(graph, y, {x: bad})
    async with ax.Session(graph) as session:
        await tile(session, y, {x: good})
        await session.run(y, {x: good})
        for _ in range(2):
            with counted() as done, pytest.raises(ax.errors.InvalidArgumentError) as again:
                await session.run(y, {x: bad})
            assert False in done
            assert (str(again.value), again.value.node) == (str(raised.value), "divides")
            assert bits([await session.run(y, {x: good})]) == bits([expected])


async def test_a_number_out_of_range_does_no_harm_behind_it() -> None:
    """What it is cast to is no number, and a divisor."""
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float64, [None], name="x")
        y = ax.truncatediv(ax.constant(100), ax.cast(x, ax.int32))
    value = np.random.default_rng(0).uniform(1, 9, 40 * TILE)
    value[20 * TILE] = 1e300
    expected = await expected_of(graph, y, {x: value})
    async with ax.Session(graph) as session:
        await tile(session, y, {x: value})
        await session.run(y, {x: value})
        with counted() as done:
            assert bits([await session.run(y, {x: value})]) == bits([expected])
        assert done.count(False) == 1


async def test_a_nan_that_llvm_could_compute_is_that_of_the_processor() -> None:
    """Whatever the input is, the results are 0 / 0 and infinity - infinity."""
    with ax.Graph() as graph:
        x = ax.placeholder(ax.int32, [None], name="x")
        zero, none = ax.cast(x - x, ax.float32), ax.cast(x < x, ax.float64)
        infinity = ax.reciprocal(ax.cast(x * 0, ax.float32))
        fetches = [zero / zero, none / none, infinity - infinity]
    feeds = {x: usual(ax.int32, 9 * TILE)}
    expected = await expected_of(graph, fetches, feeds)
    assert all(np.isnan(each).all() for each in expected)
    async with ax.Session(graph, ax.SessionConfig(optimization="off")) as session:
        await tile(session, fetches, feeds)
        await session.run(fetches, feeds)
        with counted() as done:
            assert bits(await session.run(fetches, feeds)) == bits(expected)
        assert done
        assert all(done)


async def test_inputs_of_other_kinds_are_for_the_kernels() -> None:
    """Where shapes are not known, a scalar may stand where an array was; the result may be one, too."""
    with ax.Graph() as graph:
        x, y = ax.placeholder(F, name="x"), ax.placeholder(F, name="y")
        fetches = [ax.maximum(x, y) - 1.0, y * y]
    array, scalar = usual(F, 999), np.float32(0.25)
    pairs = [(array, scalar), (scalar, array), (array, array), (scalar, scalar), (array[::2], scalar)]
    for first in (0, 2):
        async with ax.Session(graph) as session:
            await tile(session, fetches, {x: array, y: array})
            for _ in range(2):
                await session.run(fetches, {x: pairs[first][0], y: pairs[first][1]})
            for index, (x_value, y_value) in enumerate(pairs):
                expected = await expected_of(graph, fetches, {x: x_value, y: y_value})
                with counted() as done:
                    assert bits(await session.run(fetches, {x: x_value, y: y_value})) == bits(expected)
                assert bool(done) == (index == first == 2)  # else an output is a scalar


@pytest.mark.parametrize("num", [1, 70, 300])
async def test_groups_that_stay_with_numpy(num: int) -> None:
    """Those with a function of which there are no instructions, with very many inputs or with very many nodes."""
    with ax.Graph() as graph:
        inputs = [ax.placeholder(F, [None]) for _ in range(num if num == 70 else 1)]
        y = ax.exp(inputs[0]) if num == 1 else inputs[0]
        for index in range(num):
            y = y * inputs[index % len(inputs)]
    feeds = {each: usual(F, 500) for each in inputs}
    async with ax.Session(graph) as session:
        for plan in await tile(session, y, feeds):
            assert plan._find_native is None


async def test_without_the_extra_nothing_becomes_native() -> None:
    with never_native(), ax.Graph() as graph:
        x = ax.placeholder(F, [None])
        async with ax.Session(graph) as session:
            (plan,) = await tile(session, x * 2.0 - 1.0, {x: usual(F, 500)})
    assert plan._find_native is None


@pytest.mark.one_of("loop")
@pytest.mark.allow_blocking
async def test_what_has_had_many_elements_is_compiled_on_a_thread_and_freed_with_its_session() -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(F, [None])
        y = ax.maximum(x * 2.0, 1.0)
    value = usual(F, 500)
    gc.collect()
    COMPILER.free_soon()
    COMPILER.join()
    alive = COMPILER.num_compiled - COMPILER.num_freed
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(native_tiles, "HOT_ELEMENTS", 1_200)
        patch.setattr(COMPILER, "submit", partial(NativeCompiler.submit, COMPILER))
        async with ax.Session(graph) as session:
            await tile(session, y, {x: value})
            for num_compiled in (0, 0, 1, 1):
                await session.run(y, {x: value})
                COMPILER.join()
                assert COMPILER.num_compiled - COMPILER.num_freed == alive + num_compiled
            with counted() as done:
                await session.run(y, {x: value})
            assert done == [True, True]
    del session
    gc.collect()
    COMPILER.free_soon()
    COMPILER.join()
    assert COMPILER.num_compiled - COMPILER.num_freed == alive


UNARY: Final = [  # floats keep their signs: of two NaNs numpy hands on now the first, now the second
    (FLOATS, ax.sqrt),
    (FLOATS, ax.floor),
    (FLOATS, ax.square),
    (FLOATS, ax.reciprocal),
    (INTEGERS, lambda x: -x),
    (INTEGERS, ax.abs),
    (INTEGERS, ax.square),
    (INTEGERS, lambda x: ax.create_op("Invert", [x])),
]
BINARY: Final = [ax.add, ax.subtract, ax.multiply, ax.maximum, ax.minimum, ax.squared_difference]


@pytest.mark.allow_blocking
@settings(max_examples=10, deadline=None)
@given(st.data())
def test_random_groups(data: st.DataObject) -> None:
    kinds = list(VALUES)
    with ax.Graph() as graph:
        fed = [ax.placeholder(kind, [None]) for kind in kinds]
        made: dict[ax.DType, list[ax.Tensor]] = {kind: [each] for kind, each in zip(kinds, fed, strict=True)}

        def pick(kind: ax.DType) -> ax.Tensor:
            return data.draw(st.sampled_from(made[kind]))

        for _ in range(data.draw(st.integers(2, 14))):
            kind = data.draw(st.sampled_from(kinds))
            choice = data.draw(st.integers(0, 3))
            if choice == 0:
                result = ax.cast(pick(kind), data.draw(st.sampled_from([each for each in kinds if each != kind])))
            elif choice == 1:
                result = ax.where(pick(ax.bool), pick(kind), pick(kind))
            elif kind == ax.bool:
                other = data.draw(st.sampled_from([each for each in kinds if each != ax.bool]))
                result = pick(other) < pick(other)
            elif choice == 2:
                result = data.draw(st.sampled_from([make for of, make in UNARY if kind in of]))(pick(kind))
            else:
                result = data.draw(st.sampled_from(BINARY))(pick(kind), pick(kind))
            made[result.dtype].append(result)
        fetches = [each for of_kind in made.values() for each in of_kind[1:]]
    size = data.draw(st.integers(TILE, 30 * TILE))
    feeds = {each: usual(each.dtype, size) for each in fed}

    async def run() -> None:
        expected = await expected_of(graph, fetches, feeds)
        async with ax.Session(graph, ax.SessionConfig(optimization="off")) as session:
            await tile(session, fetches, feeds)
            for _ in range(3):
                assert bits(await session.run(fetches, feeds)) == bits(expected)

    ax.run(run)
