"""What native code does in loops with small arrays: the same as the kernels, to the bit; the rest is left to them."""

from __future__ import annotations

import asyncio
import gc
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Final

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

import asyncexec as ax
from asyncexec.executor.plans.native_calls import COMPILER
from asyncexec.executor.plans.native_loops import NativeLoop
from asyncexec.framework.errors import InvalidArgumentError, OpError
from asyncexec.regions.native_emitter import NotNativeError
from asyncexec.regions.ufunc_loops import _UfuncObject, loop_of
from tests.regions.native import hooks, native_at_once, never_native, plan_of
from tests.regions.programs import COMPILED
from tests.session.turns import turns_during

pytestmark = pytest.mark.one_of("loop")  # what comes of a graph is the same in either

F: Final = ax.float32
BATCH, UNITS, WORDS, ROUNDS = 3, 8, 20, 70  # more rounds than native code does in one go


def _numbers(*shape: int, seed: int = 0) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def _num_loops(session: ax.Session) -> int:
    """How many loops with arrays are native."""
    return sum(isinstance(hook, NativeLoop) for hook in hooks(plan_of(session)))


async def _runs(graph: ax.Graph, fetches: Any, feeds: Sequence[dict[Any, Any]]) -> tuple[list[Any], int]:
    """What each run gives, or fails with; and how many loops were native in the end."""
    found: list[Any] = []
    async with ax.Session(graph, COMPILED) as session:
        for each in feeds:
            try:
                got = await session.run(fetches, each)
            except OpError as error:
                found.append((type(error), str(error), error.node))
            else:
                found.append([(np.asarray(one).dtype, np.shape(one), np.asarray(one).tobytes()) for one in got])
        return found, _num_loops(session)


async def _check(graph: ax.Graph, fetches: Any, feeds: Sequence[dict[Any, Any]]) -> tuple[list[Any], int]:
    """The same with native code, which gives what comes without it."""
    with never_native():
        expected, _ = await _runs(graph, fetches, feeds)
    with native_at_once():
        got, num_native = await _runs(graph, fetches, feeds)
    assert got == expected
    return got, num_native


def _decode(state: ax.Tensor, rounds: int = ROUNDS, room: int = ROUNDS) -> list[ax.Tensor]:
    """Words, each the most likely one after that before, and the last state."""
    table, kernel, recurrent, out = (
        ax.constant(_numbers(*shape, seed=seed))
        for seed, shape in enumerate([(WORDS, 4), (4, 2 * UNITS), (UNITS, 2 * UNITS), (UNITS, WORDS)])
    )

    def step(i: ax.Tensor, h: ax.Tensor, words: ax.Tensor, found: ax.Tensor) -> list[ax.Tensor]:
        x = ax.split(ax.matmul(ax.gather(table, words), kernel), 2, 1)
        y = ax.split(ax.matmul(h, recurrent), 2, 1)
        update = ax.sigmoid(x[0] + y[0])
        h = update * h + (1.0 - update) * ax.tanh(x[1] + y[1])
        words = ax.argmax(ax.matmul(h, out), 1, output_type=ax.int32)
        found = ax.raw_ops.TensorListSetItem(input_handle=found, index=i, item=words)
        return [i + 1, h, words, found]

    found = ax.raw_ops.TensorListReserve(
        element_shape=ax.constant([BATCH]), num_elements=ax.constant(room), element_dtype=ax.int32
    )
    first = ax.constant(np.zeros(BATCH, np.int32))
    _, last, _, found = ax.while_loop(lambda i, *_: i < rounds, step, [ax.constant(0), state, first, found])
    words = ax.raw_ops.TensorListStack(
        input_handle=found, element_shape=ax.constant([BATCH]), element_dtype=ax.int32, num_elements=-1
    )
    return [words, last]


async def test_decoding_is_native_and_gives_the_same() -> None:
    with ax.Graph() as graph:
        state = ax.placeholder(F, None, name="state")
        fetches = _decode(state)
    feeds = [{state: _numbers(BATCH, UNITS, seed=seed)} for seed in range(6)]
    assert (await _check(graph, fetches, feeds))[1] == 1


async def test_what_is_unusual_is_left_to_the_kernels() -> None:
    """A NaN, which ArgMax passes over; and arrays of another shape and layout."""
    with ax.Graph() as graph:
        state = ax.placeholder(F, None, name="state")
        fetches = _decode(state)
    usual = {state: _numbers(BATCH, UNITS)}
    odd = _numbers(BATCH, UNITS)
    odd[1, 2] = np.nan
    feeds = [usual, usual, {state: odd}, usual, {state: _numbers(1, UNITS)}, {state: _numbers(UNITS, BATCH).T}, usual]
    assert (await _check(graph, fetches, feeds))[1] == 1


async def test_error_of_a_call_that_was_put_off_is_that_of_its_round() -> None:
    with ax.Graph() as graph:
        state = ax.placeholder(F, [BATCH, UNITS], name="state")
        fetches = _decode(state, rounds=ROUNDS, room=ROUNDS - 4)
    got, num_native = await _check(graph, fetches, [{state: _numbers(BATCH, UNITS)}] * 3)
    assert num_native == 1
    assert got[0][0] is InvalidArgumentError
    assert f"in iteration while {ROUNDS - 4}" in got[0][1]


async def test_index_out_of_range_fails_as_without_native_code() -> None:
    with ax.Graph() as graph:
        first = ax.placeholder(ax.int32, [2], name="first")
        table = ax.constant(np.arange(1, 12, dtype=np.int32))
        step = lambda i, word: [i + 1, ax.gather(table, word)]  # noqa: E731
        fetches = ax.while_loop(lambda i, _: i < 5, step, [ax.constant(0), first])[1:]
    feeds = [{first: [0, 1]}] * 3 + [{first: [0, 8]}, {first: [-1, 0]}, {first: [11, 0]}]
    got, num_native = await _check(graph, fetches, feeds)
    assert num_native == 1
    assert [type(each) is tuple for each in got] == [False, False, False, True, True, True]


async def test_variables_that_change_places() -> None:
    with ax.Graph() as graph:
        x, y = (ax.placeholder(F, [4, 4], name=name) for name in "xy")
        step = lambda i, x, y: [i + 1, y * 2.0, x]  # noqa: E731
        fetches = ax.while_loop(lambda i, *_: i < 7, step, [ax.constant(0), x, y])[1:]
    feeds = [{x: _numbers(4, 4), y: _numbers(4, 4, seed=1)}] * 4
    assert (await _check(graph, fetches, feeds))[1] == 1


@pytest.mark.parametrize("is_transposed", [False, True])
async def test_arrays_that_lie_otherwise_give_their_own_bits(is_transposed: bool) -> None:
    """Sums go another way over a transposed array, from outside and from the round before."""
    with ax.Graph() as graph:
        w, v = ax.placeholder(F, [17, 17], name="w"), ax.placeholder(F, [17, 1], name="v")
        turned = (lambda x: ax.transpose(x)) if is_transposed else (lambda x: x * 0.5)
        step = lambda i, b, v: [i + 1, turned(b), ax.matmul(b, v) * 0.1 + ax.reduce_sum(b, 1, keepdims=True)]  # noqa: E731
        fetches = ax.while_loop(lambda i, *_: i < 9, step, [ax.constant(0), w, v])[1:]
    numbers = {v: _numbers(17, 1)}
    zeros = {w: np.zeros((17, 17), np.float32), **numbers}
    feeds = [zeros, zeros, zeros, {w: _numbers(17, 17), **numbers}, {w: _numbers(17, 17).T, **numbers}]
    assert (await _check(graph, fetches, feeds))[1] == (not is_transposed)


@pytest.mark.parametrize("is_one", [False, True])
async def test_an_array_multiplied_with_itself_gives_its_own_bits(is_one: bool) -> None:
    """BLAS does that in another way; two arrays may be one by the feeds, and from a round on."""
    with ax.Graph() as graph:
        x, y = (ax.placeholder(F, [33, 33], name=name) for name in "xy")
        z = x if is_one else y
        step = lambda i, a, b, c: [i + 1, ax.matmul(b, c, transpose_b=True), b, b if is_one else c]  # noqa: E731
        fetches = ax.while_loop(lambda i, *_: i < 5, step, [ax.constant(0), x, z, y])[1:]
    zeros, given = np.zeros((33, 33), np.float32), _numbers(33, 33)
    feeds = [{x: zeros, y: zeros + 1}] * 3 + [{x: given, y: given}, {x: given, y: given.copy()}]
    await _check(graph, fetches, feeds)


async def test_items_of_a_list_are_the_states_that_they_were() -> None:
    """What is done after the loop to the last item and the state is done to one array."""
    with ax.Graph() as graph:
        x = ax.placeholder(F, [33, 33], name="x")

        def step(i: ax.Tensor, h: ax.Tensor, found: ax.Tensor) -> list[ax.Tensor]:
            h = h * 0.5 + 1.0
            return [i + 1, h, ax.raw_ops.TensorListSetItem(input_handle=found, index=i, item=h)]

        empty = ax.raw_ops.TensorListReserve(
            element_shape=ax.constant([33, 33]), num_elements=ax.constant(20), element_dtype=F
        )
        _, h, found = ax.while_loop(lambda i, *_: i < 20, step, [ax.constant(0), x, empty])
        last = ax.raw_ops.TensorListGetItem(
            input_handle=found, index=ax.constant(19), element_shape=ax.constant([33, 33]), element_dtype=F
        )
        fetches = [ax.matmul(last, h, transpose_b=True)]
    assert (await _check(graph, fetches, [{x: _numbers(33, 33)}] * 4))[1] == 1


async def test_arrays_that_overlap_or_are_unaligned_give_their_own_bits() -> None:
    with ax.Graph() as graph:
        x, y = (ax.placeholder(F, [33, 33], name=name) for name in "xy")
        step = lambda i, z: [i + 1, z * 0.5 + ax.matmul(x, y, transpose_b=True) + ax.matmul(y, y, transpose_b=True)]  # noqa: E731
        fetches = ax.while_loop(lambda i, *_: i < 5, step, [ax.constant(0), x * 1.0])[1:]
    whole = _numbers(66, 33)
    room = np.zeros(33 * 33 * 4 + 1, np.uint8)[1:].view(np.float32).reshape(33, 33)
    room[...] = whole[:33]
    feeds = [{x: whole[:33], y: whole[33:]}] * 3
    feeds += [{x: whole[:33], y: whole[1:34]}, {x: whole[33:], y: room}, {x: whole[:33], y: whole[33:]}]
    assert (await _check(graph, fetches, feeds))[1] == 1


@pytest.mark.parametrize("shapes", [([], []), ([1], [1]), ([1], [1, 1]), ([4, 4], [4, 1]), ([4, 4], [])])
async def test_powers_are_numpys(shapes: tuple[list[int], list[int]]) -> None:
    """Its loop takes shortcuts where the exponent is a number, and so do its scalars."""
    shape, exponents = shapes
    with ax.Graph() as graph:
        x, n = ax.placeholder(F, shape, name="x"), ax.placeholder(F, exponents, name="n")
        y = ax.placeholder(F, [4], name="y")
        step = lambda i, x, y: [i + 1, ax.reshape(ax.pow(x, n), ax.shape(x)), y + 1.0]  # noqa: E731
        fetches = ax.while_loop(lambda i, *_: i < 3, step, [ax.constant(0), x, y])[1:]
    ones = {x: np.ones(shape), n: np.ones(exponents), y: _numbers(4)}
    odd = [(-np.inf, 0.5), (0.3, 3.0), (0.001, 2.0), (-0.0, 0.5), (2.5, -1.0), (1.234567, 2.0)]
    feeds = [ones] * 3 + [{x: np.full(shape, a), n: np.full(exponents, b), y: _numbers(4)} for a, b in odd]
    await _check(graph, fetches, feeds)


async def test_native_rounds_leave_the_loop_its_turns_and_end_with_their_step() -> None:
    with native_at_once(), ax.Graph() as graph:
        n = ax.placeholder(ax.int32, [])
        weights = ax.constant(_numbers(64, 64))
        step = lambda i, x: [i + 1, ax.tanh(ax.matmul(x, weights))]  # noqa: E731
        last = ax.while_loop(lambda i, _: i < n, step, [ax.constant(0), ax.constant(_numbers(16, 64))])[1]
        async with ax.Session(graph, COMPILED) as session:
            for _ in range(3):
                await session.run(last, {n: 20})
            assert _num_loops(session) == 1
            turns, _ = await turns_during(session.run(last, {n: 20_000}))
            assert turns > 20
            task = asyncio.ensure_future(session.run(last, {n: 2**31 - 1}))
            for _ in range(5):
                await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert session.statistics().running_steps == 0


async def test_calls_that_somebody_minds_are_made() -> None:
    """Of a step with a memory limit each output is counted, and nothing of it is native."""
    with native_at_once(), ax.Graph() as graph:
        x = ax.placeholder(F, [4, 4])
        last = ax.while_loop(lambda i, _: i < 9, lambda i, y: [i + 1, y + x], [ax.constant(0), x])[1]
        config = ax.SessionConfig(executor_type="COMPILED", memory_limit=10_000_000)
        async with ax.Session(graph, config) as session:
            for _ in range(4):
                assert (await session.run(last, {x: np.ones((4, 4))})).tolist() == np.full((4, 4), 10.0).tolist()
            assert _num_loops(session) == 0


@pytest.mark.allow_blocking
async def test_values_that_differ_are_found_when_native_code_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Numpy's loop for another ufunc stands for one that is not what we take it for."""
    wrong = lambda ufunc, dtypes: loop_of(np.subtract if ufunc is np.add else ufunc, dtypes)  # noqa: E731
    monkeypatch.setattr("asyncexec.regions.native_arrays.loop_of", wrong)
    with ax.Graph() as graph:
        x = ax.placeholder(F, [5])
        fetches = ax.while_loop(lambda i, _: i < 9, lambda i, y: [i + 1, y + x], [ax.constant(0), x])[1:]
    assert (await _check(graph, fetches, [{x: _numbers(5)}] * 4))[1] == 0


async def test_loop_that_was_asked_in_its_last_round_is_asked_again() -> None:
    with native_at_once(), ax.Graph() as graph:
        n, x = ax.placeholder(ax.int32, []), ax.placeholder(F, [2])
        last = ax.while_loop(lambda i, _: i < n, lambda i, y: [i + 1, y + x], [ax.constant(0), x])[1]
        async with ax.Session(graph, COMPILED) as session:
            assert (await session.run(last, {n: 1, x: [1.0, 2.0]})).tolist() == [2.0, 4.0]
            assert _num_loops(session) == 0
            for _ in range(2):
                assert (await session.run(last, {n: 9, x: [1.0, 2.0]})).tolist() == [10.0, 20.0]
            assert _num_loops(session) == 1


@pytest.mark.allow_blocking
async def test_code_of_loops_is_freed_with_its_sessions() -> None:
    def num_alive() -> int:
        gc.collect()
        COMPILER.free_soon()
        COMPILER.join()
        return COMPILER.num_compiled - COMPILER.num_freed

    with native_at_once(), ax.Graph() as graph:
        x = ax.placeholder(F, [2])
        last = ax.while_loop(lambda i, _: i < 9, lambda i, y: [i + 1, y + x], [ax.constant(0), x])[1]
        before = num_alive()
        for _ in range(20):
            async with ax.Session(graph, COMPILED) as session:
                for _ in range(3):
                    await session.run(last, {x: [1.0, 2.0]})
                assert _num_loops(session) == 1
            del session
        assert num_alive() == before


def test_loops_of_ufuncs_are_numpys() -> None:
    """Each is known by what it is for; and of an object that says other things of itself there is none."""
    every = [each for name in dir(np) if isinstance(each := getattr(np, name), np.ufunc)]
    functions = [
        loop_of(ufunc, [np.dtype(x) for x in types.replace("->", "")]) for ufunc in every for types in ufunc.types
    ]
    assert len(functions) > 500
    with pytest.raises(NotNativeError):
        loop_of(np.tanh, [np.dtype(np.int32)] * 2)
    known = _UfuncObject.from_address(id(np.frompyfunc(abs, 1, 1)) + object.__basicsize__)
    assert (known.nin, known.nout, known.ntypes) == (1, 1, 1)


_STEPS: Final[tuple[Callable[[ax.Tensor, ax.Tensor, ax.Tensor], ax.Tensor], ...]] = (
    lambda i, v, w: v + w,
    lambda i, v, w: v * w,
    lambda i, v, w: ax.tanh(v),
    lambda i, v, w: ax.sigmoid(v - w),
    lambda i, v, w: ax.exp(v - ax.reduce_max(v, 1, keepdims=True)),
    lambda i, v, w: ax.matmul(ax.matmul(v, w, transpose_b=True), v),
    lambda i, v, w: ax.subtract(*ax.split(ax.concat([v, w], 1), 2, 1)),
    lambda i, v, w: v * ax.cast(i, F),
    lambda i, v, w: ax.reshape(ax.reshape(v, [-1]), ax.shape(w)),
    lambda i, v, w: ax.relu(v) - ax.square(w),
    lambda i, v, w: ax.cast(v > w, F) + 1.0 / (ax.abs(v) + 1.0),
    lambda i, v, w: ax.where(ax.reduce_any(v > w, 1, keepdims=True), v, w * 0.5),
    lambda i, v, w: ax.transpose(ax.transpose(v) + 1.5),
    lambda i, v, w: v[:, :1] * w,
    lambda i, v, w: v + ax.reduce_sum(w, 1, keepdims=True) * 0.1,
    lambda i, v, w: v * ax.cast(ax.reduce_all(v > w), F) + ax.reduce_min(w),
    lambda i, v, w: v + ax.cast(ax.argmax(w, 1, output_type=ax.int32), F)[:, None],
    lambda i, v, w: ax.reduce_mean(v, keepdims=True) * ax.clip_by_value(w, -1.0, 1.0),
)
_ODD: Final = (np.nan, np.inf, -np.inf, -0.0, 1e30, 1e-40)


@st.composite
def _loops(draw: st.DrawFn) -> tuple[ax.Graph, Any, list[dict[Any, Any]]]:
    """A loop with two arrays, and what it is fed: twice the same, then other numbers."""
    shape = draw(st.sampled_from([1, 2, 5])), draw(st.sampled_from([1, 3, 8, 17, 32]))
    picks = draw(st.lists(st.tuples(*[st.integers(0, 100)] * 3), min_size=1, max_size=8))
    rounds = draw(st.sampled_from([2, 3, 7, ROUNDS]))
    seed, num_odd = draw(st.integers(0, 2**32 - 1)), draw(st.sampled_from([0, 0, 0, 1, 3]))

    def step(i: ax.Tensor, one: ax.Tensor, other: ax.Tensor) -> list[ax.Tensor]:
        values = [one, other]
        for op, v, w in picks:
            values.append(_STEPS[op % len(_STEPS)](i, values[v % len(values)], values[w % len(values)]))
        return [i + 1, values[-1], values[picks[0][1] % len(values)]]

    with ax.Graph() as graph:
        x, y = (ax.placeholder(F, shape, name=name) for name in "xy")
        fetches = ax.while_loop(lambda i, *_: i < rounds, step, [ax.constant(0), x, y])[1:]
    feeds: list[dict[Any, Any]] = []
    for number in (0, 0, 1):
        random = np.random.default_rng([seed, number])
        arrays = [random.normal(size=shape).astype(np.float32) for _ in range(2)]
        for _ in range(num_odd):
            arrays[0][tuple(random.integers(0, shape))] = random.choice(_ODD)
        feeds.append(dict(zip((x, y), arrays, strict=True)))
    return graph, fetches, feeds


async def _check_one(loop: tuple[ax.Graph, Any, list[dict[Any, Any]]], counts: Counter[str]) -> None:
    _, num_native = await _check(*loop)
    counts["native"] += num_native
    counts["all"] += 1


def _check_random(num_examples: int) -> Counter[str]:
    counts: Counter[str] = Counter()

    @settings(max_examples=num_examples)
    @given(_loops())
    def check(loop: Any) -> None:
        asyncio.run(_check_one(loop, counts))

    check()
    return counts


@pytest.mark.allow_blocking
def test_random_loops_give_the_same() -> None:
    counts = _check_random(20)
    assert counts["native"] > 0.5 * counts["all"]


@pytest.mark.deep
@pytest.mark.allow_blocking
def test_many_random_loops_give_the_same() -> None:
    counts = _check_random(1000)
    assert counts["native"] > 0.5 * counts["all"]
