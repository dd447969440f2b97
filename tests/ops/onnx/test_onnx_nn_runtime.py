"""Random layers and classical models beside ONNX Runtime."""

from __future__ import annotations

import warnings
from typing import Any
from zlib import crc32

import numpy as np
import pytest

from tests.ops.onnx.node_models import run_model
from tests.ops.onnx.random_classical import CLASSICAL
from tests.ops.onnx.random_layers import LAYERS, RandomNode

pytestmark = [pytest.mark.deep, pytest.mark.timeout(300)]
COUNT = 200
FAMILIES = LAYERS | CLASSICAL


def model_of(node: RandomNode) -> Any:
    """*node* as a model."""
    onnx = pytest.importorskip("onnx")
    helper = onnx.helper
    inputs = [f"x{i}" if one is not None else "" for i, one in enumerate(node.inputs)]
    outputs = [f"y{i}" for i in range(len(node.outputs))]
    graph = helper.make_graph(
        [helper.make_node(node.op, inputs, outputs, domain=node.domain, **node.attrs)],
        "graph",
        [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(one.dtype), one.shape)
            for name, one in zip(inputs, node.inputs, strict=True)
            if name
        ],
        [helper.make_tensor_value_info(name, code, None) for name, code in zip(outputs, node.outputs, strict=True)],
    )
    opsets = [helper.make_opsetid("", 21 if node.domain else node.opset)]
    opsets += [helper.make_opsetid(node.domain, node.opset)] if node.domain else []
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def runtime_session(model: Any) -> Any:
    ort = pytest.importorskip("onnxruntime")
    options = ort.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    return ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


@pytest.fixture(scope="module", autouse=True)
def runtime() -> None:
    """The runtime opens files of its own with its first session, and keeps them."""
    runtime_session(model_of(RandomNode("Relu", [np.zeros(1, np.float32)], [1])))


@pytest.mark.parametrize("family", FAMILIES)
def test_random_nodes_are_as_in_the_runtime(family: str, record_property: Any) -> None:
    rng = np.random.default_rng(crc32(family.encode()))
    compared = 0
    for number in range(COUNT):
        node = FAMILIES[family](rng)
        model, given = model_of(node), [one for one in node.inputs if one is not None]
        names = [one.name for one in model.graph.input]
        try:
            expected = runtime_session(model).run(None, dict(zip(names, given, strict=True)))
        except Exception:
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            got = run_model(model, given)
        told = f"{number}: {node.op} {[np.shape(one) for one in given]} {node.attrs}"
        for one, other in zip(got, expected, strict=True):
            array = np.asarray(one)
            assert (array.dtype, array.shape) == (other.dtype, other.shape), told
            np.testing.assert_allclose(array.astype(float), other.astype(float), 1e-4, node.atol, err_msg=told)
        compared += 1
    assert compared > COUNT * 0.7, "most nodes should be ones that the runtime takes"
    record_property("counts", {f"{family} compared": compared})
