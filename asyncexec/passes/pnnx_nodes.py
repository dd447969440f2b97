"""Translations of operators of PNNX files (``Pnnx>nn.Conv2d``), whose images have their channels first, as ONNX's do.

Weights are attrs of the nodes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from asyncexec.framework.arrays import Array
from asyncexec.graph.node import Node
from asyncexec.passes.onnx_emitter import Emitter, Translation, is_image, num_elements, rank_of, require

PREFIX: Final = "Pnnx>"


def _param(node: Node, name: str, default: object = None) -> Any:
    """A parameter; one that is None is left out."""
    value = node.attrs.get(name, default)
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def _pair(node: Node, name: str, default: object) -> list[int]:
    """Two integers; one stands for both."""
    value = _param(node, name, default)
    values = [value, value] if isinstance(value, int) else list(value or ())
    require(len(values) == 2 and all(isinstance(each, int) and each >= 0 for each in values), name)
    return values


def _array(node: Node, name: str) -> Array:
    value: Array = np.atleast_1d(node.attrs.get(f"@{name}", ()))
    require(value.dtype == np.float32, name)
    return value


def _one(e: Emitter, node: Node) -> str:
    """The only input of *node*, of float32."""
    require(len(node.inputs) == 1 and node.inputs[0].dtype.name == "float32", "inputs")
    return e.take(node.inputs[0])


def _image(e: Emitter, node: Node) -> str:
    require(is_image(node.inputs[0]), "no image")
    return _one(e, node)


def _filters(e: Emitter, node: Node) -> list[str]:
    names = [e.literal(_array(node, "weight"))]
    return [*names, e.literal(_array(node, "bias"))] if _param(node, "bias") else names


def _conv(e: Emitter, node: Node) -> None:
    weight = _array(node, "weight")
    padding, dilations = _param(node, "padding", 0), _pair(node, "dilation", 1)
    require(weight.ndim == 4 and _param(node, "padding_mode", "zeros") == "zeros", "padding_mode")
    if padding == "same":
        totals = [step * (size - 1) for step, size in zip(dilations, weight.shape[2:], strict=True)]
        pads = [*(total // 2 for total in totals), *(total - total // 2 for total in totals)]
    else:
        pads = 2 * ([0, 0] if padding == "valid" else _pair(node, "padding", 0))
    attrs = {"strides": _pair(node, "stride", 1), "dilations": dilations, "group": int(_param(node, "groups", 1))}
    e.work += num_elements(node.outputs[0]) * math.prod(weight.shape[1:])
    e.give(node, e.op("Conv", _image(e, node), *_filters(e, node), pads=pads, **attrs))


def _conv_transpose(e: Emitter, node: Node) -> None:
    weight = _array(node, "weight")
    require(weight.ndim == 4, "rank")
    attrs = {
        "strides": _pair(node, "stride", 1),
        "dilations": _pair(node, "dilation", 1),
        "pads": 2 * _pair(node, "padding", 0),
        "output_padding": _pair(node, "output_padding", 0),
        "group": int(_param(node, "groups", 1)),
    }
    e.work += num_elements(node.inputs[0]) * math.prod(weight.shape[1:])
    e.give(node, e.op("ConvTranspose", _image(e, node), *_filters(e, node), **attrs))


def _linear(e: Emitter, node: Node) -> None:
    weight = _array(node, "weight")
    require(weight.ndim == 2, "rank")
    product = e.op("MatMul", _one(e, node), e.literal(weight.T))
    e.work += num_elements(node.outputs[0]) * weight.shape[1]
    e.give(node, e.op("Add", product, e.literal(_array(node, "bias"))) if _param(node, "bias") else product)


def _batch_norm(e: Emitter, node: Node) -> None:
    mean, variance = _array(node, "running_mean"), _array(node, "running_var")
    affine = _param(node, "affine", True)
    scale = _array(node, "weight") if affine else np.ones_like(mean)
    shift = _array(node, "bias") if affine else np.zeros_like(mean)
    names = [e.literal(each) for each in (scale, shift, mean, variance)]
    e.give(node, e.op("BatchNormalization", _image(e, node), *names, epsilon=float(_param(node, "eps", 1e-5))))


def _window(node: Node) -> dict[str, Any]:
    """How a window moves; a border of more than half of it is an error of our kernels."""
    size, pads = _pair(node, "kernel_size", None), _pair(node, "padding", 0)
    require(all(2 * pad <= length for pad, length in zip(pads, size, strict=True)), "padding")
    return {"kernel_shape": size, "strides": _pair(node, "stride", tuple(size)), "pads": 2 * pads}


def _max_pool(e: Emitter, node: Node) -> None:
    """A NaN among the inputs is not always handed on, so it is looked for."""
    require(not _param(node, "ceil_mode") and not _param(node, "return_indices"), "ceil_mode")
    require(_pair(node, "dilation", 1) == [1, 1], "dilation")
    x = _image(e, node)
    e.guard_nan(x, is_image=True)
    e.give(node, e.op("MaxPool", x, **_window(node)))


def _avg_pool(e: Emitter, node: Node) -> None:
    require(not _param(node, "ceil_mode") and not _param(node, "divisor_override"), "ceil_mode")
    counts_pad = int(bool(_param(node, "count_include_pad", True)))
    e.give(node, e.op("AveragePool", _image(e, node), count_include_pad=counts_pad, **_window(node)))


def _adaptive_avg_pool(e: Emitter, node: Node) -> None:
    require(_pair(node, "output_size", None) == [1, 1], "output_size")
    e.give(node, e.op("GlobalAveragePool", _image(e, node)))


def _softmax(e: Emitter, node: Node) -> None:
    axis = _param(node, "dim")
    require(isinstance(axis, int) and -rank_of(node.inputs[0]) <= axis < rank_of(node.inputs[0]), "dim")
    e.give(node, e.op("Softmax", _one(e, node), axis=axis))


def _cat(e: Emitter, node: Node) -> None:
    require(all(tensor.dtype.name == "float32" for tensor in node.inputs), "dtype")
    e.give(node, e.op("Concat", *(e.take(tensor) for tensor in node.inputs), axis=int(_param(node, "dim", 0))))


def _flatten(e: Emitter, node: Node) -> None:
    """All but the batch."""
    start = _param(node, "start_dim", 1 if node.op == f"{PREFIX}nn.Flatten" else 0)
    require(rank_of(node.inputs[0]) > 1 and start == 1, "start_dim")
    require(_param(node, "end_dim", -1) in (-1, rank_of(node.inputs[0]) - 1), "end_dim")
    e.give(node, e.op("Flatten", _one(e, node), axis=1))


def _plain(op: str, **attrs: object) -> Translation:
    return lambda e, node: e.give(node, e.op(op, _one(e, node), **attrs))


def _relu6(e: Emitter, node: Node) -> None:
    e.give(node, e.op("Clip", _one(e, node), e.literal(0, np.float32), e.literal(6, np.float32)))


def _silu(e: Emitter, node: Node) -> None:
    x = _one(e, node)
    e.give(node, e.op("Mul", x, e.op("Sigmoid", x)))


def _leaky_relu(e: Emitter, node: Node) -> None:
    e.give(node, e.op("LeakyRelu", _one(e, node), alpha=float(_param(node, "negative_slope", 0.01))))


def _named(translation: Translation, *types: str) -> dict[str, Translation]:
    return {f"{PREFIX}{each}": translation for each in types}


HEAVY_PNNX: Final[Mapping[str, Translation]] = {
    **_named(_conv, "nn.Conv2d"),
    **_named(_conv_transpose, "nn.ConvTranspose2d"),
    **_named(_linear, "nn.Linear"),
}
PNNX: Final[Mapping[str, Translation]] = {
    **HEAVY_PNNX,
    **_named(_batch_norm, "nn.BatchNorm2d"),
    **_named(_max_pool, "nn.MaxPool2d", "F.max_pool2d"),
    **_named(_avg_pool, "nn.AvgPool2d", "F.avg_pool2d"),
    **_named(_adaptive_avg_pool, "nn.AdaptiveAvgPool2d", "F.adaptive_avg_pool2d"),
    **_named(_softmax, "nn.Softmax", "F.softmax"),
    **_named(_cat, "torch.cat", "torch.concat"),
    **_named(_flatten, "torch.flatten", "nn.Flatten"),
    **_named(_plain("Relu"), "nn.ReLU", "F.relu", "torch.relu"),
    **_named(_plain("Sigmoid"), "nn.Sigmoid", "F.sigmoid", "torch.sigmoid"),
    **_named(_plain("Tanh"), "nn.Tanh", "F.tanh", "torch.tanh"),
    **_named(_plain("HardSigmoid", alpha=1 / 6, beta=0.5), "nn.Hardsigmoid", "F.hardsigmoid"),
    **_named(_plain("HardSwish"), "nn.Hardswish", "F.hardswish"),
    **_named(_relu6, "nn.ReLU6", "F.relu6"),
    **_named(_silu, "nn.SiLU", "F.silu"),
    **_named(_leaky_relu, "nn.LeakyReLU", "F.leaky_relu"),
}
