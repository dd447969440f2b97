"""The optimizer of one device's graph: small passes, in rounds, until nothing changes.

After ``GraphOptimizer`` in ``tensorflow/core/common_runtime/graph_optimizer.cc``.  What that does about its source and
sink nodes has nothing to do here: a graph has feeds, fetches and targets instead.  Functions have been written out
before there are partitions.
"""

from __future__ import annotations

from typing import Final

from asyncexec.framework.cooperative import STRIDE, Stage
from asyncexec.passes.common_subexpressions import merge_common_subexpressions
from asyncexec.passes.dependencies import reduce_dependencies
from asyncexec.passes.fold_constants import fold_constants
from asyncexec.passes.identities import remove_identities
from asyncexec.passes.pass_graph import PassGraph

_MOST_ROUNDS: Final = 10
_CONVERTERS: Final = frozenset({"_ListToArray", "_ArrayToList"})


def optimize_partition(graph: PassGraph) -> Stage[None]:
    """The pass; what nothing needs goes at the end of each step of a round."""
    for _ in range(_MOST_ROUNDS):
        before = graph.version
        for step in _STEPS:
            yield from graph.apply(step)
        if graph.version == before:
            return


def remove_list_array_converters(graph: PassGraph) -> Stage[None]:
    """Let what takes something from a node that only converts between lists and arrays take it from its source.

    Such a node is dead if one of its inputs is; where others of them could be, it stays.
    """
    for count, node in enumerate(graph):
        if node.properties.op in _CONVERTERS and not graph.is_kept(node):
            sources = {tensor.op for tensor in node.inputs}
            is_simple = len(sources) == 1 and not node.control_inputs and len(node.inputs) == len(node.outputs)
            if is_simple and not graph.facts.of(node.inputs[0].op).is_flow:
                graph.replace_tensors(node, dict(enumerate(node.inputs)))
                if graph.is_waited_for(node):
                    graph.replace_control(node, node.inputs[0].op)
        if not count % STRIDE:
            yield


_STEPS: Final = (
    remove_list_array_converters,
    remove_identities,
    fold_constants,
    merge_common_subexpressions,
    reduce_dependencies,
)
