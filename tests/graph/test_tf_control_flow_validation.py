"""The cases of TensorFlow's control_flow_test.cc (ValidateControlFlowTest): frames that cannot be.

``CASES`` tells for each case which test has its meaning.  TensorFlow finds these mistakes when a graph first runs;
here it is refused when it is imported.
"""

from __future__ import annotations

from typing import Final

import pytest

from asyncexec.framework.errors import InvalidArgumentError
from tests.case_table import missing_tests
from tests.graph.testing_ops import load

CASES: Final[dict[str, str]] = {
    "InputsFromDifferentFrames": "test_a_loop_in_a_loop_whose_merge_takes_from_both",
    "MismatchedParentFrames": "test_a_frame_that_is_entered_from_itself",
    "TwoLoopCond": "test_two_loops_with_the_name_of_one",
}


def loop(name: str, value: str, prefix: str = "", *, back: str | None = None) -> str:
    """``while value < 10: value += 1`` in frame *name*."""
    p = prefix
    return f"""
        {p}enter: Enter[frame_name='{name}']({value})
        {p}merge: Merge({p}enter, {back or p + "next"})
        {p}ten: Const[10](^{p}merge)
        {p}less: Less({p}merge, {p}ten)
        {p}cond: LoopCond({p}less)
        {p}switch: Switch({p}merge, {p}cond)
        {p}one: Const[1](^{p}in_body)
        {p}in_body: Identity({p}switch:1)
        {p}add: AddV2({p}in_body, {p}one)
        {p}next: NextIteration({p}add)
        {p}exit: Exit({p}switch)
    """


def test_every_case_has_its_test() -> None:
    assert missing_tests(CASES, __name__) == []


def test_the_loop_itself_is_right() -> None:
    assert load("x: Placeholder[int32, []]" + loop("w", "x")).operation("exit").op == "Exit"


def test_a_loop_in_a_loop_whose_merge_takes_from_both() -> None:
    text = "x: Placeholder[int32, []]" + loop("outer", "x") + loop("inner", "in_body", "inner_", back="switch")
    with pytest.raises(InvalidArgumentError, match="has inputs from different frames") as caught:
        load(text)
    assert caught.value.node == "inner_merge"
    for part in ("{{node inner_merge}}", "{{node inner_enter}}", "{{node switch}}", "'inner'", "'outer'"):
        assert part in caught.value.message


def test_a_frame_that_is_entered_from_itself() -> None:
    with pytest.raises(InvalidArgumentError, match="mismatched parent frames") as caught:
        load("x: Placeholder[int32, []]" + loop("w", "x") + "enter2: Enter[frame_name='w'](enter, ^enter)")
    assert caught.value.node == "enter2"
    assert "frame 'w' is entered from two parent frames, '' and 'w'" in caught.value.message


def test_two_loops_with_the_name_of_one() -> None:
    with pytest.raises(InvalidArgumentError, match="two LoopConds") as caught:
        load("x: Placeholder[int32, []]" + loop("w", "x") + loop("w", "x", "sub_"))
    assert caught.value.node in ("cond", "sub_cond")
    assert "'cond'" in caught.value.message
    assert "'sub_cond'" in caught.value.message
