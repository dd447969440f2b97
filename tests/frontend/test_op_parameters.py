"""What the function of a user's op gets: what its annotations say, and else what travels."""

from __future__ import annotations

from typing import Annotated, Any, Optional

import numpy as np
import pytest
from numpy.typing import NDArray

import asyncexec as ax

GIVEN: dict[str, tuple[ax.DType, Any]] = {
    "int64": (ax.int64, 2**53 + 1),
    "uint8": (ax.uint8, 200),
    "float32": (ax.float32, 1.5),
    "float64": (ax.float64, 0.1),
    "bool": (ax.bool, True),
    "complex": (ax.complex64, 1 + 2j),
    "text": (ax.string, "öl"),
    "ints": (ax.int32, [1, 2]),
    "floats": (ax.float32, [[0.5, 1.5], [2.5, 3.5]]),
    "texts": (ax.string, ["a", "b"]),
    "object": (ax.object, {"a": 1}),
}

CASES: list[tuple[Any, str, Any]] = [
    (int, "int64", 2**53 + 1),
    (int, "uint8", 200),
    (float, "float32", 1.5),
    (float, "float64", 0.1),
    (float, "uint8", 200.0),
    (bool, "bool", True),
    (complex, "complex", 1 + 2j),
    (str, "text", "öl"),
    (bytes, "text", "öl".encode()),
    (Optional[int], "uint8", 200),  # noqa: UP045 - as users write it
    (int | None, "uint8", 200),
    (Annotated[float, "metres"], "float32", 1.5),
    (Annotated[Optional[str], "name"], "text", "öl"),  # noqa: UP045
    ("int", "uint8", 200),
    ("list[int]", "ints", [1, 2]),
    (list[int], "ints", [1, 2]),
    (list[float], "ints", [1.0, 2.0]),
    (list[list[float]], "floats", [[0.5, 1.5], [2.5, 3.5]]),
    (list[str], "texts", ["a", "b"]),
    (list[bytes], "texts", [b"a", b"b"]),
    (Optional[list[int]], "ints", [1, 2]),  # noqa: UP045
    (Any, "object", {"a": 1}),
    (int, "object", {"a": 1}),
    # What travels:
    (np.float32, "float32", np.float32(1.5)),
    (None, "uint8", np.uint8(200)),
    (Any, "uint8", np.uint8(200)),
    (int | float, "uint8", np.uint8(200)),
    (np.ndarray, "ints", np.array([1, 2], np.int32)),
    (NDArray[np.int32], "ints", np.array([1, 2], np.int32)),
    (list[int], "floats", np.array([[0.5, 1.5], [2.5, 3.5]], np.float32)),
    (list, "ints", np.array([1, 2], np.int32)),
    # Another kind than the annotation says:
    (int, "float32", np.float32(1.5)),
    (bool, "uint8", np.uint8(200)),
    (int, "ints", np.array([1, 2], np.int32)),
    (str, "uint8", np.uint8(200)),
]


def is_same(got: Any, expected: Any) -> bool:
    if isinstance(expected, np.ndarray):
        return bool(type(got) is np.ndarray and got.dtype == expected.dtype and np.array_equal(got, expected))
    if isinstance(expected, list):
        return type(got) is list and len(got) == len(expected) and all(map(is_same, got, expected))
    return type(got) is type(expected) and bool(got == expected)


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize(("hint", "name", "expected"), CASES)
async def test_what_an_annotation_gets(hint: Any, name: str, expected: Any, is_async: bool) -> None:
    got: list[Any] = []

    def take(value: Any) -> None:
        got.append(value)

    async def take_later(value: Any) -> None:
        got.append(value)

    function = take_later if is_async else take
    function.__annotations__["value"] = hint
    if hint is None:
        del function.__annotations__["value"]
    dtype, value = GIVEN[name]
    with ax.Graph() as graph:
        fed = ax.placeholder(dtype, None)
        node = ax.op(name="Take")(function)(fed)
    async with ax.Session(graph) as session:
        await session.run([], {fed: value}, targets=[node])
    assert is_same(got[0], expected), got


async def test_parameters_that_take_several() -> None:
    got: list[Any] = []

    @ax.op
    def take(first: int, *rest: float, scale: float, **names: str) -> None:
        got.append((first, rest, scale, names))

    with ax.Graph() as graph:
        number, text = ax.placeholder(ax.float32, []), ax.placeholder(ax.string, [])
        node = take(ax.cast(number, ax.int32), number, 2.5, number, scale=number, a=text, b="plain")
    async with ax.Session(graph) as session:
        await session.run([], {number: 3.0, text: "x"}, targets=[node])
    [(first, rest, scale, names)] = got
    assert (first, rest, scale, names) == (3, (3.0, 2.5, 3.0), 3.0, {"a": "x", "b": "plain"})
    assert [type(value) for value in (first, *rest, scale)] == [int, float, float, float, float]


async def test_method_and_function_in_a_process() -> None:
    class Scale:
        def by(self, value: float, factor: int) -> float:
            assert type(value) is float
            assert type(factor) is int
            return value * factor

    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [])
        y = ax.op(name="ScaleBy")(Scale().by)(x, ax.constant(3))
    async with ax.Session(graph) as session:
        assert await session.run(y, {x: 0.1}) == float(np.float32(0.1)) * 3


async def test_float_of_a_float32_is_a_float64() -> None:
    @ax.op
    def double(x: float) -> float:
        return x * 2

    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [])
        y = double(x)
    async with ax.Session(graph) as session:
        got = await session.run(y, {x: 0.1})
    assert (type(got), got) == (np.float64, 2 * float(np.float32(0.1)))


@pytest.mark.parametrize("result", [0.1, np.float64(0.1), np.float32(0.1), np.float16(0.1), float("inf"), -np.inf])
@pytest.mark.parametrize("dtype", [ax.float16, ax.float32, ax.float64])
async def test_float_is_rounded_to_what_is_declared(dtype: ax.DType, result: Any) -> None:
    with ax.Graph() as graph:
        y = ax.op(name="Give", outputs=[dtype])(lambda: result)()
        several = ax.op(name="GiveTwo", outputs=[dtype, dtype])(lambda: (result, result))()
    expected = dtype.as_numpy_dtype.type(result)
    async with ax.Session(graph) as session:
        for got in (await session.run(y), *(await session.run(several))):
            assert (type(got), got) == (type(expected), expected)
