"""Where a graph begins and ends: what is fed, and what nothing consumes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from asyncexec.graph.node import Node

# What has no value unless it is fed; a partition of TensorFlow's has _Args in place of what is fed.
MUST_BE_FED: Final = frozenset({"Placeholder", "PlaceholderV2", "_Arg", "_DeviceArg"})
PLACEHOLDERS: Final = MUST_BE_FED | {"PlaceholderWithDefault"}
# What stands, in such a partition, behind what is fetched.
RETVALS: Final = frozenset({"_Retval", "_DeviceRetval"})


def output_nodes(nodes: Iterable[Node]) -> list[Node]:
    """The nodes that no other consumes, neither their values nor their having run; placeholders left out."""
    nodes = list(nodes)
    consumed = {id(tensor.op) for node in nodes for tensor in node.inputs}
    consumed.update(id(control) for node in nodes for control in node.control_inputs)
    return [node for node in nodes if id(node) not in consumed and node.op not in PLACEHOLDERS]
