"""Inputs whose values tell how large the outputs of an op are, and the feeds that they come from."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from enum import IntEnum
from typing import Final, NamedTuple, TypeAlias

import numpy as np

from asyncexec.compilation.shared_inputs import is_user_function
from asyncexec.framework.cooperative import Stage, in_parts
from asyncexec.framework.types import string
from asyncexec.graph.node import Node, Tensor

Key: TypeAlias = tuple[Node, int]  # a tensor

_INT32: Final = 4  # bytes
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
    **dict.fromkeys(("NonDeterministicInts", "StatelessParameterizedTruncatedNormal", "TensorArrayV3"), (0,)),
    **dict.fromkeys(("SobolSample", "TensorListResize"), (1,)),
    **{f"SparseSegment{kind}WithNumSegments": (3,) for kind in ("Mean", "SqrtN", "Sum")},
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
    **dict.fromkeys(("MatrixDiagPartV2", "MatrixDiagPartV3"), (1,)),
    **dict.fromkeys(("MatrixDiagV2", "MatrixDiagV3"), (2, 3)),
    "Multinomial": (1,),
    "Onnx>MelWeightMatrix": (0, 1),
    "Onnx>Resize": (1, 2, 3),  # of which some may be absent
    "Slice": (2,),
    "RaggedFillEmptyRows": (2,),
    "SparseFillEmptyRows": (2,),
    "StatelessMultinomial": (1,),
    "TensorListScatterV2": (3,),
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
    """What fed numbers that are not negative are for the size of an array."""

    LARGEST = 0  # the size is for the largest of them, and grows as that does, or as its square
    FACTORS = 1  # it grows no more than their product
    ANY = 2  # nobody knows how


class Sizes(NamedTuple):
    """What sizes are computed of.

    Attributes:
        feeds: by position, those whose values may tell how large an array is.
        unknown: the names of the nodes some sizes of whose outputs come from something else than feeds.
    """

    feeds: Mapping[int, Role]
    unknown: frozenset[str]


# What these give is no larger than the sum, or the product, of what they get; of some, by the first input alone.
_STEADY: Final = frozenset({"Add", "AddV2", "ConcatV2", "Identity", "Maximum", "Minimum", "Mul", "Pack"})
_SHIFTED: Final = frozenset({"Add", "AddV2", "Sub"})  # by little, they give little more or less
_LITTLE: Final = 16
_FIRST_STEADY: Final = frozenset(
    {"ExpandDims", "Gather", "GatherV2", "Prod", "Reshape", "Slice", "Squeeze", "StridedSlice", "Sum"}
)
_SUMS: Final = frozenset({"Prod", "Sum"})  # of many numbers, each of which may grow
_RANGES: Final = frozenset({"Onnx>Range", "RaggedRange", "Range"})
_RANGE_INPUTS: Final = 3
_SMALL: Final = 2**8  # elements
_MOST_BEHIND: Final = 64  # nodes that a start may be computed by


def find_sizes(nodes: Sequence[Node], feeds: Sequence[Tensor]) -> Stage[Sizes]:
    """What tells *nodes* how much to make, as a stage.  Of Python objects nothing is known."""
    positions = {(tensor.op, tensor.index): position for position, tensor in enumerate(feeds)}
    origins = _Origins(positions)
    unknown: set[str] = set()
    for part in in_parts(nodes):
        for node in part:
            for tensor in _told_by(node):
                if (yield from origins.add(tensor, _role(node, tensor, positions))):
                    unknown.add(node.name)
        yield
    return Sizes(origins.found, frozenset(unknown))


def _told_by(node: Node) -> Sequence[Tensor]:
    """``sizes_of`` *node*; of a range from a start to so much more, that is what is more.

    A slice of little does not count.
    """
    found = sizes_of(node)
    if found and node.op == "Slice" and (node.inputs[0].shape.num_elements or math.inf) <= _SMALL:
        return ()
    if not found or node.op not in _RANGES:
        return found
    if len(node.inputs) != _RANGE_INPUTS:  # a node of ONNX may have fewer; its kernel refuses that
        return ()
    start, limit, delta = node.inputs
    added = limit.op
    if added.op in ("Add", "AddV2") and any(each is start for each in added.inputs):
        more = [each for each in added.inputs if each is not start]
        return [*more[:1], delta]
    return found


class _Origins:
    """The feeds that values are made of, which have *positions*."""

    def __init__(self, positions: Mapping[Key, int]) -> None:
        self.found: dict[int, Role] = {}
        self._positions = positions
        self._seen: dict[Node, Role] = {}
        self._unknown: set[Node] = set()  # of those seen, what comes from something else

    def add(self, tensor: Tensor, role: Role) -> Stage[bool]:
        """Find what *tensor*, whose values have this *role*, is made of; whether some of it is no feed."""
        made = False
        behind, reached = [(tensor, role)], set[Node]()
        while behind:
            before, behind = behind, []
            for some in in_parts(before):
                for each, its_role in some:
                    position = self._positions.get((each.op, each.index))
                    if position is not None:
                        if not each.dtype.is_opaque:
                            self.found[position] = max(its_role, self.found.get(position, its_role))
                    elif each.op not in reached or its_role > self._seen[each.op]:
                        reached.add(each.op)
                        self._seen[each.op] = max(its_role, self._seen.get(each.op, its_role))
                        made = made or _is_source(each.op)
                        behind += _behind(each.op, its_role)
                yield
        return made


def _is_source(node: Node) -> bool:
    """Whether something else than its inputs decides what *node* gives: a state, say, or a function of the user's."""
    if node.op == "Const" or node.op in _SHAPES:
        return False
    return not node.inputs or node.op_def.is_stateful or is_user_function(node)


def _role(node: Node, tensor: Tensor, positions: Mapping[Key, int]) -> Role:
    """That of the values of *tensor*, an input of *node* that tells it sizes.

    A range is as long as its start is far from its limit.  If both are of one number, they are taken to move alike.
    """
    if node.op not in _RANGES or not any(tensor is each for each in (node.inputs[0], node.inputs[2])):
        return Role.FACTORS
    if tensor is node.inputs[2]:
        return Role.ANY
    start, limit = (_number_behind(each, positions) for each in node.inputs[:2])
    return Role.FACTORS if start is not None and start == limit else Role.ANY


def _number_behind(tensor: Tensor, positions: Mapping[Key, int]) -> int | None:
    """The position of the only fed number that *tensor* is made of; None if there is another feed, or none."""
    found: dict[int, Tensor] = {}
    behind, seen = [tensor], set[Node]()
    while behind and len(seen) < _MOST_BEHIND:
        each = behind.pop()
        position = positions.get((each.op, each.index))
        if position is not None:
            found[position] = each
        elif each.op not in seen and each.op.op not in _SHAPES:
            seen.add(each.op)
            behind += each.op.inputs
    if behind or len(found) != 1:
        return None
    ((position, fed),) = found.items()
    return position if fed.shape.num_elements == 1 else None


def _behind(node: Node, role: Role) -> Collection[tuple[Tensor, Role]]:
    """What the values of *node*, which have this *role*, are made of."""
    if node.op in _SHAPES:
        return ()
    first = others = Role.ANY
    if role is not Role.ANY and node.op == "Max":
        first = Role.LARGEST
    elif node.op in _FIRST_STEADY and not (role is Role.LARGEST and node.op in _SUMS):
        first = role
    elif (node.op in _STEADY and not _has_negative(node)) or (node.op == "Cast" and _keeps(node)):
        first = others = role
    elif (node.op in _SHIFTED and _is_within(node.inputs[1], -_LITTLE, _LITTLE)) or (
        node.op == "FloorDiv" and _is_within(node.inputs[1], 1, math.inf)
    ):
        first = role
    elif node.op == "Const":  # the value of a branch is chosen by what decides on that
        return [
            (control.outputs[0], Role.ANY) for control in node.control_inputs if control.op in ("Identity", "Switch")
        ]
    return [(tensor, others if place else first) for place, tensor in enumerate(node.inputs)]


def _has_negative(node: Node) -> bool:
    """Whether an input of *node* is a constant with a negative number."""
    constants = [tensor.op.attrs["value"] for tensor in node.inputs if tensor.op.op == "Const"]
    return any(np.asarray(value).dtype.kind in "if" and bool((np.asarray(value) < 0).any()) for value in constants)


def _is_within(tensor: Tensor, least: float, most: float) -> bool:
    """Whether *tensor* is a constant of such numbers."""
    value = np.asarray(tensor.op.attrs["value"]) if tensor.op.op == "Const" else np.asarray("")
    return value.dtype.kind in "if" and bool((least <= value).all() and (value <= most).all())


def _keeps(node: Node) -> bool:
    """Whether *node*, a Cast, gives all numbers from 0 to 2^31 as they are, but for fractions."""
    source, made = (each.base_dtype.as_numpy_dtype for each in (node.inputs[0].dtype, node.outputs[0].dtype))
    return source.kind in "iubf" and made.kind in "if" and (made.itemsize >= _INT32 or source.itemsize <= made.itemsize)
