"""Functions of numbers and arrays, with torch's rules for types, for expressions and for operators of their own.

A Python number never makes an array wider, nor does an array without dimensions, and what is inexact of integers is
float32.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from asyncexec.framework.arrays import Array, ArrayOrScalar
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.extras import require
from asyncexec.framework.kernel import Kernel
from asyncexec.ops.pnnx.pnnx_kernels import PnnxNode, pnnx_kernel

_MAX_SHIFT: Final = 63


def with_types_of_torch(function: Callable[..., object]) -> Callable[..., object]:
    """*function* of numpy's, which gives Python numbers for such, and arrays of torch's types for arrays."""

    def call(*values: object) -> Any:
        if not any(isinstance(value, (np.ndarray, np.generic)) for value in values):
            result = function(*values)
            return result.item() if isinstance(result, np.generic) else result
        return as_dtype_of_torch(function(*_weakened(values)), values)

    return call


def _weakened(values: Sequence[object]) -> list[object]:
    """*values*, where those without dimensions are numbers if there is an array of a kind that holds them."""
    kinds = ["biufc".find(value.dtype.kind) for value in values if isinstance(value, np.ndarray) and value.ndim]
    widest = max(kinds, default=-1)
    return [
        value.item() if isinstance(value, np.generic) and "biufc".find(value.dtype.kind) <= widest else value
        for value in values
    ]


def as_dtype_of_torch(result: object, values: Sequence[object]) -> object:
    """*result* as float32 where numpy has made float64 of *values* that have no such type."""
    if isinstance(result, (np.ndarray, np.generic)) and result.dtype == np.float64:
        arrays = [value for value in values if isinstance(value, (np.ndarray, np.generic))]
        if arrays and all(value.dtype.name not in ("float64", "complex128") for value in arrays):
            return result.astype(np.float32)
    return result


def sigmoid(x: Array) -> Array:
    """1 / (1 + exp(-x))."""
    return np.reciprocal(1 + np.exp(-x))


def load_erf() -> Callable[[Any], Any]:
    """The error function, whose library is loaded now."""
    function: Callable[[Any], object] = require("scipy.special", extra="ops").erf
    return function


def _size(x: ArrayOrScalar, dim: object = None) -> object:
    shape = np.shape(x)
    if dim is None:
        return shape
    if not isinstance(dim, int) or not -len(shape) <= dim < len(shape):
        raise InvalidArgumentError(f"size: a tensor of shape {list(shape)} has no dimension {dim!r}")
    return shape[dim]


def _power(x: Any, y: int | float) -> ArrayOrScalar:
    if isinstance(x, int) and isinstance(y, int):
        x = float(x) if y < 0 else np.int64(x)
    return np.power(x, y)


def _to_int(x: Any) -> object:
    return np.trunc(x).astype(np.int64) if isinstance(x, np.ndarray) else int(x)


def _shift(function: Callable[..., object]) -> Callable[..., object]:
    def shift(x: object, count: object) -> Any:
        if np.any(np.asarray(count) > _MAX_SHIFT) or np.any(np.asarray(count) < 0):
            raise InvalidArgumentError(f"shifts go from 0 to {_MAX_SHIFT} places")
        return function(x, count)

    return shift


def _scaled_add(sign: int) -> Callable[..., object]:
    def add(x: ArrayOrScalar | int, y: ArrayOrScalar | float, alpha: int = 1) -> Array:
        scaled = y if alpha == 1 else np.multiply(y, alpha)
        return np.add(x, scaled) if sign > 0 else np.subtract(x, scaled)

    return add


_UNARY: Final[dict[str, Callable[..., object]]] = {
    "abs": np.abs,
    "acos": np.arccos,
    "acosh": np.arccosh,
    "asin": np.arcsin,
    "asinh": np.arcsinh,
    "atan": np.arctan,
    "atanh": np.arctanh,
    "bitwise_not": np.invert,
    "ceil": np.ceil,
    "cos": np.cos,
    "cosh": np.cosh,
    "erf": lambda x: load_erf()(x),
    "exp": np.exp,
    "expm1": np.expm1,
    "floor": np.floor,
    "isfinite": np.isfinite,
    "isinf": np.isinf,
    "isnan": np.isnan,
    "log": np.log,
    "log10": np.log10,
    "log1p": np.log1p,
    "log2": np.log2,
    "logical_not": np.logical_not,
    "neg": np.negative,
    "positive": np.positive,
    "reciprocal": lambda x: np.true_divide(1, x),
    "round": np.round,
    "rsqrt": lambda x: np.true_divide(1, np.sqrt(x)),
    "sigmoid": sigmoid,
    "sign": np.sign,
    "sin": np.sin,
    "sinh": np.sinh,
    "sqrt": np.sqrt,
    "square": np.square,
    "tan": np.tan,
    "tanh": np.tanh,
    "trunc": np.trunc,
}
_BINARY: Final[dict[str, Callable[..., object]]] = {
    "atan2": np.arctan2,
    "bitwise_and": np.bitwise_and,
    "bitwise_left_shift": _shift(np.left_shift),
    "bitwise_or": np.bitwise_or,
    "bitwise_right_shift": _shift(np.right_shift),
    "bitwise_xor": np.bitwise_xor,
    "div": np.true_divide,
    "eq": np.equal,
    "floor_divide": np.floor_divide,
    "fmod": np.fmod,
    "ge": np.greater_equal,
    "gt": np.greater,
    "le": np.less_equal,
    "logaddexp": np.logaddexp,
    "logical_and": np.logical_and,
    "logical_or": np.logical_or,
    "logical_xor": np.logical_xor,
    "lt": np.less,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "mul": np.multiply,
    "ne": np.not_equal,
    "pow": _power,
    "remainder": np.remainder,
}
# Expressions spell some of them as Python does.
_ALIASES: Final = {
    "and": "bitwise_and",
    "or": "bitwise_or",
    "xor": "bitwise_xor",
    "lshift": "bitwise_left_shift",
    "rshift": "bitwise_right_shift",
    "max": "maximum",
    "min": "minimum",
}

_ARITHMETIC: Final = {name: with_types_of_torch(function) for name, function in {**_UNARY, **_BINARY}.items()}
ADD: Final = with_types_of_torch(_scaled_add(1))
SUBTRACT: Final = with_types_of_torch(_scaled_add(-1))

# The functions of expressions, and how many values each takes.
FUNCTIONS: Final[dict[str, tuple[Callable[..., object], tuple[int, ...]]]] = {
    **{name: (_ARITHMETIC[name], (1,)) for name in _UNARY},
    **{name: (_ARITHMETIC[name], (2,)) for name in _BINARY},
    **{name: (_ARITHMETIC[other], (2,)) for name, other in _ALIASES.items()},
    "add": (ADD, (2, 3)),
    "sub": (SUBTRACT, (2, 3)),
    "rsub": (lambda x, y, alpha=1: SUBTRACT(y, x, alpha), (2, 3)),
    "size": (_size, (1, 2)),
    "int": (_to_int, (1,)),
    "float": (lambda x: x if isinstance(x, np.ndarray) else float(x), (1,)),
    "bool": (lambda x: bool(np.all(x)), (1,)),
}


def _function_of(node: PnnxNode) -> Callable[..., object]:
    return _ARITHMETIC[node.type.partition(".")[2]]


@pnnx_kernel(*(f"torch.{name}" for name in _UNARY))
def _unary(node: PnnxNode) -> Kernel:
    function = _function_of(node)
    return lambda x: function(x)  # not itself: to numpy's, a second input is an array to write to


@pnnx_kernel(*(f"torch.{name}" for name in _BINARY))
def _binary(node: PnnxNode) -> Kernel:
    function = _function_of(node)
    if node.num_inputs == 1:
        name = "exponent" if node.type == "torch.pow" else "other"
        return _with_constant(function, node, name)
    order = node.in_order("input", "exponent" if node.type == "torch.pow" else "other")
    return lambda *inputs: function(*order(inputs))


def _with_constant(function: Callable[..., object], node: PnnxNode, name: str) -> Kernel:
    other = node.param(name)
    if node.param("self") is not None:
        first = node.param("self")
        return lambda x: function(first, x)
    if not isinstance(other, (int, float)):
        raise node.error(f"parameter {name!r} is {other!r}, not a number")
    return lambda x: function(x, other)


@pnnx_kernel("torch.add", "torch.sub")
def _add(node: PnnxNode) -> Kernel:
    function = ADD if node.type == "torch.add" else SUBTRACT
    alpha = node.number("alpha", 1)
    if node.num_inputs == 1:
        return _with_constant(lambda x, y: function(x, y, alpha), node, "other")
    order = node.in_order("input", "other")
    return lambda *inputs: function(*order(inputs), alpha)


@pnnx_kernel("torch.clamp", "torch.clip")
def _clamp(node: PnnxNode) -> Kernel:
    low, high = node.param("min"), node.param("max")
    clip = with_types_of_torch(lambda x: np.clip(x, low, high))
    return lambda x: clip(x)


@pnnx_kernel("torch.where")
def _where(node: PnnxNode) -> Kernel:
    order = node.in_order("condition", "input", "other")
    x_param, y_param = node.param("input"), node.param("other")
    choose = with_types_of_torch(np.where)

    def where(*inputs: object) -> Any:
        condition, x, y = order(inputs)
        return choose(condition, x_param if x is None else x, y_param if y is None else y)

    return where


@pnnx_kernel("aten::clamp_min", "aten::clamp_max")
def _clamp_one_side(node: PnnxNode) -> Kernel:
    name = node.type[-3:]
    function = _ARITHMETIC["maximum" if name == "min" else "minimum"]
    return function if node.num_inputs == 2 else _with_constant(function, node, name)
