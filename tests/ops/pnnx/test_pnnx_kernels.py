"""Kernels of PNNX's operators against what torch gave, in golden files of the converter."""

from __future__ import annotations

import asyncio
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import asyncexec as ax

GOLDEN = Path(__file__).parents[2] / "golden" / "pnnx"
MODELS = sorted(path.stem for path in GOLDEN.glob("*.npz"))


def expected(name: str) -> tuple[list[Any], list[Any]]:
    """The inputs and outputs that torch had."""
    with np.load(GOLDEN / f"{name}.npz") as arrays:
        found = dict(arrays)
    return [[found[key] for key in sorted(found, key=lambda key: int(key[1:])) if key[0] == kind] for kind in "xy"]  # type: ignore[return-value]


async def run(model: Any, inputs: list[Any], **config: Any) -> list[Any]:
    """The outputs of *model*, in order."""
    signature = model.signatures["serving_default"]
    with ax.Graph() as graph:
        ax.import_graph_def(model.graph_def)
    async with ax.Session(graph, ax.SessionConfig(slow_inline_ms=60_000, **config)) as session:
        feeds = {info.name: x for info, x in zip(signature.inputs.values(), inputs, strict=True)}
        fetches = [info.name for info in signature.outputs.values()]
        found: list[Any] = await session.run(fetches, feeds)
        return found


@pytest.mark.parametrize("name", MODELS)
async def test_outputs_are_those_of_torch(name: str) -> None:
    inputs, outputs = expected(name)
    model = await load(name)
    found = await run(model, inputs)
    assert len(found) == len(outputs)
    for number, (ours, theirs) in enumerate(zip(found, outputs, strict=True)):
        assert ours.dtype == theirs.dtype, number
        assert ours.shape == theirs.shape, number
        worst = np.max(np.abs(ours.astype(np.float64) - theirs)) / max(np.max(np.abs(theirs)), 1e-30)
        assert worst < 1e-5, (number, worst)


async def load(name: str) -> Any:
    """The golden model *name*, read on a thread."""
    return await asyncio.to_thread(ax.load_pnnx, GOLDEN / f"{name}.pnnx.param")


@pytest.mark.parametrize("name", ["small", "small_free", "unet", "detect"])
async def test_each_row_of_a_batch_is_as_alone(name: str) -> None:
    (x,), (y,) = expected(name)
    model = await load(name)
    batch = np.concatenate([x, x * 0.5, x])
    ((first, middle, last),) = await run(model, [batch])
    np.testing.assert_allclose(first, y[0], rtol=1e-5, atol=1e-5 * np.abs(y).max())
    np.testing.assert_array_equal(first, last)
    (alone,) = await run(model, [x * 0.5])
    np.testing.assert_allclose(middle, alone[0], rtol=1e-5, atol=1e-5 * np.abs(y).max())


async def test_breadth_first_gives_the_same() -> None:
    (x,), _ = expected("unet")
    model = await load("unet")
    (usual,) = await run(model, [x])
    (ordered,) = await run(model, [x], executor_type="BREADTH_FIRST")
    np.testing.assert_array_equal(usual, ordered)


@pytest.mark.parametrize("op", ["torch.std", "torch.var"])
async def test_of_one_number_there_is_no_deviation_and_nothing_warns(op: str) -> None:
    with ax.Graph() as graph:
        found: Any = ax.create_op(f"Pnnx>{op}", [[ax.constant([1.0])]], {"Tout": [ax.float32]})
    async with ax.Session(graph) as session:
        assert np.isnan(np.ravel(await session.run(found))).all()


@pytest.mark.parametrize(
    ("op", "attrs"),
    [
        ("torch.mean", {"dim": [1]}),
        ("nn.LayerNorm", {"normalized_shape": [0]}),
        ("nn.RMSNorm", {"normalized_shape": [0]}),
    ],
)
async def test_means_of_nothing_do_not_warn(op: str, attrs: dict[str, Any]) -> None:
    with ax.Graph() as graph:
        nothing = ax.constant(np.zeros((2, 0), np.float32))
        found: Any = ax.create_op(f"Pnnx>{op}", [[nothing]], {"Tout": [ax.float32], **attrs})
    async with ax.Session(graph) as session:
        (mean,) = await session.run(found)
    np.testing.assert_array_equal(mean, [np.nan] * 2 if op == "torch.mean" else np.zeros((2, 0)))


@pytest.mark.parametrize("op", ["torch.sqrt", "torch.isnan", "F.tanh", "nn.Tanh"])
async def test_a_second_input_of_what_takes_one_is_refused_and_not_written_to(op: str) -> None:
    with ax.Graph() as graph:
        x, y = ax.placeholder(ax.float32, [2]), ax.placeholder(ax.float32, [2])
        found: Any = ax.create_op(f"Pnnx>{op}", [[x, y]], {"Tout": [ax.float32]})
    given = np.float32([3, 4])
    async with ax.Session(graph) as session:
        with pytest.raises(ax.errors.InvalidArgumentError):
            await session.run(found, {x: np.float32([1, 2]), y: given})
    assert given.tolist() == [3, 4]


async def test_a_cast_to_real_numbers_takes_the_real_part_and_does_not_warn() -> None:
    with ax.Graph() as graph:
        x, other = ax.constant(np.complex64([1 + 2j, 3j])), ax.constant(np.float32([0]))
        found: Any = ax.create_op("Pnnx>Tensor.type_as", [[x, other]], {"Tout": [ax.float32]})
        truths: Any = ax.create_op("Pnnx>Tensor.to", [[x]], {"Tout": [ax.bool], "dtype": "torch.bool"})
    async with ax.Session(graph) as session:
        (real,), (true,) = await session.run((found, truths))
    assert real.tolist() == [1, 0]
    assert true.tolist() == [True, True]


@pytest.mark.parametrize("shape", [[1j], [0.5], [math.nan], [math.inf], [True]])
async def test_a_shape_is_of_integers(shape: list[Any]) -> None:
    with ax.Graph() as graph:
        inputs = [ax.constant([1.0]), ax.constant(shape)]
        found: Any = ax.create_op("Pnnx>Tensor.reshape", [inputs], {"Tout": [ax.float32]})
    async with ax.Session(graph) as session:
        with pytest.raises(ax.errors.InvalidArgumentError, match="not of integers"):
            await session.run(found)


@pytest.mark.parametrize(("shape", "expected"), [([], ()), ([1.0, -1.0], (1, 1))])
async def test_a_shape_may_be_empty_or_computed_by_floor(shape: list[Any], expected: tuple[int, ...]) -> None:
    with ax.Graph() as graph:
        inputs = [ax.constant([1.0]), ax.constant(np.array(shape))]
        found: Any = ax.create_op("Pnnx>Tensor.reshape", [inputs], {"Tout": [ax.float32]})
    async with ax.Session(graph) as session:
        assert np.shape(await session.run(found[0])) == expected
