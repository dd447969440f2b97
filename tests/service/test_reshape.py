"""``reshape`` of a config: clients see other shapes than the graph has."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import asyncexec as ax
from asyncexec.service.requests import InferRequest, InferTensor
from tests.service.models import model_of

INVALID = ax.errors.InvalidArgumentError


def identity(shape: Any) -> ax.Graph:
    with ax.Graph() as graph:
        ax.identity(ax.placeholder(ax.float32, shape, name="x"), name="y")
    return graph


def described(name: str, dims: list[int], reshape: list[int] | None) -> dict[str, Any]:
    found: dict[str, Any] = {"name": name, "data_type": "TYPE_FP32", "dims": dims}
    return found if reshape is None else {**found, "reshape": {"shape": reshape}}


@pytest.mark.parametrize("scheduling", [{}, {"dynamic_batching": {}}])
@pytest.mark.parametrize(
    ("inner", "batch", "taken", "given", "sent", "got"),
    [
        ([None, 6], 4, ([2, 3], [6]), ([3, 2], [6]), (2, 2, 3), (2, 3, 2)),
        ([None], 4, ([1], []), ([1, 1], []), (3, 1), (3, 1, 1)),
        ([None, None, 2], 4, ([-1, 2, 1], [-1, 2]), ([1, -1, 2], [-1, 2]), (1, 5, 2, 1), (1, 1, 5, 2)),
        ([6], 0, ([2, 3], [6]), ([6], None), (2, 3), (6,)),
    ],
)
async def test_clients_see_other_shapes(
    inner: Any, batch: int, taken: Any, given: Any, sent: Any, got: Any, scheduling: dict[str, Any]
) -> None:
    fields = {"input": [described("x", *taken)], "output": [described("y", *given)]}
    model = model_of(identity(inner), max_batch_size=batch, **fields, **scheduling)
    array = np.arange(np.prod(sent), dtype=np.float32)
    found = await model.infer(InferRequest("m", {"x": InferTensor("FP32", array.reshape(sent))}))
    assert found.outputs["y"].array.shape == got
    assert found.outputs["y"].array.ravel().tolist() == array.tolist()
    assert model.signature.inputs["x"].described_shape == [*([-1] if batch else []), *taken[0]]
    await model.close()


@pytest.mark.parametrize(
    ("dims", "reshape", "told"),
    [
        ([2, 3], [5], "has the dims [2, 3] in its config, and 'reshape' [5]"),
        ([-1, 2], [2, -1], "'reshape' [2, -1]"),
        ([-1], [3], "'reshape' [3]"),
        ([], [1], "'reshape' [1]"),
        ([7], [7, 1], "has the shape [6], and its config says [7, 1]"),
    ],
)
def test_what_cannot_be_reshaped_is_refused(dims: list[int], reshape: list[int], told: str) -> None:
    with pytest.raises(INVALID) as raised:
        model_of(identity([6]), input=[described("x", dims, reshape)])
    assert told in raised.value.message


async def test_an_output_of_another_shape_is_an_error_of_the_model() -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, None, name="x")
        ax.identity(x, name="y")
    model = model_of(graph, output=[described("y", [2, 3], [6])])
    with pytest.raises(ax.errors.InternalError, match=r"output 'y' has the shape \[5\], and its config says \[6\]"):
        await model.infer(InferRequest("m", {"x": InferTensor("FP32", np.zeros(5, np.float32))}))
    await model.close()
