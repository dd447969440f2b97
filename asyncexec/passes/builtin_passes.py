"""Our own passes: the lowering, the optimizer of the whole graph, where Grappler stands, and that of each partition.

The lowering always runs; the optimizers run when a signature is optimized, which the first runs of it are not.  Their
order: constants first, for they decide branches; then what makes nodes equal; then equal nodes; and at the end what
only stood between others.
"""

from __future__ import annotations

import importlib
from typing import Final

from asyncexec.framework.cooperative import Stage
from asyncexec.optimization.lower_functional_ops import LowerFunctionalOps
from asyncexec.passes.registry import GraphPass, Level, PassGrouping, registry
from asyncexec.process.imports import imported
from asyncexec.pruning.prune import ClientGraph

# By phase: the module of a pass, and the pass.
_WHOLE_GRAPH: Final = (
    (100, "fold_constants", "fold_constants"),
    (110, "dead_branches", "remove_dead_branches"),
    (120, "arithmetic", "simplify_arithmetic"),
    (130, "common_subexpressions", "merge_common_subexpressions"),
    (140, "loop_invariants", "move_loop_invariants"),
    (150, "identities", "remove_identities"),
    (155, "unused_values", "skip_unused_values"),
    (160, "dependencies", "reduce_dependencies"),
)
_PARTITION: Final = (100, "partition_optimizer", "optimize_partition")


class LatePass:
    """A pass whose module is imported when it first runs."""

    __slots__ = ("__name__", "_module")

    def __init__(self, module: str, name: str) -> None:
        self.__name__: str = name
        self._module = f"asyncexec.passes.{module}"

    def __call__(self, graph: object) -> Stage[None]:
        yield from imported([self._module])
        yield from getattr(importlib.import_module(self._module), self.__name__)(graph)


def import_passes() -> None:
    """Import the modules of all passes: else the first signature that is optimized does, which holds its event loop."""
    modules = [module for _, module, _ in (*_WHOLE_GRAPH, _PARTITION)]
    for module in ("pass_graph", *modules):
        importlib.import_module(f"asyncexec.passes.{module}")


def _register() -> None:
    lower = "lower_functional_ops"
    registry.register(GraphPass(lower, PassGrouping.PRE_PLACEMENT, 10, None, is_ours=True, rewrite=_lower))
    for phase, module, name in _WHOLE_GRAPH:
        late = LatePass(module, name)
        registry.register(GraphPass(name, PassGrouping.POST_PLACEMENT, phase, late, Level.WHOLE, is_ours=True))
    phase, module, name = _PARTITION
    late = LatePass(module, name)
    registry.register(GraphPass(name, PassGrouping.POST_PARTITIONING, phase, late, Level.PARTITION, is_ours=True))


def _lower(lowering: LowerFunctionalOps, graph: ClientGraph) -> Stage[ClientGraph]:
    return lowering.run(graph)


_register()
