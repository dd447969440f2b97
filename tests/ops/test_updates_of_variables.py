"""An update gives a variable another value: who read the former one keeps it, and who gave the operand does too."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from asyncexec.framework.kernel import OpKernelConstruction
from asyncexec.framework.kernel_registry import registry as kernel_registry
from asyncexec.framework.op_registry import registry as op_registry
from asyncexec.framework.ownership import is_frozen
from asyncexec.framework.resource_mgr import ResourceMgr
from asyncexec.framework.tensor_shape import TensorShape
from asyncexec.framework.types import as_dtype
from asyncexec.ops.state.variable_state import Variable, locked

UPDATES = re.compile(r"(Resource)?(Scatter(Nd)?(Update|Add|Sub|Mul|Div|Min|Max)|(Sparse)?Apply\w+)|Assign\w*")
OPS = sorted(op for op in op_registry.implemented() if UPDATES.fullmatch(op))


def operand(op: str, name: str) -> Any:
    """Something for the argument *name* of *op*, whose variables are of shape [3, 2]."""
    if name == "indices":
        return np.array([[0], [2]]) if "Nd" in op else np.array([0, 2])
    if name == "updates":
        return np.full((2, 2), 9 if op.endswith("Max") else 2, np.float32)
    if name == "grad" and "Sparse" in op:
        return np.full((2, 2), 2, np.float32)
    if name == "lr_power":
        return np.float32(-0.5)
    return np.full((3, 2), 2, np.float32) if name in ("value", "delta", "grad") else np.float32(0.5)


@pytest.mark.parametrize("op", OPS)
def test_update_replaces_the_value(op: str) -> None:
    op_def = op_registry.lookup(op).op_def
    given = {
        "T": as_dtype("float32"),
        "dtype": as_dtype("float32"),
        "Tindices": as_dtype("int64"),
        "validate_shape": False,
    }
    attrs = op_def.complete_attrs({name: value for name, value in given.items() if name in op_def.attrs})
    dtypes = op_def.input_dtypes(attrs), op_def.output_dtypes(attrs)
    construction = OpKernelConstruction("node", op_def, attrs, *dtypes, ResourceMgr())
    kernel: Any = kernel_registry.lookup(op, "CPU", attrs).factory(construction)
    variables: list[Variable] = []
    inputs: list[Any] = []
    for arg, dtype in zip(op_def.inputs, dtypes[0], strict=True):
        if arg.is_ref or dtype.is_opaque:
            variable = Variable(arg.name, as_dtype("float32"), TensorShape([3, 2]))
            first = 1 if arg.name == "mg" else 4 + len(variables)  # a mean, whose square is below that of squares
            variable.assign(np.full((3, 2), first, np.float32))
            variables.append(variable)
            inputs.append(variable)
        else:
            inputs.append(operand(op, arg.name))
    former = [variable.read() for variable in variables]
    copies = [value.copy() for value in former]
    operands = [value for value in inputs if isinstance(value, np.ndarray)]
    given_copies = [value.copy() for value in operands]
    kernel(*inputs)
    assert all(map(np.array_equal, former, copies))
    assert all(map(np.array_equal, operands, given_copies))
    assert any(not np.array_equal(variable.read(), copy) for variable, copy in zip(variables, copies, strict=True))
    for variable in variables:
        value = variable.read()
        assert is_frozen(value)
        assert not any(np.may_share_memory(value, other) for other in operands)


def test_the_ops_are_all_there() -> None:
    assert len(OPS) >= 30
    assert {"AssignAdd", "AssignVariableOp", "ResourceScatterNdAdd", "ScatterMul", "ApplyAdam"} <= set(OPS)


class Lock:
    """A lock that notes what becomes of it; one that is *broken* cannot be taken."""

    def __init__(self, log: list[str], *, is_broken: bool = False) -> None:
        self._log = log
        self._is_broken = is_broken

    def acquire(self) -> bool:
        if self._is_broken:
            raise KeyboardInterrupt
        self._log.append("taken")
        return True

    def release(self) -> None:
        self._log.append("released")


def test_who_is_interrupted_while_it_locks_variables_keeps_no_lock() -> None:
    for broken in range(3):
        log: list[str] = []
        variables = [Variable(f"v{number}", as_dtype("float32"), TensorShape([3, 2]), "") for number in range(3)]
        for number, variable in enumerate(sorted(variables, key=id)):
            variable.lock = Lock(log, is_broken=number == broken)  # type: ignore[assignment]
        with pytest.raises(KeyboardInterrupt), locked(variables):
            raise AssertionError("nobody has the locks")
        assert log == ["taken"] * broken + ["released"] * broken
