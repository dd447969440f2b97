"""Spread: which worker the next item of a stream goes to.  It decides, and awaits nothing.

All workers share the window of the stream.  An item goes to the worker that has the fewest, and no worker has more than
its share of the window: so a slow worker gets fewer items, and an idle one gets the next.

An item whose worker was lost begins again, with those that were there, too: nobody knows which of them was the reason.
Its last attempt is made alone on a worker.  So an item that ends its worker every time is found, and no other item
fails because of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any, TypeAlias

# What makes a worker that has joined ready for items; None where there is none.
Join: TypeAlias = Callable[[], Coroutine[Any, Any, None] | None]


class Spread:
    """See the head of this module.

    Args:
        workers: gives the names of those that items may go to now, at least one.
        window: of the stream.
        retries: how often an item whose worker was lost begins again.

    Attributes:
        join: see Join; awaited, its result lets *workers* give another name.
    """

    def __init__(
        self, workers: Callable[[], Sequence[str]], window: int, retries: int, join: Join = lambda: None
    ) -> None:
        self.retries = retries
        self.join: Join = join
        self._workers = workers
        self._window = window
        self._running: Counter[str] = Counter()
        self._alone: set[str] = set()  # workers that run a last attempt

    def choose(self, losses: Iterable[int]) -> tuple[int, str] | None:
        """Which of some items may begin, and on which worker; None where none may.

        *losses* tells how often the worker of each was lost.
        """
        workers = self._workers()
        share = -(-self._window // len(workers))
        loads = {worker: self._running[worker] for worker in workers if worker not in self._alone}
        for index, count in enumerate(losses):
            if not loads:
                break
            worker = min(loads, key=loads.__getitem__)
            if self._is_last(count):
                if not loads[worker]:
                    return index, worker
                del loads[worker]  # nothing else begins there, until it is idle
            elif loads[worker] < share:
                return index, worker
        return None

    def begin(self, worker: str, losses: int) -> None:
        """Take note of an item that begins on *worker*."""
        self._running[worker] += 1
        if self._is_last(losses):
            self._alone.add(worker)

    def end(self, worker: str) -> None:
        """Take note of an item that has ended on *worker*."""
        self._running[worker] -= 1
        self._alone.discard(worker)

    def _is_last(self, losses: int) -> bool:
        return 0 < losses == self.retries
