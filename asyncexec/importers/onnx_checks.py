"""What is asked of an ONNX model before anything is made of it: versions, functions, nodes as in their schemas."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from asyncexec.framework.errors import InvalidArgumentError, ResourceExhaustedError
from asyncexec.framework.extras import require

MAX_NODES: Final = 2_000_000  # of a model whose functions are expanded: few bytes may call for very many
MOST_SHOWN: Final = 20
_BYTES_OF_A_NODE: Final = 1024  # one of a function that is larger counts for more: it is copied at each call
FunctionKey = tuple[str, str, str]


def plain_domain(domain: str) -> str:
    """*domain*, where ``ai.onnx`` is the name of the one without."""
    return "" if domain == "ai.onnx" else domain


def opsets_of(model: Any) -> dict[str, int]:
    """Domain -> version; InvalidArgumentError for a domain with two, or one that is newer than the onnx library."""
    defs: Any = require("onnx.defs", extra="onnx")
    found: dict[str, int] = {}
    for entry in model.opset_import:
        domain = plain_domain(entry.domain)
        if found.setdefault(domain, entry.version) != entry.version or entry.version < 1:
            raise InvalidArgumentError(f"operator set {domain or 'ai.onnx'!r} has no single version: {entry.version}")
    newest = defs.onnx_opset_version()
    if found.get("", 1) > newest:
        raise InvalidArgumentError(
            f"the model is of operator set {found['']}; the newest that the installed onnx library knows is {newest}",
            hint="install a newer onnx",
        )
    if not found:
        raise InvalidArgumentError("the model does not tell its operator sets (opset_import)")
    return found


def describe(node: Any) -> str:
    """*node* for a message."""
    return repr(node.name) if node.name else f"that gives {', '.join(map(repr, node.output)) or 'nothing'}"


def check_expansion(model: Any) -> None:
    """See that the model's own functions can be expanded.

    Raises:
        InvalidArgumentError: a function is there twice, or calls itself.
        ResourceExhaustedError: there would be too many nodes.
    """
    functions: dict[FunctionKey, object] = {}
    for function in model.functions:
        key = (plain_domain(function.domain), function.name, function.overload)
        if functions.setdefault(key, function) is not function:
            raise InvalidArgumentError(f"function {_shown(key)} is defined twice")
    sizes: dict[FunctionKey, int] = {}
    for key in functions:
        _measure(key, functions, sizes)
    total = sum(1 + sizes.get(_called(node), 0) for node in all_nodes(model.graph.node))
    if total > MAX_NODES:
        raise ResourceExhaustedError(
            f"with its functions expanded the model has {total} nodes; {MAX_NODES} are the most"
        )


def _measure(start: FunctionKey, functions: dict[FunctionKey, Any], sizes: dict[FunctionKey, int]) -> None:
    """Nodes of function *start* and of those that it calls, with a stack of our own: chains may be long."""
    path: list[tuple[FunctionKey, list[FunctionKey]]] = []
    under_way: set[FunctionKey] = set()

    def begin(key: FunctionKey) -> None:
        called = [_called(node) for node in all_nodes(functions[key].node)]
        path.append((key, [each for each in called if each in functions]))
        under_way.add(key)
        sizes.setdefault(key, -1)

    if start in sizes:
        return
    begin(start)
    while path:
        key, called = path[-1]
        unknown = next((each for each in called if sizes.get(each, -1) < 0), None)
        if unknown is None:
            own = sum(1 + node.ByteSize() // _BYTES_OF_A_NODE for node in all_nodes(functions[key].node))
            sizes[key] = own + sum(sizes[each] for each in called)
            under_way.discard(key)
            path.pop()
        elif unknown in under_way:
            raise InvalidArgumentError(f"function {_shown(unknown)} calls itself, through {_shown(key)}")
        else:
            begin(unknown)


def _called(node: Any) -> FunctionKey:
    return (plain_domain(node.domain), node.op_type, node.overload)


def _shown(key: FunctionKey) -> str:
    return repr(":".join(part for part in key if part))


def all_nodes(nodes: Any) -> Iterator[Any]:
    """*nodes* and those of the graphs in their attributes."""
    for node in nodes:
        yield node
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from all_nodes(attribute.g.node)
            for graph in attribute.graphs:
                yield from all_nodes(graph.node)


def check_nodes(graph: Any, opsets: dict[str, int]) -> None:
    """InvalidArgumentError, which lists them, when nodes have not the inputs, outputs and attributes of their ops.

    Of ops that ONNX does not have nothing is known here.
    """
    problems = [problem for node in all_nodes(graph.node) for problem in _problems(node, opsets)]
    if problems:
        raise InvalidArgumentError(f"the model has malformed nodes: {listed(problems)}")


def listed(items: Sequence[str]) -> str:
    """*items* in a line, of very many the first."""
    rest = f"; and {len(items) - MOST_SHOWN} more" if len(items) > MOST_SHOWN else ""
    return "; ".join(items[:MOST_SHOWN]) + rest


def find_schema(node: Any, opsets: dict[str, int]) -> Any | None:
    """The schema of the op of *node* in the version that the model imports; None when there is none."""
    defs: Any = require("onnx.defs", extra="onnx")
    domain = plain_domain(node.domain)
    version = opsets.get(domain)
    if version is None or not defs.has(node.op_type, domain):
        return None
    try:
        return defs.get_schema(node.op_type, version, domain)
    except defs.SchemaError:
        return None


def _problems(node: Any, opsets: dict[str, int]) -> Iterator[str]:
    schema = find_schema(node, opsets)
    where = f"node {describe(node)} ({node.op_type})"
    for attribute in node.attribute:
        if attribute.ref_attr_name:
            yield f"{where} takes attribute {attribute.name!r} from a function, but is in none"
    if schema is None:
        return
    for what, names, low, high in (
        ("inputs", node.input, schema.min_input, schema.max_input),
        ("outputs", node.output, schema.min_output, schema.max_output),
    ):
        if not low <= len(names) <= high:
            yield f"{where} has {len(names)} {what}, not {low} to {high}"
    given = {attribute.name: attribute for attribute in node.attribute}
    if len(given) < len(node.attribute):
        yield f"{where} has an attribute twice"
    for name, attribute in given.items():
        known = schema.attributes.get(name)
        if known is None:
            yield f"{where} has an attribute {name!r}, which the op does not have since version {schema.since_version}"
        elif attribute.type and attribute.type != int(known.type):
            yield f"{where} has an attribute {name!r} of another type than {known.type.name}"
    for name, known in schema.attributes.items():
        if known.required and name not in given:
            yield f"{where} lacks attribute {name!r}"
