"""Images: change of their size.

Names and arguments are those of ``tf.image`` and ``tf.compat.v1.image`` (``tensorflow/python/ops/image_ops_impl.py``).

Raises:
    InvalidArgumentError: the method is unknown, or the images have another rank.
"""

from __future__ import annotations

from typing import Any, Final

from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.frontend.array_functions import expand_dims, squeeze
from asyncexec.frontend.calls import TensorLike, composite, in_graph_of, static_rank, tensor_op
from asyncexec.graph.node import Tensor

_RESIZE_OPS: Final = {
    "bilinear": "ResizeBilinear",
    "nearest": "ResizeNearestNeighbor",
    "bicubic": "ResizeBicubic",
    "area": "ResizeArea",
}


def resize_bilinear(
    images: TensorLike,
    size: TensorLike,
    align_corners: bool = False,
    half_pixel_centers: bool = False,
    name: str | None = None,
) -> Tensor:
    """Images [n, h, w, c] resized to *size*, [height, width], by bilinear interpolation; float32.

    >>> image = ax.reshape([1.0, 3.0], [1, 1, 2, 1])
    >>> show(ax.squeeze(ax.resize_bilinear(image, [1, 4])))
    [1. 2. 3. 3.]
    """
    options: dict[str, object] = {"align_corners": align_corners, "half_pixel_centers": half_pixel_centers}
    return tensor_op("ResizeBilinear", [images, size], name, **options)


def resize_nearest_neighbor(
    images: TensorLike,
    size: TensorLike,
    align_corners: bool = False,
    half_pixel_centers: bool = False,
    name: str | None = None,
) -> Tensor:
    """Images [n, h, w, c] resized to *size*, [height, width], by the nearest pixel; of the same dtype.

    >>> image = ax.reshape([1.0, 3.0], [1, 1, 2, 1])
    >>> show(ax.squeeze(ax.resize_nearest_neighbor(image, [1, 4])))
    [1. 1. 3. 3.]
    """
    options: dict[str, object] = {"align_corners": align_corners, "half_pixel_centers": half_pixel_centers}
    return tensor_op("ResizeNearestNeighbor", [images, size], name, **options)


def resize(images: TensorLike, size: TensorLike, method: str = "bilinear", name: str | None = None) -> Tensor:
    """Images [n, h, w, c], or one image [h, w, c], resized to *size*; pixel centers are at half coordinates.

    >>> image = ax.reshape([1.0, 2.0], [1, 2, 1])
    >>> show(ax.squeeze(ax.resize(image, [1, 4], "nearest")))
    [1. 1. 2. 2.]

    Args:
        images: of real numbers.
        size: [height, width].
        method: ``bilinear``, ``bicubic``, ``area`` (these give float32) or ``nearest`` (keeps the dtype).
    """
    op = _RESIZE_OPS.get(method)
    if op is None:
        raise InvalidArgumentError(f"the method of resize is one of {', '.join(_RESIZE_OPS)}, not {method!r}")
    with composite(name, "resize", [images, size]) as scope:
        (pictures,) = in_graph_of([images])
        is_single = static_rank(pictures, "resize") == 3
        options: dict[str, Any] = {} if method == "area" else {"half_pixel_centers": True}
        if not is_single:
            return tensor_op(op, [pictures, size], scope, **options)
        return squeeze(tensor_op(op, [expand_dims(pictures, 0), size], **options), 0, scope)
