"""Faults by seed in random graphs: kernels that raise, are late, cancel themselves or will not be cancelled.

A run either gives what the plain evaluator says, or fails by one of the faults, or ends as its caller's cancellation or
timeout; then nothing is left at work, and the next run is right.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace
from itertools import cycle
from random import Random
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import hypothesis.strategies as st
import pytest
from hypothesis import given

import asyncexec as ax
from asyncexec.framework.graph_def import NodeDef
from asyncexec.framework.kernel import KernelKind
from asyncexec.testing.evaluate import evaluate
from asyncexec.testing.graph_strategies import Program, programs, raw_programs
from tests.executor.test_random_control_flow import (
    NOTHING_COMES,
    StarvedError,
    assert_same,
    examples,
    has_value,
    is_starved,
    register,
    run,
    scattered,
)

AWAITED, INLINE, WORKED, NONE = "FaultyAwaited", "FaultyInline", "FaultyWorked", ""
ARITHMETIC: Final = frozenset("Add AddV2 Sub Mul Maximum Minimum SelectV2".split())
Fault: TypeAlias = Literal["raise", "op_error", "cancelled_error", "cancel_itself", "refuse_to_end", "end_late"]
FAULTS: Final[tuple[Fault, ...]] = (
    "raise",
    "op_error",
    "cancelled_error",
    "cancel_itself",
    "refuse_to_end",
    "end_late",
)
# What a caller may do to a run, besides waiting for it.
Ending: TypeAlias = Literal["waits", "cancels", "times_out", "closes"]
TIMEOUT_S: Final = 3.0


class InjectedError(Exception):
    """Raised by a kernel on purpose."""


class Injector:
    """Says, from a seed, what each call of a kernel is to do; and counts what was raised and what is under way."""

    def __init__(self, seed: int | None, rate: float) -> None:
        self._random = Random(seed)
        self._rate = rate if seed is not None else 0.0
        self.is_slow = seed is not None
        self.under_way = 0
        self.raised: list[BaseException] = []
        self.faults: Counter[str] = Counter()

    def draw(self, *faults: Fault) -> Fault | None:
        """The fault of this call, of those that its kernel can have."""
        if self._random.random() >= self._rate:
            return None
        fault = self._random.choice(faults)
        self.faults[fault] += 1
        return fault

    def raise_if(self, fault: Fault | None) -> None:
        errors = {
            "raise": InjectedError,
            "op_error": ax.errors.UnavailableError,
            "cancelled_error": asyncio.CancelledError,
        }
        if fault in errors:
            error = errors[fault]("on purpose")
            self.raised.append(error)
            raise error

    async def pause(self) -> None:
        """No turn of the loop, some, or some time."""
        if self.is_slow:
            for _ in range(self._random.choice([0, 0, 1, 3])):
                await asyncio.sleep(0)
            await asyncio.sleep(self._random.choice([0.0, 0.0, 0.5, 1.0]))


class Faulty:
    """The kernels; whoever runs them sets the injector."""

    injector = Injector(None, 0)


def at_once(value: Any) -> Any:
    injector = Faulty.injector
    injector.raise_if(injector.draw("raise", "op_error", "cancelled_error"))
    return value


async def awaited(value: Any) -> Any:
    injector = Faulty.injector
    fault = injector.draw(*FAULTS)
    injector.under_way += 1
    try:
        if fault == "cancel_itself":
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
            injector.raised.append(asyncio.CancelledError("on purpose"))
        await injector.pause()
        injector.raise_if(fault)
        if fault == "cancel_itself":
            await asyncio.sleep(0)
    except asyncio.CancelledError:
        if fault != "refuse_to_end":
            raise
        await injector.pause()
    finally:
        try:
            if fault == "end_late":
                await asyncio.sleep(0.25)
        finally:
            injector.under_way -= 1
    return value


register(AWAITED, awaited, KernelKind.ASYNC)
register(INLINE, at_once, KernelKind.CHEAP, is_expensive=False)
register(WORKED, at_once, KernelKind.EXPENSIVE, is_expensive=True)


class Attempt(NamedTuple):
    """A run with faults, and what its caller does after so many turns."""

    seed: int
    rate: float = 0.3
    ending: Ending = "waits"
    turns: int = 0


class Case(NamedTuple):
    """A program, the ops that go behind its arithmetic in turn, and how it is run, one time after the other."""

    program: Program
    ops: tuple[str, ...]
    attempts: tuple[Attempt, ...]
    scatter: int | None = None
    schedule_seed: int | None = None


ENDINGS: Final[st.SearchStrategy[Ending]] = st.sampled_from(["waits", "waits", "cancels", "times_out"])
ATTEMPTS: Final = st.builds(
    Attempt, st.integers(0, 2**16), st.sampled_from([0.3, 1.0, 0.1]), ENDINGS, st.integers(0, 8)
)


@st.composite
def cases(draw: st.DrawFn, drawn_programs: st.SearchStrategy[Program]) -> Case:
    program = draw(drawn_programs)
    ops = tuple(draw(st.lists(st.sampled_from([AWAITED, INLINE, WORKED, NONE]), min_size=1, max_size=8)))
    attempts = draw(st.lists(ATTEMPTS, min_size=1, max_size=6))
    if draw(st.booleans()):
        attempts.append(draw(ATTEMPTS)._replace(ending="closes"))
    scatter = draw(st.none() | st.integers(0, 2**16))
    return Case(program, ops, tuple(attempts), scatter, draw(st.none() | st.integers(0, 2**16)))


def with_faults(program: Program, ops: tuple[str, ...]) -> Program:
    """*program* with a node of one of *ops* behind each arithmetic one, under its name."""
    nodes, next_op = [], cycle(ops)
    for node in program.graph_def.node:
        op = next(next_op) if node.op in ARITHMETIC or node.name in program.calls else NONE
        if op == NONE:
            nodes.append(node)
            continue
        inner = f"{node.name}_inside"
        nodes.append(node.model_copy(update={"name": inner}))
        attrs = {"T": node.attr["T"]}
        nodes.append(NodeDef(name=node.name, op=op, input=(inner,), device=node.device, attr=attrs))
    return replace(program, graph_def=program.graph_def.model_copy(update={"node": tuple(nodes)}))


def tells_of(error: ax.errors.OpError, raised: BaseException) -> bool:
    """Whether *error* is what a step makes of what a kernel raised."""
    if isinstance(raised, asyncio.CancelledError):
        return isinstance(error, ax.errors.CancelledError)
    if isinstance(raised, ax.errors.OpError):
        return type(error) is type(raised) and "on purpose" in error.message
    return error.__cause__ is raised


class Runs:
    """The runs of one case."""

    def __init__(self, case: Case) -> None:
        program = case.program
        self._plain = program.graph()
        self._feeds = program.feeds
        self._fetches = [fetch for fetch in program.fetches if has_value(self._plain, fetch, program.feeds)]
        self._expected = evaluate(self._plain, self._fetches, program.feeds)
        placed = with_faults(program, case.ops)
        placed = placed if case.scatter is None else scattered(placed, case.scatter)
        config = ax.SessionConfig(
            schedule_seed=case.schedule_seed,
            num_worker_threads=2,
            slow_inline_ms=None,
            device_count={"CPU": 1 if case.scatter is None else 3},
            allow_soft_placement=True,
        )
        self._session = ax.Session(placed.graph(), config)

    async def attempt(self, attempt: Attempt) -> None:
        """A run with faults, and a clean one."""
        Faulty.injector = injector = Injector(attempt.seed, attempt.rate)
        others = asyncio.all_tasks()
        task = asyncio.ensure_future(self._run_within(attempt))
        is_ended = attempt.ending in ("cancels", "closes") and await self._end(task, attempt)
        await asyncio.wait([task])
        self._check_outcome(task, attempt, injector, is_ended=is_ended)
        assert injector.under_way == 0
        await asyncio.sleep(0)
        assert asyncio.all_tasks() == others
        assert self._session.statistics().running_steps == 0
        if attempt.ending != "closes":
            Faulty.injector = Injector(None, 0)
            await self._run_right()

    async def _run_within(self, attempt: Attempt) -> Any:
        options = ax.RunOptions(timeout=TIMEOUT_S) if attempt.ending == "times_out" else None
        return await self._session.run(self._fetches, self._feeds, options=options)

    async def _end(self, task: asyncio.Task[Any], attempt: Attempt) -> bool:
        """Cancel *task*, or close the session; whether that was in time."""
        for _ in range(attempt.turns):
            await asyncio.sleep(0)
        if attempt.ending == "cancels":
            return task.cancel()
        is_in_time = not task.done()
        await self._session.close()
        return is_in_time

    def _check_outcome(self, task: asyncio.Task[Any], attempt: Attempt, injector: Injector, *, is_ended: bool) -> None:
        if task.cancelled():
            assert is_ended
            assert attempt.ending == "cancels"
            return
        assert not (is_ended and attempt.ending == "cancels")  # nothing swallows it
        error = task.exception()
        if error is None:
            assert injector.raised == []
            assert_same(task.result(), self._expected)
        else:
            assert isinstance(error, ax.errors.OpError)
            assert self._may_be(error, attempt, injector)

    def _may_be(self, error: ax.errors.OpError, attempt: Attempt, injector: Injector) -> bool:
        """Whether the error is a fault that was injected, or comes of what the caller did."""
        if attempt.ending == "times_out" and isinstance(error, ax.errors.DeadlineExceededError):
            return True
        if attempt.ending == "closes" and isinstance(error, ax.errors.CancelledError):
            return True
        if isinstance(error, ax.errors.InternalError):
            return NOTHING_COMES in error.message and is_starved(self._plain, self._fetches, self._feeds)
        return any(tells_of(error, raised) for raised in injector.raised)

    async def _run_right(self) -> None:
        try:
            got = await run(self._session, self._plain, self._fetches, self._feeds)
        except StarvedError:
            return
        assert_same(got, self._expected)

    async def close(self) -> None:
        await self._session.close()
        assert asyncio.all_tasks() == {asyncio.current_task()}


async def check(case: Case) -> None:
    runs = Runs(case)
    for attempt in case.attempts:
        await runs.attempt(attempt)
    await runs.close()


@pytest.mark.virtual_clock
@examples(20)
@given(cases(programs(dead_fetches=True)))
async def test_faults_in_programs(case: Case) -> None:
    await check(case)


@pytest.mark.virtual_clock
@examples(40)
@given(cases(raw_programs()))
async def test_faults_in_raw_programs(case: Case) -> None:
    await check(case)


@pytest.mark.deep
@pytest.mark.timeout(1800)
@pytest.mark.virtual_clock
@examples(3000)
@given(cases(programs(max_statements=8, dead_fetches=True)))
async def test_faults_in_many_programs(case: Case) -> None:
    await check(case)


@pytest.mark.deep
@pytest.mark.timeout(1800)
@pytest.mark.virtual_clock
@examples(5000)
@given(cases(raw_programs(max_statements=30)))
async def test_faults_in_many_raw_programs(case: Case) -> None:
    await check(case)
