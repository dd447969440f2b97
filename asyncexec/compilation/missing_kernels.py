"""What is said of a graph with ops that have no kernel: all of them, each with its nodes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from asyncexec.compilation.bind_kernel import TRANSFERS
from asyncexec.framework.errors import UnimplementedError
from asyncexec.framework.kernel_registry import registry as kernel_registry
from asyncexec.framework.op_registry import registry as op_registry
from asyncexec.graph.import_checks import RUNTIME_OPS
from asyncexec.graph.node import Node

_SHOWN_OPS: Final = 50
_SHOWN_NODES: Final = 3


@contextmanager
def naming_missing_kernels(nodes: Sequence[Node]) -> Iterator[None]:
    """Where the kernels of *nodes* are bound: the error of an op that has none names all such ops.

    Raises:
        UnimplementedError: ops have no kernel.
    """
    try:
        yield
    except UnimplementedError as error:
        missing = ops_without_kernel(nodes)
        if error.op not in missing:
            raise
        raise _all_missing(missing) from error


def ops_without_kernel(nodes: Sequence[Node]) -> dict[str, list[Node]]:
    """The ops of *nodes* that have no kernel on any device, with their nodes."""
    found: dict[str, list[Node]] = {}
    for node in nodes:
        has_kernel = node.properties.registration.kernel is not None or kernel_registry.device_types(node.op)
        if not has_kernel and node.op not in TRANSFERS:
            found.setdefault(node.op, []).append(node)
    return found


def has_no_kernel(op: str) -> bool:
    """Whether nodes of *op*, which is registered, cannot run: it has no kernel, and calls no function."""
    registration = op_registry.lookup(op)
    if registration.kernel is not None or kernel_registry.device_types(op) or op in RUNTIME_OPS:
        return False
    is_lowered = any(attr.element_kind == "func" for attr in registration.op_def.attrs.values())
    return not (is_lowered and op_registry.is_implemented(op))


def _all_missing(missing: dict[str, list[Node]]) -> UnimplementedError:
    lines = [f"{op} ({_names(nodes)})" for op, nodes in list(missing.items())[:_SHOWN_OPS]]
    more = f" and {len(missing) - _SHOWN_OPS} more" if len(missing) > _SHOWN_OPS else ""
    first = next(iter(missing.values()))[0]
    what = "an op that has" if len(missing) == 1 else f"{len(missing)} ops that have"
    return UnimplementedError(
        f"what is run needs {what} no kernel here: {', '.join(lines)}{more}",
        node=first,
        hint="fetch what does not need them, feed their outputs, or replace them at import (input_map)",
    )


def _names(nodes: Sequence[Node]) -> str:
    more = f" and {len(nodes) - _SHOWN_NODES} more" if len(nodes) > _SHOWN_NODES else ""
    return ", ".join(repr(node.name) for node in nodes[:_SHOWN_NODES]) + more
