"""Chains of expensive nodes: what runs on a worker thread next, without coming back to the event loop before.

When a node is launched on a worker, those behind it go along: the consumer that its outputs make ready, if that is one,
and runs on a worker too, and so on.  The thread hands the outputs of each to those that take them.  A node whose place
depends on the size of its inputs goes along whatever that turns out to be: there it holds up nobody.  So do cheap nodes
of ours that keep no state, where an expensive one follows: to come back for them takes longer than they do.

All consumers of each node of a chain but the last are in the chain: a residual connection is, and nobody else waits for
what is handed on.  They take some of its outputs each; where there are several, none of these is dead but all.  Of what
is ready at a time at most one is expensive: others are for other threads.

The propagator hears of the whole chain when it is over.  It is told, node by node, of outputs that it never sees: each
makes others ready, of which the next is then taken from the ready queue as having run.  So frames, iterations and their
counts are what they would be had every node come back by itself.  Where the thread stops before the end, as a node has
failed or its output is dead, the others get back what was taken for them, and run as if there had been no chain.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from itertools import chain, islice, pairwise
from typing import Final, NamedTuple, TypeAlias

from asyncexec.compilation.graph_view import DELIVERED, NodeItem
from asyncexec.compilation.shared_inputs import is_user_function
from asyncexec.executor.diagnostics.kernel_stats import CAREFUL, INLINE, SIZED, WIDE, WORKER, KernelStats, num_bytes
from asyncexec.executor.diagnostics.output_sizes import Sizes, sizes_of
from asyncexec.executor.diagnostics.step_observer import StepObserver
from asyncexec.executor.engine.cascade import CASCADE_BUDGET
from asyncexec.executor.engine.frame import TaggedNode
from asyncexec.executor.engine.kernel_outputs import checked_outputs
from asyncexec.executor.engine.propagator import Propagator, TaggedQueue
from asyncexec.executor.workers.job import HANDED_ON, Call, Outcome
from asyncexec.framework.kernel import DEAD, KernelKind
from asyncexec.graph.control_flow_info import SWITCHES

# Nodes that go along at most: their outcomes are taken in one go.
_LONGEST: Final = 128
# Nodes that are looked at at most to find all consumers of one.
_AHEAD: Final = 64
# Routes of a node at most: they are delivered in one cascade, and what one makes ready stands alone.
_MOST_ROUTES: Final = CASCADE_BUDGET // 2

_EXPENSIVE: Final = (WORKER, SIZED)

_Fills: TypeAlias = Sequence[tuple[int, int]]  # outputs, with their positions among the inputs of a consumer


class Link(NamedTuple):
    """From a node to a consumer of its outputs.

    Attributes:
        item: the consumer; it gets *fills*.
        num_awaited: how often its pending count is decremented for that.
    """

    item: NodeItem
    fills: _Fills
    num_awaited: int


class NodeCall(Call):
    """The call of a node's kernel in a chain.

    Attributes:
        size: that of the inputs where it is SIZED.
        fills: which of its inputs the call before gives; later: calls after this one that take some of that, too.
        received: the sizes of what the node before gave, where somebody wants to know them.
    """

    __slots__ = ("fills", "item", "later", "maker", "received", "size")

    def __init__(
        self,
        item: NodeItem,
        inputs: list[object],
        size: int = -1,
        maker: NodeItem | None = None,
        *,
        is_cheap: bool = False,
        is_observed: bool = False,
    ) -> None:
        kernel = item.checked_kernel
        super().__init__(getattr(kernel, "on_worker", kernel), inputs, item.node.name, is_cheap=is_cheap)
        self.item: NodeItem = item
        self.maker: NodeItem | None = maker
        self.fills: _Fills = ()
        self.later: list[tuple[NodeCall, _Fills]] = []
        self.size: int = size
        self.received: Sizes | None = () if is_observed else None

    def receive(self, result: object) -> bool:
        """Take the outputs of the node before; False if one of them is dead.

        Raises:
            InternalError: they are not as many as its op has.
        """
        maker = self.maker
        assert maker is not None  # this is not the first
        if self.received is not None:
            self.received = sizes_of(maker.node, result, is_tuple=maker.returns_tuple)
        outputs = checked_outputs(maker, result) if maker.returns_tuple else (result,)
        if not self._fill(self.fills, outputs):
            return False
        for call, fills in self.later:
            call._fill(fills, outputs)
        if self.size >= 0:
            self.size = num_bytes(self.args)
        return True

    def _fill(self, fills: _Fills, outputs: Sequence[object]) -> bool:
        inputs = self.args
        assert isinstance(inputs, list)  # nobody has taken them
        for index, position in fills:
            if outputs[index] is DEAD:
                return False
            inputs[position] = outputs[index]
        return True


class WorkerChains:
    """The chains of one plan, found link by link when they are first launched."""

    __slots__ = ("_links", "_may_go_along")

    def __init__(self) -> None:
        self._links: dict[int, Sequence[Link]] = {}
        self._may_go_along: dict[int, bool] = {}  # whether a node may run on any thread where it is cheap

    def calls(
        self,
        entry: TaggedNode,
        item: NodeItem,
        inputs: list[object],
        size: int,
        propagator: Propagator,
        places: Sequence[int],
        *,
        is_observed: bool,
    ) -> list[NodeCall]:
        """The call of *item*, which is *entry* of the ready queue, and those of the nodes that go along."""
        calls = [NodeCall(item, inputs, size)]
        members = self._members(entry, item, propagator, places)
        by_item: dict[NodeItem, NodeCall] = {}
        for maker, member in pairwise(members):
            size = 0 if places[member.id] == SIZED else -1
            others = propagator.take_ahead(entry, member)
            is_cheap = places[member.id] not in _EXPENSIVE
            by_item[member] = NodeCall(member, others, size, maker, is_cheap=is_cheap, is_observed=is_observed)
            calls.append(by_item[member])
        for call in calls[1:]:
            assert call.maker is not None  # none but the first has none
            for link in self._links_from(call.maker):
                if link.item is call.item:
                    call.fills = link.fills
                else:
                    call.later.append((by_item[link.item], link.fills))
        return calls

    def _members(
        self, entry: TaggedNode, item: NodeItem, propagator: Propagator, places: Sequence[int]
    ) -> list[NodeItem]:
        """The nodes of the chain that *item* is the first of."""
        members, length = [item], 1  # up to the last that may be the end: cheap ones at the end gain nothing
        is_worth_it = False  # whether some behind that are expensive
        awaited: dict[NodeItem, int] = {}  # of consumers that are no members
        ready: list[NodeItem] = []  # of these
        links = self._links_from(item)
        while links and len(members) < _LONGEST and len(members) - length < _AHEAD:
            for consumer, _, count in links:
                count += awaited.get(consumer, 0)
                awaited[consumer] = count
                if propagator.waits_for(entry, consumer, count):
                    ready.append(consumer)
            member = self._next(ready, places)
            if member is None:
                break
            members.append(member)
            del awaited[member]
            is_worth_it |= places[member.id] in _EXPENSIVE
            if is_worth_it and not awaited:
                length, is_worth_it = len(members), False
            links = self._links_from(member)
        return members[:length]

    def _next(self, ready: list[NodeItem], places: Sequence[int]) -> NodeItem | None:
        """Take the one that runs next out of *ready*; None where there is none, or they are not all for one thread."""
        first = -1  # of those that are cheap, which come before the expensive one
        num_expensive = 0
        for index, item in enumerate(ready):
            if places[item.id] in _EXPENSIVE:
                num_expensive += 1
            elif self._goes_along(item, places):
                first = index if first < 0 else first
            else:
                return None
        if num_expensive > 1 or not ready:
            return None
        # What is behind a node that is dead is dead, and so is to be all that runs after it.
        found = ready[max(first, 0)]
        if len(ready) > 1 and _may_give_dead(found):
            return None
        ready.remove(found)
        return found

    def _goes_along(self, item: NodeItem, places: Sequence[int]) -> bool:
        """Whether *item* is cheap, and may run on any thread."""
        found = self._may_go_along.get(item.id)
        if found is None:
            found = self._may_go_along[item.id] = _may_run_on_any_thread(item)
        return found and (places[item.id] in (INLINE, CAREFUL) or hasattr(item.checked_kernel, "on_worker"))

    def _links_from(self, item: NodeItem) -> Sequence[Link]:
        try:
            return self._links[item.id]
        except KeyError:
            found = self._links[item.id] = _links(item)
            return found


def _links(maker: NodeItem) -> Sequence[Link]:
    """From *maker* to all of its consumers; none where one is no plain node, or a fetch is, or routes are very many."""
    if maker.num_outputs > _MOST_ROUTES or maker.role or maker.action:
        return ()
    routes = list(islice(chain.from_iterable(maker.routes), _MOST_ROUTES + 1))
    counts = Counter(consumer for _, _, consumer in routes)
    if len(routes) > _MOST_ROUTES or (len(counts) > 1 and maker.returns_tuple and _may_give_dead(maker)):
        return ()
    if any(consumer is DELIVERED or not _is_plain(consumer) for consumer in counts):
        return ()
    fills: dict[NodeItem, list[tuple[int, int]]] = {consumer: [] for consumer in counts}
    for index, (_, slot, consumer) in maker.data_routes():
        fills[consumer].append((index, slot - consumer.input_start))
    if len(fills) > 1 and not all(fills.values()):  # one may run though the output is dead
        return ()
    return [Link(consumer, tuple(fills[consumer]), count) for consumer, count in counts.items()]


def _is_plain(item: NodeItem) -> bool:
    is_special = item.role or item.action or item.is_merge or item.transfer is not None
    return not is_special and item.num_inputs <= WIDE


def _may_give_dead(item: NodeItem) -> bool:
    """Whether some outputs of *item*, which is live, may be dead and others not."""
    return item.node.op in SWITCHES or not getattr(item.checked_kernel, "gives_all", True)


def may_go_along(item: NodeItem) -> bool:
    """Whether *item*, which is cheap, may run on the thread of an expensive one, and none of what it gives is dead."""
    is_special = item.role or item.is_merge or item.transfer is not None
    return not is_special and not _may_give_dead(item) and _may_run_on_any_thread(item)


def _may_run_on_any_thread(item: NodeItem) -> bool:
    """Whether *item* is a region that may, or a node of ours without state."""
    if hasattr(item.checked_kernel, "on_worker"):
        return True
    node = item.node
    is_ours = item.kind is KernelKind.CHEAP and not is_user_function(node)
    return is_ours and not (node.op_def.is_stateful or node.op_def.takes_references or node.op in SWITCHES)


def note_outcomes(
    calls: list[NodeCall],
    outcomes: list[Outcome],
    scheduled: int,
    stats: KernelStats,
    observer: StepObserver | None,
    where: Sequence[str] = (),
) -> None:
    """Tell *stats* of those of *calls* that have ended well, *observer* of all; *scheduled* is when the first was.

    All are in the iterations *where*.
    """
    for index, (call, outcome) in enumerate(zip(calls, outcomes, strict=False)):
        if outcome.error is not None:
            if observer is not None:
                times = scheduled, outcome.start_ns, outcome.end_ns
                observer.record(call.item, *times, outcome.thread_id, outcome.error, where=where)
            return  # how long it takes to fail says nothing
        elapsed_ns = outcome.end_ns - outcome.start_ns
        if call.item.node.properties.registration.kernel is None:
            # A kernel of ours computes.  What it waits for is a processor, or the GIL, which in the loop it would have.
            elapsed_ns = min(elapsed_ns, outcome.cpu_ns)
        if call.size >= 0:
            stats.update_sized(call.item.id, call.size, elapsed_ns, is_inline=False)
        else:
            stats.update(call.item.id, elapsed_ns)
        if observer is not None:
            times = scheduled, outcome.start_ns, outcome.end_ns
            if outcome.result is HANDED_ON:
                sizes = calls[index + 1].received or ()
                observer.record(call.item, *times, outcome.thread_id, sizes=sizes, where=where)
            else:
                observer.record(call.item, *times, outcome.thread_id, outputs=outcome.result, where=where)
        scheduled = outcome.end_ns


def pass_along(
    entry: TaggedNode, calls: Sequence[NodeCall], last: int, propagator: Propagator, ready: TaggedQueue
) -> TaggedNode:
    """The entry of the call at *last*, after which none was made; those before it have handed on what they gave.

    *entry* is that of the first.  What was taken for calls that were not made goes back, and to *ready* if it can run.
    """
    made_ready: deque[TaggedNode] = deque()
    for call, following in pairwise(calls[: last + 1]):
        item = call.item
        unseen = (None,) * item.num_outputs if item.returns_tuple else None
        propagator.propagate_outputs(entry, unseen, made_ready)
        entry = next(each for each in made_ready if each[0] is following.item)
        made_ready.remove(entry)
    for call in calls[last + 1 :]:
        propagator.give_back(entry, call.item, call.args)
    ready.extend(made_ready)
    return entry
