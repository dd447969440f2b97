"""OnnxModel: nodes of ONNX as plain data, before the library that runs them is imported."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeAlias

from asyncexec.framework.arrays import Array, NumpyDType

Dims: TypeAlias = tuple[int | None, ...]

TO_NCHW: Final = (0, 3, 1, 2)
FROM_NCHW: Final = (0, 2, 3, 1)
OPSET: Final = 17
IR_VERSION: Final = 8
SHARED_STEP: Final = 1e5  # multiplications of a step from which on ONNX Runtime is quicker with threads that share it


class OnnxNode(NamedTuple):
    """A node: what it takes and gives, by name."""

    op: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attrs: Mapping[str, Any]


class Work(NamedTuple):
    """Multiplications of a call, roughly, where unknown sizes are 1.

    Attributes:
        shared: those that threads can share.
        serial: those that are done step by step, as in a recurrence; step: how many are in one step, at most.
    """

    shared: float
    serial: float = 0.0
    step: float = 0.0

    def on_threads(self, times: int) -> float:
        """How many threads can share, where the unknown sizes make it so many *times* as much."""
        return times * (self.shared + (self.serial if times * self.step >= SHARED_STEP else 0.0))


@dataclass(frozen=True, slots=True, eq=False)
class OnnxModel:
    """A graph of ONNX nodes.

    Attributes:
        inputs: the names of its inputs, with their dtypes and sizes; None for what is not known of these.
        outputs: the names of its outputs; behind them come the guards.
        nodes: each after its inputs.
        constants: arrays by name, which may be views of others.
        num_guards: outputs, each a number.  Where one of them is NaN the other outputs do not hold.
        work: that of a call.
        opset: the version of the operator set that the nodes are of.
        sizes: by name, of values of float32 whose sizes ONNX does not find out; an input where it has as many examples.
    """

    inputs: tuple[tuple[str, NumpyDType, Dims | None], ...]
    outputs: tuple[str, ...]
    nodes: tuple[OnnxNode, ...]
    constants: Mapping[str, Array]
    num_guards: int
    work: Work
    opset: int = OPSET
    sizes: Mapping[str, tuple[int | str, ...]] = field(default_factory=dict)
