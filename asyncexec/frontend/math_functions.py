"""Functions of several tensors, element by element: arithmetic, comparison, logic, bits, choice.

Names are those of ``tf.math``, ``tf.bitwise`` and ``tf``.  The operands have one dtype and are broadcast against each
other.  A Python value takes the dtype of the tensor beside it.

Raises:
    InvalidTypeError: the operands have different dtypes.
    InvalidArgumentError: the op does not take the dtype, or the shapes cannot be broadcast.
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
    """x + y, for numbers and strings.

    >>> show(ax.add([1, 2], 3))
    [4 5]
    """
    first, second = same_dtype(x, y)
    return tensor_op("Add" if dtype_of(first) is types.string else "AddV2", [first, second], name)


def truediv(x: TensorLike, y: TensorLike, name: str | None = None) -> Tensor:
    """x / y as Python divides: integers of 8 and 16 bits give float32, wider ones float64, floats their own dtype.

    >>> show(ax.truediv([7, 8], 2))
    [3.5 4. ]
    """
    first, second = same_dtype(x, y)
    if dtype_of(first).is_integer:
        wanted = types.float32 if dtype_of(first) in _FLOAT32_QUOTIENT else types.float64
        first, second = cast(first, wanted), cast(second, wanted)
    return tensor_op("RealDiv", [first, second], name)


def divide(x: TensorLike, y: TensorLike, name: str | None = None) -> Tensor:
    """x / y as Python divides; the same as truediv.

    >>> show(ax.divide([7, 8], 2))
    [3.5 4. ]
    """
    return truediv(x, y, name)


def subtract(x: TensorLike, y: TensorLike, name: str | None = None) -> Tensor:
    """x - y, for numbers.

    >>> show(ax.subtract([5, 2], 3))
    [ 2 -1]
    """
    return tensor_op("Sub", [x, y], name)


def multiply(x: TensorLike, y: TensorLike, name: str | None = None) -> Tensor:
    """x * y, for numbers.

    >>> show(ax.multiply([1, 2], 3))
    [3 6]
    """
    return tensor_op("Mul", [x, y], name)


def floordiv(x: TensorLike, y: TensorLike, name: str | None = None) -> Tensor:
    """The quotient rounded towards minus infinity; integers fail on division by zero when the graph runs.

    >>> show(ax.floordiv([7, -7], 2))
    [ 3 -4]
    """
    return tensor_op("FloorDiv", [x, y], name)


def floormod(x: TensorLike, y: TensorLike, name: str | None = None) -> Tensor:
    """The remainder of floordiv; it has the sign of y.

    >>> show(ax.floormod([7, -7], 3))
    [1 2]
    """
    return tensor_op("FloorMod", [x, y], name)


def mod(x: TensorLike, y: TensorLike, name: str | None = None) -> Tensor:
    """The remainder of floordiv; it has the sign of y.

    >>> show(ax.mod([7, -7], 3))
    [1 2]
    """
    return tensor_op("FloorMod", [x, y], name)


def truncatediv(x: TensorLike, y: TensorLike, name: str | None = None) -> Tensor:
    """The quotient rounded towards zero, for numbers.

    >>> show(ax.truncatediv([7, -7], 2))
    [ 3 -3]
    """
    return tensor_op("TruncateDiv", [x, y], name)


def truncatemod(x: TensorLike, y: TensorLike, name: str | None = None) -> Tensor:
    """The remainder of truncatediv; it has the sign of x.

    >>> show(ax.truncatemod([7, -7], 3))
    [ 1 -1]
    """
    return tensor_op("TruncateMod", [x, y], name)


def divide_no_nan(x: TensorLike, y: TensorLike, name: str | None = None) -> Tensor:
    """x / y, and 0 where y is 0, for floating and complex numbers.

    >>> show(ax.divide_no_nan([6.0, 1.0], [2.0, 0.0]))
    [3. 0.]
    """
    return tensor_op("DivNoNan", [x, y], name)


def multiply_no_nan(x: TensorLike, y: TensorLike, name: str | None = None) -> Tensor:
    """x * y, and 0 where y is 0, even if x is infinite or NaN.

    >>> show(ax.multiply_no_nan([3.0, float("inf")], [2.0, 0.0]))
    [6. 0.]
    """
    return tensor_op("MulNoNan", [x, y], name)


def pow(x: TensorLike, y: TensorLike, name: str | None = None) -> Tensor:  # noqa: A001
    """x ** y; a negative exponent fails for integers.

    >>> show(ax.pow([2, 3], 2))
    [4 9]
    """
    return tensor_op("Pow", [x, y], name)


def maximum(x: TensorLike, y: TensorLike, name: str | None = None) -> Tensor:
    """The larger of x and y.

    >>> show(ax.maximum([1, 5], 3))
    [3 5]
    """
    return tensor_op("Maximum", [x, y], name)


def minimum(x: TensorLike, y: TensorLike, name: str | None = None) -> Tensor:
    """The smaller of x and y.

    >>> show(ax.minimum([1, 5], 3))
    [1 3]
    """
    return tensor_op("Minimum", [x, y], name)


def squared_difference(x: TensorLike, y: TensorLike, name: str | None = None) -> Tensor:
    """(x - y) ** 2.

    >>> show(ax.squared_difference([1, 5], 3))
    [4 4]
    """
    return tensor_op("SquaredDifference", [x, y], name)


def atan2(y: TensorLike, x: TensorLike, name: str | None = None) -> Tensor:
    """The angle in radians of the point (y, x): the arguments are y first, then x.

    >>> show(ax.atan2([1.0, -1.0], [1.0, 1.0]))
    [ 0.7854 -0.7854]
    """
    return tensor_op("Atan2", [y, x], name)


def less(x: TensorLike, y: TensorLike, name: str | None = None) -> Tensor:
    """Whether x < y, as bool, for real numbers.

    >>> show(ax.less([1, 2, 3], 2))
    [ True False False]
    """
    return tensor_op("Less", [x, y], name)


def less_equal(x: TensorLike, y: TensorLike, name: str | None = None) -> Tensor:
    """Whether x <= y, as bool, for real numbers.

    >>> show(ax.less_equal([1, 2, 3], 2))
    [ True  True False]
    """
    return tensor_op("LessEqual", [x, y], name)


def greater(x: TensorLike, y: TensorLike, name: str | None = None) -> Tensor:
    """Whether x > y, as bool, for real numbers.

    >>> show(ax.greater([1, 2, 3], 2))
    [False False  True]
    """
    return tensor_op("Greater", [x, y], name)


def greater_equal(x: TensorLike, y: TensorLike, name: str | None = None) -> Tensor:
    """Whether x >= y, as bool, for real numbers.

    >>> show(ax.greater_equal([1, 2, 3], 2))
    [False  True  True]
    """
    return tensor_op("GreaterEqual", [x, y], name)


def equal(x: TensorLike, y: TensorLike, name: str | None = None) -> Tensor:
    """Whether x == y, as bool, for any dtype.

    >>> show(ax.equal([1, 2], [1, 3]))
    [ True False]
    """
    return tensor_op("Equal", [x, y], name)


def not_equal(x: TensorLike, y: TensorLike, name: str | None = None) -> Tensor:
    """Whether x != y, as bool, for any dtype.

    >>> show(ax.not_equal([1, 2], [1, 3]))
    [False  True]
    """
    return tensor_op("NotEqual", [x, y], name)


def logical_and(x: TensorLike, y: TensorLike, name: str | None = None) -> Tensor:
    """x and y, for bool.

    >>> show(ax.logical_and([True, True], [True, False]))
    [ True False]
    """
    return tensor_op("LogicalAnd", [x, y], name)


def logical_or(x: TensorLike, y: TensorLike, name: str | None = None) -> Tensor:
    """x or y, for bool.

    >>> show(ax.logical_or([True, False], [False, False]))
    [ True False]
    """
    return tensor_op("LogicalOr", [x, y], name)


def bitwise_and(x: TensorLike, y: TensorLike, name: str | None = None) -> Tensor:
    """The bits set in both, for integers.

    >>> show(ax.bitwise_and([6, 5], [3, 4]))
    [2 4]
    """
    return tensor_op("BitwiseAnd", [x, y], name)


def bitwise_or(x: TensorLike, y: TensorLike, name: str | None = None) -> Tensor:
    """The bits set in either, for integers.

    >>> show(ax.bitwise_or([6, 5], [3, 4]))
    [7 5]
    """
    return tensor_op("BitwiseOr", [x, y], name)


def bitwise_xor(x: TensorLike, y: TensorLike, name: str | None = None) -> Tensor:
    """The bits set in one only, for integers.

    >>> show(ax.bitwise_xor([6, 5], [3, 4]))
    [5 1]
    """
    return tensor_op("BitwiseXor", [x, y], name)


def left_shift(x: TensorLike, y: TensorLike, name: str | None = None) -> Tensor:
    """The bits of x moved up by y, for integers.

    >>> show(ax.left_shift([1, 3], [2, 1]))
    [4 6]
    """
    return tensor_op("LeftShift", [x, y], name)


def right_shift(x: TensorLike, y: TensorLike, name: str | None = None) -> Tensor:
    """The bits of x moved down by y, for integers; the sign is kept.

    >>> show(ax.right_shift([8, -8], [2, 1]))
    [ 2 -4]
    """
    return tensor_op("RightShift", [x, y], name)


def logical_xor(x: TensorLike, y: TensorLike, name: str | None = None) -> Tensor:
    """One of x and y but not both, for bool.

    >>> show(ax.logical_xor([True, True], [True, False]))
    [False  True]
    """
    with composite(name, "LogicalXor", [x, y]) as scope:
        both = tensor_op("LogicalAnd", [x, y])
        return logical_and(logical_or(x, y), tensor_op("LogicalNot", [both]), scope)


def add_n(inputs: Sequence[TensorLike], name: str | None = None) -> Tensor:
    """The sum of a list of tensors of one shape and dtype; nothing is broadcast.

    >>> show(ax.add_n([[1, 2], [3, 4], [5, 6]]))
    [ 9 12]
    """
    members = list(inputs)
    if not members:
        raise InvalidArgumentError("add_n needs at least one tensor")
    return identity(members[0], name) if len(members) == 1 else tensor_op("AddN", [members], name)


def clip_by_value(
    t: TensorLike, clip_value_min: TensorLike, clip_value_max: TensorLike, name: str | None = None
) -> Tensor:
    """*t* with its elements limited to the range from *clip_value_min* to *clip_value_max*.

    The bounds are scalars or broadcast to the shape of *t*; NaN stays.

    >>> show(ax.clip_by_value([1, 5, 9], 2, 8))
    [2 5 8]
    """
    with composite(name, "clip_by_value", [t, clip_value_min, clip_value_max]) as scope:
        return maximum(minimum(t, clip_value_max), clip_value_min, scope)


def where(
    condition: TensorLike, x: TensorLike | None = None, y: TensorLike | None = None, name: str | None = None
) -> Tensor:
    """x where *condition* is true and y elsewhere, broadcast.  Without *x* and *y*: the coordinates of true elements.

    >>> show(ax.where([True, False], [1, 2], [3, 4]))
    [1 4]
    >>> show(ax.where([False, True]))
    [[1]]

    Returns:
        A tensor of the dtype of x and y; or an int64 matrix, with the coordinates of a true (or nonzero) element in
        each row.

    Raises:
        InvalidArgumentError: only one of *x* and *y* is given, or the shapes cannot be broadcast.
    """
    if x is None and y is None:
        return tensor_op("Where", [condition], name)
    if x is None or y is None:
        raise InvalidArgumentError("where takes both x and y, or neither")
    return tensor_op("SelectV2", [condition, x, y], name)


def cross(a: TensorLike, b: TensorLike, name: str | None = None) -> Tensor:
    """The cross products of vectors of 3 in the last dimension; both of one shape.

    >>> show(ax.cross([1.0, 0.0, 0.0], [0.0, 1.0, 0.0]))
    [0. 0. 1.]
    """
    return tensor_op("Cross", [a, b], name)


def complex(real: TensorLike, imag: TensorLike, name: str | None = None) -> Tensor:  # noqa: A001
    """Complex numbers from their parts: complex64 from float32, complex128 from float64.

    >>> show(ax.complex([1.0, 2.0], [3.0, 4.0]))
    [1.+3.j 2.+4.j]
    """
    first, second = in_graph_of([real, imag])
    wanted = types.complex128 if dtype_of(first) is types.float64 else types.complex64
    return tensor_op("Complex", [first, second], name, Tout=wanted)
