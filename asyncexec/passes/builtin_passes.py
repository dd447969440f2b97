"""Our own passes: the lowering, the optimizer of the whole graph, where Grappler stands, and that of each partition.

The lowering always runs; the optimizers run when a signature is optimized, which the first runs of it are not.  Their
order: constants first, for they decide branches; then what makes nodes equal; then equal nodes; and at the end what
only stood between others.
"""

from __future__ import annotations

from typing import Final

from asyncexec.framework.cooperative import Stage
from asyncexec.optimization.lower_functional_ops import LowerFunctionalOps
from asyncexec.passes.arithmetic import simplify_arithmetic
from asyncexec.passes.common_subexpressions import merge_common_subexpressions
from asyncexec.passes.dead_branches import remove_dead_branches
from asyncexec.passes.dependencies import reduce_dependencies
from asyncexec.passes.fold_constants import fold_constants
from asyncexec.passes.identities import remove_identities
from asyncexec.passes.loop_invariants import move_loop_invariants
from asyncexec.passes.partition_optimizer import optimize_partition
from asyncexec.passes.registry import GraphPass, Level, PassFunction, PassGrouping, registry
from asyncexec.pruning.prune import ClientGraph

_WHOLE_GRAPH: Final[tuple[tuple[int, PassFunction], ...]] = (
    (100, fold_constants),
    (110, remove_dead_branches),
    (120, simplify_arithmetic),
    (130, merge_common_subexpressions),
    (140, move_loop_invariants),
    (150, remove_identities),
    (160, reduce_dependencies),
)


def _register() -> None:
    lower = "lower_functional_ops"
    registry.register(GraphPass(lower, PassGrouping.PRE_PLACEMENT, 10, None, is_ours=True, rewrite=_lower))
    for phase, function in _WHOLE_GRAPH:
        name = function.__name__
        registry.register(GraphPass(name, PassGrouping.POST_PLACEMENT, phase, function, Level.WHOLE, is_ours=True))
    registry.register(
        GraphPass(
            "optimize_partition",
            PassGrouping.POST_PARTITIONING,
            100,
            optimize_partition,
            Level.PARTITION,
            is_ours=True,
        )
    )


def _lower(lowering: LowerFunctionalOps, graph: ClientGraph) -> Stage[ClientGraph]:
    return lowering.run(graph)


_register()
