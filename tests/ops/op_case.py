"""One call of one op, told as data: it runs on our kernels and, to make the golden answers, on TensorFlow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np


@dataclass(frozen=True)
class OpCase:
    """An op, its flat list of inputs, and its attrs (type attrs, and N of a list, follow from the inputs).

    An input is anything ``np.asarray`` takes, with the dtype meant; strings are ``bytes`` or object arrays of bytes.
    Attr values are as in a decoded node: dtype names as str, ``bytes`` for strings, lists, shapes as lists.
    ``arg_lengths`` says how many inputs a list argument takes where an op has several.
    ``rtol`` and ``atol`` count for floating-point and complex outputs; everything else must be equal.
    ``compare`` turns the value check off for ops whose values are not fixed (only dtype and shape are compared).
    """

    op: str
    inputs: Sequence[Any] = ()
    attrs: Mapping[str, Any] = field(default_factory=dict)
    id: str = ""
    arg_lengths: Mapping[str, int] = field(default_factory=dict)
    rtol: float = 1e-5
    atol: float = 1e-6
    compare: bool = True

    @property
    def label(self) -> str:
        return f"{self.op}-{self.id}" if self.id else self.op


def case(op: str, *inputs: Any, id: str = "", rtol: float = 1e-5, atol: float = 1e-6, **attrs: Any) -> OpCase:
    """Shorthand: ``case("AddV2", f32(1, 2), f32(3, 4))``."""
    return OpCase(op, inputs, attrs, id, {}, rtol, atol)


def f32(*values: Any) -> Any:
    return np.array(values, np.float32)


def f64(*values: Any) -> Any:
    return np.array(values, np.float64)


def i32(*values: Any) -> Any:
    return np.array(values, np.int32)


def i64(*values: Any) -> Any:
    return np.array(values, np.int64)


def text(*values: bytes) -> Any:
    """A vector of strings."""
    array = np.empty(len(values), object)
    array[:] = values
    return array
