"""LoopHolds: who held the event loop for long, over all steps of a session."""

from __future__ import annotations

import types
from collections.abc import Coroutine, Generator, Sequence
from typing import Any, Final

from asyncexec.executor.diagnostics.cost_model import CostModel
from asyncexec.framework.clock import CLOCK, NS_PER_MS, Clock, monotonic_ns
from asyncexec.framework.kernel_warning import warn_of_kernel
from asyncexec.graph.node import Node
from asyncexec.process.gc_watch import collected_ns, watch_collections
from asyncexec.regions.fold import REGION

_MAX_TOLD: Final = 5
_LONG_NS: Final = NS_PER_MS // 2  # what it takes to be worth telling of


class LoopHolds:
    """The longest time that one node, and one slice, held the loop.

    The executor tells of a node only where its kernel took more than half a millisecond: to take less is no fault, and
    to tell of it would cost more than it tells.  Full garbage collections meanwhile do not count.

    Args:
        slow_ns: nodes that hold the loop longer are warned of, once each; None for never.

    Attributes:
        clock: what the session measures by.
        costs: decides which kernels are too expensive to be called in the loop.
    """

    __slots__ = (
        "_is_one_of",
        "_slow_ns",
        "_warned",
        "clock",
        "costs",
        "longest_node",
        "longest_node_ns",
        "longest_slice_ns",
    )

    def __init__(self, slow_ns: int | None = None, clock: Clock = CLOCK, costs: CostModel | None = None) -> None:
        self.clock: Clock = clock
        self.costs: CostModel = costs or CostModel()
        self.longest_node: str | None = None
        self.longest_node_ns: int = 0
        self.longest_slice_ns: int = 0
        watch_collections()
        self._is_one_of = False  # whether longest_node names several, of which it was one
        self._slow_ns = slow_ns
        self._warned: set[str] = set()

    def note(self, node: Node, elapsed_ns: int) -> None:
        """*node* has held the loop for so long, just now; of a region its own plan tells that."""
        if node.properties.registration is REGION:
            return
        elapsed_ns = self.without_collections(elapsed_ns)
        if elapsed_ns > self.longest_node_ns or (self._is_one_of and 2 * elapsed_ns > self.longest_node_ns):
            self.longest_node, self.longest_node_ns, self._is_one_of = node.name, elapsed_ns, False
        if self._slow_ns is not None and elapsed_ns > self._slow_ns and node.name not in self._warned:
            self._warned.add(node.name)
            warn_of_kernel(
                f"node {node.name!r} ({node.op}) held the event loop for {elapsed_ns / NS_PER_MS:.0f} ms, more "
                f"than slow_inline_ms={self._slow_ns / NS_PER_MS:g}: nothing else ran meanwhile; mark its op "
                "expensive=True, or await what it waits for"
            )

    def without_collections(self, elapsed_ns: int) -> int:
        """What full garbage collections have not taken of the last *elapsed_ns*."""
        if self.clock.now_ns is not monotonic_ns:  # by which they are timed
            return elapsed_ns
        return max(0, elapsed_ns - collected_ns(monotonic_ns() - elapsed_ns))

    def note_one_of(self, nodes: Sequence[Node], elapsed_ns: int) -> None:
        """One of *nodes*, which ran one after the other, has held the loop for so long; it is not known which."""
        names = ", ".join(node.name for node in nodes[:_MAX_TOLD]) + (", ..." if len(nodes) > _MAX_TOLD else "")
        if elapsed_ns > self.longest_node_ns:
            self.longest_node, self.longest_node_ns, self._is_one_of = names, elapsed_ns, True


@types.coroutine
def watched(coroutine: Coroutine[Any, Any, object], node: Node, holds: LoopHolds) -> Generator[object, Any, object]:
    """What *coroutine* returns, awaited in the way of ``await``; each stretch for which it holds the loop is timed."""
    now_ns = holds.clock.now_ns
    error: BaseException | None = None
    value: object = None
    while True:
        start = now_ns()
        try:
            awaited = coroutine.send(value) if error is None else coroutine.throw(error)
        except StopIteration as stop:
            return stop.value
        finally:
            error = None  # its traceback holds this frame
            elapsed = now_ns() - start
            if elapsed > _LONG_NS:
                holds.note(node, elapsed)
        try:
            value = yield awaited
        except GeneratorExit:
            coroutine.close()
            raise
        except BaseException as thrown:
            error = thrown
        finally:
            awaited = None  # a future holds what it throws, whose traceback holds this frame
