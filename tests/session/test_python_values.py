"""What callers get as Python values: text of ops annotated ``str``, and scalars for who asks for them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import asyncexec as ax
from asyncexec.framework.cooperative import STRIDE, run_at_once
from asyncexec.session.text_fetches import text_fetches

EXECUTORS = ("", "TAGGED_TOKEN", "COMPILED")


@ax.op
def greet(whom: str) -> str:
    return f"hello {whom}"


@ax.op
async def pair(name: str) -> tuple[str, bytes]:
    return name.upper(), name.encode()


def typed(nest: Any) -> Any:
    """*nest* with the type of each value beside it."""
    return [(type(value), value) for value in nest]


@pytest.mark.parametrize("executor_type", EXECUTORS)
async def test_text_of_an_op_annotated_str(executor_type: str) -> None:
    with ax.Graph() as graph:
        name = ax.placeholder(ax.string, [], name="name")
        first, second = pair(name)
        fetches = [greet(name), first, second, name]
    async with ax.Session(graph, ax.SessionConfig(executor_type=executor_type)) as session:
        for _ in range(4):
            got = await session.run(fetches, {name: "Zoë"})
            assert typed(got) == [(str, "hello Zoë"), (str, "ZOË"), (bytes, "Zoë".encode()), (bytes, "Zoë".encode())]


@pytest.mark.parametrize("executor_type", EXECUTORS)
async def test_text_stays_text_by_way_of_branches_loops_calls_and_catches(executor_type: str) -> None:
    @ax.function
    def greeted(name: ax.Tensor) -> ax.Tensor:
        return greet(name)

    with ax.Graph() as graph:
        name = ax.placeholder(ax.string, [], name="name")
        none = ax.constant("none")
        known = ax.not_equal(name, "")
        both = ax.catch(lambda: pair(name), lambda error: [none, none])
        fetches = [
            ax.identity(greet(name)),
            ax.cond(known, lambda: greet(name), lambda: none),
            ax.while_loop(lambda i, _: i < 2, lambda i, text: (i + 1, greet(text)), (0, name))[1],
            greeted(name),
            ax.catch(lambda: greet(name), lambda error: none),
            ax.cond(known, lambda: ax.catch(lambda: pair(name), lambda error: [none, none])[0], lambda: none),
            ax.cond(ax.logical_not(known), lambda: both[0], lambda: both[1]),
            ax.cond(known, lambda: name, lambda: none),
        ]
    async with ax.Session(graph, ax.SessionConfig(executor_type=executor_type)) as session:
        for _ in range(4):
            text = "hello Zoë"
            expected = [text, text, f"hello {text}", text, text, "ZOË", "Zoë", "Zoë".encode()]
            assert typed(await session.run(fetches, {name: "Zoë"})) == typed(expected)


async def test_text_is_looked_for_in_slices() -> None:
    with ax.Graph():
        plain = ax.placeholder(ax.string, [], name="plain")
        tensors = [greet(plain), plain]
        for _ in range(1_000):
            tensors = [ax.identity(tensor) for tensor in tensors]
    fetches = [*tensors, plain]
    text = run_at_once(text_fetches(fetches))
    assert [(tensor.op, tensor.index) in text for tensor in fetches] == [True, False, False]
    assert len(list(text_fetches(fetches))) >= 3_000 // STRIDE


def scalars() -> tuple[ax.Graph, list[ax.Tensor], list[Any]]:
    """A graph, fetches of 0-d values and of others, and the Python values of these."""
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [], name="x")
        fetches = [
            x * 2.0,
            ax.cast(x, ax.int64),
            x > 1.0,
            ax.complex(x, x),
            ax.as_string(ax.cast(x, ax.int32)),
            ax.constant(b"\xff"),
            ax.placeholder_with_default(np.float32(1.5), None),
            ax.cast(x, ax.bfloat16),
            ax.constant(np.float64(2.5), dtype=ax.object),
        ]
    return graph, fetches, [5.0, 2, True, 2.5 + 2.5j, "2", b"\xff", 1.5, 2.5, np.float64(2.5)]


@pytest.mark.parametrize("executor_type", EXECUTORS)
async def test_scalars_are_python_values_where_the_session_says_so(executor_type: str) -> None:
    graph, fetches, expected = scalars()
    config = ax.SessionConfig(python_scalars=True, executor_type=executor_type)
    async with ax.Session(graph, config) as session:
        call = session.make_callable(fetches, ["x:0"])
        for _ in range(4):
            assert typed(await session.run(fetches, {"x:0": 2.5})) == typed(expected)
            assert typed(await call(2.5)) == typed(expected)
        usual = ax.RunOptions(python_scalars=False)
        assert type(await session.run(fetches[0], {"x:0": 2.5}, options=usual)) is np.float32


@pytest.mark.parametrize("executor_type", EXECUTORS)
async def test_scalars_are_python_values_where_the_call_says_so(executor_type: str) -> None:
    graph, fetches, expected = scalars()
    options = ax.RunOptions(python_scalars=True)
    async with ax.Session(graph, ax.SessionConfig(executor_type=executor_type)) as session:
        for _ in range(4):
            assert typed(await session.run(fetches, {"x:0": 2.5}, options=options)) == typed(expected)
            assert type(await session.run(fetches[0], {"x:0": 2.5})) is np.float32
        traced = ax.RunOptions(python_scalars=True, trace=True)
        got = await session.run({"twice": fetches[0]}, {"x:0": 2.5}, options=traced, metadata=ax.RunMetadata())
    assert json.dumps(got) == '{"twice": 5.0}'


async def test_session_handles_stay_handles() -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float64, [], name="x")
        handle = ax.get_session_handle(x * 2.0)
    async with ax.Session(graph, ax.SessionConfig(python_scalars=True)) as session:
        kept = await session.run(handle, {x: 2.0})
        assert await session.run(x + 1.0, {x: kept}) == 5.0


async def test_arrays_stay_arrays() -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, None, name="x")
        y = x + 1.0
    async with ax.Session(graph, ax.SessionConfig(python_scalars=True)) as session:
        np.testing.assert_array_equal(await session.run(y, {x: [1.0, 2.0]}), np.array([2, 3], np.float32), strict=True)
        assert typed([await session.run(y, {x: 1.0})]) == [(float, 2.0)]


async def test_partial_runs_and_streams_give_them_too() -> None:
    graph, fetches, expected = scalars()
    async with ax.Session(graph, ax.SessionConfig(python_scalars=True)) as session:
        async with session.partial_run(fetches, ["x:0"]) as step:
            await step.feed({"x:0": 2.5})
            assert typed(await step.fetch([fetches[1], fetches[4], fetches[1]])) == [(int, 2), (str, "2"), (int, 2)]
            await step.fetch([each for number, each in enumerate(fetches) if number not in (1, 4)])
        assert [typed(item) async for item in session.map(fetches, [{"x:0": 2.5}] * 2)] == [typed(expected)] * 2


@pytest.mark.parametrize("python_scalars", [False, True])
async def test_states_of_streams_start_with_what_travels(python_scalars: bool) -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [], name="x")
        total = ax.stream_state(ax.constant(0.5))
        said = ax.stream_state(greet("you"))
        both = [total.update(total + x), said.update(ax.string_join([said, "!"]))]
    async with ax.Session(graph, ax.SessionConfig(python_scalars=python_scalars)) as session:
        got = [item async for item in session.map(both, [{x: 1.0}, {x: 2.0}])]
    text = ["hello you!", "hello you!!"]
    assert got == [
        [1.5, text[0] if python_scalars else text[0].encode()],
        [3.5, [text[1].encode(), text[1]][python_scalars]],
    ]
    assert {type(item[0]) for item in got} == {float if python_scalars else np.float32}


@pytest.mark.allow_blocking  # it writes a file
async def test_text_of_an_op_in_a_graph_that_was_saved(tmp_path: Path) -> None:
    with ax.Graph() as graph:
        greet(ax.placeholder(ax.string, [], name="name"), name="greeting")
    ax.save_graph_def(graph.as_graph_def(), tmp_path / "graph.json")
    with ax.Graph() as loaded:
        ax.import_graph_def(ax.load_graph_def(tmp_path / "graph.json"), name="", allowed_ops=["greet"])
    async with ax.Session(loaded) as session:
        assert await session.run("greeting:0", {"name:0": "you"}) == "hello you"
