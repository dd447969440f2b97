"""The passes that there are, and when each of them runs.

After ``OptimizationPassRegistry`` in ``tensorflow/core/common_runtime/optimization_registry.h``.  ``pipeline.py`` has
the list of everything that happens from a signature to partitions; the groupings are the places in that list where
registered passes run.  Within a grouping passes run by phase, and within a phase in the order of registration.

A pass is a function of a PassGraph, which it changes.  It may be a generator that yields now and then, so that others
get the event loop meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from asyncexec.framework.cooperative import Stage
from asyncexec.framework.errors import AlreadyExistsError, InvalidArgumentError, NotFoundError

if TYPE_CHECKING:
    from asyncexec.graph.node import Node
    from asyncexec.optimization.lower_functional_ops import LowerFunctionalOps
    from asyncexec.passes.pass_graph import PassGraph
    from asyncexec.pruning.prune import ClientGraph

PassFunction: TypeAlias = Callable[["PassGraph"], "Stage[Any] | PassGraph | None"]
# A pass of ours that makes a new graph in place of one, with the functions of the session.
Rewrite: TypeAlias = Callable[["LowerFunctionalOps", "ClientGraph"], "Stage[ClientGraph]"]
F = TypeVar("F", bound=Callable[..., Any])


class PassGrouping(Enum):
    """When a pass runs.

    Attributes:
        PRE_PLACEMENT: before nodes get their devices; functions are inlined here, at phase 10.
        POST_PLACEMENT: once nodes have their devices; the whole-graph optimizer runs here, from phase 100 on.
        POST_REWRITE_FOR_EXEC: once what the signature does not need has gone, and feeds and fetches have their medium.
        POST_PARTITIONING: for the graph of each device; its optimizer runs here, at phase 100.
    """

    PRE_PLACEMENT = "PRE_PLACEMENT"
    POST_PLACEMENT = "POST_PLACEMENT"
    POST_REWRITE_FOR_EXEC = "POST_REWRITE_FOR_EXEC"
    POST_PARTITIONING = "POST_PARTITIONING"


class Level(Enum):
    """Which of our passes run.

    Attributes:
        ALWAYS: in every run of the pipeline; users' passes are of this level.
        PARTITION: where ``SessionConfig.optimization`` is "L1" or "on", and the signature is optimized.
        WHOLE: where it is "on", and the signature is optimized.
    """

    ALWAYS = 0
    PARTITION = 1
    WHOLE = 2


LEVELS = {"off": Level.ALWAYS, "L0": Level.ALWAYS, "L1": Level.PARTITION, "on": Level.WHOLE}


@dataclass(frozen=True, slots=True, eq=False)
class GraphPass:
    """A pass and its place.

    Attributes:
        function: changes the graph that it is given; or else *rewrite* makes another.
        level: when it runs at all.
        is_ours: it came with the package; else a user wrote it.
        applies: tells by the nodes of a graph whether it may change that, as a stage; None where it always may.
    """

    name: str
    grouping: PassGrouping
    phase: int
    function: PassFunction | None
    level: Level = Level.ALWAYS
    is_ours: bool = False
    rewrite: Rewrite | None = None
    applies: Callable[[Sequence[Node]], Stage[bool]] | None = None


class PassRegistry:
    """Passes by grouping and phase."""

    def __init__(self) -> None:
        self._passes: dict[str, GraphPass] = {}

    def register(self, graph_pass: GraphPass) -> None:
        """Add a pass; AlreadyExistsError when there is one of that name."""
        if graph_pass.name in self._passes:
            raise AlreadyExistsError(f"there is already a graph pass {graph_pass.name!r}")
        self._passes[graph_pass.name] = graph_pass

    def unregister(self, name: str) -> None:
        """Take a pass out; NotFoundError when there is none of that name."""
        if self._passes.pop(name, None) is None:
            raise NotFoundError(f"there is no graph pass {name!r}")

    def passes(self, grouping: PassGrouping, level: Level = Level.WHOLE) -> list[GraphPass]:
        """The passes of *grouping* up to *level*, in the order in which they run."""
        found = [one for one in self if one.grouping is grouping and one.level.value <= level.value]
        return sorted(found, key=lambda one: one.phase)  # stable: within a phase in the order of registration

    def __iter__(self) -> Iterator[GraphPass]:
        return iter(self._passes.values())

    def __contains__(self, name: object) -> bool:
        return name in self._passes


registry: PassRegistry = PassRegistry()


def graph_pass(grouping: str | PassGrouping, phase: int = 0, name: str | None = None) -> Callable[[F], F]:
    """Decorator: registers a function as a pass.  It applies to signatures that any session prepares from now on.

    Args:
        grouping: one of ``"PRE_PLACEMENT"``, ``"POST_PLACEMENT"``, ``"POST_REWRITE_FOR_EXEC"`` and
            ``"POST_PARTITIONING"``; see PassGrouping.
        phase: passes of a grouping run by phase, the lowest first.
        name: a unique name for errors and ``RunMetadata.passes``; by default that of the function.

    Raises:
        InvalidArgumentError: there is no such grouping, or the phase is no integer.
        AlreadyExistsError: there is a pass of that name.
    """
    where = _grouping(grouping)
    if isinstance(phase, bool) or not isinstance(phase, int):
        raise InvalidArgumentError(f"a phase is an integer, not {phase!r}")

    def decorate(function: F) -> F:
        registry.register(GraphPass(name or function.__name__, where, phase, function))
        return function

    return decorate


def _grouping(grouping: str | PassGrouping) -> PassGrouping:
    try:
        return PassGrouping(grouping)
    except ValueError:
        names = ", ".join(each.value for each in PassGrouping)
        raise InvalidArgumentError(f"there is no grouping {grouping!r}", hint=f"the groupings are {names}") from None
