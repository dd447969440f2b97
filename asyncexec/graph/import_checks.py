"""What the importer asks of a GraphDef as a whole: versions, names, devices, ops that may be in it.

After ``tensorflow/core/framework/versions.cc``, ``op_def_util.cc`` (``CheckOpDeprecation``) and
``tensorflow/core/common_runtime/graph_constructor.cc``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from asyncexec.framework.errors import InvalidArgumentError, UnimplementedError
from asyncexec.framework.graph_def import GraphDebugInfo, NodeDef, VersionDef
from asyncexec.framework.op_def import OpDef
from asyncexec.framework.op_registry import OpRegistration
from asyncexec.framework.tensor_id import first_invalid_node_name, is_valid_node_name
from asyncexec.framework.tensor_shape import UNKNOWN_SHAPE
from asyncexec.graph.names import nearest
from asyncexec.graph.node import Node, SourceLine
from asyncexec.graph.refused_ops import refused

CONSUMER_VERSION: Final = 2407  # the GraphDef version understood here: that of TensorFlow 2.21
MIN_PRODUCER_VERSION: Final = 0
COLOCATION_PREFIX: Final = "loc:@"
_SCALAR_PLACEHOLDERS: Final = 22  # the first producer version whose Placeholders of shape [] are scalars

# What the runtime itself adds to a graph; in a user's graph it would reach into the step that runs it.
RUNTIME_OPS: Final = frozenset(
    "_Send _Recv _HostSend _HostRecv _FusedSend _FusedRecv _PartitionedCall _StatefulPartitionedCall".split()
)
# Where partitions of TensorFlow's begin and end: they are what is fed and fetched.  No function has them in its body.
BOUNDARY_OPS: Final = frozenset("_Arg _DeviceArg _Retval _DeviceRetval".split())
# Ops that a graph of that version or a later one cannot have.
_REMOVED: Final = {
    "AdjustContrast": (2, "AdjustContrastv2"),
    "BatchCholesky": (13, "Cholesky"),
    "BatchFFT": (15, "FFT"),
    "BatchFFT2D": (15, "FFT2D"),
    "BatchFFT3D": (15, "FFT3D"),
    "BatchIFFT": (15, "IFFT"),
    "BatchIFFT2D": (15, "IFFT2D"),
    "BatchIFFT3D": (15, "IFFT3D"),
    "BatchMatrixBandPart": (14, "MatrixBandPart"),
    "BatchMatrixDeterminant": (13, "MatrixDeterminant"),
    "BatchMatrixDiag": (14, "MatrixDiag"),
    "BatchMatrixDiagPart": (14, "MatrixDiagPart"),
    "BatchMatrixInverse": (13, "MatrixInverse"),
    "BatchMatrixSetDiag": (14, "MatrixSetDiag"),
    "BatchMatrixSolve": (13, "MatrixSolve"),
    "BatchMatrixSolveLs": (13, "MatrixSolveLs"),
    "BatchMatrixTriangularSolve": (13, "MatrixTriangularSolve"),
    "BatchNormWithGlobalNormalization": (9, "tf.nn.batch_normalization()"),
    "BatchSelfAdjointEig": (11, "SelfAdjointEigV2"),
    "BatchSelfAdjointEigV2": (13, "SelfAdjointEigV2"),
    "BatchSvd": (13, "Svd"),
    "MatrixExponential": (27, "a Python implementation"),
    "PlaceholderV2": (23, "Placeholder"),
    "QuantizeAndDequantize": (22, "QuantizeAndDequantizeV2"),
    "RandomPoisson": (25, "RandomPoissonV2"),
    "SelfAdjointEig": (11, "SelfAdjointEigV2"),
    "TensorArray": (16, "TensorArrayV3"),
    "TensorArrayClose": (16, "TensorArrayCloseV3"),
    "TensorArrayCloseV2": (26, "TensorArrayCloseV3"),
    "TensorArrayConcat": (16, "TensorArrayConcatV3"),
    "TensorArrayGather": (16, "TensorArrayGatherV3"),
    "TensorArrayGatherV2": (26, "TensorArrayGatherV3"),
    "TensorArrayRead": (16, "TensorArrayReadV3"),
    "TensorArrayReadV2": (26, "TensorArrayReadV3"),
    "TensorArrayScatter": (19, "TensorArrayScatterV3"),
    "TensorArrayScatterV2": (26, "TensorArrayScatterV3"),
    "TensorArraySize": (16, "TensorArraySizeV3"),
    "TensorArraySizeV2": (26, "TensorArraySizeV3"),
    "TensorArraySplit": (16, "TensorArraySplitV3"),
    "TensorArraySplitV2": (26, "TensorArraySplitV3"),
    "TensorArrayV2": (26, "TensorArrayV3"),
    "TensorArrayWrite": (16, "TensorArrayWriteV3"),
    "TensorArrayWriteV2": (26, "TensorArrayWriteV3"),
    "TileGrad": (3, "Tile and Sum"),
    "TopK": (7, "TopKV2"),
}
_NO_FILE: Final = "<UNKNOWN_FILE_NAME>"


def check_versions(versions: VersionDef | None) -> None:
    """InvalidArgumentError unless a graph of these versions can be read here."""
    if versions is None:
        return
    if versions.producer < MIN_PRODUCER_VERSION:
        raise InvalidArgumentError(
            f"GraphDef producer version {versions.producer} is below the least known, {MIN_PRODUCER_VERSION}"
        )
    if versions.min_consumer > CONSUMER_VERSION:
        raise InvalidArgumentError(
            f"GraphDef needs a consumer of version {versions.min_consumer} or later; this one is {CONSUMER_VERSION}"
        )
    if CONSUMER_VERSION in versions.bad_consumers:
        raise InvalidArgumentError(f"GraphDef disallows consumers of version {CONSUMER_VERSION}, as this one is")


def merged_versions(ours: VersionDef, theirs: VersionDef) -> VersionDef:
    """The versions of a graph that two were merged into: what every part of it asks for."""
    return VersionDef.model_construct(
        producer=min(ours.producer, theirs.producer),
        min_consumer=max(ours.min_consumer, theirs.min_consumer),
        bad_consumers=tuple(sorted({*ours.bad_consumers, *theirs.bad_consumers})),
    )


def check_names(node_defs: Sequence[NodeDef], prefix: str, *, is_partition: bool = False) -> None:
    """InvalidArgumentError unless *node_defs* may have their names, below *prefix*.

    Nodes that stages have made, as there are in a partition, may have names that users' nodes cannot have.
    """
    names = [node_def.name for node_def in node_defs]
    bad = first_invalid_node_name([name.lstrip("_") for name in names] if is_partition else names)
    if bad is not None and bad.startswith("_"):
        bad = first_invalid_node_name(
            [each.name.lstrip("_") if each.op in BOUNDARY_OPS or is_partition else each.name for each in node_defs]
        )
    if bad is not None:
        raise InvalidArgumentError(
            f"Node {bad[:100]!r}: the node name is invalid",
            hint="use letters, digits and . _ - / > after a letter, digit or .",
        )
    if prefix and not is_valid_node_name(prefix.removesuffix("/")):
        raise InvalidArgumentError(f"Imported node name prefix {prefix[:100]!r} would lead to invalid node names")


def checked_registration(registration: OpRegistration, allowed_ops: Collection[str], producer: int) -> OpRegistration:
    """That of nodes of this op in a graph of that *producer* version, imported with *allowed_ops*.

    They are refused when they are to run if the op reaches outside of the graph and is not allowed by name.

    Raises:
        InvalidArgumentError: only the runtime itself makes such nodes.
        UnimplementedError: it was removed before that version.
    """
    op = registration.op_def.name
    if op in RUNTIME_OPS and op not in allowed_ops:
        raise InvalidArgumentError(f"op {op!r} is the runtime's own and cannot be in a graph that is imported", op=op)
    removed = _REMOVED.get(op)
    if removed is not None and producer >= removed[0]:
        raise UnimplementedError(
            f"Op {op} is not available in GraphDef version {producer}. It has been removed in version {removed[0]}. "
            f"Use {removed[1]}.",
            op=op,
        )
    return refused(registration) if registration.op_def.touches_outside and op not in allowed_ops else registration


def completed_attrs(op_def: OpDef, given: Mapping[str, object], producer: int) -> dict[str, object]:
    """The attrs of a node in a GraphDef of that *producer* version, of which *given* are written there."""
    attrs = op_def.complete_attrs(given, imported=True)
    if op_def.name == "Placeholder" and producer < _SCALAR_PLACEHOLDERS and attrs["shape"].rank == 0:
        attrs["shape"] = UNKNOWN_SHAPE  # programs of that time could not tell one from the other
    return attrs


def check_colocation(node: Node, name: str, known: Iterable[str], nodes: Collection[str]) -> None:
    """InvalidArgumentError unless *node*, called *name* in its GraphDef, is colocated with *nodes* alone."""
    for other in known:
        if other not in nodes:
            raise InvalidArgumentError(
                f"Node {name!r} expects to be colocated with unknown node {other!r}",
                node=node,
                hint=nearest(other, nodes),
            )


def colocated_with(classes: object) -> list[str]:
    """The nodes that attr ``_class`` names; InvalidArgumentError when it is no list of strings."""
    if not isinstance(classes, tuple) or not all(isinstance(entry, bytes) for entry in classes):
        raise InvalidArgumentError("attr '_class' takes a list(string)")
    texts = [entry.decode("utf-8", "backslashreplace") for entry in classes]
    return [text.removeprefix(COLOCATION_PREFIX) for text in texts if text.startswith(COLOCATION_PREFIX)]


def source_lines(debug_info: GraphDebugInfo | None) -> Mapping[str, SourceLine]:
    """Where each node was made, by name, as far as *debug_info* tells: the innermost call."""
    found: dict[str, SourceLine] = {}
    if debug_info is None:
        return found
    files = debug_info.files
    traces = {name: trace for name, trace in debug_info.traces.items() if "@" not in name}
    by_id = {name: debug_info.traces_by_id.get(number) for name, number in debug_info.name_to_trace_id.items()}
    for name, trace in {**by_id, **traces}.items():
        if trace is None:
            continue
        frames = trace.file_line_cols or [debug_info.frames_by_id.get(number) for number in trace.frame_id]
        last = frames[-1] if frames else None
        if last is not None:
            index = last.file_index or 0
            found[name] = (files[index] if 0 <= index < len(files) else _NO_FILE, last.line or 0)
    return found
