"""Ops of an imported graph that reach outside of it, and that its importer did not allow.

Such nodes are in the graph like any other, and never run.  Their registration brings a kernel along that cannot be
made, so whatever asks a node for its kernel is refused, and what makes a node of another takes the refusal along.
Nothing in a GraphDef can undo it: each import decides anew.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from asyncexec.framework.cooperative import STRIDE, Stage
from asyncexec.framework.errors import PermissionDeniedError
from asyncexec.framework.kernel import Kernel, KernelKind, OpKernelConstruction
from asyncexec.framework.kernel_registry import KernelRegistration
from asyncexec.framework.op_registry import OpRegistration
from asyncexec.graph.node import Node
from asyncexec.ops.io.file_ops import FILE_OPS

_SHOWN_OPS: Final = 50
_SHOWN_NODES: Final = 3


def _refuse(construction: OpKernelConstruction) -> Kernel:
    raise _refusal({construction.op: [construction.name]})


_REFUSED: Final = KernelRegistration(_refuse, KernelKind.CHEAP)


def refused(registration: OpRegistration) -> OpRegistration:
    """The op of *registration*, of which no kernel can be made."""
    return replace(registration, kernel=_REFUSED)


def check_allowed(nodes: Sequence[Node]) -> Stage[None]:
    """PermissionDeniedError, which names them all, if there are *nodes* that may not run; as a stage."""
    found: dict[str, list[str]] = {}
    first: Node | None = None
    for start in range(0, len(nodes), STRIDE):
        for node in nodes[start : start + STRIDE]:
            if node.properties.registration.kernel is _REFUSED:
                found.setdefault(node.op, []).append(node.name)
                first = first or node
        yield
    if first is not None:
        raise _refusal(found).locate(first)


def _refusal(found: Mapping[str, Sequence[str]]) -> PermissionDeniedError:
    shown = list(found)[:_SHOWN_OPS]
    more = f" and {len(found) - _SHOWN_OPS} more" if len(found) > _SHOWN_OPS else ""
    what = "an op that reaches" if len(found) == 1 else f"{len(found)} ops that reach"
    hint = f"if you trust this graph: import_graph_def(..., allowed_ops={shown}), or load_model with these"
    if not FILE_OPS.isdisjoint(found):
        hint += "; or import_graph_def(..., allowed_folders=[...]), with those of its files"
    return PermissionDeniedError(
        f"what is run needs {what} outside of the graph (files, foreign code), which is off in an imported graph: "
        + ", ".join(f"{op} ({_names(found[op])})" for op in shown)
        + more,
        op=shown[0],
        hint=hint,
    )


def _names(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN_NODES} more" if len(names) > _SHOWN_NODES else ""
    return ", ".join(map(repr, names[:_SHOWN_NODES])) + more
