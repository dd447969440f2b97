"""Calls of functions that are not inlined: each runs as a step of its own, on a call frame.

Rules from ``tensorflow/core/kernels/function_ops.cc``.  A call within a call is a task that awaits a task, and no
Python call within another: so recursion may be as deep as MAX_DEPTH, whatever Python's own limit is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import groupby
from typing import Any, Final

from asyncexec.durable.journal_scope import nested_step
from asyncexec.framework.call_frame import CallFrame, current_call
from asyncexec.framework.errors import CancelledError, InternalError, OpError, ResourceExhaustedError
from asyncexec.framework.kernel import Kernel, KernelKind, OpKernelConstruction
from asyncexec.framework.kernel_registry import KernelRegistration, register_kernel
from asyncexec.framework.op_def import parse_op_def
from asyncexec.framework.op_registry import OpRegistration, register_op
from asyncexec.framework.shape_inference import no_outputs, unknown
from asyncexec.framework.step_stats import current_trace

MAX_DEPTH: Final = 5_000
MAX_UNDER_WAY: Final = 10_000  # calls within one: recursion that branches has many more than it is deep
_BREATH: Final = 16  # calls in one another after which the event loop has a turn: it may run tasks as they are made
_SHOWN: Final = 8  # calls on the way to an error
_CALLED: Final = "called by way of "


_CALL: Final = "Tin: list(type) >= 0; Tout: list(type) >= 0; f: func; device: string = ''"

register_op("_PartitionedCall", "args: Tin -> output: Tout", _CALL)
register_op("_StatefulPartitionedCall", "args: Tin -> output: Tout", _CALL, is_stateful=True)


def _arg(construction: OpKernelConstruction) -> Kernel:
    index = construction.attr("index")
    return lambda: _frame().arg(index)


def _retval(construction: OpKernelConstruction) -> Kernel:
    index = construction.attr("index")

    def set_retval(value: object) -> tuple[()]:
        _frame().set_retval(index, value)
        return ()

    return set_retval


def _frame() -> CallFrame:
    frame = current_call.get()
    if frame is None:
        raise InternalError("there is no call to take arguments from")
    return frame


# Not in the registry, where ops of the same names are those of a user's graph: these reach into the call.
ARG: Final = OpRegistration(
    parse_op_def("_Arg", "-> output: T", "T: type; index: int >= 0", is_stateful=True),
    unknown,
    KernelRegistration(_arg, is_expensive=False),
)
RETVAL: Final = OpRegistration(
    parse_op_def("_Retval", "input: T ->", "T: type; index: int >= 0", is_stateful=True),
    no_outputs,
    KernelRegistration(_retval, is_expensive=False),
)


@register_kernel("_PartitionedCall", "_StatefulPartitionedCall", kind=KernelKind.ASYNC)
def _call(construction: OpKernelConstruction) -> Kernel:
    runtime = construction.resource_mgr.functions
    if runtime is None:
        raise InternalError("there is no session to run the function in")
    function, node = construction.attr("f"), construction.name
    takes, gives = construction.attr("Tin"), construction.attr("Tout")
    called = runtime.called(function, construction.attr("device").decode(), construction.device)

    async def call(*inputs: object) -> Sequence[Any]:
        frame = CallFrame(function.name, node, gives, current_call.get())
        frame.set_args(inputs, takes)
        if frame.depth > MAX_DEPTH:
            raise ResourceExhaustedError(
                f"function {function.name!r} is called more than {MAX_DEPTH} calls deep",
                hint="let the recursion end sooner, or write it as a loop",
            )
        outermost = frame.outermost
        if outermost.num_under_way >= MAX_UNDER_WAY:
            raise ResourceExhaustedError(
                f"function {outermost.function!r} has {MAX_UNDER_WAY} calls under way at once",
                hint="let each call make fewer others, or write the recursion as a loop",
            )
        outermost.num_under_way += 1
        try:
            if not frame.depth % _BREATH:
                await asyncio.sleep(0)
            await runtime.turns.enter(outermost)
            if _is_in_vain(frame):
                raise CancelledError(f"a call around that of function {function.name!r} has ended")
            return await called.run(frame, current_trace(), nested_step("function"))
        except OpError as error:
            _tell_way(error, frame)
            raise
        finally:
            outermost.num_under_way -= 1

    return call


def _is_in_vain(frame: CallFrame) -> bool:
    """Whether a call around *frame* is ending.

    They end from the outside in, one in each turn of the event loop, while recursion goes as many deeper.  So the
    innermost has to see for itself.  To look at all takes long: it is done again when there are an eighth more.
    """
    if frame.outermost.is_ending:
        return True
    stride = max(_BREATH, 1 << max(0, frame.depth.bit_length() - 4))
    return not frame.depth % stride and any(each.is_ending for each in frame.way())


def _tell_way(error: OpError, frame: CallFrame) -> None:
    """Let *error*, of a node in the call *frame*, tell the calls that have led to it, unless it does."""
    if any(note.startswith(_CALLED) for note in getattr(error, "__notes__", ())):
        return
    way = [f"{each.node!r} ({each.function})" for each in frame.way()][::-1]
    calls = [text if count == 1 else f"{text} {count} times" for text, count in _counted(way)]
    shown = calls if len(calls) <= _SHOWN else [*calls[: _SHOWN // 2], "...", *calls[-_SHOWN // 2 :]]
    error.add_note(f"{_CALLED}{' -> '.join(shown)}, {frame.depth} deep")


def _counted(texts: Sequence[str]) -> list[tuple[str, int]]:
    return [(text, len(list(same))) for text, same in groupby(texts)]
