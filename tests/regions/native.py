"""What the tests of native code have in common: a session where it is made at once, and one where it never is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FunctionType
from typing import Any

import pytest

import asyncexec as ax
from asyncexec.executor.plans import native_calls
from asyncexec.executor.plans.compiled_plan import CompiledPlan
from asyncexec.executor.plans.native_calls import COMPILER, NativeCounter, Pauses
from asyncexec.executor.plans.native_loops import NativeLoop
from asyncexec.regions import native_parts, source
from asyncexec.session import plan_compiler


@contextmanager
def native_at_once() -> Iterator[None]:
    """Whatever can be is native from its second call on, however small it is and however few rounds a loop has."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(native_parts, "MIN_NODES", 1)
        patch.setattr(native_parts, "CROSSING", 0)
        patch.setattr(native_calls, "HOT_WORK", 1)
        patch.setattr(source, "FIRST_WORK", 1)
        patch.setattr(COMPILER, "submit", compile_at_once)
        patch.setattr(Pauses, "__call__", lambda pauses, *event: None)
        patch.setattr(CompiledPlan, "note", lambda plan, elapsed_ns: None)  # to compile holds the loop
        yield


def compile_at_once(counter: NativeCounter) -> None:
    """Have the part of *counter* compiled without a thread."""
    COMPILER.compile(counter)


@contextmanager
def never_native() -> Iterator[None]:
    """Nothing becomes native, as where llvmlite is not installed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan_compiler, "has_llvmlite", lambda: False)
        yield


def hooks(plan: CompiledPlan) -> list[Callable[..., Any] | None]:
    """What the functions of *plan* call in place of parts that may be native."""
    return [value for name, value in plan.function.__globals__.items() if name[0] == "x" and name[1:].isdigit()]


def plan_of(session: ax.Session) -> CompiledPlan:
    """The plan of the only signature of *session*."""
    (prepared,) = session._cache.values()
    plan = prepared.tier.compiled
    assert isinstance(plan, CompiledPlan)
    return plan


def num_native(plan: CompiledPlan) -> int:
    """How many parts of *plan* are native."""
    return sum(isinstance(hook, (FunctionType, NativeLoop)) for hook in hooks(plan))
