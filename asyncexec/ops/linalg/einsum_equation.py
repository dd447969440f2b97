"""Equations of Einsum and what they say of shapes (``ParseEinsumEquation``, ``EinsumShape`` in TensorFlow).

``inputs->output``: one or two input subscripts, separated by a comma.  Every byte is a label, save an ellipsis
(``...``), which stands for any number of dimensions and broadcasts; labelled dimensions never do.  A label twice in an
input takes the diagonal, twice in the output puts the values on the diagonal of zeros.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.shape_inference import InferenceContext, broadcast_shapes
from asyncexec.framework.tensor_shape import SCALAR, UNKNOWN_SHAPE, Dim, TensorShape
from asyncexec.ops.linalg.linalg_shapes import merge_dim


@dataclass(frozen=True, slots=True)
class Subscript:
    """The labels before and after the ellipsis, if there is one (else all are before it)."""

    before: bytes
    after: bytes
    has_ellipsis: bool

    @property
    def labels(self) -> bytes:
        return self.before + self.after


@dataclass(frozen=True, slots=True)
class Equation:
    """A parsed equation; its ``text`` is for messages."""

    text: str
    inputs: tuple[Subscript, ...]
    output: Subscript


def parse_equation(equation: bytes, num_inputs: int) -> Equation:
    """The parts of *equation*; InvalidArgumentError when it is not one for *num_inputs* inputs."""
    text = equation.decode("utf-8", "replace")
    sides = equation.split(b"->")
    if len(sides) != 2:
        raise InvalidArgumentError(f"Expecting exactly one '->' in einsum equation: {text}")
    inputs = tuple(_parse_subscript(part) for part in sides[0].split(b","))
    if len(inputs) > 2:
        raise InvalidArgumentError(f"Expecting 1 or 2 input subscripts in equation {text!r} but got: {len(inputs)}")
    if len(inputs) != num_inputs:
        raise InvalidArgumentError(f"Expected {len(inputs)} inputs for equation {text!r} but got: {num_inputs}")
    output = _parse_subscript(sides[1])
    known = b"".join(subscript.labels for subscript in inputs)
    for label in output.labels:
        if label not in known:
            raise InvalidArgumentError(
                f"Einsum output subscripts for equation {text!r} have the label {chr(label)!r}, which no input has"
            )
    return Equation(text, inputs, output)


def _parse_subscript(part: bytes) -> Subscript:
    before, dots, after = part.partition(b"...")
    if b"." in before or b"." in after:
        raise InvalidArgumentError(
            f"Expected at most one ellipsis (...), but found {part.count(b'.')} periods (.) in a subscript: "
            + part.decode("utf-8", "replace")
        )
    return Subscript(before, after, bool(dots))


def split_shape(equation: Equation, index: int, dims: Sequence[Dim]) -> tuple[list[Dim], list[Dim]]:
    """The sizes that the labels of input *index* have, and those that its ellipsis stands for."""
    subscript = equation.inputs[index]
    count, rank = len(subscript.labels), len(dims)
    if rank < count or (rank > count and not subscript.has_ellipsis):
        least = "at least " if subscript.has_ellipsis else ""
        raise InvalidArgumentError(
            f"Shape must be {least}rank {count} but is rank {rank} for input {index} and equation: {equation.text}"
        )
    start, stop = len(subscript.before), rank - len(subscript.after)
    if stop > start and not equation.output.has_ellipsis:
        raise InvalidArgumentError(
            f"An ellipsis stands for {stop - start} dimensions in equation {equation.text!r} without ellipsis in the"
            " output subscripts"
        )
    return [*dims[:start], *dims[stop:]], list(dims[start:stop])


def label_sizes(equation: Equation, parts: Sequence[tuple[Sequence[Dim], Sequence[Dim]]]) -> dict[int, Dim]:
    """The size of each label, from the *parts* of ``split_shape`` of all inputs; they must agree."""
    sizes: dict[int, Dim] = {}
    for subscript, (dims, _) in zip(equation.inputs, parts, strict=True):
        for label, dim in zip(subscript.labels, dims, strict=True):
            sizes[label] = merge_dim(sizes.get(label), dim)
    return sizes


def einsum_shape(c: InferenceContext) -> Sequence[TensorShape]:
    """The static shape of Einsum."""
    equation = parse_equation(c.attr("equation"), c.num_inputs)
    ellipsis = SCALAR
    sizes: dict[int, Dim] = {}
    for index, shape in enumerate(c.input_shapes):
        if shape.dims is None:
            if equation.inputs[index].has_ellipsis:
                ellipsis = UNKNOWN_SHAPE
            continue
        dims, dotted = split_shape(equation, index, shape.dims)
        ellipsis = broadcast_shapes(ellipsis, TensorShape(dotted))
        for label, dim in zip(equation.inputs[index].labels, dims, strict=True):
            sizes[label] = merge_dim(sizes.get(label), dim)
    before = TensorShape(sizes.get(label) for label in equation.output.before)
    after = TensorShape(sizes.get(label) for label in equation.output.after)
    if not equation.output.has_ellipsis:
        return [before]
    return [before.concatenate(ellipsis).concatenate(after)]
