"""Inputs whose values tell how large the outputs of an op are, and the feeds that they come from."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from enum import IntEnum
from typing import Final

from asyncexec.framework.cooperative import Stage, in_parts
from asyncexec.framework.types import string
from asyncexec.graph.node import Node, Tensor

_SHAPED_RANDOM: Final = (
    *("ParameterizedTruncatedNormal", "RandomGamma", "RandomPoisson", "RandomPoissonV2", "RandomStandardNormal"),
    *("RandomUniform", "RandomUniformInt", "TruncatedNormal"),
    *(f"Stateless{name}" for name in ("RandomBinomial", "RandomGammaV2", "RandomGammaV3", "RandomPoisson")),
    *(
        f"Stateless{name}{version}"
        for name in ("RandomNormal", "RandomUniform", "RandomUniformFullInt", "RandomUniformInt", "TruncatedNormal")
        for version in ("", "V2")
    ),
)
_STATEFUL_RANDOM: Final = (
    *("StatefulRandomBinomial", "StatefulStandardNormalV2", "StatefulTruncatedNormal"),
    *("StatefulUniform", "StatefulUniformFullInt", "StatefulUniformInt"),
)
_RESIZED: Final = ("ResizeArea", "ResizeBicubic", "ResizeBilinear", "ResizeNearestNeighbor")
# Of ops that may make something large of little.
SIZE_INPUTS: Final[Mapping[str, Sequence[int]]] = {
    **dict.fromkeys(("Empty", "Fill", "Onnx>ConstantOfShape", "RaggedTensorToTensor", *_SHAPED_RANDOM), (0,)),
    **dict.fromkeys(("BroadcastTo", "MirrorPad", "Pad", "PadV2", "Tile", *_RESIZED), (1,)),
    **dict.fromkeys(("Onnx>AffineGrid", "Onnx>Expand", "Onnx>OneHot", "Onnx>Pad", "Onnx>Tile", "Onnx>Upsample"), (1,)),
    **dict.fromkeys(
        ("Bincount", "DenseBincount", "OneHot", "SparseToDense", "StatefulStandardNormal", "TensorListReserve"), (1,)
    ),
    **dict.fromkeys(_STATEFUL_RANDOM, (2,)),
    **dict.fromkeys(("LinSpace", "ScatterNd", "UnsortedSegmentMax", "UnsortedSegmentMin"), (2,)),
    **dict.fromkeys(("Onnx>MaxUnpool", "UnsortedSegmentProd", "UnsortedSegmentSum"), (2,)),
    **dict.fromkeys(("Onnx>Range", "RaggedRange", "Range"), (0, 1, 2)),
    **dict.fromkeys(("Onnx>BlackmanWindow", "Onnx>HammingWindow", "Onnx>HannWindow"), (0,)),
    **dict.fromkeys(("ExtractGlimpse", "ExtractGlimpseV2", "Onnx>DFT"), (1,)),
    **dict.fromkeys(("HistogramFixedWidth", "ImageProjectiveTransformV2", "ImageProjectiveTransformV3"), (2,)),
    "CropAndResize": (3,),
    "DynamicStitch": (0,),  # the largest index
    "MatrixDiagV2": (2, 3),
    "MatrixDiagV3": (2, 3),
    "Multinomial": (1,),
    "Onnx>MelWeightMatrix": (0, 1),
    "Onnx>Resize": (1, 2, 3),  # of which some may be absent
    "Slice": (2,),
    "SparseFillEmptyRows": (2,),
    "StatelessMultinomial": (1,),
}
# What these give tells how large something is that is there already.
_SHAPES: Final = frozenset({"Onnx>Shape", "Onnx>Size", "Rank", "Shape", "ShapeN", "Size", "VariableShape"})


def has_known_size(node: Node) -> bool:
    """Whether it is known beforehand how large the outputs of *node* are."""
    return all(
        shape.num_elements is not None and not (dtype.is_opaque or dtype.base_dtype is string)
        for shape, dtype in zip(node.output_shapes, node.properties.output_dtypes, strict=True)
    )


def sizes_of(node: Node) -> Sequence[Tensor]:
    """The inputs of *node* whose values tell how large its outputs are, which is not known beforehand."""
    places = SIZE_INPUTS.get(node.op)
    if places is None or has_known_size(node):
        return ()
    return [node.inputs[at] for at in places if at < len(node.inputs)]


class Role(IntEnum):
    """What a fed value is for the size of an array, the more it may be, the larger."""

    LARGEST = 0  # the size grows with the largest of the numbers
    FACTORS = 1  # with their product
    ANY = 2  # nobody knows how


# What these give is no larger than a few times the sum, or the product, of what they get.
_STEADY: Final = frozenset(
    {
        *("Add", "AddV2", "Cast", "ConcatV2", "ExpandDims", "Gather", "GatherV2", "Identity", "Maximum", "Minimum"),
        *("Mul", "Neg", "Pack", "Prod", "Reshape", "Slice", "Squeeze", "StridedSlice", "Sub", "Sum"),
    }
)
_DIVISORS: Final[Mapping[str, int]] = {"Range": 2, "RaggedRange": 2, "Onnx>Range": 2}  # inputs of these ops


def feeds_of_sizes(nodes: Sequence[Node], feeds: Sequence[Tensor]) -> Stage[dict[int, Role]]:
    """By position, those of *feeds* whose values may tell *nodes* how much to make, as a stage.

    Of Python objects nothing is known.
    """
    positions = {(tensor.op, tensor.index): position for position, tensor in enumerate(feeds)}
    behind: list[tuple[Tensor, Role]] = []
    for part in in_parts(nodes):
        for node in part:
            for tensor in sizes_of(node):
                divisor = _DIVISORS.get(node.op)
                is_divisor = divisor is not None and tensor is node.inputs[divisor]
                behind.append((tensor, Role.ANY if is_divisor else Role.FACTORS))
        yield
    found: dict[int, Role] = {}
    seen: dict[Node, Role] = {}
    while behind:
        before, behind = behind, []
        for some in in_parts(before):
            for tensor, role in some:
                position = positions.get((tensor.op, tensor.index))
                if position is None:
                    behind += _behind(tensor.op, role, seen)
                elif not tensor.dtype.is_opaque:
                    found[position] = max(role, found.get(position, role))
            yield
    return found


def _behind(node: Node, role: Role, seen: dict[Node, Role]) -> Collection[tuple[Tensor, Role]]:
    """What the values of *node*, which have this *role*, are made of."""
    if node.op in _SHAPES or seen.get(node, -1) >= role:
        return ()
    seen[node] = role
    if role is not Role.ANY and node.op == "Max":
        role = Role.LARGEST
    elif node.op not in _STEADY:
        role = Role.ANY
    return [(tensor, role) for tensor in node.inputs]
