"""Typed ways to call ``create_op``, and the name scope of functions that make several nodes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias, cast

from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.types import DType
from asyncexec.frontend.convert import check_name
from asyncexec.frontend.create_op import as_tensor, create_op, graph_of, holds_tensor
from asyncexec.graph.current_graph import name_scope
from asyncexec.graph.node import Node, Tensor

TensorLike: TypeAlias = Any  # a tensor, a variable, or a value that a constant is made of
DTypeLike: TypeAlias = Any  # what as_dtype takes


def tensor_op(op: str, inputs: Sequence[object] = (), name: str | None = None, **attrs: object) -> Tensor:
    """The output of a new node of *op*, which has one; attrs that are None are left out."""
    return cast(Tensor, create_op(op, inputs, attrs, name))


def tensors_op(op: str, inputs: Sequence[object] = (), name: str | None = None, **attrs: object) -> list[Tensor]:
    """The outputs of a new node of *op*, which has several or a list of them."""
    return cast("list[Tensor]", create_op(op, inputs, attrs, name))


def effect_op(op: str, inputs: Sequence[object] = (), name: str | None = None, **attrs: object) -> Node:
    """A new node of *op*, which has no outputs."""
    return cast(Node, create_op(op, inputs, attrs, name))


@contextmanager
def composite(name: str | None, default: str, values: Sequence[object]) -> Iterator[str]:
    """A name scope in the graph of *values*; the node that is named by the scope bears the scope's own name."""
    check_name(name)
    with graph_of(values), name_scope(name or default) as scope:
        yield scope


def same_dtype(x: TensorLike, y: TensorLike) -> tuple[Tensor, Tensor]:
    """Both as tensors of one dtype: that of the one that is a tensor already, else that of *x*.

    Raises:
        InvalidTypeError: they are tensors of different dtypes, or a value does not fit the other's dtype.
    """
    with graph_of((x, y)):
        if holds_tensor(y) and not holds_tensor(x):
            second = as_tensor(y)
            return as_tensor(x, second.dtype.base_dtype), second
        first = as_tensor(x)
        return first, as_tensor(y, first.dtype.base_dtype)


def in_graph_of(values: Sequence[object]) -> list[Tensor]:
    """Each of *values* as a tensor of the graph that those which are tensors belong to."""
    with graph_of(values):
        return [as_tensor(value) for value in values]


def static_rank(x: Tensor, what: str) -> int:
    """The rank of *x*; InvalidArgumentError, saying that *what* needs it, where it is not known."""
    if x.shape.rank is None:
        raise InvalidArgumentError(
            f"{what} needs to know the rank of {x.name!r} while the graph is built", hint="use ax.ensure_shape"
        )
    return x.shape.rank


def dtype_of(x: Tensor) -> DType:
    """The dtype of the values of *x*, whether it is a reference or not."""
    return x.dtype.base_dtype
