"""The resources that a signature uses: variables, tables, queues, generators; their contents are in its checkpoints."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

from asyncexec.framework import types
from asyncexec.framework.errors import DataLossError, FailedPreconditionError, InvalidArgumentError
from asyncexec.framework.resource_mgr import ResourceMgr, Restorable
from asyncexec.framework.types import DType
from asyncexec.graph.node import Node

ResourceKey: TypeAlias = tuple[str, str]  # container and name
_OF_A_STEP: Final = ("Anonymous", "TensorArray", "Stack", "Placeholder")  # what they give ends with it, or is fed
_WITHOUT_FORM: Final = frozenset({"DeleteSessionTensor", "GetSessionHandle", "GetSessionHandleV2", "GetSessionTensor"})


def held_resources(nodes: Sequence[Node], manager: ResourceMgr) -> dict[ResourceKey, Restorable]:
    """The resources of *nodes*, which have run: they make them.

    Raises:
        InvalidArgumentError: a node has state that a checkpoint cannot hold; it is named.
    """
    names = _names_of(nodes)
    found = {owner.name for _, _, owner in _found(names, manager)}
    for node in names.values():
        if node.op in _WITHOUT_FORM or (gives_resource(node) and node.name not in found):
            raise InvalidArgumentError(
                f"a checkpoint cannot hold the state of {node.name!r} ({node.op})",
                hint="variables, tables and queues of this process can be in a checkpoint, and ax.stream_state can",
            )
    return present_resources(nodes, manager)


def present_resources(nodes: Iterable[Node], manager: ResourceMgr) -> dict[ResourceKey, Restorable]:
    """Those that are there, whether the nodes have run or not."""
    return {key: resource for key, resource, _ in _found(_names_of(nodes), manager)}


def _names_of(nodes: Iterable[Node]) -> dict[str, Node]:
    """The nodes by the names that their resources have."""
    names: dict[str, Node] = {}
    for node in nodes:
        shared = node.attrs.get("shared_name") or b""
        names[shared.decode("utf-8", "replace") or node.name] = node
        names[f"_queue_{node.name}"] = node
    return names


def _found(names: Mapping[str, Node], manager: ResourceMgr) -> Iterator[tuple[ResourceKey, Restorable, Node]]:
    for key, resource in manager.items().items():
        owner = _owner(key[1], names)
        if owner is not None and isinstance(resource, Restorable):
            yield key, resource, owner


def _owner(name: str, names: Mapping[str, Node]) -> Node | None:
    """The node of a resource; one in the body of a function or loop has the name of its caller before its own."""
    while name not in names:
        name, slash, _ = name.rpartition("/")
        if not slash:
            return None
    return names[name]


def gives_resource(node: Node) -> bool:
    """Whether *node* makes a resource that outlives the step, when it first runs."""
    if node.op.startswith(_OF_A_STEP) or any(_is_resource(tensor.dtype) for tensor in node.inputs):
        return False
    return any(_is_resource(dtype) for dtype in node.properties.output_dtypes)


def _is_resource(dtype: DType) -> bool:
    return dtype.is_ref or dtype is types.resource


def contents_of(resources: Mapping[ResourceKey, Restorable]) -> tuple[list[Any], dict[str, Any]]:
    """What JSON has of *resources*, and their tensors by name."""
    about: list[object] = []
    values: dict[str, object] = {}
    for (container, name), resource in resources.items():
        told, tensors = resource.to_state()
        about.append([container, name, type(resource).__name__, told, len(tensors)])
        values |= {f"{type(resource).__name__} {name!r} {i}": tensor for i, tensor in enumerate(tensors)}
    return about, values


def put_contents(resources: Mapping[ResourceKey, Restorable], about: Any, values: Mapping[str, object]) -> None:
    """Let *resources* have what ``contents_of`` gave.

    Raises:
        DataLossError: the contents are of other resources.
        FailedPreconditionError: a resource is not there any more, or is of another kind.
    """
    for container, name, kind, told, count in about:
        resource = resources.get((container, name))
        if resource is None or type(resource).__name__ != kind:
            raise FailedPreconditionError(
                f"the checkpoint has a {kind} {name!r}, which the graph has not", hint="resume=False begins anew"
            )
        try:
            resource.from_state(told, [values[f"{kind} {name!r} {i}"] for i in range(count)])
        except (ValueError, TypeError, LookupError) as error:
            raise DataLossError(f"the checkpoint has other contents than those of {kind} {name!r}: {error}") from error
