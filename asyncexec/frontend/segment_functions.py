"""Functions that reduce the rows of a tensor by segments.

Names are those of ``tf.math``.  Row i belongs to segment ``segment_ids[i]``, and row s of the result is that of
segment s.  In ``segment_...`` the ids are sorted.  In ``unsorted_segment_...`` they come in any order, negative ones
are dropped, and the result has *num_segments* rows.

Raises:
    InvalidArgumentError: when the graph runs, the ids are not sorted or out of range.
"""

from __future__ import annotations

from asyncexec.frontend.calls import TensorLike, tensor_op
from asyncexec.graph.node import Tensor


def segment_sum(data: TensorLike, segment_ids: TensorLike, name: str | None = None) -> Tensor:
    """The sums of each segment's rows; 0 for a segment of none.

    >>> show(ax.segment_sum([1, 2, 3, 4], [0, 0, 1, 1]))
    [3 7]
    """
    return tensor_op("SegmentSum", [data, segment_ids], name)


def segment_mean(data: TensorLike, segment_ids: TensorLike, name: str | None = None) -> Tensor:
    """The means of each segment's rows; 0 for a segment of none.

    >>> show(ax.segment_mean([1.0, 2.0, 3.0, 4.0], [0, 0, 1, 1]))
    [1.5 3.5]
    """
    return tensor_op("SegmentMean", [data, segment_ids], name)


def segment_prod(data: TensorLike, segment_ids: TensorLike, name: str | None = None) -> Tensor:
    """The products of each segment's rows; 1 for a segment of none.

    >>> show(ax.segment_prod([1, 2, 3, 4], [0, 0, 1, 1]))
    [ 2 12]
    """
    return tensor_op("SegmentProd", [data, segment_ids], name)


def segment_max(data: TensorLike, segment_ids: TensorLike, name: str | None = None) -> Tensor:
    """The largest of each segment's rows; 0 for a segment of none.

    >>> show(ax.segment_max([1, 2, 3, 4], [0, 0, 1, 1]))
    [2 4]
    """
    return tensor_op("SegmentMax", [data, segment_ids], name)


def segment_min(data: TensorLike, segment_ids: TensorLike, name: str | None = None) -> Tensor:
    """The smallest of each segment's rows; 0 for a segment of none.

    >>> show(ax.segment_min([1, 2, 3, 4], [0, 0, 1, 1]))
    [1 3]
    """
    return tensor_op("SegmentMin", [data, segment_ids], name)


def unsorted_segment_sum(
    data: TensorLike, segment_ids: TensorLike, num_segments: TensorLike, name: str | None = None
) -> Tensor:
    """The sums of each segment's rows; 0 for a segment of none.

    >>> show(ax.unsorted_segment_sum([1, 2, 3, 4], [1, 0, 1, 0], 2))
    [6 4]
    """
    return tensor_op("UnsortedSegmentSum", [data, segment_ids, num_segments], name)


def unsorted_segment_prod(
    data: TensorLike, segment_ids: TensorLike, num_segments: TensorLike, name: str | None = None
) -> Tensor:
    """The products of each segment's rows; 1 for a segment of none.

    >>> show(ax.unsorted_segment_prod([1, 2, 3, 4], [1, 0, 1, 0], 2))
    [8 3]
    """
    return tensor_op("UnsortedSegmentProd", [data, segment_ids, num_segments], name)


def unsorted_segment_max(
    data: TensorLike, segment_ids: TensorLike, num_segments: TensorLike, name: str | None = None
) -> Tensor:
    """The largest of each segment's rows; the lowest value of the dtype for a segment of none.

    >>> show(ax.unsorted_segment_max([1, 2, 3, 4], [1, 0, 1, 0], 2))
    [4 3]
    """
    return tensor_op("UnsortedSegmentMax", [data, segment_ids, num_segments], name)


def unsorted_segment_min(
    data: TensorLike, segment_ids: TensorLike, num_segments: TensorLike, name: str | None = None
) -> Tensor:
    """The smallest of each segment's rows; the highest value of the dtype for a segment of none.

    >>> show(ax.unsorted_segment_min([1, 2, 3, 4], [1, 0, 1, 0], 2))
    [2 1]
    """
    return tensor_op("UnsortedSegmentMin", [data, segment_ids, num_segments], name)
