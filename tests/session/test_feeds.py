"""Feeds: what may be fed for what, as ``session_test.py`` of TensorFlow proves it.

TensorFlow's case                                             here
------------------------------------------------------------  ---------------------------------------------------
testFeedAndFetch, testDefaultOfFeed..., testFeedDictKey...     test_feed_by_tensor_or_by_name
testFeedPrecisionLossError, testFeedError                     test_values_that_would_lose_something
testFeedShapeCompatibility                                    test_shapes
testFeedAndFetchString*, testStringFetch, testStringFeed*,    test_strings, test_unicode
  testStringFeedWithUnicode, ...WithNullCharacters
testFeedInvalidKeys, testInvalid...                           test_keys_that_cannot_be_fed
testNonFeedable                                               test_tensors_that_cannot_be_fed
testFeedDictOfTensor (feed value is a tensor)                 test_a_tensor_is_no_value
testFeedTuple (RegisterSession conversions)                   no such registry in this contract
"""

from __future__ import annotations

from collections import OrderedDict
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

import asyncexec as ax

DTYPES = "float16 float32 float64 int8 int16 int32 int64 uint8 uint16 uint32 uint64 bool complex64 complex128".split()


@pytest.fixture
def graph() -> ax.Graph:
    """A placeholder of each dtype, any shape, under the name of the dtype; and x: float32 [None, 2] -> y."""
    with ax.Graph() as graph:
        for dtype in [*DTYPES, "string", "object"]:
            ax.placeholder(dtype, None, name=f"p_{dtype}")
        ax.negative(ax.placeholder(ax.float32, [None, 2], name="x"), name="y")
        ax.placeholder(ax.float32, [], name="scalar")
    return graph


async def given(graph: ax.Graph, dtype: str, value: Any) -> Any:
    """What a placeholder of *dtype* has when *value* is fed."""
    async with ax.Session(graph) as session:
        return await session.run(f"p_{dtype}:0", {f"p_{dtype}:0": value})


async def test_feed_by_tensor_or_by_name(graph: ax.Graph) -> None:
    async with ax.Session(graph) as session:
        value = [[1.0, 2.0]]
        feeds: Any
        for feeds in (
            {"x:0": value},
            {graph["x:0"]: value},
            OrderedDict({"x:0": value}),
            MappingProxyType({"x:0": value}),
        ):
            assert (await session.run("y:0", feeds)).tolist() == [[-1.0, -2.0]]


@pytest.mark.parametrize("dtype", DTYPES)
async def test_arrays_and_scalars_of_every_dtype(graph: ax.Graph, dtype: str) -> None:
    np_dtype = np.dtype(dtype)
    array = np.array([[0, 1], [1, 0]], np_dtype)
    np.testing.assert_array_equal(await given(graph, dtype, array), array, strict=True)
    np.testing.assert_array_equal(await given(graph, dtype, array.tolist()), array, strict=True)
    np.testing.assert_array_equal(await given(graph, dtype, array[:, :0]), array[:, :0], strict=True)
    for scalar in (np_dtype.type(1), np.array(1, np_dtype), np_dtype.type(1).item()):
        result = await given(graph, dtype, scalar)
        assert type(result) is np_dtype.type
        assert result == 1


@pytest.mark.parametrize("order", ["F", "C"])
async def test_memory_layout_does_not_matter(graph: ax.Graph, order: Any) -> None:
    value = np.asarray(np.arange(6.0, dtype=np.float32).reshape(3, 2), order=order)
    async with ax.Session(graph) as session:
        np.testing.assert_array_equal(await session.run("y:0", {"x:0": value}), -value)
        np.testing.assert_array_equal(await session.run("y:0", {"x:0": value[::-1]}), -value[::-1])
        swapped = value.astype(value.dtype.newbyteorder())
        np.testing.assert_array_equal(await session.run("y:0", {"x:0": swapped}), -value, strict=True)


CONVERSIONS = [
    ("float32", 1, np.float32(1)),
    ("float32", True, np.float32(1)),
    ("float32", 0.1, np.float32(0.1)),
    ("float32", 1e300, np.float32(np.inf)),
    ("float64", np.float32(0.1), np.float64(np.float32(0.1))),
    ("float32", np.float64(0.1), np.float32(0.1)),
    ("complex64", 1.5, np.complex64(1.5)),
    ("int64", np.int8(-3), np.int64(-3)),
    ("int8", np.int64(100), np.int8(100)),
    ("int32", True, np.int32(1)),
    ("uint8", 255, np.uint8(255)),
    ("uint64", 2**64 - 1, np.uint64(2**64 - 1)),
    ("float32", [], np.zeros(0, np.float32)),
    ("int32", [[], []], np.zeros((2, 0), np.int32)),
    ("int32", np.float64([1.9, -1.9]), np.int32([1, -1])),  # arrays are truncated
    ("int32", range(3), np.int32([0, 1, 2])),
    ("float32", (1, 2.5), np.float32([1, 2.5])),
]


@pytest.mark.parametrize(("dtype", "value", "expected"), CONVERSIONS)
async def test_values_are_converted_as_by_tensorflow(graph: ax.Graph, dtype: str, value: Any, expected: Any) -> None:
    np.testing.assert_array_equal(await given(graph, dtype, value), expected, strict=True)


@pytest.mark.parametrize("dtype", ["int8", "int32", "int64", "uint8"])
async def test_arrays_without_an_integer_value_warn_nobody(graph: ax.Graph, dtype: str) -> None:
    assert (await given(graph, dtype, np.float64([np.nan, 1]))).dtype == dtype


REFUSED = [
    ("int8", 300),
    ("int8", [1, 128]),
    ("uint8", -1),
    ("int32", 2**31),
    ("int64", 2**63),
    ("int64", 2**70),
    ("uint64", -1),
    ("int32", 1.5),
    ("int32", [1.0, 2.5]),
    ("int32", 1j),
    ("float32", 1j),
    ("float32", np.complex64(1j)),
    ("int32", np.zeros(0, np.complex64)),
    ("float32", np.zeros(0, np.complex64)),
    ("float32", "text"),
    ("float32", "1"),
    ("float32", b"x"),
    ("float32", None),
    ("float32", [None]),
    ("float32", [1.0, "a"]),
    ("float32", [[1.0], [2.0, 3.0]]),
    ("float32", {}),
    pytest.param("float32", object(), id="object"),
    ("float32", np.array(["2020-01-01"], "M8[D]")),
    ("bool", "yes"),
    ("bool", 2),
    ("string", 5),
    ("string", ["a", 5]),
    ("string", None),
    ("string", [["a"], ["b", "c"]]),
    ("string", [np.zeros(2), np.zeros((2, 0))]),
    ("string", [np.array(["a", "b"]), np.array([["a"], ["b"]])]),
]


NUMBERS = [0, 1, -1, 127, -128, 255, 256, 2**31 - 1, 2**31, -(2**31), 2**63 - 1, 2**63, 2**64 - 1, 2**64, -(2**63) - 1]
SCALARS: list[Any] = [
    *NUMBERS,
    True,
    False,
    1.5,
    -0.0,
    float("nan"),
    float("inf"),
    1e38,
    1e-46,
    1j,
    "Zoë",
    "\ud800",
    "",
]


@pytest.mark.parametrize("dtype", [*DTYPES, "bfloat16", "string"])
async def test_python_values_of_scalars_are_as_where_any_shape_may_be_fed(dtype: str) -> None:
    with ax.Graph() as graph:
        fed = [ax.placeholder(dtype, shape, name="fed") for shape in ([], None)]

    async def outcome(value: Any, x: ax.Tensor) -> tuple[Any, ...]:
        try:
            given = await session.run(x, {x: value})
        except ax.errors.OpError as error:
            return type(error), str(error).replace("fed_1", "fed")
        return getattr(given, "dtype", type(given)), repr(given)

    async with ax.Session(graph) as session:
        for value in SCALARS:
            scalar, any_shape = [await outcome(value, x) for x in fed]
            assert scalar == any_shape


def shown(value: Any) -> str:
    """A short text of *value* that is the same in every process."""
    return "object" if type(value) is object else ascii(value)[:30]


@pytest.mark.parametrize(("dtype", "value"), REFUSED, ids=shown)
async def test_values_that_would_lose_something(graph: ax.Graph, dtype: str, value: Any) -> None:
    async with ax.Session(graph) as session:
        with pytest.raises(ax.errors.InvalidArgumentError, match=f"'p_{dtype}:0'") as caught:
            await session.run(f"p_{dtype}:0", {f"p_{dtype}:0": value})
        assert (caught.value.node, caught.value.op) == (f"p_{dtype}", "Placeholder")
        assert await session.run("scalar:0", {"scalar:0": 1.0}) == 1.0


@pytest.mark.parametrize("value", [[1.0, 2.0], 1.0, [[1.0]], np.zeros((2, 3), np.float32), np.zeros((1, 2, 1)), []])
async def test_shapes(graph: ax.Graph, value: Any) -> None:
    async with ax.Session(graph) as session:
        with pytest.raises(ax.errors.InvalidArgumentError, match=r"cannot feed a value of shape .* for 'x:0'"):
            await session.run("y:0", {"x:0": value})
        assert (await session.run("y:0", {"x:0": np.zeros((0, 2))})).shape == (0, 2)


@pytest.mark.parametrize("value", [[1.0], np.zeros(1, np.float32), [[]]])
async def test_an_array_for_a_scalar(graph: ax.Graph, value: Any) -> None:
    async with ax.Session(graph) as session:
        with pytest.raises(ax.errors.InvalidArgumentError, match="which has the shape"):
            await session.run("scalar:0", {"scalar:0": value})


TEXTS: list[tuple[Any, Any]] = [
    ("text", b"text"),
    (b"text", b"text"),
    ("", b""),
    ("a\0b\0", b"a\0b\0"),
    (b"\xff\x00", b"\xff\x00"),
    ("Grüße 世界 🎉", "Grüße 世界 🎉".encode()),
    (np.str_("text"), b"text"),
    (np.bytes_(b"text"), b"text"),
    (["a\0", b"b"], [b"a\0", b"b"]),
    ([["a"], ["b"]], [[b"a"], [b"b"]]),
    (np.array(["a", "bcd"]), [b"a", b"bcd"]),
    (np.array([b"x\0", "ü"], object), [b"x\0", "ü".encode()]),
    ([], []),
]


@pytest.mark.parametrize(("value", "expected"), TEXTS, ids=shown)
async def test_strings(graph: ax.Graph, value: Any, expected: Any) -> None:
    result = await given(graph, "string", value)
    if isinstance(expected, list):
        assert result.dtype == object
        assert result.tolist() == expected
    else:
        assert type(result) is bytes
        assert result == expected


async def test_fed_strings_are_not_changed(graph: ax.Graph) -> None:
    value = np.array(["a", "b"], object)
    await given(graph, "string", value)
    assert value.tolist() == ["a", "b"]


@pytest.mark.parametrize(
    "value",
    [None, {"any": [1]}, [1, [2]], "text", object(), np.zeros(2), print],
    ids=lambda value: type(value).__name__,
)
async def test_objects_pass_untouched(graph: ax.Graph, value: Any) -> None:
    assert (await given(graph, "object", value)) is value


@pytest.mark.parametrize("dtype", ["float32", "string", "object"])
async def test_a_tensor_is_no_value(graph: ax.Graph, dtype: str) -> None:
    with pytest.raises(TypeError, match="is the tensor 'scalar:0'; feed a value"):
        await given(graph, dtype, graph["scalar:0"])


@pytest.mark.parametrize("key", ["x", "zz:0", "zz", "x:1", "x:x", "", "^x", 5, None, ("x:0",)])
async def test_keys_that_cannot_be_fed(graph: ax.Graph, key: Any) -> None:
    async with ax.Session(graph) as session:
        for _ in range(2):
            with pytest.raises(TypeError, match="feed"):
                await session.run("y:0", {key: 1.0})
        with pytest.raises(TypeError, match="feed"):
            session.make_callable("y:0", [key])


async def test_key_that_is_an_operation(graph: ax.Graph) -> None:
    async with ax.Session(graph) as session:
        with pytest.raises(ax.errors.InvalidTypeError, match="'x' names an operation") as caught:
            await session.run("y:0", {graph["x"]: 1.0})
        assert caught.value.hint == "feed 'x:0'"


async def test_key_of_another_graph(graph: ax.Graph) -> None:
    with ax.Graph():
        foreign = ax.placeholder(ax.float32, [], name="foreign")
    async with ax.Session(graph) as session:
        with pytest.raises(ax.errors.InvalidArgumentError, match="'foreign:0' is not of this session's graph"):
            await session.run("scalar:0", {foreign: 1.0})


@pytest.mark.parametrize("feeds", [["x:0"], "x:0", 5, [("x:0", 1.0)], ("x:0",), {"x:0"}])
async def test_feeds_that_are_no_mapping(graph: ax.Graph, feeds: Any) -> None:
    async with ax.Session(graph) as session:
        for _ in range(2):
            with pytest.raises(TypeError, match="not a mapping of tensors to values"):
                await session.run("y:0", feeds)
            await session.run("y:0", {"x:0": [[1, 2]]})  # of the same signature


async def test_tensors_that_cannot_be_fed() -> None:
    with ax.Graph() as graph:
        handle = ax.Variable(1.0, name="v").handle
    async with ax.Session(graph) as session:
        with pytest.raises(ax.errors.InvalidArgumentError, match="is a resource and cannot be fed"):
            await session.run([], {handle: 1.0})


async def test_missing_feed_names_the_placeholder_and_the_path(graph: ax.Graph) -> None:
    with graph:
        last = graph["y:0"]
        for i in range(3):
            last = ax.identity(last, name=f"step_{i}")
    async with ax.Session(graph) as session:
        for _ in range(2):
            with pytest.raises(ax.errors.InvalidArgumentError) as caught:
                await session.run("step_2:0")
            assert "You must feed a value for placeholder tensor 'x'" in str(caught.value)
            assert "x -> y -> step_0 -> step_1 -> step_2" in str(caught.value)
            assert (caught.value.node, caught.value.op) == ("x", "Placeholder")
        assert (await session.run("step_2:0", {"x:0": [[1, 2]]})).tolist() == [[-1, -2]]


async def test_missing_feed_at_the_end_of_a_long_path(graph: ax.Graph) -> None:
    with graph:
        last = graph["y:0"]
        for i in range(3000):
            last = ax.identity(last, name=f"step_{i}")
        target = ax.group(last, name="all")
    async with ax.Session(graph) as session:
        with pytest.raises(ax.errors.InvalidArgumentError, match=r"x -> y -> step_0 -> step_1 -> \.\.\. -> step_2998"):
            await session.run([], targets=[target])


async def test_a_default_may_be_fed_or_not() -> None:
    with ax.Graph() as graph:
        x = ax.placeholder_with_default([1.0, 2.0], [None], name="x")
        y = ax.negative(x)
    async with ax.Session(graph) as session:
        assert (await session.run(y)).tolist() == [-1, -2]
        assert (await session.run(y, {x: [5.0]})).tolist() == [-5]


@pytest.mark.parametrize("fetched", ["fed", "placeholder"])
async def test_what_is_fed_is_fetched_from_a_device_that_runs_nothing(fetched: str) -> None:
    with ax.Graph() as graph:
        x, p = ax.placeholder(ax.int32, [], name="x"), ax.placeholder(ax.bool, [], name="p")
        y = ax.negative(x, name="y")
        with ax.device("/cpu:1"):
            sides = ax.create_op("Switch", [x, p])
            merged = ax.create_op("Merge", [[sides[0], sides[1]]])[0]
    async with ax.Session(graph, ax.SessionConfig(device_count={"CPU": 2})) as session:
        feeds = {y: 5, x: 1, p: True}
        assert await session.run([y if fetched == "fed" else x, merged], feeds) == [5 if fetched == "fed" else 1, 1]
