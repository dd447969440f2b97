"""The arguments of a call of an ``@ax.function``: which of them are tensors, and what a trace is made for.

After ``tensorflow/python/eager/polymorphic_function/function_type_utils.py``: tensors, TensorArrays and numpy arrays
are given anew with each call; anything else is part of what the function is traced for, by value where it has a hash,
as the object that it is where it has none.
"""

from __future__ import annotations

import inspect
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from asyncexec.framework.errors import InvalidArgumentError, InvalidTypeError
from asyncexec.framework.tensor_shape import TensorShape, as_shape
from asyncexec.framework.types import DType, as_dtype
from asyncexec.frontend.calls import dtype_of
from asyncexec.frontend.control_flow_context import with_shape
from asyncexec.frontend.create_op import TensorSource, as_tensor
from asyncexec.frontend.nests import flatten, members, pack
from asyncexec.frontend.tensor_array import TensorArray
from asyncexec.graph.node import Tensor

TensorSpec: TypeAlias = tuple[DType, TensorShape]


@dataclass(frozen=True, slots=True, eq=False)
class _Same:
    """A key for *value*, which has no hash to be trusted: equal only to that of the same object."""

    value: Any

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.value is other.value

    def __hash__(self) -> int:
        return id(self.value)


class CallArguments:
    """What a function was called with.

    Attributes:
        tensors: the tensors in it.
        names: what to call their arguments.
        shapes: what a trace may take for granted of their shapes.
        key: what a trace must have been made for, beside fitting shapes.
    """

    def __init__(self, bound: inspect.BoundArguments) -> None:
        self._bound = bound
        self.tensors: list[Tensor] = []
        self.names: list[str] = []
        self.key: Hashable = self._key_of(bound.arguments, "")
        self.shapes: list[TensorShape] = [tensor.shape for tensor in self.tensors]

    def fits(self, shapes: Sequence[TensorShape]) -> bool:
        """Whether a trace that takes *shapes* for granted can be called with these."""
        return all(
            _is_within(given, wanted) or tensor.dtype.is_opaque
            for tensor, given, wanted in zip(self.tensors, self.shapes, shapes, strict=True)
        )

    def call(self, function: Callable[..., Any], tensors: Sequence[Tensor]) -> Any:
        """The result of *function*, called with these arguments and *tensors* in the place of the tensors."""
        given = iter(tensors)
        arguments = {name: _replaced(value, given) for name, value in self._bound.arguments.items()}
        bound = inspect.BoundArguments(self._bound.signature, OrderedDict(arguments))
        return function(*bound.args, **bound.kwargs)

    def _key_of(self, value: object, where: str) -> Hashable:
        if isinstance(value, TensorArray):
            self.tensors += [value.handle, value.flow]
            self.names += [f"{where}_handle", f"{where}_flow"]
            return (TensorArray, value.elements_key)
        if isinstance(value, (Tensor, np.ndarray, np.generic)):
            tensor = as_tensor(value)
            self.tensors.append(tensor)
            self.names.append(where)
            return (Tensor, dtype_of(tensor))
        found = members(value)
        if found is None:
            return constant_key(value)
        return (type(value), tuple((step, self._key_of(member, where + step)) for step, member in found))


def constant_key(value: object) -> Hashable:
    """What is equal for values that can stand for one another, whether they have a hash or not."""
    if isinstance(value, TensorSource):
        return _Same(value)
    if isinstance(value, (float, complex)):
        return (type(value), repr(value))  # 0.0 == -0.0
    try:
        hash(value)
    except TypeError:
        return _Same(value)
    return (type(value), value)


def _is_within(given: TensorShape, wanted: TensorShape) -> bool:
    """Whether whatever is of shape *given* is of shape *wanted* too."""
    if wanted.dims is None:
        return True
    return given.rank == wanted.rank and all(
        want is None or want == got for want, got in zip(wanted.dims, given.dims or (), strict=True)
    )


def _replaced(value: object, tensors: Iterator[Tensor]) -> object:
    """*value* with *tensors* for those in it; *value* itself where there are none."""
    found = flatten(value)
    if not any(isinstance(leaf, (TensorArray, Tensor, np.ndarray, np.generic)) for leaf in found):
        return value
    return pack(value, [_replaced_leaf(leaf, tensors) for leaf in found])


def _replaced_leaf(leaf: object, tensors: Iterator[Tensor]) -> object:
    if isinstance(leaf, TensorArray):
        handle = next(tensors)
        return leaf.with_own_elements(next(tensors), handle)
    return next(tensors) if isinstance(leaf, (Tensor, np.ndarray, np.generic)) else leaf


def graph_hints(args: Sequence[object], kwargs: Mapping[str, object]) -> list[Tensor]:
    """The tensors in the arguments, which tell the graph to call in; none where all are plain values."""
    found = [leaf.flow if isinstance(leaf, TensorArray) else leaf for leaf in flatten([*args, kwargs])]
    sources = [leaf.fetched_tensor() if isinstance(leaf, TensorSource) else leaf for leaf in found]
    return [leaf for leaf in sources if isinstance(leaf, Tensor)]


class Signature:
    """How function *name* takes its arguments, and the *specs* of its tensors where these are fixed."""

    def __init__(self, function: Callable[..., Any], name: str, specs: Sequence[TensorSpec] | None) -> None:
        self._signature = inspect.signature(function)
        self._name = name
        self._specs = specs

    def bind(self, args: tuple[object, ...], kwargs: dict[str, object]) -> CallArguments:
        """The arguments of a call, defaults filled in.

        Raises:
            InvalidTypeError: they are not those that the function takes, or of other dtypes than the specs.
            InvalidArgumentError: a shape does not fit the specs.
        """
        try:
            bound = self._signature.bind(*args, **kwargs)
        except TypeError as error:
            raise InvalidTypeError(f"function {self._name!r}: {error}") from None
        bound.apply_defaults()
        if self._specs is None:
            return CallArguments(bound)
        bound.arguments = OrderedDict(zip(bound.arguments, self._converted(bound.arguments), strict=True))
        found = CallArguments(bound)
        found.shapes = [shape for _, shape in self._specs]
        return found

    def _converted(self, given: Mapping[str, Any]) -> list[Tensor]:
        specs = self._specs or ()
        if len(given) != len(specs):
            raise InvalidTypeError(
                f"the input_signature of function {self._name!r} has {len(specs)} tensors, but the function has "
                f"{len(given)} parameters"
            )
        return [self._one_converted(name, *pair) for (name, *pair) in zip(given, given.values(), specs, strict=True)]

    def _one_converted(self, name: str, value: object, spec: TensorSpec) -> Tensor:
        dtype, shape = spec
        tensor = as_tensor(value, dtype)
        if not dtype.is_opaque and not tensor.shape.is_compatible_with(shape):
            raise InvalidArgumentError(
                f"argument {name!r} of function {self._name!r} is of shape {tensor.shape}, but its input_signature "
                f"has {shape}",
                node=tensor.op,
            )
        return with_shape(tensor, shape)


def tensor_specs(input_signature: Any) -> list[TensorSpec]:
    """*input_signature*, pairs of dtype and shape or tensors that have these; InvalidTypeError when it is not."""
    specs: list[TensorSpec] = []
    for spec in input_signature:
        if isinstance(spec, Tensor):
            specs.append((dtype_of(spec), spec.shape))
        elif isinstance(spec, (tuple, list)) and len(spec) == 2:
            specs.append((as_dtype(spec[0]), as_shape(spec[1])))
        else:
            raise InvalidTypeError(f"an input_signature is a list of pairs of dtype and shape, and {spec!r} is none")
    return specs
