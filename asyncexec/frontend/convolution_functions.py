"""Convolutions and pooling.

Names and arguments are those of ``tf.nn`` (``tensorflow/python/ops/nn_ops.py``).  *strides*, *dilations* and *ksize*
are one int for all spatial dimensions, a list of one for each, or a list for all dimensions of the input.  *padding* is
``"SAME"``, ``"VALID"`` or, where the op has it, a list of pairs, one for each dimension.

Raises:
    InvalidArgumentError: the rank of the input, the number of channels, the sizes or the padding do not fit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.frontend.calls import TensorLike, tensor_op
from asyncexec.graph.node import Tensor

Sizes: TypeAlias = int | Sequence[int]
Padding: TypeAlias = str | Sequence[Sequence[int]]


def conv2d(
    input: TensorLike,  # noqa: A002
    filters: TensorLike,
    strides: Sizes,
    padding: Padding,
    data_format: str = "NHWC",
    dilations: Sizes | None = None,
    name: str | None = None,
) -> Tensor:
    """The 2-D convolution of images [n, h, w, c_in] with *filters* [fh, fw, c_in, c_out].

    >>> image = ax.reshape(ax.range(9.0), [1, 3, 3, 1])
    >>> show(ax.squeeze(ax.conv2d(image, ax.ones([2, 2, 1, 1]), 1, "VALID")))
    [[ 8. 12.]
     [20. 24.]]
    """
    return tensor_op("Conv2D", [input, filters], name, **_options("conv2d", strides, padding, data_format, dilations))


def depthwise_conv2d(
    input: TensorLike,  # noqa: A002
    filter: TensorLike,  # noqa: A002
    strides: Sizes,
    padding: Padding,
    data_format: str = "NHWC",
    dilations: Sizes | None = None,
    name: str | None = None,
) -> Tensor:
    """The 2-D convolution of each channel by itself.  *filter* is [fh, fw, c, m]; the result has c * m channels.

    >>> image = ax.reshape(ax.range(9.0), [1, 3, 3, 1])
    >>> show(ax.squeeze(ax.depthwise_conv2d(image, ax.ones([2, 2, 1, 1]), 1, "VALID")))
    [[ 8. 12.]
     [20. 24.]]
    """
    options = _options("depthwise_conv2d", strides, padding, data_format, dilations)
    return tensor_op("DepthwiseConv2dNative", [input, filter], name, **options)


def conv2d_transpose(
    input: TensorLike,  # noqa: A002
    filters: TensorLike,
    output_shape: TensorLike,
    strides: Sizes,
    padding: Padding = "SAME",
    data_format: str = "NHWC",
    dilations: Sizes | None = None,
    name: str | None = None,
) -> Tensor:
    """The gradient of conv2d with respect to its input, of shape *output_shape*; *filters* are [fh, fw, c_out, c_in].

    >>> ones = ax.ones([1, 2, 2, 1])
    >>> show(ax.squeeze(ax.conv2d_transpose(ones, ax.ones([2, 2, 1, 1]), [1, 3, 3, 1], 1, "VALID")))
    [[1. 2. 1.]
     [2. 4. 2.]
     [1. 2. 1.]]
    """
    options = _options("conv2d_transpose", strides, padding, data_format, dilations)
    return tensor_op("Conv2DBackpropInput", [output_shape, filters, input], name or "conv2d_transpose", **options)


def conv3d(
    input: TensorLike,  # noqa: A002
    filters: TensorLike,
    strides: Sizes,
    padding: str,
    data_format: str = "NDHWC",
    dilations: Sizes | None = None,
    name: str | None = None,
) -> Tensor:
    """The 3-D convolution of volumes [n, d, h, w, c_in] with *filters* [fd, fh, fw, c_in, c_out].

    >>> show(ax.squeeze(ax.conv3d(ax.ones([1, 2, 2, 2, 1]), ax.ones([2, 2, 2, 1, 1]), 1, "VALID")))
    8.0
    """
    return tensor_op("Conv3D", [input, filters], name, **_options("conv3d", strides, padding, data_format, dilations))


def max_pool(
    input: TensorLike,  # noqa: A002
    ksize: Sizes,
    strides: Sizes,
    padding: Padding,
    data_format: str = "NHWC",
    name: str | None = None,
) -> Tensor:
    """The largest value of each window of images.

    >>> image = ax.reshape(ax.range(9.0), [1, 3, 3, 1])
    >>> show(ax.squeeze(ax.max_pool(image, 2, 1, "VALID")))
    [[4. 5.]
     [7. 8.]]
    """
    options = _options("max_pool", strides, padding, data_format, None)
    return tensor_op("MaxPool", [input], name, ksize=_sizes("ksize", ksize, data_format), **options)


def max_pool2d(
    input: TensorLike,  # noqa: A002
    ksize: Sizes,
    strides: Sizes,
    padding: Padding,
    data_format: str = "NHWC",
    name: str | None = None,
) -> Tensor:
    """The largest value of each window of images; the same as max_pool.

    >>> image = ax.reshape(ax.range(9.0), [1, 3, 3, 1])
    >>> show(ax.squeeze(ax.max_pool2d(image, 2, 1, "VALID")))
    [[4. 5.]
     [7. 8.]]
    """
    return max_pool(input, ksize, strides, padding, data_format, name)


def avg_pool(
    input: TensorLike,  # noqa: A002
    ksize: Sizes,
    strides: Sizes,
    padding: str,
    data_format: str = "NHWC",
    name: str | None = None,
) -> Tensor:
    """The mean of each window of images; padding does not count.

    >>> image = ax.reshape(ax.range(9.0), [1, 3, 3, 1])
    >>> show(ax.squeeze(ax.avg_pool(image, 2, 1, "VALID")))
    [[2. 3.]
     [5. 6.]]
    """
    options = _options("avg_pool", strides, padding, data_format, None)
    return tensor_op("AvgPool", [input], name, ksize=_sizes("ksize", ksize, data_format), **options)


def avg_pool2d(
    input: TensorLike,  # noqa: A002
    ksize: Sizes,
    strides: Sizes,
    padding: str,
    data_format: str = "NHWC",
    name: str | None = None,
) -> Tensor:
    """The mean of each window of images; the same as avg_pool.

    >>> image = ax.reshape(ax.range(9.0), [1, 3, 3, 1])
    >>> show(ax.squeeze(ax.avg_pool2d(image, 2, 1, "VALID")))
    [[2. 3.]
     [5. 6.]]
    """
    return avg_pool(input, ksize, strides, padding, data_format, name)


def _options(
    function: str, strides: Sizes, padding: Padding, data_format: str, dilations: Sizes | None
) -> dict[str, object]:
    options: dict[str, object] = {"strides": _sizes("strides", strides, data_format), "data_format": data_format}
    if dilations is not None:
        options["dilations"] = _sizes("dilations", dilations, data_format)
    if isinstance(padding, str):
        return options | {"padding": padding}
    if function in ("avg_pool", "conv3d"):
        raise InvalidArgumentError(f"the padding of {function} is 'SAME' or 'VALID', not {padding!r}")
    return options | {"padding": "EXPLICIT", "explicit_paddings": [size for pair in padding for size in pair]}


def _sizes(what: str, sizes: Sizes, data_format: str) -> list[int]:
    """One size for each dimension of the input, where *sizes* may tell only the spatial ones."""
    rank = len(data_format)
    given = [sizes] if isinstance(sizes, int) else list(sizes)
    if len(given) == rank:
        return given
    if len(given) == 1:
        given *= rank - 2
    if len(given) != rank - 2:
        raise InvalidArgumentError(
            f"{what} is 1, {rank - 2} or {rank} ints for data format {data_format}, not {sizes!r}"
        )
    return [1, 1, *given] if data_format.startswith("NC") else [1, *given, 1]
