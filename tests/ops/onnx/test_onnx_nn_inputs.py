"""What layers of ONNX do with bad attributes and inputs, with scalars and with nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from asyncexec.framework.errors import InvalidArgumentError, ResourceExhaustedError
from asyncexec.ops.onnx import nn_ops  # noqa: F401  registers the kernels
from asyncexec.ops.onnx.onnx_kernels import ML_DOMAIN, OnnxNode, find_onnx_kernel


def run(op: str, *inputs: Any, opset: int = 28, domain: str = "", outputs: int = 1, **attrs: Any) -> tuple[Any, ...]:
    found = find_onnx_kernel(op, opset, domain)
    assert found is not None
    node = OnnxNode(op, domain, opset, attrs, tuple(one is not None for one in inputs), (True,) * outputs)
    with np.errstate(all="ignore"):
        result: tuple[Any, ...] = found.factory(node)(*inputs)
    return result


def ones(*shape: int) -> Any:
    return np.ones(shape, np.float32)


BAD: dict[str, tuple[Any, ...]] = {
    "channels that do not fit": ("Conv", (ones(1, 3, 4, 4), ones(2, 2, 3, 3)), {}),
    "groups": ("Conv", (ones(1, 4, 4, 4), ones(3, 2, 3, 3)), {"group": 2}),
    "an empty window": ("Conv", (ones(1, 3, 4, 4), ones(2, 3, 0, 3)), {}),
    "a stride of zero": ("Conv", (ones(1, 3, 4, 4), ones(2, 3, 3, 3)), {"strides": [0, 1]}),
    "negative pads": ("Conv", (ones(1, 3, 4, 4), ones(2, 3, 3, 3)), {"pads": [-1, 0, 0, 0]}),
    "too few pads": ("Conv", (ones(1, 3, 4, 4), ones(2, 3, 3, 3)), {"pads": [1, 1]}),
    "a kernel_shape that lies": ("Conv", (ones(1, 3, 4, 4), ones(2, 3, 3, 3)), {"kernel_shape": [5, 5]}),
    "a bias of another size": ("Conv", (ones(1, 3, 4, 4), ones(2, 3, 3, 3), ones(3)), {}),
    "a window far larger than the input": ("MaxPool", (ones(1, 1, 4, 4),), {"kernel_shape": [9, 9]}),
    "pooling of a vector": ("MaxPool", (ones(4),), {"kernel_shape": [2]}),
    "an unknown auto_pad": ("MaxPool", (ones(1, 1, 4),), {"kernel_shape": [2], "auto_pad": b"SOME"}),
    "a negative output": ("ConvTranspose", (ones(1, 1, 1, 1), ones(1, 1, 1, 1)), {"pads": [9, 9, 9, 9]}),
    "indices out of range": ("MaxUnpool", (ones(1, 1, 1, 1), np.full((1, 1, 1, 1), 9)), {"kernel_shape": [2, 2]}),
    "a region of no image": ("RoiAlign", (ones(1, 1, 4, 4), ones(1, 4), np.array([3])), {}),
    "a region of NaN": ("RoiAlign", (ones(1, 1, 4, 4), ones(1, 4) * np.nan, np.array([0])), {}),
    "a scale for other channels": ("BatchNormalization", (ones(1, 2, 3), *[ones(3)] * 4), {}),
    "an axis that is not there": ("Softmax", (ones(2, 3),), {"axis": 2}),
    "a scale that does not broadcast": ("LayerNormalization", (ones(2, 3), ones(2)), {}),
    "groups of channels": ("GroupNormalization", (ones(1, 5, 2), ones(5), ones(5)), {"num_groups": 2}),
    "a ratio of one": ("Dropout", (ones(2), np.float32(1), np.bool_(1)), {}),
    "weights of another hidden size": ("LSTM", (ones(1, 1, 2), ones(1, 12, 2), ones(1, 12, 4)), {}),
    "lengths beyond the steps": (
        "RNN",
        (ones(2, 1, 2), ones(1, 3, 2), ones(1, 3, 3), None, np.array([3], np.int32)),
        {},
    ),
    "an unknown activation": ("RNN", (ones(1, 1, 2), ones(1, 3, 2), ones(1, 3, 3)), {"activations": [b"Cube"]}),
    "an unknown direction": ("RNN", (ones(1, 1, 2), ones(1, 3, 2), ones(1, 3, 3)), {"direction": b"up"}),
    "keys of another size": ("Attention", (ones(1, 1, 2, 4), ones(1, 1, 2, 3), ones(1, 1, 2, 3)), {}),
    "a mask that does not fit": ("Attention", (*[ones(1, 1, 2, 4)] * 3, ones(3, 2)), {}),
    "heads that do not divide": ("Attention", (*[ones(1, 2, 4)] * 3,), {"q_num_heads": 3, "kv_num_heads": 1}),
    "a position that is not in the cache": (
        "RotaryEmbedding",
        (ones(1, 1, 1, 4), ones(2, 2), ones(2, 2), np.array([[2]])),
        {},
    ),
    "a write beyond the cache": ("TensorScatter", (ones(1, 2, 1), ones(1, 2, 1), np.array([1])), {}),
    "scales for another axis": ("QuantizeLinear", (ones(2, 3), ones(2)), {"axis": 1}),
    "a data type that is none": ("QuantizeLinear", (ones(2), np.float32(1)), {"output_dtype": 99}),
    "blocks that do not fit": ("DequantizeLinear", (np.ones((2, 5), np.int8), ones(2, 2)), {"block_size": 2}),
    "matrices without a product": ("MatMulInteger", (np.ones((2, 3), np.uint8), np.ones((2, 3), np.uint8)), {}),
    "scales and sizes": ("Resize", (ones(1, 1, 2, 2), None, ones(4), np.array([1, 1, 2, 2])), {}),
    "a scale of zero": ("Resize", (ones(1, 1, 2, 2), None, np.array([1, 1, 0, 1], np.float32)), {}),
    "an endless scale": ("Resize", (ones(1, 1, 2, 2), None, np.array([1, 1, np.inf, 1], np.float32)), {}),
    "a grid of another batch": ("GridSample", (ones(1, 1, 2, 2), ones(2, 2, 2, 2)), {}),
    "a map of another rank": ("AffineGrid", (ones(1, 2, 3), np.array([1, 1, 2, 2, 2])), {}),
    "blocks that are not in the image": ("Col2Im", (ones(1, 4, 3), np.array([3, 3]), np.array([2, 2])), {}),
    "a negative size": ("CenterCropPad", (ones(2, 2), np.array([-1, 2])), {}),
    "boxes of three numbers": ("NonMaxSuppression", (ones(1, 2, 3), ones(1, 1, 2)), {}),
    "a class that is not there": ("NegativeLogLikelihoodLoss", (ones(1, 2), np.array([2])), {}),
    "gates without a decay": (
        "LinearAttention",
        (*[ones(1, 1, 2)] * 3,),
        {"q_num_heads": 1, "kv_num_heads": 1, "update_rule": b"gated"},
    ),
}


@pytest.mark.parametrize("what", BAD)
def test_bad_input_is_an_invalid_argument(what: str) -> None:
    op, inputs, attrs = BAD[what]
    with pytest.raises(InvalidArgumentError):
        run(op, *inputs, **attrs)


TREE: dict[str, Any] = {
    "nodes_treeids": [0, 0, 0], "nodes_nodeids": [0, 1, 2], "nodes_featureids": [0, 0, 0],
    "nodes_modes": [b"BRANCH_LEQ", b"LEAF", b"LEAF"], "nodes_values": [0.0, 0.0, 0.0],
    "nodes_truenodeids": [1, 0, 0], "nodes_falsenodeids": [2, 0, 0],
    "target_treeids": [0, 0], "target_nodeids": [1, 2], "target_ids": [0, 0], "target_weights": [1.0, 2.0],
}  # fmt: skip
BAD_TREES: dict[str, dict[str, Any]] = {
    "a branch to nowhere": {"nodes_truenodeids": [7, 0, 0]},
    "a circle": {"nodes_truenodeids": [0, 0, 0], "nodes_falsenodeids": [0, 0, 0]},
    "a feature that is not there": {"nodes_featureids": [5, 0, 0]},
    "a negative feature": {"nodes_featureids": [-1, 0, 0]},
    "a target that is not there": {"target_ids": [0, 1]},
    "a mode that is none": {"nodes_modes": [b"BRANCH_SOME", b"LEAF", b"LEAF"]},
    "too few values": {"nodes_values": [0.0]},
    "the same node twice": {"nodes_nodeids": [0, 1, 1]},
}


@pytest.mark.parametrize("what", BAD_TREES)
def test_bad_trees_are_an_invalid_argument(what: str) -> None:
    with pytest.raises(InvalidArgumentError):
        # Rows on both sides: a circle is met only by those that go round in it.
        run("TreeEnsembleRegressor", ones(2, 1) * [[-1], [1]], domain=ML_DOMAIN, opset=3, **TREE | BAD_TREES[what])


def test_rows_go_down_their_tree() -> None:
    rows = np.array([[-1.0], [1.0], [np.nan]], np.float32)
    (scores,) = run("TreeEnsembleRegressor", rows, domain=ML_DOMAIN, opset=3, **TREE)
    assert scores.tolist() == [[1.0], [2.0], [2.0]]


@pytest.mark.parametrize(
    ("op", "inputs", "attrs"),
    [
        ("Resize", (ones(1, 1, 2, 2), None, np.array([1, 1, 1e9, 1e9], np.float32)), {}),
        ("CenterCropPad", (ones(1, 1), np.array([10**9, 10**9])), {}),
        ("AffineGrid", (ones(0, 2, 3), np.array([0, 1, 10**9, 10**9])), {}),
        ("Col2Im", (ones(1, 1, 0), np.array([10**9, 10**9]), np.array([1, 1])), {"strides": [2**62, 2**62]}),
        ("Conv", (ones(1, 1, 1, 1), ones(1, 1, 2, 2)), {"pads": [10**8] * 4}),
        ("AveragePool", (ones(1, 1, 1, 1),), {"kernel_shape": [1, 1], "pads": [10**8] * 4}),
        ("ConvTranspose", (ones(1, 1, 2, 2), ones(1, 1, 1, 1)), {"strides": [10**8] * 2}),
    ],
    ids=lambda one: one if isinstance(one, str) else "",
)
def test_results_beyond_reason_are_refused_before_they_are_made(op: str, inputs: Any, attrs: dict[str, Any]) -> None:
    with pytest.raises((ResourceExhaustedError, InvalidArgumentError)):
        run(op, *inputs, **attrs)


@pytest.mark.parametrize("op", ["Relu", "Sigmoid", "Elu", "Softplus", "HardSwish", "Shrink", "Mish", "Swish"])
def test_activations_take_scalars(op: str) -> None:
    (scalar,), (vector,) = run(op, np.float32(0.7)), run(op, np.full(1, 0.7, np.float32))
    assert np.shape(scalar) == ()
    assert np.asarray(scalar) == vector[0]


@pytest.mark.parametrize(
    ("op", "inputs", "attrs", "shape"),
    [
        ("Conv", (ones(0, 3, 4, 4), ones(2, 3, 3, 3)), {}, (0, 2, 2, 2)),
        ("MaxPool", (ones(0, 3, 4, 4),), {"kernel_shape": [2, 2]}, (0, 3, 3, 3)),
        ("Softmax", (ones(0, 3),), {}, (0, 3)),
        ("LSTM", (ones(0, 2, 3), ones(1, 8, 3), ones(1, 8, 2)), {}, (0, 1, 2, 2)),
        ("Attention", (ones(1, 1, 0, 4), ones(1, 1, 2, 4), ones(1, 1, 2, 4)), {}, (1, 1, 0, 4)),
        ("NonMaxSuppression", (ones(1, 0, 4), ones(1, 2, 0), np.array([3])), {}, (0, 3)),
        ("GridSample", (ones(1, 2, 3, 3), ones(1, 0, 2, 2)), {}, (1, 2, 0, 2)),
        ("RoiAlign", (ones(1, 2, 3, 3), ones(0, 4), np.zeros(0, np.int64)), {}, (0, 2, 1, 1)),
    ],
    ids=lambda one: one if isinstance(one, str) else "",
)
def test_nothing_gives_nothing(op: str, inputs: Any, attrs: dict[str, Any], shape: tuple[int, ...]) -> None:
    assert run(op, *inputs, **attrs)[0].shape == shape


@pytest.mark.parametrize(
    ("op", "inputs"),
    [
        ("LayerNormalization", (ones(2, 0), ones(0))),
        ("RMSNormalization", (ones(2, 0), ones(0))),
        ("InstanceNormalization", (ones(2, 4, 0), ones(4), ones(4))),
        ("GlobalAveragePool", (ones(2, 0, 0),)),
    ],
)
def test_the_mean_of_nothing_does_not_warn(op: str, inputs: Any) -> None:
    assert run(op, *inputs)[0].size == 0


def test_half_size_floats_are_rounded_once() -> None:
    x, w = np.full((1, 4096, 1, 1), 0.1, np.float16), np.full((1, 4096, 1, 1), 0.1, np.float16)
    (y,) = run("Conv", x, w)
    exact = 4096 * float(np.float16(0.1)) ** 2
    assert y.dtype == np.float16
    assert y.item() == np.float16(exact)
