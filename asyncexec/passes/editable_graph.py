"""EditableGraph: the graph of a signature as nodes and edges that can be changed.

The nodes are its own, copies of those that the user made, so that a pass changes nothing that others see.  A walk goes
through them in order, each after its inputs but for the back edges of loops.

Theory
------
A replacement is noted, and the consumers are marked; each is rewired once, when the walk comes to it or the pass ends,
however many of its inputs were replaced.  Edges out of each node are counted: when a pass ends, a node goes that has
none left, and was not wanted for its own sake.  A node was that if nothing took anything from it at the beginning.  New
nodes lie right behind the last of their inputs; where a consumer then comes before what it takes, the order is made
anew.  So a pass costs one look at each node, and in addition only what it changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Self

from asyncexec.framework.cooperative import STRIDE, Stage
from asyncexec.framework.tensor_shape import TensorShape
from asyncexec.graph.control_flow_info import MERGES, NEXT_ITERATIONS
from asyncexec.graph.graph import Graph
from asyncexec.graph.node import Node, NodeProperties, Tensor
from asyncexec.passes.graph_copy import copied, sorted_by_inputs
from asyncexec.passes.pass_stats import Changes
from asyncexec.placement.placement_rules import Placement
from asyncexec.pruning.prune import ClientGraph

_NEW: Final = 2.0**-24  # positions of new nodes lie between those of others


class EditableGraph:
    """A graph that can be changed.

    Attributes:
        feeds: tensors whose values the caller gives.
        fetches: tensors whose values the caller gets.
        targets: nodes that run without giving anything.
        placement: the devices of nodes; None before they are placed.
        changes: what has been changed since this was last reset.
        version: how often it has been changed, ever.
    """

    def __init__(self, graph: ClientGraph, owner: Graph, placement: Placement | None = None) -> None:
        self.feeds: list[Tensor[Any]] = list(graph.feeds)
        self.fetches: list[Tensor[Any]] = list(graph.fetches)
        self.targets: list[Node] = list(graph.targets)
        self.placement = placement
        self.changes: Changes = Changes()
        self.version: int = 0  # how often it has been changed, ever
        self._settled: dict[str, int] = {}  # by step, the version that it left
        self._owner = owner
        self._nodes = list(graph.nodes)
        self._position: dict[Node, float] = {}
        self._names: set[str] = set()
        self._users: dict[Node, list[Node]] = {}
        self._uses: dict[Node, int] = {}  # edges out of a node, and its being fetched or a target
        self._waiting: dict[Node, int] = {}  # control edges out of a node
        self._pinned: set[Node] = set()
        self._fed = frozenset((tensor.op, tensor.index) for tensor in graph.feeds)
        self._fed_nodes = frozenset(tensor.op for tensor in graph.feeds)
        self._kept: set[Node] = set()
        self._instead: dict[tuple[Node, int], Tensor] = {}  # of tensors that have been replaced
        self._controls_instead: dict[Node, tuple[Node, ...]] = {}
        self._dirty: dict[Node, None] = {}
        self._unused: dict[Node, None] = {}
        self._added: list[Node] = []
        self._fresh: set[Node] = set()  # added by the pass that is running
        self._num_added = 0
        self._is_ordered = True
        self._has_gaps = False

    @classmethod
    def open(cls, graph: ClientGraph, owner: Graph, placement: Placement | None = None) -> Stage[Self]:
        """A graph with copies of the nodes of *graph*, as a stage; *placement* is made to know them."""
        return (yield from cls.of_own((yield from copied(graph, placement)), owner, placement))

    @classmethod
    def of_own(cls, graph: ClientGraph, owner: Graph, placement: Placement | None = None) -> Stage[Self]:
        """A graph of the nodes of *graph* themselves, which nobody else has, as a stage."""
        opened = cls(graph, owner, placement)
        yield from opened._read()
        return opened

    def _read(self) -> Stage[None]:
        yield from self._read_nodes()
        yield from self._read_edges()
        wanted = [*self.targets, *(tensor.op for tensor in self.fetches)]
        self._kept = {*self._fed_nodes, *wanted}
        uses = self._uses
        for node in wanted:
            if node in uses:
                uses[node] += 1
        # What nothing takes was wanted all the same, by a function that has been inlined for one.
        for start in range(0, len(self._nodes), STRIDE):
            for node in self._nodes[start : start + STRIDE]:
                if not uses[node]:
                    self._pinned.add(node)
                    uses[node] = 1
            yield

    def _read_nodes(self) -> Stage[None]:
        position, users, uses = self._position, self._users, self._uses
        waiting, names = self._waiting, self._names
        for count, node in enumerate(self._nodes):
            position[node] = count
            users[node] = []
            uses[node] = waiting[node] = 0
            names.add(node.name)
            if not count % STRIDE:
                yield

    def _read_edges(self) -> Stage[None]:
        users, uses, waiting = self._users, self._uses, self._waiting
        fed, fed_nodes = self._fed, self._fed_nodes
        for count, node in enumerate(self._nodes):
            for tensor in node.inputs:
                source = tensor.op
                if source in fed_nodes and (source, tensor.index) in fed:
                    users.setdefault(source, []).append(node)
                    continue
                uses[source] += 1
                users[source].append(node)
            for source in node.control_inputs:
                if source in uses:
                    uses[source] += 1
                    waiting[source] += 1
                    users[source].append(node)
            if not count % STRIDE:
                yield

    def __iter__(self) -> Iterator[Node]:
        """The nodes, each after its inputs but for the back edges of loops."""
        dirty, position = self._dirty, self._position
        for node in self._nodes:
            if node in position:
                if node in dirty:
                    self._rewire(node)
                yield node

    def __len__(self) -> int:
        return len(self._position)

    def __contains__(self, node: object) -> bool:
        return node in self._position

    def is_waited_for(self, node: Node) -> bool:
        """Whether any node has a control input from *node*."""
        return self._waiting.get(node, 0) > 0

    def is_taken(self, node: Node) -> bool:
        """Whether anything takes an output of *node*, be it the caller."""
        return self._uses[node] > self._waiting[node]

    def is_fed(self, tensor: Tensor) -> bool:
        """Whether the caller gives the value of *tensor*."""
        return tensor.op in self._fed_nodes and (tensor.op, tensor.index) in self._fed

    def is_kept(self, node: Node) -> bool:
        """Whether *node* is fed, fetched or a target: it keeps its name."""
        return node in self._kept

    def make(
        self,
        properties: NodeProperties,
        name: str,
        inputs: Sequence[Tensor],
        controls: Iterable[Node],
        *,
        like: Node | None = None,
        shapes: Sequence[TensorShape] | None = None,
    ) -> Node:
        """A new node of these *properties*, where *like* runs, and of the same line of the user's."""
        taken = tuple([self.now(tensor) for tensor in inputs])
        waits_for = self._controls_now(controls)
        device, line = ("", None) if like is None else (like.device, like.source_line)
        node = Node(self._owner, self.unique_name(name), properties, taken, waits_for, device, line)
        if shapes is not None:
            node.output_shapes = tuple(shapes)
        if self.placement is not None:
            where = self.placement.default if like is None else self.placement.device_of(like)
            if where is not self.placement.default:
                self.placement.elsewhere[node] = where
        sources = (*(tensor.op for tensor in taken), *waits_for)
        last = max((self._position[source] for source in sources if source in self._position), default=-1.0)
        self._num_added += 1
        self._position[node] = last + self._num_added * _NEW
        self._users[node] = []
        self._uses[node] = self._waiting[node] = 0
        self._unused[node] = None
        self._added.append(node)
        self._fresh.add(node)
        self._count(node, +1)
        self.version += 1
        self.changes.added[node.name] = None
        return node

    def unique_name(self, wanted: str) -> str:
        """*wanted*, or with a number that no other name has."""
        name, count = wanted, 0
        while name in self._names or self._owner.find_operation(name) is not None:
            count += 1
            name = f"{wanted}_{count}"
        self._names.add(name)
        return name

    def replace_tensors(self, node: Node, tensors: Mapping[int, Tensor]) -> None:
        """Let what takes outputs of *node* take *tensors*, by the index of the output."""
        for index, tensor in tensors.items():
            found = self.now(tensor)
            if found.op is not node or found.index != index:
                self._instead[node, index] = found
        self._touch(node)

    def replace_control(self, node: Node, *others: Node) -> None:
        """Let what waits for *node* wait for *others*."""
        self._controls_instead[node] = others
        self._touch(node)

    def convert(
        self,
        node: Node,
        properties: NodeProperties,
        inputs: Sequence[Tensor] = (),
        controls: Iterable[Node] = (),
        shapes: Sequence[TensorShape] | None = None,
    ) -> None:
        """Make *node* another one of the same name, with as many outputs of the same dtypes."""
        self._count(node, -1)
        node.properties = properties
        node.inputs, node.control_inputs = tuple(inputs), self._controls_now(controls)
        if shapes is not None:
            node.output_shapes = tuple(shapes)
        self._count(node, +1)
        self._check_order(node)
        self.version += 1
        self.changes.changed[node.name] = None

    def set_inputs(
        self, node: Node, inputs: Sequence[Tensor] | None = None, controls: Iterable[Node] | None = None
    ) -> None:
        """Let *node* take other inputs, or wait for other nodes."""
        inputs = node.inputs if inputs is None else inputs
        self.convert(node, node.properties, inputs, node.control_inputs if controls is None else controls)

    def remove(self, node: Node) -> None:
        """Take *node* out, which nothing may need any more when the pass ends."""
        if node in self._position:
            self._count(node, -1)
            del self._position[node]
            self._has_gaps = True
            self.version += 1
            self.changes.removed[node.name] = None

    def release(self, node: Node) -> None:
        """Let *node* go as soon as nothing takes anything from it, though it ran for its own sake before."""
        if node in self._pinned:
            self._pinned.discard(node)
            self._uses[node] -= 1
            self._unused[node] = None

    # Edges.

    def now(self, tensor: Tensor) -> Tensor:
        """What has taken the place of *tensor*: itself, unless it was replaced."""
        instead = self._instead
        found = tensor
        while (after := instead.get((found.op, found.index))) is not None and after is not tensor:
            found = after
        return found

    def _controls_now(self, controls: Iterable[Node]) -> tuple[Node, ...]:
        instead = self._controls_instead
        found: dict[Node, None] = {}
        seen: set[Node] = set()
        pending = list(controls)[::-1]
        while pending:
            control = pending.pop()
            if control not in instead:
                found[control] = None
            elif control not in seen:
                seen.add(control)
                pending += instead[control][::-1]
        return tuple(found)

    def _touch(self, node: Node) -> None:
        self._dirty.update(dict.fromkeys(self._users.get(node, ())))
        if node in self._uses:
            self._unused[node] = None

    def _count(self, node: Node, step: int) -> None:
        """Count the edges into *node*, or take them off."""
        uses, users = self._uses, self._users
        sources = [tensor.op for tensor in node.inputs if not self.is_fed(tensor)]
        for source in node.control_inputs:
            if source in uses:
                self._waiting[source] += step
                sources.append(source)
        for source in sources:
            if source in uses:
                uses[source] += step
                if step > 0:
                    users[source].append(node)
                elif not uses[source]:
                    self._unused[source] = None

    def _rewire(self, node: Node) -> None:
        """Let *node* take what has taken the place of its inputs."""
        self._dirty.pop(node, None)
        if node not in self._position:
            return
        instead = self._instead
        inputs = node.inputs
        if any((tensor.op, tensor.index) in instead for tensor in inputs):
            inputs = tuple([self._now_for(node, tensor) for tensor in inputs])
        controls = node.control_inputs
        if any(control in self._controls_instead for control in controls):
            controls = tuple(dict.fromkeys([one for control in controls for one in self._waited_by(node, control)]))
        if inputs is not node.inputs or controls is not node.control_inputs:
            self._count(node, -1)
            node.inputs, node.control_inputs = inputs, controls
            self._count(node, +1)
            self._check_order(node)
            self.version += 1
            self.changes.changed[node.name] = None

    def _now_for(self, node: Node, tensor: Tensor) -> Tensor:
        """``now``; but what the pass has put between a tensor and its replacement still takes the tensor."""
        found = self.now(tensor)
        if node in self._fresh and self._position.get(found.op, -1.0) >= self._position[node]:
            return tensor
        return found

    def _waited_by(self, node: Node, control: Node) -> tuple[Node, ...]:
        found = self._controls_now([control])
        if node not in self._fresh:
            return found
        own = self._position[node]
        return (control,) if any(self._position.get(other, -1.0) >= own for other in found) else found

    def _check_order(self, node: Node) -> None:
        position, own = self._position, self._position[node]
        sources = [tensor.op for tensor in node.inputs]
        if node.op in MERGES:
            sources = [source for source in sources if source.op not in NEXT_ITERATIONS]
        if any(position.get(source, -1.0) >= own for source in (*sources, *node.control_inputs)):
            self._is_ordered = False

    def forget_changes(self) -> None:
        """Begin to note anew what is changed."""
        self.changes = Changes()

    # The end of a pass.

    def apply(self, step: Callable[[Self], Stage[object]]) -> Stage[None]:
        """Run *step*, one of ours, and tidy up; nothing where it has run, and nothing has changed since.

        A walk sees what has been changed on the way, so that a second one would find nothing more.
        """
        name = getattr(step, "__name__", "")
        if not name or self._settled.get(name) != self.version:
            yield from step(self)
            yield from self.tidy()
            self._settled[name] = self.version

    def tidy(self) -> Stage[None]:
        """Rewire what is left to be, let go what nothing needs, and put all in order, as a stage."""
        for count, node in enumerate(list(self._dirty)):
            self._rewire(node)
            if not count % STRIDE:
                yield
        self._tidy_ends()
        self._instead.clear()
        self._controls_instead.clear()
        self._fresh.clear()
        count = 0
        while self._unused:
            node, _ = self._unused.popitem()
            if node in self._position and not self._uses[node] and node not in self._kept:
                self.remove(node)
            count += 1
            if not count % STRIDE:
                yield
        if self._added or self._has_gaps or not self._is_ordered:
            yield from self._put_in_order()

    def _tidy_ends(self) -> None:
        if not (self._instead or self._controls_instead):
            return
        for position, tensor in enumerate(self.fetches):
            found = tensor if self.is_fed(tensor) else self.now(tensor)
            if found is not tensor:
                self._move_use(tensor.op, found.op)
                self.fetches[position] = found
        for position, node in enumerate(self.targets):
            if node in self._controls_instead:
                others = self._controls_now([node])
                self.targets[position : position + 1] = others
                for other in others:
                    self._move_use(node, other)
        self._kept = {*self._fed_nodes, *(tensor.op for tensor in self.fetches), *self.targets}

    def _move_use(self, old: Node, new: Node) -> None:
        if old in self._uses:
            self._uses[old] -= 1
            self._unused[old] = None
        if new in self._uses:
            self._uses[new] += 1

    def _put_in_order(self) -> Stage[None]:
        position = self._position
        added = sorted((node for node in self._added if node in position), key=position.__getitem__, reverse=True)
        nodes: list[Node] = []
        for count, node in enumerate(self._nodes):
            if node in position:
                while added and position[added[-1]] < position[node]:
                    nodes.append(added.pop())
                nodes.append(node)
            if not count % STRIDE:
                yield
        nodes += added[::-1]
        if not self._is_ordered:
            nodes = yield from sorted_by_inputs(nodes)
        for start in range(0, len(nodes), STRIDE):
            position.update({node: i for i, node in enumerate(nodes[start : start + STRIDE], start)})
            yield
        self._nodes, self._is_ordered, self._has_gaps = nodes, True, False
        self._added.clear()
        self._num_added = 0

    def client_graph(self) -> ClientGraph:
        """The graph as it is, after ``tidy``."""
        return ClientGraph(tuple(self._nodes), tuple(self.feeds), tuple(self.fetches), tuple(self.targets))
