"""Nodes -> clusters: sets of cheap nodes, each of which can be one node of a graph whose other nodes wait or work.

Theory
------
Call the nodes *hard* that the executor has to see: what awaits something, what runs on a worker thread, transfers, and
what makes a loop go round that has a hard node in it; and where a state of a stream is written, which the next item
waits for.  The others are cheap; a loop of cheap nodes counts as one.  A state that is read comes late, as from a hard
node, though what is fed is no node.

A cheap node has its *ancestors*, the set of hard nodes that it waits for, and its *descendants*, those that wait for
it.  Cheap nodes of one frame with the same ancestors and descendants can be one node: it waits for nothing that each of
them does not wait for, and nothing waits for it that does not wait for each of them, however long they take.  It is
convex, for what stands on a path between two of them has the same ancestors and is not hard; and no two such sets are
on a cycle, for along edges ancestors only grow, and descendants only shrink.

A node of a graph runs if all its inputs are live.  So the cheap nodes are divided further by their *base*, the
conditions under which what comes from outside is live.  A Merge belongs to a cluster if all its inputs do; else it is
hard.  What Switches inside of a cluster decide is the cluster's own affair: an output may be dead.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Final, NamedTuple, TypeAlias

from asyncexec.framework.cooperative import STRIDE, Stage, in_parts
from asyncexec.framework.rendezvous import NEVER_DEAD
from asyncexec.graph.control_flow_info import (
    ENTERS,
    EXITS,
    MERGES,
    NEXT_ITERATIONS,
    SWITCHES,
    ControlFlowInfo,
    Frame,
)
from asyncexec.graph.node import Node, Tensor
from asyncexec.partition.send_recv import RECVS
from asyncexec.pruning.prune import ClientGraph
from asyncexec.regions.program import UnstructuredError

MAX_HARD: Final = 4096  # nodes: a set of them is a number of so many bits
_FEW: Final = 2  # calls from which on a region is worth it
_PASSING: Final = SWITCHES | MERGES | {"Identity", "NoOp", "Const"}
_ALWAYS_HARD: Final = frozenset({"ControlTrigger", "StreamStateWrite"})
KEYED: Final = "KeyedStateRead"
LATE: Final = frozenset({"StreamStateRead", KEYED})
_LOOP_OPS: Final = ENTERS | EXITS | NEXT_ITERATIONS | {"LoopCond"}
_IN_THE_LOOP: Final = (0, 1)
_AFTER_THE_LOOP: Final = (0, 0)
_UNKNOWN: Final = (0, -1)
_MAX_TOKENS: Final = 64  # of one node

# An output that decides and the side of it that is taken, behind the number of sides if it is an index: one out of
# range takes the last.  Or a node of which no more is known than that it is live or not.
_Token: TypeAlias = tuple[Node, int, tuple[int, int]]
_Liveness: TypeAlias = frozenset[_Token]
_ALWAYS: Final[_Liveness] = frozenset()


class _Key(NamedTuple):
    """What the members of a cluster have in common."""

    frame: Frame
    ancestors: int
    descendants: int
    base: _Liveness


class Place(NamedTuple):
    """The cluster of a node, and when the node runs: two are equal or they are not."""

    cluster: Hashable
    liveness: Hashable


class _Unit(NamedTuple):
    """A node, or a loop of cheap nodes."""

    nodes: list[Node]
    loop: Frame | None


def find_clusters(graph: ClientGraph, is_hard: Callable[[Node], bool]) -> Stage[list[list[Node]]]:
    """The clusters of *graph*, as a stage: the nodes of each in order, but for constants, which are everybody's.

    Raises:
        UnstructuredError: there is a loop that is none, or too much is hard.
    """
    finder = yield from _found(graph, is_hard)
    return (yield from finder.clusters())


def find_places(graph: ClientGraph, is_hard: Callable[[Node], bool]) -> Stage[Callable[[Node], Place | None]]:
    """What gives the place of a node that can be a member of a cluster, as a stage; errors as of ``find_clusters``."""
    finder = yield from _found(graph, is_hard)
    return finder.place


def _found(graph: ClientGraph, is_hard: Callable[[Node], bool]) -> Stage[_Finder]:
    fed = frozenset((tensor.op, tensor.index) for tensor in graph.feeds)
    flow = yield from ControlFlowInfo.stage(graph.nodes, fed)
    finder = _Finder(graph, flow, fed)
    yield from finder.find_hard(is_hard)
    yield from finder.find_units()
    yield from finder.walk()
    return finder


def is_free(node: Node) -> bool:
    """Whether *node* is a constant that waits for nothing: it is there wherever it is wanted."""
    return node.op == "Const" and not node.control_inputs


class _Finder:
    def __init__(
        self,
        graph: ClientGraph,
        flow: ControlFlowInfo,
        fed: frozenset[tuple[Node, int]],
    ) -> None:
        self._nodes = graph.nodes
        self._here: set[Node] = set()
        self._flow = flow
        self._fed = fed
        self._late = {node for node, _ in fed if node.op in LATE}
        self._hard: set[Node] = set()
        self._hard_frames: set[Frame] = set()
        self._units: list[_Unit] = []
        self._unit_of: dict[Node, _Unit] = {}
        self._bits: dict[Node, int] = {}  # of hard nodes, and of states that are fed
        self._ancestors: dict[Node, int] = {}  # without the node itself
        self._descendants: dict[Node, int] = {}  # by the same bits; of Merges and such it is not known yet
        self._live: dict[Node, _Liveness] = {}  # when the node runs
        self._keys: dict[Node, _Key] = {}  # of members
        self._members: dict[_Key, list[Node]] = {}
        self._entered: dict[tuple[Frame, bool], _Liveness] = {}  # when the variables, or constants, of loops come

    def find_hard(self, is_hard: Callable[[Node], bool]) -> Stage[None]:
        """Gather the nodes that the executor has to see, whatever they stand between."""
        for nodes in in_parts(self._nodes):
            self._here.update(nodes)
            self._hard.update(
                [node for node in nodes if is_hard(node) or _has_reference(node) or node.op in _ALWAYS_HARD]
            )
            yield
        for node in self._late:
            self._give_bit(node)

    # Loops of cheap nodes.

    def find_units(self) -> Stage[None]:
        """Gather the loops that are wholly cheap."""
        for node in self._hard:
            frame: Frame | None = self._flow.output_frame(node) if node.op in ENTERS else self._flow.frame_of(node)
            while frame is not None:
                self._hard_frames.add(frame)
                frame = frame.parent
        self._hard_frames.add(self._flow.root)
        loops: dict[Frame, _Unit] = {}
        for count, node in enumerate(self._nodes):
            loop = self._cheap_loop(node)
            if loop is None:
                unit = _Unit([node], None)
                self._units.append(unit)
            elif loop in loops:
                unit = loops[loop]
                unit.nodes.append(node)
            else:
                unit = loops[loop] = _Unit([node], loop)
                self._units.append(unit)
            self._unit_of[node] = unit
            if not count % STRIDE:
                yield

    def _cheap_loop(self, node: Node) -> Frame | None:
        """The outermost frame around *node* that has nothing hard in it."""
        frame: Frame | None = self._flow.output_frame(node) if node.op in ENTERS else self._flow.frame_of(node)
        found = None
        while frame is not None and frame not in self._hard_frames:
            found, frame = frame, frame.parent
        return found

    # All units, each after what it waits for.

    def walk(self) -> Stage[None]:
        """Find the keys of all members."""
        behind: dict[int, list[_Unit]] = {}
        ordered = yield from self._order(behind)
        for count, unit in enumerate(reversed(ordered)):
            self._look_back(unit, behind.pop(id(unit), ()))
            if not count % STRIDE:
                yield
        for count, unit in enumerate(ordered):
            self._take(unit)
            if not count % (STRIDE // 4):  # they take more than others
                yield
        for (frame, is_constant), live in self._entered.items():
            if is_constant and not live <= self._entered.get((frame, False), live):
                raise UnstructuredError(f"a constant of frame {frame.name!r} is live under conditions of its own")

    def _order(self, behind: dict[int, list[_Unit]]) -> Stage[list[_Unit]]:
        """All units; note in *behind* those that wait for each, by its id."""
        waiting: dict[int, int] = {}
        ready: deque[_Unit] = deque()
        for count, unit in enumerate(self._units):
            sources = {id(self._unit_of[source]) for source in self._sources(unit)} - {id(unit)}
            for source in sources:
                behind.setdefault(source, []).append(unit)
            waiting[id(unit)] = len(sources)
            if not sources:
                ready.append(unit)
            if not count % STRIDE:
                yield
        ordered: list[_Unit] = []
        while ready:
            unit = ready.popleft()
            ordered.append(unit)
            self._number(unit)
            for other in behind.get(id(unit), ()):
                waiting[id(other)] -= 1
                if not waiting[id(other)]:
                    ready.append(other)
            if not len(ordered) % STRIDE:
                yield
        if len(ordered) < len(self._units):
            raise UnstructuredError("nodes wait for one another")
        return ordered

    def _sources(self, unit: _Unit) -> Iterable[Node]:
        for node in unit.nodes:
            for tensor in node.inputs:
                if not self._is_given(tensor) and not _is_back_edge(node, tensor):
                    yield tensor.op
            for control in node.control_inputs:
                if control in self._here:
                    yield control

    def _number(self, unit: _Unit) -> None:
        """Give *unit* a bit, if it is hard whatever it stands between."""
        if unit.loop is None and (unit.nodes[0] in self._hard or unit.nodes[0].op in _LOOP_OPS):
            self._give_bit(unit.nodes[0])

    def _give_bit(self, node: Node) -> None:
        if len(self._bits) == MAX_HARD:
            raise UnstructuredError(f"more than {MAX_HARD} nodes are hard")
        self._bits[node] = 1 << len(self._bits)

    def _look_back(self, unit: _Unit, behind: Iterable[_Unit]) -> None:
        descendants = 0
        for other in behind:
            node = other.nodes[0]
            descendants |= self._descendants[node] | self._bits.get(node, 0)
        for node in unit.nodes:
            self._descendants[node] = descendants

    def _is_given(self, tensor: Tensor) -> bool:
        return (tensor.op, tensor.index) in self._fed or tensor.op not in self._here

    def _take(self, unit: _Unit) -> None:
        node = unit.nodes[0]
        if unit.loop is None and is_free(node):
            self._ancestors[node], self._live[node] = 0, _ALWAYS
            return
        tensors, controls = self._outer_inputs(unit)
        ancestors = 0
        for source in (*[tensor.op for tensor in tensors], *controls):
            ancestors |= self._ancestors[source] | self._bits.get(source, 0)
        if self._late:
            for tensor in [tensor for each in unit.nodes for tensor in each.inputs if tensor.op in self._late]:
                ancestors |= self._bits[tensor.op]
        for each in unit.nodes:
            self._ancestors[each], self._live[each] = ancestors, self._liveness(each)
        key = None if self._is_apart(unit, node) else self._key(unit, ancestors, tensors, controls)
        for each in unit.nodes:
            if key is not None:
                self._keys[each] = key
                self._members.setdefault(key, []).append(each)
        if key is None and node not in self._bits:
            self._give_bit(node)

    def _inputs(self, node: Node) -> tuple[list[Tensor], list[Node]]:
        """What *node* takes from others that are in the graph, but for what comes round, and whom else it waits for."""
        tensors = [tensor for tensor in node.inputs if not self._is_given(tensor) and not _is_back_edge(node, tensor)]
        return tensors, [control for control in node.control_inputs if control in self._here]

    def _outer_inputs(self, unit: _Unit) -> tuple[list[Tensor], list[Node]]:
        """The same of all *unit*, from outside of it."""
        tensors: list[Tensor] = []
        controls: list[Node] = []
        for node in unit.nodes:
            its_tensors, its_controls = self._inputs(node)
            tensors += [tensor for tensor in its_tensors if self._unit_of[tensor.op] is not unit]
            controls += [control for control in its_controls if self._unit_of[control] is not unit]
        return tensors, controls

    def _is_apart(self, unit: _Unit, node: Node) -> bool:
        """Whether the executor has to see *node*, the only one of *unit* if that is no loop."""
        if unit.loop is not None:
            return False
        if node in self._bits:
            return True
        if node.op in MERGES:
            sources = (*[tensor.op for tensor in node.inputs], *node.control_inputs)
            keys = {self._keys.get(source) for source in sources}
            if any(self._is_given(tensor) for tensor in node.inputs):
                return True
            return any(key is None or key.descendants != self._descendants[node] for key in keys) or len(keys) > 1
        return node.op in SWITCHES and self._source(node.inputs[1]).op.op == "LoopCond"

    def _key(self, unit: _Unit, ancestors: int, tensors: Sequence[Tensor], controls: Sequence[Node]) -> _Key:
        frame = self._flow.frame_of(unit.nodes[0])
        if unit.loop is not None:
            assert unit.loop.parent is not None
            frame = unit.loop.parent
        if unit.loop is None and unit.nodes[0].op in MERGES:
            return self._keys[unit.nodes[0].inputs[0].op]
        descendants = self._descendants[unit.nodes[0]]
        given = [(tensor.op, self._live_of(tensor)) for tensor in tensors]
        given += [(control, self._live[control]) for control in controls]
        near: list[tuple[_Liveness, _Liveness]] = []  # the base and the liveness of what may be in the same cluster
        base = _ALWAYS
        for source, live in given:
            key = self._keys.get(source)
            if key is not None and key[:3] == (frame, ancestors, descendants):
                near.append((key.base, live))
                base |= key.base
            else:
                base |= live
        while True:
            grown = base.union(*[live for its_base, live in near if its_base != base])
            if grown == base:
                return _Key(frame, ancestors, descendants, base)
            base = grown

    # When nodes run.

    def _live_of(self, tensor: Tensor) -> _Liveness:
        """When *tensor* has a value."""
        node, live = tensor.op, self._live[tensor.op]
        if node.op in SWITCHES:
            pred = self._source(node.inputs[1])
            num_sides = len(node.properties.output_dtypes) if node.op == "_SwitchN" else 0
            return live | {(pred.op, pred.index, (num_sides, tensor.index))}
        return live

    def _liveness(self, node: Node) -> _Liveness:
        if node.op in MERGES and not self._is_head(node):
            return self._merged(node)
        tensors, controls = self._inputs(node)
        live = _ALWAYS.union(*map(self._live_of, tensors), *[self._live[control] for control in controls])
        if node.op in EXITS or node.op in NEXT_ITERATIONS or node.op in ENTERS:
            self._check_round(node, live)
        if node.op in EXITS:
            live = frozenset(token for token in live if not self._is_beside(token[0], node))
        is_known = node.attrs.get(NEVER_DEAD, False) if node.op in RECVS else node.op != "ControlTrigger"
        return live if is_known and len(live) <= _MAX_TOKENS else _itself(node)

    def _is_head(self, node: Node) -> bool:
        """Whether a loop goes round by way of *node*, a Merge."""
        num_back = sum(_is_back_edge(node, tensor) for tensor in node.inputs)
        if num_back and (num_back, len(node.inputs)) != (1, 2):
            raise UnstructuredError(f"{node.name!r} is no variable of a loop")
        return bool(num_back)

    def _merged(self, node: Node) -> _Liveness:
        """When a Merge of branches is live: whenever one side or another of a predicate is, or nobody knows."""
        lives = [_ALWAYS if self._is_given(tensor) else self._live_of(tensor) for tensor in node.inputs]
        common = frozenset.intersection(*lives)
        if all(len(live) == len(common) + 1 for live in lives):
            tokens = frozenset.union(*lives) - common
            source, index, (num_sides, _) = next(iter(tokens))
            sides = {(source, index, (num_sides, side)) for side in range(len(lives))}
            if len(lives) == (num_sides or 2) and tokens == sides:
                return common
        return _itself(node)

    def _check_round(self, node: Node, live: _Liveness) -> None:
        """What enters a loop must do so together, come round whenever it goes round, and leave it when it ends."""
        if node.op in ENTERS:
            frame = self._flow.output_frame(node)
            is_constant = bool(node.get_attr("is_constant"))
            known = self._entered.setdefault((frame, is_constant), live)
            if known != live:
                raise UnstructuredError(f"{node.name!r} enters a frame under other conditions than others do")
            return
        loop_cond = self._flow.frame_of(node).loop_cond
        inside = {(source, side) for source, _, side in live if self._is_beside(source, node)}
        side = _AFTER_THE_LOOP if node.op in EXITS else _IN_THE_LOOP
        if loop_cond is None or inside != {(loop_cond, side)}:
            raise UnstructuredError(f"{node.name!r} does not go on whenever the loop does, or does not")

    def _is_beside(self, source: Node, node: Node) -> bool:
        return source in self._here and self._flow.frame_of(source) is self._flow.frame_of(node)

    def _source(self, tensor: Tensor) -> Tensor:
        """What *tensor* is, but for the Identities on its way."""
        while tensor.op.op == "Identity" and not tensor.op.control_inputs and not self._is_given(tensor):
            tensor = tensor.op.inputs[0]
        return tensor

    # The end.

    def clusters(self) -> Stage[list[list[Node]]]:
        """The clusters that are worth it, and of which all is known that others need to know."""
        positions: dict[Node, int] = {}
        unsure: set[_Key] = set()
        for position, node in enumerate(self._nodes):
            positions[node] = position
            unsure.update(self._unsure(node))
            if not position % STRIDE:
                yield
        found: list[list[Node]] = []
        for key, members in self._members.items():
            if key not in unsure and _is_worth_it(members):
                found.append(sorted(members, key=positions.__getitem__))
                yield
        return found

    def place(self, node: Node) -> Place | None:
        """Of a member, its cluster and when it runs."""
        key = self._keys.get(node)
        return None if key is None else Place(key, self._live[node])

    def _unsure(self, node: Node) -> Iterable[_Key]:
        """The clusters that *node* waits for, where it is for a member that need not run when they do."""
        own = self._keys.get(node)
        for control in node.control_inputs:
            key = self._keys.get(control)
            if key is not None and key != own and self._live[control] != key.base:
                yield key


def _is_worth_it(members: Sequence[Node]) -> bool:
    return sum(node.op not in _PASSING for node in members) >= _FEW


def _itself(node: Node) -> _Liveness:
    """*node* is live when it is."""
    return frozenset({(node, 0, _UNKNOWN)})


def _is_back_edge(node: Node, tensor: Tensor) -> bool:
    return node.op in MERGES and tensor.op.op in NEXT_ITERATIONS


def _has_reference(node: Node) -> bool:
    properties = node.properties
    return any(dtype.is_ref for dtype in (*properties.input_dtypes, *properties.output_dtypes))
