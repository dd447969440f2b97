"""Convolutions by native code: those of numpy but for the last bits, for all sizes; and when there are any."""

from __future__ import annotations

import gc
import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest

import asyncexec as ax
from asyncexec.executor.plans import native_layers
from asyncexec.executor.plans.native_calls import COMPILER
from asyncexec.executor.plans.native_layers import CompiledLayers
from asyncexec.framework.layer_rule import LayerRule
from asyncexec.framework.ownership import freeze, keep
from asyncexec.framework.tensor_shape import TensorShape
from asyncexec.ops.array.windows import Windows
from asyncexec.ops.nn import native_convolution
from asyncexec.ops.nn.activation import _native_softmax
from asyncexec.ops.nn.convolution_matmul import convolve
from asyncexec.ops.nn.depthwise import depthwise
from asyncexec.ops.nn.fused_layers import layer_norm
from asyncexec.ops.nn.native_convolution import NativeConvolution, Tail
from asyncexec.ops.state.variable_state import Variable, updating
from asyncexec.process import shards
from asyncexec.regions.native_vectors import Registers
from tests.ops.native_kinds import KINDS, compiled, native_soon

pytest.importorskip("llvmlite")
WINDOWS = [((1, 1), (1, 1)), ((2, 2), (1, 1)), ((2, 1), (1, 1)), ((1, 1), (2, 3)), ((3, 3), (1, 2))]


@pytest.fixture(params=KINDS, scope="module")
def code(request: pytest.FixtureRequest) -> Iterator[CompiledLayers]:
    """The native code for each kind of processor that this one is."""
    with compiled(request.param) as found:
        yield found


def random(*shape: int, seed: int = 0) -> Any:
    return np.asarray(np.random.default_rng((seed, *shape)).standard_normal(shape), np.float32)


def native(code: CompiledLayers, *, is_depthwise: bool) -> NativeConvolution:
    found = NativeConvolution(is_depthwise=is_depthwise)
    found.rule.find_native = lambda work: code
    return found


def expected(x: Any, filters: Any, axes: Any, tail: Tail, *, is_depthwise: bool) -> Any:
    """What numpy gives in double precision."""
    made = (depthwise if is_depthwise else convolve)(x.astype(float), filters.astype(float), axes)
    for term in (tail.bias, tail.added):
        made = made if term is None else made + term
    return np.clip(made, tail.low, tail.high)


@pytest.mark.one_of("code")
@pytest.mark.parametrize("is_depthwise", [False, True])
@pytest.mark.parametrize(("strides", "dilations"), WINDOWS, ids=str)
def test_all_sizes_give_what_numpy_gives(
    code: CompiledLayers, strides: Any, dilations: Any, is_depthwise: bool
) -> None:
    convolution = native(code, is_depthwise=is_depthwise)
    sizes = itertools.product(
        (1, 2), ((1, 1), (5, 17), (16, 31)), (1, 8, 23, 80), (1, 16, 40), ((1, 1), (3, 3), (2, 5))
    )
    num_native = 0
    for batch, (height, width), depth, channels, kernel in sizes:
        x = random(batch, height, width, depth)
        filters = random(*kernel, depth, 1 if is_depthwise else channels)
        for padding, pads in ((b"SAME", ()), (b"VALID", ()), (b"EXPLICIT", ((0, 2), (3, 1)))):
            axes = Windows(strides, dilations, padding, pads, False)
            try:
                found = axes.axes((height, width), kernel)
            except ax.errors.InvalidArgumentError:  # no window fits
                continue
            out = depth if is_depthwise else channels
            added = None if is_depthwise else random(batch, found[0].out, found[1].out, channels, seed=1)
            for tail in (Tail(), Tail(random(out), added, 0.0, math.inf), Tail(random(out), None, 0.0, 6.0)):
                given = convolution(x, filters, found, tail)
                if given is None and 0 in (found[0].out, found[1].out):
                    continue
                if given is None:
                    assert is_depthwise
                    assert depth < code.lanes
                    continue
                num_native += 1
                wanted = expected(x, filters, found, tail, is_depthwise=is_depthwise)
                assert given.dtype == np.float32
                np.testing.assert_allclose(given, wanted, rtol=1e-4, atol=1e-4 * math.sqrt(filters.size))
    assert num_native > 10


@pytest.mark.parametrize("channels", [63, 64, 65, 127, 128, 129, 160, 192, 300])
@pytest.mark.parametrize(("size", "depth"), [(1, 1), (1, 70), (3, 5)])
def test_a_sole_pixel_has_the_bits_that_it_has_among_others(
    code: CompiledLayers, channels: int, size: int, depth: int
) -> None:
    x, filters = random(1, size, size, depth), random(size, size, depth, channels)
    axes = Windows((1, 1), (1, 1), b"VALID", (), False).axes((size, size), (size, size))
    added, both = random(1, 1, 1, channels, seed=1), np.concatenate([x, random(1, size, size, depth, seed=2)])
    for tail in (Tail(), Tail(random(channels), added, -0.5, 0.5)):
        found = native(code, is_depthwise=False)(x, filters, axes, tail)
        two = tail if tail.added is None else tail._replace(added=np.concatenate([added, added]))
        wanted = native(code, is_depthwise=False)(both, filters, axes, two)
        assert found is not None
        assert wanted is not None
        np.testing.assert_array_equal(found[0], wanted[0])
        exact = expected(x, filters, axes, tail, is_depthwise=False)
        np.testing.assert_allclose(found, exact, rtol=1e-4, atol=1e-4 * math.sqrt(filters.size))


@pytest.mark.parametrize("is_depthwise", [False, True])
def test_what_is_not_a_number_stays_so(code: CompiledLayers, is_depthwise: bool) -> None:
    x, filters = random(1, 9, 9, 32), random(3, 3, 32, 1 if is_depthwise else 32)
    x[0, 4, 4, 3], x[0, 0, 0, 5], x[0, 8, 8, 7] = np.nan, np.inf, -np.inf
    axes = Windows((1, 1), (1, 1), b"SAME", (), False).axes((9, 9), (3, 3))
    tail = Tail(None, None, 0.0, 6.0)
    given = native(code, is_depthwise=is_depthwise)(x, filters, axes, tail)
    with np.errstate(invalid="ignore"):
        wanted = expected(x, filters, axes, tail, is_depthwise=is_depthwise)
    assert given is not None
    assert np.array_equal(np.isnan(given), np.isnan(wanted))
    np.testing.assert_allclose(given, wanted, rtol=1e-3, atol=1e-3)


def _by_tanh(x: Any) -> Any:
    return x * (0.5 + 0.5 * np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


ACTIVATIONS = {
    "swish": lambda x: x / (1 + np.exp(-x)),
    "gelu": lambda x: 0.5 * x * (1 + np.vectorize(math.erf)(x * math.sqrt(0.5))),
    "gelu_tanh": _by_tanh,
}


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations_are_those_of_numpy(code: CompiledLayers, name: str) -> None:
    x = np.concatenate([np.linspace(-120, 120, 20_011), [0.0, -0.0, 1e-30, 3e38, -3e38, np.inf, -np.inf, np.nan]])
    x = x.astype(np.float32)
    given = np.empty_like(x)
    code.activate(name, (x.ctypes.data, given.ctypes.data, 1, given.nbytes, given.size))
    with np.errstate(all="ignore"):
        wanted = ACTIVATIONS[name](x.astype(np.float64))
        wanted[-2] = given[-2]  # of minus infinity: nothing, or not a number
    np.testing.assert_allclose(given, wanted, rtol=3e-7 if name == "swish" else 1e-5, atol=3e-7)
    assert np.signbit(given[-7])  # of -0


@pytest.mark.parametrize("length", [8, 15, 16, 17, 61, 200])
def test_rows_are_those_of_numpy(code: CompiledLayers, length: int) -> None:
    x = 20 * random(600, length)
    x[:5, :4] = [[np.nan, 1, 2, 3], [np.inf, 1, 2, 3], [-np.inf, 0, 1, -1e9], [3e38, -3e38, 0, 0], [0, -0.0, 90, -90]]
    x[5] = -np.inf
    rule = LayerRule(lambda _: code)
    scale, offset = random(length, seed=1), random(length, seed=2)
    with np.errstate(all="ignore"):
        wide = x.astype(float)
        powers = np.exp(wide - wide.max(-1, keepdims=True))
        shares = _native_softmax(x, code)
        np.testing.assert_allclose(shares, powers / powers.sum(-1, keepdims=True), rtol=1e-5, atol=1e-7)
        found = layer_norm(x, scale, offset, np.float32(0.01), rule)
        off = wide - wide.mean(-1, keepdims=True)
        wanted = off / np.sqrt((off**2).mean(-1, keepdims=True) + 0.01) * scale + offset
        np.testing.assert_allclose(found[6:], wanted[6:], rtol=1e-5, atol=1e-5)
        assert np.isnan(found[:3]).all()
        np.testing.assert_array_equal(layer_norm(np.asfortranarray(x), scale, offset, np.float32(0.01), rule), found)


def test_sums_of_long_rows_are_numpys(code: CompiledLayers) -> None:
    """Number by number, a sum of a million loses four digits."""
    rule = LayerRule(lambda _: code)
    assert rule.code_for(random(2, 2**12), sums=True) is code
    assert rule.code_for(random(1, 2**12 + 1), sums=True) is None
    assert rule.code_for(random(1, 2**12 + 1)) is code
    x = np.full((1, 2**12), -1, np.float32)
    x[0, 0] = 0
    powers = np.exp(x.astype(float))
    np.testing.assert_allclose(_native_softmax(x, code), powers / powers.sum(), rtol=5e-6)


@pytest.mark.allow_blocking
async def test_softmax_and_layer_norm_are_native_where_bits_may_change(soon: list[float]) -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [None, None])
        fetches = [ax.softmax(x), ax.layer_norm(x, scale=np.ones(30, np.float32), offset=np.zeros(30, np.float32))]
    values = random(300, 30)
    async with ax.Session(graph, ax.SessionConfig(jit="off")) as session:
        wanted = await session.run(fetches, {x: values})
    assert not soon
    async with ax.Session(graph) as session:
        for one, other in zip(await session.run(fetches, {x: values}), wanted, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)
        assert soon
        (empty, _) = await session.run(fetches, {x: values[:0]})
        assert empty.shape == (0, 30)


@pytest.mark.parametrize("is_depthwise", [False, True])
@pytest.mark.parametrize("kernel", [1, 3])
def test_swishes_are_made_of_all_parts_once(code: CompiledLayers, kernel: int, is_depthwise: bool) -> None:
    for height, depth, channels in ((40, 24, 40), (3, 200, 300)):  # by rows, and by panels
        x = random(1, height, 9, depth)
        filters = random(kernel, kernel, depth, 1 if is_depthwise else channels) / np.float32(depth)
        axes = Windows((1, 1), (1, 1), b"SAME", (), False).axes((height, 9), (kernel, kernel))
        convolution = native(code, is_depthwise=is_depthwise)
        plain = convolution(x, filters, axes, Tail())
        swish = convolution(x, filters, axes, Tail(is_swish=True))
        assert plain is not None
        np.testing.assert_allclose(swish, plain / (1 + np.exp(-plain)), rtol=1e-5, atol=1e-6)


def test_parts_are_shared_and_write_what_one_thread_writes(code: CompiledLayers, monkeypatch: Any) -> None:
    """However the work is cut: by pixels, by rows, by panels."""
    cases = [((2, 40, 41, 64), (1, 1, 64, 40)), ((2, 40, 41, 64), (3, 3, 64, 40)), ((1, 5, 5, 300), (3, 3, 300, 200))]
    for shape, kernel in cases:
        x, filters = random(*shape), random(*kernel)
        axes = Windows((1, 1), (1, 1), b"SAME", (), False).axes(shape[1:3], kernel[:2])
        found: list[Any] = []
        numbers: list[int] = []

        def share(work: Any, parts: Sequence[Any], num_bytes: int, numbers: list[int] = numbers) -> None:
            numbers.append(len(parts))
            shards.share(work, parts[::-1], num_bytes)

        for num_cores in (1, 3):
            monkeypatch.setattr("asyncexec.ops.nn.native_convolution.num_cores", lambda count=num_cores: count)
            monkeypatch.setattr("asyncexec.ops.nn.native_convolution.share", share)
            found.append(native(code, is_depthwise=False)(x, filters, axes, Tail()))
        assert numbers[1] > 1
        np.testing.assert_array_equal(*found)


def test_constant_filters_are_laid_out_once_and_go_with_them(code: CompiledLayers) -> None:
    convolution = native(code, is_depthwise=False)
    axes = Windows((1, 1), (1, 1), b"SAME", (), False).axes((4, 4), (1, 1))
    x, filters = random(1, 4, 4, 8), random(1, 1, 8, 8)
    first = convolution(x, filters, axes, Tail())
    assert not convolution._laid_out
    filters *= 2  # nobody knows of that
    assert np.array_equal(convolution(x, filters, axes, Tail()), 2 * first)  # type: ignore[operator]
    filters.setflags(write=False)
    for _ in range(2):
        assert np.array_equal(convolution(x, filters, axes, Tail()), 2 * first)  # type: ignore[operator]
        assert len(convolution._laid_out) == 1
    del filters
    gc.collect()
    assert not convolution._laid_out


def test_filters_that_somebody_may_write_to_are_laid_out_each_time(code: CompiledLayers) -> None:
    """A view that is read-only tells nothing of what it is a view of."""
    convolution = native(code, is_depthwise=False)
    axes = Windows((1, 1), (1, 1), b"SAME", (), False).axes((4, 4), (1, 1))
    x, base = random(1, 4, 4, 8), random(1, 1, 8, 8)
    seen = base.view()
    seen.setflags(write=False)
    first = convolution(x, seen, axes, Tail())
    base *= 2
    assert np.array_equal(convolution(x, seen, axes, Tail()), 2 * first)  # type: ignore[operator]


def test_results_can_be_frozen(code: CompiledLayers) -> None:
    axes = Windows((1, 1), (1, 1), b"SAME", (), False).axes((4, 4), (1, 1))
    found = native(code, is_depthwise=False)(random(1, 4, 4, 8), random(1, 1, 8, 8), axes, Tail())
    assert found is not None
    found += 1  # it is nobody else's
    assert keep(freeze(found)) is found


def test_others_are_left_to_numpy(code: CompiledLayers) -> None:
    axes = Windows((1, 1), (1, 1), b"SAME", (), False).axes((4, 4), (3, 3))
    x, filters = random(1, 4, 4, 8), random(3, 3, 8, 8)
    plain = native(code, is_depthwise=False)
    assert plain(x, filters, axes, Tail()) is not None
    assert plain(x.astype(float), filters.astype(float), axes, Tail()) is None
    assert plain(x, filters[:, :, :4], axes, Tail()) is None  # in groups
    assert plain(x, filters, axes, Tail(random(7))) is None
    assert plain(x, filters, axes, Tail(None, random(1, 4, 3, 8))) is None
    assert plain(x[:0], filters, axes, Tail()) is None
    multiplied = native(code, is_depthwise=True)
    assert multiplied(random(1, 4, 4, 16), random(3, 3, 16, 2), axes, Tail()) is None
    assert multiplied(random(1, 4, 4, 16), random(3, 3, 16, 1), axes, Tail(None, random(1, 4, 4, 16))) is None
    seen = np.asfortranarray(x), np.asfortranarray(filters)
    np.testing.assert_array_equal(plain(*seen, axes, Tail()), plain(x, filters, axes, Tail()))  # type: ignore[arg-type]


def test_a_product_with_a_constant_is_native_from_its_second_time_on(code: CompiledLayers, monkeypatch: Any) -> None:
    monkeypatch.setattr(native_convolution, "_LONG", 0)
    convolution = native(code, is_depthwise=False)
    rows, weights = random(3, 5, 40), random(40, 70)
    assert convolution.product(rows, weights) is None  # somebody may write to it
    weights.setflags(write=False)
    for again in range(3):
        found = convolution.product(rows, weights.reshape(8, 5, 70).reshape(40, 70))  # a view of its own each time
        assert (found is not None) == (again > 0)
    np.testing.assert_allclose(found, rows @ weights, rtol=1e-4, atol=1e-4)
    added = convolution.product(rows, weights, random(70, seed=3))
    np.testing.assert_allclose(added, rows @ weights + random(70, seed=3), rtol=1e-4, atol=1e-4)  # type: ignore[arg-type]
    assert convolution.product(rows[:1, :5], weights) is None  # few rows
    assert convolution.product(random(9, 39), weights) is None
    del weights
    gc.collect()
    assert not convolution._laid_out
    assert not convolution._met


def test_weights_that_are_updated_in_place_are_laid_out_anew(code: CompiledLayers, monkeypatch: Any) -> None:
    monkeypatch.setattr(native_convolution, "_LONG", 0)
    convolution, rows = native(code, is_depthwise=False), random(15, 40)
    variable = Variable("weights", ax.float32, TensorShape(None))
    variable.assign(random(40, 70))
    for number in range(5):
        with variable.lock, updating([variable]) as update:
            array = update.arrays()[0]
            assert (array is update.values[0]) == (number > 0)
            array[:] = random(40, 70, seed=number)
        for _ in range(3):
            for weights in (variable.value, variable.value.reshape(8, 5, 70).reshape(40, 70)):
                found = convolution.product(rows, weights)
        del weights
        np.testing.assert_allclose(found, rows @ variable.value, rtol=1e-4, atol=1e-4)  # type: ignore[arg-type]


def _network(*, data_format: str = "NHWC") -> ax.Graph:
    attrs = {"strides": [1, 1, 1, 1], "padding": "SAME", "data_format": data_format}
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [None, 16, 16, 16], name="x")
        y = ax.raw_ops.Conv2D(x, ax.constant(random(3, 3, 16, 16)), **attrs)
        y = ax.raw_ops.Relu(ax.raw_ops.BiasAdd(y, ax.constant(random(16)), data_format=data_format))
        z = ax.raw_ops.DepthwiseConv2dNative(y, ax.constant(random(3, 3, 16, 1)), **attrs)
        z = ax.raw_ops.Relu6(ax.raw_ops.BiasAdd(z, ax.constant(random(16)), data_format=data_format))
        z = ax.raw_ops.DepthwiseConv2dNative(z, ax.constant(random(3, 3, 16, 1)), **attrs)
        y = ax.raw_ops.Relu(ax.raw_ops.BiasAdd(z, ax.constant(random(16)), data_format=data_format) + y)
        ax.raw_ops.Conv2D(y, ax.constant(random(1, 1, 16, 40)), **attrs, name="y")
    return graph


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Lets convolutions become native at once, without ONNX Runtime; the work that native code was asked for."""
    return native_soon(monkeypatch)


@pytest.mark.allow_blocking
@pytest.mark.parametrize("data_format", ["NHWC", "NCHW"])
async def test_a_network_gives_the_same_but_for_the_last_bits(data_format: str, soon: list[float]) -> None:
    graph, x = _network(data_format=data_format), random(2, 16, 16, 16)
    async with ax.Session(graph, ax.SessionConfig(jit="off")) as session:
        wanted = await session.run("y:0", {"x:0": x})
    assert not soon
    async with ax.Session(graph) as session:
        for _ in range(3):
            np.testing.assert_allclose(await session.run("y:0", {"x:0": x}), wanted, rtol=1e-4, atol=1e-4)
    assert soon


@pytest.mark.allow_blocking
@pytest.mark.parametrize("config", [{"jit": "off"}, {"debug": True}, {"schedule_seed": 1}, {"memory_limit": 2**30}])
async def test_bits_stay_where_that_is_promised(config: dict[str, Any], soon: list[float]) -> None:
    async with ax.Session(_network(), ax.SessionConfig(**config)) as session:
        await session.run("y:0", {"x:0": random(2, 16, 16, 16)})
    assert not soon


@pytest.mark.allow_blocking
async def test_errors_are_those_of_numpy(soon: list[float]) -> None:
    errors: list[str] = []
    for jit in ("off", "auto"):
        with ax.Graph() as graph:
            x, filters = ax.placeholder(ax.float32, None, name="x"), ax.placeholder(ax.float32, None, name="filters")
            ax.raw_ops.Conv2D(x, filters, strides=[1, 1, 1, 1], padding="VALID", name="y")
            ax.raw_ops.DepthwiseConv2dNative(x, filters, strides=[1, 1, 1, 1], padding="VALID", name="z")
            ax.raw_ops.MatMul(x, filters, name="product")
            ax.raw_ops.BatchMatMulV2(x, filters, name="products")
        async with ax.Session(graph, ax.SessionConfig(jit=jit)) as session:
            for fetch in ("y:0", "z:0"):
                for shape, window in (((1, 4, 4, 16), (2, 2, 17, 1)), ((1, 4, 4, 16), (6, 2, 16, 1)), ((4, 3), (1,))):
                    with pytest.raises(ax.errors.InvalidArgumentError) as caught:
                        await session.run(fetch, {"x:0": random(*shape), "filters:0": random(*window)})
                    errors.append(str(caught.value))
            for fetch in ("product:0", "products:0"):
                for shape, other in (((4, 3), ()), ((4, 3), (3,)), ((4, 3), (4, 3)), ((), (4, 3))):
                    with pytest.raises(ax.errors.InvalidArgumentError) as caught:
                        await session.run(fetch, {"x:0": random(*shape), "filters:0": random(*other)})
                    errors.append(str(caught.value))
    assert len(errors) == 28
    assert errors[:14] == errors[14:]


def test_it_is_compiled_once_there_is_much_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(COMPILER, "submit", asked.append)
    layers = native_layers._Layers()
    for _ in range(4):
        assert layers(native_layers.HOT_WORK / 2) is None
    assert asked == [layers]


def test_a_panel_is_what_both_sides_think() -> None:
    for registers in KINDS.values():
        assert isinstance(registers, Registers)
        assert registers.panel == 2 * registers.lanes
        assert registers.pixels[-1] == 1  # whatever is left over


@pytest.mark.allow_blocking
@pytest.mark.parametrize("padding", ["SAME", "VALID"])
@pytest.mark.parametrize(("size", "stride", "is_native"), [(2, 2, True), (3, 1, True), (5, 3, True), (7, 1, False)])
async def test_averages_of_small_windows_are_native_sums(
    size: int, stride: int, padding: str, soon: list[float], *, is_native: bool
) -> None:
    with ax.Graph() as graph:
        x = ax.placeholder(ax.float32, [None, None, None, 20])
        attrs = {"ksize": [1, size, size, 1], "strides": [1, stride, stride, 1], "padding": padding}
        y = ax.raw_ops.Neg(ax.raw_ops.AvgPool(x, **attrs))
        few = ax.raw_ops.Neg(ax.raw_ops.AvgPool(x[..., :3], **attrs))
    images = random(2, 11, 9, 20)
    images[0, 4, 4, :3] = [np.nan, np.inf, -np.inf]
    async with ax.Session(graph, ax.SessionConfig(jit="off")) as session:
        wanted = await session.run([y, few], {x: images})
    async with ax.Session(graph) as session:
        found = await session.run([y, few], {x: images})
        np.testing.assert_allclose(found[0], wanted[0], rtol=1e-5, atol=1e-5)
        np.testing.assert_array_equal(found[1], wanted[1])
        assert bool(soon) == is_native
        assert (await session.run(y, {x: images[:0]})).shape == (0, *wanted[0].shape[1:])
