"""Gradient, held against differences of the function that it is of."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper

from asyncexec.framework.errors import UnimplementedError
from asyncexec.importers.load_onnx import load_onnx
from tests.importers.onnx.models import results

pytestmark = pytest.mark.filterwarnings("ignore:these ops have no kernel")

SHAPES = {"a": (2, 3), "b": (3,), "c": ()}


def model(steps: list[tuple[str, list[str], str]]) -> ModelProto:
    """A model of *steps*, the last of which gives y, and of its gradients in a, b and c."""
    nodes = [helper.make_node(op, inputs, [output]) for op, inputs, output in steps]
    names = [f"d{name}" for name in SHAPES]
    domain = "ai.onnx.preview.training"
    nodes.append(helper.make_node("Gradient", list(SHAPES), names, domain=domain, xs=list(SHAPES), y="y"))
    inputs = [helper.make_tensor_value_info(name, TensorProto.DOUBLE, shape) for name, shape in SHAPES.items()]
    outputs = [helper.make_tensor_value_info(name, TensorProto.DOUBLE, None) for name in ("y", *names)]
    opsets = [helper.make_opsetid("", 13), helper.make_opsetid(domain, 1)]
    return helper.make_model(helper.make_graph(nodes, "test", inputs, outputs), opset_imports=opsets)


async def test_the_chain_rule_with_broadcasting() -> None:
    steps = [
        ("Mul", ["a", "b"], "p"),
        ("Tanh", ["p"], "t"),
        ("Exp", ["c"], "e"),
        ("Div", ["t", "e"], "q"),
        ("Sub", ["q", "a"], "s"),
        ("Sigmoid", ["s"], "g"),
        ("Log", ["g"], "l"),
        ("Sum", ["l", "b", "c"], "u"),
        ("Neg", ["u"], "n"),
        ("Mul", ["n", "n"], "n2"),
        ("Sqrt", ["n2"], "r"),
        ("Relu", ["r"], "r2"),
        ("Add", ["r2", "r"], "y"),
    ]
    rng = np.random.default_rng(0)
    feeds: dict[str, Any] = {name: rng.uniform(0.5, 1.5, shape) for name, shape in SHAPES.items()}
    built = model(steps)
    _, *gradients = await results(built, feeds)
    step = 1e-6
    for name, gradient in zip(SHAPES, gradients, strict=True):
        for place in np.ndindex(SHAPES[name]):
            ends = []
            for sign in (1, -1):
                moved = np.array(feeds[name])
                moved[place] += sign * step
                ends.append((await results(built, feeds | {name: moved}))[0].sum())
            np.testing.assert_allclose(np.asarray(gradient)[place], (ends[0] - ends[1]) / (2 * step), rtol=1e-5)


def test_an_op_without_a_rule() -> None:
    with pytest.raises(UnimplementedError, match="goes through Floor"):
        load_onnx(model([("Mul", ["a", "b"], "p"), ("Add", ["p", "c"], "q"), ("Floor", ["q"], "y")]))
