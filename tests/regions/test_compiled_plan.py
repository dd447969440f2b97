"""What compiled signatures do that results alone do not tell: slices, errors, memory, the source."""

from __future__ import annotations

import asyncio
import gc
import linecache
import re
import time
import traceback
import weakref
from unittest import mock

import numpy as np
import pytest

import asyncexec as ax
from asyncexec.executor.diagnostics import loop_holds
from asyncexec.executor.plans import tier
from asyncexec.executor.plans.compiled_plan import CompiledPlan
from asyncexec.framework.clock import ns_of_ms
from asyncexec.framework.errors import DeadlineExceededError, InvalidArgumentError
from asyncexec.regions.program import UnstructuredError
from tests.fake_time import FakeTime
from tests.regions.programs import COMPILED, TAGGED, compiled, run_both, source
from tests.running import raw_op
from tests.session.turns import turns_during


def count_to(limit: object) -> ax.Tensor:
    (last,) = ax.while_loop(lambda i: i < limit, lambda i: [i + 1], [ax.constant(0)])
    return last


async def test_loop_branch_and_straight_code_in_one_function() -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [], name="x")
        n = ax.placeholder(ax.int32, [], name="n")
        _, y = ax.while_loop(
            lambda i, y: i < n,
            lambda i, y: [i + 1, ax.cond(y > 4.0, lambda: y - 3.0, lambda: y * 1.5)],
            [ax.constant(0), x],
        )
        z = ax.switch_case(n % 3, [lambda: y, lambda: -y, lambda: y * y], default=lambda: y)
    for n_value in range(5):
        got, expected = await run_both(graph, [y, z], {x: 1.0, n: n_value})
        assert [one.tobytes() for one in got] == [other.tobytes() for other in expected]


async def test_signature_is_compiled_after_it_has_been_measured() -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [], name="x")
        y = x * 2.0 + 1.0
    async with ax.Session(graph) as session:
        for _ in range(100):
            assert await session.run(y, {x: 3.0}) == 7.0
        (prepared,) = session._cache.values()
        assert prepared.tier.compiled is not None
        assert session.statistics().completed_steps == 100


@pytest.mark.parametrize("config", [TAGGED, ax.SessionConfig(debug=True), ax.SessionConfig(schedule_seed=1)])
async def test_never_compiled(config: ax.SessionConfig) -> None:
    with ax.Graph() as graph:
        y = ax.placeholder(ax.float32, [], name="x") * 2.0
    async with ax.Session(graph, config) as session:
        for _ in range(10):
            assert await session.run(y, {"x:0": 3.0}) == 6.0
        (prepared,) = session._cache.values()
        assert prepared.tier.compiled is None


async def test_what_awaits_is_compiled_where_it_is_in_one_line() -> None:
    @ax.op(outputs=[ax.float32])
    async def later(x: float) -> float:
        await asyncio.sleep(0)
        return x

    with ax.Graph() as graph:
        y = later(ax.constant(3.0)) + 1.0
        beside = y, later(ax.constant(2.0))
    async with ax.Session(graph, COMPILED) as session:
        assert await session.run(y) == 4.0
        assert await session.run(beside) == (4.0, 2.0)
        is_compiled = [prepared.tier.compiled is not None for prepared in session._cache.values()]
        assert is_compiled == [True, False]


async def test_graph_without_structure_runs_in_the_general_executor() -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [], name="x")
        p, q = ax.placeholder(ax.bool, [], name="p"), ax.placeholder(ax.bool, [], name="q")
        low = ax.create_op("Switch", [x, p])[0]
        high = ax.create_op("Switch", [x * 2.0, q])[1]
        merged = ax.create_op("Merge", [[low, high]])[0]
    async with ax.Session(graph, COMPILED) as session:
        with pytest.raises(UnstructuredError, match="nobody knows which input"):
            compiled(session, merged, [x, p, q])
        assert await session.run(merged, {x: 1.0, p: False, q: False}) == 1.0
        assert await session.run(merged, {x: 1.0, p: True, q: True}) == 2.0


async def test_error_names_the_node_and_the_rounds_of_its_loops() -> None:
    def refuse(i: int) -> int:
        if i == 3:
            raise ValueError("three")
        return i

    check = raw_op("Check", refuse, dtype=ax.int32)
    with ax.Graph() as graph:

        def body(i: ax.Tensor, total: ax.Tensor) -> list[ax.Tensor]:
            _, inner = ax.while_loop(
                lambda j, _: j < 2, lambda j, s: [j + 1, s + check(i + j, name="checked")], [ax.constant(0), total]
            )
            return [i + 1, inner]

        _, last = ax.while_loop(lambda i, _: i < 5, body, [ax.constant(0), ax.constant(0)], parallel_iterations=1)
    texts = []
    for config in (TAGGED, COMPILED):
        async with ax.Session(graph, config) as session:
            with pytest.raises(InvalidArgumentError, match="three") as caught:
                await session.run(last)
            assert isinstance(caught.value.__cause__, ValueError)
            texts.append(str(caught.value))
            assert session.statistics().failed_steps == 1
    assert texts[0] == texts[1]
    assert "while 2, " in texts[1]
    assert "checked" in texts[1]


AGAIN = ValueError("raised again and again")


@pytest.mark.one_of("loop")
@pytest.mark.parametrize("error", [AGAIN, StopIteration("stop"), StopIteration(), GeneratorExit()], ids=repr)
@pytest.mark.parametrize("where", ["straight", "loop", "behind", "part"])
async def test_error_of_any_kind_and_origin_is_that_of_the_general_executor(error: BaseException, where: str) -> None:
    """An error that was raised before has frames of earlier steps; a StopIteration cannot leave a generator."""

    def refuse(i: int) -> int:
        if i >= 3:
            raise error
        return i

    check = raw_op("Check", refuse, dtype=ax.int32)
    with ax.Graph() as graph:
        x = ax.placeholder(ax.int32, [])

        def body(i: ax.Tensor, value: ax.Tensor) -> list[ax.Tensor]:
            if where == "part":
                for _ in range(200):
                    value = -value
                _, value = ax.while_loop(lambda j, _: j < 1, lambda j, _: [j + 1, check(i)], [ax.constant(0), value])
            elif where == "loop":
                value = check(i)
            return [i + 1, value]

        last = x
        if where != "straight":
            last, value = ax.while_loop(lambda i, _: i < x, body, [ax.constant(0), x])
            last = last if where == "behind" else value
        result = check(last) if where in ("straight", "behind") else last
    found = []
    for config in (TAGGED, COMPILED):
        async with ax.Session(graph, config) as session:
            assert await session.run(result, {x: 2}) == (1 if where in ("loop", "part") else 2)
            for number in (5, 4):
                with pytest.raises((ax.errors.OpError, GeneratorExit)) as caught:
                    await session.run(result, {x: number})
                found.append((type(caught.value), str(caught.value), caught.value.__cause__ or caught.value))
    assert found[:2] == found[2:]
    assert {cause for _, _, cause in found} == {error}


async def test_error_of_shapes_is_explained() -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [None], name="x")
        y = ax.add(x, ax.constant([1.0, 2.0, 3.0]), name="sum")
    async with ax.Session(graph, COMPILED) as session:
        with pytest.raises(InvalidArgumentError, match=r"Incompatible shapes: \[2\] vs. \[3\]") as caught:
            await session.run(y, {x: [1.0, 2.0]})
        assert caught.value.node == "sum"
        assert (await session.run(y, {x: [1.0, 2.0, 3.0]})).tolist() == [2.0, 4.0, 6.0]


async def test_wrong_number_of_results_of_a_users_op() -> None:
    @ax.op(outputs=[ax.float32, ax.float32])
    def two(x: float) -> tuple[float, float]:
        return (x,)  # type: ignore[return-value]

    with ax.Graph() as graph:
        first, _ = two(ax.placeholder(ax.float32, [], name="x"))
    texts = []
    for config in (TAGGED, COMPILED):
        async with ax.Session(graph, config) as session:
            with pytest.raises(ax.errors.OpError) as caught:
                await session.run(first, {"x:0": 1.0})
            texts.append((type(caught.value), str(caught.value)))
    assert texts[0] == texts[1]


async def test_array_that_a_loop_gives_is_there_in_each_round_of_a_later_one() -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [2], name="x")
        _, kept = ax.while_loop(lambda i, a: i < 2, lambda i, a: (i + 1, a + 1.0), [0, x])
        _, added = ax.while_loop(lambda i, b: i < 3, lambda i, b: (i + 1, b + kept), [0, x])
        _, same = ax.while_loop(lambda i, b: i < 3, lambda i, b: (i + 1, kept), [0, kept])
        inner = ax.while_loop(
            lambda i, b: i < 2,
            lambda i, b: (i + 1, ax.while_loop(lambda j, c: j < 2, lambda j, c: (j + 1, c + kept + b), [0, x])[1]),
            [0, x],
        )[1]
    for fetch in (added, same, inner):
        np.testing.assert_array_equal(*await run_both(graph, [fetch, fetch], {"x:0": np.array([1, 2], np.float32)}))
    async with ax.Session(graph, COMPILED) as session:
        got = await session.run([added, same], {"x:0": [1.0, 2.0]})
    np.testing.assert_array_equal(got, [[10, 14], [3, 4]])


async def test_loop_gives_the_event_loop_its_turns() -> None:
    with ax.Graph() as graph:
        last = count_to(ax.placeholder(ax.int32, [], name="n"))
    async with ax.Session(graph, COMPILED) as session:
        await session.run(last, {"n:0": 10})
        few, _ = await turns_during(session.run(last, {"n:0": 10}))
        many, reached = await turns_during(session.run(last, {"n:0": 100_000}))
    assert (reached, many > few) == (100_000, True)


async def test_endless_loop_is_cancelled_and_keeps_its_deadline() -> None:
    with ax.Graph() as graph:
        (last,) = ax.while_loop(lambda i: ax.constant(True), lambda i: [i + 1], [ax.constant(0)])
        other = ax.constant(1) + 1
    async with ax.Session(graph, COMPILED) as session:
        with pytest.raises(DeadlineExceededError):
            await session.run(last, options=ax.RunOptions(timeout=0.02))
        task = asyncio.ensure_future(session.run(last))
        for _ in range(5):
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert session.statistics().running_steps == 0
        assert await session.run(other) == 2


async def test_closing_the_session_ends_a_compiled_step() -> None:
    with ax.Graph() as graph:
        (last,) = ax.while_loop(lambda i: ax.constant(True), lambda i: [i + 1], [ax.constant(0)])
    async with ax.Session(graph, COMPILED) as session:
        task = asyncio.ensure_future(session.run(last))
        for _ in range(5):
            await asyncio.sleep(0)
        await session.close()
        with pytest.raises(ax.errors.CancelledError, match="closed"):
            await task


async def test_arrays_are_released_at_their_last_use() -> None:
    alive: list[int] = []
    made: list[weakref.ref[np.ndarray]] = []

    def make(x: np.ndarray) -> np.ndarray:
        alive.append(sum(each() is not None for each in made))
        array = x + 1
        made.append(weakref.ref(array))
        return array

    step = raw_op("Make", make, dtype=ax.float32)
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [None], name="x")
        y = x
        for _ in range(10):
            y = step(y)
        last = ax.reduce_sum(y)
    async with ax.Session(graph, COMPILED) as session:
        await session.run(last, {x: np.zeros(4, np.float32)})
    assert max(alive) == 1
    assert not any(each() is not None for each in made)


async def test_error_keeps_no_tensors() -> None:
    made: list[weakref.ref[np.ndarray]] = []

    def make(x: np.ndarray) -> np.ndarray:
        array = x + 1
        made.append(weakref.ref(array))
        return array

    def fail(x: np.ndarray) -> np.ndarray:
        raise ValueError("no")

    with ax.Graph() as graph:
        kept = raw_op("Make", make, dtype=ax.float32)(ax.placeholder(ax.float32, [None], name="x"))
        failed = raw_op("Fail", fail, dtype=ax.float32)(ax.constant([1.0]))
        with ax.control_dependencies([kept]):
            both = failed + kept
    async with ax.Session(graph, COMPILED) as session:
        with pytest.raises(InvalidArgumentError) as caught:
            await session.run(both, {"x:0": np.zeros(4, np.float32)})
        assert caught.value.node is not None
        assert all(each() is None for each in made)


async def test_source_has_no_text_of_the_graph_and_is_shown_in_tracebacks() -> None:
    def fail(x: float) -> float:
        raise ValueError("no")

    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [], name="secret_input")
        y = raw_op("SecretOp", fail, dtype=ax.float32)(ax.multiply(x, 2.0, name="secret_name"), name="secret_call")
    async with ax.Session(graph, COMPILED) as session:
        plan = compiled(session, y, [x])
        assert plan is not None
        text = source(plan)
        assert "secret" not in text.lower()
        assert re.search(r"^ v\d+ = v\d+ \* c\d+$", text, re.MULTILINE)
        with pytest.raises(InvalidArgumentError) as caught:
            await session.run(y, {x: 1.0})
        shown = "".join(traceback.format_exception(caught.value))
        assert re.search(r"v\d+ = k\d+\(v\d+\)", shown)
        files = [code.co_filename for code in plan._code.lines]
        del plan
    gc.collect()
    assert not any(file in linecache.cache for file in files)


@pytest.mark.one_of("loop")
async def test_graph_of_any_size_and_depth() -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [], name="x")
        y = x
        for _ in range(3_000):
            y = y + 1.0

        def nest(depth: int) -> ax.Tensor:
            if not depth:
                return x * 2.0
            return ax.cond(x > float(-depth), lambda: nest(depth - 1), lambda: x - float(depth))

        deep = nest(25)
        loops = x
        for _ in range(40):
            _, loops = ax.while_loop(lambda i, _: i < 3, lambda i, v: [i + 1, v * 0.5 + 1.0], [ax.constant(0), loops])
    got, expected = await run_both(graph, [y, deep, loops], {x: 1.0})
    assert [one.tobytes() for one in got] == [other.tobytes() for other in expected]


@pytest.mark.one_of("loop")
async def test_loops_in_one_another_deeper_than_python_lets_them_be() -> None:
    def nest(depth: int, value: ax.Tensor) -> ax.Tensor:
        if not depth:
            return value + 1

        def body(i: ax.Tensor, total: ax.Tensor) -> list[ax.Tensor]:
            return [i + 1, nest(depth - 1, total)]

        _, last = ax.while_loop(lambda i, _: i < 2, body, [ax.constant(0), value])
        return last

    with ax.Graph() as graph:
        last = nest(12, ax.constant(0))
    got, expected = await run_both(graph, last)
    assert got == expected == 2**12


async def test_partitions_of_one_memory_are_one_plan() -> None:
    config = ax.SessionConfig(device_count={"CPU": 2}, executor_type="COMPILED")
    with ax.Graph() as graph:
        y = ax.placeholder(ax.float32, [], name="x")
        for i in range(20):
            with ax.device(f"/cpu:{i % 2}"):
                y = y + 1.0
    async with ax.Session(graph, config) as session:
        assert await session.run(y, {"x:0": 1.0}) == 21.0
        (prepared,) = session._cache.values()
        assert prepared.tier.compiled is not None


async def test_variables_and_order_of_effects() -> None:
    with ax.Graph() as graph:
        v = ax.Variable(ax.constant(0), name="v")
        with ax.control_dependencies([v.assign_add(1)]):
            once = v.read_value()
        with ax.control_dependencies([once]):
            again = v.assign_add(10)
        with ax.control_dependencies([again]):
            last = v.read_value()
        init = ax.global_variables_initializer()
    async with ax.Session(graph, COMPILED) as session:
        await session.run(init)
        assert await session.run([once, last]) == [1, 11]
        assert await session.run([once, last]) == [12, 22]


async def test_arrays_of_unknown_shape_that_were_small_are_taken_to_stay_so() -> None:
    with ax.Graph() as graph:
        x = y = ax.placeholder(ax.float32, [None], name="x")
        for _ in range(20):
            y = y + x
    async with ax.Session(graph) as session:
        for _ in range(40):
            assert (await session.run(y, {x: [1.0, 2.0]})).tolist() == [21.0, 42.0]
        (prepared,) = session._cache.values()
        assert prepared.tier.compiled is not None
        assert prepared.tier.compiled.is_plain
    async with ax.Session(graph, COMPILED) as session:  # nothing is known of them before the first run
        assert (await session.run(y, {x: [1.0, 2.0]})).tolist() == [21.0, 42.0]
        (prepared,) = session._cache.values()
        assert not prepared.tier.compiled.is_plain


async def test_plan_behind_one_that_held_the_loop_pauses_around_each_call_that_may_take_long() -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [None, None])
        y = ax.matmul(ax.matmul(x, x), x) + 1.0
    async with ax.Session(graph) as session:
        usual, careful = (compiled(session, y, [x], pauses_often=often) for often in (False, True))
        assert usual is not None
        assert careful is not None
        assert usual.is_plain
        steps = list(careful.begin(np.eye(2, dtype=np.float32)))
        assert steps == [None, None]  # between three calls


async def test_update_of_a_large_variable_counts_as_long() -> None:
    with ax.Graph() as graph:
        handle = ax.create_op("VarHandleOp", [], attrs={"dtype": ax.float32, "shape": [1000, 1000]}, name="v")
        grad = ax.placeholder(ax.float32, [1000, 1000])
        step = ax.create_op("ResourceApplyGradientDescent", [handle, np.float32(0.5), grad], name="step")
        with ax.control_dependencies([step]):
            end = ax.negative(ax.placeholder(ax.float32, [8, 8], name="x"), name="end")
    async with ax.Session(graph) as session:
        plan = compiled(session, end, [grad, graph.tensor("x:0")])
        assert plan is not None
        assert not plan.is_plain


async def test_plan_that_holds_the_loop_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [], name="x")
        y = x + 1.0
    async with ax.Session(graph, COMPILED) as session:
        assert await session.run(y, {x: 1.0}) == 2.0
        (prepared,) = session._cache.values()
        plan = prepared.tier.compiled
        assert plan is not None
        for _ in range(2):  # one may be a pause of the machine
            assert plan.is_quick
            plan.note(50_000_000)
        assert not plan.is_quick
        assert plan.clock is not plan.holds.clock.now_ns
        assert await session.run(y, {x: 1.0}) == 2.0
        assert prepared.tier.compiled is None
        for _ in range(4 * tier.WARM_UP + 50):
            assert await session.run(y, {x: 1.0}) == 2.0
        assert prepared.tier.compiled not in (None, plan)


async def test_traced_run_goes_by_the_general_executor() -> None:
    with ax.Graph() as graph:
        y = ax.placeholder(ax.float32, [], name="x") * 2.0
    async with ax.Session(graph, COMPILED) as session:
        metadata = ax.RunMetadata()
        options = ax.RunOptions(trace=True)
        assert await session.run(y, {"x:0": 1.0}, options=options, metadata=metadata) == 2.0
        assert metadata.step_stats is not None
        assert [node.node_name for device in metadata.step_stats.dev_stats for node in device.node_stats]


@pytest.mark.parametrize("value", [True, False])
async def test_branch_by_what_a_loop_carries(value: bool) -> None:
    """The variable is there when the loop is over; the branch chooses between constants."""
    with ax.Graph() as graph:
        given = ax.placeholder(ax.bool, [])
        first = ax.cond(given, lambda: ax.constant(0), lambda: ax.constant(1))
        start = ax.cond(first > 0, lambda: ax.constant(0), lambda: ax.constant(1))  # so the loop comes late
        _, decides = ax.while_loop(lambda i, _: i < 3, lambda i, flag: [i + 1, flag], [start, given])
        chosen = ax.cond(decides, lambda: ax.constant(1.0), lambda: ax.constant(2.0))
    assert await run_both(graph, chosen, {given: value}) == (2.0 - value, 2.0 - value)


async def test_variables_of_a_loop_stay_in_their_places() -> None:
    """A round ends with what comes next of each, without anything that is only moved, and begins with its condition."""
    with ax.Graph() as graph:
        n = ax.placeholder(ax.float32, [], name="n")
        i, x, y = ax.while_loop(
            lambda i, x, y: i < n, lambda i, x, y: [i + 1.0, x * 2.0 + i, y + x], [ax.constant(0.0)] * 3
        )
    async with ax.Session(graph, COMPILED) as session:
        text = source(compiled(session, [i, x, y], [n]))
    body = text[text.index("for ") : text.index("else:")].strip().splitlines()[1:]
    assert len(body) == 5
    assert body[0].strip().startswith("if not ")
    assert not any(", " in line for line in body)
    got, expected = await run_both(graph, [i, x, y], {n: 4.0})
    assert got == expected == [4.0, 11.0, 5.0]


async def test_variables_that_take_one_another_are_all_as_they_were() -> None:
    with ax.Graph() as graph:
        n = ax.placeholder(ax.float32, [], name="n")
        found = ax.while_loop(
            lambda i, *_: i < n,
            lambda i, a, b, c, d: [i + 1.0, b + i, a - i, d * 2.0, c + a],
            [ax.constant(0.0), *map(ax.constant, (1.0, 2.0, 3.0, 4.0))],
        )
    i, a, b, c, d = 0.0, 1.0, 2.0, 3.0, 4.0
    while i < 5:
        i, a, b, c, d = i + 1, b + i, a - i, d * 2, c + a
    got, expected = await run_both(graph, found, {n: 5.0})
    assert got == expected == [i, a, b, c, d]


@pytest.mark.parametrize("count", [1, 2, 7, 8, 9, 10, 16, 17, 1000])
async def test_a_sum_of_many_scalars_keeps_few_of_them(count: int) -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [], name="x")
        total = ax.add_n([x * np.float32(1 + index / 7) for index in range(count)])
    async with ax.Session(graph, COMPILED) as session:
        plan = compiled(session, [total], [x])
    assert max(code.co_nlocals for code in plan._code.lines) <= 20
    got, expected = await run_both(graph, total, {x: np.float32(0.1)})
    assert got == expected


@pytest.mark.parametrize("collected_ns", [0, 50_000_000])
async def test_plan_whose_long_stretches_are_followed_by_short_ones_is_dropped(collected_ns: int) -> None:
    """Unless full collections of garbage have taken that time."""
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [], name="x")
        y = x + 1.0
    async with ax.Session(graph) as session:
        plan = compiled(session, y, [x])
        assert plan is not None
        with mock.patch.object(loop_holds, "collected_ns", return_value=collected_ns):
            for elapsed_ns in (50_000_000, 1000, 50_000_000):
                assert plan.is_quick
                plan.note(elapsed_ns)
        assert plan.is_quick == (collected_ns > 0)


@pytest.mark.parametrize(("one_in", "is_quick"), [(1, False), (4, True)])
async def test_plan_with_a_long_stretch_now_and_then_is_kept(one_in: int, is_quick: bool) -> None:
    """A stretch of 0.8 ms, where half a millisecond is long, and half as much again too long."""
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [], name="x")
        y = ax.while_loop(lambda i: i < x, lambda i: i + 1.0, [ax.constant(0.0)])
    time = FakeTime()
    async with ax.Session(graph, clock=time.clock) as session:
        plan = compiled(session, y, [x])
        assert plan is not None
        assert not plan.is_plain
        for number in range(40):
            for elapsed_ns in (800_000 if number % one_in == 0 else 1000, 1000):
                time.now_ns += elapsed_ns
                plan.note(elapsed_ns)
            plan.note_end()
        assert plan.is_quick == is_quick


@ax.op(outputs=[ax.float32])
def more(x: float) -> float:
    return x + 1


@pytest.mark.parametrize(
    ("is_builtin", "long_ms", "one_in", "is_quick"),
    [(True, 60, 100, False), (True, 60, 2000, False), (True, 2, 100, True), (False, 60, 100, True)],
)
async def test_plan_with_a_very_long_stretch_is_watched_until_the_next_one(
    is_builtin: bool, long_ms: int, one_in: int, is_quick: bool
) -> None:
    """What is no pause of the machine may come with rare feeds, by which it is told; of a user's op nothing tells."""
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [], name="x")
        y = ax.add(x, 1.0) if is_builtin else more(x)
    time = FakeTime()
    async with ax.Session(graph, clock=time.clock) as session:
        plan = compiled(session, y, [x])
        assert plan is not None
        for number in range(2 * one_in + 1):
            elapsed_ns = 1000 if number % one_in else ns_of_ms(long_ms)
            time.now_ns += elapsed_ns
            if elapsed_ns > 1000 or plan.clock is not time.clock.now_ns:
                plan.note(elapsed_ns)
        assert plan.is_quick == is_quick


@pytest.mark.allow_blocking
async def test_last_stretch_of_a_step_counts() -> None:
    seconds = 0.0

    @ax.op(outputs=[ax.float64])
    def think(x: float) -> float:
        end = time.thread_time() + seconds
        while time.thread_time() < end:
            pass
        return float(x)

    @ax.op(outputs=[ax.float64])
    async def later(x: float) -> float:
        await asyncio.sleep(0)
        return x

    with ax.Graph() as graph:
        x = ax.placeholder(ax.float64, [], name="x")
        y = think(later(x))
    async with ax.Session(graph, ax.SessionConfig(executor_type="COMPILED", slow_inline_ms=None)) as session:
        assert await session.run(y, {x: 1.0}) == 1.0
        (prepared,) = session._cache.values()
        assert isinstance(prepared.tier.compiled, CompiledPlan)
        seconds = 0.01
        for _ in range(6):
            assert await session.run(y, {x: 1.0}) == 1.0
        assert prepared.tier.compiled is None
