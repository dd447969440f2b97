"""What becomes of the fetches of a step when some of its nodes fail, and nothing else ends it.

What a node that failed would have given never comes; so its consumers never run, and theirs neither.  A Merge of a
branch goes without one of its inputs, but a loop does not: what goes round does so in every iteration.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain

from asyncexec.compilation.graph_view import CONTROL_KINDS, FETCH, GraphView, NodeItem
from asyncexec.executor.engine.executor_barrier import PartitionedExecutor
from asyncexec.executor.engine.general_executor import GeneralExecutor
from asyncexec.executor.types.host_executor import is_host
from asyncexec.graph.control_flow_info import NEXT_ITERATIONS


class LostFetches:
    """The fetches of one step of *executor* that get no value, by their positions.

    Attributes:
        positions: those that are lost with the nodes that have failed by now.
    """

    def __init__(self, executor: GeneralExecutor | PartitionedExecutor) -> None:
        self._fetch_keys: dict[str | int, int] = {}
        self._parts: list[tuple[GraphView, Sequence[int]]]
        if isinstance(executor, GeneralExecutor):
            self._parts = [(executor.view, range(executor.view.fetch_slots.stop - executor.view.fetch_slots.start))]
        else:
            self._parts = [(part.executor.view, part.fetch_indices) for part in executor.partitions]
            if executor.client_keys is not None:
                self._fetch_keys = {key: position for position, key in enumerate(executor.client_keys.fetches)}
        self.positions: set[int] = set()
        self._lost: set[NodeItem] = set()
        self._recvs: dict[str, tuple[int, NodeItem]] | None = None  # by key, once something sent is lost
        self._lost_inputs: Counter[NodeItem] = Counter()  # of Merges of branches

    def add(self, failed: NodeItem) -> None:
        """Take note that *failed* gives nothing."""
        if is_host(failed.node):  # nobody knows what else its partition has sent
            self.positions.update(self._fetch_keys.values())
        ahead = [(self._part_of(failed), failed)]
        while ahead:
            part, item = ahead.pop()
            if item not in self._lost:
                self._lost.add(item)
                ahead += [(part, consumer) for consumer in self._losers(part, item)]
                if item.transfer is not None and item.transfer.is_send:
                    ahead += self._receivers(item.transfer.root_key)

    def _part_of(self, item: NodeItem) -> int:
        views = [view for view, _ in self._parts]
        return next(i for i, view in enumerate(views) if item.id < len(view.items) and view.items[item.id] is item)

    def _losers(self, part: int, item: NodeItem) -> Iterator[NodeItem]:
        """The consumers of *item* that do not run without it."""
        view, fetches = self._parts[part]
        for kind, slot, consumer in chain.from_iterable(item.routes):
            if kind == FETCH:
                self.positions.add(fetches[slot - view.fetch_slots.start])
            elif kind in CONTROL_KINDS or self._needs_input(consumer):
                yield consumer

    def _needs_input(self, item: NodeItem) -> bool:
        """Whether *item*, which lacks one more of its inputs now, cannot go without it."""
        if not item.is_merge or any(tensor.op.op in NEXT_ITERATIONS for tensor in item.node.inputs):
            return True
        self._lost_inputs[item] += 1
        return self._lost_inputs[item] == item.num_merged

    def _receivers(self, key: str) -> list[tuple[int, NodeItem]]:
        """The Recvs of what is sent on *key*; that of the client is noted at once."""
        if key in self._fetch_keys:
            self.positions.add(self._fetch_keys[key])
        if self._recvs is None:
            self._recvs = {
                item.transfer.root_key: (part, item)
                for part, (view, _) in enumerate(self._parts)
                for item in view.items
                if item.transfer is not None and not item.transfer.is_send
            }
        return [self._recvs[key]] if key in self._recvs else []
