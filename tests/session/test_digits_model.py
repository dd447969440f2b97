"""The frozen digits model: TensorFlow's probabilities and classes for all 450 images."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import asyncexec as ax

DATA = Path(ax.__file__).parent / "cli" / "demo_data"


@pytest.fixture(scope="module")
def data() -> dict[str, np.ndarray]:
    with np.load(DATA / "test.npz", allow_pickle=False) as stored:
        return dict(stored)


@pytest.fixture(scope="module")
def graph() -> ax.Graph:
    with ax.Graph() as graph:
        ax.import_graph_def(ax.load_graph_def(DATA / "model.pb"))
    return graph


@pytest.mark.parametrize("batch", [1, 7, 450])
async def test_digits_are_classified_as_by_tensorflow(graph: ax.Graph, data: dict[str, np.ndarray], batch: int) -> None:
    async with ax.Session(graph) as session:
        call = session.make_callable(["probabilities:0", "classes:0"], ["images:0"])
        for begin in range(0, 450 if batch > 1 else 20, batch):
            part = slice(begin, begin + batch)
            probabilities, classes = await call(data["images"][part])
            assert probabilities.dtype == np.float32
            np.testing.assert_allclose(probabilities, data["tf_probabilities"][part], rtol=0, atol=1e-5)
            np.testing.assert_array_equal(classes, data["tf_classes"][part], strict=True)


def test_accuracy(data: dict[str, np.ndarray], graph: ax.Graph) -> None:
    with ax.BlockingSession(graph) as session:
        classes = session.run("classes:0", {"images:0": data["images"]})
    assert round(float((classes == data["labels"]).mean()), 3) == 0.991
