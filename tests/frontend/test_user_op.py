"""``@ax.op``: what becomes of a function's arguments, annotations and results."""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import numpy as np
import pytest

import asyncexec as ax
from tests.running import import_all_names


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
        ([ax.float32], np.zeros(2)),
        ([ax.float32], 1e39),
        ([ax.float32], np.float64(1e39)),
        ([ax.float32], np.int32(1)),
        ([ax.int32], np.float64(1)),
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
    assert await run([number, text], x=3) == [3, "3"]


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


async def later(x: Any = None) -> int:
    await asyncio.sleep(0)
    return 7


async def forgets_to_await(x: Any) -> Any:
    return later()


async def forgets_to_await_both(x: Any) -> Any:
    return later(), later()


TWO = [ax.object, ax.object]


@pytest.mark.parametrize(
    ("function", "options", "hint"),
    [
        (lambda x: later(), {}, "async def"),
        (lambda x: later(), {"expensive": True}, "async def"),
        (lambda x: later(), {"limiter": 1}, "async def"),
        (lambda x: later(), {"limiter": 1, "expensive": False}, "async def"),
        (lambda x: later(), {"outputs": [ax.float32]}, "async def"),
        (lambda x: later(), {"outputs": []}, "async def"),
        (lambda x: (1, later()), {"outputs": TWO}, "async def"),
        (forgets_to_await, {}, "await it"),
        (forgets_to_await, {"timeout": 5}, "await it"),
        (forgets_to_await, {"outputs": [ax.float32]}, "await it"),
        (forgets_to_await, {"outputs": []}, "await it"),
        (forgets_to_await_both, {"outputs": TWO}, "await it"),
    ],
)
async def test_function_that_gives_a_coroutine(graph: ax.Graph, function: Any, options: Any, hint: str) -> None:
    """It is closed, so that nobody is warned that it was never awaited."""
    node = ax.op(name="Forgot", **options)(function)(graph["x:0"], name="node")
    with pytest.raises(ax.errors.InternalError, match="op 'Forgot' returned a coroutine") as caught:
        await run(node, x=1)
    assert caught.value.node == "node"
    assert hint in (caught.value.hint or "")


class Later:
    """A callable whose calls are to be awaited."""

    async def __call__(self, x: Any) -> int:
        return await later()


@pytest.mark.parametrize(
    "function", [later, functools.partial(later), Later(), Later().__call__], ids=["def", "partial", "object", "method"]
)
async def test_what_is_awaited(graph: ax.Graph, function: Any) -> None:
    assert await run(ax.op(name="Awaited")(function)(graph["x:0"]), x=1) == 7


def values(x: Any) -> Iterator[Any]:
    yield x


async def values_later(x: Any) -> AsyncIterator[Any]:
    yield x


class Values:
    def __call__(self, x: Any) -> Iterator[Any]:
        yield x


@pytest.mark.parametrize("function", [values, values_later, functools.partial(values), Values()])
def test_generator_functions_are_no_ops(function: Any) -> None:
    with pytest.raises(ax.errors.InvalidTypeError, match="op 'Values' is a generator function") as caught:
        ax.op(name="Values")(function)
    assert "session.map" in (caught.value.hint or "")


async def test_an_iterator_that_a_function_returns_is_a_value_like_any(graph: ax.Graph) -> None:
    assert list(await run(ax.op(name="Lazy")(lambda x: values(x))(graph["x:0"]), x=1)) == [1]


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

    private(graph["x:0"], name="stranger")
    graph_def = graph.as_graph_def()
    with ax.Graph() as theirs:
        ax.import_graph_def(graph_def)
    with ax.BlockingSession(theirs) as session, pytest.raises(ax.errors.PermissionDeniedError, match="private"):
        session.run([], {"x:0": 1.0}, targets=["stranger"])


async def test_parameters_named_like_options_are_the_functions_own(graph: ax.Graph) -> None:
    @ax.op
    async def call(x: Any, timeout: int, name: str = "") -> Any:
        return x, timeout, name

    node = call(graph["x:0"], timeout=5, name="mine")
    assert await run(node, x=1) == (1, 5, "mine")
    assert node.op.name == "call"
    assert call.options(name="node")(graph["x:0"], timeout=5).op.name == "node"
