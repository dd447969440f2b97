"""Values as tensors and through ``@ax.op``: what is refused, by which error; constants keep their values."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import asyncexec as ax
from asyncexec.cli.app import app
from asyncexec.framework.errors import InternalError, InvalidArgumentError, InvalidTypeError, ResourceExhaustedError
from asyncexec.session.fetch_mapper import structure_key
from tests.running import import_all_names


@pytest.fixture(autouse=True)
def graph() -> Iterator[ax.Graph]:
    import_all_names()
    with ax.Graph() as graph:
        yield graph


async def run(fetch: Any) -> Any:
    async with ax.Session(fetch.graph) as session:
        return await session.run(fetch)


def deep() -> Any:
    value: Any = 1.0
    for _ in range(1000):
        value = [value]
    return value


def endless(*before: Any) -> list[Any]:
    value = list(before)
    value.append(value)
    return value


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({1: "z"}, {True: "z"}),
        ({(1,): "z"}, {(True,): "z"}),
        (defaultdict[str, Any](int, a="z"), defaultdict[str, Any](list, a="z")),
    ],
)
def test_unlike_nests_have_unlike_keys(one: Any, other: Any) -> None:
    assert structure_key(one) != structure_key(other)
    assert structure_key(one) == structure_key(one.copy())


@pytest.mark.parametrize("is_broadcast", [False, True])
async def test_a_constant_shares_no_memory_with_an_array_that_can_change(is_broadcast: bool) -> None:
    base = np.array([1.0, 2.0], np.float32)
    view = np.broadcast_to(base, (2, 2)) if is_broadcast else base[:]
    view.flags.writeable = False
    constant = ax.constant(view)
    base[:] = 9
    assert (await run(constant)).ravel()[:2].tolist() == [1, 2]


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda: ax.constant([9, 200], dtype=ax.int4), InvalidArgumentError),
        (lambda: ax.constant([-1], dtype=ax.uint4), InvalidArgumentError),
        (lambda: ax.constant("\ud800"), InvalidArgumentError),
        (lambda: ax.constant(1.0, shape=[2**31, 2**31]), ResourceExhaustedError),
        (lambda: ax.constant(deep()), InvalidArgumentError),
        (lambda: ax.create_op("Neg", [deep()]), InvalidArgumentError),
        (lambda: ax.constant(endless()), InvalidArgumentError),
        (lambda: ax.constant(endless(1.0)), InvalidArgumentError),
        (lambda: ax.constant(endless("a")), InvalidArgumentError),
        (lambda: ax.create_op("Neg", [endless(1.0)]), InvalidArgumentError),
        (lambda: ax.constant(1.0, name=3), InvalidTypeError),  # type: ignore[arg-type]
        (lambda: ax.create_op("Add", None), InvalidTypeError),  # type: ignore[arg-type]
        (lambda: ax.create_op(3, []), InvalidTypeError),  # type: ignore[arg-type]
        (lambda: ax.constant(10**400, dtype=ax.float32), InvalidArgumentError),
        (lambda: ax.constant([np.zeros(2), np.zeros((2, 0))], dtype=ax.string), InvalidArgumentError),
        (lambda: ax.constant(np.zeros(0, np.complex64), dtype=ax.int32), InvalidTypeError),
    ],
)
def test_what_makes_no_tensor(make: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        make()


async def test_large_integers_as_floats() -> None:
    assert await run(ax.constant(2**70, dtype=ax.float64)) == 2.0**70


@pytest.mark.parametrize("wrap", [lambda x: {"a": x}, lambda x: [{"a": x}]])
def test_a_tensor_inside_a_dict_is_refused(wrap: Any) -> None:
    with pytest.raises(InvalidTypeError, match="pass tensors as arguments, or in a list"):
        ax.op(lambda value: value)(wrap(ax.constant(1)))


async def test_text_in_optional_and_list_parameters() -> None:
    @ax.op(outputs=[ax.object])
    def given(a: str | None, b: list[str]) -> Any:
        return a, b

    assert await run(given(ax.constant("t"), ax.constant(["x", "y"]))) == ("t", ["x", "y"])


@pytest.mark.parametrize("result", [np.ma.masked_array([1.0, 2.0]), np.array([1.0, 2.0], ">f8")])
async def test_unusual_arrays_become_plain_ones(result: Any) -> None:
    got = await run(ax.op(outputs=[ax.float64])(lambda x: result)(ax.constant(1)))
    assert type(got) is np.ndarray
    assert got.dtype.isnative
    assert got.tolist() == [1, 2]


@pytest.mark.parametrize(
    ("result", "message"), [(np.ones(3), r"gave shape \[3\], but \[2\]"), ((1.0, 2.0), "gave a tuple of 2")]
)
async def test_results_are_held_against_what_is_declared(result: Any, message: str) -> None:
    with pytest.raises(InternalError, match=message):
        await run(ax.op(outputs=[ax.float64], shapes=[[2]])(lambda x: result)(ax.constant(1)))


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ("--fetch same --feed i=3000000000", 2, "does not fit int32"),
        ("--fetch same --feed i=1 --feed i:0=2", 2, "is fed twice"),
        ("--fetch half --device-count CPU=1025", 2, "1024 devices"),
        ("--fetch half --output no/such/out.npz", 2, "there is no folder"),
        ("--fetch nul --output {}/o.npz", 1, "nul:0 cannot be stored"),
        ("--fetch half --output {}/o.npz", 0, "bfloat16"),
        ("--fetch handle", 0, "resource"),
    ],
)
def test_command_line(graph: ax.Graph, tmp_path: Path, arguments: str, code: int, message: str) -> None:
    ax.identity(ax.placeholder(ax.int32, [], name="i"), name="same")
    ax.constant(b"a\0", name="nul")
    ax.cast(ax.constant([1.5]), ax.bfloat16, name="half")
    ax.create_op("VarHandleOp", [], {"dtype": ax.float32, "shape": []}, name="handle")
    ax.save_graph_def(graph.as_graph_def(), tmp_path / "g.json")
    result = CliRunner().invoke(app, ["run", str(tmp_path / "g.json"), *arguments.format(tmp_path).split()])
    assert result.exit_code == code, result.output
    words = " ".join(result.output.replace("│", " ").split())
    assert message in words
    if message == "bfloat16":
        assert np.load(tmp_path / "o.npz")["half:0"].dtype == np.float32
