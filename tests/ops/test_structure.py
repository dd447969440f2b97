"""Constants, placeholders, checks; the shapes of control flow and of function calls."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from asyncexec.framework.errors import AbortedError, InvalidArgumentError, PermissionDeniedError
from asyncexec.ops.string.tensor_text import summarize_value
from tests.ops.kernel_bench import KernelBench, infer


@pytest.fixture
def bench() -> KernelBench:
    return KernelBench()


@pytest.mark.parametrize("value", [np.float32(3), np.arange(6, dtype=np.int64).reshape(2, 3)], ids=["scalar", "matrix"])
def test_const_gives_its_value_itself(bench: KernelBench, value: Any) -> None:
    assert bench.run("Const", value=value, dtype=value.dtype) is value
    assert infer("Const", value=value, dtype=value.dtype) == [list(value.shape)]


def test_const_may_be_a_string(bench: KernelBench) -> None:
    assert bench.run("Const", value=b"a", dtype="string") == b"a"
    assert infer("Const", value=b"a", dtype="string") == [[]]


def test_const_of_another_dtype_than_its_attr_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="Inconsistent types: attr dtype is int32, but the value is float32"):
        infer("Const", value=np.float32(3), dtype="int32")


@pytest.mark.parametrize(
    ("shape", "suffix"), [(None, ""), ([], ""), ([2, 3], r" and shape \[2,3\]"), ([None, 3], r" and shape \[\?,3\]")]
)
def test_placeholder_asks_for_its_feed(bench: KernelBench, shape: Any, suffix: str) -> None:
    message = f"^You must feed a value for placeholder tensor 'y' with dtype float32{suffix}$"
    with pytest.raises(InvalidArgumentError, match=message):
        bench.run("Placeholder", name="y", dtype="float32", shape=shape)


def test_placeholder_with_default_keeps_its_declared_shape(bench: KernelBench) -> None:
    value = np.zeros((2, 3), np.float32)
    assert bench.run("PlaceholderWithDefault", value, dtype="float32", shape=[None, 3]) is value
    assert infer("PlaceholderWithDefault", [2, 3], dtype="float32", shape=[None, 3]) == [[None, 3]]
    with pytest.raises(InvalidArgumentError):
        infer("PlaceholderWithDefault", [2, 3], dtype="float32", shape=[None, 4])


def test_identity_n_gives_all(bench: KernelBench) -> None:
    assert bench.run("IdentityN", 1, 2, T=["int32", "int32"]) == (1, 2)
    assert infer("IdentityN", [1], None, T=["int32", "int32"]) == [[1], None]


@pytest.mark.parametrize("op", ["NoOp", "ControlTrigger"])
def test_ops_without_outputs_give_nothing(bench: KernelBench, op: str) -> None:
    assert bench.run(op) == ()


@pytest.mark.parametrize("exits", [False, True])
def test_abort_never_ends_the_process(bench: KernelBench, exits: bool) -> None:
    with pytest.raises(AbortedError, match="stop here"):
        bench.run("Abort", error_msg="stop here", exit_without_error=exits)


# What TensorFlow 2.21 prints for these.
@pytest.mark.parametrize(
    ("value", "limit", "text"),
    [
        (np.float32([1.5, 2, 3, 4]), 3, "1.5 2 3..."),
        (np.float32([1.5, 2, 3, 4]), -1, "1.5 2 3 4"),
        (np.float32([1.5, 2, 3, 4]), 0, "..."),
        (np.array([[1, 2, 3], [4, 5, 6]]), 3, "[1 2 3]..."),
        (np.array([[1, 2, 3], [4, 5, 6]]), -1, "[1 2 3][4 5 6]"),
        (np.arange(24).reshape(2, 3, 4), 2, "[[0 1...]]..."),
        (np.arange(24).reshape(2, 3, 4), 10, "[[0 1 2 3][4 5 6 7][8 9...]]..."),
        (b"hi", 3, "hi"),
        (np.array([b"a", b"b", b"c", b"d"], object), 3, "a b c..."),
        (np.bool_(True), 3, "1"),
        (np.array([True, False]), 3, "1 0"),
        (np.float32([]), 3, ""),
        (np.complex64(1 + 2j), 3, "?"),
        (np.float32(1e-10), 3, "1e-10"),
        (np.float32(123456789), 3, "123456792"),
        (np.float32(1 / 3), 3, "0.333333343"),
        (np.float64(1 / 3), 3, "0.33333333333333331"),
        (np.float16(0.1), 3, "0.0999755859"),
        (np.float32(1e6), 3, "1e+06"),
        (np.float64(1e6), 3, "1000000"),
        (np.float32("nan"), 3, "nan"),
        (np.float32("-inf"), 3, "-inf"),
    ],
)
def test_summary_is_tensorflows(value: Any, limit: int, text: str) -> None:
    assert summarize_value(value, limit) == text


def test_assert_shows_its_data(bench: KernelBench) -> None:
    kernel = bench.kernel("Assert", T=["float32", "string"], summarize=2)
    data = (np.float32([1, 2, 3]), b"why")
    assert kernel(np.True_, *data) == ()
    with pytest.raises(InvalidArgumentError, match=r"^assertion failed: \[1 2\.\.\.\] \[why\]$"):
        kernel(np.False_, *data)
    with pytest.raises(InvalidArgumentError):
        kernel(np.array([True]), *data)


def test_print_shows_the_first_n(bench: KernelBench, capsys: pytest.CaptureFixture[str]) -> None:
    kernel = bench.kernel("Print", T="float32", U=["int32", "string"], message="x: ", first_n=1)
    value = np.float32(1)
    assert kernel(value, np.int32([1, 2]), b"s") is value
    assert kernel(value, np.int32([1, 2]), b"s") is value
    assert capsys.readouterr().err == "x: [1 2][s]\n"


def test_print_v2_writes_text(bench: KernelBench, capsys: pytest.CaptureFixture[str]) -> None:
    assert bench.run("PrintV2", b"hello") == ()
    bench.run("PrintV2", b"there", output_stream="stdout", end="!")
    assert capsys.readouterr() == ("there!", "hello\n")


def test_print_v2_reaches_no_file(bench: KernelBench) -> None:
    with pytest.raises(PermissionDeniedError):
        bench.kernel("PrintV2", output_stream="file:///tmp/x")


@pytest.mark.parametrize(
    ("op", "value", "found"),
    [
        ("CheckNumerics", [1, np.nan], "NaN"),
        ("CheckNumerics", [-np.inf, np.nan], "Inf and NaN"),
        ("CheckNumericsV2", [1, np.inf], r"\+Inf"),
        ("CheckNumericsV2", [np.inf, -np.inf], r"-Inf and \+Inf"),
        ("CheckNumericsV2", [-np.inf, np.nan], "-Inf and NaN"),
    ],
)
def test_check_numerics_says_what_it_found(bench: KernelBench, op: str, value: Any, found: str) -> None:
    with pytest.raises(InvalidArgumentError, match=f"^here : Tensor had {found} values$"):
        bench.run(op, np.float32(value), T="float32", message="here")


def test_timestamp_is_a_float64(bench: KernelBench) -> None:
    assert type(bench.run("Timestamp")) is np.float64


def test_switch_takes_a_scalar_predicate() -> None:
    assert infer("Switch", [2, None], None, T="float32") == [[2, None]] * 2
    assert infer("_SwitchN", [2], [], T="float32", num_outs=3) == [[2]] * 3
    with pytest.raises(InvalidArgumentError, match="Shape must be rank 0 but is rank 1"):
        infer("Switch", None, [1], T="float32")


@pytest.mark.parametrize(
    ("shapes", "merged"),
    [
        ([[2, 3]], [2, 3]),
        ([[2, 3], [2, None], [2, 3]], [2, None]),
        ([[2, 3], [2, 4]], [2, None]),
        ([[2, 3], [2]], None),
        ([None, [2, 3]], None),
    ],
)
def test_merge_knows_only_what_all_inputs_agree_on(shapes: Any, merged: Any) -> None:
    assert infer("Merge", *shapes, T="float32", N=len(shapes)) == [merged, []]


def test_enter_knows_the_shape_of_a_constant_only() -> None:
    assert infer("Enter", [2], T="float32", frame_name="f") == [None]
    assert infer("Enter", [2], T="float32", frame_name="f", is_constant=True) == [[2]]
    assert infer("LoopCond", None) == [[]]


def test_ref_select_gives_a_shape_all_inputs_share() -> None:
    assert infer("RefSelect", [], [2], [2], T="float32", N=2) == [[2]]
    assert infer("RefSelect", [], [2], [3], T="float32", N=2) == [None]


def test_function_calls_take_declared_shapes() -> None:
    branch = {"cond": "c", "body": "b"}
    assert infer("While", [2], [], T=["int32", "int32"], **branch) == [[2], []]
    declared = infer("While", [2], [], T=["int32", "int32"], output_shapes=[[None], []], **branch)
    assert declared == [[None], []]
    branches = {"Tin": [], "Tout": ["int32"], "Tcond": "bool", "then_branch": "t", "else_branch": "e"}
    assert infer("If", [], **branches) == [None]
    with pytest.raises(InvalidArgumentError, match="same length as num outputs"):
        infer("If", [], output_shapes=[[], []], **branches)


def test_reference_passes_as_it_is(bench: KernelBench) -> None:
    variable = bench.run("VariableV2", shape=[2], dtype="float32")
    assert bench.run("RefIdentity", variable, T="float32") is variable
    assert infer("RefIdentity", [2], T="float32") == [[2]]
