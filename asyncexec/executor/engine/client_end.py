"""ClientEnd: the client's end of a step whose feeds and fetches travel by the rendezvous.

Feeds are sent before anything runs, or one by one where the step was started without them.  Fetches are asked for at
the start, and come while the step runs: where a value has to be copied from the memory of a device, the step waits for
that as for everything else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from asyncexec.compilation.graph_view import NOTHING
from asyncexec.executor.engine.step_scope import StepScope
from asyncexec.framework.errors import CancelledError, InternalError, OpError
from asyncexec.framework.rendezvous import NO_ARGS, Received, RendezvousInterface, RendezvousWaiter


@dataclass(frozen=True, slots=True)
class ClientKeys:
    """What the client sends and receives in each step of a signature.

    Attributes:
        feeds: for each feed, the key of its _Recv; None where nobody takes it.
        fetches: for each fetch, the key of its _Send; or the position of the feed that it is.
    """

    feeds: tuple[str | None, ...]
    fetches: tuple[str | int, ...]
    fed_fetches: Mapping[int, Sequence[int]] = field(init=False)  # by the position of a feed, those of fetches

    def __post_init__(self) -> None:
        found: dict[int, list[int]] = {}
        for position, key in enumerate(self.fetches):
            if isinstance(key, int):
                found.setdefault(key, []).append(position)
        object.__setattr__(self, "fed_fetches", found)


class ClientEnd:
    """Sends the feeds of one step, and receives its fetches.

    Args:
        keys: what to send and to receive.
        sent_again: the keys of fetches that are inside of loops: a second value is an error.
        feeds: their values, or None if they come one by one.
        scope: the step, which is told.
    """

    __slots__ = ("_keys", "_rendezvous", "_scope", "_sent_again", "_values", "_waiters")

    def __init__(
        self,
        keys: ClientKeys,
        sent_again: frozenset[str],
        feeds: Sequence[object] | None,
        rendezvous: RendezvousInterface,
        scope: StepScope,
    ) -> None:
        self._keys = keys
        self._sent_again = sent_again
        self._rendezvous = rendezvous
        self._scope: StepScope | None = scope
        self._values: list[object] = [NOTHING] * len(keys.fetches)
        self._waiters: dict[int, RendezvousWaiter] = {}  # of fetches, by position
        for index, value in enumerate(feeds or ()):
            self.send_feed(index, value)
        for position, key in enumerate(keys.fetches):
            if isinstance(key, str):
                self._receive(position, key)

    def send_feed(self, index: int, value: object) -> None:
        """Send the value of one feed, if anybody takes it."""
        key = self._keys.feeds[index]
        if key is not None:
            self._rendezvous.send(key, value)
        for position in self._keys.fed_fetches.get(index, ()):
            self._values[position] = value

    def may_ignore(self, key: str) -> bool:
        """Whether nobody need receive what was sent on *key*: a fetch, dead in some iteration of a loop."""
        return any(key.rpartition(";")[0] == fetch.rpartition(";")[0] for fetch in self._sent_again)

    def fetched(self) -> list[Any]:
        """The values of the fetches; NOTHING where none has come, or a dead one."""
        return self._values

    def release(self) -> None:
        """Wait for nothing more, and let go of the step."""
        self._scope = None
        for waiter in list(self._waiters.values()):
            waiter.cancel()

    def _receive(self, position: int, key: str) -> None:
        waiter = self._rendezvous.recv_async(key, NO_ARGS, partial(self._on_received, position, key))
        if waiter is not None:
            self._waiters[position] = waiter

    def _on_received(self, position: int, key: str, error: OpError | None, found: Received | None) -> None:
        self._waiters.pop(position, None)
        scope = self._scope
        if scope is None:
            return
        if found is None:
            scope.abort(error or CancelledError("the fetch was cancelled"))
            return
        value, is_dead, _ = found
        if self._values[position] is not NOTHING:
            scope.abort(
                InternalError(
                    f"fetch {position} has already been set: it is inside a loop that goes round more than once"
                )
            )
            return
        if not is_dead:
            self._values[position] = value
        if key in self._sent_again:
            self._receive(position, key)
        scope.wake()
