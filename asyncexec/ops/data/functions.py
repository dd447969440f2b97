"""Functions of datasets: a function of the graph, with what it has captured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.function_runtime import FunctionCall, FunctionHandle
from asyncexec.framework.kernel import OpKernelConstruction, pass_on
from asyncexec.framework.kernel_registry import KernelRegistration
from asyncexec.framework.op_def import parse_op_def
from asyncexec.framework.op_registry import OpRegistration
from asyncexec.framework.ownership import keep
from asyncexec.framework.shape_inference import unknown
from asyncexec.framework.step_stats import current_trace
from asyncexec.framework.types import DType
from asyncexec.ops.data.dataset import Element, runtime_of

# Not in the registry: it stands before the function, in its step.
_GIVE: Final = OpRegistration(
    parse_op_def("_GiveElement", "element: object -> components: Tin", "Tin: list(type) >= 0"),
    unknown,
    KernelRegistration(lambda _: pass_on),
)


@dataclass(frozen=True, slots=True, eq=False)
class CapturedFunction:
    """A function, with its last inputs."""

    handle: FunctionHandle
    captured: Sequence[object]

    async def __call__(self, *components: object) -> Element:
        """What it gives for *components* and what it has captured; a step of its own."""
        trace = current_trace()
        return tuple(await self.handle.run(components, self.captured, () if trace is None else (trace,)))


class FunctionAttr:
    """A function that is an attr of a node: each call of the kernel captures other values with it.

    Args:
        name: of the attr.
        captured: of the attr that has the dtypes of what it captures.
        outputs: the dtypes of what it gives.
    """

    __slots__ = ("_call", "_handles", "_runtime")

    def __init__(self, c: OpKernelConstruction, name: str, captured: str, outputs: Sequence[DType]) -> None:
        self._runtime = runtime_of(c)
        self._handles: dict[tuple[DType, ...], FunctionHandle] = {}

        def call(dtypes: tuple[DType, ...]) -> FunctionCall:
            others = c.attr(captured) if captured else ()
            return FunctionCall(c.name, c.attr(name), c.device, tuple(outputs), _GIVE, dtypes, others)

        self._call = call

    def capture(self, dtypes: Sequence[DType], values: Sequence[object] = ()) -> CapturedFunction:
        """The function for components of *dtypes*, with *values*."""
        key = tuple(dtypes)
        if key not in self._handles:
            self._handles[key] = self._runtime.instantiate(self._call(key))
        return CapturedFunction(self._handles[key], tuple(map(keep, values)))


def predicate_value(outputs: Element, what: str) -> bool:
    """The truth value that a predicate gave."""
    (value,) = outputs
    if np.ndim(value):
        raise InvalidArgumentError(f"{what} `predicate` must return a scalar bool.")
    return bool(value)
