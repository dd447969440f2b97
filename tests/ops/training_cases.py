"""Calls of the optimizers' ops, to be run several times on the same variables."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from asyncexec.framework.types import as_dtype

STEPS: Final = 2
WIDE: Final = ("float32", "float64")
HALF: Final = (*WIDE, "float16")
FLOATS: Final = (*HALF, "bfloat16")
NUMBERS: Final = (*FLOATS, "complex64", "complex128")
PLAIN: Final = (*HALF, "complex64", "complex128")
POWERS: Final = "beta1_power beta2_power lr beta1 beta2 epsilon grad"
# name: (variables, inputs, dtypes, dtypes by rows, its flag, has a form on references)
OPTIMIZERS: Final = {
    "GradientDescent": ("var", "alpha delta", NUMBERS, (), "", True),
    "ProximalGradientDescent": ("var", "alpha l1 l2 delta", WIDE, WIDE, "", True),
    "Momentum": ("var accum", "lr grad momentum", NUMBERS, NUMBERS, "use_nesterov", True),
    "KerasMomentum": ("var accum", "lr grad momentum", NUMBERS, NUMBERS, "use_nesterov", False),
    "Adadelta": ("var accum accum_update", "lr rho epsilon grad", NUMBERS, NUMBERS, "", True),
    "Adagrad": ("var accum", "lr grad", NUMBERS, NUMBERS, "update_slots", True),
    "AdagradV2": ("var accum", "lr epsilon grad", NUMBERS, NUMBERS, "update_slots", True),
    "AdagradDA": ("var total squares", "grad lr l1 l2 global_step", WIDE, WIDE, "", True),
    "ProximalAdagrad": ("var accum", "lr l1 l2 grad", WIDE, WIDE, "", True),
    "Ftrl": ("var accum linear", "grad lr l1 l2 lr_power", FLOATS, FLOATS, "multiply_linear_by_lr", True),
    "FtrlV2": (
        "var accum linear",
        "grad lr l1 l2 l2_shrinkage lr_power",
        FLOATS,
        FLOATS,
        "multiply_linear_by_lr",
        True,
    ),
    "Adam": ("var m v", POWERS, NUMBERS, (), "use_nesterov", True),
    "AdamWithAmsgrad": ("var m v vhat", POWERS, FLOATS, (), "", False),
    "AdaMax": ("var m v", "beta1_power lr beta1 beta2 epsilon grad", HALF, (), "", True),
    "RMSProp": ("var ms mom", "lr rho momentum epsilon grad", NUMBERS, PLAIN, "", True),
    "CenteredRMSProp": ("var mg ms mom", "lr rho momentum epsilon grad", NUMBERS, PLAIN, "", True),
    "AddSign": ("var m", "lr alpha sign_decay beta grad", FLOATS, (), "", True),
    "PowerSign": ("var m", "lr logbase sign_decay beta grad", FLOATS, (), "", True),
}
SCALARS: Final = {
    "alpha": 0.5,
    "beta": 0.75,
    "beta1": 0.875,
    "beta1_power": 0.75,
    "beta2": 0.9375,
    "beta2_power": 0.875,
    "epsilon": 0.0625,
    "l1": 0.25,
    "l2": 0.125,
    "l2_shrinkage": 0.0625,
    "logbase": 1.5,
    "lr": 0.125,
    "lr_power": -0.5,
    "momentum": 0.75,
    "rho": 0.875,
    "sign_decay": 0.5,
}
VARIABLE: Final = [[1.0, -2.0], [0.5, 0.25], [-0.125, 0.0]]
SLOT: Final = [[2.0, 0.5], [1.0, 3.0], [0.75, 1.25]]
GRADIENT: Final = [[0.5, -1.0], [2.0, 0.0], [-0.25, 0.125]]
FIRST: Final = {"mg": [[0.25, -0.5], [0.5, 0.125], [0.0, 0.25]]}


@dataclass(frozen=True)
class TrainingCase:
    """An op, the first values of its variables, and its other inputs."""

    op: str
    dtype: str
    variables: dict[str, Any]
    inputs: dict[str, Any]
    attrs: dict[str, Any] = field(default_factory=dict)
    id: str = ""

    @property
    def label(self) -> str:
        return f"{self.op}-{self.dtype}{'-' if self.id else ''}{self.id}"


def training_case(op: str, dtype: str, id: str = "", *, indices: Any = None, **changed: Any) -> TrainingCase:
    """A call of *op*; what is *changed* is a scalar, a variable or the attr of the optimizer."""
    is_sparse, name = "SparseApply" in op, re.sub("^(Resource)?(Sparse)?Apply", "", op)
    variables, inputs, _, _, flag, _ = OPTIMIZERS[name]
    np_dtype = as_dtype(dtype).as_numpy_dtype
    turn = 1 + 0.5j if np_dtype.kind == "c" else 1
    values = {}
    for place, variable in enumerate(variables.split()):
        values[variable] = np.array(
            changed.get(variable, FIRST.get(variable, SLOT) if place else np.multiply(VARIABLE, turn)), np_dtype
        )
    given: dict[str, Any] = {}
    for name in (inputs.replace("delta", "grad") if is_sparse else inputs).split():
        if name == "global_step":
            given[name] = np.int64(changed.get(name, 3))
        elif name in ("grad", "delta"):
            rows = np.arange(3) if indices is None else np.asarray(indices).reshape(-1) % 3
            gradient = np.multiply(GRADIENT, turn)[rows] if is_sparse else np.multiply(GRADIENT, turn)
            given[name] = np.array(changed.get(name, gradient), np_dtype)[()]
            if is_sparse:
                given["indices"] = np.array([2, 0, 1] if indices is None else indices)
        else:
            given[name] = np.array(changed.get(name, SCALARS[name]), np_dtype)[()]
    return TrainingCase(op, dtype, values, given, {flag: changed[flag]} if flag in changed else {}, id)


def cases_of(name: str) -> list[TrainingCase]:
    """All dtypes and forms of one optimizer."""
    _, inputs, dtypes, by_rows, flag, with_ref = OPTIMIZERS[name]
    found = []
    for form, taken in (("Apply", dtypes), ("SparseApply", by_rows)):
        resource_op = f"Resource{form}{name}"
        found += [training_case(resource_op, dtype) for dtype in taken]
        if not taken:
            continue
        if with_ref:
            found.append(training_case(f"{form}{name}", "float32"))
        if flag:
            found += [training_case(resource_op, "float32", str(value), **{flag: value}) for value in (False, True)]
        if "l1" in inputs:
            found.append(training_case(resource_op, "float32", "no l1", l1=0))
        if "lr_power" in inputs:
            found += [training_case(resource_op, dtype, "power", lr_power=-0.25) for dtype in WIDE]
            found.append(training_case(resource_op, "float32", "power 0", lr_power=0, multiply_linear_by_lr=True))
        if form == "SparseApply":
            found += [
                training_case(resource_op, "float32", "repeated", indices=np.array([1, 0, 1, 1], np.int32)),
                training_case(resource_op, "float32", "none", indices=np.zeros(0, np.int64)),
            ]
    return found


def wrong_cases() -> list[TrainingCase]:
    """Calls that are refused; of some TensorFlow has changed a part by then."""
    rows, found = "ResourceSparseApplyMomentum", []
    found.append(training_case(rows, "float32", "out of range", indices=[0, 3], grad=GRADIENT[:2]))
    found.append(training_case(rows, "float32", "negative", indices=[-1, 0], grad=GRADIENT[:2]))
    found.append(training_case(rows, "float32", "matrix", indices=[[0], [1]], grad=GRADIENT[:2]))
    found.append(training_case(rows, "float32", "count", indices=[0], grad=GRADIENT[:2]))
    found.append(training_case(rows, "float32", "row", indices=[0], grad=[[1.0, 2, 3]]))
    found.append(training_case(rows, "float32", "accum", accum=[[1.0, 2.0]]))
    found.append(training_case("ResourceApplyAdagrad", "float32", "accum", accum=[[1.0, 2.0]]))
    found.append(training_case("ResourceApplyAdagrad", "float32", "grad", grad=[1.0, 2.0]))
    found.append(training_case("ResourceApplyAdagrad", "float32", "vector lr", lr=[1.0]))
    for op, names in (("Ftrl", "lr l1 l2"), ("FtrlV2", "lr l1 l2 l2_shrinkage"), ("ProximalAdagrad", "lr l1 l2")):
        for form in ("Apply", "SparseApply"):
            for name in names.split():
                for value in (-1, 0, 1):
                    if form == "SparseApply" or op == "ProximalAdagrad":
                        found.append(
                            training_case(f"Resource{form}{op}", "float32", f"{name} {value}", **{name: value})
                        )
    found.append(training_case("ResourceSparseApplyFtrl", "float32", "lr_power 1", lr_power=1))
    found.append(training_case("ResourceSparseApplyFtrl", "float32", "lr 0", lr=0, multiply_linear_by_lr=True))
    return found


CASES: Final = list({case.label: case for name in OPTIMIZERS for case in cases_of(name)}.values()) + [
    case for case in wrong_cases() if not (case.id == "lr 0" and not case.attrs and "Ftrl" in case.op)
]
