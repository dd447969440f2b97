"""The cases of TensorFlow's control_flow_ops_test.cc: what Switch, Enter, Exit and Abort do with a value.

``CASES`` tells for each case which test has its meaning.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pytest

import asyncexec as ax
from tests.case_table import missing_tests
from tests.graph.testing_ops import load

_ABORT: Final = "tests.ops.test_structure:test_abort_never_ends_the_process"
CASES: Final[dict[str, str]] = {
    "SwitchOpTest.Int32Success_6_s0": "test_a_switch_gives_its_input_on_one_side_and_nothing_on_the_other",
    "SwitchOpTest.Int32Success_6_s1": "test_a_switch_gives_its_input_on_one_side_and_nothing_on_the_other",
    "SwitchOpTest.Int32Success_2_3_s0": "test_a_switch_gives_its_input_on_one_side_and_nothing_on_the_other",
    "SwitchOpTest.StringSuccess_s1": "test_a_switch_gives_its_input_on_one_side_and_nothing_on_the_other",
    "AbortOpTest.pass_error_msg": "test_abort_ends_the_run_with_its_message",
    "AbortOpTest.default_msg": "test_abort_ends_the_run_with_its_message",
    "AbortOpTest.exit_normally": _ABORT,
    "MergeOpTest.TypeInference": "TensorFlow skips this case itself; full types of variants are not known here",
    "EnterOpTest.QUInt8_Success": "test_a_value_passes_into_a_frame_and_out_of_it_as_it_is",
    "EnterOpTest.String_Success": "test_a_value_passes_into_a_frame_and_out_of_it_as_it_is",
    "ExitOpTest.QUInt8_Success": "test_a_value_passes_into_a_frame_and_out_of_it_as_it_is",
    "ExitOpTest.String_Success": "test_a_value_passes_into_a_frame_and_out_of_it_as_it_is",
}

NUMBERS = np.arange(1, 7, dtype=np.int32)
LETTERS = np.array([b"A", b"b", b"C", b"d", b"E", b"f"], object)


def test_every_case_has_its_test() -> None:
    assert missing_tests(CASES, __name__) == []


@pytest.mark.parametrize("taken", [0, 1])
@pytest.mark.parametrize(
    ("dtype", "value"),
    [("int32", NUMBERS), ("int32", NUMBERS.reshape(2, 3)), ("string", LETTERS), ("string", LETTERS.reshape(3, 2))],
    ids=["int32_6", "int32_2_3", "string_6", "string_3_2"],
)
async def test_a_switch_gives_its_input_on_one_side_and_nothing_on_the_other(
    dtype: str, value: Any, taken: int
) -> None:
    feeds = {"x:0": value, "p:0": bool(taken)}
    async with ax.Session(load(f"x: Placeholder[{dtype}]\np: Placeholder[bool, []]\ns: Switch(x, p)")) as session:
        got = await session.run(f"s:{taken}", feeds)
        assert got.dtype == value.dtype
        np.testing.assert_array_equal(got, value)
        with pytest.raises(ax.errors.InvalidArgumentError, match="does not have a value") as caught:
            await session.run(f"s:{1 - taken}", feeds)
        assert caught.value.node == "s"


@pytest.mark.parametrize("message", ["stop here", ""])
async def test_abort_ends_the_run_with_its_message(message: str) -> None:
    """TensorFlow ends its process with it; here the step ends, and the session goes on."""
    async with ax.Session(load(f"x: Const[1.0]\nend: Abort[error_msg={message!r}]\ny: Neg(x, ^end)")) as session:
        with pytest.raises(ax.errors.AbortedError, match=message or "Abort") as caught:
            await session.run("y:0")
        assert (caught.value.node, caught.value.op) == ("end", "Abort")
        assert await session.run("x:0") == 1.0


@pytest.mark.parametrize("is_constant", ["false", "true"])
@pytest.mark.parametrize(
    ("dtype", "value"),
    [("uint8", np.arange(1, 7, dtype=np.uint8).reshape(2, 3)), ("string", LETTERS)],
    ids=["uint8", "string"],
)
async def test_a_value_passes_into_a_frame_and_out_of_it_as_it_is(dtype: str, value: Any, is_constant: str) -> None:
    """(TensorFlow's quint8 is a uint8 to whoever only passes it on.)"""
    graph = load(f"x: Placeholder[{dtype}]\ne: Enter[frame_name='w', is_constant={is_constant}](x)\ny: Exit(e)")
    async with ax.Session(graph) as session:
        got = await session.run("y:0", {"x:0": value})
        assert got.dtype == value.dtype
        np.testing.assert_array_equal(got, value)
