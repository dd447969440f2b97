"""Nodes of the op domain ``Onnx>``, which are ONNX already: those that a cluster takes as they are.

Left out are ops for which ONNX Runtime is not safe or does not do what ours do: integers are not divided (a division by
zero ends the process), conversions to integers are those that every number has, and sizes that nobody knows before are
given to no op that makes as much as it is told to.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from asyncexec.graph.node import Node, Tensor
from asyncexec.passes.onnx_emitter import Emitter, Translation, dim_of, num_elements, require
from asyncexec.passes.onnx_math import CASTS, ORDERED
from asyncexec.process.onnx_model import OPSET, SHARED_STEP

PREFIX: Final = "Onnx>"
_STEP: Final = 2e5  # multiplications that our own kernel does in the time that it takes for what else is in a step
_STEPS: Final = 50  # of a sequence whose length is not known
_SHARED_PRODUCT: Final = 2e5  # weights of a step
_FLOAT: Final = frozenset({"float32"})
_BOOL: Final = frozenset({"bool"})
_ANY: Final = ORDERED | _BOOL
_FIRST, _LAST = 7, 23  # versions of the operator set that any ONNX Runtime of ours knows
# What the importer adds to the attributes of ONNX.
_OWN_ATTRS: Final = frozenset("Tin Tout opset absent_inputs absent_outputs output_shapes".split())


def opset_of(node: Node) -> int:
    """The version of the operator set that *node* is translated to."""
    return int(node.attrs["opset"]) if node.op.startswith(PREFIX) else OPSET


def _attrs(node: Node) -> dict[str, Any]:
    """The ONNX attributes of *node*."""
    found: dict[str, object] = {}
    for name, value in node.attrs.items():
        if name in _OWN_ATTRS or name.startswith("_"):
            continue
        given = list(value) if isinstance(value, (list, tuple)) else value
        items = given if isinstance(given, list) else [given]
        require(items and all(isinstance(item, (int, float, bytes, str)) for item in items), name)
        found[name] = given
    return found


def _named(names: Iterable[str], absent: Sequence[int]) -> list[str]:
    """*names*, between which some are left out at the positions *absent*."""
    found = list(names)
    for position in sorted(absent):
        require(position <= len(found), "inputs")
        found.insert(position, "")
    return found


def _given(node: Node, slot: int) -> Tensor | None:
    """What *node* takes for its input *slot* of ONNX; None if it is left out."""
    absent = node.attrs.get("absent_inputs") or ()
    index = slot - sum(position < slot for position in absent)
    return None if slot in absent or index >= len(node.inputs) else node.inputs[index]


def _emit(e: Emitter, node: Node) -> None:
    """*node* as it is; outputs that it leaves out between others are made for nobody."""
    require(_FIRST <= opset_of(node) <= _LAST, "opset")
    absent = node.attrs.get("absent_outputs") or ()
    inputs = _named((e.take(tensor) for tensor in node.inputs), node.attrs.get("absent_inputs") or ())
    names = e.ops(node.op.removeprefix(PREFIX), inputs, len(node.outputs) + len(absent), **_attrs(node))
    kept = [name for position, name in enumerate(names) if position not in absent]
    for index, name in enumerate(kept):
        e.give(node, name, index=index)


def _of(
    dtypes: frozenset[str], *, hides_nan: bool = False, known: Sequence[int] = (), num_outputs: int = 1
) -> Translation:
    """Of a node whose first input, which may hide a NaN, is of *dtypes*, and whose inputs *known* are constants."""

    def translation(e: Emitter, node: Node) -> None:
        require(node.inputs and node.inputs[0].dtype.name in dtypes, "dtype")
        require(len(node.outputs) <= num_outputs and not node.attrs.get("absent_outputs"), "outputs")
        for slot in known:
            given = _given(node, slot)
            if given is not None:
                e.known(given)
        if hides_nan:
            e.guard_nan(e.take(node.inputs[0]))
        _emit(e, node)

    return translation


def _same(dtypes: frozenset[str]) -> Translation:
    """Of a node all of whose inputs are of *dtypes*."""

    def translation(e: Emitter, node: Node) -> None:
        require(all(tensor.dtype.name in dtypes for tensor in node.inputs), "dtype")
        _emit(e, node)

    return translation


def _conv(e: Emitter, node: Node) -> None:
    x, weights = node.inputs[:2]
    dims = weights.shape.dims
    dilations = node.attrs.get("dilations") or (1,)
    require(x.dtype.name == "float32" and dims is not None, "the filter's shape is not known")
    require(not node.attrs.get("auto_pad", b"NOTSET").startswith(b"SAME") or set(dilations) == {1}, "auto_pad")
    moves = node.outputs[0] if node.op == f"{PREFIX}Conv" else x
    e.work += num_elements(moves) * math.prod(dim or 1 for dim in (dims or ())[1:])
    _emit(e, node)


def _product(e: Emitter, node: Node) -> None:
    a, b = node.inputs[:2]
    require(a.dtype.name == "float32", "dtype")
    inner = dim_of(a, 0 if node.attrs.get("transA") else -1) if a.shape.rank else None
    if inner is None and b.shape.rank:
        inner = dim_of(b, -1 if node.attrs.get("transB") or b.shape.rank == 1 else -2)
    e.work += num_elements(node.outputs[0]) * (inner or 1)
    _emit(e, node)


def _recurrent(e: Emitter, node: Node) -> None:
    """With the usual activations; that of every step takes the one before."""
    x, weights, recurrence = node.inputs[:3]
    require(x.dtype.name == "float32", "dtype")
    require(
        not any(name in node.attrs for name in ("activations", "activation_alpha", "activation_beta", "clip")), "attrs"
    )
    require(not node.attrs.get("layout") and not node.attrs.get("input_forget"), "layout")
    size = num_elements(weights) + num_elements(recurrence)
    steps, rows = ((x.shape.dims or ()) + (None, None))[:2]
    step = (rows or 1) * size
    work = (steps or _STEPS) * (step + _STEP)
    e.work += work
    e.serial_work += work
    # ONNX Runtime's threads share the rows of an LSTM; of a GRU or RNN they share each product, which is to be large.
    if node.op == f"{PREFIX}LSTM":
        e.step_work = max(e.step_work, step)
    elif size >= _SHARED_PRODUCT:
        e.step_work = max(e.step_work, SHARED_STEP)
    _emit(e, node)


def _cast(e: Emitter, node: Node) -> None:
    require((node.inputs[0].dtype.name, node.outputs[0].dtype.name) in CASTS, "dtype")
    _emit(e, node)


def _where(e: Emitter, node: Node) -> None:
    require(all(tensor.dtype.name in ORDERED for tensor in node.inputs[1:]), "dtype")
    _emit(e, node)


def _average_pool(e: Emitter, node: Node) -> None:
    require(not node.attrs.get("ceil_mode") and not node.attrs.get("dilations"), "window")
    require(not node.attrs.get("auto_pad", b"NOTSET").startswith(b"SAME"), "window")
    _of(_FLOAT)(e, node)


def _max_pool(e: Emitter, node: Node) -> None:
    dilations = node.attrs.get("dilations") or (1,)
    require(not node.attrs.get("ceil_mode") and set(dilations) == {1}, "window")
    _of(_FLOAT, hides_nan=True)(e, node)


def _batch_norm(e: Emitter, node: Node) -> None:
    require(not node.attrs.get("training_mode") and node.attrs.get("spatial", 1), "it is training")
    _of(_FLOAT)(e, node)


def _dropout(e: Emitter, node: Node) -> None:
    """Of inference, where it does nothing."""
    require(len(node.inputs) <= 2, "it is training")
    _of(_FLOAT)(e, node)


def _resize(e: Emitter, node: Node) -> None:
    """In the ways that all who write ONNX agree on."""
    mode, how, rounding = (
        node.attrs.get(name, default).decode()
        for name, default in (
            ("mode", b"nearest"),
            ("coordinate_transformation_mode", b"half_pixel"),
            ("nearest_mode", b"round_prefer_floor"),
        )
    )
    usual = {("nearest", "asymmetric", "floor")} | {
        ("linear", each, rounding) for each in ("half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel")
    }
    require((mode, how, rounding) in usual and not node.attrs.get("antialias") and "axes" not in node.attrs, "mode")
    require(node.inputs[0].shape.rank == 4 and opset_of(node) > 10, "rank")
    _of(_FLOAT, known=(1, 2, 3))(e, node)


def _table(translation: Translation, ops: str) -> dict[str, Translation]:
    return {f"{PREFIX}{op}": translation for op in ops.split()}


HEAVY_ONNX: Final[Mapping[str, Translation]] = {
    **_table(_conv, "Conv ConvTranspose"),
    **_table(_product, "MatMul Gemm"),
    **_table(_recurrent, "LSTM GRU RNN"),
}
ONNX_NODES: Final[Mapping[str, Translation]] = {
    **HEAVY_ONNX,
    **_table(
        _same(_FLOAT),
        "Div Pow Max Min Sum Mean Relu LeakyRelu PRelu Sigmoid Tanh Elu Selu Celu Softplus Softsign HardSigmoid "
        "HardSwish Gelu Mish Clip Erf Exp Log Sqrt Neg Abs Reciprocal Floor Ceil Sin Cos",
    ),
    **_table(_same(ORDERED), "Add Sub Mul Equal Greater Less GreaterOrEqual LessOrEqual"),
    **_table(_same(_BOOL), "And Or Not"),
    **_table(_of(_FLOAT), "Softmax LogSoftmax LayerNormalization InstanceNormalization LRN GlobalAveragePool"),
    **_table(_of(_FLOAT), "ReduceMean ReduceL2 ReduceSumSquare DepthToSpace SpaceToDepth"),
    **_table(_of(_FLOAT, hides_nan=True), "GlobalMaxPool ReduceMax ReduceMin"),
    **_table(_of(ORDERED), "ReduceSum"),
    **_table(_of(_ANY), "Identity Transpose Flatten Squeeze Unsqueeze Concat Slice Gather Shape Reshape"),
    **_table(_of(_ANY, num_outputs=512), "Split"),
    **_table(_of(_FLOAT, known=(1, 2)), "Pad"),
    **_table(_of(_ANY, known=(1,)), "Expand Tile"),
    f"{PREFIX}Cast": _cast,
    f"{PREFIX}Where": _where,
    f"{PREFIX}AveragePool": _average_pool,
    f"{PREFIX}MaxPool": _max_pool,
    f"{PREFIX}BatchNormalization": _batch_norm,
    f"{PREFIX}Dropout": _dropout,
    f"{PREFIX}Resize": _resize,
}
