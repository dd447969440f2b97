"""GELU and layer normalization, written as many nodes, become one; what comes of it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import special

import asyncexec as ax
from asyncexec.frontend.calls import tensor_op
from asyncexec.session import library_passes

N = 12
X = np.random.default_rng(0).normal(size=(2, 5, N)).astype(np.float32) * 3
ROOT = np.float32(math.sqrt(0.5))
pytestmark = pytest.mark.usefixtures("no_onnx_runtime")
ops = ax.raw_ops


@pytest.fixture
def no_onnx_runtime(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library_passes, "has_onnx_runtime", lambda: False)


def row(seed: int, *shape: int) -> Any:
    return ax.constant(np.random.default_rng(seed).uniform(0.5, 1, shape or (N,)).astype(np.float32))


def number(value: float) -> Any:
    return ax.constant(np.float32(value))


async def ops_of(graph: ax.Graph, fetches: Any, feeds: Any, **config: Any) -> list[str]:
    """The ops that run, none of them constants or feeds; what they give is what all of the nodes give."""
    async with ax.Session(graph, ax.SessionConfig(jit="off")) as session:
        wanted = await session.run(fetches, feeds)
    async with ax.Session(graph, ax.SessionConfig(**config)) as session:
        metadata, options = ax.RunMetadata(), ax.RunOptions(output_pass_graphs=True)
        got = await session.run(fetches, feeds, metadata=metadata, options=options)
    for one, other in zip(got, wanted, strict=True):
        assert one.shape == other.shape
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=2e-6)
    nodes = [node for each in metadata.passes if each.name == "fuse_layers" and each.graph for node in each.graph.node]
    return sorted(node.op for node in nodes if node.op not in ("Const", "Placeholder"))


def by_complement(x: Any) -> Any:  # of Keras
    return ops.Mul(ops.Mul(number(0.5), x), ops.Erfc(ops.Mul(ops.Neg(x), number(ROOT))))


def by_erf(x: Any) -> Any:  # of TensorFlow
    return number(0.5) * x * (number(1) + ops.Erf(ops.RealDiv(x, number(math.sqrt(2)))))


def by_distribution(x: Any) -> Any:  # of the models of Hugging Face
    return x * (number(0.5) * (number(1) + ops.Erf(x * number(ROOT))))


def by_tanh(x: Any) -> Any:
    cubic = number(math.sqrt(2 / math.pi)) * (x + number(0.044715) * ops.Pow(x, number(3)))
    return number(0.5) * x * (number(1) + ops.Tanh(cubic))


@pytest.mark.parametrize("gelu", [by_complement, by_erf, by_distribution, by_tanh])
@pytest.mark.parametrize("shape", [(2, 5, N), (), (0, N)])
async def test_a_gelu_becomes_one_node(gelu: Callable[[Any], Any], shape: tuple[int, ...]) -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, shape)
        y = ops.Neg(gelu(x))
    assert await ops_of(graph, [y], {x: np.resize(X, shape)}) == ["Neg", "_FusedGelu"]


async def test_gelus_are_those_of_the_normal_distribution() -> None:
    values = np.concatenate([np.linspace(-12, 12, 70_001), [0, -0.0, 1e-30, -1e-30, 1e5, -1e5, np.inf]])
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [None])
        exact, approximate = by_complement(x), by_tanh(x)
    async with ax.Session(graph) as session:
        got = await session.run([exact, approximate], {x: values})
    x32 = values.astype(np.float32).astype(np.float64)
    inner = np.sqrt(2 / np.pi) * (x32 + 0.044715 * x32**3)
    for one, wanted in zip(got, (x32 * special.ndtr(x32), 0.5 * x32 * (1 + np.tanh(inner))), strict=True):
        np.testing.assert_allclose(one, wanted, rtol=2e-7, atol=3e-7)


async def test_gelus_of_what_is_no_number_are_none() -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [None])
        y = by_complement(x)
    async with ax.Session(graph) as session:
        assert np.isnan(await session.run(y, {x: [np.nan, -np.inf]})).all()


def of_keras(x: Any, epsilon: float = 1e-6) -> Any:
    mean = ops.Mean(x, ax.constant([-1]), keep_dims=True)
    difference = ops.SquaredDifference(x, ops.StopGradient(mean))
    variance = ops.Mean(difference, ax.constant([-1]), keep_dims=True)
    factor = ops.Rsqrt(ops.AddV2(variance, number(epsilon))) * ops.Reshape(row(1), ax.constant([1, 1, N]))
    return x * factor + (ops.Neg(mean) * factor + ops.Reshape(row(2), ax.constant([1, 1, N])))


def of_tensorflow(x: Any) -> Any:
    mean = ops.Mean(x, ax.constant([2]), keep_dims=True)
    variance = ops.Mean(ops.SquaredDifference(x, mean), ax.constant([2]), keep_dims=True)
    factor = ops.Rsqrt(number(1e-3) + variance) * row(1)
    return x * factor + (row(2) - mean * factor)


@pytest.mark.parametrize("normalize", [of_keras, of_tensorflow])
async def test_a_layer_normalization_becomes_one_node(normalize: Callable[[Any], Any]) -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [None, 5, N])
        y = ops.Neg(normalize(x))
    assert await ops_of(graph, [y], {x: X}) == ["Neg", "_FusedLayerNorm"]
    assert await ops_of(graph, [y], {x: X[:0]}) == ["Neg", "_FusedLayerNorm"]


async def test_many_rows_are_normalized_as_one_is() -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [None, 5, N])
        y = of_keras(x)
    many = np.random.default_rng(1).normal(3, 2, size=(4000, 5, N)).astype(np.float32)
    async with ax.Session(graph) as session:
        got = await session.run(y, {x: many})
    wide = many.astype(np.float64)
    centred = wide - wide.mean(-1, keepdims=True)
    scale, offset = (np.random.default_rng(seed).uniform(0.5, 1, N).astype(np.float32) for seed in (1, 2))
    wanted = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-6) * scale + offset
    np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-5)


async def test_a_layer_that_is_fetched_keeps_its_name() -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [None, 5, N])
        y = by_erf(of_keras(x))
    assert await ops_of(graph, [y], {x: X}) == ["_FusedGelu", "_FusedLayerNorm"]


async def test_what_others_take_stays() -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [None, 5, N])
        y = of_keras(x)
    mean = graph.operation("Mean").outputs[0]
    assert sorted(await ops_of(graph, [y, mean], {x: X})) == ["Mean", "_FusedLayerNorm"]


def other_half(x: Any) -> Any:
    return number(0.4) * x * (number(1) + ops.Erf(x * number(ROOT)))


def other_root(x: Any) -> Any:
    return number(0.5) * x * ops.Erfc(x * number(ROOT))


def of_another(x: Any) -> Any:
    return number(0.5) * x * (number(1) + ops.Erf(ops.Neg(x) * number(ROOT)))


def of_many(x: Any) -> Any:
    return row(3) * x * (number(1) + ops.Erf(x * number(ROOT)))


def without_last_axis(x: Any) -> Any:
    mean = ops.Mean(x, ax.constant([1]), keep_dims=True)
    variance = ops.Mean(ops.SquaredDifference(x, mean), ax.constant([1]), keep_dims=True)
    factor = ops.Rsqrt(number(1e-3) + variance) * row(1)
    return x * factor + (row(2) - mean * factor)


def of_another_mean(x: Any) -> Any:
    mean = ops.Mean(x, ax.constant([2]), keep_dims=True)
    variance = ops.Mean(ops.SquaredDifference(x, ops.Neg(mean)), ax.constant([2]), keep_dims=True)
    factor = ops.Rsqrt(number(1e-3) + variance) * row(1)
    return x * factor + (row(2) - mean * factor)


def by_rows(x: Any) -> Any:
    mean = ops.Mean(x, ax.constant([2]), keep_dims=True)
    variance = ops.Mean(ops.SquaredDifference(x, mean), ax.constant([2]), keep_dims=True)
    factor = ops.Rsqrt(number(1e-3) + variance) * row(1, 5, 1)
    return x * factor + (row(2) - mean * factor)


@pytest.mark.parametrize(
    "build", [other_half, other_root, of_another, of_many, without_last_axis, of_another_mean, by_rows]
)
async def test_what_is_something_else_stays(build: Callable[[Any], Any]) -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [None, 5, N])
        y = ops.Neg(build(x))
    assert not [op for op in await ops_of(graph, [y], {x: X}) if op.startswith("_Fused")]


async def test_doubles_stay() -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float64, [None])
        y = ax.constant(0.5, ax.float64) * x * ops.Erfc(ops.Neg(x) * ax.constant(math.sqrt(0.5), ax.float64))
    assert await ops_of(graph, [y], {x: np.arange(3.0)}) == []


async def test_a_fed_value_counts() -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [3])
        complement = ops.Erfc(ops.Neg(x) * number(ROOT))
        y = number(0.5) * x * complement
    feeds = {x: np.ones(3, np.float32), complement: np.full(3, 7, np.float32)}
    assert "_FusedGelu" not in await ops_of(graph, [y], feeds)


@pytest.mark.parametrize("config", [{"jit": "off"}, {"debug": True}, {"schedule_seed": 1}, {"memory_limit": 2**30}])
async def test_results_are_the_same_to_the_bit_where_that_is_promised(config: dict[str, Any]) -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [None, 5, N])
        y = by_erf(of_keras(x))
    assert await ops_of(graph, [y], {x: X}, **config) == []


async def test_scale_and_offset_have_a_number_for_each_column() -> None:
    with ax.Graph() as graph:
        x, scale = ax.placeholder(ax.float32), ax.placeholder(ax.float32)
        y = tensor_op("_FusedLayerNorm", [x, scale, scale])
    async with ax.Session(graph) as session:
        with pytest.raises(ax.errors.InvalidArgumentError, match="must have shape"):
            await session.run(y, {x: X, scale: np.ones(3, np.float32)})


def weights(rows: int, columns: int) -> Any:
    return ax.constant(np.random.default_rng(rows).normal(size=(rows, columns)).astype(np.float32))


def mark(x: Any) -> Any:
    """What tells the pass that there may be layers."""
    return ops.Rsqrt(ops.Abs(x) + number(1))


def dense(x: Any) -> Any:  # [..., N] by Tensordot
    rows = ops.MatMul(ops.Reshape(x, ax.constant([-1, N])), weights(N, 6))
    return ops.BiasAdd(ops.Reshape(rows, ax.constant([2, -1, 6])), row(1, 6))


def heads(x: Any) -> Any:
    product = ops.BatchMatMulV2(x, weights(N, 6))
    return ops.AddV2(row(1, 2, 3), ops.Reshape(product, ax.constant([2, 5, 2, 3])))


PRODUCTS: dict[str, Callable[[Any], Any]] = {
    "matrix": lambda x: ops.BiasAdd(ops.MatMul(x[0], weights(N, 6)), row(1, 6)),
    "matrix and sum": lambda x: ops.AddV2(row(1, 1, 6)[0], ops.MatMul(x[1], weights(N, 6))),
    "batch": lambda x: ops.BiasAdd(ops.BatchMatMulV2(x, weights(N, 6)), row(1, 6)),
    "dense": dense,
    "heads": heads,
}


@pytest.mark.parametrize(("name", "batch"), [*((name, 2) for name in PRODUCTS), ("batch", 0)])
async def test_a_product_and_a_bias_become_one_node(name: str, batch: int) -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [None, None, N])
        y = ops.Neg(PRODUCTS[name](x))
        z = mark(x)
    ran = await ops_of(graph, [y, z], {x: X[:batch]})
    assert "_FusedProduct" in ran
    assert not {"MatMul", "BatchMatMulV2", "BiasAdd"} & set(ran)


def flipped(x: Any) -> Any:
    return ops.BiasAdd(ops.MatMul(x[0], weights(6, N), transpose_b=True), row(1, 6)), []


def shared(x: Any) -> Any:
    product = ops.MatMul(x[0], weights(N, 6))
    return ops.BiasAdd(product, row(1, 6)), [ops.Abs(product)]


def fetched(x: Any) -> Any:
    product = ops.MatMul(x[0], weights(N, 6))
    return ops.BiasAdd(product, row(1, 6)), [product]


def by_rows(x: Any) -> Any:
    return ops.AddV2(ops.MatMul(x[0], weights(N, 6)), row(1, 5, 6)), []


def one_number(x: Any) -> Any:
    return ops.AddV2(ops.MatMul(x[0], weights(N, 6)), number(2)), []


def across(x: Any) -> Any:  # the columns are not where they were
    product = ops.Reshape(ops.MatMul(x[0], weights(N, 6)), ax.constant([6, 5]))
    return ops.AddV2(product, row(1, 5)), []


@pytest.mark.parametrize("build", [flipped, shared, fetched, by_rows, one_number, across])
async def test_other_products_stay(build: Callable[[Any], Any]) -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [None, 5, N])
        y, others = build(x)
        fetches = [ops.Neg(y), *others, mark(x)]
    assert "MatMul" in await ops_of(graph, fetches, {x: X})


async def test_weights_that_are_too_large_to_be_folded_come_through_a_reshape() -> None:
    large = np.random.default_rng(1).normal(size=(N, 2**19 // N)).astype(np.float32)
    columns = large.shape[1]
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [None, N])
        flat = ax.constant(large.reshape(-1))
        y = ops.BiasAdd(ops.MatMul(x, ops.Reshape(flat, ax.constant([N, columns]))), row(1, columns))
        fetches = [ops.Neg(y), mark(x)]
    assert "_FusedProduct" in await ops_of(graph, fetches, {x: X[0]})


async def test_a_product_without_columns_has_none() -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [None, N])
        y = ops.BiasAdd(ops.MatMul(x, ax.constant(np.ones((N, 0), np.float32))), ax.constant(np.ones(0, np.float32)))
        fetches = [ops.Neg(y), mark(x)]
    assert "_FusedProduct" in await ops_of(graph, fetches, {x: X[0]})


async def test_what_does_not_fit_a_product_is_an_error() -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, None)
        y = tensor_op("_FusedProduct", [x, weights(N, 6), row(1, 6)])
    async with ax.Session(graph) as session:
        assert (await session.run(y, {x: X})).shape == (2, 5, 6)
        for wrong in (X[..., 1:], X[0, 0], np.float32(1)):
            with pytest.raises(ax.errors.InvalidArgumentError, match="do not fit"):
                await session.run(y, {x: wrong})
