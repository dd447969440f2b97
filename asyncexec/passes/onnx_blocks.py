"""Nodes as ONNX Runtime passes images on in blocks of channels (NCHWc), the layout of its convolutions.

Theory
------
Convolutions, poolings, activations and operands of equal sizes pass blocks on to each other (Liu et al., "Optimizing
CNN Model Inference on CPUs", https://arxiv.org/abs/1809.02697).  Any other node in between has the whole image
reordered, there and back, which takes as long as what an elementwise node does itself.  So:

- a mean over all pixels is a GlobalAveragePool;
- a pixel that an image is multiplied by, as in squeeze-and-excitation (https://arxiv.org/abs/1709.01507), is resized to
  the image;
- a convolution of joined channels, of which only some come in blocks, as in a U-Net (https://arxiv.org/abs/1505.04597),
  is the sum of two convolutions;
- a convolution of an image of few channels, which comes as NHWC, takes each row of it as numbers of one channel, whose
  window moves by whole pixels: what would turn it to NCHW does so on one thread.
"""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np

from asyncexec.framework.arrays import Array
from asyncexec.framework.cooperative import FEW, Stage
from asyncexec.process.onnx_model import TO_NCHW, Dims, OnnxNode

HAS_BLOCKS: Final = platform.machine().lower() in ("x86_64", "amd64")  # whether ONNX Runtime has them on this CPU
_BLOCK: Final = 16  # channels, at most
_FEW_CHANNELS: Final = 4
_IMAGE_RANK: Final = 4
_POOLS: Final = frozenset({"MaxPool", "AveragePool", "GlobalAveragePool"})
_ACTIVATIONS: Final = frozenset({"Relu", "Sigmoid", "Tanh"})
_FUSED: Final = frozenset({"Clip", "LeakyRelu", "HardSigmoid"})  # with the convolution before them, if at all
_KEEPING: Final = frozenset({"Conv", "ConvTranspose", "BatchNormalization", "Resize"})  # as many examples
_ONE: Final[Array] = np.ones(1)


class _Tail(NamedTuple):
    """What scales and shifts the channels of a convolution behind it."""

    scale: Array
    offset: Array
    nodes: Sequence[OnnxNode]


class Blocks:
    """Rewrites the nodes of one model.

    Args:
        nodes: each after its inputs.
        constants: by name; what is made here is added.
        dims: the shapes of other values by name, as far as they are known.
        inputs: those of the model whose first size is not known.

    Attributes:
        sizes: as OnnxModel has them.
    """

    def __init__(
        self,
        nodes: Iterable[OnnxNode],
        constants: dict[str, Array],
        dims: Mapping[str, Dims],
        inputs: Iterable[str],
    ) -> None:
        self._nodes = nodes
        self._constants = constants
        self._dims = dict(dims)
        self._maker: dict[str, OnnxNode] = {}
        self._uses: dict[str, list[OnnxNode]] = {}
        self._num_uses: Counter[str] = Counter()
        self._blocked: set[str] = set()
        self._done: set[str] = set()  # outputs of nodes that others stand for
        self._batch_of = {name: name for name in inputs}
        self._num_names = 0
        self.sizes: dict[str, tuple[int | str, ...]] = {}

    def nodes(self, outputs: Collection[str]) -> Stage[list[OnnxNode]]:
        """The nodes that give *outputs*, as a stage."""
        self._num_uses.update(outputs)
        nodes = without_passing(self._nodes, outputs, self._constants)
        for node in nodes:
            for name in node.inputs:
                self._num_uses[name] += 1
                self._uses.setdefault(name, []).append(node)
        made: list[OnnxNode] = []
        for count, node in enumerate(nodes):
            if not count % FEW:
                yield
            if node.outputs[0] in self._done:
                continue
            for each in self._rewritten(node) or [node]:
                made.append(each)
                self._note(each)
        return made

    def _note(self, node: OnnxNode) -> None:
        self._maker.update(dict.fromkeys(node.outputs, node))
        self._batch_of.update(dict.fromkeys(node.outputs, self._origin(node)))
        if self._is_blocked(node):
            self._blocked.update(node.outputs)

    def _origin(self, node: OnnxNode) -> str:
        """The input of the model that has as many examples as the output of *node*; "" if none is known to."""
        origins = {self._batch_of.get(name, "") for name in node.inputs if name and name not in self._constants}
        keeps = node.op in _KEEPING or node.op in _POOLS or node.op in _ACTIVATIONS or node.op in _FUSED
        if node.op == "Transpose":
            keeps = tuple(node.attrs.get("perm", ()))[:1] == (0,)
        elif node.op == "Pad":
            keeps = self._zeros_around(node) is not None
        elif node.op == "Reshape":
            keeps = self._constants.get(node.inputs[1], _ONE)[:1].tolist() == [0] and not node.attrs.get("allowzero")
        elif node.op in ("Add", "Mul"):
            keeps = all(self._constants.get(name, _ONE).shape[:-3] in ((), (1,)) for name in node.inputs)
        return origins.pop() if keeps and len(origins) == 1 else ""

    def _is_blocked(self, node: OnnxNode) -> bool:
        """Whether the output of *node* comes in blocks."""
        if node.op == "Conv":
            weights = self._constants.get(node.inputs[1])
            group = node.attrs.get("group", 1)
            return weights is not None and weights.ndim == _IMAGE_RANK and group in (1, weights.shape[0])
        given = [name for name in node.inputs if name and name not in self._constants]
        if not given or not self._blocked.issuperset(given):
            return False
        if node.op in _FUSED or (node.op in ("Add", "Mul") and len(given) == 1):
            return self._num_uses[given[0]] == 1
        if node.op in ("Add", "Mul"):
            first, second = (self._dims.get(name) for name in given)
            return bool(first) and first == second
        if node.op == "Concat":
            return node.attrs["axis"] == 1 and not any(self._channels(name) % _BLOCK for name in given)
        return node.op in _POOLS or node.op in _ACTIVATIONS or node.op in ("BatchNormalization", "Resize")

    def _rewritten(self, node: OnnxNode) -> list[OnnxNode] | None:
        """What gives the output of *node*; None for itself."""
        if node.op == "ReduceMean":
            return self._mean(node)
        if node.op == "Mul":
            return self._by_pixel(node)
        if node.op == "Conv":
            return self._of_rows(node) or self._of_joined(node)
        if node.op == "ConvTranspose":
            return self._with_tail(node)
        return None

    def _mean(self, node: OnnxNode) -> list[OnnxNode] | None:
        x = node.inputs[0]
        dims = self._dims.get(x, ())
        if x not in self._blocked or sorted(node.attrs.get("axes", ())) != [2, 3] or not (dims and all(dims[2:])):
            return None
        if node.attrs.get("keepdims", 1):
            return [OnnxNode("GlobalAveragePool", (x,), node.outputs, {})]
        pooled = self._name()
        return [
            OnnxNode("GlobalAveragePool", (x,), (pooled,), {}),
            OnnxNode("Flatten", (pooled,), node.outputs, {"axis": 1}),
        ]

    # Squeeze and excitation.

    def _by_pixel(self, node: OnnxNode) -> list[OnnxNode] | None:
        for x, pixel in (node.inputs, node.inputs[::-1]):
            dims, one = self._dims.get(x, ()), self._dims.get(pixel, ())
            if not self._blocked.issuperset((x, pixel)) or len(dims) != _IMAGE_RANK or one[1:] != (dims[1], 1, 1):
                continue
            batch, *sizes = dims
            first = batch if batch is not None else self._batch_of[x]
            if not all(sizes) or sizes[1:] == [1, 1] or not first:
                continue
            if one[0] != batch or (batch is None and self._batch_of[pixel] != first):
                continue
            resized = self._name()
            self._dims[resized] = dims
            self.sizes[resized] = (first, *(size or 0 for size in sizes))
            scales = self._literal(np.array((1, 1, *dims[2:]), np.float32))
            how = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
            return [
                OnnxNode("Resize", (pixel, "", scales), (resized,), how),
                OnnxNode("Mul", (x, resized), node.outputs, {}),
            ]
        return None

    # Joined channels.

    def _of_joined(self, node: OnnxNode) -> list[OnnxNode] | None:
        joined = self._maker.get(node.inputs[0])
        weights = self._weights(node)
        if joined is None or joined.op != "Concat" or joined.attrs["axis"] != 1 or self._num_uses[node.inputs[0]] != 1:
            return None
        sizes = [self._channels(name) for name in joined.inputs]
        if weights is None or not all(sizes) or sum(sizes) != weights.shape[1] or not self._fit(joined.inputs):
            return None
        parts: dict[bool, list[tuple[str, Array]]] = {True: [], False: []}
        start = 0
        for name, size in zip(joined.inputs, sizes, strict=True):
            parts[name in self._blocked and not size % _BLOCK].append((name, weights[:, start : start + size]))
            start += size
        if not all(parts.values()):
            return None
        tail = self._tail(node, weights.shape[0])
        last = (tail.nodes or [node])[-1]
        scale = tail.scale.astype(np.float32).reshape(-1, 1, 1, 1)
        made: list[OnnxNode] = []
        names: list[str] = []
        for some in parts.values():
            name = some[0][0] if len(some) == 1 else self._name()
            if len(some) > 1:
                made.append(OnnxNode("Concat", tuple(each for each, _ in some), (name,), {"axis": 1}))
            filters = np.concatenate([each for _, each in some], axis=1) * scale
            inputs = [name, self._literal(filters)]
            if not names:
                inputs.append(self._literal(tail.offset.astype(np.float32)))
            names.append(self._name())
            self._dims[names[-1]] = self._dims.get(last.outputs[0], ())
            made.append(
                OnnxNode("Conv", tuple(inputs), (names[-1],), {**node.attrs, "kernel_shape": weights.shape[2:]})
            )
        self._done.update(each.outputs[0] for each in tail.nodes)
        return [*made, OnnxNode("Add", tuple(names), last.outputs, {})]

    def _fit(self, names: Sequence[str]) -> bool:
        """Whether images are known to be equal but for their channels: else a sum would broadcast them."""
        dims = [self._dims[name] for name in names]
        batches = {self._batch_of[name] if size[0] is None else size[0] for name, size in zip(names, dims, strict=True)}
        return len(batches) == 1 and batches != {""} and len({size[2:] for size in dims}) == 1 and all(dims[0][2:])

    def _with_tail(self, node: OnnxNode) -> list[OnnxNode] | None:
        """*node*, a transposed convolution, with what scales and shifts its channels: ONNX Runtime has that apart."""
        weights = self._weights(node)
        tail = None if weights is None else self._tail(node, weights.shape[1])
        if weights is None or tail is None or not tail.nodes:
            return None
        self._done.update(each.outputs[0] for each in tail.nodes)
        filters = self._literal(weights * tail.scale.astype(np.float32).reshape(-1, 1, 1))
        bias = self._literal(tail.offset.astype(np.float32))
        return [node._replace(inputs=(node.inputs[0], filters, bias), outputs=tail.nodes[-1].outputs)]

    def _tail(self, node: OnnxNode, channels: int) -> _Tail:
        """The nodes behind *node*, a convolution, that scale or shift its channels, and what they do, with its bias."""
        scale, offset = np.ones(channels), np.zeros(channels)
        if len(node.inputs) > 2:
            offset = self._constants[node.inputs[2]].astype(np.float64)
        found: list[OnnxNode] = []
        while self._num_uses[node.outputs[0]] == 1 and (users := self._uses.get(node.outputs[0])):
            (node,) = users
            step = self._by_channels(node, channels)
            if step is None:
                break
            scale, offset = scale * step[0], offset * step[0] + step[1]
            found.append(node)
        return _Tail(scale, offset, found)

    def _by_channels(self, node: OnnxNode, channels: int) -> tuple[Array, Array] | None:
        """By what *node* scales each channel of its first input that is no constant, and by what it shifts it."""
        constants = [self._constants[name] for name in node.inputs if name in self._constants]
        is_norm = node.op == "BatchNormalization" and len(node.outputs) == 1 and node.inputs[0] not in self._constants
        if is_norm and len(constants) == len(node.inputs) - 1:
            gamma, beta, mean, variance = (each.astype(np.float64) for each in constants)
            factor = gamma / np.sqrt(variance + node.attrs.get("epsilon", 1e-5))
            return factor, beta - mean * factor
        if node.op == "Add" and [each.size for each in constants] == [channels]:
            if constants[0].shape[-3:] != (channels, 1, 1):
                return None
            return np.ones(channels), constants[0].reshape(-1).astype(np.float64)
        return None

    # Rows of pixels.

    def _of_rows(self, node: OnnxNode) -> list[OnnxNode] | None:
        weights = self._weights(node)
        dilations = node.attrs.get("dilations", (1, 1))
        if weights is None or weights.shape[1] > _FEW_CHANNELS or tuple(dilations) != (1, 1):
            return None
        before = self._only_use(node.inputs[0], "Pad")
        pads = np.zeros(2 * _IMAGE_RANK, np.int64) if before is None else self._zeros_around(before)
        turned = node.inputs[0] if before is None else before.inputs[0]
        scaled = self._only_use(turned, "BatchNormalization")
        turn = self._only_use(turned if scaled is None else scaled.inputs[0], "Transpose")
        if pads is None or turn is None or tuple(turn.attrs.get("perm", ())) != TO_NCHW:
            return None
        source = turn.inputs[0]
        dims = self._dims.get(source, ())
        if len(dims) != _IMAGE_RANK or not all(dims[1:]) or dims[3] != weights.shape[1]:
            return None
        _, rows, columns, channels = (dim or 0 for dim in dims)
        inside = _pads(node, weights.shape[2:], (rows + pads[2] + pads[6], columns + pads[3] + pads[7]))
        if inside is None:
            return None
        top, left, bottom, right = inside + pads[[2, 3, 6, 7]]
        name, shape = self._name(), np.array((0, 1, rows, columns * channels), np.int64)
        made = [OnnxNode("Reshape", (source, self._literal(shape)), (name,), {})]
        if scaled is not None:
            step = self._by_channels(scaled, channels)
            if step is None:
                return None
            for op, row in zip(("Mul", "Add"), step, strict=True):
                given, name = name, self._name()
                made.append(OnnxNode(op, (given, self._literal(np.tile(row.astype(np.float32), columns))), (name,), {}))
        height, width = node.attrs.get("strides", (1, 1))
        filters = weights.transpose(0, 2, 3, 1).reshape(weights.shape[0], 1, weights.shape[2], -1)
        attrs = {
            "kernel_shape": filters.shape[2:],
            "strides": (height, width * channels),
            "pads": [int(each) for each in (top, left * channels, bottom, right * channels)],
        }
        return [*made, OnnxNode("Conv", (name, self._literal(filters), *node.inputs[2:]), node.outputs, attrs)]

    def _zeros_around(self, node: OnnxNode) -> Array | None:
        """How many zeros *node*, a Pad, adds before and behind each axis of an image; None if it adds anything else."""
        pads = self._constants.get(node.inputs[1])
        value = self._constants.get(node.inputs[2]) if len(node.inputs) > 2 else np.zeros(1)
        if (
            node.attrs.get("mode", "constant") not in ("constant", b"constant")
            or pads is None
            or value is None
            or value.any()
        ):
            return None
        return pads if pads.size == 2 * _IMAGE_RANK and not pads[[0, 1, 4, 5]].any() and (pads >= 0).all() else None

    # What the nodes say.

    def _weights(self, node: OnnxNode) -> Array | None:
        """The filters of *node*, a convolution of all channels at once, of images; None where they are not constant."""
        weights = self._constants.get(node.inputs[1])
        is_plain = weights is not None and weights.ndim == _IMAGE_RANK and node.attrs.get("group", 1) == 1
        return weights if is_plain and (len(node.inputs) < 3 or node.inputs[2] in self._constants) else None

    def _only_use(self, name: str, op: str) -> OnnxNode | None:
        """The node that makes *name*, if it is an *op*, and nothing else takes that."""
        found = self._maker.get(name)
        return found if found is not None and found.op == op and self._num_uses[name] == 1 else None

    def _channels(self, name: str) -> int:
        """Those of *name*; 0 where they are not known."""
        dims = self._dims.get(name, ())
        return (dims[1] or 0) if len(dims) == _IMAGE_RANK else 0

    def _literal(self, value: Array) -> str:
        name = self._name()
        self._constants[name] = value
        return name

    def _name(self) -> str:
        self._num_names += 1
        return f"b{self._num_names}"


def without_passing(
    nodes: Iterable[OnnxNode], outputs: Collection[str], constants: Mapping[str, Array]
) -> list[OnnxNode]:
    """*nodes* without those that hand on what they take, and give none of *outputs*."""
    passed: dict[str, str] = {}
    made = []
    for node in nodes:
        inputs = tuple(passed.get(name, name) for name in node.inputs)
        source = _passed_on(node.op, inputs, constants)
        if source is not None and node.outputs[0] not in outputs:
            passed[node.outputs[0]] = source
        else:
            made.append(node._replace(inputs=inputs))
    return made


def _passed_on(op: str, inputs: Sequence[str], constants: Mapping[str, Array]) -> str | None:
    """What an *op* of *inputs* hands on as it is: a factor of 1 is that of a swish, for one."""
    if op == "Identity":
        return inputs[0]
    others = [name for name in inputs if not (name in constants and _is_one(constants[name]))]
    return others[0] if op == "Mul" and len(others) == 1 else None


def _is_one(value: Array) -> bool:
    return not value.ndim and value.dtype == np.float32 and bool(value == 1)


def _pads(node: OnnxNode, size: Sequence[int], plane: Sequence[int]) -> Array | None:
    """What *node*, a convolution by filters of *size*, adds to a *plane*: above, left, below and right of it."""
    how = node.attrs.get("auto_pad", "NOTSET")
    if how in ("NOTSET", b"NOTSET"):
        return np.array(node.attrs.get("pads", (0, 0, 0, 0)))
    if how not in ("SAME_UPPER", b"SAME_UPPER"):
        return None
    strides = node.attrs.get("strides", (1, 1))
    totals = [
        max((-(-length // stride) - 1) * stride + reach - length, 0)
        for length, stride, reach in zip(plane, strides, size, strict=True)
    ]
    return np.array([*(total // 2 for total in totals), *(total - total // 2 for total in totals)])
