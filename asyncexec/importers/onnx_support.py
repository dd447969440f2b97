"""What runs an ONNX op: a kernel of ours, else the body that ONNX defines it by, else the onnx library's reference."""

from __future__ import annotations

import warnings
from collections import defaultdict
from collections.abc import Iterable
from typing import Any, Final

from asyncexec.framework.errors import UnimplementedError
from asyncexec.framework.extras import require
from asyncexec.framework.kernel_warning import KernelWarning
from asyncexec.framework.onnx_kernels import find_onnx_kernel, graph_op
from asyncexec.framework.op_registry import registry as op_registry
from asyncexec.importers.onnx_checks import all_nodes, describe, find_schema, listed, plain_domain

# What the importer itself makes something else of.
_EXPANDED: Final = frozenset("If Loop Scan Constant".split())
GRADIENT: Final = ("ai.onnx.preview.training", "Gradient")
_REFERENCES: Final = {
    "ai.onnx.ml": "onnx.reference.ops.aionnxml",
    "ai.onnx.preview": "onnx.reference.ops.aionnx_preview",
    "ai.onnx.preview.training": "onnx.reference.ops.aionnx_preview_training",
}
_MOST_NODES: Final = 5  # of an op that are named


def _is_expanded(node: Any) -> bool:
    return (node.op_type in _EXPANDED and not plain_domain(node.domain)) or (node.domain, node.op_type) == GRADIENT


def _has_kernel(node: Any, opsets: dict[str, int]) -> bool:
    domain, schema = plain_domain(node.domain), find_schema(node, opsets)
    is_gone = schema is not None and schema.deprecated
    return not is_gone and find_onnx_kernel(node.op_type, opsets.get(domain, 0), domain) is not None


def _has_body(node: object, opsets: dict[str, int]) -> bool:
    schema = find_schema(node, opsets)
    return schema is not None and (schema.has_function or schema.has_context_dependent_function)


def find_functions(graph: Any, opsets: dict[str, int]) -> list[tuple[str, str]]:
    """Ops of *graph*, as (domain, op type), that have no kernel of ours but a body of other ops."""
    nodes = [node for node in all_nodes(graph.node) if not _is_expanded(node) and not _has_kernel(node, opsets)]
    found = {(plain_domain(node.domain), node.op_type): None for node in nodes if _has_body(node, opsets)}
    return list(found)


def fill_in_defaults(graph: Any, opsets: dict[str, int], function: tuple[str, str]) -> None:
    """Give nodes of *function* the attributes that they leave out: its body asks for them."""
    for node in all_nodes(graph.node):
        schema = find_schema(node, opsets)
        if schema is None or (plain_domain(node.domain), node.op_type) != function:
            continue
        given = {attribute.name for attribute in node.attribute}
        for name, known in schema.attributes.items():
            if name not in given and known.default_value.type:
                node.attribute.append(known.default_value)


def refuse_what_is_lacking(graph: Any, opsets: dict[str, int]) -> None:
    """UnimplementedError, which lists them all, when there are nodes that nothing runs."""
    lacking = [
        node
        for node in all_nodes(graph.node)
        if not (_is_expanded(node) or any(has(node, opsets) for has in (_has_kernel, _has_body, _has_reference)))
    ]
    if lacking:
        raise UnimplementedError(f"there is nothing that runs these ops of the model: {_table(lacking, opsets)}")


def warn_of_references(graph: Any, opsets: dict[str, int]) -> None:
    """Warn of nodes that the reference implementation alone can run."""
    nodes = [node for node in all_nodes(graph.node) if not _is_expanded(node) and not _has_kernel(node, opsets)]
    if nodes:
        warnings.warn(
            "these ops have no kernel of asyncexec, and run by onnx.reference, which is slow: " + _table(nodes, opsets),
            KernelWarning,
            stacklevel=2,
        )


def _has_reference(node: Any, opsets: dict[str, int]) -> bool:
    domain = plain_domain(node.domain)
    schema = find_schema(node, opsets)
    if schema is None or schema.deprecated or graph_op(node.op_type, domain) not in op_registry:
        return False
    ops: Any = require(_REFERENCES.get(domain, "onnx.reference.ops"), extra="onnx")
    try:
        ops.load_op(domain, node.op_type, opsets[domain])
    except Exception:  # whatever it raises, it has none
        return False
    return True


def _table(nodes: Iterable[Any], opsets: dict[str, int]) -> str:
    """Ops with their nodes."""
    found: dict[str, list[str]] = defaultdict(list)
    for node in nodes:
        domain = plain_domain(node.domain)
        version = opsets.get(domain, "not imported")
        found[f"{domain or 'ai.onnx'}:{node.op_type} of operator set {version}"].append(describe(node))
    rows = []
    for what, names in found.items():
        more = f" and {len(names) - _MOST_NODES} more" if len(names) > _MOST_NODES else ""
        rows.append(f"{what} (node {', '.join(names[:_MOST_NODES])}{more})")
    return listed(rows)
