"""Functions that join and split tensors: concat, stack, split, partition, blocks.

Names and arguments are those of TensorFlow's Python API (``tensorflow/python/ops/array_ops.py``,
``data_flow_ops.py``).

Raises:
    InvalidTypeError: the tensors to join have different dtypes.
    InvalidArgumentError: shapes do not fit.
"""

from __future__ import annotations

from collections.abc import Sequence

from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.frontend.basic_functions import identity
from asyncexec.frontend.calls import TensorLike, in_graph_of, tensor_op, tensors_op
from asyncexec.graph.node import Tensor


def concat(values: TensorLike | Sequence[TensorLike], axis: TensorLike, name: str | None = None) -> Tensor:
    """The tensors *values* one after the other along *axis*; their other sizes are equal.

    >>> show(ax.concat([[1, 2], [3]], 0))
    [1 2 3]
    """
    members = list(values) if isinstance(values, (list, tuple)) else [values]
    return identity(members[0], name) if len(members) == 1 else tensor_op("ConcatV2", [members, axis], name or "concat")


def stack(values: Sequence[TensorLike], axis: int = 0, name: str | None = None) -> Tensor:
    """The tensors *values*, all of one shape, along a new dimension *axis*.

    >>> show(ax.stack([[1, 2], [3, 4]], axis=1))
    [[1 3]
     [2 4]]
    """
    return tensor_op("Pack", [list(values)], name or "stack", axis=axis)


def unstack(value: TensorLike, num: int | None = None, axis: int = 0, name: str | None = None) -> list[Tensor]:
    """The parts of *value* along *axis*, each without that dimension.

    >>> show(*ax.unstack([[1, 2], [3, 4]]))
    [1 2]
    [3 4]

    Raises:
        InvalidArgumentError: the size of that dimension is not known and *num* not given, or they differ.
    """
    (tensor,) = in_graph_of([value])
    if num is None:
        num = _known_size(tensor, axis)
        if num is None:
            raise InvalidArgumentError(
                f"how many parts {tensor.name!r} of shape {tensor.shape} has along axis {axis} is not known",
                node=tensor.op,
                hint="say it by num=",
            )
    return tensors_op("Unpack", [tensor], name or "unstack", num=num, axis=axis)


def split(
    value: TensorLike,
    num_or_size_splits: int | Sequence[int] | Tensor,
    axis: TensorLike = 0,
    num: int | None = None,
    name: str | None = None,
) -> list[Tensor]:
    """The parts of *value* along *axis*.

    >>> show(*ax.split([1, 2, 3, 4], 2))
    [1 2]
    [3 4]

    Args:
        value: the tensor.
        num_or_size_splits: how many equal parts; or a list or vector of their sizes, one of which may be -1.
        axis: the dimension.
        num: the number of sizes, if the shape of the vector is unknown.

    Raises:
        InvalidArgumentError: the sizes do not add up, or their number is not known.
    """
    if isinstance(num_or_size_splits, int):
        return tensors_op("Split", [axis, value], name or "split", num_split=num_or_size_splits)
    if num is None:
        sizes = num_or_size_splits
        num = _known_size(sizes, 0) if isinstance(sizes, Tensor) else len(sizes)
    if num is None:
        raise InvalidArgumentError("how many parts split makes is not known", hint="say it by num=")
    return tensors_op("SplitV", [value, num_or_size_splits, axis], name or "split", num_split=num)


def _known_size(x: Tensor, axis: int) -> int | None:
    dims = x.shape.dims
    if dims is None:
        return None
    if not -len(dims) <= axis < len(dims):
        raise InvalidArgumentError(f"{x.name!r} of shape {x.shape} has no dimension {axis}", node=x.op)
    return dims[axis]


def dynamic_partition(
    data: TensorLike, partitions: TensorLike, num_partitions: int, name: str | None = None
) -> list[Tensor]:
    """*num_partitions* tensors; row i of *data* is in tensor ``partitions[i]`` (int32), in order.

    >>> show(*ax.dynamic_partition([1, 2, 3], [1, 0, 1], 2))
    [2]
    [1 3]
    """
    return tensors_op("DynamicPartition", [data, partitions], name, num_partitions=num_partitions)


def dynamic_stitch(indices: Sequence[TensorLike], data: Sequence[TensorLike], name: str | None = None) -> Tensor:
    """One tensor from several: row ``indices[m][i]`` is ``data[m][i]``.  The last one counts if a row occurs twice.

    >>> show(ax.dynamic_stitch([[0, 2], [1]], [[10, 30], [20]]))
    [10 20 30]
    """
    return tensor_op("DynamicStitch", [list(indices), list(data)], name)


def space_to_depth(
    input: TensorLike,  # noqa: A002
    block_size: int,
    data_format: str = "NHWC",
    name: str | None = None,
) -> Tensor:
    """Images [n, h, w, c]: blocks of *block_size* x *block_size* pixels become channels.

    >>> show(ax.space_to_depth([[[[1], [2]], [[3], [4]]]], 2))
    [[[[1 2 3 4]]]]
    """
    return tensor_op("SpaceToDepth", [input], name, block_size=block_size, data_format=data_format)


def depth_to_space(
    input: TensorLike,  # noqa: A002
    block_size: int,
    data_format: str = "NHWC",
    name: str | None = None,
) -> Tensor:
    """Images [n, h, w, c]: channels become blocks of *block_size* x *block_size* pixels.

    >>> show(ax.squeeze(ax.depth_to_space([[[[1, 2, 3, 4]]]], 2)))
    [[1 2]
     [3 4]]
    """
    return tensor_op("DepthToSpace", [input], name, block_size=block_size, data_format=data_format)


def reverse_sequence(
    input: TensorLike,  # noqa: A002
    seq_lengths: TensorLike,
    seq_axis: int,
    batch_axis: int = 0,
    name: str | None = None,
) -> Tensor:
    """*input* with the first ``seq_lengths[i]`` elements along *seq_axis* reversed, for each entry i of *batch_axis*.

    >>> show(ax.reverse_sequence([[1, 2, 3], [4, 5, 6]], [2, 3], seq_axis=1))
    [[2 1 3]
     [6 5 4]]
    """
    return tensor_op("ReverseSequence", [input, seq_lengths], name, seq_dim=seq_axis, batch_dim=batch_axis)
