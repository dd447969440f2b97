"""Call frames: what TensorFlow's FunctionCallFrame checks, and who knows whom."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import asyncexec as ax
from asyncexec.framework.call_frame import CallFrame
from asyncexec.framework.errors import InternalError, InvalidArgumentError

F, I, S = ax.float32, ax.int32, ax.string  # noqa: E741
ONE = np.float32(1)


def frame(*args: Any, takes: Any = (F, S), gives: Any = (F, I)) -> CallFrame:
    made = CallFrame("Fn", "node", gives)
    made.set_args(args or (ONE, b"text"), takes)
    return made


def test_arguments_and_results() -> None:
    call = frame()
    assert (call.arg(0), call.arg(1)) == (1.0, b"text")
    call.set_retval(1, np.int32(5))
    call.set_retval(0, ONE)
    assert call.take_retvals() == [1.0, 5]


def test_any_value_is_an_object() -> None:
    call = frame(("a", 1), takes=(ax.object,), gives=(ax.object,))
    call.set_retval(0, call.arg(0))
    assert call.take_retvals() == [("a", 1)]


WRONG: dict[str, tuple[Callable[[], object], type[Exception], str]] = {
    "too few arguments": (lambda: frame(ONE), InvalidArgumentError, "Expects 2 arguments, but 1 is provided"),
    "argument of another dtype": (
        lambda: frame(np.int32(1), b""),
        InvalidArgumentError,
        r"Expects arg\[0\] to be float32 but int32 is provided",
    ),
    "no such argument": (lambda: frame().arg(2), InvalidArgumentError, r"GetArg 2 is not within \[0, 2\)"),
    "no such result": (
        lambda: frame().set_retval(2, ONE),
        InvalidArgumentError,
        r"SetRetval 2 is not within \[0, 2\)",
    ),
    "result of another dtype": (
        lambda: frame().set_retval(1, ONE),
        InvalidArgumentError,
        r"Expects ret\[1\] to be int32, but float32 is provided",
    ),
    "result that is no array": (lambda: frame().set_retval(1, 5), InvalidArgumentError, "but int is provided"),
    "result that is not set": (
        lambda: frame().take_retvals(),
        InvalidArgumentError,
        r"Retval\[0\] does not have value",
    ),
}


@pytest.mark.parametrize(("do", "error", "said"), WRONG.values(), ids=WRONG)
def test_what_does_not_fit(do: Callable[[], object], error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        do()


def test_a_result_is_set_once() -> None:
    call = frame()
    call.set_retval(0, ONE)
    with pytest.raises(InternalError, match=r"Retval\[0\] has already been set"):
        call.set_retval(0, ONE)


def test_a_frame_that_is_released_holds_nothing() -> None:
    call = frame()
    call.release()
    with pytest.raises(InvalidArgumentError, match=r"GetArg 0 is not within \[0, 0\)"):
        call.arg(0)


def test_frames_within_frames() -> None:
    outer = CallFrame("Outer", "c", ())
    middle = CallFrame("Middle", "d", (), outer)
    inner = CallFrame("Inner", "e", (), middle)
    assert [each.function for each in inner.way()] == ["Inner", "Middle", "Outer"]
    assert (outer.depth, inner.depth) == (1, 3)
    assert inner.outermost is outer.outermost is outer


def test_a_call_is_ending_when_its_step_has_failed() -> None:
    class Failing:
        has_failed = False

    call, step = frame(), Failing()
    assert not call.is_ending
    call.step = step
    assert not call.is_ending
    step.has_failed = True
    assert call.is_ending
