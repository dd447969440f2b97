"""StringFormat: tensors put into a template as ``tf.print`` shows them (``tensorflow/core/ops/string_ops.cc``)."""

from __future__ import annotations

from typing import Any

import numpy as np

from asyncexec.framework.arrays import Array
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.kernel import Kernel, OpKernelConstruction
from asyncexec.framework.kernel_registry import register_kernel
from asyncexec.framework.op_registry import register_op
from asyncexec.framework.shape_inference import scalars

register_op(
    "StringFormat",
    "inputs: T -> output: string",
    "T: list(type) >= 0; template: string = '%s'; placeholder: string = '%s'; summarize: int = 3",
    shape=scalars,
)


@register_kernel("StringFormat")
def string_format(construction: OpKernelConstruction) -> Kernel:
    """The template with each placeholder replaced by the summary of its tensor."""
    placeholder, ends = construction.attr("placeholder"), construction.attr("summarize")
    parts = construction.attr("template").split(placeholder) if placeholder else [construction.attr("template")]
    if len(parts) != construction.num_inputs + 1:
        raise InvalidArgumentError(
            f"num placeholders in template and num inputs must match: {len(parts) - 1} vs. {construction.num_inputs}"
        )

    def kernel(*inputs: object) -> bytes:
        texts = [summary(value, ends) for value in inputs]
        return b"".join(piece for pair in zip(parts, [*texts, b""], strict=True) for piece in pair)

    return kernel


def summary(value: Any, ends: int) -> bytes:
    """*value* as ``tf.print`` shows it: of each dimension the first and last *ends* elements (-1: all)."""
    if ends == 0 and np.ndim(value) == 0:
        return b"..."
    if isinstance(value, bytes):
        return _element(value)
    array = np.asarray(value)
    return _summarize(array, min(ends, array.size) if ends >= 0 else array.size, 0)


def _summarize(array: Array, ends: int, depth: int) -> bytes:
    if array.ndim == 0:
        return _element(array[()])
    count = len(array)
    spacing = b" " if array.ndim == 1 else b"\n" * (array.ndim - 1) + b" " * (depth + 1)
    shown = [_summarize(np.asarray(array[index]), ends, depth + 1) for index in range(min(ends, count))]
    if 2 * ends < count:
        shown += [b"..."] if shown else [b"", b"..."]
    shown += [_summarize(np.asarray(array[index]), ends, depth + 1) for index in range(max(ends, count - ends), count)]
    return b"[" + spacing.join(shown) + b"]"


def _element(value: object) -> bytes:
    if isinstance(value, bytes):
        return b'"' + value + b'"'
    if isinstance(value, np.bool_):
        return b"1" if value else b"0"
    if isinstance(value, np.integer):
        return b"%d" % int(value)
    if isinstance(value, np.complexfloating):
        return b"?"
    return _float(value)


def _float(value: Any) -> bytes:
    """With the digits that every decimal number survives or, when those do not give *value* back, with enough."""
    is_double = isinstance(value, np.float64)
    number = float(value)
    text = b"%.*g" % (15 if is_double else 6, number)
    kind = np.float64 if is_double else np.float32
    if kind(float(text)) == kind(number) or number != number:
        return text
    return b"%.*g" % (17 if is_double else 9, number)
