"""Shapes of tensors, wholly or partly known (``tensorflow/python/framework/tensor_shape.py``)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final, TypeAlias

from asyncexec.framework.errors import InvalidArgumentError, InvalidTypeError

Dim: TypeAlias = int | None
MAX_RANK: Final = 254
MAX_ELEMENTS: Final = 2**63 - 1


class TensorShape:
    """An immutable shape.  ``dims`` is a tuple of sizes, with None for unknown sizes, or None if the rank is unknown.

    ``TensorShape(None)`` is of unknown rank, ``TensorShape([])`` a scalar, ``TensorShape([None, 3])`` two-dimensional.

    >>> ax.TensorShape([None, 3]).merge_with([2, None])
    TensorShape([2, 3])
    >>> ax.TensorShape([None, 3]).is_fully_defined
    False

    Raises:
        InvalidArgumentError: a negative size, more than 254 dimensions, or more than 2**63 - 1 elements.
    """

    __slots__ = ("dims",)

    dims: tuple[Dim, ...] | None

    def __init__(self, dims: Iterable[Dim] | int | TensorShape | None = None) -> None:
        if dims is None:
            self.dims = None
        elif isinstance(dims, TensorShape):
            self.dims = dims.dims
        elif isinstance(dims, int):
            self.dims = _checked((dims,))
        else:
            self.dims = _checked(tuple(dims))

    @property
    def rank(self) -> int | None:
        return None if self.dims is None else len(self.dims)

    @property
    def is_fully_defined(self) -> bool:
        return self.dims is not None and None not in self.dims

    @property
    def num_elements(self) -> int | None:
        """The number of elements, or None where a size is unknown."""
        if self.dims is None:
            return None
        count = 1
        for dim in self.dims:
            if dim is None:
                return None
            count *= dim
        return count

    def as_list(self) -> list[Dim]:
        """The sizes; InvalidArgumentError if the rank is unknown."""
        if self.dims is None:
            raise InvalidArgumentError("the rank of this shape is not known")
        return list(self.dims)

    def as_tuple(self) -> tuple[int, ...]:
        """The sizes as integers; InvalidArgumentError if the shape is not fully defined."""
        if self.dims is None or None in self.dims:
            raise InvalidArgumentError(f"the shape {self} is not fully defined")
        return tuple(dim for dim in self.dims if dim is not None)

    def is_compatible_with(self, other: ShapeLike) -> bool:
        """Whether some array could have both shapes."""
        dims, theirs = self.dims, as_shape(other).dims
        if dims is None or theirs is None:
            return True
        return len(dims) == len(theirs) and all(
            a == b or a is None or b is None for a, b in zip(dims, theirs, strict=True)
        )

    def accepts(self, shape: tuple[int, ...]) -> bool:
        """Whether an array of exactly this *shape* fits."""
        dims = self.dims
        if dims is None or dims == shape:
            return True
        if len(dims) != len(shape):
            return False
        return all(want is None or want == got for want, got in zip(dims, shape, strict=True))

    def merge_with(self, other: ShapeLike) -> TensorShape:
        """The sizes that are known from either shape; InvalidArgumentError if they contradict."""
        theirs = as_shape(other)
        if self.dims is None:
            return theirs
        if theirs.dims is None or theirs.dims == self.dims:  # the usual case, and a node may have very many inputs
            return self
        if not self.is_compatible_with(theirs):
            raise InvalidArgumentError(f"Shapes {self} and {theirs} are not compatible")
        return TensorShape(a if a is not None else b for a, b in zip(self.dims, theirs.dims, strict=True))

    def most_general(self, other: ShapeLike) -> TensorShape:
        """The sizes that both shapes have in common; None where they differ."""
        theirs = as_shape(other)
        if self.dims is None or theirs.dims is None or len(self.dims) != len(theirs.dims):
            return UNKNOWN_SHAPE
        return TensorShape(a if a == b else None for a, b in zip(self.dims, theirs.dims, strict=True))

    def concatenate(self, other: ShapeLike) -> TensorShape:
        """The sizes of this shape followed by those of *other*."""
        theirs = as_shape(other)
        if self.dims is None or theirs.dims is None:
            return UNKNOWN_SHAPE
        return TensorShape(self.dims + theirs.dims)

    def with_rank(self, rank: int) -> TensorShape:
        """This shape, with the known rank *rank*; InvalidArgumentError if it has another rank."""
        if self.dims is None:
            return unknown_shape(rank)
        if len(self.dims) != rank:
            raise InvalidArgumentError(f"Shape must be rank {rank} but is rank {len(self.dims)}: {self}")
        return self

    def with_rank_at_least(self, rank: int) -> TensorShape:
        """This shape; InvalidArgumentError if its rank is known and less than *rank*."""
        if self.dims is not None and len(self.dims) < rank:
            raise InvalidArgumentError(f"Shape must be at least rank {rank} but is rank {len(self.dims)}: {self}")
        return self

    def with_rank_at_most(self, rank: int) -> TensorShape:
        """This shape; InvalidArgumentError if its rank is known and more than *rank*."""
        if self.dims is not None and len(self.dims) > rank:
            raise InvalidArgumentError(f"Shape must be at most rank {rank} but is rank {len(self.dims)}: {self}")
        return self

    def __len__(self) -> int:
        return len(self.as_list())

    def __bool__(self) -> bool:
        return self.dims is not None

    def __iter__(self) -> Iterator[Dim]:
        return iter(self.as_list())

    def __getitem__(self, key: Any) -> Any:
        """A size; or, for a slice, the shape of that part."""
        if isinstance(key, slice):
            return UNKNOWN_SHAPE if self.dims is None else TensorShape(self.dims[key])
        return None if self.dims is None else self.dims[key]

    def __eq__(self, other: object) -> bool:
        if isinstance(other, TensorShape):
            return self.dims == other.dims
        if other is None or isinstance(other, (list, tuple)):
            return self.dims == (None if other is None else tuple(other))
        return NotImplemented

    def __hash__(self) -> int:
        return hash(self.dims)

    def __str__(self) -> str:
        if self.dims is None:
            return "<unknown>"
        return "[" + ",".join("?" if dim is None else str(dim) for dim in self.dims) + "]"

    def __repr__(self) -> str:
        return f"TensorShape({None if self.dims is None else list(self.dims)})"


ShapeLike: TypeAlias = TensorShape | Iterable[Dim] | int | None


def as_shape(value: ShapeLike) -> TensorShape:
    """*value* as a TensorShape (None means unknown rank)."""
    return value if isinstance(value, TensorShape) else TensorShape(value)


def unknown_shape(rank: int) -> TensorShape:
    """A shape of that rank with no size known; InvalidArgumentError above 254, before any list is made."""
    if rank > MAX_RANK:
        raise InvalidArgumentError(f"a shape has at most {MAX_RANK} dimensions, not {rank}")
    return TensorShape((None,) * rank)


def _checked(dims: tuple[Any, ...]) -> tuple[Dim, ...]:
    if len(dims) > MAX_RANK:
        raise InvalidArgumentError(f"a shape has at most {MAX_RANK} dimensions, not {len(dims)}")
    sizes: list[Dim] = []
    count = 1
    for dim in dims:
        if dim is None:
            sizes.append(None)
            continue
        try:
            size = dim.__index__()
        except AttributeError:
            raise InvalidTypeError(f"a dimension is an integer or None, not {dim!r}") from None
        if size < 0:
            raise InvalidArgumentError(f"a dimension cannot be negative: {list(dims)}")
        if size:
            count *= size
        sizes.append(size)
    if count > MAX_ELEMENTS:
        raise InvalidArgumentError(f"a shape of {list(dims)} has more than 2**63 - 1 elements")
    return tuple(sizes)


UNKNOWN_SHAPE: Final = TensorShape(None)
SCALAR: Final = TensorShape(())
