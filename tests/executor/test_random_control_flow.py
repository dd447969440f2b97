"""Random graphs with control flow give what the plain evaluator says, bit for bit, in whatever order they run.

Some of their nodes run as coroutines, which take virtual time and so end in an order of their own, some on worker
threads; ready nodes are taken in an order drawn from a seed; nodes may be scattered over three devices.  With
TensorFlow installed (mark ``oracle``) it is asked too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import count, cycle, takewhile
from random import Random
from typing import Any, Literal, NamedTuple

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

import asyncexec as ax
from asyncexec.framework.errors import InternalError, InvalidArgumentError
from asyncexec.framework.kernel import KernelKind
from asyncexec.framework.kernel_registry import KernelRegistration
from asyncexec.framework.kernel_registry import registry as kernel_registry
from asyncexec.framework.op_registry import register_op
from asyncexec.framework.shape_inference import unchanged
from asyncexec.graph.control_flow_info import Frame
from asyncexec.importers.graph_formats import format_graph_def
from asyncexec.testing import VirtualClockLoop
from asyncexec.testing.evaluate import ABSENT, _ancestors, _Evaluation, evaluate
from asyncexec.testing.graph_strategies import Program, programs, raw_programs
from benchmarks import tensorflow_session

pytestmark = pytest.mark.one_of("loop")  # what comes of a graph is the same in either

AWAITED, WORKED = "RandomControlFlowAwaited", "RandomControlFlowWorked"
NOTHING_COMES = "waiting Recvs will get no value"
MERGE_AND_EXIT = ("Merge", "Exit")
NO_VALUE, NO_VALUE_IN_TENSORFLOW = "does not have a value", "does not have value"


class StarvedError(Exception):
    """A Merge gets nothing, neither dead nor live: on one device nobody notices, of several one waits for another."""


class Delays:
    """The seconds that awaited nodes take, one after the other, over and over."""

    seconds: Iterator[float] = cycle([0.0])


async def awaited(value: Any) -> Any:
    await asyncio.sleep(next(Delays.seconds))
    return value


def register(op: str, kernel: Callable[[Any], Any], kind: KernelKind, *, is_expensive: bool | None = None) -> None:
    register_op(op, "input: T -> output: T", "T: type", shape=unchanged, is_stateful=True)
    kernel_registry.register(op, "CPU", KernelRegistration(lambda _: kernel, kind, is_expensive=is_expensive))


register(AWAITED, awaited, KernelKind.ASYNC)
register(WORKED, lambda value: value, KernelKind.EXPENSIVE, is_expensive=True)


class Case(NamedTuple):
    """A program, which of its calls are of which op, and what the order of execution comes from."""

    program: Program
    replacements: Mapping[str, str] = {}
    delays: tuple[float, ...] = (0.0,)
    schedule_seed: int | None = None
    optimization: Literal["on", "off"] = "on"
    debug: bool = False
    scatter: int | None = None  # what the device of each node comes from, where there are three
    executor_type: Literal["DEFAULT", "COMPILED"] = "DEFAULT"


@st.composite
def cases(draw: st.DrawFn, drawn_programs: st.SearchStrategy[Program], *, is_scattered: bool = False) -> Case:
    program = draw(drawn_programs)
    ops = {call: draw(st.sampled_from([None, AWAITED, AWAITED, WORKED])) for call in program.calls}
    return Case(
        program,
        {call: op for call, op in ops.items() if op},
        tuple(draw(st.lists(st.sampled_from([0.0, 1.0, 2.0, 5.0, 9.0]), min_size=1, max_size=8))),
        draw(st.none() | st.integers(0, 2**16)),
        draw(st.sampled_from(["on", "off"])),
        draw(st.booleans()),
        draw(st.integers(0, 2**16)) if is_scattered else None,
        draw(st.sampled_from(["DEFAULT", "COMPILED"])),
    )


def scattered(program: Program, seed: int) -> Program:
    """*program*, its nodes on three devices drawn from *seed*; what must be together soft placement brings together."""
    pick = Random(seed)
    nodes = [node.model_copy(update={"device": f"/cpu:{pick.randrange(3)}"}) for node in program.graph_def.node]
    return replace(program, graph_def=program.graph_def.model_copy(update={"node": tuple(nodes)}))


async def check(case: Case) -> None:
    """Hold a session to the plain evaluator: all fetches at once; and those that have a value, if not all do."""
    program = case.program
    placed_program = program if case.scatter is None else scattered(program, case.scatter)
    plain, placed = program.graph(), placed_program.graph(case.replacements)
    live = [fetch for fetch in program.fetches if has_value(plain, fetch, program.feeds)]
    Delays.seconds = cycle(case.delays)
    config = ax.SessionConfig(
        schedule_seed=case.schedule_seed,
        optimization=case.optimization,
        executor_type=case.executor_type,
        num_worker_threads=2,
        debug=case.debug,
        device_count={"CPU": 1 if case.scatter is None else 3},
        allow_soft_placement=True,
    )
    async with ax.Session(placed, config) as session:
        session._state.optimizes = True  # as far as the config lets it
        if len(live) < len(program.fetches):
            with pytest.raises(InvalidArgumentError, match=NO_VALUE):
                evaluate(plain, program.fetches, program.feeds)
            with pytest.raises((InvalidArgumentError, StarvedError), match=NO_VALUE):
                await run(session, plain, list(program.fetches), program.feeds)
        expected = evaluate(plain, live, program.feeds)
        try:
            got = await run(session, plain, live, program.feeds)
        except StarvedError:
            return
    assert list(map(type, got)) == list(map(type, expected))
    assert_same(got, expected)


async def run(session: ax.Session, plain: ax.Graph, fetches: list[str], feeds: Mapping[str, Any]) -> list[Any]:
    """What *session* gives; StarvedError where partitions wait for what never comes, in a graph that is such."""
    try:
        values: list[Any] = await session.run(fetches, feeds)
    except InternalError as error:
        if NOTHING_COMES not in error.message or not is_starved(plain, fetches, feeds):
            raise
        raise StarvedError(NO_VALUE) from error
    return values


def is_starved(graph: ax.Graph, fetches: list[str], feeds: Mapping[str, Any]) -> bool:
    """Whether a Merge or Exit is told nothing, neither dead nor live, in an iteration that takes place."""
    fed = {(graph.tensor(name).op, 0): graph.tensor(name).dtype.as_numpy_dtype.type(feeds[name]) for name in feeds}
    evaluation = _Evaluation([graph.tensor(fetch) for fetch in fetches], fed, 1000)

    def tags(frame: Frame | None) -> Iterator[tuple[int, ...]]:
        if frame is None or frame.parent is None:
            yield ()
            return
        for outer in tags(frame.parent):
            yield from takewhile(lambda tag: evaluation._solve((frame, tag)), ((*outer, n) for n in count()))

    frames = [(node, evaluation._info.frame_of(node)) for node in _ancestors([graph.tensor(f) for f in fetches], fed)]
    seen = [
        (node, frame if node.op == "Merge" else frame.parent) for node, frame in frames if node.op in MERGE_AND_EXIT
    ]
    return any(evaluation._solve((node, tag)) is ABSENT for node, frame in seen for tag in tags(frame))


def has_value(graph: ax.Graph, fetch: str, feeds: Mapping[str, Any]) -> bool:
    try:
        evaluate(graph, [fetch], feeds)
    except InvalidArgumentError as error:
        if NO_VALUE in error.message:
            return False
        raise
    return True


def assert_same(got: list[Any], expected: list[Any]) -> None:
    """Bit for bit, but for which NaN it is."""
    for one, other in zip(map(np.asarray, got), map(np.asarray, expected), strict=True):
        assert (one.dtype, one.shape) == (other.dtype, other.shape)
        np.testing.assert_array_equal(one, other)
        np.testing.assert_array_equal(np.signbit(one) & (one == one), np.signbit(other) & (other == other))


def examples(count: int) -> settings:
    """Building a graph takes longer than hypothesis likes."""
    checks = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example]
    return settings(max_examples=count, deadline=None, suppress_health_check=checks)


@pytest.mark.virtual_clock
@examples(30)
@given(cases(programs(dead_fetches=True)))
async def test_programs(case: Case) -> None:
    await check(case)


@pytest.mark.virtual_clock
@examples(75)
@given(cases(raw_programs()))
async def test_raw_programs(case: Case) -> None:
    await check(case)


@pytest.mark.virtual_clock
@examples(30)
@given(cases(programs(dead_fetches=True), is_scattered=True))
async def test_scattered_programs(case: Case) -> None:
    await check(case)


@pytest.mark.virtual_clock
@examples(30)
@given(cases(raw_programs(), is_scattered=True))
async def test_scattered_raw_programs(case: Case) -> None:
    await check(case)


@pytest.mark.deep
@pytest.mark.timeout(1200)
@pytest.mark.virtual_clock
@examples(2000)
@given(cases(programs(max_statements=8, dead_fetches=True), is_scattered=True))
async def test_many_scattered_programs(case: Case) -> None:
    await check(case)


@pytest.mark.deep
@pytest.mark.timeout(1200)
@pytest.mark.virtual_clock
@examples(2000)
@given(cases(raw_programs(max_statements=20), is_scattered=True))
async def test_many_scattered_raw_programs(case: Case) -> None:
    await check(case)


@pytest.mark.deep
@pytest.mark.virtual_clock
@examples(2000)
@given(cases(programs(max_statements=8, dead_fetches=True)))
async def test_many_programs(case: Case) -> None:
    await check(case)


@pytest.mark.deep
@pytest.mark.virtual_clock
@examples(3000)
@given(cases(raw_programs(max_statements=30)))
async def test_many_raw_programs(case: Case) -> None:
    await check(case)


def in_tensorflow(program: Program, fetches: list[str]) -> list[Any] | None:
    """What TensorFlow gives; None when it says that a fetch has no value."""
    tf = tensorflow_session.tensorflow()
    wire = format_graph_def(program.graph_def, "pb")
    with tensorflow_session.open_session(tensorflow_session.read(wire), is_optimizing=False) as session:
        try:
            return list(session.run(fetches, program.feeds))
        except tf.errors.InvalidArgumentError as error:
            if NO_VALUE_IN_TENSORFLOW in error.message:
                return None
            raise


def hold_to_tensorflow(program: Program) -> None:
    graph, fetches = program.graph(), list(program.fetches)
    live = [fetch for fetch in fetches if has_value(graph, fetch, program.feeds)]
    if len(live) < len(fetches):
        assert in_tensorflow(program, fetches) is None
    for fetch in set(fetches) - set(live):
        assert in_tensorflow(program, [fetch]) is None
    if live:
        expected = in_tensorflow(program, live)
        assert expected is not None
        assert_same(evaluate(graph, live, program.feeds), expected)
    with asyncio.Runner(loop_factory=VirtualClockLoop) as runner:
        runner.run(check(Case(program)))


@pytest.mark.oracle
@examples(50)
@given(programs(dead_fetches=True))
def test_programs_in_tensorflow(program: Program) -> None:
    hold_to_tensorflow(program)


@pytest.mark.oracle
@examples(50)
@given(raw_programs())
def test_raw_programs_in_tensorflow(program: Program) -> None:
    hold_to_tensorflow(program)
