"""Ops that debuggers insert: copies, identities and numeric summaries (``debug_ops.h``).

Publishing to ``debug_urls`` is not supported; the outputs of these ops can be fetched like any other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from asyncexec.framework import types
from asyncexec.framework.errors import InvalidArgumentError, UnimplementedError
from asyncexec.framework.kernel import Kernel, OpKernelConstruction, pass_on
from asyncexec.framework.kernel_registry import register_kernel
from asyncexec.framework.op_registry import register_op
from asyncexec.framework.shape_inference import InferenceContext, unchanged
from asyncexec.framework.tensor_shape import TensorShape
from asyncexec.framework.types import DType

_CPU: Final = -1.0  # the number of a device that is not a debugger's own
_SHOWN_DIMS: Final = 6
_CURT, _CONCISE, _FULL, _SHAPE, _THREE_SLOTS = 2, 3, 4, 5, 8
_LENGTHS: Final = {_CURT: 2, _CONCISE: 5, _FULL: 11, _SHAPE: 10, _THREE_SLOTS: 3}


def _check_urls(op: OpKernelConstruction) -> None:
    if op.attrs.get("debug_urls"):
        raise UnimplementedError(f"{op.op} cannot publish to debug_urls; fetch its output instead")


@register_kernel("Copy", "CopyHost", "DebugGradientIdentity", "DebugGradientRefIdentity", "DebugIdentityV2")
def make_identity(op: OpKernelConstruction) -> Kernel:
    """The kernel of ops that give what they get."""
    _check_urls(op)
    return pass_on


@register_kernel("DebugIdentity", "DebugIdentityV3")
def make_named_identity(op: OpKernelConstruction) -> Kernel:
    """The kernel of DebugIdentity and DebugIdentityV3."""
    _check_urls(op)
    if op.op == "DebugIdentity":
        _check_name(op)
    return _unless_gated(op, pass_on)


def _unless_gated(op: OpKernelConstruction, kernel: Kernel) -> Kernel:
    """*kernel*, or one that gives nothing: a gate that only a debugger opens is closed."""
    if not op.attr("gated_grpc"):
        return kernel
    nothing = np.empty(0, op.output_dtypes[0].as_numpy_dtype)
    return lambda _: nothing


def _check_name(op: OpKernelConstruction) -> None:
    name = op.attr("tensor_name")
    parts = name.split(b":")
    if len(parts) != 2 or not parts[1].isdigit():
        raise InvalidArgumentError(f'Failed to parse tensor name: "{name.decode("utf-8", "replace")}"')


def _finite_parts(value: object) -> tuple[Any, Any]:
    """The elements as float64, and which are NaN."""
    numbers = np.asarray(value).astype(np.float64).ravel()
    return numbers, np.isnan(numbers)


_NUMBERS: Final = frozenset({*types.REAL_NUMBER_DTYPES, types.bool})


@register_kernel("DebugNanCount", dtypes={"T": types.REAL_NUMBER_DTYPES})
def make_nan_count(op: OpKernelConstruction) -> Kernel:
    """The kernel of DebugNanCount."""
    _check_urls(op)
    _check_name(op)
    return _unless_gated(op, lambda value: np.array([_finite_parts(value)[1].sum()], np.int64))


@register_kernel("DebugNumericSummary", dtypes={"T": _NUMBERS - {types.float16, types.bfloat16}})
def make_numeric_summary(op: OpKernelConstruction) -> Kernel:
    """The kernel of DebugNumericSummary: counts, extremes and moments, then dtype, rank and shape."""
    _check_urls(op)
    _check_name(op)
    low, high, dtype = op.attr("lower_bound"), op.attr("upper_bound"), op.attr("T")

    def kernel(value: Any) -> object:
        numbers, is_nan = _finite_parts(value)
        is_low, is_high = ~is_nan & (numbers <= low), ~is_nan & (numbers >= high)
        inside = numbers[~is_nan & ~is_low & ~is_high]
        counts = [
            is_nan.sum(),
            is_low.sum(),
            (inside < 0).sum(),
            (inside == 0).sum(),
            (inside > 0).sum(),
            is_high.sum(),
        ]
        finite = numbers[np.isfinite(numbers)]
        extremes = [finite.min(initial=np.inf), finite.max(initial=-np.inf)]
        moments = [finite.mean(), finite.var()] if finite.size else [np.nan, np.nan]
        about = [dtype.base_dtype.enum, np.ndim(value), *np.shape(value)]
        return np.array([1, numbers.size, *counts, *extremes, *moments, *about], np.float64)

    return _unless_gated(op, kernel)


def _curt(identity: int, value: object, _: DType) -> list[float]:
    return [identity, float(not np.isfinite(np.asarray(value).astype(np.float64)).all())]


def _concise(identity: int, value: object, _: DType) -> list[float]:
    numbers, is_nan = _finite_parts(value)
    return [identity, numbers.size, (numbers == -np.inf).sum(), (numbers == np.inf).sum(), is_nan.sum()]


def _full(identity: int, value: Any, dtype: DType) -> list[float]:
    numbers, _ = _finite_parts(value)
    finite = numbers[np.isfinite(numbers)]
    health = _concise(identity, value, dtype)[1:]
    return [
        *(identity, _CPU, dtype.base_dtype.enum, np.ndim(value), *health),
        *((finite < 0).sum(), (finite == 0).sum(), (finite > 0).sum()),
    ]


def _shape(identity: int, value: Any, dtype: DType) -> list[float]:
    dims = np.shape(value)
    shown = [*dims[-_SHOWN_DIMS:], *[0] * _SHOWN_DIMS][:_SHOWN_DIMS]
    return [identity, dtype.base_dtype.enum, len(dims), np.size(value), *shown]


def _three_slots(identity: int, value: object, dtype: DType) -> list[float]:
    _, _, below, above, nans = _concise(identity, value, dtype)
    return [-np.inf if below else 0.0, np.inf if above else 0.0, np.nan if nans else 0.0]


_MODES: Final[dict[int, Callable[[int, Any, DType], list[float]]]] = {
    _CURT: _curt,
    _CONCISE: _concise,
    _FULL: _full,
    _SHAPE: _shape,
    _THREE_SLOTS: _three_slots,
}


@register_kernel("DebugNumericSummaryV2", dtypes={"T": _NUMBERS})
def make_numeric_summary_v2(op: OpKernelConstruction) -> Kernel:
    """The kernel of DebugNumericSummaryV2."""
    mode, identity, dtype, out = (
        op.attr("tensor_debug_mode"),
        op.attr("tensor_id"),
        op.attr("T"),
        op.np_dtype("output_dtype"),
    )
    if mode not in _MODES:
        raise UnimplementedError(f"Unimplemented tensor debug mode: {mode}")
    if identity > 2 ** (np.finfo(out).nmant + 1):
        raise InvalidArgumentError(f"tensor_id {identity} cannot be told exactly by {out.name}")
    summary = _MODES[mode]
    return lambda value: np.array(summary(identity, value, dtype), out)


def summary_shape(c: InferenceContext) -> Sequence[TensorShape]:
    """As long as the mode tells."""
    return [TensorShape([_LENGTHS.get(c.attr("tensor_debug_mode"))])]


def gated_shape(c: InferenceContext) -> Sequence[TensorShape]:
    """That of the input, or nothing."""
    return [TensorShape([0])] if c.attr("gated_grpc") else unchanged(c)


def vector_shape(c: InferenceContext) -> Sequence[TensorShape]:
    """14 numbers and the shape; or one count; or nothing."""
    if c.attr("gated_grpc"):
        return [TensorShape([0])]
    if c.op_def.name == "DebugNanCount":
        return [TensorShape([1])]
    rank = c.input(0).rank
    return [TensorShape([None if rank is None else 14 + rank])]


_URLS: Final = "debug_urls: list(string) = []; gated_grpc: bool = False"
_NAMES: Final = "device_name: string = ''; tensor_name: string = ''"
_WITHOUT_VALUE: Final = {"allows_uninitialized_input": True}
for _name in ("Copy", "CopyHost"):
    register_op(
        _name,
        "input: T -> output: T",
        "T: type; tensor_name: string = ''; debug_ops_spec: list(string) = []",
        shape=unchanged,
        **_WITHOUT_VALUE,
    )
register_op("DebugGradientIdentity", "input: T -> output: T", "T: type", shape=unchanged, **_WITHOUT_VALUE)
register_op("DebugGradientRefIdentity", "input: Ref(T) -> output: Ref(T)", "T: type", shape=unchanged, **_WITHOUT_VALUE)
register_op(
    "DebugIdentity",
    "input: T -> output: T",
    f"T: type; {_NAMES}; {_URLS}",
    touches_outside=True,
    shape=gated_shape,
    **_WITHOUT_VALUE,
)
register_op(
    "DebugIdentityV2",
    "input: T -> output: T",
    "T: type; tfdbg_context_id: string = ''; op_name: string = ''; output_slot: int = -1; "
    "tensor_debug_mode: int = -1; debug_urls: list(string) = []; circular_buffer_size: int = 1000; "
    "tfdbg_run_id: string = ''",
    is_stateful=True,
    touches_outside=True,
    shape=unchanged,
)
register_op(
    "DebugIdentityV3",
    "input: T -> output: T",
    "T: type; device_name: string = ''; tensor_name: string = ''; io_of_node: string = ''; is_input: bool = False; "
    f"io_index: int = -1; {_URLS}",
    is_stateful=True,
    touches_outside=True,
    shape=gated_shape,
    **_WITHOUT_VALUE,
)
register_op(
    "DebugNanCount",
    "input: T -> output: int64",
    f"T: type; {_NAMES}; {_URLS}",
    touches_outside=True,
    shape=vector_shape,
    **_WITHOUT_VALUE,
)
register_op(
    "DebugNumericSummary",
    "input: T -> output: float64",
    f"T: type; {_NAMES}; debug_urls: list(string) = []; lower_bound: float = -inf; upper_bound: float = inf; "
    "mute_if_healthy: bool = False; gated_grpc: bool = False",
    touches_outside=True,
    shape=vector_shape,
    **_WITHOUT_VALUE,
)
register_op(
    "DebugNumericSummaryV2",
    "input: T -> output: output_dtype",
    "output_dtype: {float32, float64} = float32; T: type; tensor_debug_mode: int = -1; tensor_id: int = -1",
    shape=summary_shape,
)
