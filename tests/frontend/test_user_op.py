"""``@ax.op``: what becomes of a function's arguments, annotations and results; timeouts, retries and limits."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import asyncexec as ax
from asyncexec.framework.limiter import Limiter
from asyncexec.frontend.user_op import FIRST_DELAY_S, MAX_DELAY_S
from tests.running import import_all_names, settle


@pytest.fixture(scope="module", autouse=True)
def all_names() -> None:
    import_all_names()


@pytest.fixture
def graph() -> Iterator[ax.Graph]:
    with ax.Graph() as graph:
        ax.placeholder(ax.object, [], name="x")
        ax.placeholder(ax.object, [], name="y")
        yield graph


async def run(fetches: Any, **feeds: Any) -> Any:
    """One run in a session of its own; feeds by the name of the placeholder."""
    graph = graph_of(fetches)
    async with ax.Session(graph) as session:
        return await session.run(fetches, {f"{name}:0": value for name, value in feeds.items()})


def graph_of(fetches: Any) -> ax.Graph:
    first = fetches[0] if isinstance(fetches, list) else fetches
    return first.graph


# --- a function that is also an op ----------------------------------------------------------------------------------


async def test_with_plain_values_it_is_the_function() -> None:
    @ax.op
    async def later(x: int) -> int:
        return x + 1

    @ax.op(expensive=True)
    def twice(x: int, *, by: int = 2) -> int:
        """Doc of twice."""
        return x * by

    assert await later(1) == 2
    assert twice(2) == 4
    assert twice(2, by=5) == 10
    assert twice.__doc__ == "Doc of twice."
    assert twice.__name__ == "twice"
    assert "twice" in repr(twice)
    assert "int64" in repr(twice)
    assert "nothing" in repr(ax.op(empty))


def empty(x: Any) -> None:
    return None


def test_with_tensors_it_adds_a_node(graph: ax.Graph) -> None:
    @ax.op
    def twice(x: Any) -> float:
        return 2 * x  # type: ignore[no-any-return]

    first, second = twice(graph["x:0"]), twice(graph["x:0"], name="mine")
    assert (first.op.name, second.op.name) == ("twice", "mine")
    assert first.op.op == "twice"
    assert first.dtype is ax.float64
    assert first.shape.rank is None
    assert __file__ in (first.op.user_line or "")


@pytest.mark.parametrize("call", ["positional", "named", "default", "plain value", "list"])
async def test_arguments(graph: ax.Graph, call: str) -> None:
    seen: list[Any] = []

    @ax.op
    def note(a: Any, b: Any = "default", *rest: Any, c: Any = None) -> None:
        seen.append((a, b, rest, c))

    x, y = graph["x:0"], graph["y:0"]
    options = {"deep": [1, {2}]}
    node, expected = {
        "positional": lambda: (note(x, y, x, y), (1, 2, (1, 2), None)),
        "named": lambda: (note(c=x, b=y, a=options), (options, 2, (), 1)),
        "default": lambda: (note(x), (1, "default", (), None)),
        "plain value": lambda: (note(x, options, None), (1, options, (None,), None)),
        "list": lambda: (note(x, c="text"), (1, "default", (), "text")),
    }[call]()
    await run(node, x=1, y=2)
    assert seen == [expected]


async def test_plain_arguments_reach_the_function_as_they_are(graph: ax.Graph) -> None:
    marker = object()

    @ax.op
    def same(x: Any, given: Any) -> Any:
        return given is marker

    assert await run(same(graph["x:0"], marker), x=1) is True


async def test_a_list_of_tensors_is_stacked(graph: ax.Graph) -> None:
    @ax.op
    def shape_of(values: Any) -> Any:
        return values.shape

    with graph:
        stacked = shape_of([ax.constant(1.0), ax.constant(2.0)])
    assert await run(stacked) == (2,)


@pytest.mark.parametrize(
    "call",
    [
        lambda op, x: op(x, x, x),
        lambda op, x: op(x, z=1),
        lambda op, x: op(b=x),
        lambda op, x: op(x, a=x),
    ],
)
def test_arguments_that_do_not_fit(graph: ax.Graph, call: Any) -> None:
    @ax.op
    def two(a: Any, b: Any = None) -> None:
        return None

    with pytest.raises(ax.errors.InvalidArgumentError, match="op 'two'"):
        call(two, graph["x:0"])


def test_tensors_of_two_graphs(graph: ax.Graph) -> None:
    @ax.op
    def two(a: Any, b: Any) -> None:
        return None

    x = graph["x:0"]
    with ax.Graph():
        foreign = ax.constant(1.0)
    with pytest.raises(ax.errors.InvalidArgumentError, match="graph"):
        two(x, foreign)


async def test_text_parameters_get_str(graph: ax.Graph) -> None:
    seen: list[Any] = []

    @ax.op
    def note(a: str, b: bytes, *, c: str, d: Any) -> None:
        seen.append((a, b, c, d))

    with graph:
        text = ax.constant("ü")
        node = note(text, text, c=text, d=text)
    await run(node)
    assert seen == [("ü", "ü".encode(), "ü", "ü".encode())]


# --- results --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("hint", "dtypes"),
    [
        (int, ["int64"]),
        (float, ["float64"]),
        (bool, ["bool"]),
        (complex, ["complex128"]),
        (str, ["string"]),
        (bytes, ["string"]),
        (np.float32, ["float32"]),
        (np.uint8, ["uint8"]),
        (None, []),
        (type(None), []),
        (tuple[int, str], ["int64", "string"]),
        (tuple[int, ...], ["object"]),
        (list[int], ["object"]),
        (dict, ["object"]),
        (np.ndarray, ["object"]),
        (Any, ["object"]),
        ("Unknown", ["object"]),
    ],
    ids=str,
)
def test_dtypes_by_annotation(graph: ax.Graph, hint: Any, dtypes: list[str]) -> None:
    def function(x: Any) -> None:
        return None

    function.__annotations__["return"] = hint
    result = ax.op(function)(graph["x:0"])
    node = result if isinstance(result, ax.Operation) else (result[0] if isinstance(result, list) else result).op
    assert [tensor.dtype.name for tensor in node.outputs] == dtypes


@pytest.mark.parametrize(
    ("dtype", "result", "expected"),
    [
        (ax.float32, 1.5, np.float32(1.5)),
        (ax.float32, 1, np.float32(1)),
        (ax.float32, np.float32(2), np.float32(2)),
        (ax.float32, [1.0, 2.0], np.float32([1, 2])),
        (ax.float32, np.zeros((), np.float32), np.float32(0)),
        (ax.float64, 1.5, np.float64(1.5)),
        (ax.int64, 2**40, np.int64(2**40)),
        (ax.uint8, 255, np.uint8(255)),
        (ax.bool, True, np.True_),
        (ax.complex64, 1j, np.complex64(1j)),
        (ax.string, "ü", "ü".encode()),
        (ax.string, b"\xff", b"\xff"),
    ],
)
async def test_results_are_made_of_the_dtype(graph: ax.Graph, dtype: ax.DType, result: Any, expected: Any) -> None:
    value = await run(ax.op(outputs=[dtype])(lambda x: result)(graph["x:0"], name="n"), x=1)
    assert type(value) is type(expected)
    np.testing.assert_array_equal(value, expected)


@pytest.mark.parametrize(
    ("outputs", "result"),
    [
        ([ax.float32], np.float64(1)),
        ([ax.float32], np.zeros(2)),
        ([ax.float32], "text"),
        ([ax.float32], None),
        ([ax.float32], [[1.0], [2.0, 3.0]]),
        ([ax.int64], 2**63),
        ([ax.int64], 1.5),
        ([ax.uint8], 256),
        ([ax.bool], 1),
        ([ax.string], 1),
        ([ax.float32, ax.float32], 1.0),
        ([ax.float32, ax.float32], (1.0,)),
        ([ax.float32, ax.float32], (1.0, 2.0, 3.0)),
        ([ax.float32, ax.float32], (1.0, "text")),
        ([ax.object, ax.object], None),
    ],
)
@pytest.mark.parametrize("is_async", [False, True])
async def test_results_that_break_the_promise(graph: ax.Graph, outputs: Any, result: Any, is_async: bool) -> None:
    async def later(x: Any) -> Any:
        await asyncio.sleep(0)
        return result

    made = ax.op(name="Promise", outputs=outputs)(later if is_async else lambda x: result)(graph["x:0"], name="node")
    with pytest.raises(ax.errors.InternalError, match="op 'Promise'") as caught:
        await run(made, x=1)
    assert (caught.value.node, caught.value.op) == ("node", "Promise")


async def test_several_results(graph: ax.Graph) -> None:
    @ax.op
    async def both(x: Any) -> tuple[int, str]:
        return x, str(x)

    number, text = both(graph["x:0"])
    assert await run([number, text], x=3) == [3, b"3"]


async def test_objects_pass_untouched(graph: ax.Graph) -> None:
    marker = {"any": object()}

    @ax.op
    def same(x: Any) -> Any:
        return x

    assert await run(same(same(graph["x:0"])), x=marker) is marker


async def test_declared_shapes(graph: ax.Graph) -> None:
    @ax.op(outputs=[ax.float32, ax.float32], shapes=[[2], None])
    def two(x: Any) -> Any:
        return [1.0, 2.0], 3.0

    first, second = two(graph["x:0"])
    assert (first.shape.as_list(), second.shape.rank) == ([2], None)
    with pytest.raises(ax.errors.InvalidArgumentError, match="2 outputs and 1 shapes"):
        ax.op(name="Shapes", outputs=[ax.float32] * 2, shapes=[[2]])(empty)


async def test_plain_function_that_gives_a_coroutine(graph: ax.Graph) -> None:
    async def later() -> int:
        return 1

    node = ax.op(name="Forgot")(lambda x: later())(graph["x:0"])
    with pytest.raises(ax.errors.InternalError, match="returned a coroutine") as caught:
        await run(node, x=1)
    assert "async def" in (caught.value.hint or "")


def test_lambda_gets_a_name(graph: ax.Graph) -> None:
    assert ax.op(lambda x: x)(graph["x:0"]).op.op == "lambda"


async def test_op_is_defined_again(graph: ax.Graph) -> None:
    """As in a notebook: nodes made before keep the former function."""
    first = ax.op(name="Again")(lambda x: "first")(graph["x:0"])
    second = ax.op(name="Again")(lambda x: "second")(graph["x:0"])
    assert await run([first, second], x=1) == ["first", "second"]


async def test_expensive_runs_on_a_worker(graph: ax.Graph) -> None:
    here = threading.get_ident()
    for expensive in (True, False):
        node = ax.op(name="OnThread", expensive=expensive)(lambda x: threading.get_ident())(graph["x:0"])
        assert (await run(node, x=1) == here) != expensive


async def test_async_op_runs_in_the_callers_loop(graph: ax.Graph) -> None:
    @ax.op
    async def loop_of(x: Any) -> Any:
        return asyncio.get_running_loop()

    assert await run(loop_of(graph["x:0"]), x=1) is asyncio.get_running_loop()


def test_a_strangers_graph_cannot_call_it(graph: ax.Graph) -> None:
    @ax.op
    def private(x: Any) -> None:
        return None

    private(graph["x:0"])
    graph_def = graph.as_graph_def()
    with ax.Graph(), pytest.raises(ax.errors.OpError, match="private"):
        ax.import_graph_def(graph_def)


# --- timeouts, retries, limits --------------------------------------------------------------------------------------


def now() -> float:
    return asyncio.get_running_loop().time()


@pytest.mark.virtual_clock
@pytest.mark.parametrize("where", ["op", "node", "options"])
async def test_timeout(graph: ax.Graph, where: str) -> None:
    async def slow(x: Any) -> None:
        await asyncio.sleep(x)

    op = ax.op(timeout=5)(slow) if where == "op" else ax.op(slow)
    x = graph["x:0"]
    made = {
        "op": lambda: op(x, name="n"),
        "node": lambda: op(x, name="n", timeout=5),
        "options": lambda: op.options(timeout=5, name="n")(x),
    }
    node = made[where]()
    await run(node, x=4)
    begin = now()
    with pytest.raises(ax.errors.DeadlineExceededError, match="timeout of 5 s") as caught:
        await run(node, x=6)
    assert now() - begin == 5
    assert caught.value.node == "n"
    assert isinstance(caught.value.__cause__, TimeoutError)


@pytest.mark.virtual_clock
async def test_timeout_of_a_node_goes_before_that_of_the_op(graph: ax.Graph) -> None:
    @ax.op(timeout=1)
    async def slow(x: Any) -> None:
        await asyncio.sleep(x)

    await run(slow(graph["x:0"], timeout=10), x=9)


@pytest.mark.virtual_clock
async def test_timeout_inside_the_op_is_its_own(graph: ax.Graph) -> None:
    @ax.op(timeout=10)
    async def slow(x: Any) -> None:
        async with asyncio.timeout(1):
            await asyncio.sleep(x)

    with pytest.raises(ax.errors.DeadlineExceededError) as caught:
        await run(slow(graph["x:0"]), x=5)
    assert "timeout of 10 s" not in str(caught.value)


class Flaky:
    """Fails so many times, and notes when it was called."""

    def __init__(self, failures: int, error: type[BaseException] = ConnectionError) -> None:
        self.times: list[float] = []

        @ax.op(name="Flaky")
        async def flaky(x: Any) -> Any:
            self.times.append(now())
            await asyncio.sleep(0)
            if len(self.times) <= failures:
                raise error(f"failure {len(self.times)}")
            return x

        self.op = flaky

    @property
    def delays(self) -> list[float]:
        return [after - before for before, after in zip(self.times, self.times[1:], strict=False)]


@pytest.mark.virtual_clock
async def test_retries_with_back_off(graph: ax.Graph) -> None:
    flaky = Flaky(9)
    assert await run(flaky.op(graph["x:0"], retries=9), x=7) == 7
    assert len(flaky.times) == 10
    for attempt, delay in enumerate(flaky.delays):
        longest = min(MAX_DELAY_S, FIRST_DELAY_S * 2**attempt)
        assert longest / 2 - 1e-9 <= delay <= longest + 1e-9


@pytest.mark.virtual_clock
async def test_retries_that_do_not_suffice(graph: ax.Graph) -> None:
    flaky = Flaky(5)
    with pytest.raises(ax.errors.OpError, match="failure 3"):
        await run(flaky.op(graph["x:0"], retries=2), x=7)
    assert len(flaky.times) == 3


@pytest.mark.virtual_clock
async def test_cancellation_is_not_tried_again(graph: ax.Graph) -> None:
    flaky = Flaky(5, asyncio.CancelledError)
    with pytest.raises(ax.errors.CancelledError):
        await run(flaky.op(graph["x:0"], retries=3), x=7)
    assert len(flaky.times) == 1


@pytest.mark.virtual_clock
async def test_an_attempt_that_times_out_is_tried_again(graph: ax.Graph) -> None:
    attempts: list[float] = []

    @ax.op(timeout=1, retries=3)
    async def slow_at_first(x: Any) -> Any:
        attempts.append(now())
        await asyncio.sleep(10 if len(attempts) < 3 else 0)
        return x

    assert await run(slow_at_first(graph["x:0"]), x=7) == 7
    assert len(attempts) == 3
    assert all(delay >= 1 for delay in (attempts[1] - attempts[0], attempts[2] - attempts[1]))


@pytest.mark.virtual_clock
async def test_run_timeout_ends_retries(graph: ax.Graph) -> None:
    flaky = Flaky(1000)
    node = flaky.op(graph["x:0"], retries=1000)
    async with ax.Session(graph) as session:
        with pytest.raises(ax.errors.DeadlineExceededError, match="the run took more"):
            await session.run(node, {"x:0": 1}, options=ax.RunOptions(timeout=60))
    assert 10 < len(flaky.times) < 100


class Meter:
    """How many calls are under way at once, at most."""

    def __init__(self) -> None:
        self.most = self._count = 0

        @ax.op(name="Metered")
        async def metered(x: Any) -> None:
            self._count += 1
            self.most = max(self.most, self._count)
            await asyncio.sleep(1)
            self._count -= 1

        self.op = metered


@pytest.mark.virtual_clock
@pytest.mark.parametrize("limit", [1, 3, 100])
async def test_limiter(graph: ax.Graph, limit: int) -> None:
    meter = Meter()
    shared = Limiter(limit)
    nodes = [meter.op(graph["x:0"], limiter=shared) for _ in range(12)]
    begin = now()
    await run(nodes, x=1)
    assert meter.most == min(limit, 12)
    assert now() - begin == -(-12 // limit)


@pytest.mark.virtual_clock
async def test_limiter_is_shared_by_ops_nodes_steps_and_sessions(graph: ax.Graph) -> None:
    meter = Meter()
    ax.Limiter(2, name="tests.shared")
    nodes = [meter.op.options(limiter="tests.shared")(graph["x:0"]) for _ in range(4)]
    async with ax.Session(graph) as one, ax.Session(graph) as other:
        await asyncio.gather(*[session.run(nodes, {"x:0": 1}) for session in (one, one, other)])
    assert meter.most == 2


async def test_limiter_of_an_op(graph: ax.Graph) -> None:
    @ax.op(limiter=1)
    async def alone(x: Any) -> int:
        running.append(1)
        count = len(running)
        await settle()
        running.pop()
        return count

    running: list[int] = []
    assert await run([alone(graph["x:0"]) for _ in range(5)], x=1) == [1] * 5


@pytest.mark.virtual_clock
async def test_a_slot_is_given_back(graph: ax.Graph) -> None:
    """By who fails, who is cancelled while running and who is cancelled while waiting."""
    limiter = ax.Limiter(1)

    @ax.op(limiter=limiter)
    async def act(what: Any) -> Any:
        if what == "fail":
            raise ValueError(what)
        await asyncio.sleep(1 if what == "sleep" else 0)
        return what

    nodes = [act(graph["x:0"]), act(graph["x:0"])]
    async with ax.Session(graph) as session:
        with pytest.raises(ax.errors.InvalidArgumentError):
            await session.run(nodes, {"x:0": "fail"})
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(session.run(nodes, {"x:0": "sleep"}), 0.5)
        assert not limiter.slots().locked()
        assert await session.run(nodes, {"x:0": "ok"}) == ["ok", "ok"]


@pytest.mark.virtual_clock
async def test_a_slot_is_free_during_back_off(graph: ax.Graph) -> None:
    limiter = ax.Limiter(1)
    flaky = Flaky(1)
    node = flaky.op(graph["x:0"], retries=1, limiter=limiter)
    async with ax.Session(graph) as session:
        running = asyncio.ensure_future(session.run(node, {"x:0": 1}))
        await asyncio.sleep(FIRST_DELAY_S / 4)
        assert len(flaky.times) == 1
        assert not limiter.slots().locked()
        await running


def test_limiter_in_two_loops(graph: ax.Graph) -> None:
    meter = Meter()
    node = meter.op(graph["x:0"], limiter=ax.Limiter(1, name="tests.loops"))

    async def main() -> None:
        async with ax.Session(graph) as session:
            await asyncio.gather(session.run(node, {"x:0": 1}), session.run(node, {"x:0": 1}))

    with asyncio.Runner() as first, asyncio.Runner() as second:
        first.run(short(main))
        second.run(short(main))


async def short(main: Any) -> None:
    """Run *main*, cut short: that its waiters are of the right loop shows at once."""
    task = asyncio.ensure_future(main())
    await settle(20)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"timeout": 0}, "timeout"),
        ({"timeout": -1}, "timeout"),
        ({"timeout": float("nan")}, "timeout"),
        ({"retries": -1}, "retries"),
        ({"limiter": 0}, "limiter"),
        ({"limiter": "tests.unknown"}, "tests.unknown"),
    ],
)
def test_options_that_cannot_be(graph: ax.Graph, options: dict[str, Any], message: str) -> None:
    async def later(x: Any) -> None:
        return None

    with pytest.raises(ax.errors.InvalidArgumentError, match=message):
        ax.op(**options)(later)
    with pytest.raises(ax.errors.InvalidArgumentError, match=message):
        ax.op(later)(graph["x:0"], **options)


@pytest.mark.parametrize("options", [{"timeout": 1}, {"retries": 1}, {"limiter": 1}])
def test_options_are_for_async_functions(graph: ax.Graph, options: dict[str, Any]) -> None:
    with pytest.raises(ax.errors.InvalidArgumentError, match="async def"):
        ax.op(**options)(empty)
    with pytest.raises(ax.errors.InvalidArgumentError, match="async def"):
        ax.op(empty)(graph["x:0"], **options)


async def test_parameters_named_like_options_are_the_functions_own(graph: ax.Graph) -> None:
    @ax.op
    async def call(x: Any, timeout: int, name: str = "") -> Any:
        return x, timeout, name

    node = call(graph["x:0"], timeout=5, name="mine")
    assert await run(node, x=1) == (1, 5, "mine")
    assert node.op.name == "call"
    assert call.options(name="node")(graph["x:0"], timeout=5).op.name == "node"


def test_limiters_by_name() -> None:
    first = ax.Limiter(3, name="tests.name")
    assert Limiter.get("tests.name").total == 3
    assert Limiter.get(first) is first
    assert Limiter.get(5).total == 5
    assert ax.Limiter(3, name="tests.name").total == 3
    with pytest.raises(ax.errors.InvalidArgumentError, match=r"already a limiter 'tests\.name', of 3"):
        ax.Limiter(4, name="tests.name")
    assert "tests.name" in repr(first)
