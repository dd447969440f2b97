"""Random nodes of layers: op type, inputs, dtypes of the outputs and attributes, as ONNX Runtime takes them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

Random = np.random.Generator
FLOAT, UINT8, INT32, INT64 = 1, 2, 6, 7  # of TensorProto.DataType
CODES: Final = {"uint8": 2, "int8": 3, "uint16": 4, "int16": 5}


@dataclass
class RandomNode:
    """A node with its inputs; an input that is None is left out."""

    op: str
    inputs: list[Any]
    outputs: list[int]
    attrs: dict[str, Any] = field(default_factory=dict)
    opset: int = 21
    domain: str = ""
    atol: float = 1e-5


def ints(rng: Random, low: int, high: int, count: int) -> list[int]:
    return [int(one) for one in rng.integers(low, high, count)]


def floats(rng: Random, *shape: int) -> Any:
    return rng.standard_normal(shape).astype(np.float32)


def pick(rng: Random, *choices: Any) -> Any:
    return choices[int(rng.integers(len(choices)))]


def chance(rng: Random, share: float) -> bool:
    return bool(rng.random() < share)


def _windows(rng: Random) -> tuple[list[int], list[int], dict[str, Any]]:
    """Sizes and window of one to three axes, and attributes."""
    rank = int(rng.integers(1, 4))
    attrs: dict[str, Any] = {"strides": ints(rng, 1, 4, rank), "dilations": ints(rng, 1, 3, rank)}
    if chance(rng, 0.4):
        # Others refuse dilations here.
        attrs |= {"auto_pad": pick(rng, "SAME_UPPER", "SAME_LOWER", "VALID"), "dilations": [1] * rank}
    else:
        attrs["pads"] = ints(rng, 0, 3, 2 * rank)
    return ints(rng, 3, 14, rank), ints(rng, 1, 4, rank), attrs


def _channels(rng: Random) -> tuple[int, int, int]:
    """Groups, and channels in and out of each; deep enough for each way to compute them."""
    if chance(rng, 0.3):
        return int(rng.integers(2, 6)), 1, int(rng.integers(1, 3))
    return pick(rng, 1, 1, 2, 3), pick(rng, 1, 2, 3, 9), int(rng.integers(1, 4))


def conv(rng: Random) -> RandomNode:
    sizes, window, attrs = _windows(rng)
    groups, depth, out = _channels(rng)
    if len(sizes) == 2 and chance(rng, 0.3):
        sizes = [size + 25 for size in sizes]
    x, w = floats(rng, int(rng.integers(1, 4)), groups * depth, *sizes), floats(rng, groups * out, depth, *window)
    bias = [floats(rng, groups * out)] if chance(rng, 0.5) else []
    return RandomNode("Conv", [x, w, *bias], [FLOAT], attrs | {"group": groups}, atol=1e-4)


def conv_transpose(rng: Random) -> RandomNode:
    sizes, window, attrs = _windows(rng)
    groups, depth, out = _channels(rng)
    attrs.pop("auto_pad", None)  # SAME gives other sizes there than the op says
    attrs["pads"] = [min(pad, 1) for pad in attrs.get("pads", ())] or [0] * 2 * len(sizes)
    if chance(rng, 0.4):
        attrs["output_padding"] = [int(rng.integers(0, stride)) for stride in attrs["strides"]]
    x, w = floats(rng, 2, groups * depth, *sizes), floats(rng, groups * depth, out, *window)
    bias = [floats(rng, groups * out)] if chance(rng, 0.5) else []
    return RandomNode("ConvTranspose", [x, w, *bias], [FLOAT], attrs | {"group": groups}, atol=1e-4)


def quantized_conv(rng: Random) -> RandomNode:
    sizes, window, attrs = _windows(rng)
    groups, depth, out = _channels(rng)
    attrs["group"] = groups
    x = rng.integers(0, 255, (2, groups * depth, *sizes)).astype(np.uint8)
    if chance(rng, 0.4):
        w = rng.integers(0, 255, (groups * out, depth, *window)).astype(np.uint8)
        zeros = [np.array(zero, np.uint8) for zero in ints(rng, 0, 255, 2)]
        return RandomNode("ConvInteger", [x, w, *zeros], [INT32], attrs)
    w = rng.integers(-127, 127, (groups * out, depth, *window)).astype(np.int8)
    shape = (groups * out,) if chance(rng, 0.5) else ()
    w_scale = np.asarray(rng.random(shape) * 0.01 + 0.001, np.float32)
    inputs = [x, np.array(0.02, np.float32), np.array(120, np.uint8), w, w_scale, np.zeros(shape, np.int8)]
    inputs += [np.array(0.05, np.float32), np.array(100, np.uint8)]
    if chance(rng, 0.5):
        inputs.append(rng.integers(-1000, 1000, groups * out).astype(np.int32))
    return RandomNode("QLinearConv", inputs, [UINT8], attrs, atol=1.01)  # a half may be rounded either way


def pooling(rng: Random) -> RandomNode:
    rank = int(rng.integers(1, 4))
    op, window = pick(rng, "MaxPool", "AveragePool", "LpPool"), ints(rng, 1, 4, rank)
    x = floats(rng, 2, int(rng.integers(1, 4)), *ints(rng, 5, 13, rank))
    attrs: dict[str, Any] = {"kernel_shape": window, "strides": ints(rng, 1, 4, rank)}
    if chance(rng, 0.3):
        attrs |= {"auto_pad": pick(rng, "SAME_UPPER", "SAME_LOWER", "VALID"), "strides": [1] * rank}
    else:
        attrs |= {"ceil_mode": int(chance(rng, 0.4)), "pads": [int(rng.integers(0, size)) for size in window] * 2}
        if chance(rng, 0.4):
            attrs["dilations"] = ints(rng, 1, 3, rank)
    outputs = [FLOAT]
    if op == "MaxPool" and chance(rng, 0.5):
        outputs, attrs["storage_order"] = [FLOAT, INT64], int(chance(rng, 0.3))
    if op == "AveragePool":
        attrs["count_include_pad"] = int(chance(rng, 0.5))
    if op == "LpPool":
        attrs["p"] = int(rng.integers(1, 4))
    return RandomNode(op, [x], outputs, attrs)


def recurrent(rng: Random) -> RandomNode:
    op, gates, functions = pick(rng, ("RNN", 1, 1), ("GRU", 3, 2), ("LSTM", 4, 3))
    direction = pick(rng, "forward", "reverse", "bidirectional")
    both = 2 if direction == "bidirectional" else 1
    steps, batch, size, hidden = ints(rng, 1, 6, 4)
    attrs: dict[str, Any] = {"direction": direction, "hidden_size": hidden}
    inputs = [floats(rng, steps, batch, size), floats(rng, both, gates * hidden, size)]
    inputs.append(floats(rng, both, gates * hidden, hidden))
    inputs.append(floats(rng, both, 2 * gates * hidden) if chance(rng, 0.7) else None)
    inputs.append(rng.integers(1, steps + 1, batch).astype(np.int32) if chance(rng, 0.5) else None)
    inputs.append(floats(rng, both, batch, hidden) if chance(rng, 0.5) else None)
    outputs = [FLOAT, FLOAT]
    if op == "LSTM":
        outputs.append(FLOAT)
        inputs.append(floats(rng, both, batch, hidden) if chance(rng, 0.5) else None)
        inputs.append(floats(rng, both, 3 * hidden) if chance(rng, 0.4) else None)
        attrs["input_forget"] = int(chance(rng, 0.2))
    if op == "GRU":
        attrs["linear_before_reset"] = int(chance(rng, 0.5))
    if chance(rng, 0.3):
        attrs["clip"] = pick(rng, 0.5, 1.0, 3.0)
    if chance(rng, 0.4):
        names = ("Relu", "Tanh", "Sigmoid", "Softsign", "Elu", "LeakyRelu", "HardSigmoid")
        # Gates that are not bounded let states grow until nothing can be compared.
        attrs["activations"] = ([*(pick(rng, *names[1:4]) for _ in range(functions - 1)), pick(rng, *names)]) * both
    while inputs[-1] is None:
        inputs.pop()
    return RandomNode(op, inputs, outputs, attrs, opset=14, atol=1e-3)


def resize(rng: Random) -> RandomNode:
    mode = pick(rng, "nearest", "linear", "cubic")
    sizes = [*ints(rng, 1, 3, 2), *ints(rng, 4, 10, 2)]
    transforms = ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric", "half_pixel_symmetric")
    attrs: dict[str, Any] = {"mode": mode, "coordinate_transformation_mode": pick(rng, *transforms)}
    if mode == "nearest":
        attrs["nearest_mode"] = pick(rng, "round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
    elif chance(rng, 0.4):
        attrs["antialias"] = 1
    if mode == "cubic":
        attrs |= {"cubic_coeff_a": pick(rng, -0.5, -0.75), "exclude_outside": int(chance(rng, 0.4))}
    x = floats(rng, *sizes)
    if chance(rng, 0.5):
        scales = [1, 1, *(pick(rng, 0.5, 0.6, 0.8, 1.0, 1.5, 2.0, 2.3, 3.0) for _ in range(2))]
        return RandomNode("Resize", [x, None, np.array(scales, np.float32)], [FLOAT], attrs, opset=19, atol=1e-4)
    if chance(rng, 0.3):
        attrs |= {"keep_aspect_ratio_policy": pick(rng, "not_larger", "not_smaller"), "axes": [2, 3]}
        wanted = ints(rng, 1, 16, 2)
    else:
        wanted = [*sizes[:2], *ints(rng, 1, 16, 2)]
    return RandomNode("Resize", [x, None, None, np.array(wanted)], [FLOAT], attrs, opset=19, atol=1e-4)


def normalization(rng: Random) -> RandomNode:
    shape = ints(rng, 1, 6, int(rng.integers(3, 5)))
    x, depth = floats(rng, *shape), shape[1]
    epsilon = {"epsilon": pick(rng, 1e-5, 1e-2)}
    match int(rng.integers(7)):
        case 0:
            trains = int(chance(rng, 0.4))
            inputs = [x, *(floats(rng, depth) for _ in range(3)), rng.random(depth).astype(np.float32) + 0.1]
            attrs = epsilon | {"training_mode": trains, "momentum": 0.8}
            return RandomNode("BatchNormalization", inputs, [FLOAT] * (3 if trains else 1), attrs, atol=1e-4)
        case 1:
            inputs = [x, floats(rng, depth), floats(rng, depth)]
            return RandomNode("InstanceNormalization", inputs, [FLOAT], epsilon, atol=1e-3)
        case 2:
            axis = int(rng.integers(-len(shape), len(shape)))
            inputs = [x, *(floats(rng, *shape[axis:]) for _ in range(int(rng.integers(1, 3))))]
            return RandomNode("LayerNormalization", inputs, [FLOAT] * 3, epsilon | {"axis": axis}, atol=1e-3)
        case 3:
            attrs = {"size": pick(rng, 1, 3, 5), "alpha": 0.3, "beta": 0.6, "bias": 1.5}
            return RandomNode("LRN", [floats(rng, 2, 6, 3, 3)], [FLOAT], attrs)
        case 4:
            attrs = {"axis": int(rng.integers(-len(shape), len(shape))), "p": int(rng.integers(1, 3))}
            return RandomNode("LpNormalization", [x], [FLOAT], attrs)
        case 5:
            inputs = [floats(rng, shape[0], 6, *shape[2:]), floats(rng, 6), floats(rng, 6)]
            attrs = epsilon | {"num_groups": pick(rng, 1, 2, 3)}
            return RandomNode("GroupNormalization", inputs, [FLOAT], attrs, atol=1e-3)
    return RandomNode("MeanVarianceNormalization", [floats(rng, 2, 3, 4, 5)], [FLOAT], {"axes": [0, 2, 3]})


def quantization(rng: Random) -> RandomNode:
    shape, axis = ints(rng, 1, 7, 3), int(rng.integers(-3, 3))
    dtype = pick(rng, np.uint8, np.int8, np.uint16, np.int16)
    info, block = np.iinfo(dtype), int(rng.integers(1, 4))
    kind = int(rng.integers(3))
    blocks = [-(-size // block) if i == axis % 3 else size for i, size in enumerate(shape)]
    scales: list[int] = [[], [shape[axis]], blocks][kind]
    scale = np.asarray(rng.random(scales) * 0.1 + 0.01, np.float32)
    zero = [np.asarray(rng.integers(info.min, info.max, scales)).astype(dtype)] if chance(rng, 0.7) else []
    attrs: dict[str, Any] = {"axis": axis} | ({"block_size": block} if kind == 2 else {})
    if chance(rng, 0.5):
        x = rng.integers(info.min, info.max, shape).astype(dtype)
        return RandomNode("DequantizeLinear", [x, scale, *zero], [FLOAT], attrs)
    code = CODES[np.dtype(dtype).name]
    attrs |= {} if zero else {"output_dtype": code}
    return RandomNode("QuantizeLinear", [floats(rng, *shape) * 10, scale, *zero], [code], attrs)


def region(rng: Random) -> RandomNode:
    x = floats(rng, 2, 3, *ints(rng, 3, 12, 2))
    first = rng.random((4, 2)) * 8 - 1
    rois = np.concatenate([first, first + rng.random((4, 2)) * 8], 1).astype(np.float32)
    attrs: dict[str, Any] = {"spatial_scale": pick(rng, 1.0, 0.5)}
    if chance(rng, 0.4):
        rois = np.concatenate([rng.integers(0, 2, (4, 1)), np.round(rois)], 1).astype(np.float32)
        return RandomNode("MaxRoiPool", [x, rois], [FLOAT], attrs | {"pooled_shape": ints(rng, 1, 5, 2)})
    attrs |= {"mode": pick(rng, "avg", "max"), "sampling_ratio": int(rng.integers(0, 4))}
    attrs |= dict(zip(("output_height", "output_width"), ints(rng, 1, 5, 2), strict=True))
    attrs["coordinate_transformation_mode"] = pick(rng, "half_pixel", "output_half_pixel")
    return RandomNode("RoiAlign", [x, rois, rng.integers(0, 2, 4)], [FLOAT], attrs, opset=16)


def grid_sample(rng: Random) -> RandomNode:
    attrs = {
        "mode": pick(rng, "nearest", "linear", "cubic"),
        "padding_mode": pick(rng, "zeros", "border", "reflection"),
        "align_corners": int(chance(rng, 0.5)),
    }
    inputs = [floats(rng, 2, 2, *ints(rng, 2, 7, 2)), floats(rng, 2, 3, 4, 2) * np.float32(0.9)]
    return RandomNode("GridSample", inputs, [FLOAT], attrs, opset=20)


def attention(rng: Random) -> RandomNode:
    batch, heads, group, queries, keys, size, out = ints(rng, 1, 4, 7)
    inputs = [floats(rng, batch, heads * group, queries, size), floats(rng, batch, heads, keys, size)]
    inputs.append(floats(rng, batch, heads, keys, out))
    if chance(rng, 0.5):
        inputs.append(floats(rng, queries, keys) if chance(rng, 0.5) else rng.random((queries, keys)) < 0.7)
    attrs = {"is_causal": int(chance(rng, 0.3)), "softcap": pick(rng, 0.0, 2.0)}
    return RandomNode("Attention", inputs, [FLOAT], attrs, opset=23)


def suppression(rng: Random) -> RandomNode:
    count, centered = int(rng.integers(1, 20)), int(chance(rng, 0.5))
    boxes = rng.random((2, count, 4)).astype(np.float32)
    limits = [np.array([int(rng.integers(1, 6))]), np.array([0.3], np.float32), np.array([0.2], np.float32)]
    inputs = [boxes, rng.random((2, 3, count)).astype(np.float32), *limits]
    return RandomNode("NonMaxSuppression", inputs, [INT64], {"center_point_box": centered})


def older(rng: Random) -> RandomNode:
    """Nodes of operator sets in which the op meant something else than it does now."""
    x = floats(rng, *ints(rng, 1, 5, 4))
    match int(rng.integers(6)):
        case 0:
            attrs = {"axis": int(rng.integers(0, 4))}
            return RandomNode(pick(rng, "Softmax", "LogSoftmax", "Hardmax"), [x], [FLOAT], attrs, opset=11)
        case 1:
            return RandomNode("Dropout", [x], [FLOAT], {"ratio": 0.3}, opset=pick(rng, 7, 10))
        case 2:
            inputs = [x, *(floats(rng, x.shape[1]) for _ in range(3)), rng.random(x.shape[1]).astype(np.float32) + 0.1]
            return RandomNode("BatchNormalization", inputs, [FLOAT], opset=pick(rng, 7, 9), atol=1e-4)
        case 3:
            attrs = {"mode": "nearest", "scales": [1.0, 1.0, pick(rng, 1.0, 2.0), pick(rng, 2.0, 3.0)]}
            return RandomNode("Upsample", [x], [FLOAT], attrs, opset=7)
        case 4:
            scales = np.array([1, 1, pick(rng, 1, 2, 0.5), pick(rng, 1.5, 2)], np.float32)
            x = floats(rng, 1, 2, *ints(rng, 3, 7, 2))
            return RandomNode("Resize", [x, scales], [FLOAT], {"mode": pick(rng, "nearest", "linear")}, opset=10)
    attrs = {"kernel_shape": [1, 1], "strides": [2, 1]}
    return RandomNode(pick(rng, "MaxPool", "AveragePool"), [x], [FLOAT], attrs, opset=pick(rng, 7, 8))


LAYERS: Final[dict[str, Callable[[Random], RandomNode]]] = {
    one.__name__: one
    for one in (
        conv,
        conv_transpose,
        quantized_conv,
        pooling,
        recurrent,
        resize,
        normalization,
        quantization,
        region,
        grid_sample,
        attention,
        suppression,
        older,
    )
}
