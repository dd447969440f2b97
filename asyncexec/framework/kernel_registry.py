"""Kernels by (op, device type, dtype).

An op may have kernels for several types of device; which of them a node can run on, and which it is best at, is what
the placer asks (``SupportedDeviceTypesForNode`` in ``tensorflow/core/framework/op_kernel.cc``).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from asyncexec.framework.errors import InvalidArgumentError, UnimplementedError
from asyncexec.framework.kernel import (
    CheckedKernel,
    Kernel,
    KernelFactory,
    KernelKind,
    OpKernelConstruction,
    require_kind,
)
from asyncexec.framework.types import DType, resource

F = TypeVar("F", bound=KernelFactory)


@dataclass(frozen=True, slots=True, eq=False)
class KernelRegistration:
    """A kernel factory and what it is for.

    ``constraints`` maps a type attr to the dtypes the kernel takes, each of a list of types; of an op's kernels on
    several types of device those with the highest ``priority`` are preferred.
    """

    factory: KernelFactory
    kind: KernelKind = KernelKind.CHEAP
    constraints: Mapping[str, frozenset[DType]] = field(default_factory=dict)
    # None: whether it pays to run a sync kernel on a worker thread is measured; True or False: the user said so.
    is_expensive: bool | None = None
    priority: int = 0
    is_user_function: bool = False  # which may write to its inputs; a kernel of ours never does
    gives_new: bool = False  # whether nobody else has the arrays that it gives
    # Whether a part of its result is what it gives for that part of its inputs, to the bit.
    is_elementwise: bool = False
    libraries: tuple[str, ...] = ()  # modules that the factory imports

    def accepts(self, attrs: Mapping[str, object]) -> bool:
        return all(_is_among(attrs.get(name), dtypes) for name, dtypes in self.constraints.items())


class KernelRegistry:
    """(op, device type) -> kernel registrations, in order of registration."""

    def __init__(self) -> None:
        self._kernels: dict[tuple[str, str], list[KernelRegistration]] = {}
        self._device_types: dict[str, list[str]] = {}  # of each op, in order of registration

    def register(self, op: str, device_type: str, registration: KernelRegistration, *, replace: bool = False) -> None:
        if replace:
            self._kernels.pop((op, device_type), None)
        device_types = self._device_types.setdefault(op, [])
        if device_type not in device_types:
            device_types.append(device_type)
        self._kernels.setdefault((op, device_type), []).append(registration)

    def lookup(self, op: str, device_type: str, attrs: Mapping[str, object]) -> KernelRegistration:
        """The first kernel of *op* for that device type whose dtypes fit.

        Raises:
            UnimplementedError: *op* has no kernel at all.
            InvalidArgumentError: there is none for that; the message lists what there is.
        """
        found = self.find(op, device_type, attrs)
        if found is not None:
            return found
        if not self._device_types.get(op):
            raise UnimplementedError(f"No OpKernel was registered to support Op {op!r}", op=op)
        raise InvalidArgumentError(
            f"No OpKernel was registered to support Op {op!r} on {device_type} with these attrs: "
            + (", ".join(f"{k}={v.name}" for k, v in attrs.items() if isinstance(v, DType)) or "none"),
            op=op,
            hint=f"registered for this op: {self.describe(op)}",
        )

    def find(self, op: str, device_type: str, attrs: Mapping[str, object]) -> KernelRegistration | None:
        """``lookup``, with None for what is not there."""
        for registration in self._kernels.get((op, device_type), ()):
            if registration.accepts(attrs):
                return registration
        return None

    def libraries(self, op: str) -> set[str]:
        """What the factories of *op* import."""
        registrations = (r for kind in self._device_types.get(op, ()) for r in self._kernels[op, kind])
        return {library for registration in registrations for library in registration.libraries}

    def device_types(self, op: str) -> list[str]:
        """Device types that *op* has a kernel for."""
        return list(self._device_types.get(op, ()))

    def constrained_attrs(self, op: str) -> tuple[str, ...]:
        """The attrs that decide which kernels of *op* a node can have."""
        registrations = (r for kind in self._device_types.get(op, ()) for r in self._kernels[op, kind])
        return tuple(sorted({name for registration in registrations for name in registration.constraints}))

    def describe(self, op: str) -> str:
        """The kernels of *op* in one line."""
        return "; ".join(
            device_type + "".join(f" {name} in ({_names(dtypes)})" for name, dtypes in registration.constraints.items())
            for device_type in self._device_types.get(op, ())
            for registration in self._kernels[op, device_type]
        )

    def registered_kernels(self, op: str) -> str:
        """The kernels of *op*, a line each (``KernelsRegisteredForOp`` in TensorFlow)."""
        lines = [
            f"  device={device_type!r}"
            + "".join(f"; {name} in [{_names(dtypes)}]" for name, dtypes in registration.constraints.items())
            for device_type in self._device_types.get(op, ())
            for registration in self._kernels[op, device_type]
        ]
        return "\n".join(lines) or "  <no registered kernels>"


def _is_among(value: object, dtypes: Collection[DType]) -> bool:
    return all(dtype in dtypes for dtype in value) if isinstance(value, tuple) else value in dtypes


def _names(dtypes: Collection[DType]) -> str:
    return ", ".join(sorted(dtype.name for dtype in dtypes))


registry: KernelRegistry = KernelRegistry()


def register_kernel(
    *ops: str,
    kind: KernelKind = KernelKind.CHEAP,
    device_type: str = "CPU",
    dtypes: Mapping[str, Collection[DType]] | None = None,
    priority: int = 0,
    handles: type | None = None,
    is_elementwise: bool = False,
    is_expensive: bool | None = None,
    libraries: tuple[str, ...] = (),
) -> Callable[[F], F]:
    """Decorator: the function is the kernel factory of *ops*: it gets an OpKernelConstruction, returns the kernel.

    The kernel, a sync one, may take its handles for *handles*: where it fails, it is seen whether they are.
    One that *is_elementwise* may get its inputs part by part, where these are real numbers.  One that *is_expensive*
    runs on a worker thread however short it was before, as what touches files does.  The *libraries* are modules
    that the factory imports; a session imports them before, outside of the event loop.
    """
    constraints = {name: frozenset(allowed) for name, allowed in (dtypes or {}).items()}

    def decorate(factory: F) -> F:
        make = factory if handles is None else _with_handles(factory, handles)
        for op in ops:
            registration = KernelRegistration(
                make, kind, constraints, is_expensive, priority, is_elementwise=is_elementwise, libraries=libraries
            )
            registry.register(op, device_type, registration)
        return factory

    return decorate


def _with_handles(factory: KernelFactory, kind: type) -> KernelFactory:
    def make(construction: OpKernelConstruction) -> Kernel:
        dtypes = [
            (arg.is_ref, dtype) for arg in construction.op_def.inputs for dtype in arg.dtypes(construction.attrs)
        ]  # a reference to Python objects has the dtype of these
        slots = [slot for slot, (is_ref, dtype) in enumerate(dtypes) if is_ref or dtype is resource]

        def check(*inputs: object) -> None:
            for slot in slots:
                require_kind(inputs[slot], kind)

        kernel: Any = factory(construction)
        return CheckedKernel(kernel, check)

    return make


def register_function(
    *ops: str,
    function: Kernel,
    kind: KernelKind = KernelKind.CHEAP,
    device_type: str = "CPU",
    dtypes: Mapping[str, Collection[DType]] | None = None,
    handles: type | None = None,
    is_elementwise: bool = False,
) -> None:
    """Register *function* itself as the kernel of *ops*: it depends on no attr."""
    decorate = register_kernel(
        *ops, kind=kind, device_type=device_type, dtypes=dtypes, handles=handles, is_elementwise=is_elementwise
    )
    decorate(lambda _: function)
