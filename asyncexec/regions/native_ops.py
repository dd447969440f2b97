"""What kernels do to scalars, as LLVM instructions: only where the result has the bits that the kernel gives.

LLVM knows no float that a function computes with: of an operation on what it knows it makes a NaN of its own.

A kernel is known by itself, not by the name of its op, so one that somebody else has registered is never taken for
ours.  What an instruction cannot do just as the kernel does, it leaves to Python: it *bails out*.

Of two NaNs an addition hands on one, and which one is the processor's and the compiler's choice.  Where all NaNs have
the same bits there is no choice.  So native code is entered only if each NaN among its inputs is the one that invalid
operations make, and bails out where an instruction would give another.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

import numpy as np

from asyncexec.framework.kernel import Kernel
from asyncexec.ops.array.select import choose, select, select_v2
from asyncexec.ops.math.binary_math import (
    add_group,
    add_in_groups,
    add_n,
    add_up,
    clip_by_value,
    maximum_of_scalars,
    minimum_of_scalars,
    squared_difference,
)
from asyncexec.ops.math.cast import rounding, same
from asyncexec.ops.math.division import WITH_CHECK, floor_quotient, truncated_quotient, truncating_quotient
from asyncexec.ops.math.math import reciprocal, rsqrt, square
from asyncexec.ops.nn.activation import relu, relu6
from asyncexec.regions.conditions import choose_side, truth
from asyncexec.regions.native_emitter import (
    B1,
    BITS,
    F8,
    FLOATS,
    I4,
    I8,
    INTEGERS,
    LLVM_NAMES,
    Emit,
    Emitter,
    NotNativeError,
    Operand,
    ScalarType,
)


def _one_type(operands: Sequence[Operand], *allowed: frozenset[ScalarType]) -> ScalarType:
    kind = operands[0].type
    if any(operand.type is not kind for operand in operands) or not any(kind in types for types in allowed):
        raise NotNativeError
    return kind


_BOOL: Final[frozenset[ScalarType]] = frozenset((B1,))
_ODD: Final = 131  # elements, of which some are left where vectors end


def _arithmetic(of_floats: str | None, of_integers: str | None, cost: int = 1) -> Emit:
    def emit(to: Emitter, operands: Sequence[Operand]) -> Operand:
        kind = _one_type(operands, FLOATS, INTEGERS)
        name = of_floats if kind in FLOATS else of_integers
        if name is None:
            raise NotNativeError
        x, y = operands
        return to.emit(kind, f"{name} {LLVM_NAMES[kind]} {x.text}, {y.text}", cost)

    return emit


def _comparison(of_floats: str, of_integers: str, *, of_bools: bool = False) -> Emit:
    def emit(to: Emitter, operands: Sequence[Operand]) -> Operand:
        kind = _one_type(operands, FLOATS, INTEGERS, _BOOL if of_bools else frozenset())
        name = f"fcmp {of_floats}" if kind in FLOATS else f"icmp {of_integers}"
        x, y = operands
        return to.emit(B1, f"{name} {LLVM_NAMES[kind]} {x.text}, {y.text}")

    return emit


def _bitwise(name: str) -> Emit:
    def emit(to: Emitter, operands: Sequence[Operand]) -> Operand:
        kind = _one_type(operands, INTEGERS, _BOOL)
        x, y = operands
        return to.emit(kind, f"{name} {LLVM_NAMES[kind]} {x.text}, {y.text}")

    return emit


def _invert(to: Emitter, operands: Sequence[Operand]) -> Operand:
    kind = _one_type(operands, INTEGERS, _BOOL)
    ones = "true" if kind is B1 else "-1"
    return to.emit(kind, f"xor {LLVM_NAMES[kind]} {operands[0].text}, {ones}")


def _without_nan(to: Emitter, result: Operand) -> Operand:
    """*result*; a NaN is left to Python, unless any will do."""
    if not to.takes_any_nan:
        to.bail_if(to.value(f"fcmp uno {LLVM_NAMES[result.type]} {result.text}, {result.text}"))
    return result


def _negative(to: Emitter, operands: Sequence[Operand]) -> Operand:
    kind = _one_type(operands, FLOATS, INTEGERS)
    (x,) = operands
    if kind in FLOATS:
        return _without_nan(to, to.emit(kind, f"fneg {LLVM_NAMES[kind]} {x.text}"))
    return to.emit(kind, f"sub {LLVM_NAMES[kind]} 0, {x.text}")


def _absolute(to: Emitter, operands: Sequence[Operand]) -> Operand:
    kind = _one_type(operands, FLOATS, INTEGERS)
    if kind in FLOATS:
        return _without_nan(to, _intrinsic("fabs", 1)(to, operands))
    (x,) = operands
    negative = _negative(to, operands).text
    is_less = to.value(f"icmp slt {LLVM_NAMES[kind]} {x.text}, 0")
    return to.emit(kind, f"select i1 {is_less}, {LLVM_NAMES[kind]} {negative}, {LLVM_NAMES[kind]} {x.text}")


def _intrinsic(name: str, cost: int) -> Emit:
    def emit(to: Emitter, operands: Sequence[Operand]) -> Operand:
        kind = _one_type(operands, FLOATS)
        llvm = LLVM_NAMES[kind]
        return to.emit(kind, f"call {llvm} @llvm.{name}.f{BITS[kind]}({llvm} {operands[0].text})", cost)

    return emit


def _numeric_intrinsic(name: str, cost: int) -> Emit:
    call = _intrinsic(name, cost)
    return lambda to, operands: _without_nan(to, call(to, operands))


def _square(to: Emitter, operands: Sequence[Operand]) -> Operand:
    return _multiply(to, [operands[0], operands[0]])


def _squared_difference(to: Emitter, operands: Sequence[Operand]) -> Operand:
    return _square(to, [_subtract(to, operands)])


def _reciprocal(to: Emitter, operands: Sequence[Operand]) -> Operand:
    kind = _one_type(operands, FLOATS)
    return to.emit(kind, f"fdiv {LLVM_NAMES[kind]} {to.constant(kind(1)).text}, {operands[0].text}", _DIVISION)


def _sum(add: Kernel, to: Emitter, operands: Sequence[Operand]) -> Operand:
    """The sum in the order of *add*, which only needs ``+``."""
    kind = _one_type(operands, FLOATS, INTEGERS)
    total: Operand = add(*[_Summand(to, operand) for operand in operands]).operand
    return Operand(kind, total.text)


class _Summand:
    def __init__(self, to: Emitter, operand: Operand) -> None:
        self._to = to
        self.operand = operand

    def __add__(self, other: _Summand) -> _Summand:
        return _Summand(self._to, _add(self._to, [self.operand, other.operand]))


def _extreme(name: str) -> Emit:
    """x where it is *name* than y, or NaN; else y."""

    def emit(to: Emitter, operands: Sequence[Operand]) -> Operand:
        kind = _one_type(operands, FLOATS, INTEGERS)
        x, y = operands
        llvm = LLVM_NAMES[kind]
        if kind in FLOATS:
            wins = to.value(f"fcmp o{name} {llvm} {x.text}, {y.text}")
            is_nan = to.value(f"fcmp uno {llvm} {x.text}, {x.text}")
            wins = to.value(f"or i1 {wins}, {is_nan}")
        else:
            wins = to.value(f"icmp s{name} {llvm} {x.text}, {y.text}")
        return to.emit(kind, f"select i1 {wins}, {llvm} {x.text}, {llvm} {y.text}", 2)

    return emit


def _array_extreme(name: str, function: Kernel) -> Emit:
    """The same by a *function* of arrays, which may decide about equal numbers as it likes."""
    plain = _extreme(name)
    if _gives_second(function):
        return plain

    def emit(to: Emitter, operands: Sequence[Operand]) -> Operand:
        x, y = operands
        if x.type in FLOATS and x.type is y.type:
            llvm, bits = LLVM_NAMES[x.type], f"i{BITS[x.type]}"
            differ = to.value(f"fcmp one {llvm} {x.text}, {y.text}")
            of_x = to.value(f"bitcast {llvm} {x.text} to {bits}")
            of_y = to.value(f"bitcast {llvm} {y.text} to {bits}")
            are_same = to.value(f"icmp eq {bits} {of_x}, {of_y}")
            to.bail_unless(to.value(f"or i1 {differ}, {are_same}"))
        return plain(to, operands)

    return emit


def _gives_second(function: Kernel) -> bool:
    """Whether *function* gives the second of two zeros, of vectors and of what is left of a long one."""
    for kind in FLOATS:
        zeros: Any = np.zeros(_ODD, kind)
        for x, y in ((zeros, -zeros), (-zeros, zeros)):
            for first, second in ((x, y), (x[0], y), (x, y[0]), (x[:1], y[:1]), (x[0], y[0])):
                if np.any(np.signbit(function(first, second)) != np.signbit(second)):
                    return False
    return True


def _clip_by_value(to: Emitter, operands: Sequence[Operand]) -> Operand:
    x, low, high = operands
    return _maximum(to, [_minimum(to, [x, high]), low])


def _relu(to: Emitter, operands: Sequence[Operand]) -> Operand:
    kind = _one_type(operands, FLOATS, INTEGERS)
    return _maximum(to, [*operands, to.constant(kind(0))])


def _relu6(to: Emitter, operands: Sequence[Operand]) -> Operand:
    x = _relu(to, operands)
    return _minimum(to, [x, to.constant(x.type(6))])


def _select(to: Emitter, operands: Sequence[Operand]) -> Operand:
    condition, x, y = operands
    if condition.type is not B1:
        raise NotNativeError
    llvm = LLVM_NAMES[_one_type([x, y], FLOATS, INTEGERS, _BOOL)]
    return to.emit(x.type, f"select i1 {condition.text}, {llvm} {x.text}, {llvm} {y.text}")


# Division of integers.

_DIVISION: Final = 8  # what it costs


def _can_divide(to: Emitter, operands: Sequence[Operand]) -> tuple[str, str]:
    """The name of the type, and a divisor that does no harm; what has no quotient is left to Python."""
    kind = _one_type(operands, INTEGERS)
    x, y = operands
    llvm = LLVM_NAMES[kind]
    is_zero = to.value(f"icmp eq {llvm} {y.text}, 0")
    is_least = to.value(f"icmp eq {llvm} {x.text}, {-(2 ** (BITS[kind] - 1))}")
    is_minus_one = to.value(f"icmp eq {llvm} {y.text}, -1")
    has_none = to.value(f"or i1 {is_zero}, {to.value(f'and i1 {is_least}, {is_minus_one}')}")
    to.bail_if(has_none)
    return llvm, to.value(f"select i1 {has_none}, {llvm} 1, {llvm} {y.text}")  # for who does not leave at once


def _truncating_quotient(to: Emitter, operands: Sequence[Operand]) -> Operand:
    llvm, divisor = _can_divide(to, operands)
    return to.emit(operands[0].type, f"sdiv {llvm} {operands[0].text}, {divisor}", _DIVISION)


def _truncating_remainder(to: Emitter, operands: Sequence[Operand]) -> Operand:
    llvm, divisor = _can_divide(to, operands)
    return to.emit(operands[0].type, f"srem {llvm} {operands[0].text}, {divisor}", _DIVISION)


def _floor_division(to: Emitter, operands: Sequence[Operand], *, remainder: bool) -> Operand:
    x, y = operands
    llvm, divisor = _can_divide(to, operands)
    rest = to.emit(x.type, f"srem {llvm} {x.text}, {divisor}", _DIVISION).text
    has_rest = to.value(f"icmp ne {llvm} {rest}, 0")
    signs_differ = to.value(f"icmp slt {llvm} {to.value(f'xor {llvm} {rest}, {y.text}')}, 0")
    is_off = to.value(f"and i1 {has_rest}, {signs_differ}")
    if remainder:
        return to.emit(x.type, f"add {llvm} {rest}, {to.value(f'select i1 {is_off}, {llvm} {y.text}, {llvm} 0')}")
    quotient = to.value(f"sdiv {llvm} {x.text}, {divisor}")
    return to.emit(x.type, f"sub {llvm} {quotient}, {to.value(f'zext i1 {is_off} to {llvm}')}")


def _float_quotient(rounded: str) -> Emit:
    divide, to_integer = _arithmetic("fdiv", None, _DIVISION), _numeric_intrinsic(rounded, 2)
    return lambda to, operands: to_integer(to, [divide(to, operands)])


# Tests and conversions.


def _is_nan(to: Emitter, operands: Sequence[Operand]) -> Operand:
    llvm, x = LLVM_NAMES[_one_type(operands, FLOATS)], operands[0].text
    return to.emit(B1, f"fcmp uno {llvm} {x}, {x}")


def _to_infinity(comparison: str) -> Emit:
    def emit(to: Emitter, operands: Sequence[Operand]) -> Operand:
        size = _intrinsic("fabs", 1)(to, operands)
        return to.emit(B1, f"fcmp {comparison} {LLVM_NAMES[size.type]} {size.text}, 0x7FF0000000000000")

    return emit


def _same(to: Emitter, operands: Sequence[Operand]) -> Operand:
    return operands[0]


def _side(sides: int, to: Emitter, operands: Sequence[Operand]) -> Operand:
    kind = _one_type(operands, INTEGERS)
    index = operands[0].text if kind is I8 else to.value(f"sext i32 {operands[0].text} to i64")
    is_one = to.value(f"icmp ult i64 {index}, {sides}")
    return to.emit(I8, f"select i1 {is_one}, i64 {index}, i64 {sides - 1}")


def cast_to(target: ScalarType, to: Emitter, operands: Sequence[Operand]) -> Operand:
    """The one of *operands* as a *target*."""
    (x,) = operands
    if x.type is target:
        return x
    source, wanted = LLVM_NAMES[x.type], LLVM_NAMES[target]
    if target is B1:
        test = "fcmp une" if x.type in FLOATS else "icmp ne"
        return to.emit(B1, f"{test} {source} {x.text}, {'0.0' if x.type in FLOATS else 0}")
    if x.type in FLOATS and target in INTEGERS:
        limit = 2 ** (BITS[target] - 1)
        above = f"ogt {source} {x.text}, {float(-limit - 1)!r}" if (x.type, target) == (F8, I4) else None
        low = to.value(f"fcmp {above or f'oge {source} {x.text}, {_hex(-limit)}'}")
        high = to.value(f"fcmp olt {source} {x.text}, {_hex(limit)}")
        to.bail_unless(to.value(f"and i1 {low}, {high}"))
        # What is out of range has no bits at all unless they are frozen; who bails out at once does not mind.
        return to.emit(target, f"freeze {wanted} {to.value(f'fptosi {source} {x.text} to {wanted}')}")
    text = x.text
    if target in FLOATS and x.type not in FLOATS:  # LLVM is not to know what it is
        text = to.value(f"xor {source} {text}, {to.zero(x.type)}")
    return to.emit(target, f"{_conversion(x.type, target)} {source} {text} to {wanted}")


def _hex(value: int) -> str:
    return f"0x{np.float64(value).view(np.uint64):016X}"


def _conversion(source: ScalarType, target: ScalarType) -> str:
    if source is B1:
        return "uitofp" if target in FLOATS else "zext"
    if source in INTEGERS:
        return "sitofp" if target in FLOATS else "sext" if target is I8 else "trunc"
    return "fpext" if target is F8 else "fptrunc"


_add: Final = _arithmetic("fadd", "add")
_subtract: Final = _arithmetic("fsub", "sub")
_multiply: Final = _arithmetic("fmul", "mul")
_maximum: Final = _array_extreme("gt", np.maximum)
_minimum: Final = _array_extreme("lt", np.minimum)
_square_root: Final = _numeric_intrinsic("sqrt", _DIVISION)
_BY_KERNEL: Final[Mapping[Any, Emit]] = {
    operator.add: _add,
    operator.sub: _subtract,
    operator.mul: _multiply,
    operator.truediv: _arithmetic("fdiv", None, _DIVISION),
    operator.lt: _comparison("olt", "slt"),
    operator.le: _comparison("ole", "sle"),
    operator.gt: _comparison("ogt", "sgt"),
    operator.ge: _comparison("oge", "sge"),
    operator.eq: _comparison("oeq", "eq", of_bools=True),
    operator.ne: _comparison("une", "ne", of_bools=True),
    operator.and_: _bitwise("and"),
    operator.or_: _bitwise("or"),
    operator.xor: _bitwise("xor"),
    operator.invert: _invert,
    operator.neg: _negative,
    operator.pos: _same,
    operator.abs: _absolute,
    square: _square,
    squared_difference: _squared_difference,
    reciprocal: _reciprocal,
    **{add: partial(_sum, add) for add in (add_in_groups, add_up, add_group)},
    add_n: partial(_sum, add_in_groups),
    maximum_of_scalars: _extreme("gt"),
    minimum_of_scalars: _extreme("lt"),
    np.maximum: _maximum,
    np.minimum: _minimum,
    clip_by_value: _clip_by_value,
    relu6: _relu6,
    np.sqrt: _square_root,
    rsqrt: lambda to, operands: _reciprocal(to, [_square_root(to, operands)]),
    np.floor: _numeric_intrinsic("floor", 2),
    np.ceil: _numeric_intrinsic("ceil", 2),
    np.rint: _numeric_intrinsic("rint", 2),
    floor_quotient: _float_quotient("floor"),
    truncated_quotient: _float_quotient("trunc"),
    np.isnan: _is_nan,
    np.isinf: _to_infinity("oeq"),
    np.isfinite: _to_infinity("olt"),
    choose: _select,
    select: _select,
    select_v2: _select,
    truth: partial(cast_to, B1),
    same: _same,
    **{relu(np.dtype(kind)): _relu for kind in FLOATS | INTEGERS},
    **{rounding(np.dtype(kind)): partial(cast_to, kind) for kind in LLVM_NAMES},
    **{kind: partial(cast_to, kind) for kind in LLVM_NAMES},
}
_DIVISIONS: Final[Mapping[Any, Emit]] = {
    operator.floordiv: partial(_floor_division, remainder=False),
    operator.mod: partial(_floor_division, remainder=True),
    np.fmod: _truncating_remainder,
    truncating_quotient: _truncating_quotient,
}
_BY_ID: Final[Mapping[int, Emit]] = {
    **{id(kernel): emit for kernel, emit in _BY_KERNEL.items()},
    **{id(kernel): _DIVISIONS[function] for kernel, function in WITH_CHECK.items() if function in _DIVISIONS},
}
INTRINSICS: Final = "".join(
    f"declare {llvm} @llvm.{name}.{suffix}({llvm})\n"
    for name in ("fabs", "sqrt", "floor", "ceil", "rint", "trunc")
    for llvm, suffix in (("float", "f32"), ("double", "f64"))
)


def emit_of(kernel: Kernel) -> Emit | None:
    """What writes the instructions of *kernel*; it raises NotNativeError for types of which there are none."""
    if isinstance(kernel, partial):
        return partial(_side, *kernel.args) if kernel.func is choose_side else None
    return _BY_ID.get(id(kernel))


def is_native(kernel: Kernel, types: tuple[ScalarType, ...]) -> bool:
    """Whether there are instructions for *kernel* with inputs of these *types*."""
    emit = emit_of(kernel)
    if emit is None:
        return False
    try:
        emit(Emitter(), [Operand(kind, "0") for kind in types])
    except NotNativeError:
        return False
    return True
