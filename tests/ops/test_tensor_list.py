"""TensorLists.  Behaviour as seen of TensorFlow 2.21."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from asyncexec.framework.errors import InvalidArgumentError, ResourceExhaustedError
from asyncexec.ops.state.tensor_list_state import TensorList
from tests.ops.kernel_bench import KernelBench, infer

F32 = {"element_dtype": "float32"}
SHAPED = F32 | {"shape_type": "int32"}


class Lists(KernelBench):
    """Shorthands for the ops, on float32."""

    def reserve(self, shape: Any = (), size: int = 3) -> TensorList:
        made: TensorList = self.run("TensorListReserve", self.shape(shape), np.int32(size), **SHAPED)
        return made

    def empty(self, shape: Any = -1, limit: int = -1) -> TensorList:
        made: TensorList = self.run("EmptyTensorList", self.shape(shape), np.int32(limit), **SHAPED)
        return made

    def of(self, *values: Any, shape: Any = -1) -> TensorList:
        made = self.empty(shape)
        for value in values:
            made = self.push(made, value)
        return made

    def shape(self, shape: Any) -> Any:
        return np.array(shape, np.int32)[()]

    def push(self, old: TensorList, value: Any) -> TensorList:
        made: TensorList = self.run("TensorListPushBack", old, np.float32(value), **F32)
        return made

    def set(self, old: TensorList, index: int, value: Any, **attrs: Any) -> TensorList:
        made: TensorList = self.run("TensorListSetItem", old, np.int32(index), np.float32(value), **F32, **attrs)
        return made

    def get(self, found: TensorList, index: int, shape: Any = -1) -> Any:
        return self.run("TensorListGetItem", found, np.int32(index), self.shape(shape), **F32)

    def stack(self, found: TensorList, shape: Any = -1, **attrs: Any) -> Any:
        return self.run("TensorListStack", found, self.shape(shape), **F32, **attrs)

    def gather(self, found: TensorList, indices: Any, shape: Any = -1) -> Any:
        return self.run("TensorListGather", found, np.int32(indices), self.shape(shape), **F32)

    def concat(self, found: TensorList, shape: Any = -1, leading: Any = ()) -> Any:
        return self.run("TensorListConcatV2", found, self.shape(shape), np.array(leading, np.int64), **SHAPED)

    def scatter(self, value: Any, indices: Any, shape: Any = -1, size: int = -1) -> TensorList:
        inputs = (np.float32(value), np.int32(indices), self.shape(shape), np.int32(size))
        made: TensorList = self.run("TensorListScatterV2", *inputs, **SHAPED)
        return made

    def split(self, value: Any, lengths: Any, shape: Any = -1) -> TensorList:
        made: TensorList = self.run(
            "TensorListSplit", np.float32(value), self.shape(shape), np.int64(lengths), **SHAPED
        )
        return made

    def from_tensor(self, value: Any, shape: Any = -1) -> TensorList:
        made: TensorList = self.run("TensorListFromTensor", np.float32(value), self.shape(shape), **SHAPED)
        return made


@pytest.fixture
def ops() -> Lists:
    return Lists()


def test_setting_an_item_leaves_the_old_list_as_it_was(ops: Lists) -> None:
    old = ops.reserve()
    new = ops.set(old, 1, 5)
    assert ops.get(old, 1) == 0
    assert ops.get(new, 1) == 5
    assert type(ops.get(new, 1)) is np.float32


@pytest.mark.parametrize("index", [-1, 3])
def test_index_must_be_within(ops: Lists, index: int) -> None:
    with pytest.raises(InvalidArgumentError, match=f"Trying to access element {index} in a list with 3 elements."):
        ops.get(ops.reserve(), index)
    with pytest.raises(InvalidArgumentError, match=f"Trying to modify element {index} in a list with 3 elements."):
        ops.set(ops.reserve(), index, 1)


def test_setting_may_resize(ops: Lists) -> None:
    assert len(ops.set(ops.reserve(), 3, 1, resize_if_index_out_of_bounds=True)) == 4
    with pytest.raises(InvalidArgumentError):
        ops.set(ops.reserve(), -1, 1, resize_if_index_out_of_bounds=True)


def test_items_have_the_shape_and_dtype_of_the_list(ops: Lists) -> None:
    with pytest.raises(InvalidArgumentError, match=r"Item element shape: \[1\] list shape: \[\]"):
        ops.set(ops.reserve(), 0, [1])
    with pytest.raises(InvalidArgumentError, match="op elements int32 but list elements float32"):
        ops.run("TensorListSetItem", ops.reserve(), np.int32(0), np.int32(1), element_dtype="int32")
    with pytest.raises(InvalidArgumentError, match="not a list"):
        ops.run("TensorListLength", np.float32(1))


def test_what_was_never_set_is_zeros_if_the_shape_is_known(ops: Lists) -> None:
    np.testing.assert_array_equal(ops.get(ops.reserve([-1]), 0, [2]), [0, 0])
    for shape in (-1, [-1]):
        with pytest.raises(InvalidArgumentError, match="uninitialized tensor but element_shape is not fully defined"):
            ops.get(ops.reserve(shape), 0)


def test_another_element_tells_the_shape(ops: Lists) -> None:
    found = ops.set(ops.reserve(-1), 1, [1, 2])
    np.testing.assert_array_equal(ops.get(found, 0), [0, 0])
    np.testing.assert_array_equal(ops.stack(found), [[0, 0], [1, 2], [0, 0]])


def test_stack(ops: Lists) -> None:
    np.testing.assert_array_equal(ops.stack(ops.of([1, 2], [3, 4])), [[1, 2], [3, 4]])
    np.testing.assert_array_equal(ops.stack(ops.reserve()), np.zeros(3, np.float32))
    assert ops.stack(ops.reserve([-1], 0), [2]).shape == (0, 2)
    assert ops.stack(ops.reserve(), num_elements=3).shape == (3,)


@pytest.mark.parametrize(
    ("shape", "size", "attrs"), [(-1, 3, {}), ([-1], 3, {}), (-1, 0, {}), ([-1], 0, {}), ((), 3, {"num_elements": 2})]
)
def test_bad_stack(ops: Lists, shape: Any, size: int, attrs: Any) -> None:
    with pytest.raises(InvalidArgumentError):
        ops.stack(ops.reserve(shape, size), **attrs)


def test_stack_needs_elements_of_one_shape(ops: Lists) -> None:
    with pytest.raises(InvalidArgumentError):
        ops.stack(ops.of([1], [1, 2]))


def test_push_and_pop(ops: Lists) -> None:
    found = ops.of(1, [2])
    rest, last = ops.run("TensorListPopBack", found, np.int32(-1), **F32)
    assert (len(found), len(rest)) == (2, 1)
    np.testing.assert_array_equal(last, [2])
    with pytest.raises(InvalidArgumentError, match=r"Trying to pop from an empty list."):
        ops.run("TensorListPopBack", ops.empty(), np.int32(-1), **F32)
    assert ops.run("TensorListPopBack", ops.reserve(), np.int32(-1), **F32)[1] == 0


def test_push_has_limits(ops: Lists) -> None:
    with pytest.raises(InvalidArgumentError, match="full list list size: 0 max_num_elements: 0"):
        ops.push(ops.empty(limit=0), 1)
    with pytest.raises(InvalidArgumentError):
        ops.push(ops.empty([2]), [1])


def test_length_element_shape_and_resize(ops: Lists) -> None:
    length = ops.run("TensorListLength", ops.reserve())
    assert (length, type(length)) == (3, np.int32)
    assert ops.run("TensorListElementShape", ops.empty(), shape_type="int32") == -1
    shape = ops.run("TensorListElementShape", ops.empty([-1, 2]), shape_type="int64")
    assert shape.dtype == np.int64
    np.testing.assert_array_equal(shape, [-1, 2])
    assert len(ops.run("TensorListResize", ops.reserve(), np.int32(5))) == 5
    assert len(ops.run("TensorListResize", ops.reserve(), np.int32(1))) == 1
    with pytest.raises(InvalidArgumentError):
        ops.run("TensorListResize", ops.reserve(), np.int32(-1))


def test_size_is_checked_before_memory_is_taken(ops: Lists) -> None:
    with pytest.raises(ResourceExhaustedError):
        ops.reserve(size=2**31 - 1)
    with pytest.raises(ResourceExhaustedError):
        ops.get(ops.reserve([2**30, 2**30]), 0)


def test_from_tensor(ops: Lists) -> None:
    found = ops.from_tensor([[1, 2], [3, 4]], [2])
    np.testing.assert_array_equal(ops.stack(found), [[1, 2], [3, 4]])
    with pytest.raises(InvalidArgumentError, match=r"list with shape \[3\] from a tensor with shape \[2\]"):
        ops.from_tensor([[1, 2], [3, 4]], [3])
    with pytest.raises(InvalidArgumentError, match="at least a vector"):
        ops.from_tensor(1)


def test_gather(ops: Lists) -> None:
    found = ops.of([1, 2], [3, 4])
    np.testing.assert_array_equal(ops.gather(found, [1, 0, 1]), [[3, 4], [1, 2], [3, 4]])
    assert ops.gather(ops.empty([2]), []).shape == (0, 2)
    np.testing.assert_array_equal(ops.gather(ops.reserve([2]), [1]), [[0, 0]])
    for source, indices in ((ops.empty(), []), (ops.empty([2]), [0]), (ops.reserve(-1), [1]), (ops.reserve([2]), [-1])):
        with pytest.raises(InvalidArgumentError):
            ops.gather(source, indices)


def test_scatter(ops: Lists) -> None:
    np.testing.assert_array_equal(ops.stack(ops.scatter([1, 2], [2, 0], ())), [2, 0, 1])
    np.testing.assert_array_equal(ops.stack(ops.scatter([1, 2], [0, 0], ())), [2])
    assert len(ops.scatter([1, 2], [2, 0], (), 5)) == 5
    grown = ops.run("TensorListScatterIntoExistingList", ops.of(7), np.float32([8]), np.int32([2]), **F32)
    assert (len(grown), grown.elements[2]) == (3, 8)


@pytest.mark.parametrize(
    ("value", "indices", "shape", "size"),
    [
        ([1, 2], [2, 0], (), 2),
        ([1, 2], [-1, 0], (), -1),
        ([1, 2], [0], (), -1),
        ([1, 2], [0, 1, 2], (), -1),
        ([1, 2], [0, 1], [3], -1),
        ([1, 2], [0, 1], (), -2),
    ],
)
def test_bad_scatter(ops: Lists, value: Any, indices: Any, shape: Any, size: int) -> None:
    with pytest.raises(InvalidArgumentError):
        ops.scatter(value, indices, shape if shape != () else np.zeros(0), size)


def test_split(ops: Lists) -> None:
    found = ops.split([1, 2, 3], [1, 2], [-1])
    np.testing.assert_array_equal(ops.get(found, 1), [2, 3])
    for lengths in ([1, 1], [1, 3], [-1, 4]):
        with pytest.raises(InvalidArgumentError):
            ops.split([1, 2, 3], lengths)
    with pytest.raises(InvalidArgumentError):
        ops.split(1, [1])


def test_concat(ops: Lists) -> None:
    value, lengths = ops.concat(ops.of([1, 2], [3]))
    np.testing.assert_array_equal(value, [1, 2, 3])
    np.testing.assert_array_equal(lengths, [2, 1])
    assert lengths.dtype == np.int64
    assert ops.concat(ops.empty([-1, 2]))[0].shape == (0, 2)
    assert ops.concat(ops.empty([2]))[0].shape == (0,)


def test_concat_fills_in_zeros(ops: Lists) -> None:
    value, lengths = ops.concat(ops.reserve([1, 2], 2))
    assert (value.shape, list(lengths)) == ((2, 2), [1, 1])
    value, lengths = ops.concat(ops.reserve(-1, 2), [-1, 2], [1, 3])
    assert (value.shape, list(lengths)) == ((4, 2), [1, 3])
    mixed = ops.push(ops.reserve([-1, 1], 1), [[5]])
    np.testing.assert_array_equal(ops.concat(mixed, [-1, 1], [2])[0], [[0], [0], [5]])


def test_bad_concat(ops: Lists) -> None:
    for source in (ops.of(1), ops.empty(), ops.of([[1, 2]], [[3]])):
        with pytest.raises(InvalidArgumentError):
            ops.concat(source)
    with pytest.raises(InvalidArgumentError, match="index 1 but leading_dims has only 1 elements"):
        ops.concat(ops.reserve(-1, 2), [-1, 2], [1])


def test_lists_are_joined(ops: Lists) -> None:
    joined = ops.run("TensorListConcatLists", ops.of(1), ops.of(2, 3), **F32)
    assert joined.elements == (1, 2, 3)


def test_static_shapes() -> None:
    assert infer("TensorListReserve", [], [], **SHAPED) == [[]]
    assert infer("TensorListGetItem", [], [], [2], **F32) == [[None, None]]
    assert infer("TensorListGetItem", [], [], [2], values=[None, None, np.int32([3, -1])], **F32) == [[3, None]]
    assert infer("TensorListStack", [], [1], values=[None, np.int32([3])], **F32) == [[None, 3]]
    assert infer("TensorListConcatV2", [], [2], [0], values=[None, np.int32([3, 4])], **SHAPED) == [[None, 4], [None]]
    with pytest.raises(InvalidArgumentError):
        infer("TensorListFromTensor", [2, 3], [1], values=[None, np.int32([4])], **SHAPED)
