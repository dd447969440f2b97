"""Nests of fetches, as ``session_test.py`` of TensorFlow proves them: the result has the nest of what was asked for.

TensorFlow's case (testFetch..., testFeed... where it is about fetches)    here
------------------------------------------------------------------------  -----------------------------------------
testFetchSingleton, ...ByName, ...Operation, testFetchOperationByName     test_single_fetch
testFetchList, ...Tuple, ...NamedTuple, ...Dict, ...OrderedDict,          test_nest_is_given_back
  ...Attrs (dataclasses here), testFetchNestingOneLevel, ...TwoLevels,
  ...NestingEmptyOneLevel, testFetchNestedMapping
testFetchTensorObject, testFetchDefaultDict                               test_nest_is_given_back
testFetchNone, testFetchInvalid                                           test_what_cannot_be_fetched
testFetchScalar, testFetchUint64                                          test_scalars_are_numpy_scalars
testFetchSparseTensor, ...IndexedSlices (10)                              no such composite tensors in this contract
testShouldFetchOnlyOnce, testFetchAndFeed...                              test_direct_session.py
testInferShapes..., testUseExistingGraph, testGraphDef...                 tests/graph
"""

from __future__ import annotations

import dataclasses
from collections import OrderedDict, defaultdict
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import pytest

import asyncexec as ax


class Pair(NamedTuple):
    left: Any
    right: Any


class Names(list[Any]):
    """A list of its own kind."""


@dataclasses.dataclass
class Results:
    score: Any
    rest: Any
    count: int = dataclasses.field(default=0, init=False)


@dataclasses.dataclass(frozen=True, slots=True)
class Frozen:
    score: Any


class Text(str):
    """A string of its own kind."""

    __slots__ = ()


class View(Mapping[str, Any]):
    """A mapping that is no dict."""

    def __init__(self, data: dict[str, Any]) -> None:
        self.data = data

    def __getitem__(self, key: str) -> Any:
        return self.data[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.data)

    def __len__(self) -> int:
        return len(self.data)


@pytest.fixture
def graph() -> ax.Graph:
    with ax.Graph() as graph:
        ax.constant(1.0, name="a")
        ax.constant([2.0, 3.0], name="b")
        ax.no_op(name="nothing")
    return graph


@pytest.mark.filterwarnings("ignore:run:UserWarning")
async def test_single_fetch(graph: ax.Graph) -> None:
    async with ax.Session(graph) as session:
        for fetch in (graph["a:0"], "a:0", Text("a:0"), np.str_("a:0")):
            assert await session.run(fetch) == 1.0
        for operation in (graph["a"], "a", "nothing", graph["nothing"]):
            assert await session.run(operation) is None


NESTS: list[tuple[Any, Any]] = [
    ([], []),
    ((), ()),
    ({}, {}),
    ([[]], [[]]),
    ({"x": [], "y": ()}, {"x": [], "y": ()}),
    (["a:0"], [1.0]),
    (["a:0", "nothing", "a"], [1.0, None, None]),
    (("a:0", "a:0"), (1.0, 1.0)),
    (Pair("a:0", "nothing"), Pair(1.0, None)),
    (Pair(["a:0"], Pair("a:0", {})), Pair([1.0], Pair(1.0, {}))),
    (Names(["a:0"]), Names([1.0])),
    ({"x": "a:0", 7: "nothing"}, {"x": 1.0, 7: None}),
    (OrderedDict(y="a:0", x="a:0"), OrderedDict(y=1.0, x=1.0)),
    (defaultdict(list, x="a:0"), defaultdict(list, x=1.0)),
    (Results("a:0", ["a:0"]), Results(1.0, [1.0])),
    (Frozen({"x": ("a:0",)}), Frozen({"x": (1.0,)})),
    ([{"x": [("a:0",), Frozen("a:0")]}, [[["a:0"]]]], [{"x": [(1.0,), Frozen(1.0)]}, [[[1.0]]]]),
]


@pytest.mark.parametrize(("fetches", "expected"), NESTS, ids=lambda nest: type(nest).__name__)
async def test_nest_is_given_back(graph: ax.Graph, fetches: Any, expected: Any) -> None:
    async with ax.Session(graph) as session:
        for _ in range(2):  # the second run is of a cached signature
            result = await session.run(fetches)
            assert result == expected
            assert type(result) is type(expected)
        assert await session.make_callable(fetches)() == expected


async def test_kinds_within_are_kept(graph: ax.Graph) -> None:
    async with ax.Session(graph) as session:
        result = await session.run(
            [OrderedDict(x="a:0"), defaultdict(list, x="a:0"), Names(["a:0"]), View({"x": "a:0"})]
        )
    assert [type(part) for part in result] == [OrderedDict, defaultdict, Names, dict]
    assert result[1]["new"] == []
    assert result[3] == {"x": 1.0}


async def test_order_of_a_dict_is_kept(graph: ax.Graph) -> None:
    async with ax.Session(graph) as session:
        assert list(await session.run({"z": "a:0", "y": "nothing", "x": "a:0"})) == ["z", "y", "x"]


async def test_name_of_an_op_alone_says_what_to_write(graph: ax.Graph) -> None:
    async with ax.Session(graph) as session:
        with pytest.warns(UserWarning, match=r"run\('a'\) runs the operation and gives None.* write 'a:0'"):
            assert await session.run("a") is None
        assert await session.run("a") is None  # told of once
        assert await session.run("nothing") is None  # has no value
        assert await session.run(graph["a"]) is None  # asked for as an operation


async def test_op_that_is_run_for_what_it_does_is_fetched_by_its_name() -> None:
    calls: list[float] = []

    @ax.op(name="ToldOf")
    def log(x: float) -> float:
        calls.append(x)
        return x

    with ax.Graph() as graph:
        log(ax.constant(1.0))
    async with ax.Session(graph) as session:
        assert await session.run("ToldOf") is None
    assert calls == [1.0]


async def test_a_nest_may_change_after_the_run(graph: ax.Graph) -> None:
    async with ax.Session(graph) as session:
        fetches = ["a:0"]
        assert await session.run(fetches) == [1.0]
        fetches.append("nothing")
        assert await session.run(fetches) == [1.0, None]


async def test_strings_of_their_own_kind_are_told_apart(graph: ax.Graph) -> None:
    """A cached signature is never taken for another that is written like an object that is gone."""
    async with ax.Session(graph) as session:
        for _ in range(50):
            for name, size in (("a:0", 1), ("b:0", 2)):
                (value,) = await session.run([Text(name)])
                assert np.size(value) == size


async def test_scalars_are_numpy_scalars(graph: ax.Graph) -> None:
    with graph:
        values = [ax.constant(np.uint64(2**64 - 1)), ax.constant(True), ax.constant("text"), ax.constant(1j)]
    async with ax.Session(graph) as session:
        result = await session.run(values)
    assert [type(value) for value in result] == [np.uint64, np.bool_, bytes, np.complex128]
    assert result == [2**64 - 1, True, b"text", 1j]


endless: list[Any] = []
endless.append(endless)
deep: Any = "a:0"
for _ in range(100_000):
    deep = [deep]


@pytest.mark.parametrize(
    ("fetches", "message"),
    [
        (None, "fetches is NoneType"),
        ([None], r"fetches\[0\] is NoneType"),
        ({"x": ["a:0", None]}, r"fetches\['x'\]\[1\] is NoneType"),
        (Results("a:0", None), r"fetches\.rest is NoneType"),
        ({"a:0"}, "fetches is set"),
        (5, "fetches is int 5"),
        (object, "fetches is type"),
        (np.zeros(2), "fetches is ndarray"),
        (Results, "fetches is type"),
        (b"a:0", "fetches is bytes"),
        ("", "fetch ''"),
        ("zz", "'zz'"),
        ("zz:0", "'zz'"),
        ("a:1", "'a' has only 1 outputs"),
        ("a:-1", "a:-1"),
        ("a:x", "a:x"),
        ("nothing:0", "'nothing' has only 0 outputs"),
        (endless, "nested too deeply"),
        (deep, "nested too deeply"),
    ],
    ids=lambda value: repr(value)[:20] if not isinstance(value, list) else "list",
)
async def test_what_cannot_be_fetched(graph: ax.Graph, fetches: Any, message: str) -> None:
    async with ax.Session(graph) as session:
        for _ in range(2):
            with pytest.raises(ax.errors.InvalidArgumentError, match=message):
                await session.run(fetches)
        assert await session.run("a:0") == 1.0


async def test_what_is_of_the_wrong_kind_is_a_type_error(graph: ax.Graph) -> None:
    async with ax.Session(graph) as session:
        with pytest.raises(TypeError, match="fetch a tensor, an operation, a name"):
            await session.run(None)


async def test_near_names_are_told(graph: ax.Graph) -> None:
    with graph:
        ax.constant(1.0, name="probabilities")
    async with ax.Session(graph) as session:
        for fetch in ("probabilites:0", "probabilites"):
            with pytest.raises(ax.errors.InvalidArgumentError) as caught:
                await session.run(fetch)
            assert "probabilities" in (caught.value.hint or "")


async def test_tensor_of_another_graph(graph: ax.Graph) -> None:
    with ax.Graph():
        foreign = ax.constant(1.0, name="foreign")
    async with ax.Session(graph) as session:
        for fetches in (foreign, foreign.op, [foreign]):
            with pytest.raises(ax.errors.InvalidArgumentError, match=r"'foreign.*not of this session's graph"):
                await session.run(fetches)
        with pytest.raises(ax.errors.InvalidArgumentError, match="not of this session's graph"):
            await session.run([], targets=[foreign])


async def test_fetch_of_what_is_fed(graph: ax.Graph) -> None:
    async with ax.Session(graph) as session:
        assert await session.run(["a:0", "a:0"], {"a:0": 5.0}) == [5.0, 5.0]
        fed = np.float32([7, 8])
        assert (await session.run({"x": "b:0"}, {"b:0": fed}))["x"].tolist() == [7, 8]


async def test_a_variable_is_fetched_as_its_value() -> None:
    with ax.Graph() as graph:
        variable = ax.Variable([1.0, 2.0], name="v")
        update = variable.assign_add([1.0, 1.0])
    async with ax.Session(graph) as session:
        await session.run(variable.initializer)
        await session.run([], targets=[update])
        num_nodes = graph.num_nodes
        for _ in range(2):
            fetched = await session.run({"v": variable, "again": [variable]})
            assert fetched["v"].tolist() == fetched["again"][0].tolist() == [2.0, 3.0]
        assert graph.num_nodes == num_nodes


async def test_nests_that_differ_in_the_types_of_their_keys_alone() -> None:
    with ax.Graph():
        x, y = ax.constant(1.0), ax.constant(2.0)
    nests: list[dict[Any, Any]] = [{1: x, "k": y}, {True: x, "k": y}, {1: x}, {True: x}]
    async with ax.Session(x.graph) as session:
        for nest in nests:
            result = await session.run(nest)
            assert [(type(key), key) for key in result] == [(type(key), key) for key in nest]
