"""Barriers: elements come to be by components, each under a key; who takes gets those that are complete, oldest first.

Rules from ``tensorflow/core/kernels/barrier_ops.cc``.  The elements that are complete stand in a priority queue.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from asyncexec.framework.errors import CancelledError, InvalidArgumentError, OutOfRangeError
from asyncexec.framework.kernel import as_value
from asyncexec.framework.process_bound import ProcessBound
from asyncexec.framework.tensor_shape import SCALAR, TensorShape
from asyncexec.framework.types import DType, int64, string
from asyncexec.ops.state.queue_components import checked_element
from asyncexec.ops.state.queue_state import Dequeue, Element, PriorityQueue

_FIRST_INDEX: Final = -(2**63)
_UNBOUNDED: Final = -1


class Barrier(ProcessBound):
    """Elements by key, until all of their components are there.

    Attributes:
        name: its name, for messages.
        dtypes: those of the components.
        shapes: theirs.
        ready: the queue of complete elements: index, key, components.
    """

    def __init__(self, name: str, dtypes: tuple[DType, ...], shapes: tuple[TensorShape, ...]) -> None:
        self.name: str = name
        self.dtypes: tuple[DType, ...] = dtypes
        self.shapes: tuple[TensorShape, ...] = shapes
        self.ready: PriorityQueue = PriorityQueue(
            f"{name}_queue", (int64, string, *dtypes), (SCALAR, SCALAR, *shapes), _UNBOUNDED
        )
        self._index = _FIRST_INDEX
        self._is_closed = False
        self._is_cancelled = False
        # Key -> its index, and the components that it has, by their number.
        self._incomplete: dict[bytes, tuple[int, dict[int, object]]] = {}

    @property
    def num_incomplete(self) -> int:
        """How many keys have a part of their components only."""
        return len(self._incomplete)

    def insert(self, keys: Sequence[bytes], component: int, values: Any) -> None:
        """Put the rows of *values* under *keys*; CancelledError where the barrier is closed for them."""
        if self._is_closed and (self._is_cancelled or (keys and not self._incomplete)):
            raise CancelledError(
                f"Barrier {self.name} is closed.  Pending enqueues cancelled: {self._is_cancelled}.  Number of new "
                f"insertions: {len(keys)}.  Number of incomplete keys: {len(self._incomplete)}."
            )
        index = self._index  # of all new keys that come together
        self._index += any(key not in self._incomplete for key in keys)
        try:
            for number, key in enumerate(keys):
                if self._add(key, index, component, as_value(values[number])):
                    self.ready.push(self._completed(key))
        finally:
            self.ready.flush()
        if self._is_closed and not self._incomplete:
            self.ready.close()

    def _add(self, key: bytes, index: int, component: int, value: object) -> bool:
        """Put one component; whether *key* has all of them now."""
        if key not in self._incomplete:
            if self._is_closed:
                raise CancelledError(
                    f"Barrier {self.name} is closed, but attempted to insert a brand new key: {key!r}."
                )
            self._incomplete[key] = (index, {})
        _, components = self._incomplete[key]
        if component in components:
            raise InvalidArgumentError(
                f"Key {key!r} already has a value for component {component} in barrier {self.name}"
            )
        components[component] = value
        return len(components) == len(self.dtypes)

    def _completed(self, key: bytes) -> Element:
        index, components = self._incomplete.pop(key)
        element = (np.int64(index), key, *(components[place] for place in range(len(self.dtypes))))
        return checked_element(self.ready, element)

    def take(self, wanted: int, *, allows_small_batch: bool) -> Dequeue:
        """Taking *wanted* complete elements, to be awaited; OutOfRangeError where there will not be so many."""
        if self._is_closed:
            available = len(self.ready)
            if allows_small_batch:
                wanted = min(wanted, available)
            else:
                available += len(self._incomplete)
            if available < max(wanted, 1):
                raise OutOfRangeError(
                    f"Barrier '{self.name}' is closed and has insufficient elements (requested {wanted}, total size "
                    f"{available})"
                )
        return Dequeue(self.ready, wanted, allows_small_batch=allows_small_batch)

    def close(self) -> None:
        """Let nothing in from now on, and forget the keys that are incomplete: the session is closed."""
        self._is_closed = self._is_cancelled = True
        self._incomplete.clear()
        self.ready.close()

    def end(self, *, cancels: bool) -> None:
        """Let no new keys in; where it *cancels*, forget those that are incomplete."""
        if self._is_closed and (self._is_cancelled or not cancels):
            raise CancelledError(f"Barrier '{self.name}' is already closed.")
        self._is_closed, self._is_cancelled = True, cancels
        if cancels:
            self._incomplete.clear()
        if not self._incomplete:
            self.ready.close()
