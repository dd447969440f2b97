"""ONNX kernels by (domain, op type), and since which version of the operator set each holds.

An op of ONNX is an op of a graph under another name: ``Conv`` is ``Onnx>Conv``, and ``Scaler`` of domain ``ai.onnx.ml``
is ``OnnxMl>Scaler``.

An ONNX op changes its meaning between versions of its operator set: a kernel is registered ``since`` a version, and a
node of operator set 15 gets the one with the greatest version that is at most 15 (as ``onnx.defs.get_schema`` does).

A factory gets an :class:`OnnxNode`, once a node, and returns the kernel, a sync function:

* it takes one positional argument for each input that the node names, ``None`` for an optional one that is left out;
  inputs at the end that are not named are not given at all, so give their parameters a default of ``None``;
* it returns a tuple with one value for each output that the node names (``node.num_outputs``), whatever is in those
  that the node leaves out;
* tensors are numpy arrays, or numpy scalars where 0-d (``framework.kernel.as_values`` is called on what it returns);
  strings are ``bytes``, or object arrays of them; a sequence is a list, an optional is the value or ``None``;
* it never writes to an input.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias, TypeVar

from asyncexec.framework.kernel import Kernel, KernelKind

ONNX_DOMAIN: Final = ""
ML_DOMAIN: Final = "ai.onnx.ml"
_PREFIXES: Final = {
    ONNX_DOMAIN: "Onnx",
    ML_DOMAIN: "OnnxMl",
    "ai.onnx.preview": "OnnxPreview",
    "ai.onnx.preview.training": "OnnxTraining",
}
_DOMAINS: Final = {prefix: domain for domain, prefix in _PREFIXES.items()}


def graph_op(op_type: str, domain: str = ONNX_DOMAIN) -> str:
    """The name in a graph of the op *op_type* of *domain*; of a domain that is not ONNX's own, none that there is."""
    return f"{_PREFIXES.get(domain, domain)}>{op_type}"


def onnx_op(op: str) -> tuple[str, str]:
    """Domain and op type of the op *op* of a graph."""
    prefix, _, op_type = op.partition(">")
    return _DOMAINS[prefix], op_type


@dataclass(frozen=True, slots=True)
class OnnxNode:
    """What a kernel factory is told of the node.

    Attributes:
        opset: the version of the operator set of the node's domain that its model imports.
        attrs: by name; integers, floats, ``bytes`` (also for strings), lists of these, and arrays for tensors.
        inputs: whether each input is named; one that is not is left out.
        outputs: whether each output is named.
        output_dtypes: numpy dtype of each output where the model tells it, else ``None``.
    """

    op_type: str
    domain: str = ONNX_DOMAIN
    opset: int = 1
    attrs: Mapping[str, Any] = field(default_factory=dict)
    inputs: tuple[bool, ...] = ()
    outputs: tuple[bool, ...] = (True,)
    output_dtypes: tuple[Any, ...] = ()

    @property
    def num_outputs(self) -> int:
        return len(self.outputs)

    def attr(self, name: str, default: object = None) -> Any:
        """The attribute *name*, or *default* where the node does not have it."""
        return self.attrs.get(name, default)

    def text(self, name: str, default: str = "") -> str:
        """The string attribute *name*."""
        value = self.attrs.get(name, default)
        return value.decode() if isinstance(value, bytes) else str(value)


OnnxKernelFactory: TypeAlias = Callable[[OnnxNode], Kernel]
F = TypeVar("F", bound=OnnxKernelFactory)


@dataclass(frozen=True, slots=True)
class OnnxKernelRegistration:
    """A kernel factory, the version since which it holds, and whether it runs long on usual inputs."""

    factory: OnnxKernelFactory
    since: int
    kind: KernelKind


_REGISTRATIONS: Final[dict[tuple[str, str], list[OnnxKernelRegistration]]] = {}
_loaders: Final[list[Callable[[str], object]]] = []


def set_onnx_kernel_loader(load: Callable[[str], object]) -> None:
    """Call *load* with the name of an op in a graph before its kernels are looked for; it registers them."""
    _loaders[:] = [load]


def onnx_kernel(
    *op_types: str, since: int = 1, domain: str = ONNX_DOMAIN, kind: KernelKind = KernelKind.CHEAP
) -> Callable[[F], F]:
    """Decorator: the function is the kernel factory of *op_types* from operator set *since* on."""

    def decorate(factory: F) -> F:
        for op_type in op_types:
            known = _REGISTRATIONS.setdefault((domain, op_type), [])
            known.append(OnnxKernelRegistration(factory, since, kind))
            known.sort(key=lambda registration: -registration.since)
        return factory

    return decorate


def find_onnx_kernel(op_type: str, opset: int, domain: str = ONNX_DOMAIN) -> OnnxKernelRegistration | None:
    """The kernel of *op_type* in version *opset* of the operator set of *domain*; None where there is none."""
    for load in _loaders:
        load(graph_op(op_type, domain))
    known: Iterable[OnnxKernelRegistration] = _REGISTRATIONS.get((domain, op_type), ())
    return next((registration for registration in known if registration.since <= opset), None)
