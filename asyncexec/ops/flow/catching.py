"""Catch: a function of the graph, and another that runs with the error where it fails.  No op of TensorFlow's.

Each runs as a step of its own, which ends before the other begins.  A cancellation is no failure.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from contextvars import ContextVar
from typing import Any, Final

from asyncexec.durable.journal_scope import nested_step
from asyncexec.framework import types
from asyncexec.framework.errors import CancelledError, InternalError, OpError, ResourceExhaustedError
from asyncexec.framework.function_runtime import FunctionCall, FunctionHandle
from asyncexec.framework.kernel import Kernel, KernelKind, OpKernelConstruction, pass_on
from asyncexec.framework.kernel_registry import KernelRegistration, register_function, register_kernel
from asyncexec.framework.op_def import parse_op_def
from asyncexec.framework.op_registry import OpRegistration, register_op
from asyncexec.framework.shape_inference import scalars, unknown
from asyncexec.framework.step_stats import current_trace

MAX_DEPTH: Final = 64  # of one in the function of another, as one that calls itself would be without end
_depth: ContextVar[int] = ContextVar("asyncexec_catch_depth", default=0)

register_op(
    "Catch",
    "args: Tin, handler_args: Thandler -> output: Tout",
    "f: func; handler: func; Tin: list(type) >= 0; Thandler: list(type) >= 0; Tout: list(type) >= 1",
    is_stateful=True,  # so that no two nodes are taken for one
)
register_op("AsObject", "x: T -> output: object", "T: type", shape=scalars)
register_function("AsObject", function=pass_on)

# Not in the registry: it stands before each function, in its step, and gives the error, or nothing.
_GIVE: Final = OpRegistration(
    parse_op_def("_GiveError", "error: object -> given: Tin", "Tin: list(type) >= 0"),
    unknown,
    KernelRegistration(lambda _: pass_on),
)


@register_kernel("Catch", kind=KernelKind.ASYNC)
def _catch(construction: OpKernelConstruction) -> Kernel:
    runtime = construction.resource_mgr.functions
    if runtime is None:
        raise InternalError("there is no session to run the functions in")
    num_args = len(construction.attr("Tin"))
    body = runtime.instantiate(_call(construction, "f", (), "Tin"))
    handler = runtime.instantiate(_call(construction, "handler", (types.object,), "Thandler"))

    async def run(*inputs: object) -> Sequence[Any]:
        depth = _depth.get()
        if depth >= MAX_DEPTH:
            raise ResourceExhaustedError(f"more than {MAX_DEPTH} calls of Catch in one another")
        token = _depth.set(depth + 1)
        try:
            return await _caught(body, handler, inputs[:num_args], inputs[num_args:])
        finally:
            with suppress(ValueError):  # closed from another context
                _depth.reset(token)

    return run


def _call(
    construction: OpKernelConstruction, function: str, given: tuple[types.DType, ...], others: str
) -> FunctionCall:
    return FunctionCall(
        construction.name,
        construction.attr(function),
        construction.device,
        construction.attr("Tout"),
        _GIVE,
        given,
        construction.attr(others),
    )


async def _caught(
    body: FunctionHandle, handler: FunctionHandle, args: Sequence[object], handler_args: Sequence[object]
) -> Sequence[object]:
    trace = current_trace()
    traces = () if trace is None else (trace,)
    await body.compile()  # whose errors are no failures of the function
    try:
        return await body.run((), args, traces, nested_step("function"))
    except CancelledError:
        raise
    except OpError as error:
        caught = error.with_traceback(None)  # whose frames would hold what the function was given
    try:
        return await handler.run((caught,), handler_args, traces, nested_step("handler"))
    except OpError as error:
        if error.message != caught.message:  # else the handler has raised it again
            error.add_note(f"while this was handled: {caught}")
        raise
    finally:
        del caught  # whose traceback, if it is raised again, holds this frame
