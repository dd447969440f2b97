"""Batch normalization with constants, in the filters of convolutions: where it goes there, and what comes of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import asyncexec as ax
from asyncexec.framework.cooperative import run_at_once
from asyncexec.passes.pass_graph import PassGraph
from asyncexec.pruning.prune import prune
from asyncexec.session import library_passes

C = 6
X = np.random.default_rng(0).normal(size=(2, 7, 8, C)).astype(np.float32)
Run = Callable[..., Any]
pytestmark = pytest.mark.usefixtures("no_onnx_runtime")


@pytest.fixture
def no_onnx_runtime(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library_passes, "has_onnx_runtime", lambda: False)


def constant(*shape: int, seed: int = 1, least: float = -1) -> Any:
    values = np.random.default_rng(seed).uniform(least, 1, shape)
    return ax.constant(values.astype(np.float32))


def statistics(channels: int) -> list[Any]:
    return [constant(channels, seed=seed, least=0.1 if seed == 5 else -1) for seed in (2, 3, 4, 5)]


def convolved(x: Any, name: str = "conv", **attrs: Any) -> Any:
    return ax.raw_ops.Conv2D(
        x, constant(3, 3, C, 5), **{"strides": [1, 1, 1, 1], "padding": "SAME", **attrs}, name=name
    )


def normalized(x: Any, channels: int = 5, **attrs: Any) -> Any:
    return ax.raw_ops.FusedBatchNormV3(x, *statistics(channels), **{"is_training": False, **attrs}, name="norm")[0]


async def ops_of(graph: ax.Graph, fetches: Any, feeds: Any, **config: Any) -> list[str]:
    """The ops that run, none of them constants or feeds; what they give is what all of the nodes give."""
    async with ax.Session(graph, ax.SessionConfig(jit="off")) as session:
        wanted = await session.run(fetches, feeds)
    async with ax.Session(graph, ax.SessionConfig(**config)) as session:
        metadata, options = ax.RunMetadata(), ax.RunOptions(output_pass_graphs=True)
        got = await session.run(fetches, feeds, metadata=metadata, options=options)
    for one, other in zip(got, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)
    found = [each for each in metadata.passes if each.name == "fold_batch_norms"]
    assert all(each.graph is not None for each in found)
    nodes = [node for each in found if each.graph for node in each.graph.node]
    return sorted(node.op for node in nodes if node.op not in ("Const", "Placeholder"))


def by_hand(x: Any, *shape: int) -> Any:
    """Batch normalization as several nodes, its constants of that *shape*."""
    inverse = ax.raw_ops.Rsqrt(constant(*shape, seed=7, least=0.1)) * constant(*shape, seed=8)
    return x * inverse + (constant(*shape, seed=9) - constant(*shape, seed=10) * inverse)


def residual(x: Any, other: Any) -> Any:
    return ax.raw_ops.Relu(other + by_hand(convolved(x), 1, 1, 1, 5))


def swish(x: Any) -> Any:
    y = normalized(convolved(x))
    return y * ax.raw_ops.Sigmoid(y)


def swish_of_keras(x: Any) -> Any:
    y, beta = normalized(convolved(x)), constant()
    one = ax.constant(np.float32(1))
    product = y * ax.raw_ops.Sigmoid(one * y)
    return ax.raw_ops.IdentityN([product, y, beta])[0]


VARIANTS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "plain": (lambda x: normalized(convolved(x)), "_FusedConv2D"),
    "bias": (lambda x: normalized(ax.raw_ops.BiasAdd(convolved(x), constant(5, seed=9))), "_FusedConv2D"),
    "relu": (lambda x: ax.raw_ops.Relu(normalized(convolved(x))), "_FusedConv2D"),
    "relu6": (lambda x: ax.raw_ops.Relu6(normalized(convolved(x), epsilon=0.5)), "_FusedConv2D"),
    "nodes": (lambda x: ax.raw_ops.Relu(by_hand(convolved(x), 1, 1, 1, 5)), "_FusedConv2D"),
    "vectors": (lambda x: by_hand(convolved(x), 5) - constant(5), "_FusedConv2D"),
    "one number": (lambda x: ax.raw_ops.Relu6(by_hand(convolved(x)) + constant(1)), "_FusedConv2D"),
    "bias alone": (lambda x: ax.raw_ops.BiasAdd(convolved(x), constant(5, seed=9)), "_FusedConv2D"),
    "sum": (lambda x: residual(x, ax.constant(np.ones((2, 7, 8, 5), np.float32))), "_FusedConv2D"),
    "swish": (swish, "_FusedConv2D"),
    "swish of Keras": (swish_of_keras, "_FusedConv2D"),
    "sigmoid": (lambda x: ax.raw_ops.Sigmoid(normalized(convolved(x))), "_FusedConv2D"),
    "strided": (lambda x: normalized(convolved(x, strides=[1, 2, 2, 1], padding="VALID")), "_FusedConv2D"),
    "explicit": (
        lambda x: normalized(convolved(x, padding="EXPLICIT", explicit_paddings=[0, 0, 1, 2, 0, 1, 0, 0])),
        "_FusedConv2D",
    ),
    "depthwise": (
        lambda x: normalized(
            ax.raw_ops.DepthwiseConv2dNative(x, constant(3, 3, C, 2), strides=[1, 1, 1, 1], padding="SAME"), 2 * C
        ),
        "_FusedDepthwiseConv2dNative",
    ),
}


@pytest.mark.parametrize("name", VARIANTS)
async def test_a_normalization_goes_into_the_convolution_before_it(name: str) -> None:
    build, op = VARIANTS[name]
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [None, 7, 8, C])
        y = ax.raw_ops.Neg(build(x))
    assert await ops_of(graph, [y], {x: X}) == ["Neg", op]


async def test_channels_may_come_first() -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [None, C, 7, 8])
        layout = {"data_format": "NCHW"}
        y = ax.raw_ops.Neg(normalized(ax.raw_ops.BiasAdd(convolved(x, **layout), constant(5), **layout), **layout))
    assert await ops_of(graph, [y], {x: X.transpose(0, 3, 1, 2)}) == ["Neg", "_FusedConv2D"]


async def test_channels_of_nodes_may_come_first() -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [None, C, 7, 8])
        y = ax.raw_ops.Neg(ax.raw_ops.Relu(by_hand(convolved(x, data_format="NCHW"), 5, 1, 1)))
    assert await ops_of(graph, [y], {x: X.transpose(0, 3, 1, 2)}) == ["Neg", "_FusedConv2D"]


@pytest.mark.parametrize("batch", [1, 2])
async def test_a_residual_connection_goes_along(batch: int) -> None:
    with ax.Graph() as graph:
        x, other = ax.placeholder(ax.float32, [None, 7, 8, C]), ax.placeholder(ax.float32, [None, 7, 8, 5])
        y = ax.raw_ops.Neg(residual(x, other))
    fed = np.random.default_rng(3).normal(size=(2, 7, 8, 5)).astype(np.float32)
    assert await ops_of(graph, [y], {x: X[:batch], other: fed}) == ["Neg", "_FusedConv2D"]


async def test_both_sides_of_a_sum_may_be_convolutions() -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [None, 7, 8, C])
        y = ax.raw_ops.Neg(residual(x, by_hand(convolved(x, name="other"), 1, 1, 1, 5)))
    assert await ops_of(graph, [y], {x: X}) == ["Neg", "_FusedConv2D", "_FusedConv2D"]


async def test_filters_may_come_through_identities() -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [None, 7, 8, C])
        filters = ax.raw_ops.Identity(constant(3, 3, C, 5))
        y = ax.raw_ops.Neg(normalized(ax.raw_ops.Conv2D(x, filters, strides=[1, 1, 1, 1], padding="SAME")))
    assert await ops_of(graph, [y], {x: X}) == ["Neg", "_FusedConv2D"]


async def test_branches_and_loops_keep_what_runs_in_them() -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [None, 7, 8, C])
        p = ax.placeholder(ax.bool, [])

        def layer(value: Any) -> Any:
            filters = constant(3, 3, C, C)
            product = ax.raw_ops.Conv2D(value, filters, strides=[1, 1, 1, 1], padding="SAME")
            return ax.raw_ops.Relu6(normalized(product, C))

        y = ax.cond(p, lambda: layer(x), lambda: ax.raw_ops.Neg(x))
        z = ax.while_loop(lambda i, v: i < 3, lambda i, v: (i + 1, layer(v)), (ax.constant(0), y))[1]
    for value in (True, False):
        assert (await ops_of(graph, [y, z], {x: X, p: value})).count("_FusedConv2D") == 2


def fed_filter(x: Any) -> tuple[Any, Any, dict[Any, Any]]:
    filters = ax.placeholder(ax.float32, [3, 3, C, 5])
    product = ax.raw_ops.Conv2D(x, filters, strides=[1, 1, 1, 1], padding="SAME")
    return normalized(product), [], {filters: np.ones((3, 3, C, 5), np.float32)}


def fetched_convolution(x: Any) -> tuple[Any, Any, dict[Any, Any]]:
    product = convolved(x)
    return normalized(product), [product], {}


def convolution_with_two_consumers(x: Any) -> tuple[Any, Any, dict[Any, Any]]:
    product = convolved(x)
    return ax.raw_ops.AddV2(normalized(product), product), [], {}


def training(x: Any) -> tuple[Any, Any, dict[Any, Any]]:
    return normalized(convolved(x), is_training=True), [], {}


def taken_statistics(x: Any) -> tuple[Any, Any, dict[Any, Any]]:
    outputs = ax.raw_ops.FusedBatchNormV3(convolved(x), *statistics(5), is_training=False)
    return outputs[0], [outputs[1]], {}


def fed_convolution(x: Any) -> tuple[Any, Any, dict[Any, Any]]:
    product = convolved(x)
    return normalized(product), [], {product: np.ones((2, 7, 8, 5), np.float32)}


def filters_for_rows(x: Any) -> tuple[Any, Any, dict[Any, Any]]:
    return convolved(x) * constant(7, 1, 1) + constant(8, 1), [], {}


def broadcast_sum(x: Any) -> tuple[Any, Any, dict[Any, Any]]:
    return convolved(x) + ax.placeholder(ax.float32, [5]), [], {"Placeholder_1:0": np.ones(5, np.float32)}


def subtracted(x: Any) -> tuple[Any, Any, dict[Any, Any]]:
    return constant(5) - convolved(x), [], {}


def fetched_product(x: Any) -> tuple[Any, Any, dict[Any, Any]]:
    y = convolved(x) * constant(5)
    return y + constant(5), [y], {}


def waiting(x: Any) -> tuple[Any, Any, dict[Any, Any]]:
    product = convolved(x)
    with ax.control_dependencies([ax.raw_ops.Neg(x)]):
        return normalized(product), [], {}


@pytest.mark.parametrize(
    "build",
    [
        fed_filter,
        fetched_convolution,
        convolution_with_two_consumers,
        training,
        taken_statistics,
        fed_convolution,
        filters_for_rows,
        broadcast_sum,
        subtracted,
        fetched_product,
        waiting,
    ],
)
async def test_what_others_know_stays(build: Callable[[Any], tuple[Any, list[Any], dict[Any, Any]]]) -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [None, 7, 8, C])
        y, others, feeds = build(x)
        z = ax.raw_ops.Neg(y)
    assert not [op for op in await ops_of(graph, [z, *others], {x: X, **feeds}) if op.startswith("_Fused")]


@pytest.mark.parametrize("what", ["factor", "identity", "sigmoid", "another"])
async def test_no_swish_is_made_of_what_is_another(what: str) -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [None, 7, 8, C])
        y = normalized(convolved(x))
        sigmoid = ax.raw_ops.Sigmoid(constant(seed=3) * y if what == "factor" else y)
        product = (ax.raw_ops.Abs(y) if what == "another" else y) * sigmoid
        passed = ax.raw_ops.IdentityN([product, y])
        fetches = [ax.raw_ops.Neg(passed[0])]
        fetches += [ax.raw_ops.Neg(passed[1])] if what == "identity" else []
        fetches += [ax.raw_ops.Neg(sigmoid)] if what == "sigmoid" else []
    ran = await ops_of(graph, fetches, {x: X})
    assert "Sigmoid" in ran
    assert "IdentityN" in ran


@pytest.mark.parametrize("data_format", ["NHWC", "NCHW"])
@pytest.mark.parametrize("is_depthwise", [False, True])
async def test_a_pad_before_becomes_the_padding(is_depthwise: bool, data_format: str) -> None:
    is_first = data_format == "NCHW"
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [None, C, 7, 8] if is_first else [None, 7, 8, C])
        inner = [[0, 2], [1, 0]]
        pads = [[0, 0], [0, 0], *inner] if is_first else [[0, 0], *inner, [0, 0]]
        attrs = {"strides": [1, 1, 1, 1], "padding": "VALID", "data_format": data_format}
        padded = ax.raw_ops.Pad(x, ax.constant(pads))
        if is_depthwise:
            y = ax.raw_ops.DepthwiseConv2dNative(padded, constant(3, 3, C, 1), **attrs)
        else:
            y = ax.raw_ops.Conv2D(padded, constant(3, 3, C, 5), **attrs)
        norm = ax.raw_ops.FusedBatchNormV3(
            y, *statistics(C if is_depthwise else 5), is_training=False, data_format=data_format
        )
        z = ax.raw_ops.Neg(norm[0])
    name = "_FusedDepthwiseConv2dNative" if is_depthwise else "_FusedConv2D"
    assert await ops_of(graph, [z], {x: X.transpose(0, 3, 1, 2) if is_first else X}) == ["Neg", name]


@pytest.mark.parametrize("what", ["batch", "channels", "fetched", "shared", "unknown", "same", "after"])
async def test_no_other_pad_does(what: str) -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [None, 7, 8, C - (what == "channels")])
        pads = np.array([[what == "batch", 0], [1, 1], [1, 0], [what == "channels", 0]], np.int32)
        given = ax.placeholder(ax.int32, [4, 2])
        with ax.control_dependencies([x.op] if what == "after" else []):
            constant_pads = ax.constant(pads)
        padded = ax.raw_ops.Pad(x, given if what == "unknown" else constant_pads)
        y = normalized(convolved(padded, padding="SAME" if what == "same" else "VALID"))
        fetches = [ax.raw_ops.Neg(y)]
        fetches += [padded] if what == "fetched" else []
        fetches += [ax.raw_ops.Abs(padded)] if what == "shared" else []
    feeds = {x: X[..., 1:] if what == "channels" else X, **({given: pads} if what == "unknown" else {})}
    ran = await ops_of(graph, fetches, feeds)
    assert "Pad" in ran
    assert "_FusedConv2D" in ran


async def test_a_fetched_normalization_keeps_its_node() -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [None, 7, 8, C])
        y = normalized(convolved(x))
    assert "FusedBatchNormV3" in await ops_of(graph, [y], {x: X})


@pytest.mark.parametrize("config", [{"jit": "off"}, {"debug": True}, {"schedule_seed": 1}, {"memory_limit": 2**30}])
async def test_results_are_the_same_to_the_bit_where_that_is_promised(config: dict[str, Any]) -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [None, 7, 8, C])
        y = ax.raw_ops.Neg(normalized(convolved(x)))
    assert await ops_of(graph, [y], {x: X}, **config) == []


async def test_an_empty_batch_gives_an_empty_one() -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [None, 7, 8, C])
        y = ax.raw_ops.Neg(normalized(convolved(x)))
    assert await ops_of(graph, [y], {x: X[:0]}) == ["Neg", "_FusedConv2D"]


async def test_an_error_names_the_convolution() -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32)
        y = ax.raw_ops.Neg(normalized(convolved(x, name="first")))
    async with ax.Session(graph) as session:
        with pytest.raises(ax.errors.InvalidArgumentError) as caught:
            await session.run(y, {x: X[..., :2]})
    assert caught.value.node == "first"


async def test_signatures_share_the_filters_that_are_made() -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [None, 7, 8, C])
        y = ax.raw_ops.Neg(normalized(convolved(x)))
        z = ax.raw_ops.Abs(y)
    folding = library_passes.FoldBatchNorms()
    assert "fold_batch_norms" in [each.name for each in library_passes.library_passes(ax.SessionConfig())]
    made = [await _folded_filters(graph, folding, fetch) for fetch in (y, z)]
    assert made[0] is made[1]


async def _folded_filters(graph: ax.Graph, folding: Any, fetch: Any) -> Any:
    client_graph = run_at_once(prune([graph.operation("Placeholder").outputs[0]], [fetch], []))
    editable = run_at_once(PassGraph.open(client_graph, graph))
    run_at_once(editable.apply(folding))
    return editable.node("conv/folded_filter").attrs["value"]


WIDE = 16
IMAGES = np.random.default_rng(5).normal(size=(2, 5, 4, WIDE)).astype(np.float32)
SCALES: dict[str, Callable[[Any], Any]] = {
    "nodes": lambda x: by_hand(x, WIDE),
    "one number, relu": lambda x: ax.raw_ops.Relu(by_hand(x)),
    "of Keras": lambda x: ax.raw_ops.Relu6(by_hand(x, 1, 1, 1, WIDE)),
    "norm": lambda x: ax.raw_ops.Relu(normalized(x, WIDE)),
    "constant first": lambda x: constant(WIDE, seed=4) * x - constant(WIDE, seed=5),
    "swish": lambda x: (lambda y: y * ax.raw_ops.Sigmoid(y))(by_hand(x, WIDE)),
    "several": lambda x: ax.raw_ops.BiasAdd(by_hand(by_hand(x, WIDE), WIDE), constant(WIDE)),
}


@pytest.mark.parametrize("name", SCALES)
async def test_a_normalization_of_anything_is_one_node_with_what_is_behind(name: str) -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [None, None, None, WIDE])
        joined = ax.raw_ops.ConcatV2([x, x], ax.constant(0))
        y = ax.raw_ops.Neg(SCALES[name](joined))
        z = ax.raw_ops.Abs(joined)  # what is normalized may be for others, too
        other = ax.raw_ops.Conv2D(x, constant(1, 1, WIDE, 2), strides=[1, 1, 1, 1], padding="VALID")
        z = ax.raw_ops.Sum(z, ax.constant([0, 1, 2])) + ax.raw_ops.Sum(other, ax.constant([0, 1, 2, 3]))
    expected = ["Abs", "AddV2", "ConcatV2", "Conv2D", "Neg", "Sum", "Sum", "_FusedDepthwiseConv2dNative"]
    assert await ops_of(graph, [y, z], {x: IMAGES}) == expected
    strange = IMAGES.copy()
    strange[0, 0, 0, :4] = [np.nan, np.inf, -np.inf, 0]
    assert await ops_of(graph, [y, z], {x: strange}) == expected
    assert await ops_of(graph, [y, z], {x: IMAGES[:0]}) == expected


def few_channels(x: Any) -> tuple[Any, list[Any]]:
    return by_hand(x[..., :3], 3), []


def alone(x: Any) -> tuple[Any, list[Any]]:
    return x * constant(WIDE), []


def taken_product(x: Any) -> tuple[Any, list[Any]]:
    product = x * constant(WIDE)
    return product + constant(WIDE), [ax.raw_ops.Abs(product)]


def rows(x: Any) -> tuple[Any, list[Any]]:
    return x[0] * constant(WIDE) + constant(WIDE), []


def unknown_channels(x: Any) -> tuple[Any, list[Any]]:
    return ax.raw_ops.Reshape(x, ax.raw_ops.Shape(x)) * constant(1) + constant(1), []


def doubles(x: Any) -> tuple[Any, list[Any]]:
    factor = ax.constant(np.ones(WIDE))
    return ax.cast(ax.cast(x, ax.float64) * factor + factor, ax.float32), []


def product_of_two(x: Any) -> tuple[Any, list[Any]]:
    return x * ax.raw_ops.Sigmoid(x) + constant(WIDE), []


@pytest.mark.parametrize("build", [few_channels, alone, taken_product, rows, unknown_channels, doubles, product_of_two])
async def test_no_other_product_becomes_a_convolution(build: Callable[[Any], tuple[Any, list[Any]]]) -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [None, 5, 4, WIDE if build is not unknown_channels else None])
        images = ax.raw_ops.Reshape(x, ax.constant([-1, 5, 4, WIDE]))  # the pass has something to do with
        z = ax.raw_ops.Conv2D(images, constant(1, 1, WIDE, 2), strides=[1, 1, 1, 1], padding="VALID")
        y, others = build(x)
        fetches = [ax.raw_ops.Neg(y), *others, z]
    ran = await ops_of(graph, fetches, {x: IMAGES})
    assert "Conv2D" in ran
    assert not [op for op in ran if op.startswith("_Fused")]


@pytest.mark.parametrize("is_convolution", [False, True])
async def test_constants_that_wait_for_the_first_node_stay(*, is_convolution: bool) -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [None, 5, 4, WIDE])
        other = ax.raw_ops.Conv2D(x, constant(1, 1, WIDE, WIDE), strides=[1, 1, 1, 1], padding="VALID")
        first = other if is_convolution else x * constant(WIDE)
        with ax.control_dependencies([first.op]):
            late = constant(WIDE, seed=4)
        y = ax.raw_ops.Neg(ax.raw_ops.Relu(first * late + constant(WIDE, seed=5)))
        fetches = [y] if is_convolution else [y, ax.raw_ops.Neg(other)]
    ran = await ops_of(graph, fetches, {x: IMAGES})
    assert "Conv2D" in ran
