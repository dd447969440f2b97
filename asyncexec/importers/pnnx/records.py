"""What a PNNX file says: operators, and the operands that they take and give."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from asyncexec.framework.types import DType


@dataclass(frozen=True, slots=True)
class PnnxOperand:
    """A value between operators.

    Attributes:
        dtype: None where the file does not tell it, as of lists and numbers.
        shape: None where the file does not tell it; a dimension that is not known is None.
    """

    name: str
    dtype: DType | None = None
    shape: tuple[int | None, ...] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class PnnxOperator:
    """An operator, as the file has it.

    Attributes:
        type: such as ``nn.Conv2d``.
        inputs: the operands that it takes, in order.
        outputs: the operands that it gives, in order.
        consumers: names of the operators that take its outputs, in the order of the outputs and of the file.
        params: by name: None, booleans, integers, floats, texts, and tuples of these.
        attributes: arrays by name, such as ``weight``.
        input_names: what each input is called; ``""`` where the file does not tell it.
        line: where it stands in the file.
    """

    type: str
    name: str
    inputs: tuple[PnnxOperand, ...] = ()
    outputs: tuple[PnnxOperand, ...] = ()
    consumers: tuple[str, ...] = ()
    params: Mapping[str, object] = field(default_factory=dict)
    attributes: Mapping[str, Any] = field(default_factory=dict)
    input_names: Sequence[str] = ()
    line: int = 0
