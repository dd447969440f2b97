"""Control flow that is wrong, and what it gets: TensorFlow's status code, the node, the reason.

``INPUTS`` tells for each kind of bad input where it is tested.  What the runtime of TensorFlow 2.21 takes is taken here
too, and tested beside it: a loop without LoopCond or without Exit, a functional While whose variable grows.
"""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Callable
from typing import Any, Final

import numpy as np
import pytest

import asyncexec as ax
from asyncexec.framework.kernel import KernelKind
from tests.case_table import missing_tests
from tests.graph.testing_ops import load
from tests.optimization.function_text import function, node
from tests.optimization.function_text import load as load_parts
from tests.running import raw_op, settle

_WHILE: Final = "tests.frontend.test_while_loop"
_COND: Final = "tests.frontend.test_cond"
_LOWERING: Final = "tests.optimization.test_tf_lowering_cases"
_REFUSED: Final = "tests.optimization.test_lower_functional_ops:test_what_does_not_fit_is_refused"
INPUTS: Final[dict[str, str]] = {
    "inputs from inside and outside of a loop": "test_inputs_from_inside_and_outside_of_a_loop",
    "the same, in ax.while_loop": f"{_WHILE}:test_errors",
    "the same, in a function": f"{_LOWERING}:test_frames_that_do_not_match_in_a_function",
    "loop without LoopCond": "test_a_loop_without_loop_cond_is_a_loop",
    "loop without Exit": "test_a_loop_without_exit_may_run_but_gives_nothing",
    "predicate of a Switch": "test_a_predicate_of_a_switch_that_is_no_scalar_bool",
    "predicate of a Switch, known when it runs": "test_a_predicate_of_a_switch_known_when_it_runs",
    "predicate of a v1 loop": "test_a_predicate_of_a_loop_that_is_no_scalar",
    "predicate of ax.cond": f"{_COND}:test_errors",
    "predicate of ax.cond, known when it runs": f"{_COND}:test_a_predicate_that_turns_out_to_be_no_scalar",
    "predicate of ax.while_loop": f"{_WHILE}:test_errors",
    "predicate of If and While, no scalar": f"{_LOWERING}:test_a_predicate_that_is_no_scalar",
    "predicate of If and While, no bool": f"{_LOWERING}:test_a_predicate_that_is_no_bool",
    "index of a Case": "tests.optimization.test_lower_functional_ops:test_the_index_of_a_case_is_a_scalar",
    "dtypes and shapes of the body of ax.while_loop": f"{_WHILE}:test_errors",
    "shapes of the body, known when it runs": f"{_WHILE}:test_a_shape_that_is_not_known_is_checked_when_the_loop_runs",
    "dtypes of the body of a While": _REFUSED,
    "shapes of the body of a While": "test_a_variable_of_a_functional_while_may_grow",
    "dtypes of the branches of an If": _REFUSED,
    "fetch inside a loop": f"{_WHILE}:test_fetching_in_a_loop",
    "fetch of a dead tensor": f"{_COND}:test_fetching_in_a_branch_not_taken",
    "fetch of a Merge whose inputs are all dead": "test_a_fetch_that_is_dead_by_way_of_a_merge",
    "recursion": "tests.graph.test_bad_graphs:test_functions",
    "recursion that came later": "tests.optimization.test_lower_functional_ops:test_recursion_without_end_is_refused",
    "endless loop and a timeout": "test_an_endless_loop_is_ended_by_the_timeout",
    "endless loop and a cancellation": "test_an_endless_loop_is_ended_by_cancelling_the_caller",
    "endless loop that waits, hour by hour": "test_an_endless_loop_of_waits_is_ended_on_time",
    "failure in a loop": "test_a_failure_says_which_loops_and_iterations",
}

LOOP = """
    n: Placeholder[int32]
    zero: Const[0]
    enter: Enter[frame_name='w'](zero)
    limit: Enter[frame_name='w', is_constant=true](n)
    merge: Merge(enter, next)
    less: Less(merge, limit)
    cond: LoopCond(less)
    switch: Switch(merge, cond)
    body: Identity(switch:1)
    one: Const[1](^body)
    add: AddV2(body, one)
    next: NextIteration(add)
    exit: Exit(switch)
"""


def without(*names: str, text: str = LOOP) -> str:
    return "\n".join(line for line in text.splitlines() if line.strip().partition(":")[0] not in names)


def test_every_input_has_its_test() -> None:
    assert missing_tests(INPUTS, __name__) == []


@pytest.mark.parametrize(
    ("old", "new", "culprit", "other"),
    [
        ("AddV2(body, one)", "AddV2(body, zero)", "add", "zero"),
        ("AddV2(body, one)", "AddV2(body, one, ^n)", "add", "n"),
        ("Less(merge, limit)", "Less(merge, n)", "less", "n"),
        ("Merge(enter, next)", "Merge(zero, next)", "switch", "limit"),
        ("Exit(switch)", "Exit(switch)\n    y: AddV2(exit, add)", "y", "add"),
        ("Exit(switch)", "Exit(switch)\n    y: Identity(n, ^add)", "y", "add"),
        ("Exit(switch)", "Exit(switch)\n    p: Const[true]\n    y: Switch(add, p)", "y", "p"),
    ],
)
def test_inputs_from_inside_and_outside_of_a_loop(old: str, new: str, culprit: str, other: str) -> None:
    assert old in LOOP
    with pytest.raises(ax.errors.InvalidArgumentError, match="has inputs from different frames") as caught:
        load(LOOP.replace(old, new))
    if "zero, next" not in new:
        assert caught.value.node == culprit
        assert f"{{{{node {other}}}}}" in caught.value.message
    assert "'w'" in caught.value.message


async def test_a_loop_without_loop_cond_is_a_loop() -> None:
    graph = load(without("cond", text=LOOP.replace("Switch(merge, cond)", "Switch(merge, less)")))
    async with ax.Session(graph) as session:
        assert await session.run("exit:0", {"n:0": 3}) == 3
        assert await session.run("exit:0", {"n:0": -3}) == 0


async def test_a_loop_without_exit_may_run_but_gives_nothing() -> None:
    async with ax.Session(load(without("exit"))) as session:
        await session.run([], {"n:0": 3}, targets=["add"])
        with pytest.raises(ax.errors.InternalError, match="inside a loop that goes round more than once") as twice:
            await session.run("add:0", {"n:0": 3})
        assert twice.value.node == "add"
        with pytest.raises(
            ax.errors.InvalidArgumentError, match="does not have a value: it is inside loop 'w'"
        ) as none:
            await session.run("add:0", {"n:0": 0})
        assert none.value.node == "add"
        assert await session.run("add:0", {"n:0": 1}) == 1  # as in TensorFlow: it was set once


@pytest.mark.parametrize("predicate", ["Const[1]", "Const['a']", "Const[[true]]", "Const[1.0]"])
def test_a_predicate_of_a_switch_that_is_no_scalar_bool(predicate: str) -> None:
    with pytest.raises(ax.errors.InvalidArgumentError, match=r"incompatible with expected bool|rank 0") as caught:
        load(f"x: Const[1.0]\np: {predicate}\ns: Switch[T=float32](x, p)")
    assert caught.value.node == "s"


@pytest.mark.parametrize("value", [[True, False], [True], []])
async def test_a_predicate_of_a_switch_known_when_it_runs(value: list[bool]) -> None:
    graph = load("x: Const[1.0]\np: Placeholder[bool]\ns: Switch(x, p)\ny: Merge(s, s:1)")
    async with ax.Session(graph) as session:
        with pytest.raises(ax.errors.InvalidArgumentError, match=r"must be a scalar, but it has shape \[") as caught:
            await session.run("y:0", {"p:0": value})
        assert caught.value.node == "s"
        assert await session.run("y:0", {"p:0": True}) == 1.0


async def test_a_predicate_of_a_loop_that_is_no_scalar() -> None:
    async with ax.Session(load(LOOP)) as session:
        with pytest.raises(ax.errors.InvalidArgumentError, match=r"must be a scalar, but it has shape \[2\]") as caught:
            await session.run("exit:0", {"n:0": [3, 3]})
        assert caught.value.node == "switch"
        assert caught.value.iteration == "w 0"
        assert await session.run("exit:0", {"n:0": 3}) == 3


async def test_a_variable_of_a_functional_while_may_grow() -> None:
    """TensorFlow does not hold the body to the shape of the variable, not even to that of output_shapes."""
    cond = function(
        "Small(x: float32) -> y: bool",
        node("c", "Const", value=np.int32(8), dtype=ax.int32),
        node("s", "Size", "x", T=ax.float32),
        node("n", "Less", "s:output:0 c:output:0", T=ax.int32),
        ret="y=n:z:0",
    )
    body = function(
        "Twice(x: float32) -> y: float32",
        node("a", "Const", value=np.int32(0), dtype=ax.int32),
        node("n", "ConcatV2", "x x a:output:0", N=2, T=ax.float32, Tidx=ax.int32),
        ret="y=n:output:0",
    )
    for shapes in ([], [ax.TensorShape([2])]):
        x = node("x", "Placeholder", dtype=ax.float32, shape=ax.TensorShape([2]))
        loop = node("w", "While", "x", T=[ax.float32], cond="Small", body="Twice", output_shapes=shapes)
        async with ax.Session(load_parts(cond, body, x, loop)) as session:
            assert (await session.run("w:0", {"x:0": [1.0, 2.0]})).tolist() == [1.0, 2.0] * 4


async def test_a_fetch_that_is_dead_by_way_of_a_merge() -> None:
    graph = load("x: Const[1.0]\np: Placeholder[bool, []]\ns: Switch(x, p)\na: Neg(s)\nb: Exp(s)\nm: Merge(a, b)")
    async with ax.Session(graph) as session:
        with pytest.raises(ax.errors.InvalidArgumentError, match="Switch 's' decides by 'p:0'") as caught:
            await session.run("m:0", {"p:0": True})
        assert caught.value.node == "m"
        await session.run([], {"p:0": True}, targets=["m"])
        assert await session.run("m:1", {"p:0": False}) in (0, 1)


# Loops that never end.


class Token:
    """What goes round in an endless loop; a new one is made in each iteration."""

    made: Final[weakref.WeakSet[Token]] = weakref.WeakSet()

    def __init__(self) -> None:
        self.made.add(self)


class Endless:
    """A graph with an endless loop, and with one that ends; ``turned`` is set when the endless one has gone round.

    Args:
        place: where the kernel in the body runs.
        shape: of the loops: one, one that never ends in another, or one that ends in an endless one.
    """

    def __init__(self, place: str, shape: str) -> None:
        self.turned = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._count = 0
        kind = {"inline": KernelKind.CHEAP, "thread": KernelKind.EXPENSIVE, "async": KernelKind.ASYNC}[place]
        kernel = self._awaited if place == "async" else self._step
        step = raw_op("Step", kernel, kind=kind, is_expensive=place == "thread")
        with ax.Graph() as self.graph:
            first = ax.placeholder(ax.object, [], name="first")
            self.result = SHAPES[shape](first, step)
            self.counted = ax.while_loop(lambda i: i < 100, lambda i: i + 1, 0)

    def _step(self, _: Any) -> Token:
        self._count += 1
        if self._count == 50:
            self._loop.call_soon_threadsafe(self.turned.set)
        return Token()

    async def _awaited(self, token: Any) -> Token:
        await asyncio.sleep(0)
        return self._step(token)

    async def assert_nothing_is_left(self, session: ax.Session) -> None:
        """No task, no token; and the session goes on."""
        count = self._count
        assert len(asyncio.all_tasks()) == 1
        assert await session.run(self.counted) == 100
        assert self._count == count
        await settle()  # until then the loop itself holds the error that it threw in, with all its frames
        gc.collect()
        assert len(Token.made) == 0


def _one(first: Any, step: Callable[..., Any]) -> Any:
    return ax.while_loop(lambda _: True, lambda token: step(token), first)


def _endless_in_another(first: Any, step: Callable[..., Any]) -> Any:
    return ax.while_loop(lambda _: True, lambda token: _one(token, step), first)


def _another_in_endless(first: Any, step: Callable[..., Any]) -> Any:
    def body(token: Any) -> Any:
        return ax.while_loop(lambda i, _: i < 3, lambda i, t: (i + 1, step(t)), (0, token))[1]

    return ax.while_loop(lambda _: True, body, first)


SHAPES: Final[dict[str, Callable[..., Any]]] = {
    "one": _one,
    "endless in another": _endless_in_another,
    "another in endless": _another_in_endless,
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("place", ["inline", "async", "thread"])
async def test_an_endless_loop_is_ended_by_the_timeout(place: str, shape: str) -> None:
    endless = Endless(place, shape)
    async with ax.Session(endless.graph) as session:
        with pytest.raises(ax.errors.DeadlineExceededError, match="more than its timeout"):
            await session.run(endless.result, {"first:0": Token()}, options=ax.RunOptions(timeout=0.02))
        await endless.assert_nothing_is_left(session)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("place", ["inline", "async", "thread"])
async def test_an_endless_loop_is_ended_by_cancelling_the_caller(place: str, shape: str) -> None:
    endless = Endless(place, shape)
    async with ax.Session(endless.graph) as session:
        run = asyncio.ensure_future(session.run(endless.result, {"first:0": Token()}))
        await endless.turned.wait()
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
        assert run.cancelled()
        await endless.assert_nothing_is_left(session)


@pytest.mark.virtual_clock
@pytest.mark.parametrize("ended_by", ["timeout", "cancellation"])
async def test_an_endless_loop_of_waits_is_ended_on_time(ended_by: str) -> None:
    """An hour each time around, in a loop in a loop; what waits is told, and has its say, before the run is over."""
    began: list[int] = []
    ended: list[int] = []

    async def hour(i: Any) -> np.int32:
        began.append(int(i))
        try:
            await asyncio.sleep(3600)
        finally:
            await asyncio.sleep(1)
            ended.append(int(i))
        return np.int32(i + 1)

    step = raw_op("Hour", hour, kind=KernelKind.ASYNC, dtype=ax.int32)
    with ax.Graph() as graph:
        endless = _endless_in_another(ax.constant(0), lambda i: ax.reshape(step(i), []))
    async with ax.Session(graph) as session:
        if ended_by == "timeout":
            with pytest.raises(ax.errors.DeadlineExceededError, match="timeout of 36000 s"):
                await session.run(endless, options=ax.RunOptions(timeout=36_000))
        else:
            with pytest.raises(TimeoutError) as caught:
                await asyncio.wait_for(session.run(endless), 36_000)
            assert not isinstance(caught.value, ax.errors.OpError)
        assert began == ended == list(range(10))
        assert len(asyncio.all_tasks()) == 1


@pytest.mark.parametrize("place", [KernelKind.CHEAP, KernelKind.ASYNC, KernelKind.EXPENSIVE])
async def test_a_failure_says_which_loops_and_iterations(place: KernelKind) -> None:
    def fail_at(i: Any, j: Any) -> np.int32:
        if (i, j) == (2, 1):
            raise ZeroDivisionError("no such number")
        return np.int32(j + 1)

    async def fail_later(i: Any, j: Any) -> np.int32:
        await asyncio.sleep(0)
        return fail_at(i, j)

    kernel = fail_later if place is KernelKind.ASYNC else fail_at
    on_thread = place is KernelKind.EXPENSIVE
    fails = raw_op("Fails", kernel, kind=place, dtype=ax.int32, is_expensive=on_thread)
    with ax.Graph() as graph:

        def inner(i: Any) -> Any:
            return ax.while_loop(
                lambda j: j < 3, lambda j: ax.reshape(fails(i, j, name="culprit"), []), 0, name="inner"
            )

        result = ax.while_loop(lambda i, _: i < 5, lambda i, _: (i + 1, inner(i)), (0, 0), name="outer")
    async with ax.Session(graph) as session:
        for _ in range(2):
            with pytest.raises(ax.errors.InvalidArgumentError, match="no such number") as caught:
                await session.run(result)
            assert caught.value.node == "outer/inner/culprit"
            assert caught.value.iteration == "outer 2, outer/inner 1"
            assert "in iteration outer 2, outer/inner 1" in str(caught.value)
            assert isinstance(caught.value.__cause__, ZeroDivisionError)
