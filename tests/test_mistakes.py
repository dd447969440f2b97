# ruff: noqa: E501 - messages are shown as they are
"""Mistakes that users make, each with what they are told: what is wrong, where, and what to write.

The docstring of each is the class of its error and the message.  Behind ``made at`` stands the line of the user's that
it names.
"""

from __future__ import annotations

import asyncio
import linecache
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import asyncexec as ax

pytestmark = pytest.mark.virtual_clock

MISTAKES: list[Callable[[], Awaitable[object]]] = []


def mistake(function: Callable[[], Awaitable[object]]) -> Callable[[], Awaitable[object]]:
    MISTAKES.append(function)
    return function


def graph_of(build: Callable[[], Any]) -> tuple[ax.Graph, Any]:
    with ax.Graph() as graph:
        return graph, build()


async def run(build: Callable[[], Any], feeds: Any = None, **kw: Any) -> Any:
    graph, fetch = graph_of(build)
    config = kw.pop("config", None)
    async with ax.Session(graph, config) as session:
        return await session.run(fetch, feeds, **kw)


def x32(name: str = "x", shape: tuple[int | None, ...] = ()) -> ax.Tensor:
    return ax.placeholder(ax.float32, list(shape), name=name)


@mistake
async def tensor_of_another_dtype() -> None:
    """InvalidTypeError: 'Const:0' is of int32, not float32
    [[{{node Const}} = Const]]
    made at await run(lambda: x32() + ax.constant(1, ax.int32))
    hint: put ax.cast(x, ax.float32) around it
    """
    await run(lambda: x32() + ax.constant(1, ax.int32))


@mistake
async def shapes_that_do_not_fit() -> None:
    """InvalidArgumentError: Dimensions must be equal, but are 3 and 2
    [[{{node MatMul}} = MatMul]]
    made at await run(lambda: ax.matmul(x32("a", (2, 3)), x32("b", (2, 3))))
    hint: its inputs are of shapes [2,3], [2,3]
    """
    await run(lambda: ax.matmul(x32("a", (2, 3)), x32("b", (2, 3))))


@mistake
async def placeholder_not_fed() -> None:
    """InvalidArgumentError: You must feed a value for placeholder tensor 'x' with dtype float32
    [[{{node x}} = Placeholder]]
    made at return ax.placeholder(ax.float32, list(shape), name=name)
    hint: it is needed by way of x -> Mul
    """
    await run(lambda: x32() * 2.0)


@mistake
async def feed_of_another_shape() -> None:
    """InvalidArgumentError: cannot feed a value of shape [3] for 'x:0', which has the shape [2]
    [[{{node x}} = Placeholder]]
    made at return ax.placeholder(ax.float32, list(shape), name=name)
    """
    await run(lambda: x32("x", (2,)) * 2.0, {"x:0": [1.0, 2.0, 3.0]})


@mistake
async def feed_of_another_dtype() -> None:
    """InvalidTypeError: cannot feed 'x:0': str 'one' cannot be made a tensor of float32
    [[{{node x}} = Placeholder]]
    made at return ax.placeholder(ax.float32, list(shape), name=name)
    """
    await run(lambda: x32() * 2.0, {"x:0": "one"})


@mistake
async def feed_by_the_name_of_an_op() -> None:
    """InvalidTypeError: feed key 'x' names an operation, not a tensor
    hint: feed 'x:0'
    """
    await run(lambda: x32() * 2.0, {"x": 1.0})


@mistake
async def fetch_that_is_misspelt() -> None:
    """InvalidArgumentError: fetch 'scroe:0': there is no operation 'scroe' in the graph
    hint: did you mean 'score'?
    """
    graph, _ = graph_of(lambda: ax.multiply(x32(), 2.0, name="score"))
    async with ax.Session(graph) as s:
        await s.run("scroe:0", {"x:0": 1.0})


@mistake
async def fetch_of_another_graph() -> None:
    """InvalidArgumentError: fetch 'Mul:0' is not of this session's graph
    hint: make a session of its own graph
    """
    graph, _ = graph_of(lambda: x32())
    _, other = graph_of(lambda: x32("y") * 2)
    async with ax.Session(graph) as s:
        await s.run(other)


@mistake
async def fetch_of_none() -> None:
    """InvalidTypeError: fetches[0] is NoneType None, which cannot be fetched
    hint: fetch a tensor, an operation, a name, or a list, tuple, dict or dataclass of them
    """
    graph, _ = graph_of(lambda: x32())
    async with ax.Session(graph) as s:
        await s.run([None])


@mistake
async def op_that_raises() -> None:
    """InvalidArgumentError[ZeroDivisionError]: ZeroDivisionError: float division by zero
    [[{{node divide}} = divide]]
    made at await run(lambda: divide(ax.constant(1.0, ax.float64), ax.constant(0.0, ax.float64)))
    """

    @ax.op
    def divide(a: float, b: float) -> float:
        return a / b

    await run(lambda: divide(ax.constant(1.0, ax.float64), ax.constant(0.0, ax.float64)))


@mistake
async def op_that_gives_another_dtype() -> None:
    """InternalError: op 'count' gave what is not int64: float 0.5 cannot be made int64 without loss
    [[{{node count}} = count]]
    made at await run(lambda: count(ax.constant(1.0, ax.float64)))
    hint: declare what it gives: @ax.op(outputs=[...]), or annotate it: -> float, say
    """

    @ax.op
    def count(x: float) -> int:
        return x / 2

    await run(lambda: count(ax.constant(1.0, ax.float64)))


@mistake
async def op_without_an_annotation_meets_arithmetic() -> None:
    """InvalidTypeError: 'load:0' is an object, but argument 'x' of AddV2 takes float32, float64, int32, uint8, int16, int8, complex64, int64, bfloat16, uint16, complex128, float16, uint32, uint64
    [[{{node load}} = load]]
    made at await run(lambda: load(ax.constant(1.0)) + 1.0)
    hint: say what op 'load' gives: @ax.op(outputs=[ax.float32]), or annotate it: -> float
    """

    @ax.op
    def load(x):
        return x

    await run(lambda: load(ax.constant(1.0)) + 1.0)


@mistake
async def cast_of_what_an_op_without_an_annotation_gives() -> None:
    """InvalidTypeError: cannot cast 'parsed_anyhow:0', whose values are Python objects, to int64
    hint: say what op 'parsed_anyhow' gives: @ax.op(outputs=[ax.int64]), or annotate it: -> int, or convert it in an op
    """

    @ax.op
    def parsed_anyhow(x: float):  # type: ignore[no-untyped-def]
        return int(x)

    def build() -> ax.Tensor:
        return ax.cast(parsed_anyhow(x32()), ax.int64)

    await run(build, {"x:0": 1.0})


@mistake
async def ordered_op_in_a_branch() -> None:
    """InvalidArgumentError: 'stored_in_turn', whose op is ordered=True, belongs to a graph at large, not to a function, branch or loop in it
    made at ax.cond(x > 0.0, lambda: stored_in_turn(x), ax.no_op)
    hint: call it outside
    """

    @ax.op(ordered=True)
    async def stored_in_turn(x: float) -> None: ...

    def build() -> ax.Operation:
        x = x32()
        ax.cond(x > 0.0, lambda: stored_in_turn(x), ax.no_op)
        return ax.no_op()

    await run(build, {"x:0": 1.0})


@mistake
async def op_with_too_many_arguments() -> None:
    """InvalidArgumentError: op 'load': too many positional arguments
    hint: it is load(x: float) -> float
    """

    @ax.op
    def load(x: float) -> float:
        return x

    graph_of(lambda: load(ax.constant(1.0), 2, 3))


@mistake
async def op_that_forgets_to_await() -> None:
    """InternalError: op 'load' returned a coroutine
    [[{{node load}} = load]]
    made at await run(lambda: load(ax.constant(1.0, ax.float64)))
    hint: define it with 'async def', so that it is awaited
    """

    async def get():
        return 1

    @ax.op
    def load(x: float) -> float:
        return get()

    await run(lambda: load(ax.constant(1.0, ax.float64)))


@mistake
async def op_that_changes_its_input() -> None:
    """InvalidArgumentError: ValueError: assignment destination is read-only
    [[{{node change}} = change]]
    made at await run(lambda: change(x32("x", (2,))), {"x:0": np.zeros(2, np.float32)})
    hint: others may see what an op gets: change a copy of it, x = x.copy()
    """

    @ax.op(outputs=[ax.float32])
    def change(a: np.ndarray):
        a[0] = 1
        return a

    await run(lambda: change(x32("x", (2,))), {"x:0": np.zeros(2, np.float32)})


@mistake
async def deadline() -> None:
    """DeadlineExceededError: the run took more than its timeout of 0.3 s
    'ask' (ask) was awaited for T s
    """

    @ax.op
    async def ask(x: float) -> float:
        await asyncio.sleep(3600)
        return x

    await run(lambda: ask(ax.constant(1.0, ax.float64)), options=ax.RunOptions(timeout=0.3))


@mistake
async def timeout_of_an_op() -> None:
    """DeadlineExceededError: the op took more than its timeout of 0.01 s
    [[{{node ask}} = ask]]
    made at await run(lambda: ask(ax.constant(1.0, ax.float64)))
    """

    @ax.op(timeout=0.01)
    async def ask(x: float) -> float:
        await asyncio.sleep(3600)
        return x

    await run(lambda: ask(ax.constant(1.0, ax.float64)))


@mistake
async def unknown_executor() -> None:
    """NotFoundError: no executor factory is registered for the executor type 'FAST'; those that are registered: BREADTH_FIRST, COMPILED, DEFAULT, TAGGED_TOKEN"""
    await run(lambda: ax.constant(1.0), config=ax.SessionConfig(executor_type="FAST"))


@mistake
async def device_that_is_not_there() -> None:
    """InvalidArgumentError: Cannot assign a device for operation Identity: {{node Identity}} was explicitly assigned to /device:GPU:0 but available devices are [ /job:localhost/replica:0/task:0/device:CPU:0 ]. Make sure the device specification refers to a valid device. The requested device appears to be a GPU, but there is none here.
    [[{{node Identity}} = Identity]]
    made at return ax.identity(x32())
    hint: correct the device, raise SessionConfig(device_count=...), or set allow_soft_placement=True
    """

    def build():
        with ax.device("/gpu:0"):
            return ax.identity(x32())

    await run(build, {"x:0": 1.0})


@mistake
async def loop_with_another_dtype() -> None:
    """InvalidTypeError: loop_vars[0] of while_loop 'while' is int32 at first, but float32 after an iteration
    [[{{node while/Cast}} = Cast]]
    made at graph_of(lambda: ax.while_loop(lambda i: i < 3, lambda i: ax.cast(i, ax.float32), [ax.constant(0)]))
    hint: put ax.cast(x, ax.int32) around what body returns
    """
    graph_of(lambda: ax.while_loop(lambda i: i < 3, lambda i: ax.cast(i, ax.float32), [ax.constant(0)]))


@mistake
async def loop_with_another_number_of_values() -> None:
    """InvalidTypeError: while_loop 'while': the result of body is a single value (Tensor), but the nest of loop_vars is a list of 2
    made at graph_of(lambda: ax.while_loop(lambda i, j: i < 3, lambda i, j: i + 1, [ax.constant(0), ax.constant(1)]))
    """
    graph_of(lambda: ax.while_loop(lambda i, j: i < 3, lambda i, j: i + 1, [ax.constant(0), ax.constant(1)]))


@mistake
async def branches_of_different_structure() -> None:
    """InvalidTypeError: cond 'cond': the result of false_fn is a tuple of 2, but that of true_fn is a single value (Tensor)
    made at graph_of(lambda: ax.cond(ax.constant(True), lambda: ax.constant(1.0), lambda: (ax.constant(1.0), ax.constant(2.0))))
    """
    graph_of(lambda: ax.cond(ax.constant(True), lambda: ax.constant(1.0), lambda: (ax.constant(1.0), ax.constant(2.0))))


@mistake
async def condition_in_python() -> None:
    """InvalidTypeError: 'Greater:0' has no value while the graph is built, so it cannot decide an if or a while
    [[{{node Greater}} = Greater]]
    made at if x32() > 0:
    hint: use ax.cond or ax.where; to ask whether two names are one tensor, 'a is b'
    """

    def build():
        if x32() > 0:
            return ax.constant(1)
        return ax.constant(0)

    graph_of(build)


@mistake
async def iterating_a_tensor() -> None:
    """InvalidTypeError: 'x:0' cannot be iterated over while the graph is built
    [[{{node x}} = Placeholder]]
    made at return ax.placeholder(ax.float32, list(shape), name=name)
    hint: use ax.unstack
    """
    graph_of(lambda: list(x32("x", (None,))))


@mistake
async def batch_of_a_scalar() -> None:
    """InvalidArgumentError: 'x:0', an argument of function 'model', is a scalar: there are no rows to batch
    [[{{node x}} = Placeholder]]
    made at return ax.placeholder(ax.float32, list(shape), name=name)
    hint: make it one row: ax.expand_dims(x, 0)
    """

    @ax.batch()
    def model(x):
        return x

    graph_of(lambda: model(x32()))


@mistake
async def session_that_is_closed() -> None:
    """CancelledError: Session has been closed.
    hint: call it inside of the session's 'async with' block
    """
    graph, y = graph_of(lambda: ax.constant(1.0))
    s = ax.Session(graph)
    async with s:
        pass
    await s.run(y)


@mistake
async def blocking_session_that_is_not_open() -> None:
    """FailedPreconditionError: this session is not open
    hint: use it in a 'with' block
    """
    graph, _ = graph_of(lambda: x32())
    ax.BlockingSession(graph).run("x:0")


@mistake
async def stream_item_that_feeds_something_else() -> None:
    """InvalidArgumentError: item 1: it feeds 'x:0', but the items before feed 'x:0', 'z:0'
    hint: all items of a stream feed the same tensors, under the same keys
    """
    graph, y = graph_of(lambda: x32() + x32("z"))
    async with ax.Session(graph) as s:
        async for _ in s.map(y, [{"x:0": 1.0, "z:0": 2.0}, {"x:0": 1.0}]):
            pass


@mistake
async def retries_below_zero() -> None:
    """InvalidArgumentError: op 'lambda': retries is a number of 0 or more, or an ax.Retry, not -1"""
    ax.op(retries=-1)(lambda x: x)


@mistake
async def limiter_that_is_not_there() -> None:
    """InvalidArgumentError: op 'lambda': there is no limiter 'api-that-is-not-there'
    hint: make one: ax.Limiter(32, name=...)
    """
    ax.op(limiter="api-that-is-not-there")(lambda x: x)


@mistake
async def graph_of_a_stranger_that_calls_an_op_of_yours() -> None:
    """PermissionDeniedError: what is run needs an op that reaches outside of the graph (files, foreign code), which is off in an imported graph: delete ('delete')
    [[{{node delete}} = delete]]
    made at ax.import_graph_def(graph.as_graph_def())
    hint: if you trust this graph: import_graph_def(..., allowed_ops=['delete']), or load_model with these
    """

    @ax.op
    def delete(path: str) -> str:
        return path

    with ax.Graph() as graph:
        delete(ax.constant("/"))
    with ax.Graph() as imported:
        ax.import_graph_def(graph.as_graph_def())
    async with ax.Session(imported) as session:
        await session.run("delete:0")


@mistake
async def op_that_does_not_exist() -> None:
    """NotFoundError: Op type not registered 'MatMull'
    [[{{node f}} = MatMull]]
    hint: did you mean MatMul?
    """
    with ax.Graph():
        ax.import_graph_def(ax.GraphDef.model_validate({"node": [{"name": "f", "op": "MatMull"}]}))


@mistake
async def trace_that_was_not_asked_for() -> None:
    """FailedPreconditionError: there are no step stats to save
    hint: trace the run: options=ax.RunOptions(trace=True)
    """
    ax.RunMetadata().save_trace("trace.json")


@mistake
async def asked_outside_of_an_op() -> None:
    """FailedPreconditionError: no op calls the running code
    hint: ask in a function that is an op: @ax.op def f(x): ...
    """
    ax.current_session()


def told(error: BaseException) -> str:
    """The class and the message of *error*, with the text of the line that it names in place of its number."""
    lines = f"{type(error).__name__}: {error}".splitlines()
    return "\n".join(map(_with_source, lines))


def _with_source(line: str) -> str:
    found = re.fullmatch(r"  made at (.*):(\d+)", line)
    if found is None:
        return re.sub(r"for [\d.e-]+ s$", "for T s", line).rstrip()
    assert Path(found[1]) == Path(__file__)
    return f"  made at {linecache.getline(found[1], int(found[2])).strip()}"


@pytest.mark.parametrize("provoke", MISTAKES, ids=lambda provoke: provoke.__name__)
async def test_what_a_mistake_is_told(provoke: Callable[[], Awaitable[object]]) -> None:
    with pytest.raises(Exception) as caught:  # noqa: PT011 - each has its own
        await provoke()
    assert provoke.__doc__ is not None
    promised = [line.strip() for line in provoke.__doc__.strip().splitlines()]
    assert [line.strip() for line in told(caught.value).splitlines()] == promised
    assert len(promised) <= 4
