"""TensorArrays and stacks.  Behaviour as seen of TensorFlow 2.21."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from asyncexec.framework.errors import InvalidArgumentError, ResourceExhaustedError, UnimplementedError
from asyncexec.ops.state.tensor_array_state import TensorArray
from tests.ops.kernel_bench import KernelBench, infer

FLOW = np.float32(0)
F32 = {"dtype": "float32"}


class Arrays(KernelBench):
    """Shorthands for the ops, on float32."""

    def make(self, size: int = 3, **attrs: Any) -> TensorArray:
        array: TensorArray
        array, flow = self.run("TensorArrayV3", np.int32(size), dtype="float32", tensor_array_name="ta", **attrs)
        assert type(flow) is np.float32
        return array

    def write(self, array: TensorArray, index: int, value: Any) -> Any:
        return self.run("TensorArrayWriteV3", array, np.int32(index), np.float32(value), FLOW, T="float32")

    def read(self, array: TensorArray, index: int) -> Any:
        return self.run("TensorArrayReadV3", array, np.int32(index), FLOW, **F32)

    def gather(self, array: TensorArray, indices: Any, **attrs: Any) -> Any:
        return self.run("TensorArrayGatherV3", array, np.int32(indices), FLOW, **F32, **attrs)

    def scatter(self, array: TensorArray, indices: Any, value: Any) -> Any:
        return self.run("TensorArrayScatterV3", array, np.int32(indices), np.float32(value), FLOW, T="float32")

    def split(self, array: TensorArray, value: Any, lengths: Any) -> Any:
        return self.run("TensorArraySplitV3", array, np.float32(value), np.int64(lengths), FLOW, T="float32")

    def concat(self, array: TensorArray, **attrs: Any) -> Any:
        return self.run("TensorArrayConcatV3", array, FLOW, **F32, **attrs)

    def size(self, array: TensorArray) -> Any:
        return self.run("TensorArraySizeV3", array, FLOW)

    def gradient(self, array: TensorArray, source: str = "g") -> TensorArray:
        made: TensorArray = self.run("TensorArrayGradV3", array, FLOW, source=source)[0]
        return made


@pytest.fixture
def ops() -> Arrays:
    return Arrays()


def test_each_execution_makes_a_new_array(ops: Arrays) -> None:
    assert ops.make() is not ops.make()


def test_what_is_written_is_read(ops: Arrays) -> None:
    array = ops.make()
    assert ops.write(array, 1, [1, 2]) == FLOW
    np.testing.assert_array_equal(ops.read(array, 1), [1, 2])
    assert ops.size(array) == 3
    assert type(ops.size(array)) is np.int32


@pytest.mark.parametrize("index", [-1, 3])
def test_index_must_be_within(ops: Arrays, index: int) -> None:
    array = ops.make()
    with pytest.raises(InvalidArgumentError, match=f"Tried to write to index {index} but array is not resizeable"):
        ops.write(array, index, 1)
    with pytest.raises(InvalidArgumentError, match=f"Tried to read from index {index} but array size is: 3"):
        ops.read(array, index)


def test_dynamic_array_grows(ops: Arrays) -> None:
    array = ops.make(0, dynamic_size=True)
    ops.write(array, 4, [1])
    assert ops.size(array) == 5
    with pytest.raises(InvalidArgumentError):
        ops.write(array, -1, [1])
    with pytest.raises(ResourceExhaustedError):
        ops.write(array, 2**31 - 1, [1])


def test_reading_clears_unless_told_not_to(ops: Arrays) -> None:
    array, keeping = ops.make(), ops.make(clear_after_read=False)
    for each in (array, keeping):
        ops.write(each, 0, 1)
        ops.read(each, 0)
        with pytest.raises(InvalidArgumentError, match="it has already been read"):
            ops.write(each, 0, 1)
    assert ops.read(keeping, 0) == 1
    with pytest.raises(InvalidArgumentError, match="Could not read index 0 twice"):
        ops.read(array, 0)


def test_an_index_is_written_once(ops: Arrays) -> None:
    array = ops.make()
    ops.write(array, 0, 1)
    with pytest.raises(InvalidArgumentError, match="it has already been written to"):
        ops.write(array, 0, 1)


def test_what_was_never_written_is_zeros_if_the_shape_is_known(ops: Arrays) -> None:
    np.testing.assert_array_equal(ops.read(ops.make(element_shape=[2]), 0), np.zeros(2, np.float32))
    with pytest.raises(InvalidArgumentError, match="element shape is not fully defined: <unknown>"):
        ops.read(ops.make(), 0)


def test_element_shape_is_held_to(ops: Arrays) -> None:
    with pytest.raises(InvalidArgumentError, match=r"value shape is \[1\] which is incompatible"):
        ops.write(ops.make(element_shape=[2]), 0, [1])
    array = ops.make(identical_element_shapes=True)
    ops.write(array, 0, [1])
    with pytest.raises(InvalidArgumentError, match=r"inferred element shape: \[1\]"):
        ops.write(array, 1, [1, 2])
    np.testing.assert_array_equal(ops.read(array, 1), [0])


def test_dtype_is_held_to(ops: Arrays) -> None:
    with pytest.raises(InvalidArgumentError, match="float32 but Op is trying to write dtype int32"):
        ops.run("TensorArrayWriteV3", ops.make(), np.int32(0), np.int32(0), FLOW, T="int32")
    with pytest.raises(InvalidArgumentError, match="float32 but Op requested dtype int32"):
        ops.run("TensorArrayReadV3", ops.make(), np.int32(0), FLOW, dtype="int32")


@pytest.mark.parametrize("size", [-1, [1, 2]])
def test_size_is_a_scalar_and_not_negative(ops: Arrays, size: Any) -> None:
    with pytest.raises(InvalidArgumentError):
        ops.run("TensorArrayV3", np.int32(size), dtype="float32")


def test_size_is_checked_before_memory_is_taken(ops: Arrays) -> None:
    with pytest.raises(ResourceExhaustedError):
        ops.make(2**31 - 1)
    with pytest.raises(ResourceExhaustedError):
        ops.read(ops.make(element_shape=[2**31, 2**20]), 0)


def test_gather(ops: Arrays) -> None:
    array = ops.make(clear_after_read=False)
    ops.write(array, 0, [1])
    ops.write(array, 1, [2])
    np.testing.assert_array_equal(ops.gather(array, [1, 0]), [[2], [1]])
    with pytest.raises(InvalidArgumentError, match="Tried to read from index 7"):
        ops.gather(array, [7])
    with pytest.raises(InvalidArgumentError, match=r"element_shape \[5\] which does not match.*index 0: \[1\]"):
        ops.gather(array, [0, 1], element_shape=[5])
    ops.write(array, 2, [1, 2])
    with pytest.raises(InvalidArgumentError, match=r"Index 0 has shape: \[1\] but index 1 has shape: \[2\]"):
        ops.gather(array, [0, 2])


def test_gather_reads_an_index_once(ops: Arrays) -> None:
    array = ops.make()
    ops.write(array, 0, [1])
    with pytest.raises(InvalidArgumentError, match="twice"):
        ops.gather(array, [0, 0])


def test_gather_of_nothing_needs_a_shape(ops: Arrays) -> None:
    assert ops.gather(ops.make(), np.zeros(0), element_shape=[3]).shape == (0, 3)
    with pytest.raises(UnimplementedError, match="element shape <unknown> is not fully defined"):
        ops.gather(ops.make(), np.zeros(0))


def test_scatter(ops: Arrays) -> None:
    array = ops.make()
    ops.scatter(array, [2, 0], [[1], [2]])
    np.testing.assert_array_equal(ops.gather(array, [0, 2]), [[2], [1]])
    growing = ops.make(0, dynamic_size=True)
    ops.scatter(growing, [0, 5], [1, 2])
    assert ops.size(growing) == 6
    assert type(ops.read(growing, 5)) is np.float32


@pytest.mark.parametrize(
    ("indices", "value", "message"),
    [
        ([0, 5], [[1], [2]], r"Max scatter index must be < array size \(5 vs. 3\)"),
        ([0], [[1], [2]], r"saw: 1 vs. 2"),
        ([0, 0], [[1], [2]], "already been written"),
        ([0], 1, "at least a vector"),
        ([-1], [1], "index -1"),
    ],
)
def test_bad_scatter(ops: Arrays, indices: Any, value: Any, message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        ops.scatter(ops.make(), indices, value)


def test_split_and_concat(ops: Arrays) -> None:
    array = ops.make()
    ops.split(array, [1, 2, 3], [1, 0, 2])
    value, lengths = ops.concat(array)
    np.testing.assert_array_equal(value, [1, 2, 3])
    np.testing.assert_array_equal(lengths, [1, 0, 2])
    assert lengths.dtype == np.int64


@pytest.mark.parametrize(
    ("value", "lengths", "message"),
    [
        ([1, 2, 3], [1, 1, 2], "sum of lengths is 4"),
        ([1, 2, 3], [1, 2], r"\(3 vs. 2\)"),
        (1, [1, 2, 0], "at least a vector"),
        ([1, 2, 3], [1, -1, 3], "negative"),
    ],
)
def test_bad_split(ops: Arrays, value: Any, lengths: Any, message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        ops.split(ops.make(), value, lengths)


def test_concat_needs_vectors_alike_but_for_the_first_dimension(ops: Arrays) -> None:
    array = ops.make(1)
    ops.write(array, 0, 1)
    with pytest.raises(InvalidArgumentError, match="scalar shape at index 0"):
        ops.concat(array)
    array = ops.make(1)
    ops.write(array, 0, [[1, 2]])
    with pytest.raises(InvalidArgumentError, match=r"element_shape_except0 \[3\] but index 0 has"):
        ops.concat(array, element_shape_except0=[3])
    assert ops.concat(ops.make(0), element_shape_except0=[2])[0].shape == (0, 2)
    with pytest.raises(UnimplementedError):
        ops.concat(ops.make(0))


def test_gradient_adds_up_and_reads_zeros_where_nothing_came(ops: Arrays) -> None:
    array = ops.make()
    ops.write(array, 0, [1])
    ops.write(array, 1, [1, 2])
    gradient = ops.gradient(array)
    assert ops.gradient(array) is gradient
    assert ops.gradient(array, "other") is not gradient
    value = np.float32([5])
    ops.write(gradient, 0, value)
    ops.write(gradient, 0, [6])
    np.testing.assert_array_equal(value, [5])
    with pytest.raises(InvalidArgumentError, match=r"existing shape is \[1\] but the new input shape is \[2\]"):
        ops.write(gradient, 0, [1, 2])
    np.testing.assert_array_equal(ops.read(gradient, 0), [11])
    np.testing.assert_array_equal(ops.read(gradient, 1), [0, 0])
    with pytest.raises(InvalidArgumentError, match="not fully defined"):
        ops.read(gradient, 2)


def test_gradient_stops_the_array_from_growing(ops: Arrays) -> None:
    array = ops.make(2, dynamic_size=True)
    ops.write(array, 3, [1])
    assert ops.size(ops.gradient(array)) == 4
    with pytest.raises(InvalidArgumentError, match="index 7"):
        ops.write(array, 7, [1])


def test_gradient_may_have_more_dimensions(ops: Arrays) -> None:
    array = ops.make(2, element_shape=[2])
    ops.write(array, 0, [1, 2])
    gradient = ops.run("TensorArrayGradWithShape", array, FLOW, np.int32([3]), source="g")[0]
    assert ops.read(gradient, 0).shape == (3, 2)
    assert ops.read(gradient, 1).shape == (3, 2)


def test_closed_array_gives_and_takes_nothing(ops: Arrays) -> None:
    array = ops.make()
    assert ops.run("TensorArrayCloseV3", array) == ()
    for use in (lambda: ops.read(array, 0), lambda: ops.write(array, 0, 1), lambda: ops.gradient(array)):
        with pytest.raises(InvalidArgumentError, match=r"TensorArray ta has already been closed."):
            use()
    assert ops.size(array) == 3


def test_strings_travel_as_bytes(ops: Arrays) -> None:
    array, _ = ops.run("TensorArrayV3", np.int32(2), dtype="string", element_shape=[])
    ops.run("TensorArrayWriteV3", array, np.int32(0), b"a", FLOW, T="string")
    gathered = ops.run("TensorArrayGatherV3", array, np.int32([0, 1]), FLOW, dtype="string")
    assert gathered.dtype == object
    assert list(gathered) == [b"a", b""]


def test_static_shapes() -> None:
    assert infer("TensorArrayV3", [], dtype="float32") == [[2], []]
    assert infer("TensorArrayReadV3", [2], [], [], dtype="float32") == [None]
    assert infer("TensorArrayGatherV3", [2], [4], [], dtype="float32", element_shape=[3]) == [[4, 3]]
    assert infer("TensorArrayConcatV3", [2], [], dtype="float32") == [None, [None]]
    for op, shapes in (("TensorArrayWriteV3", ([2], [1], [], [])), ("TensorArrayScatterV3", ([2], [1], [2, 1], []))):
        with pytest.raises(InvalidArgumentError):
            infer(op, *shapes, T="float32")


def test_stack(ops: Arrays) -> None:
    stack = ops.run("StackV2", np.int32(2), elem_type="float32", stack_name="st")
    push, pop = ops.kernel("StackPushV2", T="float32"), ops.kernel("StackPopV2", elem_type="float32")
    assert push(stack, np.float32(1)) == 1
    push(stack, np.float32([2]))
    with pytest.raises(InvalidArgumentError, match="overflowed its max_size"):
        push(stack, np.float32(3))
    np.testing.assert_array_equal(pop(stack), [2])
    assert pop(stack) == 1
    with pytest.raises(InvalidArgumentError, match=r"^Stack\[st_\d+\] is empty when calling Pop\(\).$"):
        pop(stack)
    with pytest.raises(InvalidArgumentError, match="Must have type float32 but got int32"):
        ops.run("StackPushV2", stack, np.int32(1), T="int32")
    ops.run("StackCloseV2", stack)
    with pytest.raises(InvalidArgumentError, match="already been closed"):
        pop(stack)
