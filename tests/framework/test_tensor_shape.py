"""The cases of TensorFlow's tensor_shape_test.cc, by what they mean.

Shapes here never change, so editing one makes another.

Default, set_dim, RemoveDim, RemoveAndAddDim, RemoveLastDims, RemoveDimRange, SetDimForEmptyTensor,
AppendShape64BitIndices, Randomized: test_editing, test_ranges_of_dimensions, test_against_a_model.  InvalidShapeProto,
TooManyDimsProto, UnknownRank, Large, Overflow: the tests of those names.  StartsWith, EndsWith: test_starts_and_ends.
DataType: a shape here holds no dtype.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asyncexec.framework.errors import InvalidArgumentError, InvalidTypeError
from asyncexec.framework.tensor_proto import decode_shape, encode_shape
from asyncexec.framework.tensor_protos import DimProto, TensorShapeProto
from asyncexec.framework.tensor_shape import MAX_RANK, SCALAR, UNKNOWN_SHAPE, TensorShape, as_shape, unknown_shape

LARGEST = 2**63 - 1


def proto(*sizes: int, unknown_rank: bool = False) -> TensorShapeProto:
    return TensorShapeProto(dim=tuple(DimProto(size=size) for size in sizes), unknown_rank=unknown_rank)


def test_a_scalar_has_one_element() -> None:
    assert SCALAR.rank == 0
    assert SCALAR.num_elements == 1
    assert SCALAR.is_fully_defined


def test_editing() -> None:
    shape = TensorShape([10, 5, 20])
    assert shape.num_elements == 1000
    assert shape[:1].concatenate(shape[2:]).concatenate([100]) == [10, 20, 100]
    assert shape[:1].concatenate([0]).concatenate(shape[2:]).num_elements == 0
    assert shape[:1].concatenate([7]).concatenate(shape[2:]).num_elements == 1400
    assert SCALAR.concatenate([10, 2**31]) == [10, 2**31]


@pytest.mark.parametrize(
    ("part", "left"),
    [
        (slice(0, 0), [2, 3, 5, 7]),
        (slice(3, 1), [2, 3, 5, 7]),
        (slice(0, 3), [7]),
        (slice(2, 3), [2, 3, 7]),
        (slice(-3, -2), [2, 5, 7]),
        (slice(0, -2), [5, 7]),
        (slice(-1, None), [2, 3, 5]),
    ],
)
def test_ranges_of_dimensions(part: slice, left: list[int]) -> None:
    shape = TensorShape([2, 3, 5, 7])
    start, stop, _ = part.indices(4)
    assert shape[:start].concatenate(shape[max(start, stop) :]) == left


def test_invalid_shape_proto() -> None:
    assert decode_shape(proto()) == []
    assert decode_shape(proto(357, 982)) == [357, 982]
    assert decode_shape(proto(-1, 982)) == [None, 982]
    for sizes in [(-357, -982), (2**35, 2**35 + 1)]:
        with pytest.raises(InvalidArgumentError):
            decode_shape(proto(*sizes))


def test_too_many_dims_proto() -> None:
    assert decode_shape(proto(*[1] * MAX_RANK)).rank == MAX_RANK
    with pytest.raises(InvalidArgumentError, match="at most 254 dimensions, not 255"):
        decode_shape(proto(*[1] * (MAX_RANK + 1)))


def test_unknown_rank() -> None:
    assert decode_shape(proto(unknown_rank=True)) is UNKNOWN_SHAPE
    assert not UNKNOWN_SHAPE
    assert UNKNOWN_SHAPE.num_elements is None
    # TensorFlow takes this one, and the dimensions count; nothing writes it.
    with pytest.raises(InvalidArgumentError):
        decode_shape(proto(7, unknown_rank=True))


@pytest.mark.parametrize(
    ("sizes", "count"),
    [
        ([LARGEST], LARGEST),
        ([1, LARGEST], LARGEST),
        ([LARGEST, 1], LARGEST),
        ([2**62], 2**62),
        ([2**20, 2**41], 2**61),
        ([1000] * 6, 10**18),
    ],
)
def test_large(sizes: list[int], count: int) -> None:
    assert TensorShape(sizes).num_elements == count


@pytest.mark.parametrize("sizes", [[2**30] * 3, [2**5, 2**60 + 1], [2**32, 2**32], [0, 2**32, 2**32], [None, 2**63]])
def test_overflow(sizes: list[int]) -> None:
    with pytest.raises(InvalidArgumentError, match="elements"):
        TensorShape(sizes)


@pytest.mark.parametrize(
    ("sizes", "error"),
    [([-1], InvalidArgumentError), ([2.0], InvalidTypeError), (["2"], InvalidTypeError), (-3, InvalidArgumentError)],
)
def test_what_is_no_shape(sizes: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        TensorShape(sizes)


@pytest.mark.parametrize(
    ("shape", "part", "starts", "ends"),
    [
        ([], [], True, True),
        ([2, 3], [], True, True),
        ([2, 3], [2], True, False),
        ([2, 3], [3], False, True),
        ([2, 3], [2, 3], True, True),
        ([2, 3], [2, 4], False, False),
        ([2, 3, 4], [2, 3], True, False),
        ([2, 3, 4], [3, 4], False, True),
    ],
)
def test_starts_and_ends(shape: list[int], part: list[int], starts: bool, ends: bool) -> None:
    whole = TensorShape(shape)
    assert (whole[: len(part)] == part) is starts
    assert (whole[len(shape) - len(part) :] == part) is ends


def test_merging() -> None:
    assert TensorShape([None, 3]).merge_with([2, None]) == [2, 3]
    assert UNKNOWN_SHAPE.merge_with([2]) == [2]
    assert TensorShape([2]).merge_with(None) == [2]
    for other in ([3], [2, 1]):
        with pytest.raises(InvalidArgumentError, match="not compatible"):
            TensorShape([2]).merge_with(other)


def test_what_two_shapes_agree_on() -> None:
    assert TensorShape([2, 3]).most_general([2, 4]) == [2, None]
    assert TensorShape([2]).most_general([2, 3]) == UNKNOWN_SHAPE


def test_ranks() -> None:
    assert UNKNOWN_SHAPE.with_rank(2) == unknown_shape(2) == [None, None]
    for check in ("with_rank", "with_rank_at_least"):
        with pytest.raises(InvalidArgumentError, match="rank 3"):
            getattr(TensorShape([1, 2]), check)(3)
    with pytest.raises(InvalidArgumentError, match="at most rank 1"):
        TensorShape([1, 2]).with_rank_at_most(1)
    with pytest.raises(InvalidArgumentError, match="rank of this shape is not known"):
        UNKNOWN_SHAPE.as_list()
    with pytest.raises(InvalidArgumentError, match="not fully defined"):
        TensorShape([None]).as_tuple()


def test_how_shapes_are_shown() -> None:
    assert [str(as_shape(shape)) for shape in (None, [], [2], [None, 3])] == ["<unknown>", "[]", "[2]", "[?,3]"]


sizes = st.lists(st.none() | st.integers(0, 10), max_size=8)


@given(sizes, sizes)
def test_against_a_model(first: list[int | None], second: list[int | None]) -> None:
    a, b = TensorShape(first), TensorShape(second)
    assert (a == b) == (first == second)
    assert a.concatenate(b) == first + second
    assert decode_shape(encode_shape(a)) == a
    fits = len(first) == len(second) and all(None in (x, y) or x == y for x, y in zip(first, second, strict=True))
    assert a.is_compatible_with(b) == fits
    if None not in second:
        assert a.accepts(b.as_tuple()) == fits
