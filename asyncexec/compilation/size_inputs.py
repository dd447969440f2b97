"""Inputs whose values tell how large the outputs of an op are, and the feeds that they come from."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
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
    "CropAndResize": (3,),
    "DynamicStitch": (0,),  # the largest index
    "MatrixDiagV2": (2, 3),
    "MatrixDiagV3": (2, 3),
    "Multinomial": (1,),
    "Onnx>Resize": (1, 2, 3),  # of which some may be absent
    "Slice": (2,),
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


def feeds_of_sizes(nodes: Sequence[Node], feeds: Sequence[Tensor]) -> Stage[set[int]]:
    """The positions of those of *feeds* whose values may tell *nodes* how much to make, as a stage.

    Of Python objects nothing is known.
    """
    positions = {(tensor.op, tensor.index): position for position, tensor in enumerate(feeds)}
    tensors: list[Tensor] = []
    for part in in_parts(nodes):
        for node in part:
            tensors += sizes_of(node)
        yield
    found: set[int] = set()
    seen: set[Node] = set()
    while tensors:
        behind, tensors = tensors, []
        for some in in_parts(behind):
            for tensor in some:
                tensors += _behind(tensor, positions, found, seen)
            yield
    return found


def _behind(
    tensor: Tensor, positions: Mapping[tuple[Node, int], int], found: set[int], seen: set[Node]
) -> Collection[Tensor]:
    """What the value of *tensor* is made of; if that is fed, its position is *found*."""
    position = positions.get((tensor.op, tensor.index))
    if position is not None:
        if not tensor.dtype.is_opaque:
            found.add(position)
        return ()
    if tensor.op in seen or tensor.op.op in _SHAPES:
        return ()
    seen.add(tensor.op)
    return tensor.op.inputs
