"""Functions of several tensors, element by element: arithmetic, comparison, logic, bits, choice.

Names are those of ``tf.math``, ``tf.bitwise`` and ``tf``.  The operands are of one dtype and are broadcast against each
other; a Python value takes the dtype of the tensor beside it.  InvalidTypeError when dtypes differ,
InvalidArgumentError when
shapes cannot be broadcast.
"""

from __future__ import annotations

from collections.abc import Sequence

from asyncexec.framework import types
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.frontend.basic_functions import cast, identity
from asyncexec.frontend.calls import TensorLike, composite, dtype_of, in_graph_of, same_dtype, tensor_op
from asyncexec.graph.node import Tensor

_FLOAT32_QUOTIENT = frozenset({types.int8, types.uint8, types.int16, types.uint16})


def add(x: TensorLike, y: TensorLike, name: str | None = None) -> Tensor:
    """x + y, for numbers and strings."""
    first, second = same_dtype(x, y)
    return tensor_op("Add" if dtype_of(first) is types.string else "AddV2", [first, second], name)


def truediv(x: TensorLike, y: TensorLike, name: str | None = None) -> Tensor:
    """x / y as Python divides: integers of 8 and 16 bits give float32, wider ones float64, floats their own dtype."""
    first, second = same_dtype(x, y)
    if dtype_of(first).is_integer:
        wanted = types.float32 if dtype_of(first) in _FLOAT32_QUOTIENT else types.float64
        first, second = cast(first, wanted), cast(second, wanted)
    return tensor_op("RealDiv", [first, second], name)


def divide(x: TensorLike, y: TensorLike, name: str | None = None) -> Tensor:
    """x / y as Python divides; the same as truediv."""
    return truediv(x, y, name)


def subtract(x: TensorLike, y: TensorLike, name: str | None = None) -> Tensor:
    """x - y, for numbers."""
    return tensor_op("Sub", [x, y], name)


def multiply(x: TensorLike, y: TensorLike, name: str | None = None) -> Tensor:
    """x * y, for numbers."""
    return tensor_op("Mul", [x, y], name)


def floordiv(x: TensorLike, y: TensorLike, name: str | None = None) -> Tensor:
    """The quotient rounded towards minus infinity; integers fail on division by zero when the graph runs."""
    return tensor_op("FloorDiv", [x, y], name)


def floormod(x: TensorLike, y: TensorLike, name: str | None = None) -> Tensor:
    """What floordiv leaves: a remainder of the sign of y."""
    return tensor_op("FloorMod", [x, y], name)


def mod(x: TensorLike, y: TensorLike, name: str | None = None) -> Tensor:
    """What floordiv leaves: a remainder of the sign of y."""
    return tensor_op("FloorMod", [x, y], name)


def truncatediv(x: TensorLike, y: TensorLike, name: str | None = None) -> Tensor:
    """The quotient rounded towards zero, for numbers."""
    return tensor_op("TruncateDiv", [x, y], name)


def truncatemod(x: TensorLike, y: TensorLike, name: str | None = None) -> Tensor:
    """What truncatediv leaves: a remainder of the sign of x."""
    return tensor_op("TruncateMod", [x, y], name)


def divide_no_nan(x: TensorLike, y: TensorLike, name: str | None = None) -> Tensor:
    """x / y, and 0 where y is 0, for floating and complex numbers."""
    return tensor_op("DivNoNan", [x, y], name)


def multiply_no_nan(x: TensorLike, y: TensorLike, name: str | None = None) -> Tensor:
    """x * y, and 0 where y is 0, even if x is infinite or NaN."""
    return tensor_op("MulNoNan", [x, y], name)


def pow(x: TensorLike, y: TensorLike, name: str | None = None) -> Tensor:  # noqa: A001
    """x ** y; a negative exponent fails for integers."""
    return tensor_op("Pow", [x, y], name)


def maximum(x: TensorLike, y: TensorLike, name: str | None = None) -> Tensor:
    """The larger of x and y."""
    return tensor_op("Maximum", [x, y], name)


def minimum(x: TensorLike, y: TensorLike, name: str | None = None) -> Tensor:
    """The smaller of x and y."""
    return tensor_op("Minimum", [x, y], name)


def squared_difference(x: TensorLike, y: TensorLike, name: str | None = None) -> Tensor:
    """(x - y) ** 2."""
    return tensor_op("SquaredDifference", [x, y], name)


def atan2(y: TensorLike, x: TensorLike, name: str | None = None) -> Tensor:
    """The angle in radians of the point (y, x): the arguments are y first, then x."""
    return tensor_op("Atan2", [y, x], name)


def less(x: TensorLike, y: TensorLike, name: str | None = None) -> Tensor:
    """Whether x < y, as bool, for real numbers."""
    return tensor_op("Less", [x, y], name)


def less_equal(x: TensorLike, y: TensorLike, name: str | None = None) -> Tensor:
    """Whether x <= y, as bool, for real numbers."""
    return tensor_op("LessEqual", [x, y], name)


def greater(x: TensorLike, y: TensorLike, name: str | None = None) -> Tensor:
    """Whether x > y, as bool, for real numbers."""
    return tensor_op("Greater", [x, y], name)


def greater_equal(x: TensorLike, y: TensorLike, name: str | None = None) -> Tensor:
    """Whether x >= y, as bool, for real numbers."""
    return tensor_op("GreaterEqual", [x, y], name)


def equal(x: TensorLike, y: TensorLike, name: str | None = None) -> Tensor:
    """Whether x == y, as bool, for any dtype."""
    return tensor_op("Equal", [x, y], name)


def not_equal(x: TensorLike, y: TensorLike, name: str | None = None) -> Tensor:
    """Whether x != y, as bool, for any dtype."""
    return tensor_op("NotEqual", [x, y], name)


def logical_and(x: TensorLike, y: TensorLike, name: str | None = None) -> Tensor:
    """x and y, for bool."""
    return tensor_op("LogicalAnd", [x, y], name)


def logical_or(x: TensorLike, y: TensorLike, name: str | None = None) -> Tensor:
    """x or y, for bool."""
    return tensor_op("LogicalOr", [x, y], name)


def bitwise_and(x: TensorLike, y: TensorLike, name: str | None = None) -> Tensor:
    """The bits set in both, for integers."""
    return tensor_op("BitwiseAnd", [x, y], name)


def bitwise_or(x: TensorLike, y: TensorLike, name: str | None = None) -> Tensor:
    """The bits set in either, for integers."""
    return tensor_op("BitwiseOr", [x, y], name)


def bitwise_xor(x: TensorLike, y: TensorLike, name: str | None = None) -> Tensor:
    """The bits set in one only, for integers."""
    return tensor_op("BitwiseXor", [x, y], name)


def left_shift(x: TensorLike, y: TensorLike, name: str | None = None) -> Tensor:
    """The bits of x moved up by y, for integers."""
    return tensor_op("LeftShift", [x, y], name)


def right_shift(x: TensorLike, y: TensorLike, name: str | None = None) -> Tensor:
    """The bits of x moved down by y, for integers; the sign is kept."""
    return tensor_op("RightShift", [x, y], name)


def logical_xor(x: TensorLike, y: TensorLike, name: str | None = None) -> Tensor:
    """One of x and y but not both, for bool."""
    with composite(name, "LogicalXor", [x, y]) as scope:
        both = tensor_op("LogicalAnd", [x, y])
        return logical_and(logical_or(x, y), tensor_op("LogicalNot", [both]), scope)


def add_n(inputs: Sequence[TensorLike], name: str | None = None) -> Tensor:
    """The sum of a list of tensors of one shape and dtype; nothing is broadcast."""
    members = list(inputs)
    if not members:
        raise InvalidArgumentError("add_n needs at least one tensor")
    return identity(members[0], name) if len(members) == 1 else tensor_op("AddN", [members], name)


def clip_by_value(
    t: TensorLike, clip_value_min: TensorLike, clip_value_max: TensorLike, name: str | None = None
) -> Tensor:
    """*t* with what is below *clip_value_min* raised to it and what is above *clip_value_max* lowered to it.

    The bounds are scalars or broadcast to the shape of *t*; NaN stays.
    """
    with composite(name, "clip_by_value", [t, clip_value_min, clip_value_max]) as scope:
        return maximum(minimum(t, clip_value_max), clip_value_min, scope)


def where(
    condition: TensorLike, x: TensorLike | None = None, y: TensorLike | None = None, name: str | None = None
) -> Tensor:
    """With *x* and *y*: x where *condition* holds and y elsewhere, all broadcast.  Without: where it holds.

    Returns:
        A tensor of the dtype of x and y; or an int64 matrix with the coordinates of one true (or nonzero) element a
        row.

    Raises:
        InvalidArgumentError: only one of *x* and *y* is given, or the shapes cannot be broadcast.
    """
    if x is None and y is None:
        return tensor_op("Where", [condition], name)
    if x is None or y is None:
        raise InvalidArgumentError("where takes both x and y, or neither")
    return tensor_op("SelectV2", [condition, x, y], name)


def cross(a: TensorLike, b: TensorLike, name: str | None = None) -> Tensor:
    """The cross products of vectors of 3 in the last dimension; both of one shape."""
    return tensor_op("Cross", [a, b], name)


def complex(real: TensorLike, imag: TensorLike, name: str | None = None) -> Tensor:  # noqa: A001
    """Complex numbers from their parts: complex64 from float32, complex128 from float64."""
    first, second = in_graph_of([real, imag])
    wanted = types.complex128 if dtype_of(first) is types.float64 else types.complex64
    return tensor_op("Complex", [first, second], name, Tout=wanted)
