"""Placeholders, identities, shapes, conversions and checks.

Names and arguments are those of TensorFlow's Python API (``tensorflow/python/ops/array_ops.py``,
``control_flow_ops.py``, ``logging_ops.py``).

Raises:
    InvalidArgumentError: shapes do not fit, or the op does not take the dtype.
    UnimplementedError: when the graph runs, *cast* cannot convert between the dtypes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from asyncexec.framework import types
from asyncexec.framework.errors import InvalidArgumentError, InvalidTypeError
from asyncexec.framework.tensor_shape import ShapeLike, as_shape
from asyncexec.framework.types import as_dtype
from asyncexec.frontend.calls import DTypeLike, TensorLike, effect_op, in_graph_of, tensor_op, tensors_op
from asyncexec.frontend.create_op import as_tensor, graph_of, object_hint
from asyncexec.graph.current_graph import as_node, control_dependencies, name_scope
from asyncexec.graph.node import Node, Tensor


def placeholder(dtype: DTypeLike, shape: ShapeLike = None, name: str | None = None) -> Tensor:
    """A tensor that must be fed.  Sizes of None, or a shape of None, may differ from run to run.

    >>> ax.placeholder(ax.float32, [None, 3], name="x")
    <ax.Tensor 'x:0' float32 shape=[?,3] from Placeholder>
    """
    return tensor_op("Placeholder", (), name, dtype=as_dtype(dtype), shape=as_shape(shape))


def placeholder_with_default(input: TensorLike, shape: ShapeLike, name: str | None = None) -> Tensor:  # noqa: A002
    """A tensor that may be fed.  Otherwise its value is *input*, whose shape must be compatible with *shape*.

    >>> show(ax.placeholder_with_default(3, []))
    3
    """
    return tensor_op("PlaceholderWithDefault", [input], name, shape=as_shape(shape))


def identity(input: TensorLike, name: str | None = None) -> Tensor:  # noqa: A002
    """The same values as a tensor of its own.

    >>> show(ax.identity([1, 2]))
    [1 2]
    """
    return tensor_op("Identity", [input], name)


def identity_n(input: Sequence[TensorLike], name: str | None = None) -> list[Tensor]:  # noqa: A002
    """The same tensors, each available only when all of them are.

    >>> show(*ax.identity_n([[1, 2], [3]]))
    [1 2]
    [3]
    """
    return tensors_op("IdentityN", [list(input)], name)


def stop_gradient(input: TensorLike, name: str | None = None) -> Tensor:  # noqa: A002
    """The same values; in TensorFlow no gradient flows through it.

    >>> show(ax.stop_gradient([1, 2]))
    [1 2]
    """
    return tensor_op("StopGradient", [input], name)


def no_op(name: str | None = None) -> Node:
    """An operation that does nothing, but can wait for other operations (see control_dependencies).

    >>> show(ax.no_op())
    None
    """
    return effect_op("NoOp", (), name)


def group(*inputs: Tensor | Node | Iterable[Tensor | Node], name: str | None = None) -> Node:
    """An operation that has run when all of *inputs* have run: tensors, operations, or lists of them.

    >>> show(ax.group(ax.constant(1), ax.no_op()))
    None
    """
    nodes: list[Node] = []
    for member in inputs:
        nodes += [as_node(member)] if isinstance(member, (Tensor, Node)) else [as_node(inner) for inner in member]
    with nodes[0].graph if nodes else graph_of(()), control_dependencies(nodes):
        return effect_op("NoOp", (), name or "group_deps")


def tuple(  # noqa: A001
    tensors: Sequence[object], name: str | None = None, control_inputs: Iterable[Tensor | Node] | None = None
) -> list[Any]:
    """*tensors*, each available only when all of them are and *control_inputs* have run.

    None stays None.  An operation becomes one that has run when all have run.  InvalidArgumentError if there is no
    tensor and no operation among *tensors*.

    >>> show(*ax.tuple([ax.constant(1), ax.constant(2)]))
    1
    2
    """
    if all(member is None for member in tensors):
        raise InvalidArgumentError("tuple needs a tensor or an operation to wait for")
    with graph_of([member for member in tensors if member is not None]), name_scope(name or "tuple"):
        found = [member if member is None or isinstance(member, Node) else as_tensor(member) for member in tensors]
        gate = group([member for member in found if member is not None], control_inputs or ())
        with control_dependencies([gate]):
            return [None if member is None else _passed(member) for member in found]


def _passed(member: Tensor | Node) -> Tensor | Node:
    return identity(member) if isinstance(member, Tensor) else no_op()


def cast(x: TensorLike, dtype: DTypeLike, name: str | None = None) -> Tensor:
    """*x* with its elements converted to *dtype*; *x* itself if it has that dtype.

    >>> show(ax.cast([1.7, -1.7], ax.int32))
    [ 1 -1]

    Raises:
        InvalidTypeError: *x* is of ``ax.object``; an op converts Python objects.
    """
    wanted = as_dtype(dtype)
    with graph_of((x,)):
        tensor = as_tensor(x)
    if tensor.dtype.base_dtype is wanted:
        return tensor if name is None else identity(tensor, name)
    if tensor.dtype.base_dtype is types.object:
        raise InvalidTypeError(
            f"cannot cast {tensor.name!r}, whose values are Python objects, to {wanted.name}",
            hint=f"{object_hint(tensor, wanted)}, or convert it in an op",
        )
    return tensor_op("Cast", [tensor], name, DstT=wanted)


def bitcast(input: TensorLike, type: DTypeLike, name: str | None = None) -> Tensor:  # noqa: A002
    """The bytes of *input* as elements of another dtype.  A smaller dtype adds a dimension, a larger one removes one.

    >>> show(ax.bitcast([1.0], ax.int32))
    [1065353216]
    """
    return tensor_op("Bitcast", [input], name, type=as_dtype(type))


def shape(input: TensorLike, out_type: DTypeLike = types.int32, name: str | None = None) -> Tensor:  # noqa: A002
    """The shape of *input* when the graph runs, as a vector of *out_type* (int32 or int64).

    >>> show(ax.shape([[1, 2], [3, 4]]))
    [2 2]
    """
    return tensor_op("Shape", [input], name, out_type=out_type)


def size(input: TensorLike, out_type: DTypeLike = types.int32, name: str | None = None) -> Tensor:  # noqa: A002
    """The number of elements of *input*, a scalar of *out_type* (int32 or int64).

    >>> show(ax.size([[1, 2], [3, 4]]))
    4
    """
    return tensor_op("Size", [input], name, out_type=out_type)


def rank(input: TensorLike, name: str | None = None) -> Tensor:  # noqa: A002
    """The number of dimensions of *input*, an int32 scalar.

    >>> show(ax.rank([[1, 2], [3, 4]]))
    2
    """
    return tensor_op("Rank", [input], name)


def ensure_shape(x: TensorLike, shape: ShapeLike, name: str | None = None) -> Tensor:
    """*x* with the known shape *shape*.  A run in which *x* has another shape fails with InvalidArgumentError.

    >>> show(ax.ensure_shape([1, 2], [None]))
    [1 2]
    """
    return tensor_op("EnsureShape", [x], name, shape=as_shape(shape))


def check_numerics(tensor: TensorLike, message: str, name: str | None = None) -> Tensor:
    """*tensor*, of floats.  A run in which it has NaN or infinity fails with InvalidArgumentError and *message*.

    >>> show(ax.check_numerics([1.0, 2.0], "x is not finite"))
    [1. 2.]
    """
    return tensor_op("CheckNumerics", [tensor], name, message=message)


def Assert(condition: TensorLike, data: Sequence[TensorLike], summarize: int = 3, name: str | None = None) -> Node:  # noqa: N802
    """An operation that fails with InvalidArgumentError, which shows *data*, unless *condition* is true.

    It runs only if something waits for it: ``with ax.control_dependencies([ax.Assert(...)]):``.

    >>> with ax.control_dependencies([ax.Assert(True, ["not shown"])]):
    ...     checked = ax.identity([1, 2])
    >>> show(checked)
    [1 2]

    Args:
        condition: a bool scalar.
        data: values for the error message.
        summarize: the number of elements of each that the message shows.
    """
    return effect_op("Assert", [condition, list(data)], name, summarize=summarize)


def print_(
    *inputs: object, output_stream: str = "stderr", summarize: int = 3, end: str = "\n", name: str | None = None
) -> Node:
    """An operation that prints *inputs*, separated by blanks, each time it runs.

    >>> show(ax.print_("x is", ax.constant([1, 2]), output_stream="stdout"))
    x is [1 2]
    None

    Args:
        inputs: tensors and plain text.
        output_stream: ``"stderr"``, ``"stdout"``, ``"log(info)"`` and the like.
        summarize: the number of elements at both ends of each dimension that it shows; -1 for all.
        end: the text after the last input.
    """
    words = [value if isinstance(value, str) and "{}" not in value else "{}" for value in inputs]
    tensors = in_graph_of([value for value, word in zip(inputs, words, strict=True) if word == "{}"])
    template = " ".join(words)
    text = tensor_op("StringFormat", [tensors], template=template, placeholder="{}", summarize=summarize)
    return effect_op("PrintV2", [text], name or "print", output_stream=output_stream, end=end)
