"""Ops that make summaries: ScalarSummary, HistogramSummary, ImageSummary and those beside them.

Rules from ``tensorflow/core/ops/logging_ops.cc``.  A summary is a serialized Summary message.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.kernel import Kernel, KernelKind, OpKernelConstruction
from asyncexec.framework.kernel_registry import register_function, register_kernel
from asyncexec.framework.op_registry import register_op
from asyncexec.framework.shape_inference import scalars
from asyncexec.ops.io import summaries
from asyncexec.ops.parsing.tensor_records import serialize_tensor
from asyncexec.ops.parsing.wire import delimited
from asyncexec.ops.string.string_elements import flat_strings, scalar_string

_REALS: Final = "{bfloat16, float16, float32, float64, int16, int32, int64, int8, uint16, uint32, uint64, uint8}"

register_op("ScalarSummary", "tags: string, values: T -> summary: string", f"T: {_REALS}", shape=scalars)
register_op("HistogramSummary", "tag: string, values: T -> summary: string", f"T: {_REALS} = float32", shape=scalars)
register_op(
    "ImageSummary",
    "tag: string, tensor: T -> summary: string",
    "max_images: int >= 1 = 3; T: {float16, float32, float64, uint8} = float32; "
    "bad_color: tensor = tensor(uint8: [255, 0, 0, 255])",
    shape=scalars,
)
register_op(
    "AudioSummary",
    "tag: string, tensor: float32 -> summary: string",
    "sample_rate: float; max_outputs: int >= 1 = 3",
    shape=scalars,
)
register_op(
    "AudioSummaryV2",
    "tag: string, tensor: float32, sample_rate: float32 -> summary: string",
    "max_outputs: int >= 1 = 3",
    shape=scalars,
)
register_op(
    "TensorSummary",
    "tensor: T -> summary: string",
    "T: type; description: string = ''; labels: list(string) = []; display_name: string = ''",
    shape=scalars,
)
register_op(
    "TensorSummaryV2",
    "tag: string, tensor: T, serialized_summary_metadata: string -> summary: string",
    "T: type",
    shape=scalars,
)
register_op("MergeSummary", "inputs: N*string -> summary: string", "N: int >= 1", shape=scalars)


def _scalar_summary(tags: Any, values: Any) -> bytes:
    if np.shape(tags) != np.shape(values):
        raise InvalidArgumentError(
            f"tags and values are not the same shape: {list(np.shape(tags))} != {list(np.shape(values))}"
        )
    numbers = np.ravel(values).astype(np.float32).tolist()
    return summaries.summary(
        [summaries.scalar(tag, number) for tag, number in zip(flat_strings(tags), numbers, strict=True)]
    )


register_function("ScalarSummary", function=_scalar_summary)


@register_kernel("HistogramSummary")
def histogram_summary(construction: OpKernelConstruction) -> Kernel:
    """How the values are distributed."""
    name = construction.name
    return lambda tag, values: summaries.summary([summaries.histogram(scalar_string(tag, "tag"), values, name)])


@register_kernel("ImageSummary", kind=KernelKind.EXPENSIVE)
def image_summary(construction: OpKernelConstruction) -> Kernel:
    """Images as PNG."""
    max_images, bad_color = construction.attr("max_images"), np.asarray(construction.attr("bad_color"))
    if bad_color.dtype != np.uint8 or bad_color.ndim != 1:
        raise InvalidArgumentError(
            f"bad_color must be a vector of uint8, got {bad_color.dtype} of shape {list(bad_color.shape)}"
        )
    return lambda tag, tensor: summaries.summary(
        summaries.images(scalar_string(tag, "tag"), tensor, max_images, bad_color)
    )


@register_kernel("AudioSummary", "AudioSummaryV2", kind=KernelKind.EXPENSIVE)
def audio_summary(construction: OpKernelConstruction) -> Kernel:
    """Sounds as WAV."""
    max_outputs, sample_rate = construction.attr("max_outputs"), construction.attrs.get("sample_rate", 0.0)
    return lambda tag, tensor, rate=sample_rate: summaries.summary(
        summaries.sounds(scalar_string(tag, "tag"), tensor, max_outputs, rate)
    )


@register_kernel("TensorSummary")
def tensor_summary(construction: OpKernelConstruction) -> Kernel:
    """A tensor, under the name of the node."""
    serialize: Any = serialize_tensor(construction)
    name = delimited(summaries.NODE_NAME, construction.name.encode())
    return lambda tensor: summaries.summary([name + delimited(summaries.TENSOR, serialize(tensor))])


@register_kernel("TensorSummaryV2")
def tensor_summary_v2(construction: OpKernelConstruction) -> Kernel:
    """A tensor, under a tag, with what tells how to show it."""
    value = tensor_value(construction)
    return lambda tag, tensor, metadata: summaries.summary([value(tag, tensor, metadata, always=True)])


def tensor_value(construction: OpKernelConstruction) -> Callable[..., bytes]:
    """What makes a Summary.Value of a tag, a tensor of the attr T, and serialized metadata."""
    serialize: Any = serialize_tensor(construction)

    def value(tag: object, tensor: Any, metadata: object, *, always: bool) -> bytes:
        about = summaries.checked(scalar_string(metadata, "serialized_summary_metadata"), "the summary's metadata")
        return (
            summaries.named(scalar_string(tag, "tag"))
            + delimited(summaries.TENSOR, serialize(tensor))
            + (delimited(summaries.METADATA, about) if about or always else b"")
        )

    return value


def _merge(*inputs: object) -> bytes:
    found: Sequence[bytes] = [one for value in inputs for one in flat_strings(value)]
    return summaries.merged(found)


register_function("MergeSummary", function=_merge)
