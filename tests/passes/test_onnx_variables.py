"""Variables as constants of the models of clusters: which are, and that results are right when they are written."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import asyncexec as ax
from asyncexec.compilation import onnx_kernel
from asyncexec.process.onnx_model import OnnxModel
from asyncexec.process.onnx_session import OnnxSession, load

pytestmark = pytest.mark.ort
pytest.importorskip("onnxruntime")
pytest.importorskip("onnx")

raw = ax.raw_ops
X = np.random.default_rng(0).normal(size=(4, 5)).astype(np.float32)
W = np.random.default_rng(1).normal(size=(5, 5)).astype(np.float32)


@pytest.fixture
def loaded(monkeypatch: pytest.MonkeyPatch) -> list[OnnxModel]:
    """The models that are loaded."""
    found: list[OnnxModel] = []

    def load_noting(model: OnnxModel) -> OnnxSession:
        found.append(model)
        return load(model)

    defaults = {"clock": onnx_kernel.CLOCK, "load": load_noting}
    monkeypatch.setattr(onnx_kernel.OnnxKernel.__init__, "__kwdefaults__", defaults)
    return found


def resource(shape: Sequence[int]) -> tuple[ax.Tensor, ax.Tensor]:
    """A variable, and what is read of it, whose shape the graph tells, as in a SavedModel."""
    handle = raw.VarHandleOp(dtype=ax.float32, shape=list(shape), shared_name="w")
    read = raw.ReadVariableOp(handle, dtype=ax.float32)
    read.set_shape(list(shape))
    return handle, read


def reference(shape: Sequence[int]) -> tuple[ax.Tensor, ax.Tensor]:
    variable = raw.VariableV2(shape=list(shape), dtype=ax.float32, shared_name="w")
    return variable, raw.Identity(variable)


def assign(variable: ax.Tensor, value: Any) -> Any:
    if variable.dtype is ax.resource:
        return raw.AssignVariableOp(variable, value, dtype=ax.float32)
    return raw.Assign(variable, value)


FORCED = ax.SessionConfig(jit="onnxruntime")


@pytest.mark.allow_blocking
@pytest.mark.one_of("loop")
@pytest.mark.parametrize("make", [resource, reference])
async def test_what_nothing_writes_is_a_constant_and_what_is_written_is_right(
    make: Any, loaded: list[OnnxModel]
) -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [None, 5])
        value = ax.placeholder(ax.float32, [5, 5])
        variable, read = make((5, 5))
        y = ax.matmul(ax.relu(ax.matmul(x, read)), read)
        written = assign(variable, value)
    async with ax.Session(graph, FORCED) as session:
        for factor in (1, 2, 3):
            w = factor * W
            await session.run([], {value: w}, targets=[written])
            for _ in range(4):
                np.testing.assert_allclose(await session.run(y, {x: X}), np.maximum(X @ w, 0) @ w, rtol=1e-4, atol=1e-5)
    assert [len(model.inputs) for model in loaded] == [1] * 3
    for model, factor in zip(loaded, (1, 2, 3), strict=True):
        assert any(np.array_equal(array, factor * W) for array in model.constants.values())


@pytest.mark.allow_blocking
@pytest.mark.one_of("loop")
@pytest.mark.parametrize("make", [resource, reference])
async def test_what_the_signature_writes_is_an_input(make: Any, loaded: list[OnnxModel]) -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [None, 5])
        value = ax.placeholder(ax.float32, [5, 5])
        variable, read = make((5, 5))
        start = assign(variable, ax.constant(W))
        y = ax.matmul(x, read)
        with ax.control_dependencies([y]):
            written = assign(variable, value)
    async with ax.Session(graph, FORCED) as session:
        await session.run([], targets=[start])
        for factor in (2, 3):
            found = await session.run(y, {x: X, value: factor * W}, targets=[written])
            np.testing.assert_allclose(found, X @ W * (factor - 1), rtol=1e-5, atol=1e-5)
    assert [len(model.inputs) for model in loaded] == [2]


@pytest.mark.allow_blocking
@pytest.mark.one_of("loop")
async def test_a_filter_that_has_to_be_known_may_be_a_variable(loaded: list[OnnxModel]) -> None:
    filters = np.random.default_rng(2).normal(size=(3, 3, 2, 1)).astype(np.float32)
    image = np.random.default_rng(3).normal(size=(1, 8, 8, 2)).astype(np.float32)
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [None, 8, 8, 2])
        variable, read = resource((3, 3, 2, 1))
        y = raw.DepthwiseConv2dNative(x, read, strides=[1, 1, 1, 1], padding="SAME")
        written = assign(variable, ax.constant(filters))
    async with ax.Session(graph, ax.SessionConfig(jit="off")) as session:
        await session.run([], targets=[written])
        wanted = await session.run(y, {x: image})
    async with ax.Session(graph, FORCED) as session:
        await session.run([], targets=[written])
        np.testing.assert_allclose(await session.run(y, {x: image}), wanted, rtol=1e-5, atol=1e-5)
    assert len(loaded) == 1


@pytest.mark.allow_blocking
@pytest.mark.one_of("loop")
async def test_a_value_of_another_shape_than_declared_runs_by_our_kernels(loaded: list[OnnxModel]) -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [None, None])
        handle, read = resource((5, 5))
        y = ax.matmul(x, read)
        value = ax.placeholder(ax.float32, [None, None])
        written = raw.AssignVariableOp(handle, value, dtype=ax.float32)
    async with ax.Session(graph, FORCED) as session:
        await session.run([], {value: W[:3, :2]}, targets=[written])
        np.testing.assert_allclose(await session.run(y, {x: X[:, :3]}), X[:, :3] @ W[:3, :2], rtol=1e-5)
    assert not loaded


@pytest.mark.allow_blocking
@pytest.mark.one_of("loop")
async def test_values_that_always_change_are_rarely_loaded(loaded: list[OnnxModel]) -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [None, 5])
        variable, read = resource((5, 5))
        y = ax.matmul(x, read)
        value = ax.placeholder(ax.float32, [5, 5])
        written = assign(variable, value)
    async with ax.Session(graph, FORCED) as session:
        for factor in range(1, 20):
            await session.run([], {value: factor * W}, targets=[written])
            np.testing.assert_allclose(await session.run(y, {x: X}), factor * (X @ W), rtol=1e-5, atol=1e-4)
    assert len(loaded) == 1


@pytest.mark.one_of("loop")
async def test_a_model_is_loaded_beside_calls_by_our_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    loop, started, may_load, threads = asyncio.get_running_loop(), asyncio.Event(), threading.Event(), []

    def load_late(model: OnnxModel) -> OnnxSession:
        threads.append(threading.current_thread())
        loop.call_soon_threadsafe(started.set)
        may_load.wait()
        return load(model)

    defaults = {"clock": onnx_kernel.CLOCK, "load": load_late}
    monkeypatch.setattr(onnx_kernel.OnnxKernel.__init__, "__kwdefaults__", defaults)
    weights = np.eye(512, dtype=np.float32)
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [64, 512])
        variable, read = resource((512, 512))
        y = ax.matmul(x, read)
        value = ax.placeholder(ax.float32, [512, 512])
        written = assign(variable, value)
    given = np.ones((64, 512), np.float32)
    async with ax.Session(graph) as session:
        await session.run([], {value: weights}, targets=[written])
        np.testing.assert_array_equal(await session.run(y, {x: given}), given)
        await started.wait()
        await session.run([], {value: 2 * weights}, targets=[written])  # while the model of the former is loaded
        np.testing.assert_array_equal(await session.run(y, {x: given}), 2 * given)
        may_load.set()
        await asyncio.to_thread(threads[0].join)
        for _ in range(4):
            np.testing.assert_array_equal(await session.run(y, {x: given}), 2 * given)
        for thread in threads:
            await asyncio.to_thread(thread.join)
        np.testing.assert_array_equal(await session.run(y, {x: given}), 2 * given)
    assert len(threads) == 2
