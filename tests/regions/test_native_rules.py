"""Rules of optimizers as native code, which writes over what the variables have: the same bits as by numpy."""

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
from asyncexec.regions import native_tiles as native_text
from asyncexec.regions.native_emitter import Emitter, Operand
from asyncexec.regions.native_tiles import Taken, write_overwriting_loop

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
    come_to = NativeTile._come_to

    def noted(tile: NativeTile, *args: Any) -> int:
        end = come_to(tile, *args)
        found.append(end == args[-1])
        return end

    with mock.patch.object(NativeTile, "_come_to", noted):
        yield found


def updated(rule: TiledRule, values: Sequence[Any], given: dict[str, Any], *, in_place: bool = False) -> list[bytes]:
    """The bits of what *rule* makes of *values*: where these are, if *in_place*."""
    outs = values if in_place else [np.empty_like(value) for value in values]
    news = rule(values, given, lambda **_: outs)
    return bits(outs if news is None else news)


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
        assert updated(native, values, given) == expected
        assert bits(values) == before
        if done:
            assert updated(native, values, given, in_place=True) == expected
    assert all(done)
    assert len(done) == 6 + 1 + 1 + 1 + 1 + 1  # the first call is numpy's; in place, all is done at a time


def test_what_gives_nan_is_nan(done: list[bool]) -> None:
    native = tiled(rules.adam, _POWERS, NESTEROV[0], is_native=True)
    values, given = numbers(np.float32, 3, _POWERS, TILE)
    given |= NESTEROV[0]
    updated(native, values, given)
    given["grad"][5] = np.uint32(0x7FC12345).view(np.float32)
    values[2][6] = -1  # which has no root
    with np.errstate(invalid="ignore"):
        expected = rules.adam(values, given)
    updated(native, values, given, in_place=True)
    for found, wanted in zip(values, expected, strict=True):
        np.testing.assert_array_equal(found, wanted)
    assert np.isnan(values[0][5:7]).all()
    assert done == [True]


def test_what_is_for_numpy_is_left_as_it_is() -> None:
    """Native code writes blocks up to the first one that has an element for numpy."""

    def emit(to: Emitter, operands: Sequence[Operand]) -> Sequence[Operand]:
        (x,) = operands
        to.bail_if(to.value(f"fcmp oeq float {x.text}, 7.0"))
        return [Operand(x.type, to.value(f"fadd float {x.text}, 1.0"))]

    takes = [Taken(np.float32, True)]
    tile = NativeTile(lambda takes, pause: write_overwriting_loop(emit, takes), takes)
    block = native_text._BLOCK
    for place in (0, block - 1, block, 3 * block - 1, 3 * block + 4):
        x = np.zeros(3 * block + 5, np.float32)
        x[place] = 7
        come_to = tile.overwriting([x])(0, x.size)
        assert come_to == place // block * block
        assert (x[:come_to] == 1).all()
        assert np.flatnonzero(x[come_to:]).tolist() == [place - come_to]
    assert tile.overwriting([x])(0, 5) == 5
    assert tile.overwriting([x])(2 * block, x.size - 1) == x.size - 1


def test_numpy_does_what_native_code_leaves_to_it(done: list[bool], monkeypatch: pytest.MonkeyPatch) -> None:
    native = tiled(rules.adam, _POWERS, NESTEROV[0], is_native=True)
    given: dict[str, Any] = {}
    values, given = numbers(np.float32, 3, _POWERS, 12 * TILE)
    given |= NESTEROV[0]
    updated(native, values, given)
    whole = NativeTile._come_to
    monkeypatch.setattr(NativeTile, "_come_to", lambda tile, *args: whole(tile, *args[:-1], args[-1] - 10))
    expected = bits(rules.adam(values, given))
    assert updated(native, values, given) == expected
    assert updated(native, values, given, in_place=True) == expected
    assert len(done) == 12 + 1


def test_scalars_in_arrays_are_scalars(done: list[bool]) -> None:
    native = tiled(rules.momentum, "lr grad momentum", NESTEROV[0], is_native=True)
    values, given = numbers(np.float32, 2, "lr grad momentum", 4 * TILE)
    given |= NESTEROV[0]
    expected = bits(rules.momentum(values, given))
    given["lr"], given["momentum"] = np.array(given["lr"]), np.array(given["momentum"])
    for _ in range(2):
        assert updated(native, values, given) == expected
    assert done == [True] * 4


@pytest.mark.parametrize(("rule", "count", "names", "flags"), ASKING)
def test_rule_that_asks_for_more_stays_with_numpy(
    done: list[bool], rule: rules.Rule, count: int, names: str, flags: dict[str, bool]
) -> None:
    native = tiled(rule, names, flags, is_native=True)
    values, given = numbers(np.float32, count, names, 4 * TILE)
    given |= flags
    for _ in range(3):
        assert updated(native, values, given) == bits(rule(values, given))
    assert done == []


@pytest.mark.parametrize("flags", SLOTS)
def test_what_the_rule_leaves_alone_is_not_copied_by_numpy(flags: dict[str, bool]) -> None:
    numpys = tiled(rules.adagrad, "lr grad", flags, is_native=False)
    values, given = numbers(np.float32, 2, "lr grad", 4 * TILE)
    news = numpys(values, given | flags, lambda **_: pytest.fail("numpy makes arrays of its own"))
    assert news is not None
    assert (news[1] is values[1]) is not flags["update_slots"]


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
