"""Functions that call themselves: they run, as deep as they may, and end as all of a step does."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, ClassVar

import numpy as np
import pytest

import asyncexec as ax
from asyncexec.checkpoint import MemoryStore
from asyncexec.framework.call_frame import CallFrame, current_call
from asyncexec.framework.errors import (
    CancelledError,
    DeadlineExceededError,
    InvalidArgumentError,
    ResourceExhaustedError,
)
from asyncexec.framework.graph_def import NodeDef
from asyncexec.framework.loop_turns import LoopTurns
from asyncexec.ops.flow import calling
from tests.fake_time import FakeTime
from tests.optimization.function_text import call, function, load, node, placeholder
from tests.optimization.recursive_functions import (
    FACT,
    ONE,
    B,
    I,
    binary,
    choice,
    const,
    is_zero,
    noinline,
)
from tests.running import settle

X = placeholder("x", I)
WAYS: dict[str, dict[str, Any]] = {
    "default": {},
    "tagged token": {"executor_type": "TAGGED_TOKEN"},
    "compiled": {"executor_type": "COMPILED"},
    "not optimized": {"optimization": "off"},
    "debug": {"debug": True},
    "in any order": {"schedule_seed": 3},
    "by rendezvous": {"feed_fetch_medium": "rendezvous"},
    "breadth first": {"executor_type": "BREADTH_FIRST"},
}
FIB = (
    function("SameFn(n: int32) -> r: int32", node("i", "Identity", "n", T=I), ret="r=i:output:0"),
    function(
        "FibFn(n: int32) -> r: int32",
        const("two", 2),
        node("p", "Less", "n two:output:0", T=I),
        choice("i", "n", "SameFn", "BothFn"),
        ret="r=i:output:0",
    ),
    function(
        "BothFn(n: int32) -> r: int32",
        const("one", 1),
        const("two", 2),
        binary("a", "Sub", "n one:output:0"),
        binary("b", "Sub", "n two:output:0"),
        call("f", "FibFn", "a:z:0", [I], [I]),
        call("g", "FibFn", "b:z:0", [I], [I]),
        binary("sum", "AddV2", "f:output:0 g:output:0"),
        ret="r=sum:z:0",
    ),
)
EVEN_ODD = tuple(
    part
    for name, other, at_zero in (("Even", "Odd", True), ("Odd", "Even", False))
    for part in (
        function(
            f"{name}(n: int32) -> r: bool",
            *is_zero("n"),
            choice("i", "n", f"{name}Ends", f"{name}GoesFn", B),
            ret="r=i:output:0",
        ),
        function(
            f"{name}Ends(n: int32) -> r: bool", node("c", "Const", value=np.bool_(at_zero), dtype=B), ret="r=c:output:0"
        ),
        function(
            f"{name}GoesFn(n: int32) -> r: bool",
            const("one", 1),
            binary("less", "Sub", "n one:output:0"),
            node("c", other, "less:z:0"),
            ret="r=c:r:0",
        ),
    )
)
ACKERMANN = (
    function(
        "AckFn(m: int32, n: int32) -> r: int32",
        *is_zero("m"),
        choice("i", "m n", "NextFn", "AckMFn"),
        ret="r=i:output:0",
    ),
    function(
        "NextFn(m: int32, n: int32) -> r: int32", const("one", 1), binary("a", "AddV2", "n one:output:0"), ret="r=a:z:0"
    ),
    function(
        "AckMFn(m: int32, n: int32) -> r: int32",
        *is_zero("n"),
        choice("i", "m n", "AckM0Fn", "AckMNFn"),
        ret="r=i:output:0",
    ),
    function(
        "AckM0Fn(m: int32, n: int32) -> r: int32",
        const("one", 1),
        binary("a", "Sub", "m one:output:0"),
        node("c", "AckFn", "a:z:0 one:output:0"),
        ret="r=c:r:0",
    ),
    function(
        "AckMNFn(m: int32, n: int32) -> r: int32",
        const("one", 1),
        binary("a", "Sub", "m one:output:0"),
        binary("b", "Sub", "n one:output:0"),
        node("inner", "AckFn", "m b:z:0"),
        node("c", "AckFn", "a:z:0 inner:r:0"),
        ret="r=c:r:0",
    ),
)
SUMS = (
    function("ZeroFn(n: int32) -> r: int32", const("z", 0), ret="r=z:output:0"),
    function("SumsFn(n: int32) -> r: int32", *is_zero("n"), choice("i", "n", "ZeroFn", "More1Fn"), ret="r=i:output:0"),
    function(
        "More1Fn(n: int32) -> r: int32",
        const("one", 1),
        binary("less", "Sub", "n one:output:0"),
        node("rest", "SumsFn", "less:z:0"),
        binary("plus", "AddV2", "n rest:r:0"),
        ret="r=plus:z:0",
    ),
)
ENDLESS = (
    ONE,
    function(
        "EndlessFn(n: int32) -> r: int32", *is_zero("n"), choice("i", "n", "OneFn", "AgainFn"), ret="r=i:output:0"
    ),
    function("AgainFn(n: int32) -> r: int32", node("rest", "EndlessFn", "n"), ret="r=rest:r:0"),
)
# Takes n values from a queue, the last ones first, and then gives 0.
TAKES = (
    function("NothingFn(q: resource, n: int32) -> r: int32", const("z", 0), ret="r=z:output:0"),
    function(
        "TakesFn(q: resource, n: int32) -> r: int32",
        *is_zero("n"),
        node(
            "i",
            "If",
            "p:z:0 q n",
            Tcond=B,
            Tin=[ax.resource, I],
            Tout=[I],
            then_branch="NothingFn",
            else_branch="TakeFn",
        ),
        ret="r=i:output:0",
        is_stateful=True,
    ),
    function(
        "TakeFn(q: resource, n: int32) -> r: int32",
        const("one", 1),
        binary("less", "Sub", "n one:output:0"),
        node("rest", "TakesFn", "q less:z:0"),
        node("took", "QueueDequeueV2", "q ^rest", component_types=[I]),
        binary("plus", "AddV2", "took:components:0 rest:r:0"),
        ret="r=plus:z:0",
        is_stateful=True,
    ),
)
QUEUE = node("q", "FIFOQueueV2", component_types=[I], shapes=[ax.TensorShape([])])


async def run(parts: Any, fetch: str, config: Any = None, **feeds: Any) -> Any:
    async with ax.Session(load(*parts), ax.SessionConfig(**(config or {}))) as session:
        return await session.run(fetch, {f"{name}:0": value for name, value in feeds.items()})


@pytest.mark.one_of("loop")
@pytest.mark.parametrize("config", WAYS.values(), ids=WAYS)
async def test_values(config: dict[str, Any]) -> None:
    callers: list[NodeDef] = [
        node("fact", "FactFn", "x"),
        node("fib", "FibFn", "x"),
        node("even", "Even", "x"),
        node("odd", "Odd", "x"),
        node("ack", "AckFn", "two x"),
        const("two", 2),
    ]
    graph = load(*FACT, *FIB, *EVEN_ODD, *ACKERMANN, X, *callers)
    async with ax.Session(graph, ax.SessionConfig(**config)) as session:
        for _ in range(3):  # general at first, and then as a plan
            for x, expected in (
                (0, (1, 0, True, False, 3)),
                (1, (1, 1, False, True, 5)),
                (7, (5040, 13, False, True, 17)),
            ):
                got = await session.run(["fact:0", "fib:0", "even:0", "odd:0", "ack:0"], {"x:0": x})
                assert tuple(got) == expected


@pytest.mark.parametrize("kind", ["StatelessIf", "If", "StatelessCase", "Case"])
async def test_any_choice_may_end_it(kind: str) -> None:
    tin = {"Tin": [I], "Tout": [I]}
    if kind.endswith("If"):
        choose = node("i", kind, "p:z:0 n", Tcond=B, then_branch="ZeroFn", else_branch="More1Fn", **tin)
    else:
        choose = node("i", kind, "n n", branches=["ZeroFn", "More1Fn"], **tin)
    sums = function("SumsFn(n: int32) -> r: int32", *is_zero("n"), choose, ret="r=i:output:0")
    assert await run((SUMS[0], sums, SUMS[2], X, node("c", "SumsFn", "x")), "c:0", x=9) == 45


async def test_the_body_of_a_loop_may_call_the_function_around_it() -> None:
    """NestedFn(n) adds 1 and NestedFn(n - 1) n times: 1, 2, 5, 16 (OEIS A000522)."""
    parts = (
        function("GoesFn(i: int32, n: int32, s: int32) -> r: bool", node("p", "Less", "i n", T=I), ret="r=p:z:0"),
        function(
            "TurnFn(i: int32, n: int32, s: int32) -> i1: int32, n1: int32, s1: int32",
            const("one", 1),
            binary("next", "AddV2", "i one:output:0"),
            binary("less", "Sub", "n one:output:0"),
            node("c", "NestedFn", "less:z:0"),
            binary("plus", "AddV2", "s c:r:0"),
            ret="i1=next:z:0 n1=n s1=plus:z:0",
        ),
        function(
            "NestedFn(n: int32) -> r: int32",
            const("zero", 0),
            const("one", 1),
            node("w", "StatelessWhile", "zero:output:0 n one:output:0", T=[I, I, I], cond="GoesFn", body="TurnFn"),
            ret="r=w:output:2",
        ),
    )
    async with ax.Session(load(*parts, X, node("c", "NestedFn", "x"))) as session:
        assert [await session.run("c:0", {"x:0": x}) for x in range(4)] == [1, 2, 5, 16]


@pytest.mark.one_of("loop")
@pytest.mark.parametrize("config", [{}, {"executor_type": "COMPILED"}], ids=["default", "compiled"])
async def test_two_thousand_calls_deep(config: dict[str, Any]) -> None:
    assert await run((*SUMS, X, node("c", "SumsFn", "x")), "c:0", config, x=2_000) == 2_001_000


@pytest.mark.parametrize("kind", ["EndlessFn", "PartitionedCall", "StatefulPartitionedCall"])
async def test_recursion_that_goes_on_without_end_is_ended(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calling, "MAX_DEPTH", 200)
    caller = node("c", kind, "x") if kind == "EndlessFn" else call("c", "EndlessFn", "x", [I], [I], kind)
    async with ax.Session(load(*ENDLESS, X, caller)) as session:
        with pytest.raises(ResourceExhaustedError, match="'EndlessFn' is called more than 200 calls deep") as caught:
            await session.run("c:0", {"x:0": 1})
        assert caught.value.node == "EndlessFn/i/else/rest"
        assert caught.value.__notes__ == [
            "called by way of 'c' (EndlessFn) -> 'EndlessFn/i/else/rest' (EndlessFn) 199 times, 200 deep"
        ]
        assert await session.run("c:0", {"x:0": 0}) == 1


async def test_recursion_that_branches_is_ended_by_the_number_of_its_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calling, "MAX_UNDER_WAY", 100)
    branching = (
        ONE,
        function(
            "BranchingFn(n: int32) -> r: int32", *is_zero("n"), choice("i", "n", "OneFn", "BothFn"), ret="r=i:output:0"
        ),
        function(
            "BothFn(n: int32) -> r: int32",
            const("one", 1),
            binary("less", "Sub", "n one:output:0"),
            node("left", "BranchingFn", "less:z:0"),
            node("right", "BranchingFn", "less:z:0"),
            binary("sum", "AddV2", "left:r:0 right:r:0"),
            ret="r=sum:z:0",
        ),
    )
    async with ax.Session(load(*branching, X, node("c", "BranchingFn", "x"))) as session:
        assert await session.run("c:0", {"x:0": 4}) == 16
        with pytest.raises(ResourceExhaustedError, match="'BranchingFn' has 100 calls under way at once"):
            await session.run("c:0", {"x:0": 3_000})
        assert await session.run("c:0", {"x:0": 4}) == 16


async def test_recursion_that_branches_goes_deep_before_it_goes_wide(monkeypatch: pytest.MonkeyPatch) -> None:
    """One call begins in a turn of the event loop, where each takes as long as a slice: so few are under way."""
    most = 0
    enter = LoopTurns.enter

    async def count(turns: LoopTurns, outermost: CallFrame) -> None:
        nonlocal most
        most = max(most, outermost.num_under_way)
        await enter(turns, outermost)

    monkeypatch.setattr(LoopTurns, "enter", count)
    time = FakeTime(step_ns=2_000_000)
    async with ax.Session(load(*FIB, X, node("c", "FibFn", "x")), clock=time.clock) as session:
        assert await session.run("c:0", {"x:0": 14}) == 377  # by 1,219 calls, of which 610 are of 0 or 1
    assert most < 610 // 2  # else all of these are under way together


async def test_as_deep_as_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calling, "MAX_DEPTH", 50)
    parts = (*SUMS, X, node("c", "SumsFn", "x"))
    assert await run(parts, "c:0", x=49) == 1225  # and SumsFn(0) is the fiftieth
    with pytest.raises(ResourceExhaustedError):
        await run(parts, "c:0", x=50)


async def test_an_error_names_its_node_and_the_calls() -> None:
    parts = (
        function(
            "CheckedFn(n: int32) -> r: int32",
            *is_zero("n"),
            node("f", "Assert", "ok:output:0 n", T=[I], summarize=3),
            node("ok", "Const", value=np.bool_(False), dtype=B),
            node("d", "Identity", "n ^f", T=I),
            ret="r=d:output:0",
            is_stateful=True,
        ),
        function(
            "DownFn(n: int32) -> r: int32",
            *is_zero("n"),
            choice("i", "n", "CheckedFn", "DeeperFn", op="If"),
            ret="r=i:output:0",
            is_stateful=True,
        ),
        function(
            "DeeperFn(n: int32) -> r: int32",
            const("one", 1),
            binary("less", "Sub", "n one:output:0"),
            node("c", "DownFn", "less:z:0"),
            ret="r=c:r:0",
            is_stateful=True,
        ),
    )
    with pytest.raises(InvalidArgumentError, match="assertion failed") as caught:
        await run((*parts, X, node("c", "DownFn", "x")), "c:0", x=3)
    assert caught.value.node == "DownFn/i/then/f"
    assert caught.value.__notes__ == ["called by way of 'c' (DownFn) -> 'DownFn/i/else/c' (DownFn) 3 times, 4 deep"]


async def test_async_nodes_within() -> None:
    """The innermost call takes the first value: what its caller takes waits for it."""
    fill = node("fill", "QueueEnqueueManyV2", "q values", Tcomponents=[I])
    values = node("values", "Const", value=np.arange(1, 31, dtype=np.int32), dtype=I)
    async with ax.Session(load(*TAKES, QUEUE, X, values, fill, node("c", "TakesFn", "q x"))) as session:
        waiting = asyncio.ensure_future(session.run("c:0", {"x:0": 30}))
        await asyncio.sleep(0)
        await session.run([], targets=["fill"])
        assert await waiting == 465


class Watched(CallFrame):
    """Frames that are counted; *reached* is set when there are *depth* calls in one another."""

    __slots__ = ("__weakref__",)

    frames: ClassVar[list[weakref.ref[CallFrame]]] = []
    depth_wanted: ClassVar[int]
    reached: ClassVar[asyncio.Event]

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.frames.append(weakref.ref(self))
        if self.depth >= self.depth_wanted:
            self.reached.set()


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> type[Watched]:
    """Lets calls have such frames."""
    monkeypatch.setattr(Watched, "frames", [])
    monkeypatch.setattr(Watched, "depth_wanted", 50, raising=False)
    monkeypatch.setattr(Watched, "reached", asyncio.Event(), raising=False)
    monkeypatch.setattr(calling, "CallFrame", Watched)
    return Watched


@asynccontextmanager
async def waiting_for_a_queue(
    watched: type[Watched], depth: int
) -> AsyncIterator[tuple[ax.Session, asyncio.Task[Any]]]:
    """A run that waits for a queue, so many calls deep."""
    watched.depth_wanted = depth + 1  # of which the last gives 0
    size = node("size", "QueueSizeV2", "q")
    async with ax.Session(load(*TAKES, QUEUE, X, size, node("c", "TakesFn", "q x"))) as session:
        waiting = asyncio.ensure_future(session.run("c:0", {"x:0": depth}))
        await watched.reached.wait()
        await settle(50)
        yield session, waiting


async def test_what_is_under_way_is_told_however_deep_it_is(watched: type[Watched]) -> None:
    async with waiting_for_a_queue(watched, 1_500) as (session, waiting):
        (under_way,) = session.statistics().under_way
        assert under_way.node == "TakesFn/i/else/took"
        waiting.cancel()
        await asyncio.wait([waiting])


async def test_a_cancelled_run_leaves_nothing(watched: type[Watched]) -> None:
    async with waiting_for_a_queue(watched, 300) as (session, waiting):
        waiting.cancel()
        await asyncio.wait([waiting])
        assert waiting.cancelled()
        assert asyncio.all_tasks() == {asyncio.current_task()}
        assert await session.run("size:0") == 0


@pytest.mark.virtual_clock
async def test_a_deadline_ends_all_calls() -> None:
    async with ax.Session(load(*TAKES, QUEUE, X, node("c", "TakesFn", "q x"))) as session:
        with pytest.raises(DeadlineExceededError) as caught:
            await session.run("c:0", {"x:0": 20}, options=ax.RunOptions(timeout=60.0))
        assert [each.node for each in caught.value.under_way] == ["TakesFn/i/else/took"]
        assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_recursion_does_not_run_ahead_of_its_end(watched: type[Watched]) -> None:
    """Calls end from the outside in, as fast as recursion goes deeper: so it sees for itself that it is in vain."""
    async with ax.Session(load(*ENDLESS, X, node("c", "EndlessFn", "x"))) as session:
        running = asyncio.ensure_future(session.run("c:0", {"x:0": 1}))
        await watched.reached.wait()
        running.cancel()
        await asyncio.wait([running])
        assert running.cancelled()
        assert len(watched.frames) < watched.depth_wanted + 20


async def test_a_failure_beside_a_call_ends_what_it_has_called() -> None:
    """Here the call around is not the outermost one."""
    parts = (
        *ENDLESS,
        function(
            "FailsFn(n: int32) -> r: int32",
            node("no", "Const", value=np.bool_(False), dtype=B),
            node("wait", "EndlessFn", "n"),
            node("few", "SumsFn", "ten:output:0"),
            const("ten", 10),
            node("f", "Assert", "no:output:0 few:r:0", T=[I], summarize=3),
            ret="r=wait:r:0",
            is_stateful=True,
        ),
        function("OuterFn(n: int32) -> r: int32", node("c", "FailsFn", "n"), ret="r=c:r:0", is_stateful=True),
    )
    called = tuple(noinline(part) for part in parts[-2:])
    with pytest.raises(InvalidArgumentError, match="assertion failed") as caught:
        await run((*SUMS, *parts[:-2], *called, X, node("c", "OuterFn", "x")), "c:0", x=1)
    assert caught.value.node == "FailsFn/f"


async def test_arrays_of_all_calls_stay_within_the_limit() -> None:
    parts = (
        function("KeepFn(x: float32) -> r: float32", node("i", "Identity", "x", T=ax.float32), ret="r=i:output:0"),
        function(
            "GrowFn(x: float32, n: int32) -> r: float32",
            *is_zero("n"),
            node(
                "i",
                "StatelessIf",
                "p:z:0 x n",
                Tcond=B,
                Tin=[ax.float32, I],
                Tout=[ax.float32],
                then_branch="SmallFn",
                else_branch="LargerFn",
            ),
            ret="r=i:output:0",
        ),
        function(
            "SmallFn(x: float32, n: int32) -> r: float32",
            const("a", 0),
            node("s", "Sum", "x a:output:0", T=ax.float32),
            ret="r=s:output:0",
        ),
        function(
            "LargerFn(x: float32, n: int32) -> r: float32",
            const("one", 1),
            binary("less", "Sub", "n one:output:0"),
            const("a", 0),
            node("both", "ConcatV2", "x x a:output:0", T=ax.float32, N=2),
            node("c", "GrowFn", "both:output:0 less:z:0"),
            ret="r=c:r:0",
        ),
    )
    ones = node("ones", "Const", value=np.ones(1_000, np.float32), dtype=ax.float32)
    graph = load(*parts, ones, X, node("c", "GrowFn", "ones x"))
    async with ax.Session(graph, ax.SessionConfig(memory_limit=1_000_000)) as session:
        assert await session.run("c:0", {"x:0": 3}) == 8_000
        with pytest.raises(ResourceExhaustedError) as caught:
            await session.run("c:0", {"x:0": 30})
        assert caught.value.node == "GrowFn/i/else/both"
        assert await session.run("c:0", {"x:0": 3}) == 8_000


async def test_no_frame_and_no_argument_outlives_its_call(
    watched: type[Watched], monkeypatch: pytest.MonkeyPatch
) -> None:
    arrays: list[weakref.ref[Any]] = []
    set_retval = CallFrame.set_retval

    def note(frame: CallFrame, index: int, value: Any) -> None:
        set_retval(frame, index, value)
        arrays.append(weakref.ref(value))

    monkeypatch.setattr(CallFrame, "set_retval", note)
    grow = (
        function(
            "DoneFn(n: int32) -> r: int32",
            const("one", 1),
            node("e", "ExpandDims", "n one:output:0".replace("one", "zero"), T=I),
            const("zero", 0),
            ret="r=e:output:0",
        ),
        function(
            "ListFn(n: int32) -> r: int32", *is_zero("n"), choice("i", "n", "DoneFn", "LongerFn"), ret="r=i:output:0"
        ),
        function(
            "LongerFn(n: int32) -> r: int32",
            const("one", 1),
            const("zero", 0),
            binary("less", "Sub", "n one:output:0"),
            node("rest", "ListFn", "less:z:0"),
            node("own", "ExpandDims", "n zero:output:0", T=I),
            node("both", "ConcatV2", "rest:r:0 own:output:0 zero:output:0", T=I, N=2),
            ret="r=both:output:0",
        ),
    )
    async with ax.Session(load(*grow, X, node("c", "ListFn", "x"))) as session:
        assert (await session.run("c:0", {"x:0": 20})).tolist() == list(range(21))
        await asyncio.sleep(0)
        gc.collect()
        assert len(watched.frames) == len(arrays) == 21
        assert not [ref for ref in (*watched.frames, *arrays) if ref() is not None]
        assert current_call.get() is None


async def test_runs_side_by_side() -> None:
    async with ax.Session(load(*FIB, X, node("c", "FibFn", "x"))) as session:
        results = await asyncio.gather(*(session.run("c:0", {"x:0": x}) for x in range(11)))
        assert results == [0, 1, 1, 2, 3, 5, 8, 13, 21, 34, 55]


async def test_calls_in_a_stream_and_in_a_callable() -> None:
    async with ax.Session(load(*FACT, X, node("c", "FactFn", "x"))) as session:
        assert [value async for value in session.map("c:0", [{"x:0": x} for x in range(6)])] == [1, 1, 2, 6, 24, 120]
        fact = session.make_callable("c:0", ["x:0"])
        assert [await fact(x) for x in range(6)] == [1, 1, 2, 6, 24, 120]
        async with session.partial_run("c:0", ["x:0"]) as step:
            await step.feed({"x:0": 4})
            assert await step.fetch("c:0") == 24


async def test_a_trace_has_the_nodes_of_each_call_once() -> None:
    metadata = ax.RunMetadata()
    async with ax.Session(load(*SUMS, X, node("c", "SumsFn", "x"))) as session:
        await session.run("c:0", {"x:0": 12}, options=ax.RunOptions(trace=True), metadata=metadata)
    names = [each.node_name for device in metadata.step_stats.dev_stats for each in device.node_stats]
    assert names.count("c") == 1
    assert names.count("SumsFn/i/else/plus") == names.count("SumsFn/i/else/rest") == 12
    assert names.count("_retval_SumsFn_0") == 13


async def test_a_run_with_a_journal_goes_on_where_it_was_in_a_recursion() -> None:
    """What was taken from a queue before the run was cancelled is in the journal."""
    fill = node("fill", "QueueEnqueueV2", "q x", Tcomponents=[I])
    graph = load(*TAKES, QUEUE, X, fill, node("size", "QueueSizeV2", "q"), node("c", "TakesFn", "q x"))
    options = ax.RunOptions(run_id="run")
    async with ax.Session(graph, journal=MemoryStore()) as session:
        for value in (5, 6):
            await session.run([], {"x:0": value}, targets=["fill"])
        running = asyncio.ensure_future(session.run("c:0", {"x:0": 3}, options=options))
        while await session.run("size:0"):
            assert not running.done()
        for _ in range(50):
            await asyncio.sleep(0)
        running.cancel()
        await asyncio.wait([running])
        await session.run([], {"x:0": 9}, targets=["fill"])
        assert await session.run("c:0", {"x:0": 3}, options=options) == 20


async def test_a_call_within_one_that_has_ended_is_in_vain() -> None:
    class Ended:
        has_failed = True

    outer = CallFrame("F", "outer", ())
    outer.step = Ended()
    async with ax.Session(load(*FACT, X, node("c", "FactFn", "x"))) as session:
        assert await session.run("c:0", {"x:0": 3}) == 6
        token = current_call.set(outer)
        try:
            with pytest.raises(CancelledError, match="a call around that of function 'FactFn' has ended"):
                await session.run("c:0", {"x:0": 3})
        finally:
            current_call.reset(token)
