"""How ops of the domain ``Pnnx>`` are declared: each node is an operator of a PNNX file.

The parameters of the operator are attrs of the node, and so are its attributes, as tensors called ``@weight``.  A
parameter that is None is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, TypeVar

import numpy as np

from asyncexec.framework.arrays import Array
from asyncexec.framework.errors import InvalidArgumentError
from asyncexec.framework.kernel import Kernel, KernelKind, OpKernelConstruction, as_values
from asyncexec.framework.kernel_registry import register_kernel
from asyncexec.framework.op_registry import register_op
from asyncexec.framework.shape_inference import InferenceContext
from asyncexec.framework.tensor_shape import UNKNOWN_SHAPE, TensorShape

DOMAIN: Final = "Pnnx>"
_SIGNATURE: Final = "inputs: Tin -> outputs: Tout"
_ATTRS: Final = "Tin: list(type); Tout: list(type); input_names: list(string) = []; output_shapes: list(shape) = []"


@dataclass(frozen=True, slots=True)
class PnnxNode:
    """What a kernel factory is told of the operator."""

    construction: OpKernelConstruction

    @property
    def type(self) -> str:
        """The type of the operator, such as ``nn.Conv2d``."""
        return self.construction.op.removeprefix(DOMAIN)

    @property
    def num_inputs(self) -> int:
        return self.construction.num_inputs

    @property
    def num_outputs(self) -> int:
        return self.construction.num_outputs

    def param(self, name: str, default: object = None) -> Any:
        """The parameter *name*, texts as str; *default* where it is None or not there."""
        value = self.construction.attrs.get(name, default)
        if isinstance(value, tuple):
            return tuple(each.decode(errors="replace") if isinstance(each, bytes) else each for each in value)
        return value.decode(errors="replace") if isinstance(value, bytes) else value

    def integer(self, name: str, default: int | None = None) -> int:
        """The integer *name*; InvalidArgumentError when it is none."""
        value = self.param(name, default)
        if not isinstance(value, int):
            raise self.error(f"parameter {name!r} is {value!r}, not an integer")
        return int(value)

    def number(self, name: str, default: float) -> float:
        """The number *name*; InvalidArgumentError when it is none."""
        value = self.param(name, default)
        if not isinstance(value, (int, float)):
            raise self.error(f"parameter {name!r} is {value!r}, not a number")
        return value

    def integers(self, name: str, default: object = None, count: int | None = None) -> tuple[int, ...]:
        """The integers *name*; one stands for *count* of them."""
        value = self.param(name, default)
        if isinstance(value, int) and count is not None:
            value = (value,) * count
        elif isinstance(value, int):
            value = (value,)
        is_list = isinstance(value, tuple) and all(isinstance(each, int) for each in value)
        if not is_list or (count is not None and len(value) != count):
            raise self.error(f"parameter {name!r} is {value!r}, not {'' if count is None else f'{count} '}integers")
        return tuple(map(int, value))

    def array(self, name: str) -> Array:
        """The attribute *name*; InvalidArgumentError when there is none."""
        value = self.find_array(name)
        if value is None:
            raise self.error(f"there is no attribute {name!r}")
        return value

    def find_array(self, name: str) -> Array | None:
        """The attribute *name*, or None; one with a single element has a dimension, too."""
        value = self.construction.attrs.get(f"@{name}")
        return None if value is None else np.atleast_1d(value)

    def input_index(self, name: str) -> int | None:
        """Which input is called *name*; None where none is."""
        names = self.param("input_names", ())
        return names.index(name) if name in names else None

    def in_order(self, *names: str) -> Callable[[Sequence[Any]], list[Any]]:
        """What gives the inputs by *names*, None for those that are not there; without names they are in order."""
        if any(self.input_index(name) is not None for name in names):
            places = [self.input_index(name) for name in names]
        else:
            places = [place if place < self.num_inputs else None for place in range(len(names))]
        return lambda inputs: [None if place is None else inputs[place] for place in places]

    def error(self, message: str) -> InvalidArgumentError:
        """An error that names the operator."""
        return InvalidArgumentError(f"{self.type}: {message}", node=self.construction.name)


PnnxKernelFactory: TypeAlias = Callable[[PnnxNode], Kernel]
F = TypeVar("F", bound=PnnxKernelFactory)


def _output_shapes(context: InferenceContext) -> list[TensorShape]:
    """What the file tells of the shapes."""
    shapes = list(context.attr("output_shapes"))
    if shapes and len(shapes) != context.num_outputs:
        raise InvalidArgumentError(f"attr 'output_shapes' has {len(shapes)} shapes for {context.num_outputs} outputs")
    return shapes or [UNKNOWN_SHAPE] * context.num_outputs


def pnnx_kernel(*types: str, kind: KernelKind = KernelKind.CHEAP) -> Callable[[F], F]:
    """Decorator: declares operators of *types*; the function makes their kernel.

    The kernel gives a tuple where the node has not just one output.
    """

    def decorate(factory: F) -> F:
        for each in types:
            register_op(f"{DOMAIN}{each}", _SIGNATURE, _ATTRS, shape=_output_shapes, has_open_attrs=True)
        register_kernel(*(f"{DOMAIN}{each}" for each in types), kind=kind)(lambda built: _kernel(factory, built))
        return factory

    return decorate


def _kernel(factory: PnnxKernelFactory, construction: OpKernelConstruction) -> Kernel:
    compute = factory(PnnxNode(construction))
    if construction.num_outputs == 1:
        return lambda *inputs: as_values((compute(*inputs),))
    return lambda *inputs: as_values(compute(*inputs))
