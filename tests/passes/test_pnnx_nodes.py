"""Operators of PNNX models in clusters: what ONNX Runtime gives is what our own kernels, and torch, give."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import asyncexec as ax
from asyncexec.framework.cooperative import run_at_once
from asyncexec.graph.node import Node
from asyncexec.passes.onnx_emitter import Emitter, UntranslatableError
from asyncexec.passes.onnx_translations import TRANSLATIONS
from asyncexec.process.onnx_session import load

pytestmark = pytest.mark.ort
pytest.importorskip("onnxruntime")
pytest.importorskip("onnx")

GOLDEN = Path(__file__).parents[1] / "golden" / "pnnx"
RNG = np.random.default_rng(0)


def normal(*shape: int) -> Any:
    return RNG.normal(size=shape).astype(np.float32)


class Case(NamedTuple):
    """An operator of one output: its type, its inputs and its parameters."""

    type: str
    inputs: tuple[Any, ...]
    params: Mapping[str, Any] = {}


IMAGE, ROWS = normal(2, 4, 9, 8), normal(3, 5)
BIAS: Mapping[str, Any] = {"bias": True, "@bias": normal(6)}
FILTERS: Mapping[str, Any] = {"@weight": normal(6, 4, 3, 3)}
NORM = {"@running_mean": normal(4), "@running_var": np.abs(normal(4))}
CASES = [
    Case("nn.Conv2d", (IMAGE,), {**FILTERS, **BIAS, "padding": (1, 0), "stride": (2, 1), "dilation": (1, 2)}),
    Case("nn.Conv2d", (IMAGE,), {**FILTERS, "bias": False, "padding": "same", "dilation": 2}),
    Case("nn.Conv2d", (IMAGE,), {"@weight": normal(8, 1, 3, 2), "groups": 4, "padding": "valid"}),
    Case(
        "nn.ConvTranspose2d", (IMAGE,), {"@weight": normal(4, 6, 3, 3), **BIAS, "stride": 2, "output_padding": (1, 0)}
    ),
    Case("nn.Linear", (ROWS,), {"@weight": normal(6, 5), **BIAS}),
    Case("nn.Linear", (normal(2, 3, 5),), {"@weight": normal(6, 5), "bias": False}),
    Case("nn.BatchNorm2d", (IMAGE,), {**NORM, "affine": True, "@weight": normal(4), "@bias": normal(4), "eps": 1e-3}),
    Case("nn.BatchNorm2d", (IMAGE,), {**NORM, "affine": False}),
    Case("nn.MaxPool2d", (IMAGE,), {"kernel_size": (3, 2), "stride": (2, 1), "padding": (1, 0)}),
    Case("F.max_pool2d", (IMAGE,), {"kernel_size": 2}),
    Case("nn.AvgPool2d", (IMAGE,), {"kernel_size": 3, "padding": 1, "stride": 2}),
    Case("F.avg_pool2d", (IMAGE,), {"kernel_size": 3, "padding": 1, "count_include_pad": False}),
    Case("nn.AdaptiveAvgPool2d", (IMAGE,), {"output_size": (1, 1)}),
    Case("F.softmax", (ROWS,), {"dim": -1}),
    Case("torch.cat", (ROWS, ROWS), {"dim": 1}),
    Case("torch.flatten", (IMAGE,), {"start_dim": 1}),
    Case("nn.Flatten", (IMAGE,)),
    *(
        Case(f"nn.{name}", (2 * IMAGE,))
        for name in "ReLU Sigmoid Tanh Hardsigmoid Hardswish ReLU6 SiLU LeakyReLU".split()
    ),
    Case("F.leaky_relu", (ROWS,), {"negative_slope": 0.3}),
]


def graph_of(case: Case) -> tuple[ax.Graph, Node, dict[Any, Any]]:
    """The graph of *case*, its node, and what is fed."""
    with ax.Graph() as graph:
        feeds = {ax.placeholder(ax.float32, value.shape): value for value in case.inputs}
        made = ax.create_op(f"Pnnx>{case.type}", [list(feeds)], attrs={"Tout": [ax.float32], **case.params})
    return graph, made[0].op, feeds


@pytest.mark.allow_blocking
@pytest.mark.one_of("loop")
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.type)
async def test_onnx_runtime_gives_what_our_kernel_gives(case: Case) -> None:
    graph, node, feeds = graph_of(case)
    async with ax.Session(graph, ax.SessionConfig(jit="off")) as session:
        (wanted,) = await session.run(list(node.outputs), feeds)
    emitter = Emitter(lambda tensor: False)
    TRANSLATIONS[node.op](emitter, node)
    (got,) = load(run_at_once(emitter.model(node.outputs))).run([feeds[tensor] for tensor in emitter.inputs]) or ()
    assert (got.dtype, got.shape) == (wanted.dtype, wanted.shape)
    np.testing.assert_allclose(got, wanted, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize(
    "case",
    [
        Case("nn.Conv2d", (IMAGE,), {**FILTERS, "padding": 1, "padding_mode": "reflect"}),
        Case("nn.MaxPool2d", (IMAGE,), {"kernel_size": 2, "ceil_mode": True}),
        Case("nn.MaxPool2d", (IMAGE,), {"kernel_size": 2, "padding": 2}),
        Case("nn.AdaptiveAvgPool2d", (IMAGE,), {"output_size": (2, 1)}),
        Case("torch.flatten", (IMAGE,)),
    ],
    ids=lambda case: case.type,
)
def test_what_has_another_meaning_is_left_out(case: Case) -> None:
    _, node, _ = graph_of(case)
    with pytest.raises(UntranslatableError):
        TRANSLATIONS[node.op](Emitter(lambda tensor: False), node)


@pytest.mark.allow_blocking
@pytest.mark.one_of("loop")
@pytest.mark.parametrize("name", ["small", "unet"])
async def test_a_model_of_the_converter_runs_in_clusters(name: str) -> None:
    model = await asyncio.to_thread(ax.load_pnnx, GOLDEN / f"{name}.pnnx.param")
    with np.load(GOLDEN / f"{name}.npz") as arrays:
        x, wanted = arrays["x0"], arrays["y0"]
    (given,), (fetched,) = (
        list(infos.values())
        for signature in (model.signatures["serving_default"],)
        for infos in (signature.inputs, signature.outputs)
    )
    with ax.Graph() as graph:
        ax.import_graph_def(model.graph_def)
    metadata, options = ax.RunMetadata(), ax.RunOptions(output_pass_graphs=True)
    async with ax.Session(graph, ax.SessionConfig(jit="onnxruntime")) as session:
        got = await session.run(fetched.name, {given.name: x}, metadata=metadata, options=options)
        batch = await session.run(fetched.name, {given.name: np.concatenate([x, x])})
    np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-5 * np.abs(wanted).max())
    np.testing.assert_allclose(batch[1:], wanted, rtol=1e-5, atol=1e-5 * np.abs(wanted).max())
    (found,) = (each for each in metadata.passes if each.name == "onnx_clusters")
    assert found.graph is not None
    assert "_OnnxCluster" in {node.op for node in found.graph.node}
