"""Clusters of a session with a memory limit: who runs them, and how much they are reckoned to take."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import asyncexec as ax
from asyncexec.compilation.onnx_memory import ClusterMemory
from asyncexec.process.onnx_session import OnnxSession

pytestmark = pytest.mark.ort
pytest.importorskip("onnxruntime")
pytest.importorskip("onnx")

raw = ax.raw_ops
N = 256
W = np.random.default_rng(0).normal(size=(N, N)).astype(np.float32) / 16
ROWS = 4 * N  # bytes of a row of float32


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Calls of ONNX Runtime, as they come."""
    found: list[str] = []
    run = OnnxSession.run

    def run_noting(self: OnnxSession, *args: Any) -> Any:
        found.append("onnx")
        return run(self, *args)

    monkeypatch.setattr(OnnxSession, "run", run_noting)
    return found


@pytest.fixture
def peaks(monkeypatch: pytest.MonkeyPatch) -> list[int | None]:
    """What calls are reckoned to take."""
    found: list[int | None] = []
    num_bytes = ClusterMemory.num_bytes

    def noting(self: ClusterMemory, inputs: Any) -> int | None:
        found.append(num_bytes(self, inputs))
        return found[-1]

    monkeypatch.setattr(ClusterMemory, "num_bytes", noting)
    return found


def layers(x: ax.Tensor) -> ax.Tensor:
    for count in range(3):
        x = ax.matmul(raw.Relu(x), ax.constant(W), name=f"product_{count}")
    return x


def reshaped(x: ax.Tensor) -> ax.Tensor:
    """As Keras writes it: the sizes are a Pack of an element of a Shape, and constants."""
    shape = raw.Shape(x)
    size = raw.StridedSlice(shape, [0], [1], [1], shrink_axis_mask=1)
    halves = raw.Reshape(x, raw.Pack([size, 2, N // 2]))
    return ax.matmul(raw.Reshape(halves, raw.Pack([size, N])), ax.constant(W))


def sized_by_an_input(x: ax.Tensor) -> ax.Tensor:
    sizes = raw.PlaceholderWithDefault(np.array([-1, N], np.int32), shape=[2])
    return ax.matmul(raw.Reshape(x, sizes), ax.constant(W))


def graph_of(build: Callable[[ax.Tensor], ax.Tensor]) -> tuple[ax.Graph, ax.Tensor, ax.Tensor]:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [None, N])
        y = build(x)
    return graph, x, y


@pytest.mark.allow_blocking
@pytest.mark.one_of("loop")
@pytest.mark.parametrize(
    ("build", "expected"),
    # An output beside the one before, which is freed afterwards, and itself in another layout.
    [(layers, 3 * ROWS), (reshaped, 3 * ROWS), (sized_by_an_input, None)],
)
async def test_a_call_is_reckoned_by_what_it_has_at_a_time(
    build: Any, expected: int | None, calls: list[str], peaks: list[int | None]
) -> None:
    graph, x, y = graph_of(build)
    given = np.random.default_rng(1).normal(size=(8, N)).astype(np.float32)
    async with ax.Session(graph, ax.SessionConfig(jit="off")) as session:
        wanted = await session.run(y, {x: given})
    async with ax.Session(graph, ax.SessionConfig(jit="onnxruntime", memory_limit=2**30)) as session:
        np.testing.assert_allclose(await session.run(y, {x: given}), wanted, rtol=1e-4, atol=1e-4)
    if expected is None:
        assert (calls, peaks) == ([], [None])
    else:
        assert calls == ["onnx"]
        assert peaks[0] is not None
        assert peaks[0] == pytest.approx(8 * expected, rel=0.05)  # and some integers


@pytest.mark.allow_blocking
@pytest.mark.one_of("loop")
@pytest.mark.parametrize("num_rows", [64, 256])
async def test_where_there_is_no_room_the_error_names_the_node(num_rows: int, calls: list[str]) -> None:
    graph, x, y = graph_of(layers)
    limit = 200 * ROWS  # room for three arrays of 64 rows, and not for one of 256
    async with ax.Session(graph, ax.SessionConfig(jit="onnxruntime", memory_limit=limit)) as session:
        if num_rows == 64:
            await session.run(y, {x: np.ones((num_rows, N), np.float32)})
            assert calls == ["onnx"]
            return
        with pytest.raises(ax.errors.ResourceExhaustedError, match="memory_limit") as raised:
            await session.run(y, {x: np.ones((num_rows, N), np.float32)})
    assert raised.value.node == "Relu"
    assert calls == []


@pytest.mark.one_of("loop")
async def test_auto_makes_clusters_within_a_limit() -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [128, N])
        y = layers(x)
    async with ax.Session(graph, ax.SessionConfig(memory_limit=2**30)) as session:
        metadata = ax.RunMetadata()
        await session.run(y, {x: np.ones((128, N), np.float32)}, metadata=metadata)
    assert [each for each in metadata.passes if each.name == "onnx_clusters"]
