"""Rules of optimizers as native code: the same bits as by numpy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final
from unittest import mock

import numpy as np
import pytest

import asyncexec as ax
from asyncexec.executor.plans import native_tiles
from asyncexec.executor.plans.native_calls import COMPILER, Pauses
from asyncexec.executor.plans.native_tiles import NativeTile, native_rule
from asyncexec.framework.element_rule import ElementRule
from asyncexec.framework.kernel import OpKernelConstruction
from asyncexec.framework.kernel_registry import registry as kernel_registry
from asyncexec.framework.op_registry import registry as op_registry
from asyncexec.ops.nn import training_rules as rules
from asyncexec.ops.nn import training_tiles
from asyncexec.ops.nn.training_tiles import TiledRule

TILE: Final = 64
_POWERS: Final = "beta1_power beta2_power lr beta1 beta2 epsilon grad"
NESTEROV: Final = [{"use_nesterov": False}, {"use_nesterov": True}]
SLOTS: Final = [{"update_slots": False}, {"update_slots": True}]
# A rule, how many variables it has, what it is given, and by which attrs.
NATIVE: Final[Sequence[tuple[rules.Rule, int, str, Sequence[dict[str, bool]]]]] = [
    (rules.gradient_descent, 1, "alpha delta", [{}]),
    (rules.momentum, 2, "lr grad momentum", NESTEROV),
    (rules.keras_momentum, 2, "lr grad momentum", NESTEROV),
    (rules.adadelta, 3, "lr rho epsilon grad", [{}]),
    (rules.adagrad, 2, "lr grad", SLOTS),
    (rules.adagrad_v2, 2, "lr epsilon grad", SLOTS),
    (rules.adam, 3, _POWERS, NESTEROV),
    (rules.adam_with_amsgrad, 4, _POWERS, [{}]),
    (rules.ada_max, 3, "beta1_power lr beta1 beta2 epsilon grad", [{}]),
    (rules.rms_prop, 3, "lr rho momentum epsilon grad", [{}]),
    (rules.centered_rms_prop, 4, "lr rho momentum epsilon grad", [{}]),
]
CASES: Final = [(*case, each) for *case, flags in NATIVE for each in flags]
ASKING: Final = [  # for the value of a number, or what has no instructions
    (rules.proximal_gradient_descent, 1, "alpha l1 l2 delta", {}),
    (rules.adagrad_da, 3, "grad lr l1 l2 global_step", {}),
    (rules.ftrl, 3, "grad lr l1 l2 lr_power", {"multiply_linear_by_lr": False}),
    (rules.power_sign, 2, "lr logbase sign_decay beta grad", {}),
]


@pytest.fixture(autouse=True)
def small_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rules are compiled at once, and tiles are small."""
    pytest.importorskip("llvmlite")
    monkeypatch.setattr(training_tiles, "TILE", TILE)
    monkeypatch.setattr(native_tiles, "HOT_ELEMENTS", 1)
    monkeypatch.setattr(COMPILER, "submit", COMPILER.compile)
    monkeypatch.setattr(Pauses, "__call__", lambda pauses, *event: None)


@pytest.fixture
def done() -> Iterator[list[bool]]:
    """Of each tile that native code was asked for, whether it did that."""
    found: list[bool] = []
    do = NativeTile._do

    def noted(tile: NativeTile, *args: Any) -> bool:
        found.append(do(tile, *args))
        return found[-1]

    with mock.patch.object(NativeTile, "_do", noted):
        yield found


def tiled(rule: rules.Rule, given: str, flags: dict[str, bool], *, is_native: bool) -> TiledRule:
    found = TiledRule(rule, given.split(), "delta" if "delta" in given else "grad", flags)
    if is_native:
        found.element_rule.find_native = native_rule(found.element_rule)
    return found


def numbers(kind: Any, count: int, names: str, size: int) -> tuple[list[Any], dict[str, Any]]:
    """Values of variables, none of them negative, and what an op is given, of many magnitudes."""
    random = np.random.default_rng(0)

    def vector() -> Any:
        return (random.normal(size=size) * 10.0 ** random.integers(-9, 3, size)).astype(kind)

    given = {name: kind(random.uniform(0.1, 0.9)) for name in names.split()}
    given["delta" if "delta" in given else "grad"] = vector()
    if "global_step" in given:
        given["global_step"] = np.int64(3)
    return [np.abs(vector()) for _ in range(count)], given


def bits(values: Sequence[Any]) -> list[bytes]:
    return [value.tobytes() for value in values]


@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize(("rule", "count", "names", "flags"), CASES)
def test_bits_are_those_of_numpy(
    done: list[bool], rule: rules.Rule, count: int, names: str, flags: dict[str, bool], kind: Any
) -> None:
    native = tiled(rule, names, flags, is_native=True)
    for size in (5 * TILE + 3, 5 * TILE + 3, TILE, 1):
        values, given = numbers(kind, count, names, size)
        given |= flags
        before = bits(values)
        if rule is rules.centered_rms_prop:
            values[1] = np.sqrt(values[2]) / 2  # a mean, whose square is below that of squares
            before = bits(values)
        expected = bits(rule(values, given))
        assert bits(native(values, given)) == expected
        assert bits(values) == before
    assert done == [True] * 4  # the first call is numpy's; each of the others does four tiles at a time


def test_tiles_with_another_nan_are_numpys(done: list[bool]) -> None:
    native = tiled(rules.adam, _POWERS, NESTEROV[0], is_native=True)
    values, given = numbers(np.float32, 3, _POWERS, 12 * TILE)
    given |= NESTEROV[0]
    native(values, given)
    given["grad"][5 * TILE] = np.uint32(0x7FC12345).view(np.float32)
    assert bits(native(values, given)) == bits(rules.adam(values, given))
    assert done == [True, False, True]


def test_scalars_in_arrays_are_scalars(done: list[bool]) -> None:
    native = tiled(rules.momentum, "lr grad momentum", NESTEROV[0], is_native=True)
    values, given = numbers(np.float32, 2, "lr grad momentum", 4 * TILE)
    given |= NESTEROV[0]
    expected = bits(rules.momentum(values, given))
    given["lr"], given["momentum"] = np.array(given["lr"]), np.array(given["momentum"])
    for _ in range(2):
        assert bits(native(values, given)) == expected
    assert done == [True]


@pytest.mark.parametrize(("rule", "count", "names", "flags"), ASKING)
def test_rule_that_asks_for_more_stays_with_numpy(
    done: list[bool], rule: rules.Rule, count: int, names: str, flags: dict[str, bool]
) -> None:
    native = tiled(rule, names, flags, is_native=True)
    values, given = numbers(np.float32, count, names, 4 * TILE)
    given |= flags
    for _ in range(3):
        assert bits(native(values, given)) == bits(rule(values, given))
    assert done == []


@pytest.mark.parametrize("flags", SLOTS)
def test_what_the_rule_leaves_alone_is_not_copied_by_numpy(flags: dict[str, bool]) -> None:
    numpys = tiled(rules.adagrad, "lr grad", flags, is_native=False)
    values, given = numbers(np.float32, 2, "lr grad", 4 * TILE)
    assert (numpys(values, given | flags)[1] is values[1]) is not flags["update_slots"]


def rule_of(op: str) -> ElementRule:
    """The rule that all nodes of *op* on float32 have in common."""
    op_def = op_registry.lookup(op).op_def
    attrs = op_def.complete_attrs({"T": ax.float32})
    kernel: Any = kernel_registry.lookup(op, "CPU", attrs).factory(OpKernelConstruction("node", op_def, attrs))
    found: ElementRule = kernel.function.element_rule  # without what checks the handles
    return found


async def test_steps_of_a_session_find_native_code(done: list[bool], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rule_of("ResourceApplyGradientDescent"), "find_native", None)
    random = np.random.default_rng(0)
    first, grad = (random.normal(size=(4, TILE)).astype(np.float32) for _ in range(2))
    with ax.Graph() as graph:
        handle = ax.create_op("VarHandleOp", [], attrs={"dtype": ax.float32, "shape": [4, TILE]}, name="weights")
        start = ax.create_op("AssignVariableOp", [handle, ax.constant(first)], name="start")
        fed = ax.placeholder(ax.float32, [4, TILE], name="fed")
        step = ax.create_op("ResourceApplyGradientDescent", [handle, np.float32(0.5), fed], name="step")
        value = ax.create_op("ReadVariableOp", [handle], attrs={"dtype": ax.float32}, name="value")
    expected = first
    async with ax.Session(graph) as session:
        await session.run([], targets=[start])
        for _ in range(8):
            await session.run([], {fed: grad}, targets=[step])
            expected = expected - grad * np.float32(0.5)
        assert (await session.run(value)).tobytes() == expected.tobytes()
    assert done
    assert all(done)
