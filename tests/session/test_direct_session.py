"""Running signatures of a session: what ``direct_session_test.cc`` of TensorFlow 1.15 proves.

For acyclic graphs on one device.

TensorFlow's case                          here
-----------------------------------------  ------------------------------------------------------------------
RunSimpleNetwork                           test_fetch_and_target
RunSimpleNetwork_Callable                  test_callable_*, test_callable_after_close
TestFeed, TestFeed_Callable                test_feed_of_an_inner_tensor_cuts_its_upstream
TestConcurrency, ..._Callable              test_thousand_runs_at_once
TwoCreateCallsFails                        test_extend_refuses_a_name_that_is_taken
ForgetToCreate                             test_run_of_an_empty_graph
RunSimpleNetworkWithOpts, ..._Callable     tests/executor/test_step_stats.py
KeepsStateAcrossRunsOfSession              test_state_is_kept_across_runs
MultipleFeedTest, ..._Callable,            test_feeds_and_fetches_in_either_order, test_a_tensor_fed_twice
  ..._SomeSyncRun
FetchMultipleTimes                         test_one_tensor_fetched_many_times
SessionSyncRun, SyncSession                test_a_step_of_cheap_kernels_never_suspends
DarthKernel                                test_kernel_that_breaks_its_promise
CreateGraphFailsWhenAssigningAFedVar       test_assigning_to_a_fed_variable
Partial runs, timeouts, threads, closing   test_tf_cancellation_cases.py
RunHandleTest, ..._Callable                test_session_handles.py
InvalidDevice                              tests/placement/test_placer_errors.py: test_a_device_that_does_not_exist
LocalDeviceManager                         tests/devices/test_array_device.py: test_devices_are_made_as_many_as_...
FeedAndFetchTensorsInDeviceMemory* (3)     tests/devices/test_array_device.py: test_values_come_back_as_they_were
TestDirectSessionReset                     test_closed_session_forgets_its_state

Not here
  TestTensorConnection, ...UseTwice        callables cannot rewire edges in this contract; input_map of an import can
  RunSimpleNetwork_OptimizeForStaticGraph  no such option: extending a session is always allowed
  TestPerSessionThreads                    each session has worker threads of its own
  PlacePrunedGraph                         no such option: what is pruned is placed, too
  SessionMetadata* (6)                     no session metadata in this contract
  collective graph key                     groups of one process need none
  UseRunHandlerPool, benchmarks            no such pool; benchmarks/
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import asyncexec as ax
from asyncexec.framework.attr_value import AttrValue
from asyncexec.framework.kernel import KernelKind
from tests.running import STILL_CLOCK, raw_op, settle, started


def matmul_graph() -> ax.Graph:
    """y = a @ x; y_neg = -y; a is 2x2, x is 2x1."""
    with ax.Graph() as graph:
        a = ax.constant([[3.0, 2.0], [-1.0, 0.0]], name="a")
        x = ax.constant([[1.0], [1.0]], name="x")
        ax.negative(ax.matmul(a, x, name="y"), name="y_neg")
    return graph


async def test_fetch_and_target() -> None:
    async with ax.Session(matmul_graph()) as session:
        y = await session.run("y:0", targets=["y_neg"])
        np.testing.assert_array_equal(y, np.float32([[5], [-1]]), strict=True)
        assert await session.run([], targets="y_neg") == []


async def test_target_is_run_by_any_of_its_names() -> None:
    ran: list[int] = []
    with ax.Graph() as graph:
        tensor = raw_op("Note", lambda: ran.append(1))(name="note")
    async with ax.Session(graph) as session:
        for target in (tensor, tensor.op, "note", "note:0", [tensor], (tensor.op,), iter(["note"])):
            await session.run([], targets=target)
    assert len(ran) == 7


@pytest.mark.parametrize("target", [5, [None], [["note"]], "nothing", ["note:1"]])
async def test_target_that_is_none(target: Any) -> None:
    with ax.Graph() as graph:
        raw_op("Note", lambda: 1)(name="note")
    async with ax.Session(graph) as session:
        with pytest.raises(ax.errors.InvalidArgumentError, match="target"):
            await session.run([], targets=target)
        assert await session.run("note:0") == 1


async def test_run_of_an_empty_graph() -> None:
    async with ax.Session(ax.Graph()) as session:
        assert await session.run([]) == []
        with pytest.raises(ax.errors.InvalidArgumentError, match="'y:0'"):
            await session.run("y:0")


def test_session_of_what_is_no_graph() -> None:
    with pytest.raises(ax.errors.InvalidTypeError, match="not dict"):
        ax.Session({})  # type: ignore[arg-type]


async def test_callable_is_used_again() -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [], name="x")
        y = ax.add(x, 1.0, name="y")
    async with ax.Session(graph) as session:
        call = session.make_callable([y, x * 2.0], [x])
        assert [await call(value) for value in (1.0, 2.0)] == [[2.0, 2.0], [3.0, 4.0]]
        assert await session.run(y, {x: 7.0}) == 8.0


@pytest.mark.parametrize("values", [(), (1.0, 2.0)])
async def test_callable_with_the_wrong_number_of_values(values: tuple[float, ...]) -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [], name="x")
    async with ax.Session(graph) as session:
        call = session.make_callable(x, ["x:0"])
        with pytest.raises(ax.errors.InvalidArgumentError, match=f"takes 1 values, not {len(values)}"):
            await call(*values)
        assert await call(3.0) == 3.0


@pytest.mark.parametrize(
    "arguments",
    [
        ("nothing:0", []),
        ("y:0", ["nothing:0"]),
        ("y:0", ["a"]),
        ("y:0", ["a:0", "a:0"]),
        ("y:0", [], ["nothing"]),
        (None, []),
        ("y:0", [["a:0"]]),
    ],
)
async def test_callable_is_checked_when_it_is_made(arguments: tuple[Any, ...]) -> None:
    async with ax.Session(matmul_graph()) as session:
        with pytest.raises(ax.errors.InvalidArgumentError):
            session.make_callable(*arguments)


async def test_callable_with_a_single_target() -> None:
    ran: list[int] = []
    with ax.Graph() as graph:
        note = raw_op("Note", lambda: ran.append(1))(name="note")
    async with ax.Session(graph) as session:
        for target in ("note", note, note.op):
            assert await session.make_callable([], targets=target)() == []
    assert ran == [1, 1, 1]


async def test_callable_after_close() -> None:
    async with ax.Session(matmul_graph()) as session:
        call = session.make_callable("y:0")
        await call()
    with pytest.raises(ax.errors.CancelledError, match="Session has been closed"):
        await call()
    with pytest.raises(ax.errors.CancelledError, match="Session has been closed"):
        session.make_callable("y:0")


async def test_feed_of_an_inner_tensor_cuts_its_upstream() -> None:
    ran: list[int] = []
    with ax.Graph() as graph:
        y = ax.identity(raw_op("Note", lambda: ran.append(1), dtype=ax.float32)(name="source"), name="y")
        z = ax.negative(y, name="z")
    async with ax.Session(graph) as session:
        assert await session.run(z, {y: 3.0}) == -3.0
        assert await session.run([y, z], {"y:0": 4.0}) == [4.0, -4.0]
        assert ran == []


async def test_feed_of_one_output_of_several() -> None:
    with ax.Graph() as graph:
        first, second = ax.split(ax.constant([1.0, 2.0]), 2, name="parts")
        total = ax.add(first, second)
    async with ax.Session(graph) as session:
        np.testing.assert_array_equal(await session.run(total, {first: [10.0]}), np.float32([12]), strict=True)
        assert (await session.run([first, second, total], {second: [5.0]})) == [1.0, 5.0, 6.0]


async def test_a_fed_placeholder_releases_who_waits_for_it() -> None:
    ran: list[int] = []
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [], name="x")
        with ax.control_dependencies([x]):
            raw_op("Note", lambda: ran.append(1))(name="note")
    async with ax.Session(graph) as session:
        await session.run([], {x: 1.0}, targets=["note"])
        assert ran == [1]
        with pytest.raises(ax.errors.InvalidArgumentError, match="placeholder tensor 'x'"):
            await session.run([], targets=["note"])


async def test_a_feed_that_nothing_needs_is_no_matter() -> None:
    with ax.Graph() as graph:
        x, y = ax.placeholder(ax.float32, []), ax.constant(1.0)
    async with ax.Session(graph) as session:
        assert await session.run(y, {x: 2.0}) == 1.0


async def test_thousand_runs_at_once() -> None:
    @ax.op
    async def later(x: float) -> float:
        await asyncio.sleep(0)
        return x

    with ax.Graph() as graph:
        x = ax.placeholder(ax.float64, [], name="x")
        y = later(x * 2.0) + 1.0
    async with ax.Session(graph) as session:
        call = session.make_callable(y, [x])
        by_run = asyncio.gather(*[session.run(y, {x: float(i)}) for i in range(1000)])
        by_call = asyncio.gather(*[call(float(i)) for i in range(1000)])
        assert await by_run == await by_call == [2.0 * i + 1.0 for i in range(1000)]


async def test_first_runs_of_many_signatures_at_once() -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [], name="x")
        tensors = [ax.add(x, float(i)) for i in range(50)]
    async with ax.Session(graph) as session:
        results = await asyncio.gather(*[session.run(tensors[i % 50], {x: 1.0}) for i in range(500)])
    assert results == [1.0 + i % 50 for i in range(500)]


async def test_sessions_of_one_graph_share_no_state() -> None:
    with ax.Graph() as graph:
        variable = ax.Variable(1.0, name="v")
        increased = variable.assign_add(1.0, name="increase")
        value = variable.read_value()
    async with ax.Session(graph) as one, ax.Session(graph) as other:
        await asyncio.gather(one.run(variable.initializer), other.run(variable.initializer))
        await one.run(increased)
        assert (await one.run(value), await other.run(value)) == (2.0, 1.0)


async def test_state_is_kept_across_runs() -> None:
    with ax.Graph() as graph:
        variable = ax.Variable([1.0, 2.0], name="v")
        doubled = variable.assign(variable.read_value() * 2.0)
        value = variable.read_value()
    async with ax.Session(graph) as session:
        with pytest.raises(ax.errors.FailedPreconditionError):
            await session.run(value)
        await session.run(variable.initializer)
        for _ in range(3):
            await session.run(doubled)
        np.testing.assert_array_equal(await session.run(value), np.float32([8, 16]), strict=True)


async def test_closed_session_forgets_its_state() -> None:
    with ax.Graph() as graph:
        variable = ax.Variable(1.0, name="v")
        value = variable.read_value()
    async with ax.Session(graph) as session:
        await session.run(variable.initializer)
    async with ax.Session(graph) as session:
        with pytest.raises(ax.errors.FailedPreconditionError):
            await session.run(value)


async def test_what_was_fetched_is_the_callers_own() -> None:
    """Writing to it changes neither a constant nor a variable."""
    with ax.Graph() as graph:
        variable = ax.Variable([1.0, 1.0], name="v")
        value, constant = variable.read_value(), ax.constant([1.0, 1.0])
    async with ax.Session(graph) as session:
        await session.run(variable.initializer)
        for tensor in (value, constant):
            fetched = await session.run(tensor)
            with pytest.raises(ValueError, match="read-only"):
                fetched[0] = 9.0
            np.testing.assert_array_equal(await session.run(tensor), np.float32([1, 1]))


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
async def test_feeds_and_fetches_in_either_order(order: tuple[int, int]) -> None:
    with ax.Graph() as graph:
        sources = [ax.placeholder(ax.float32, [], name=name) for name in "ab"]
        results = [ax.identity(source) for source in sources]
    async with ax.Session(graph) as session:
        fed = {sources[i]: 10.0 + i for i in order}
        for wanted in ([0, 1], [1, 0]):
            assert await session.run([results[i] for i in wanted], fed) == [10.0 + i for i in wanted]
        call = session.make_callable([results[i] for i in order], [sources[i] for i in order])
        assert await call(*[20.0 + i for i in order]) == [20.0 + i for i in order]


async def test_a_tensor_fed_twice() -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [], name="x")
    async with ax.Session(graph) as session:
        with pytest.raises(ax.errors.InvalidArgumentError, match="'x:0' is fed more than once"):
            await session.run(x, {x: 1.0, "x:0": 2.0})
        with pytest.raises(ax.errors.InvalidArgumentError, match="more than once"):
            session.make_callable(x, [x, x])
        assert await session.run(x, {x: 1.0}) == 1.0


async def test_one_tensor_fetched_many_times() -> None:
    ran: list[int] = []
    with ax.Graph() as graph:
        note = raw_op("Note", lambda: len(ran) or ran.append(1) or 7)(name="note")
    async with ax.Session(graph) as session:
        assert await session.run([note, "note:0", {"again": note}, (note, note)]) == [7, 7, {"again": 7}, (7, 7)]
    assert ran == [1]


async def test_assigning_to_a_fed_variable() -> None:
    with ax.Graph() as graph:
        variable = ax.create_op("VariableV2", [], {"dtype": ax.float32, "shape": []}, "v")
        assign = ax.create_op("Assign", [variable, ax.constant(1.0)], {}, "assign")
        value = ax.identity(variable)
    async with ax.Session(graph) as session:
        with pytest.raises(ax.errors.InvalidArgumentError) as caught:
            await session.run(assign, {variable: 2.0})
        assert caught.value.node == "assign"
        assert await session.run(value, {variable: 2.0}) == 2.0
        assert await session.run(assign) == 1.0


async def test_a_step_of_cheap_kernels_never_suspends() -> None:
    async with ax.Session(matmul_graph(), clock=STILL_CLOCK) as session:
        await session.run("y_neg:0")
        with pytest.raises(StopIteration):
            session.run("y_neg:0").send(None)


@pytest.mark.virtual_clock
@pytest.mark.parametrize("timeout", [0.02, 100.0])
async def test_dequeue_that_times_out(timeout: float) -> None:
    with ax.Graph() as graph:
        queue = ax.FIFOQueue(10, [ax.float32], [[]])
        taken = queue.dequeue(name="take")
        enqueue = queue.enqueue(3.0)
    async with ax.Session(graph) as session:
        begin = asyncio.get_running_loop().time()
        with pytest.raises(ax.errors.DeadlineExceededError) as caught:
            await session.run(taken, options=ax.RunOptions(timeout=timeout))
        assert isinstance(caught.value, TimeoutError)
        assert asyncio.get_running_loop().time() - begin == pytest.approx(timeout)
        # The run that gave up takes nothing away from later ones.
        await session.run(enqueue)
        assert await session.run(taken, options=ax.RunOptions(timeout=timeout)) == 3.0


@pytest.mark.virtual_clock
@pytest.mark.parametrize("timeout", [1, 1e300, float("inf")])
async def test_timeout_that_is_not_reached(timeout: float) -> None:
    async with ax.Session(matmul_graph()) as session:
        assert await session.run([], targets=["y_neg"], options=ax.RunOptions(timeout=timeout)) == []
        await asyncio.sleep(10)


@pytest.mark.virtual_clock
async def test_the_callers_own_timeout_stays_a_timeout() -> None:
    """Inside RunOptions.timeout, a TimeoutError of the caller's shorter scope is not taken for the run's."""
    with ax.Graph() as graph:
        taken = ax.FIFOQueue(1, [ax.float32], [[]]).dequeue()
    async with ax.Session(graph) as session:
        with pytest.raises(TimeoutError) as caught:
            async with asyncio.timeout(1):
                await session.run(taken, options=ax.RunOptions(timeout=2))
        assert not isinstance(caught.value, ax.errors.OpError)


@pytest.mark.parametrize("timeout", [0, -1, float("nan"), "soon"])
def test_timeout_that_is_none(timeout: Any) -> None:
    with pytest.raises(ValueError, match="timeout"):
        ax.RunOptions(timeout=timeout)


async def test_closed_session_refuses() -> None:
    session = ax.Session(matmul_graph())
    assert await session.run([], targets=["y_neg"]) == []
    await session.close()
    await session.close()
    for refused in (
        lambda: session.run("y_neg:0"),
        lambda: session.run("y"),
        lambda: session.extend(ax.GraphDef()),
        session.__aenter__,
    ):
        with pytest.raises(ax.errors.CancelledError, match="Session has been closed"):
            await refused()


@pytest.mark.parametrize("closers", [1, 2])
async def test_close_ends_the_steps_under_way(closers: int) -> None:
    with ax.Graph() as graph:
        taken = ax.FIFOQueue(1, [ax.float32], [[]]).dequeue()
    session = ax.Session(graph)
    runs = [await started(session.run(taken)) for _ in range(3)]
    await asyncio.gather(*[session.close() for _ in range(closers)])
    for run in runs:
        with pytest.raises(ax.errors.CancelledError, match="Session has been closed"):
            await run


async def test_close_waits_for_the_clean_up_of_kernels() -> None:
    finished: list[str] = []

    @ax.op
    async def wait(x: float) -> float:
        try:
            await asyncio.Event().wait()
        finally:
            await settle()
            finished.append("kernel")
        return x

    with ax.Graph() as graph:
        y = wait(ax.constant(1.0))
    session = ax.Session(graph)
    run = await started(session.run(y))
    await session.close()
    assert finished == ["kernel"]
    with pytest.raises(ax.errors.CancelledError):
        await run


async def test_close_while_a_signature_is_being_built() -> None:
    ran: list[int] = []
    with ax.Graph() as graph:
        last = ax.constant(1.0)
        for _ in range(5000):
            last = ax.identity(last)
        note = raw_op("Note", lambda x: ran.append(1))(last)
    session = ax.Session(graph)
    run = asyncio.ensure_future(session.run(note))
    await asyncio.sleep(0)
    assert not run.done()
    await session.close()
    with pytest.raises(ax.errors.CancelledError, match="Session has been closed"):
        await run
    assert ran == []


async def test_close_from_a_kernel_of_the_session() -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.object, [])

        @ax.op
        async def close(session: ax.Session) -> None:
            await session.close()

        closing = close(x)
    session = ax.Session(graph)
    with pytest.raises(ax.errors.CancelledError, match="Session has been closed"):
        await session.run(closing, {x: session})
    await session.close()


def neg_of(name: str, source: str) -> ax.GraphDef:
    node = ax.NodeDef(name=name, op="Neg", input=[source], attr={"T": AttrValue(type="DT_FLOAT")})
    return ax.GraphDef(node=[node])


async def test_extend_twice() -> None:
    async with ax.Session(matmul_graph()) as session:
        y = await session.run("y:0")
        await session.extend(neg_of("z", "y_neg"))
        await session.extend(neg_of("w", "z"))
        np.testing.assert_array_equal(await session.run("z:0"), y)
        np.testing.assert_array_equal(await session.run("w:0"), -y)


async def test_extend_while_a_step_runs() -> None:
    with ax.Graph() as graph:
        queue = ax.FIFOQueue(1, [ax.float32], [[]])
        queue.dequeue(name="taken")
        enqueue = queue.enqueue(3.0)
    async with ax.Session(graph) as session:
        run = await started(session.run("taken:0"))
        await session.extend(neg_of("negated", "taken"))
        assert not run.done()
        second = await started(session.run(["negated:0", "taken:0"]))
        await session.run(enqueue)
        await session.run(enqueue)
        assert await run == 3.0
        assert await second == [-3.0, 3.0]


@pytest.mark.parametrize(
    ("graph_def", "message"),
    [
        (neg_of("y", "x"), "already exists"),
        (neg_of("z", "nothing"), "nothing"),
        (ax.GraphDef(node=[ax.NodeDef(name="z", op="Negg")]), "Negg"),
    ],
)
async def test_extend_refuses_a_name_that_is_taken(graph_def: ax.GraphDef, message: str) -> None:
    async with ax.Session(matmul_graph()) as session:
        before = session.graph.num_nodes
        with pytest.raises(ax.errors.OpError, match=message):
            await session.extend(graph_def)
        assert session.graph.num_nodes == before
        assert await session.run([], targets=["y_neg"]) == []


async def test_extend_with_ops_that_reach_outside(tmp_path: Path) -> None:
    (tmp_path / "text").write_bytes(b"read")
    with ax.Graph() as graph:
        ax.raw_ops.ReadFile(filename=bytes(tmp_path / "text"), name="read")
    async with ax.Session(ax.Graph()) as session:
        await session.extend(graph.as_graph_def())
        with pytest.raises(ax.errors.PermissionDeniedError, match="ReadFile"):
            await session.run("read:0")
    async with ax.Session(ax.Graph()) as session:
        await session.extend(graph.as_graph_def(), allowed_ops=["ReadFile"])
        assert await session.run("read:0") == b"read"


async def test_nodes_added_after_the_first_run() -> None:
    graph = matmul_graph()
    async with ax.Session(graph) as session:
        y = await session.run("y:0")
        with graph:
            doubled = graph["y:0"] + graph["y:0"]
        np.testing.assert_array_equal(await session.run(doubled), 2 * y)


BROKEN = {
    "too few": (lambda: (1,), 2),
    "too many": (lambda: (1, 2, 3), 2),
    "none": (lambda: None, 2),
    "no tuple": (lambda: 5, 2),
    "an array": (lambda: np.zeros(2), 2),
    "some for none": (lambda: (1,), 0),
}


@pytest.mark.parametrize("place", ["inline", "worker", "async"])
@pytest.mark.parametrize("case", BROKEN)
async def test_kernel_that_breaks_its_promise(case: str, place: str) -> None:
    function, outputs = BROKEN[case]

    async def awaited() -> Any:
        await asyncio.sleep(0)
        return function()

    kind = {"inline": KernelKind.CHEAP, "worker": KernelKind.EXPENSIVE, "async": KernelKind.ASYNC}[place]
    kernel = awaited if place == "async" else function
    with ax.Graph() as graph:
        raw_op("Darth", kernel, outputs=outputs, kind=kind, is_expensive=place == "worker")(name="darth")
        ax.constant(1.0, name="c")
    async with ax.Session(graph) as session:
        with pytest.raises(ax.errors.InternalError, match=f"has {outputs} outputs") as caught:
            await session.run("darth")
        assert (caught.value.node, caught.value.op) == ("darth", "Darth")
        assert caught.value.user_line is not None
        assert await session.run("c:0") == 1.0


async def test_debug_checks_what_kernels_give() -> None:
    for result, message in ((np.float64(1), "float64, not float32"), (np.zeros(()), "ndarray"), (1.0, "not float32")):
        with ax.Graph() as graph:
            raw_op("Double", lambda result=result: result, dtype=ax.float32)(name="double")
        async with ax.Session(graph, ax.SessionConfig(debug=True)) as session:
            with pytest.raises(ax.errors.InternalError, match=message) as caught:
                await session.run("double:0")
            assert caught.value.node == "double"


async def test_any_schedule_gives_the_same_result() -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [])
        total = ax.add_n([ax.multiply(x, float(i)) for i in range(50)])
    for seed in range(5):
        async with ax.Session(graph, ax.SessionConfig(schedule_seed=seed)) as session:
            assert await session.run(total, {x: 2.0}) == 2.0 * sum(range(50))


async def test_only_so_many_signatures_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("asyncexec.session.executor_cache._MAX_CACHED", 3)
    with ax.Graph() as graph:
        tensors = [ax.constant(float(i)) for i in range(10)]
    async with ax.Session(graph) as session:
        for _ in range(2):
            assert [await session.run(tensor) for tensor in tensors] == [float(i) for i in range(10)]
            assert len(session._cache) == 3


async def test_options_of_the_wrong_type() -> None:
    with ax.Graph() as graph:
        y = ax.constant(1.0) + 1.0
    async with ax.Session(graph) as session:
        options: Any = {"timeout": 1}
        with pytest.raises(ax.errors.InvalidTypeError, match=r"options is dict .*not RunOptions"):
            await session.run(y, options=options)
        assert await session.run(y) == 2
