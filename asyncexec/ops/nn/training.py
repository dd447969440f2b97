"""Updates of variables by gradients: the ops Apply*, ResourceApply*, SparseApply* and ResourceSparseApply*.

Rules from ``tensorflow/core/ops/training_ops.cc`` and ``core/kernels/training_ops.cc``.  An op comes on references (the
first of which it returns) and on resource handles, and for gradients of all of a variable or of some of its rows.  An
op has all its variables to itself, as in TensorFlow with ``use_locking``.  What is given is checked before anything
changes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Final

import numpy as np

from asyncexec.framework import types
from asyncexec.framework.arrays import Array
from asyncexec.framework.errors import InternalError, InvalidArgumentError
from asyncexec.framework.kernel import Kernel, OpKernelConstruction
from asyncexec.framework.kernel_registry import register_kernel
from asyncexec.framework.op_registry import register_op
from asyncexec.framework.shape_inference import InferenceContext
from asyncexec.framework.tensor_shape import TensorShape
from asyncexec.framework.types import DType
from asyncexec.ops.nn import training_rules as rules
from asyncexec.ops.nn.training_tiles import TiledRule
from asyncexec.ops.state.variable_state import Variable, locked, updating
from asyncexec.process.subnormals import flushed_subnormals

_WIDE: Final = frozenset({types.float32, types.float64})
_HALF: Final = _WIDE | {types.float16}
_FLOATS: Final = _HALF | {types.bfloat16}
_NUMBERS: Final = _FLOATS | {types.complex64, types.complex128}
_PLAIN_NUMBERS: Final = _NUMBERS - {types.bfloat16}
_NESTEROV: Final = "use_nesterov"
_SLOTS: Final = "update_slots"
_LINEAR: Final = "multiply_linear_by_lr"


@dataclass(frozen=True, slots=True)
class _Optimizer:
    """One rule, and what its ops are given: variables, then scalars and the gradient."""

    rule: rules.Rule
    variables: tuple[str, ...]
    inputs: tuple[str, ...]
    tensor: str  # which of the inputs is the gradient
    flag: str  # the attr that changes the rule, if any
    ranges: dict[str, str]  # what a scalar has to be, where TensorFlow asks for it
    scalars: tuple[tuple[str, str], ...] = ()  # the others of the inputs, with that

    def __post_init__(self) -> None:
        names = [name for name in self.inputs if name != self.tensor]
        object.__setattr__(self, "scalars", tuple((name, self.ranges.get(name, "")) for name in names))

    def flags(self, value: bool) -> dict[str, bool]:
        """The attr that changes the rule, with its *value*."""
        return {self.flag: value} if self.flag else {}

    @property
    def attrs(self) -> str:
        default = {_NESTEROV: False, _SLOTS: True, _LINEAR: False}
        flag = f"; {self.flag}: bool = {default[self.flag]}" if self.flag else ""
        return f"T: numbertype; use_locking: bool = False{flag}"


_RANGES: Final[dict[str, Callable[[Any], bool]]] = {
    "positive": lambda value: bool(value > 0),
    "non-negative": lambda value: bool(value >= 0),
    "non-positive": lambda value: bool(value <= 0),
}


_LONG_NAMES: Final = {
    "l1": "l1 regularization strength",
    "l2": "l2 regularization strength",
    "l2_shrinkage": "l2 shrinkage regularization strength",
}


def _check(values: Sequence[object], optimizer: _Optimizer, given: Mapping[str, object]) -> None:
    for name, wanted in optimizer.scalars:
        value = given[name]
        if wanted or _shape_of(value):
            _check_scalar(name, value, "non-negative" if wanted == "positive" and given.get(_LINEAR) else wanted)
    shape = _shape_of(values[0])
    for name, value in zip(optimizer.variables, values, strict=True):
        if getattr(value, "shape", ()) != shape:
            _check_same("var", shape, name, _shape_of(value))


def _check_scalar(name: str, value: object, wanted: str) -> None:
    """InvalidArgumentError unless *value* is a scalar, within the range that *wanted* names."""
    if _shape_of(value):
        what = f"{_LONG_NAMES.get(name, name)} is not a {wanted}" if wanted else f"{name} is not a"
        raise InvalidArgumentError(f"{what} scalar: {TensorShape(_shape_of(value))}")
    if wanted and not _RANGES[wanted](value):
        raise InvalidArgumentError(f"{_LONG_NAMES.get(name, name)} is not a {wanted} scalar: {value}")


def _shape_of(value: object) -> tuple[int, ...]:
    """``np.shape(value)``, in a fifth of the time; a Python number has none."""
    shape: tuple[int, ...] = getattr(value, "shape", ())
    return shape


def _check_same(name: str, shape: tuple[int, ...], other_name: str, other: tuple[int, ...]) -> None:
    if other != shape:
        raise InvalidArgumentError(
            f"{name} and {other_name} do not have the same shape{TensorShape(shape)} {TensorShape(other)}"
        )


def _check_rows(var: Any, grad: Any, indices: Any) -> None:
    """InvalidArgumentError unless *grad* has one row of *var* for each of *indices*, which are within *var*."""
    shape, grad_shape = np.shape(var), np.shape(grad)
    if not shape:
        raise InvalidArgumentError("var must be at least 1 dimensional")
    if np.ndim(indices) != 1:
        raise InvalidArgumentError("indices must be one-dimensional")
    if math.prod(shape[1:]) <= 0:
        raise InvalidArgumentError("Inner dimension should be greater than zero.")
    if not grad_shape or grad_shape[0] != len(indices):
        raise InvalidArgumentError("grad must be the same size as indices in the first dimension.")
    if grad_shape[1:] != shape[1:]:
        raise InvalidArgumentError(
            f"var and grad must match in all dimensions but the first: {TensorShape(shape)} {TensorShape(grad_shape)}"
        )
    bad = (indices < 0) | (indices >= shape[0])
    if bad.any():
        at = int(bad.argmax())
        raise InvalidArgumentError(f"Index {indices[at]} at offset {at} in indices is out of range")


def _turns(indices: Array) -> Iterator[object]:
    """Places of *indices* in groups without repeats; a repeat comes in a later group than what it repeats."""
    order = np.argsort(indices, kind="stable")
    ordered = indices[order]
    starts = np.flatnonzero(np.concatenate(([True], ordered[1:] != ordered[:-1])))
    turn = np.arange(len(order)) - np.repeat(starts, np.diff(np.append(starts, len(order))))
    for number in range(int(np.max(turn)) + 1):
        yield order[turn == number]


def _update_rows(
    optimizer: _Optimizer, values: Sequence[object], given: Mapping[str, Any], indices: Any
) -> list[Array]:
    """Copies of *values*, updated one gradient after the other."""
    updated = [np.array(value, order="C") for value in values]
    if not len(indices):
        return updated
    for places in _turns(indices):
        rows, part = indices[places], dict(given)
        part["grad"] = given["grad"][places]
        new = optimizer.rule([value[rows] for value in updated], part)
        for value, new_rows in zip(updated, new, strict=True):
            value[rows] = new_rows
    return updated


def _refuse(variable: Variable, is_resource: bool) -> None:
    """The error of a *variable* without a value."""
    if is_resource:
        raise InternalError(f"Invalid variable reference: {variable.name} has no value")
    variable.read()


def _shape_function(optimizer: _Optimizer, *, is_sparse: bool) -> Callable[[InferenceContext], Sequence[TensorShape]]:
    def infer(c: InferenceContext) -> Sequence[TensorShape]:
        grad = c.arg(optimizer.tensor)[0]
        shape = TensorShape(None) if is_sparse else grad
        for index, arg in enumerate(c.op_def.inputs):
            if arg.name == "indices":
                count = c.vector(index)
                if grad.rank is not None:
                    grad.with_rank_at_least(1)[:1].merge_with(count)
            elif index >= len(optimizer.variables) and arg.name != optimizer.tensor:
                c.scalar(index)
            elif arg.is_ref:
                shape = shape.merge_with(c.input(index))
        if is_sparse and shape.rank is not None and grad.rank is not None:
            shape.with_rank_at_least(1)[1:].merge_with(grad[1:])
        return [shape] * c.num_outputs

    return infer


def _declare(op: str, optimizer: _Optimizer, kind: str, *, is_sparse: bool) -> None:
    """Declare *op*, whose variables are of *kind*, ``Ref(T)`` or ``resource``."""
    arguments = [f"{name}: {kind}" for name in optimizer.variables]
    for name in optimizer.inputs:
        arguments.append(f"{name}: {'int64' if name == 'global_step' else 'T'}")
        if is_sparse and name == optimizer.tensor:
            arguments.append("indices: Tindices")
    output = "-> out: Ref(T)" if kind != "resource" else "->"
    attrs = optimizer.attrs.replace("; use", "; Tindices: {int32, int64}; use", 1) if is_sparse else optimizer.attrs
    shape = _shape_function(optimizer, is_sparse=is_sparse)
    register_op(op, f"{', '.join(arguments)} {output}", attrs, shape=shape, is_stateful=kind == "resource")


def _register_kernels(ops: Sequence[str], optimizer: _Optimizer, dtypes: Collection[DType], *, is_sparse: bool) -> None:
    names = list(optimizer.inputs)
    if is_sparse:
        names.insert(names.index(optimizer.tensor) + 1, "indices")
    count = len(optimizer.variables)

    @cache
    def tiled_rule(flag: bool, dtype: DType) -> TiledRule:  # one for all nodes: its native code takes long to make
        return TiledRule(optimizer.rule, optimizer.inputs, optimizer.tensor, optimizer.flags(flag))

    @register_kernel(*ops, dtypes={"T": dtypes}, handles=Variable)
    def make(construction: OpKernelConstruction) -> Kernel:
        is_resource, dtype = construction.op.startswith("Resource"), construction.attr("T")
        flag = construction.attr(optimizer.flag) if optimizer.flag else False
        flags, apply = optimizer.flags(flag), tiled_rule(flag, dtype)
        all_names, flag_values = (*names, *flags), tuple(flags.values())

        def update(*inputs: Any) -> object:
            variables: Sequence[Variable] = inputs[:count]
            given = dict(zip(all_names, inputs[count:] + flag_values, strict=True))
            with locked(variables), flushed_subnormals():  # as in TensorFlow
                for variable in variables:
                    if variable.dtype is not dtype or not variable.is_initialized:
                        variable.require_dtype(dtype)
                        _refuse(variable, is_resource)
                with updating(variables) as update:
                    values = _new_values(optimizer, apply, update, given)
                    if values is not None:
                        update.assign(values)
            return () if is_resource else variables[0]

        if not is_sparse:
            update.element_rule = apply.element_rule  # type: ignore[attr-defined]
        return update


def _new_values(
    optimizer: _Optimizer, apply: TiledRule, update: updating, given: Mapping[str, object]
) -> Sequence[object] | None:
    """The new values; None where the *update* has got them already."""
    values = update.values
    _check(values, optimizer, given)
    grad = given[optimizer.tensor]
    if "indices" in given:
        _check_rows(values[0], grad, given["indices"])
        return _update_rows(optimizer, values, given, given["indices"])
    _check_same("var", _shape_of(values[0]), optimizer.tensor, _shape_of(grad))
    return apply(values, given, update.arrays)


def _register(
    name: str,
    rule: rules.Rule,
    variables: str,
    inputs: str,
    dtypes: Collection[DType] = _NUMBERS,
    *,
    flag: str = "",
    ranges: dict[str, str] | None = None,
    sparse_ranges: dict[str, str] | None = None,
    with_ref: bool = True,
    sparse: Collection[DType] = (),
) -> None:
    """Declare the ops of an optimizer and register their kernels; *sparse* are the dtypes with gradients of rows."""
    tensor = "delta" if "delta" in inputs else "grad"
    dense = _Optimizer(rule, tuple(variables.split()), tuple(inputs.split()), tensor, flag, ranges or {})
    by_rows = replace(
        dense,
        inputs=tuple(inputs.replace("delta", "grad").split()),
        tensor="grad",
        ranges=dense.ranges | (sparse_ranges or {}),
    )
    for optimizer, prefix, taken in ((dense, "Apply", dtypes), (by_rows, "SparseApply", sparse)):
        if not taken:
            continue
        kinds = {f"{prefix}{name}": "Ref(T)"} if with_ref else {}
        kinds[f"Resource{prefix}{name}"] = "resource"
        for op, kind in kinds.items():
            _declare(op, optimizer, kind, is_sparse=prefix == "SparseApply")
        _register_kernels(list(kinds), optimizer, taken, is_sparse=prefix == "SparseApply")


_STRENGTHS: Final = {"lr": "positive", "l1": "non-negative", "l2": "non-negative"}
_POWERS: Final = "beta1_power beta2_power lr beta1 beta2 epsilon grad"
_register("GradientDescent", rules.gradient_descent, "var", "alpha delta")
_register(
    "ProximalGradientDescent",
    rules.proximal_gradient_descent,
    "var",
    "alpha l1 l2 delta",
    _WIDE,
    sparse=_WIDE,
)
_register("Momentum", rules.momentum, "var accum", "lr grad momentum", flag=_NESTEROV, sparse=_NUMBERS)
_register(
    "KerasMomentum",
    rules.keras_momentum,
    "var accum",
    "lr grad momentum",
    flag=_NESTEROV,
    with_ref=False,
    sparse=_NUMBERS,
)
_register("Adadelta", rules.adadelta, "var accum accum_update", "lr rho epsilon grad", sparse=_NUMBERS)
_register("Adagrad", rules.adagrad, "var accum", "lr grad", flag=_SLOTS, sparse=_NUMBERS)
_register("AdagradV2", rules.adagrad_v2, "var accum", "lr epsilon grad", flag=_SLOTS, sparse=_NUMBERS)
_register(
    "AdagradDA",
    rules.adagrad_da,
    "var gradient_accumulator gradient_squared_accumulator",
    "grad lr l1 l2 global_step",
    _WIDE,
    sparse=_WIDE,
)
_register(
    "ProximalAdagrad", rules.proximal_adagrad, "var accum", "lr l1 l2 grad", _WIDE, ranges=_STRENGTHS, sparse=_WIDE
)
for _name, _shrinkage in (("Ftrl", ""), ("FtrlV2", " l2_shrinkage")):
    _register(
        _name,
        rules.ftrl,
        "var accum linear",
        f"grad lr l1 l2{_shrinkage} lr_power",
        _FLOATS,
        flag=_LINEAR,
        sparse_ranges=_STRENGTHS | {"l2_shrinkage": "non-negative", "lr_power": "non-positive"},
        sparse=_FLOATS,
    )
_register("Adam", rules.adam, "var m v", _POWERS, flag=_NESTEROV)
_register("AdamWithAmsgrad", rules.adam_with_amsgrad, "var m v vhat", _POWERS, _FLOATS, with_ref=False)
_register("AdaMax", rules.ada_max, "var m v", "beta1_power lr beta1 beta2 epsilon grad", _HALF)
_register("RMSProp", rules.rms_prop, "var ms mom", "lr rho momentum epsilon grad", sparse=_PLAIN_NUMBERS)
_register(
    "CenteredRMSProp",
    rules.centered_rms_prop,
    "var mg ms mom",
    "lr rho momentum epsilon grad",
    sparse=_PLAIN_NUMBERS,
)
_register("AddSign", rules.add_sign, "var m", "lr alpha sign_decay beta grad", _FLOATS)
_register("PowerSign", rules.power_sign, "var m", "lr logbase sign_decay beta grad", _FLOATS)
