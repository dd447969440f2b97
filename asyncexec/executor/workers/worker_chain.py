"""Chains of expensive nodes: what runs on a worker thread next, without coming back to the event loop before.

When a node is launched on a worker, those behind it go along: the only consumer of its outputs, if that runs on a
worker too and has all its other inputs already, and so on.  The thread hands the outputs of each to the next.  A node
whose place depends on the size of its inputs goes along whatever that turns out to be: there it holds up nobody.

The propagator hears of the whole chain when it is over.  It is told, node by node, of outputs that it never sees: each
makes the next node ready, which is then taken from the ready queue as having run.  So frames, iterations and their
counts are what they would be had every node come back by itself.  A node behind one that failed has not become ready.
A node behind a dead output is dead, and so are all behind it: none of them needs the inputs that were taken for it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import chain, islice
from typing import Any, Final

from asyncexec.compilation.graph_view import DELIVERED, NodeItem
from asyncexec.executor.diagnostics.kernel_stats import SIZED, WIDE, WORKER, KernelStats, num_bytes
from asyncexec.executor.diagnostics.output_sizes import Sizes, sizes_of
from asyncexec.executor.diagnostics.step_observer import StepObserver
from asyncexec.executor.engine.frame import TaggedNode
from asyncexec.executor.engine.kernel_outputs import checked_outputs
from asyncexec.executor.engine.propagator import Propagator
from asyncexec.executor.workers.job import HANDED_ON, Call, Outcome
from asyncexec.framework.kernel import DEAD

# Nodes that go along at most: their outcomes are taken in one go.
_LONGEST: Final = 64


class Link:
    """From a node to the only consumer of its outputs.

    Attributes:
        item: the consumer; it gets *fills*, outputs of *maker* with their positions among its inputs.
        num_awaited: how often its pending count is decremented for that.
    """

    __slots__ = ("fills", "item", "maker", "num_awaited")

    def __init__(self, maker: NodeItem, item: NodeItem) -> None:
        self.maker: NodeItem = maker
        self.item: NodeItem = item
        self.fills: tuple[tuple[int, int], ...] = tuple(
            (index, slot - item.input_start) for index, (_, slot, _) in maker.data_routes()
        )
        self.num_awaited: int = sum(map(len, maker.routes))


class NodeCall(Call):
    """The call of a node's kernel in a chain; *link* leads to it, *size* is that of the inputs where it is SIZED.

    Attributes:
        received: the sizes of what the node before gave, where somebody wants to know them.
    """

    __slots__ = ("item", "link", "received", "size")

    def __init__(
        self, item: NodeItem, inputs: list[Any], size: int = -1, link: Link | None = None, *, is_observed: bool = False
    ) -> None:
        super().__init__(item.checked_kernel, inputs, item.node.name)
        self.item: NodeItem = item
        self.link: Link | None = link
        self.size: int = size
        self.received: Sizes | None = () if is_observed else None

    def receive(self, result: Any) -> bool:
        """Take the outputs of the node before; False if one of them is dead.

        Raises:
            InternalError: they are not as many as its op has.
        """
        inputs, link = self.args, self.link
        assert isinstance(inputs, list)  # nobody has taken them
        assert link is not None  # this is not the first
        if self.received is not None:
            self.received = sizes_of(link.maker.node, result, is_tuple=link.maker.returns_tuple)
        outputs = checked_outputs(link.maker, result) if link.maker.returns_tuple else (result,)
        for index, position in link.fills:
            if outputs[index] is DEAD:
                return False
            inputs[position] = outputs[index]
        if self.size >= 0:
            self.size = num_bytes(inputs)
        return True


class WorkerChains:
    """The chains of one plan, found link by link when they are first launched."""

    __slots__ = ("_links",)

    def __init__(self) -> None:
        self._links: dict[int, Link | None] = {}

    def calls(
        self,
        entry: TaggedNode,
        item: NodeItem,
        inputs: list[Any],
        size: int,
        propagator: Propagator,
        places: Sequence[int],
        *,
        is_observed: bool,
    ) -> list[NodeCall]:
        """The call of *item*, which is *entry* of the ready queue, and those of the nodes that go along."""
        calls = [NodeCall(item, inputs, size)]
        while len(calls) < _LONGEST and (link := self._link_from(item)) is not None:
            item = link.item
            place = places[item.id]
            if place != WORKER and place != SIZED:
                break
            others = propagator.take_ahead(entry, item, link.num_awaited)
            if others is None:
                break
            calls.append(NodeCall(item, others, 0 if place == SIZED else -1, link, is_observed=is_observed))
        return calls

    def _link_from(self, item: NodeItem) -> Link | None:
        try:
            return self._links[item.id]
        except KeyError:
            consumer = _only_consumer(item)
            found = None if consumer is None else _link(item, consumer)
            self._links[item.id] = found
            return found


def _only_consumer(item: NodeItem) -> NodeItem | None:
    """The only item that waits for *item*; None where others do, or a fetch does, or routes are very many."""
    if item.num_outputs > WIDE:
        return None
    found = [consumer for _, _, consumer in islice(chain.from_iterable(item.routes), WIDE + 1)]
    is_one = len(found) <= WIDE and len(set(found)) == 1 and found[0] is not DELIVERED
    return found[0] if is_one else None


def _link(maker: NodeItem, item: NodeItem) -> Link | None:
    is_plain = not (maker.role or item.role or item.action or item.is_merge) and item.transfer is None
    return Link(maker, item) if is_plain and item.num_inputs <= WIDE else None


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
            stats.update_sized(call.item.id, call.size, elapsed_ns)
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


def pass_along(entry: TaggedNode, calls: Sequence[NodeCall], propagator: Propagator) -> TaggedNode:
    """The entry behind *calls*, which have handed on what they gave; *entry* is that of the first."""
    made_ready: deque[TaggedNode] = deque()
    for call in calls:
        item = call.item
        unseen = (None,) * item.num_outputs if item.returns_tuple else None
        propagator.propagate_outputs(entry, unseen, made_ready)
        entry = made_ready.pop()
    return entry
