"""What an op's annotation says of its results, and what is said where one that says nothing meets a typed op."""

from __future__ import annotations

import typing
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import asyncexec as ax
from asyncexec.framework.errors import InvalidTypeError


@pytest.mark.parametrize(
    ("annotation", "dtypes"),
    [
        (NDArray[np.float32], ["float32"]),
        (np.ndarray[tuple[int], np.dtype[np.bool_]], ["bool"]),
        (tuple[NDArray[np.int8], str], ["int8", "string"]),
        (NDArray[np.floating[Any]], ["object"]),
        (NDArray[np.integer], ["object"]),
        (NDArray[np.str_], ["object"]),
        (NDArray[Any], ["object"]),
        (np.ndarray, ["object"]),
        (np.ndarray[int], ["object"]),
    ],
    ids=str,
)
def test_annotation_of_an_array_declares_its_dtype(annotation: Any, dtypes: list[str]) -> None:
    def give(x: Any) -> Any:
        return x

    give.__annotations__["return"] = annotation
    with ax.Graph():
        result = ax.op(give)(1.0)
    found = result if isinstance(result, list) else [result]
    assert [tensor.dtype.name for tensor in found] == dtypes


async def test_array_of_the_declared_dtype() -> None:
    @ax.op
    def halves(x: NDArray[np.float32]) -> NDArray[np.float32]:
        return x / np.float32(2)

    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [None], name="x")
        y = halves(x) + 1.0
    async with ax.Session(graph) as session:
        got = await session.run(y, {x: [1.0, 3.0]})
    np.testing.assert_array_equal(got, np.array([1.5, 2.5], np.float32), strict=True)


@ax.op
def unsaid(x: Any) -> Any:
    return x


@pytest.mark.parametrize(
    ("use", "said"),
    [
        (lambda thing: thing + 1.0, "'unsaid:0' is an object, but argument 'x' of AddV2 takes float32"),
        (lambda thing: 1.0 - thing, "'unsaid:0' is an object, but argument 'y' of Sub takes"),
        (lambda thing: ax.add_n([ax.constant(1.0), thing]), "'unsaid:0' is an object, but argument 'inputs' of AddN"),
        (lambda thing: ax.logical_not(thing), "'unsaid:0' is an object, but argument 'x' of LogicalNot takes bool"),
        (lambda thing: ax.reshape(ax.constant([1.0]), thing), "'unsaid:0' is an object, but argument 'shape' of"),
    ],
)
def test_object_that_meets_a_typed_op_is_its_producers_fault(use: Callable[[ax.Tensor], Any], said: str) -> None:
    with ax.Graph(), pytest.raises(InvalidTypeError) as caught:
        use(unsaid(2.0))
    assert said in str(caught.value)
    assert caught.value.node == "unsaid"
    assert "@ax.op(outputs=[ax.float32])" in (caught.value.hint or "")
    assert f"{__file__}:" in (caught.value.user_line or "")


def test_object_as_a_predicate() -> None:
    with ax.Graph(), pytest.raises(InvalidTypeError) as caught:
        ax.cond(unsaid(2.0), lambda: 1, lambda: 2)
    assert "outputs=[ax.bool]" in (caught.value.hint or "")


def test_object_placeholder_that_meets_a_typed_op() -> None:
    with ax.Graph(), pytest.raises(InvalidTypeError) as caught:
        ax.placeholder(ax.object, [], name="x") * 2.0
    assert (caught.value.node, caught.value.hint) == ("x", "declare a dtype where it is made")


@pytest.mark.skipif(not hasattr(typing, "TypeAliasType"), reason="aliases of type statements are of Python 3.12")
async def test_aliases_of_type_statements_are_written_out() -> None:
    alias: Any = typing.TypeAliasType  # type: ignore[attr-defined]  # of Python 3.12
    item = typing.TypeVar("item", bound=np.generic)
    text, pair = alias("text", str), alias("pair", tuple[np.ndarray[Any, np.dtype[item]], str], type_params=(item,))

    def first(x: Any, y: Any) -> Any:
        assert isinstance(x, str)
        assert all(isinstance(each, str) for each in y)
        return np.float32([1.0]), x

    first.__annotations__ = {"x": text, "y": list[text], "return": pair[np.float32]}
    with ax.Graph() as graph:
        number, given = ax.op(first)(b"a", ax.constant([b"b", b"c"]))
    assert (number.dtype, given.dtype) == (ax.float32, ax.string)
    async with ax.Session(graph) as session:
        assert await session.run(given) == "a"
