"""Whether a PNNX model that was traced with one batch size runs with any.

The converter writes the shapes of the example that it traced.  A rule for each type of operator tells whether row *i*
of its outputs depends on row *i* of its inputs alone; where all do, the first dimension of the inputs is free.  A model
with an operator that has no rule keeps the size as it was traced.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final, TypeAlias

from asyncexec.importers.pnnx.records import PnnxOperand, PnnxOperator

# Of an operator, and which of its inputs have rows.
Rule: TypeAlias = Callable[[PnnxOperator, Sequence[bool]], bool]

_PLANES: Final = re.compile(
    r"(?:nn\.|F\.)(?:Conv|ConvTranspose|MaxPool|AvgPool|AdaptiveAvgPool|AdaptiveMaxPool|BatchNorm|InstanceNorm"
    r"|max_pool|avg_pool|adaptive_avg_pool|adaptive_max_pool)([123])d"
)
_ANY_PLANES: Final = (
    "nn.Upsample F.upsample F.interpolate F.upsample_bilinear F.upsample_nearest nn.UpsamplingBilinear2d "
    "nn.UpsamplingNearest2d nn.ChannelShuffle nn.PixelShuffle F.pixel_shuffle nn.PixelUnshuffle nn.GroupNorm "
    "nn.LocalResponseNorm nn.PReLU models.yolo.Detect"
)
_BY_ELEMENT: Final = (
    "nn.ReLU nn.ReLU6 nn.Hardsigmoid nn.Hardswish nn.LogSigmoid nn.Mish nn.SELU nn.Sigmoid nn.SiLU nn.Softsign nn.Tanh "
    "nn.GELU nn.LeakyReLU nn.ELU nn.CELU nn.Hardtanh nn.Softplus nn.Threshold nn.Dropout nn.Dropout2d nn.Identity "
    "F.relu F.relu6 F.hardsigmoid F.hardswish F.logsigmoid F.mish F.selu F.sigmoid F.silu F.tanh F.gelu F.leaky_relu "
    "F.elu F.hardtanh F.softplus F.dropout torch.relu torch.clamp Tensor.to Tensor.clone Tensor.contiguous "
    "pnnx.Expression torch.add torch.sub torch.mul torch.div torch.maximum torch.minimum"
)
_ALONG_DIMS: Final = (
    "torch.cat torch.stack torch.chunk torch.split torch.unbind torch.select Tensor.select torch.mean torch.sum "
    "torch.amax torch.amin torch.max torch.min torch.argmax torch.norm nn.Softmax F.softmax nn.LogSoftmax "
    "F.log_softmax torch.squeeze F.normalize torch.flip torch.cumsum nn.GLU F.glu"
)


def free_batch(operators: Mapping[str, PnnxOperator]) -> Mapping[str, PnnxOperator]:
    """*operators* whose first dimension is free, where it can be; else as they are."""
    inputs = [operand for each in operators.values() if each.type == "pnnx.Input" for operand in each.outputs]
    sizes = {operand.shape[0] if operand.shape else None for operand in inputs}
    size = next(iter(sizes), None)
    if len(sizes) != 1 or size is None:
        return operators
    rows: set[str] = {operand.name for operand in inputs}
    for operator in operators.values():
        has_rows = [operand.name in rows for operand in operator.inputs]
        if not any(has_rows):
            continue
        if not _keeps_rows(operator, has_rows, size):
            return operators
        rows.update(operand.name for operand in operator.outputs)
    return {name: _freed(operator, rows) for name, operator in operators.items()}


def _keeps_rows(operator: PnnxOperator, has_rows: Sequence[bool], size: int) -> bool:
    if operator.type in ("pnnx.Output", "prim::TupleConstruct"):
        return all(has_rows)
    known = [operand.shape for operand in (*operator.inputs, *operator.outputs)]
    if any(not shape or None in shape for shape in known):
        return False
    if any(operand.shape is None or operand.shape[0] != size for operand in operator.outputs):
        return False
    rule = _RULES.get(operator.type)
    if rule is not None:
        return rule(operator, has_rows)
    planes = _PLANES.fullmatch(operator.type)
    return planes is not None and has_rows[0] and _ndim(operator.inputs[0]) == int(planes[1]) + 2


def _ndim(operand: PnnxOperand) -> int:
    return len(operand.shape or ())


def _is_all_rows(operator: PnnxOperator, has_rows: Sequence[bool]) -> bool:
    return all(has_rows) and all(_ndim(operand) >= 3 for operand in operator.inputs)


def _is_by_element(operator: PnnxOperator, has_rows: Sequence[bool]) -> bool:
    """Inputs with rows have as many dimensions as the output; others fewer, or one row for all."""
    if "size(" in str(operator.params.get("expr", "")):
        return False
    ndim = _ndim(operator.outputs[0])
    return all(
        _ndim(operand) == ndim if found else _ndim(operand) < ndim
        for operand, found in zip(operator.inputs, has_rows, strict=True)
    )


def _dims(operator: PnnxOperator, *names: str) -> list[int] | None:
    """The dimensions that a parameter tells, none of them negative; None where it tells none."""
    ndim = _ndim(operator.inputs[0]) + (operator.type == "torch.stack")
    found: list[int] = []
    for name in names:
        value = operator.params.get(name)
        values = value if isinstance(value, tuple) else (value,)
        if not values or not all(isinstance(each, int) for each in values):
            return None
        found += [each % ndim for each in values]
    return found


def _is_along_others(*names: str) -> Rule:
    def rule(operator: PnnxOperator, has_rows: Sequence[bool]) -> bool:
        dims = _dims(operator, *names)
        return all(has_rows) and dims is not None and 0 not in dims

    return rule


def _is_slice(operator: PnnxOperator, has_rows: Sequence[bool]) -> bool:
    return has_rows == [True] and _is_along_others("dims" if "dims" in operator.params else "dim")(operator, has_rows)


def _is_permutation(operator: PnnxOperator, has_rows: Sequence[bool]) -> bool:
    dims = operator.params.get("dims")
    return isinstance(dims, tuple) and dims[:1] == (0,)


def _is_linear(operator: PnnxOperator, has_rows: Sequence[bool]) -> bool:
    return has_rows[0] and not any(has_rows[1:]) and _ndim(operator.inputs[0]) >= 2


def _is_layer_norm(operator: PnnxOperator, has_rows: Sequence[bool]) -> bool:
    shape = operator.params.get("normalized_shape")
    count = len(shape) if isinstance(shape, tuple) else 1
    return _is_linear(operator, has_rows) and count < _ndim(operator.inputs[0])


def _is_attention(operator: PnnxOperator, has_rows: Sequence[bool]) -> bool:
    return all(has_rows) and bool(operator.params.get("batch_first")) and _ndim(operator.inputs[0]) == 3


def _is_reshape(operator: PnnxOperator, has_rows: Sequence[bool]) -> bool:
    return has_rows == [True] and isinstance(operator.params.get("shape"), tuple)


_RULES: Final[dict[str, Rule]] = {
    **dict.fromkeys(_ANY_PLANES.split(), _is_all_rows),
    **dict.fromkeys(_BY_ELEMENT.split(), _is_by_element),
    **dict.fromkeys(_ALONG_DIMS.split(), _is_along_others("dim")),
    "Tensor.slice": _is_slice,
    "Tensor.permute": _is_permutation,
    "torch.permute": _is_permutation,
    "torch.transpose": _is_along_others("dim0", "dim1"),
    "torch.flatten": _is_along_others("start_dim"),
    "nn.Flatten": _is_along_others("start_dim"),
    "torch.roll": _is_along_others("dims"),
    "nn.Linear": _is_linear,
    "nn.LayerNorm": _is_layer_norm,
    "nn.MultiheadAttention": _is_attention,
    "F.scaled_dot_product_attention": _is_all_rows,
    "torch.matmul": _is_all_rows,
    "torch.bmm": _is_all_rows,
    "Tensor.reshape": _is_reshape,
    "Tensor.view": _is_reshape,
}


def _freed(operator: PnnxOperator, rows: set[str]) -> PnnxOperator:
    """*operator* with any number of rows: its operands, and the shape that it gives them."""

    def free(operand: PnnxOperand) -> PnnxOperand:
        if operand.name not in rows or not operand.shape:
            return operand
        return replace(operand, shape=(None, *operand.shape[1:]))

    params = operator.params
    if _RULES.get(operator.type) is _is_reshape and operator.outputs[0].name in rows:
        params = {**params, "shape": (-1, *(operator.outputs[0].shape or ())[1:])}
    return replace(
        operator, inputs=tuple(map(free, operator.inputs)), outputs=tuple(map(free, operator.outputs)), params=params
    )
