"""Variables whose values are constants of a cluster's model, as long as they stay what they are.

Filters that are constants are laid out once.  A value of a variable that somebody has is replaced, never changed in
place, so a model that was loaded for some values, and has them, holds for a call whose values are the same objects.
Until values are there, an array of the declared shape stands for each.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from asyncexec.framework.arrays import Array
from asyncexec.graph.node import Tensor
from asyncexec.passes.pass_graph import PassGraph

_SOURCES: Final = {"ReadVariableOp": frozenset({"VarHandleOp"}), "Identity": frozenset({"Variable", "VariableV2"})}
_READERS: Final = frozenset(
    "DisableCopyOnRead Identity IsVariableInitialized ReadVariableOp ResourceGather ResourceGatherNd "
    "VarIsInitializedOp VariableShape".split()
)


def stand_in(graph: PassGraph, tensor: Tensor) -> Array | None:
    """What stands for *tensor*, the value of a variable that no node of *graph* writes; None if it is something else.

    Another name of the variable may be written, and other graphs may write it: such values are not the same objects.
    """
    node = tensor.op
    sources = _SOURCES.get(node.op)
    if sources is None or graph.is_fed(tensor) or tensor.dtype.name != "float32":
        return None
    (source,) = node.inputs
    dims = tensor.shape.dims
    if source.op.op not in sources or graph.is_fed(source) or dims is None or None in dims:
        return None
    if any(user.op not in _READERS for user in graph.consumers(source.op)):
        return None
    return np.broadcast_to(np.float32(0), tuple(dim or 0 for dim in dims))
