"""What one round of a loop makes of its input and its states: sums of products, which are the same however written.

A *sum* has terms.  A term is the product of *factors*, each what a sigmoid or a tanh gives, and of one *affine* map:
``x @ W + h @ U + b``, where x and h are *sources*.  ``z * h + (1 - z) * g`` and ``g + z * (h - g)`` are the same three
terms.  All of them are matrices with a row for each example, and arrays here tell of columns alone.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

import numpy as np

from asyncexec.framework.arrays import Array

Source: TypeAlias = Hashable
Sum: TypeAlias = "Mapping[tuple[Factor, ...], Affine]"

_MATRIX: Final = 2  # axes
_MOST_TERMS: Final = 16  # of a product: they would double with each


class UnknownFormError(Exception):
    """Something is no sum of products."""


class Affine(NamedTuple):
    """``sum(source @ weights) + bias``; weights that are a number multiply the source itself."""

    weights: Mapping[Source, Array]
    bias: Array


@dataclass(frozen=True, slots=True, eq=False)
class Factor:
    """What the activation *kind* gives of *argument*."""

    kind: str
    argument: Sum


def constant(value: object) -> Sum:
    """A number, or a row."""
    array = np.asarray(value, np.float32)
    if array.size == 1:
        array = array.reshape(())
    elif array.size != array.shape[-1]:
        raise UnknownFormError("a constant has several rows")
    return {(): Affine({}, array.reshape(array.shape[-1:]))}


def source(name: Source) -> Sum:
    """The source itself."""
    return {(): Affine({name: _ONE}, _ZERO)}


def activation(kind: str, argument: Sum) -> Sum:
    """What the activation *kind* gives of *argument*."""
    return {(Factor(kind, argument),): Affine({}, _ONE)}


def added(one: Sum, other: Sum) -> Sum:
    """``one + other``."""
    found = dict(one)
    for factors, affine in other.items():
        found[factors] = _affine_sum(found[factors], affine) if factors in found else affine
    return found


def multiplied(one: Sum, other: Sum) -> Sum:
    """``one * other``, by elements."""
    found: Sum = {}
    if len(one) * len(other) > _MOST_TERMS:
        raise UnknownFormError("too many terms")
    for left, a in one.items():
        for right, b in other.items():
            if a.weights and b.weights:
                raise UnknownFormError("a product of sources")
            affine = _scaled(a, b.bias) if a.weights else _scaled(b, a.bias)
            found = added(found, {tuple(sorted((*left, *right), key=id)): affine})
    return found


def product(one: Sum, matrix: Array) -> Sum:
    """``one @ matrix``, of sources, and of one that is multiplied by one factor, which is a source then."""
    weights: dict[Source, Array] = {}
    for factors, affine in one.items():
        if len(factors) > 1 or affine.bias.any():
            raise UnknownFormError("a product of what is no source")
        for name, scale in affine.weights.items():
            if scale.ndim:
                raise UnknownFormError("a product of a product")
            weights[(factors[0], name) if factors else name] = matrix if scale == 1 else matrix * scale
    if not weights:
        raise UnknownFormError("a product of a constant")
    return {(): Affine(weights, _ZERO)}


def width(one: Sum) -> int:
    """How many columns *one* has."""
    for factors, affine in one.items():
        for array in (*affine.weights.values(), affine.bias):
            if array.ndim:
                return int(array.shape[-1])
        for factor in factors:
            return width(factor.argument)
    raise UnknownFormError("nobody knows how many columns there are")


class Columns:
    """Takes columns *begin* to *end* out of sums; those of one factor are one factor, whoever takes them."""

    def __init__(self) -> None:
        self._factors: dict[tuple[Factor, int, int], Factor] = {}

    def of(self, one: Sum, begin: int, end: int) -> Sum:
        """The columns of *one*."""
        return {
            tuple(sorted((self._of_factor(factor, begin, end) for factor in factors), key=id)): Affine(
                {name: _columns(array, begin, end, is_source=True) for name, array in affine.weights.items()},
                _columns(affine.bias, begin, end),
            )
            for factors, affine in one.items()
        }

    def _of_factor(self, factor: Factor, begin: int, end: int) -> Factor:
        key = (factor, begin, end)
        if key not in self._factors:
            self._factors[key] = Factor(factor.kind, self.of(factor.argument, begin, end))
        return self._factors[key]


def _columns(array: Array, begin: int, end: int, *, is_source: bool = False) -> Array:
    if is_source and array.ndim != _MATRIX:
        raise UnknownFormError("columns of a source")
    return array[..., begin:end] if array.ndim else array


def _affine_sum(one: Affine, other: Affine) -> Affine:
    weights = dict(one.weights)
    for name, array in other.weights.items():
        if name in weights and weights[name].shape != array.shape:
            raise UnknownFormError("a sum of a source and a product of it")
        weights[name] = weights[name] + array if name in weights else array
    return Affine(weights, np.asarray(_with_rows(one.bias, other.bias)))


def _with_rows(one: Array, other: Array) -> object:
    if one.ndim and other.ndim and one.shape != other.shape:
        raise UnknownFormError("a sum of rows of different lengths")
    return one + other


def _scaled(affine: Affine, scale: Array) -> Affine:
    """*affine* times a number, or each column times one."""
    if scale.ndim and any(array.ndim != _MATRIX or array.shape[1:] != scale.shape for array in affine.weights.values()):
        raise UnknownFormError("a source with a number for each column")
    if scale.ndim and affine.bias.ndim and scale.shape != affine.bias.shape:
        raise UnknownFormError("a product of rows of different lengths")
    if not scale.ndim and scale == 1:
        return affine
    weights = {name: np.asarray(array * scale) for name, array in affine.weights.items()}
    return Affine(weights, np.asarray(affine.bias * scale))


_ZERO: Final[Array] = np.zeros((), np.float32)
_ONE: Final[Array] = np.ones((), np.float32)
