"""Ops that check or show values: Assert, Print, CheckNumerics, Timestamp.

Rules from ``tensorflow/core/ops/logging_ops.cc``, ``array_ops.cc`` (CheckNumerics) and ``core/kernels/logging_ops.cc``.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any, Final

import numpy as np

from asyncexec.framework.errors import InvalidArgumentError, PermissionDeniedError
from asyncexec.framework.kernel import Kernel, OpKernelConstruction
from asyncexec.framework.kernel_registry import register_function, register_kernel
from asyncexec.framework.op_registry import register_op
from asyncexec.framework.shape_inference import InferenceContext, scalars, unchanged
from asyncexec.framework.tensor_shape import TensorShape
from asyncexec.ops.string.tensor_text import summarize_value

_logger: Final = logging.getLogger("asyncexec.print")


def _scalar_first(c: InferenceContext) -> Sequence[TensorShape]:
    c.scalar(0)
    return []


register_op(
    "Assert",
    "condition: bool, data: T ->",
    "T: list(type) >= 1; summarize: int = 3",
    shape=_scalar_first,
    is_stateful=True,
)
register_op(
    "Print",
    "input: T, data: U -> output: T",
    "T: type; U: list(type) >= 0; message: string = ''; first_n: int = -1; summarize: int = 3",
    shape=unchanged,
    is_stateful=True,
)
register_op(
    "PrintV2",
    "input: string ->",
    "output_stream: string = 'stderr'; end: string = '\n'",
    shape=_scalar_first,
    is_stateful=True,
)
for _op in ("CheckNumerics", "CheckNumericsV2"):
    register_op(
        _op,
        "tensor: T -> output: T",
        "T: {bfloat16, float16, float32, float64}; message: string",
        shape=unchanged,
        is_stateful=True,
    )
register_op("Timestamp", "-> ts: float64", shape=scalars, is_stateful=True)


@register_kernel("Assert")
def _assert(construction: OpKernelConstruction) -> Kernel:
    summarize = construction.attr("summarize")

    def check(condition: object, *data: object) -> tuple[()]:
        if isinstance(condition, np.ndarray):
            raise InvalidArgumentError(f"In[0] should be a scalar: {TensorShape(condition.shape)}")
        if not condition:
            shown = " ".join(f"[{summarize_value(value, summarize)}]" for value in data)
            raise InvalidArgumentError(f"assertion failed: {shown}")
        return ()

    return check


@register_kernel("Print")
def _print(construction: OpKernelConstruction) -> Kernel:
    message = construction.attr("message").decode("utf-8", "replace")
    summarize, first_n = construction.attr("summarize"), construction.attr("first_n")
    calls = count()

    def show(value: object, *data: object) -> object:
        if first_n < 0 or next(calls) < first_n:
            sys.stderr.write(message + "".join(f"[{summarize_value(item, summarize)}]" for item in data) + "\n")
        return value

    return show


@register_kernel("PrintV2")
def _print_v2(construction: OpKernelConstruction) -> Kernel:
    end = construction.attr("end").decode("utf-8", "replace")
    write = _stream(construction.attr("output_stream").decode("utf-8", "replace"))

    def show(text: Any) -> tuple[()]:
        if not isinstance(text, bytes):
            raise InvalidArgumentError(f"Input is expected to be scalar, but got {TensorShape(np.shape(text))}")
        write(text.decode("utf-8", "replace") + end)
        return ()

    return show


def _stream(name: str) -> Callable[[str], object]:
    """What writes to the output stream *name*; files are out of reach of a graph."""
    if name == "stderr":
        return lambda text: sys.stderr.write(text)
    if name == "stdout":
        return lambda text: sys.stdout.write(text)
    if name in _LOG_LEVELS:
        level = _LOG_LEVELS[name]
        return lambda text: _logger.log(level, "%s", text.rstrip("\n"))
    if name.startswith("file://"):
        raise PermissionDeniedError(f"PrintV2 may not write to {name!r}", hint="print to stderr, stdout or log(info)")
    raise InvalidArgumentError(f"Unknown output stream: {name}")


_LOG_LEVELS: Final = {"log(info)": logging.INFO, "log(warning)": logging.WARNING, "log(error)": logging.ERROR}


@register_kernel("CheckNumerics")
def _check_numerics(construction: OpKernelConstruction) -> Kernel:
    return _numerics_checker(construction, _unsigned_kinds)


@register_kernel("CheckNumericsV2")
def _check_numerics_v2(construction: OpKernelConstruction) -> Kernel:
    return _numerics_checker(construction, _signed_kinds)


def _numerics_checker(construction: OpKernelConstruction, kinds: Callable[[Any], list[str]]) -> Kernel:
    message = construction.attr("message").decode("utf-8", "replace")

    def check(value: Any) -> object:
        if np.isfinite(value).all():
            return value
        raise InvalidArgumentError(f"{message} : Tensor had {_listed(kinds(value))} values")

    return check


def _unsigned_kinds(value: Any) -> list[str]:
    found = {"Inf": np.isinf(value), "NaN": np.isnan(value)}
    return [name for name, where in found.items() if where.any()]


def _signed_kinds(value: Any) -> list[str]:
    infinite, negative = np.isinf(value), np.signbit(value)
    found = {"-Inf": infinite & negative, "+Inf": infinite & ~negative, "NaN": np.isnan(value)}
    return [name for name, where in found.items() if where.any()]


def _listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else ", ".join(names[:-1]) + " and " + names[-1]


def _timestamp() -> object:
    return np.float64(time.time())


register_function("Timestamp", function=_timestamp)
