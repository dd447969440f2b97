"""What enters a graph, what passes through it unchanged, and what is told of it: placeholders, identities, shapes,
checks.

Names and arguments are those of TensorFlow's Python API (``tensorflow/python/ops/array_ops.py``,
``control_flow_ops.py``, ``logging_ops.py``).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from asyncexec.framework import types
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.tensor_shape import ShapeLike, as_shape
from asyncexec.framework.types import as_dtype
from asyncexec.frontend.calls import DTypeLike, TensorLike, effect_op, in_graph_of, tensor_op, tensors_op
from asyncexec.frontend.create_op import as_tensor, graph_of
from asyncexec.graph.current_graph import as_node, control_dependencies, name_scope
from asyncexec.graph.node import Node, Tensor


def placeholder(dtype: DTypeLike, shape: ShapeLike = None, name: str | None = None) -> Tensor:
    """A tensor that must be fed; sizes that are None, or the whole shape, may differ from run to run."""
    return tensor_op("Placeholder", (), name, dtype=as_dtype(dtype), shape=as_shape(shape))


def placeholder_with_default(input: TensorLike, shape: ShapeLike, name: str | None = None) -> Tensor:  # noqa: A002
    """A tensor that may be fed, and otherwise is *input*, whose shape must be compatible with *shape*."""
    return tensor_op("PlaceholderWithDefault", [input], name, shape=as_shape(shape))


def identity(input: TensorLike, name: str | None = None) -> Tensor:  # noqa: A002
    """The same values as a tensor of its own."""
    return tensor_op("Identity", [input], name)


def identity_n(input: Sequence[TensorLike], name: str | None = None) -> list[Tensor]:  # noqa: A002
    """The same tensors, each available only once all of them are."""
    return tensors_op("IdentityN", [list(input)], name)


def stop_gradient(input: TensorLike, name: str | None = None) -> Tensor:  # noqa: A002
    """The same values; in TensorFlow no gradient flows through it."""
    return tensor_op("StopGradient", [input], name)


def no_op(name: str | None = None) -> Node:
    """An operation that does nothing, but can wait for others (see control_dependencies)."""
    return effect_op("NoOp", (), name)


def group(*inputs: Tensor | Node | Iterable[Tensor | Node], name: str | None = None) -> Node:
    """An operation that has run once all of *inputs*, tensors or operations or lists of them, have."""
    nodes: list[Node] = []
    for member in inputs:
        nodes += [as_node(member)] if isinstance(member, (Tensor, Node)) else [as_node(inner) for inner in member]
    with nodes[0].graph if nodes else graph_of(()), control_dependencies(nodes):
        return effect_op("NoOp", (), name or "group_deps")


def tuple(  # noqa: A001
    tensors: Sequence[Any], name: str | None = None, control_inputs: Iterable[Tensor | Node] | None = None
) -> list[Any]:
    """*tensors*, each available only once all of them are and *control_inputs* have run; None among them stays None.

    An operation among them becomes one that has run once all have.  InvalidArgumentError where there is nothing to
    wait for: no tensor and no operation among *tensors*.
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
    """*x* with its elements converted to *dtype*; *x* itself where it has that dtype already."""
    wanted = as_dtype(dtype)
    with graph_of((x,)):
        tensor = as_tensor(x)
    if tensor.dtype.base_dtype is wanted:
        return tensor if name is None else identity(tensor, name)
    return tensor_op("Cast", [tensor], name, DstT=wanted)


def bitcast(input: TensorLike, type: DTypeLike, name: str | None = None) -> Tensor:  # noqa: A002
    """The bytes of *input* as elements of another dtype; a smaller one adds a dimension, a larger one takes one."""
    return tensor_op("Bitcast", [input], name, type=as_dtype(type))


def shape(input: TensorLike, out_type: DTypeLike = types.int32, name: str | None = None) -> Tensor:  # noqa: A002
    """The shape that *input* has when the graph runs, as a vector of *out_type* (int32 or int64)."""
    return tensor_op("Shape", [input], name, out_type=out_type)


def size(input: TensorLike, out_type: DTypeLike = types.int32, name: str | None = None) -> Tensor:  # noqa: A002
    """The number of elements of *input*, a scalar of *out_type* (int32 or int64)."""
    return tensor_op("Size", [input], name, out_type=out_type)


def rank(input: TensorLike, name: str | None = None) -> Tensor:  # noqa: A002
    """The number of dimensions of *input*, an int32 scalar."""
    return tensor_op("Rank", [input], name)


def ensure_shape(x: TensorLike, shape: ShapeLike, name: str | None = None) -> Tensor:
    """*x*, known to be of *shape* from here on; a run in which it is not fails with InvalidArgumentError."""
    return tensor_op("EnsureShape", [x], name, shape=as_shape(shape))


def check_numerics(tensor: TensorLike, message: str, name: str | None = None) -> Tensor:
    """*tensor*, of floats; a run in which it holds NaN or infinity fails with InvalidArgumentError and *message*."""
    return tensor_op("CheckNumerics", [tensor], name, message=message)


def Assert(condition: TensorLike, data: Sequence[TensorLike], summarize: int = 3, name: str | None = None) -> Node:  # noqa: N802
    """An operation that fails with InvalidArgumentError, showing *data*, unless the bool *condition* holds.

    It checks only where something waits for it: ``with ax.control_dependencies([ax.Assert(...)]):``.

    Args:
        condition: a bool scalar.
        data: what the error message shows.
        summarize: how many elements of each it shows.
    """
    return effect_op("Assert", [condition, list(data)], name, summarize=summarize)


def print_(
    *inputs: Any, output_stream: str = "stderr", summarize: int = 3, end: str = "\n", name: str | None = None
) -> Node:
    """An operation that prints *inputs*, separated by blanks, each time it runs.

    Args:
        inputs: tensors and plain text.
        output_stream: ``"stderr"``, ``"stdout"``, ``"log(info)"`` and the like.
        summarize: how many elements at both ends of each dimension it shows; -1 for all.
        end: what follows the last.
    """
    words = [value if isinstance(value, str) and "{}" not in value else "{}" for value in inputs]
    tensors = in_graph_of([value for value, word in zip(inputs, words, strict=True) if word == "{}"])
    template = " ".join(words)
    text = tensor_op("StringFormat", [tensors], template=template, placeholder="{}", summarize=summarize)
    return effect_op("PrintV2", [text], name or "print", output_stream=output_stream, end=end)
