"""Variables of both kinds, scatters into them, and training updates.  Numbers are those of TensorFlow 2.21."""

from __future__ import annotations

from threading import Thread
from typing import Any

import numpy as np
import pytest

from asyncexec.framework.errors import (
    FailedPreconditionError,
    InternalError,
    InvalidArgumentError,
    NotFoundError,
    OutOfRangeError,
)
from asyncexec.framework.ownership import keep
from asyncexec.framework.tensor_shape import TensorShape
from asyncexec.framework.types import float32
from asyncexec.ops.state.variable_state import Variable
from tests.ops.kernel_bench import KernelBench, infer


@pytest.fixture
def bench() -> KernelBench:
    return KernelBench()


def ref(
    bench: KernelBench, value: Any = None, *, name: str = "w", shape: Any = None, dtype: str = "float32"
) -> Variable:
    """A reference variable, holding *value* when one is given."""
    shape = np.shape(value) if shape is None else shape
    variable: Variable = bench.run("VariableV2", name=name, shape=list(shape), dtype=dtype)
    if value is not None:
        bench.run("Assign", variable, as_array(value, dtype), T=dtype)
    return variable


def handle(bench: KernelBench, value: Any = None, *, name: str = "w", dtype: str = "float32") -> Variable:
    """A resource variable, holding *value* when one is given."""
    variable: Variable = bench.run("VarHandleOp", shared_name=name, shape=list(np.shape(value)), dtype=dtype)
    if value is not None:
        bench.run("AssignVariableOp", variable, as_array(value, dtype), dtype=dtype)
    return variable


def as_array(value: Any, dtype: str) -> Any:
    return np.array(value, dtype)[()]


def test_reference_is_the_variable_itself_and_is_shared_by_name(bench: KernelBench) -> None:
    assert ref(bench) is ref(bench)
    assert ref(bench) is not ref(bench, name="other")
    shared = bench.run("VariableV2", name="third", shape=[], dtype="float32", shared_name="w")
    assert shared is ref(bench)


def test_uninitialized_variable_cannot_be_read(bench: KernelBench) -> None:
    variable = ref(bench)
    assert bench.run("IsVariableInitialized", variable, dtype="float32") == np.False_
    with pytest.raises(FailedPreconditionError, match=r"^Attempting to use uninitialized value w$"):
        variable.read()
    with pytest.raises(FailedPreconditionError):
        bench.run("AssignAdd", variable, np.float32(1), T="float32")


def test_assign_gives_the_reference_and_keeps_a_read_only_copy(bench: KernelBench) -> None:
    variable, value = ref(bench, shape=[2]), np.float32([1, 2])
    assert bench.run("Assign", variable, value, T="float32") is variable
    value[0] = 99
    np.testing.assert_array_equal(variable.read(), [1, 2])
    assert not variable.read().flags.writeable
    assert bench.run("IsVariableInitialized", variable, dtype="float32") == np.True_


def test_keep_copies_only_what_somebody_can_write_to() -> None:
    writable = np.arange(3)
    view = writable[:2]
    view.flags.writeable = False
    sealed = keep(writable)
    assert not np.shares_memory(keep(view), writable)
    assert keep(sealed) is sealed
    assert keep(sealed[1:]).base is sealed
    assert keep(np.frombuffer(b"abcd", np.int32)).base == b"abcd"
    assert keep(b"s") == b"s"
    assert type(keep(np.float32(1))) is np.float32


def test_assign_validates_the_shape_unless_told_not_to(bench: KernelBench) -> None:
    variable = ref(bench, shape=[3])
    with pytest.raises(InvalidArgumentError, match=r"lhs shape= \[3\] rhs shape= \[2\]"):
        bench.run("Assign", variable, np.float32([1, 2]), T="float32")
    bench.run("Assign", variable, np.float32([1, 2]), T="float32", validate_shape=False)
    with pytest.raises(InvalidArgumentError, match=r"lhs shape= \[2\] rhs shape= \[3\]"):
        bench.run("Assign", variable, np.float32([1, 2, 3]), T="float32")


def test_a_reader_keeps_the_value_it_read(bench: KernelBench) -> None:
    variable = ref(bench, [1, 2])
    before = variable.read()
    bench.run("AssignAdd", variable, np.float32([1, 1]), T="float32")
    bench.run("AssignSub", variable, np.float32([3, 0]), T="float32")
    np.testing.assert_array_equal(before, [1, 2])
    np.testing.assert_array_equal(variable.read(), [-1, 3])


def test_scalars_stay_scalars(bench: KernelBench) -> None:
    variable = ref(bench, 1, dtype="int32")
    bench.run("AssignAdd", variable, np.int32(2), T="int32")
    assert type(variable.read()) is np.int32
    assert variable.read() == 3


def test_updates_take_a_value_of_the_same_shape(bench: KernelBench) -> None:
    with pytest.raises(InvalidArgumentError):
        bench.run("AssignAdd", ref(bench, [1, 2]), np.float32(1), T="float32")
    with pytest.raises(InvalidArgumentError, match=r"shape \[\] using a Tensor with shape \[2\]"):
        bench.run("AssignAddVariableOp", handle(bench, 1, name="r"), np.float32([1, 2]), dtype="float32")


def test_updates_from_threads_are_not_lost() -> None:
    variable = Variable("w", float32, TensorShape([]))
    variable.assign(np.float32(0))

    def add() -> None:
        for _ in range(500):
            variable.update(lambda old: old + np.float32(1))

    threads = [Thread(target=add) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert variable.read() == 2000


def test_count_up_to_gives_the_former_value(bench: KernelBench) -> None:
    variable = ref(bench, 0, dtype="int32")
    count = bench.kernel("CountUpTo", T="int32", limit=2)
    assert [count(variable), count(variable)] == [0, 1]
    with pytest.raises(OutOfRangeError, match=r"^Reached limit of 2$"):
        count(variable)
    assert variable.read() == 2


def test_temporary_variable_is_new_each_time(bench: KernelBench) -> None:
    make = bench.kernel("TemporaryVariable", shape=[2], dtype="float32", var_name="tmp")
    variable = make()
    assert make() is not variable
    bench.run("Assign", variable, np.float32([1, 2]), T="float32")
    np.testing.assert_array_equal(bench.run("DestroyTemporaryVariable", variable, T="float32", var_name="tmp"), [1, 2])
    with pytest.raises(NotFoundError):
        bench.run("DestroyTemporaryVariable", variable, T="float32", var_name="other")


@pytest.mark.parametrize(
    ("kind", "indices", "updates", "result"),
    [
        ("Update", [0, 0], [5, 6], [6, 4, 8]),
        ("Update", [0, 2], 5, [5, 4, 5]),
        ("Add", [0, 0], [1, 1], [4, 4, 8]),
        ("Sub", [[0], [2]], [[1], [2]], [1, 4, 6]),
        ("Mul", [1, 1], [2, 3], [2, 24, 8]),
        ("Div", [2, 2], [2, 4], [2, 4, 1]),
        ("Min", [0, 2], [1, 9], [1, 4, 8]),
        ("Max", 2, 9, [2, 4, 9]),
        ("Add", [], [], [2, 4, 8]),
    ],
)
@pytest.mark.parametrize("prefix", ["Scatter", "ResourceScatter"])
def test_scatter(bench: KernelBench, prefix: str, kind: str, indices: Any, updates: Any, result: Any) -> None:
    is_ref = prefix == "Scatter"
    variable = (ref if is_ref else handle)(bench, [2, 4, 8])
    attrs = {"T" if is_ref else "dtype": "float32", "Tindices": "int32"}
    before = variable.read()
    out = bench.run(prefix + kind, variable, as_array(indices, "int32"), as_array(updates, "float32"), **attrs)
    assert out is (variable if is_ref else out)
    np.testing.assert_array_equal(variable.read(), result)
    np.testing.assert_array_equal(before, [2, 4, 8])


def test_integer_scatter_division_truncates(bench: KernelBench) -> None:
    variable = ref(bench, [-7, 7, 8, 9], dtype="int32")
    divide = bench.kernel("ScatterDiv", T="int32", Tindices="int32")
    divide(variable, np.int32([0, 1, 2]), np.int32([2, -2, 3]))
    np.testing.assert_array_equal(variable.read(), [-3, -3, 2, 9])
    divide(variable, np.int32([0, 0]), np.int32([2, 2]))
    np.testing.assert_array_equal(variable.read(), [0, -3, 2, 9])
    with pytest.raises(InvalidArgumentError):
        divide(variable, np.int32([0]), np.int32([0]))


@pytest.mark.parametrize(
    ("indices", "updates", "message"),
    [
        ([3], [1], r"indices\[0\] = 3 is not in \[0, 2\)"),
        ([0, -1], [1, 1], r"indices\[1\] = -1 is not in \[0, 2\)"),
        ([0, 1], [5], "Must have updates.shape"),
    ],
)
def test_bad_scatter_changes_nothing(bench: KernelBench, indices: Any, updates: Any, message: str) -> None:
    variable = ref(bench, [1, 2])
    with pytest.raises(InvalidArgumentError, match=message):
        bench.run("ScatterAdd", variable, np.int32(indices), np.float32(updates), T="float32", Tindices="int32")
    np.testing.assert_array_equal(variable.read(), [1, 2])


def test_scatter_nd(bench: KernelBench) -> None:
    variable = ref(bench, [[1, 2], [3, 4]])
    attrs = {"T": "float32", "Tindices": "int32"}
    bench.run("ScatterNdAdd", variable, np.int32([[0, 1], [1, 0]]), np.float32([10, 20]), **attrs)
    np.testing.assert_array_equal(variable.read(), [[1, 12], [23, 4]])
    bench.run("ScatterNdAdd", variable, np.int32([[1], [1]]), np.float32([[1, 1], [1, 1]]), **attrs)
    np.testing.assert_array_equal(variable.read(), [[1, 12], [25, 6]])
    skipping = attrs | {"bad_indices_policy": "IGNORE"}
    bench.run("ScatterNdUpdate", variable, np.int32([[5], [1]]), np.float32([[1, 1], [7, 1]]), **skipping)
    np.testing.assert_array_equal(variable.read(), [[1, 12], [7, 1]])
    bench.run("ScatterNdUpdate", variable, np.zeros((0, 1), np.int32), np.zeros((0, 2), np.float32), **attrs)
    bench.run("ScatterNdMax", variable, np.int32([[0, 0]]), np.float32([50]), **attrs)
    np.testing.assert_array_equal(variable.read(), [[50, 12], [7, 1]])


@pytest.mark.parametrize(
    ("indices", "updates"),
    [([[7]], [1]), ([[1]], [1, 2]), ([[1, 1]], [1]), (np.zeros((2, 0)), np.ones((2, 2))), ([[-1]], [1]), (1, [1])],
)
def test_bad_scatter_nd(bench: KernelBench, indices: Any, updates: Any) -> None:
    attrs = {"T": "float32", "Tindices": "int32"}
    with pytest.raises(InvalidArgumentError):
        bench.run("ScatterNdUpdate", ref(bench, [1, 2]), np.int32(indices), np.float32(updates), **attrs)


def test_resource_variable_lives_and_dies(bench: KernelBench) -> None:
    variable = handle(bench)
    is_initialized = bench.kernel("VarIsInitializedOp")
    read = bench.kernel("ReadVariableOp", dtype="float32")
    assert is_initialized(variable) == np.False_
    with pytest.raises(FailedPreconditionError, match="Could not find variable w"):
        read(variable)
    bench.run("AssignVariableOp", variable, np.float32(1), dtype="float32")
    bench.run("AssignAddVariableOp", variable, np.float32(2), dtype="float32")
    bench.run("AssignSubVariableOp", variable, np.float32(0.5), dtype="float32")
    assert read(variable) == np.float32(2.5)
    bench.run("DestroyResourceOp", variable)
    assert is_initialized(variable) == np.False_
    bench.run("DestroyResourceOp", variable)
    with pytest.raises(NotFoundError):
        bench.run("DestroyResourceOp", variable, ignore_lookup_error=False)


def test_resource_ops_other_than_reads_do_not_find_an_uninitialized_variable(bench: KernelBench) -> None:
    variable, one = handle(bench), np.float32(1)
    with pytest.raises(NotFoundError, match="localhost/w"):
        bench.run("AssignAddVariableOp", variable, one, dtype="float32")
    with pytest.raises(NotFoundError):
        bench.run("VariableShape", variable)
    with pytest.raises(NotFoundError):
        bench.run("ResourceGather", variable, np.int32([0]), dtype="float32", Tindices="int32")
    with pytest.raises(InternalError):
        bench.run("ResourceApplyGradientDescent", variable, one, one, T="float32")


def test_resource_ops_check_the_dtype(bench: KernelBench) -> None:
    with pytest.raises(InvalidArgumentError, match=r"float32.*int32"):
        bench.run("AssignVariableOp", handle(bench), np.int32(1), dtype="int32")
    with pytest.raises(InvalidArgumentError):
        handle(bench, dtype="int32")


def test_anonymous_handle_is_new_each_time(bench: KernelBench) -> None:
    anonymous = "cd2c89b7-88b7-44c8-ad83-06c2a9158347"
    make = bench.kernel("VarHandleOp", shared_name=anonymous, shape=[], dtype="float32")
    assert make() is not make()


def test_variable_shape(bench: KernelBench) -> None:
    shape = bench.run("VariableShape", handle(bench, [[1, 2, 3]]), out_type="int64")
    assert shape.dtype == np.int64
    np.testing.assert_array_equal(shape, [1, 3])


def test_resource_gather(bench: KernelBench) -> None:
    variable = handle(bench, [1, 2, 3])
    gather = bench.kernel("ResourceGather", dtype="float32", Tindices="int32")
    np.testing.assert_array_equal(gather(variable, np.int32([[0, 2]])), [[1, 3]])
    assert type(gather(variable, np.int32(1))) is np.float32
    with pytest.raises(InvalidArgumentError, match=r"indices\[1\] = 3 is not in \[0, 3\)"):
        gather(variable, np.int32([0, 3]))


def test_resource_gather_by_batch(bench: KernelBench) -> None:
    variable = handle(bench, [[[1], [2], [3]], [[4], [5], [6]]])
    gather = bench.kernel("ResourceGather", dtype="float32", Tindices="int32", batch_dims=1)
    np.testing.assert_array_equal(gather(variable, np.int32([[2, 0], [1, 1]])), [[[3], [1]], [[5], [5]]])
    np.testing.assert_array_equal(gather(variable, np.int32([2, 0])), [[3], [4]])
    with pytest.raises(InvalidArgumentError):
        gather(variable, np.int32([[0], [0], [0]]))


def test_resource_gather_nd(bench: KernelBench) -> None:
    variable = handle(bench, [[1, 2], [3, 4]])
    gather = bench.kernel("ResourceGatherNd", dtype="float32", Tindices="int32")
    np.testing.assert_array_equal(gather(variable, np.int32([[0, 1], [1, 0]])), [2, 3])
    np.testing.assert_array_equal(gather(variable, np.int32([1])), [3, 4])
    assert type(gather(variable, np.int32([1, 1]))) is np.float32
    with pytest.raises(InvalidArgumentError):
        gather(variable, np.int32([[0, 2]]))


def test_training_updates_are_tensorflows(bench: KernelBench) -> None:
    var, m, v = (
        handle(bench, value, name=name) for name, value in (("a", [1, 2]), ("b", [0.5, 0.25]), ("c", [0.5, 0.75]))
    )
    f, grad = np.float32, np.float32([1, 3])
    expected = [
        [[0.855, 1.6775], [1.45, 3.225], [0.5, 0.75]],
        [[2.06, 4.2799997], [1.205, 2.6025], [0.5, 0.75]],
        [[1.8739053, 3.956584], [1.1845, 2.64225], [0.505, 0.8324999]],
        [[1.5879608, 3.1725616], [2.06605, 5.378025], [0.505, 0.8324999]],
        [[3.0714612, 6.958761], [1.759445, 4.540222], [0.505, 0.8324999]],
        [[2.8189406, 6.462594], [1.6835004, 4.3862], [0.50995, 0.91417485]],
    ]
    results = []
    for nesterov in (False, True):
        attrs = {"T": "float32", "use_nesterov": nesterov}
        for op in ("ResourceApplyMomentum", "ResourceApplyKerasMomentum"):
            assert bench.run(op, var, m, f(0.1), grad, f(0.9), **attrs) == ()
            results.append([var.read(), m.read(), v.read()])
        rates = (f(0.8), f(0.95), f(0.1), f(0.9), f(0.99), f(1e-3))
        bench.run("ResourceApplyAdam", var, m, v, *rates, grad, **attrs)
        results.append([var.read(), m.read(), v.read()])
    np.testing.assert_allclose(results, expected, rtol=2e-6)
    assert var.read().dtype == np.float32


def test_gradient_descent_on_a_reference(bench: KernelBench) -> None:
    variable, descend = ref(bench, [1, 2]), bench.kernel("ApplyGradientDescent", T="float32")
    assert descend(variable, np.float32(0.5), np.float32([2, 2])) is variable
    np.testing.assert_array_equal(variable.read(), [0, 1])
    with pytest.raises(InvalidArgumentError, match="do not have the same shape"):
        descend(variable, np.float32(0.5), np.float32([2]))
    with pytest.raises(InvalidArgumentError, match="alpha is not a scalar"):
        descend(variable, np.float32([0.5]), np.float32([2, 2]))


def test_static_shapes() -> None:
    assert infer("VariableV2", shape=[2], dtype="float32") == [[2]]
    assert infer("Variable", shape=[], dtype="float32") == [None]
    assert infer("Assign", [None], [2], T="float32") == [[2]]
    assert infer("Assign", [3], [2], T="float32", validate_shape=False) == [[2]]
    assert infer("ScatterUpdate", [3, 4], [2], [2, 4], T="float32", Tindices="int32") == [[3, 4]]
    assert infer("ScatterNdUpdate", [3, 4], [1, 1], [1, 4], T="float32", Tindices="int32") == [[3, 4]]
    assert infer("ApplyAdam", [None], [3], None, [], [], [], [], [], [], [3], T="float32") == [[3]]
    assert infer("VariableShape", []) == [[None]]


@pytest.mark.parametrize(
    ("op", "shapes"),
    [
        ("Assign", ([3], [2])),
        ("AssignAdd", ([3], [2])),
        ("ScatterUpdate", ([3], [1], [2])),
        ("ScatterNdUpdate", ([3, 4], [1, 1], [2, 4])),
        ("ScatterNdUpdate", ([3, 4], [1, 1], [1, 5])),
        ("ScatterNdUpdate", ([0, 4], [1, 1], [1, 4])),
        ("ApplyGradientDescent", ([3], [1], None)),
        ("ApplyGradientDescent", ([3], None, [2])),
    ],
)
def test_static_errors(op: str, shapes: Any) -> None:
    attrs = {"Tindices": "int32"} if op.startswith("Scatter") else {}
    with pytest.raises(InvalidArgumentError):
        infer(op, *shapes, T="float32", **attrs)
