"""What each sync kernel costs, and so where it runs (``KernelStats`` in TensorFlow's ``executor.cc``)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from types import CoroutineType
from typing import Any, Final, TypeAlias

import numpy as np

from asyncexec.compilation.graph_view import NodeItem
from asyncexec.compilation.output_bounds import makes_text
from asyncexec.executor.diagnostics.first_cost import (
    ShortCheck,
    first_cost_ns,
    may_expand,
    may_grow,
    short_check,
)
from asyncexec.executor.diagnostics.loop_holds import LoopHolds, watched
from asyncexec.executor.diagnostics.output_sizes import SCALAR_TYPES
from asyncexec.framework.cooperative import STRIDE, Stage, in_parts, run_at_once
from asyncexec.framework.kernel import KernelKind

Key: TypeAlias = tuple[Any, ...]

INLINE: Final = 0
WORKER: Final = 1
ASYNC: Final = 2
SIZED: Final = 3  # inline or on a worker, by the size of the inputs
PASSIVE: Final = 4  # nowhere: the propagator does what there is to do
TRANSFER: Final = 5  # nowhere either: a Send or Recv, which the executor does itself
CAREFUL: Final = 6  # inline, unless the call is likely to take long: SIZED from then on
MEASURED: Final = (INLINE, WORKER, SIZED, CAREFUL)

# Bytes of inputs from which on a kernel that was never timed with so many is not called inline.
LARGE_SIZE: Final = 2**21
# Times as many bytes of feeds as those of before, up to which nodes are likely to be quick if they were: a product of
# matrices twice as large takes eight times as long.
GROWTH: Final = 2
# Bytes of feeds that are not looked at, whatever nodes make of them.
LITTLE: Final = 2**6
_MOST_TEXTS: Final = 4096  # whose lengths are summed; of more, so many tell how long all are, roughly
# Bytes of feeds up to which elementwise nodes are quick even if they make a cube of them.
_CROSSED_LITTLE: Final = 2**8
# Bytes of inputs up to which a kernel that works on each of them takes some microseconds.
SMALL_SIZE: Final = 2**14
# Inputs or outputs from which on a kernel begins on a worker: it is likely to take a microsecond or so for each.
WIDE: Final = 1024
_FEW: Final = 8
_MOST_KEYS: Final = 64
# How long a call would take in the loop, of what it takes on a thread, where it finds caches cold (0.45 and 0.5 to 0.57
# ms, an LSTM by ONNX Runtime).
_AWAY: Final = 5 / 6
# Times as long as what is cheap, from which on more calls will not show that a kernel is cheap.
_HOPELESS: Final = 16


@dataclass(slots=True)
class _SizedCost:
    """What a SIZED kernel costs: a moving average.

    Attributes:
        largest: the bytes of the largest inputs it has had.
        is_inline: whether the last call was in the loop.
    """

    ns_per_byte: float = 0.0
    largest: int = 0
    num_samples: int = 0
    is_inline: bool = False

    def ns_of(self, size: int) -> float:
        """How long a call takes on inputs of *size* bytes."""
        return self.ns_per_byte * max(size, 1)

    def add(self, size: int, elapsed_ns: int, *, is_inline: bool) -> None:
        """Take a sample into account."""
        self.is_inline = is_inline
        sample = elapsed_ns / max(size, 1) * (1 if is_inline else _AWAY)
        self.ns_per_byte += (sample - self.ns_per_byte) / 4 if self.num_samples else sample
        self.largest = max(self.largest, size)
        self.num_samples += 1


class KernelStats:
    """Moving averages of one executor, shared by its steps.  What they say is for the cost model of *holds*.

    ``places[item.id]`` is INLINE, WORKER, ASYNC, SIZED, PASSIVE or TRANSFER; before the first call CAREFUL, if it may
    make something large of small inputs.  An op that is known to be expensive on large inputs (a
    convolution, a decoder) is SIZED: what it costs a byte decides anew each time.
    ``not_small`` are the items that had more than SMALL_SIZE bytes of inputs when somebody looked.  A run inline that
    took longer than ``expensive_ns`` is a sample.  ``num_away`` counts calls on workers, and those that took long, by
    item.
    """

    __slots__ = (
        "_costs_ns",
        "_last",
        "_num_awaited",
        "_quick_keys",
        "_sampled_at_ns",
        "_short_checks",
        "_sized",
        "expensive_ns",
        "holds",
        "items",
        "not_small",
        "num_away",
        "places",
    )

    def __init__(
        self,
        items: Sequence[NodeItem],
        *,
        holds: LoopHolds | None = None,
        places: list[int] | None = None,
    ) -> None:
        self.holds: LoopHolds = holds or LoopHolds()
        self.expensive_ns: int = self.holds.costs.expensive_ns
        self.places: list[int] = run_at_once(first_places(items)) if places is None else places
        self._costs_ns: list[int] = [0] * len(items)
        self._num_awaited: list[int] = [0] * len(items)  # calls of async kernels
        self._sampled_at_ns: list[int] = [0] * len(items)
        self.items: Sequence[NodeItem] = items
        self._sized: dict[int, _SizedCost] = {}  # of those SIZED that have run
        self.not_small: set[int] = set()
        self._quick_keys: dict[int, set[Key]] = {}  # of those that may grow: which inputs they are quick with
        self._short_checks: dict[int, ShortCheck | None] = {}
        self.num_away: dict[int, int] = {}
        self._last: Sequence[int] = ()  # bytes of each feed of the last step

    @property
    def is_all_cheap(self) -> bool:
        """Whether no node awaits anything, or runs on a worker thread now and then."""
        return not any(place in (WORKER, ASYNC, SIZED) for place in self.places)

    @property
    def stays_on_loop(self) -> bool:
        """Whether no node runs on a worker thread, as long as none has larger inputs than it has had."""
        return self._on_loop(self.has_been_quick)

    @property
    def may_stay_on_loop(self) -> bool:
        """Whether some more calls may show that no node needs a worker thread; all that is SIZED has had some."""
        return self._on_loop(self._may_be_quick)

    def _on_loop(self, is_quick: Callable[[int], bool]) -> bool:
        if WORKER in self.places:
            return False
        if SIZED not in self.places:  # as mostly: of very many nodes, too, this is told in a moment
            return True
        return all(is_quick(item_id) for item_id, place in enumerate(self.places) if place == SIZED)

    def has_been_quick(self, item_id: int, size: int = 0) -> bool:
        """Whether a SIZED kernel is quick with the largest inputs that it had, which had *size* bytes at least."""
        known = self._sized.get(item_id)
        return known is not None and size <= known.largest and self.is_quick(item_id, known.largest)

    def _may_be_quick(self, item_id: int) -> bool:
        known = self._sized.get(item_id)
        if known is None:  # as in a branch that has not been taken: the next runs need not take it either
            return False
        if known.ns_of(known.largest) <= self.expensive_ns:
            return True
        is_new = known.num_samples < _FEW or not self._is_settled(item_id)
        return is_new and known.ns_of(known.largest) <= _HOPELESS * self.expensive_ns

    def adopt(self, item_id: int, others: KernelStats, other_id: int) -> None:
        """Know of a kernel what *others* know of it, where it has *other_id*; unless it is not for measurements."""
        if self.places[item_id] in MEASURED and others.places[other_id] in MEASURED:
            self.places[item_id] = others.places[other_id]
            self._costs_ns[item_id] = others._costs_ns[other_id]
            self._sampled_at_ns[item_id] = others._sampled_at_ns[other_id]
            if other_id in others._sized:
                self._sized[item_id] = replace(others._sized[other_id])

    def have_grown(self, feeds: Sequence[object]) -> bool:
        """Whether *feeds* are so much larger than those of the last step that one with them is to be careful."""
        last, self._last = self._last, [_size_of(value) for value in feeds]
        if len(last) != len(self._last):
            last = [0] * len(self._last)
        for size, before in zip(self._last, last, strict=True):
            if size > _CROSSED_LITTLE and size > GROWTH * before:
                return True
        return has_large(feeds)

    def careful_places(self) -> Stage[list[int]]:
        """The places for a step that may have inputs larger than those that the places come from, as a stage."""
        careful = self.places.copy()
        for part in in_parts(self.items):
            for item in part:
                if item.is_expensive is None and careful[item.id] == INLINE:
                    careful[item.id] = CAREFUL
            yield
        return careful

    def away(self) -> Stage[set[int]]:
        """The ids of the kernels that run on worker threads, as a stage."""
        found: set[int] = set()
        for part in in_parts(self.items):
            found.update(item.id for item in part if self.places[item.id] in (WORKER, SIZED))
            yield
        return found

    def stays_inline(self, item_id: int, inputs: Sequence[object]) -> bool:
        """Whether a CAREFUL kernel is called inline with *inputs*; if not, it is SIZED from now on."""
        quick = self._quick_keys.get(item_id)
        key = None
        if quick is not None:
            is_short = self._short_checks[item_id]
            if is_short is not None and is_short(inputs):
                return True
            key = _key(inputs)
            if key in quick:
                return True
        item = self.items[item_id]
        size, may_be_more = num_bytes(inputs), may_expand(item.node) or _are_crossed(inputs)
        if any(type(value) is np.ndarray and value.nbytes > SMALL_SIZE for value in inputs):
            self.not_small.add(item_id)
        must_look = may_be_more or (size > SMALL_SIZE and not self.has_been_quick(item_id, size))
        if must_look and first_cost_ns(item.node, inputs, size) > self.expensive_ns:
            self.places[item_id] = SIZED
            return False
        if quick is not None and key is not None:
            if len(quick) >= _MOST_KEYS:
                quick.clear()
            quick.add(key)
        if self.places[item_id] == CAREFUL:
            self.places[item_id] = _cheap_place(item)
            if may_grow(item.node):  # CAREFUL for good
                self._short_checks.setdefault(item_id, short_check(item.node))
                self._quick_keys.setdefault(item_id, set())
        return True

    def note_away(self, item_id: int) -> None:
        """Count a call on a worker, or one that took long."""
        self.num_away[item_id] = self.num_away.get(item_id, 0) + 1

    def watch(self, item_id: int, coroutine: Awaitable[object]) -> Awaitable[Any]:
        """*coroutine*, a call of an async kernel; timed, if it is the first or one in 16: that costs a microsecond."""
        count = self._num_awaited[item_id]
        self._num_awaited[item_id] = count + 1
        if count & 15 or not isinstance(coroutine, CoroutineType):
            return coroutine
        return watched(coroutine, self.items[item_id].node, self.holds)

    def update_inline(
        self, item_id: int, elapsed_ns: int, inputs: Sequence[object] = (), outputs: object = None
    ) -> None:
        """Take a sample of a sync kernel that ran inline, and was not cheap, into account."""
        note_slow = getattr(self.items[item_id].kernel, "note_slow", None)
        if note_slow is not None:  # a region, which knows what was at work in it
            note_slow(elapsed_ns)
            return
        item = self.items[item_id]
        self.holds.note(item.node, elapsed_ns)
        if not (type(outputs) in SCALAR_TYPES and _is_builtin(item) and _are_scalars(inputs)):  # else it is the machine
            self.update(item_id, elapsed_ns)

    def update(self, item_id: int, elapsed_ns: int, now_ns: int | None = None) -> None:
        """Take a sample of a sync kernel into account; *now_ns* is by the clock of ``holds``."""
        item = self.items[item_id]
        if item.is_expensive is not None or item.kind is not KernelKind.CHEAP or self.places[item_id] == PASSIVE:
            return  # not for measurements to decide
        if elapsed_ns > self.expensive_ns:
            self.note_away(item_id)
        cost = self._costs_ns[item_id]
        now_ns = self.holds.clock.now_ns() if now_ns is None else now_ns
        since_ns = now_ns - self._sampled_at_ns[item_id] if self.places[item_id] == INLINE else 0
        self._sampled_at_ns[item_id] = now_ns
        cost = self.holds.costs.average(cost, elapsed_ns, since_ns)
        self._costs_ns[item_id] = cost
        self.places[item_id] = WORKER if cost > self.expensive_ns and not _is_of_scalars(item) else _cheap_place(item)

    def is_quick(self, item_id: int, size: int) -> bool:
        """Whether a SIZED kernel is likely to be cheap on inputs of *size* bytes; one that has not run is not.

        Nor is one that has yet to find out which way it takes: the next may be another.
        """
        known = self._sized.get(item_id)
        if known is None:
            return False
        most_ns = self.holds.costs.leave_ns if known.is_inline else self.expensive_ns
        return known.ns_of(size) <= most_ns and self._is_settled(item_id)

    def _is_settled(self, item_id: int) -> bool:
        return bool(getattr(self.items[item_id].kernel, "is_settled", True))

    def update_sized(self, item_id: int, size: int, elapsed_ns: int, *, is_inline: bool) -> None:
        """Take a sample of a SIZED kernel into account; one that is quick on small inputs is so no more."""
        is_quick = size < LARGE_SIZE and elapsed_ns <= self.expensive_ns
        if is_quick and self.items[item_id].kind is KernelKind.CHEAP:
            self.places[item_id] = _cheap_place(self.items[item_id])
        known = self._sized.setdefault(item_id, _SizedCost())
        known.add(size, elapsed_ns, is_inline=is_inline)


def first_places(items: Sequence[NodeItem]) -> Stage[list[int]]:
    """Where each kernel runs as long as nothing is known of it, as a stage."""
    places: list[int] = []
    for start in range(0, len(items), STRIDE):
        places += map(_first_place, items[start : start + STRIDE])
        yield
    places.append(PASSIVE)  # of suspended deliveries
    return places


def _cheap_place(item: NodeItem) -> int:
    """Where a kernel runs that has been cheap; of a string nothing tells how long the next will be."""
    return CAREFUL if makes_text(item.node) or may_grow(item.node) else INLINE


def _is_builtin(item: NodeItem) -> bool:
    return item.node.properties.registration.kernel is None and not makes_text(item.node)


def _are_scalars(inputs: Sequence[object]) -> bool:
    return 0 < len(inputs) <= _FEW and all(type(value) in SCALAR_TYPES for value in inputs)


def _is_of_scalars(item: NodeItem) -> bool:
    """Whether *item* is a builtin op that takes and gives a few scalars, as far as is known beforehand."""
    node = item.node
    return (
        _is_builtin(item)
        and 0 < len(node.inputs) <= _FEW
        and all(shape.rank == 0 for shape in node.output_shapes)
        and all(tensor.shape.rank == 0 and not tensor.dtype.is_opaque for tensor in node.inputs)
    )


def _is_wide(item: NodeItem) -> bool:
    return item.num_inputs > WIDE or item.num_outputs > WIDE


def _first_place(item: NodeItem) -> int:
    if item.action:
        return PASSIVE
    if item.transfer is not None:
        return TRANSFER
    if item.kind is KernelKind.ASYNC:
        return ASYNC
    if item.is_expensive is not None:
        return WORKER if item.is_expensive else INLINE
    if item.kind is KernelKind.EXPENSIVE:
        return SIZED
    return WORKER if _is_wide(item) else CAREFUL if may_expand(item.node) else INLINE


def _are_crossed(inputs: Sequence[object]) -> bool:
    """Whether *inputs* are two arrays that an elementwise kernel makes a larger one of, as a row and a column."""
    if len(inputs) != 2:
        return False
    one, other = inputs
    if type(one) is not np.ndarray or type(other) is not np.ndarray:
        return False
    return one.ndim > 1 < other.ndim and one.shape != other.shape


def _key(inputs: Sequence[Any]) -> Key | None:
    """What decides on the cost of a call that makes much of little: the shapes of *inputs*, and what may be sizes."""
    try:
        return tuple([(value.shape, value.tobytes()) if _may_be_size(value) else value.shape for value in inputs])
    except AttributeError:  # an object, or bytes
        return None


def _may_be_size(value: Any) -> bool:
    kind = value.dtype.kind
    return bool(value.size <= _FEW if kind in "iu" else kind == "f" and value.size == 1)


def has_large(values: Sequence[object]) -> bool:
    """Whether one of *values* is an array, or a string, or has strings, of more than LARGE_SIZE bytes."""
    for value in values:
        if type(value) is np.ndarray:
            if value.nbytes > LARGE_SIZE or (value.dtype.hasobject and _size_of(value) > LARGE_SIZE):
                return True
        elif type(value) is bytes and len(value) > LARGE_SIZE:
            return True
    return False


def num_bytes(inputs: Sequence[object]) -> int:
    """The size of a kernel's inputs; Python objects count as one byte."""
    return sum(map(_size_of, inputs))


def _size_of(value: object) -> int:
    if isinstance(value, np.ndarray) and value.dtype.hasobject:
        step = -(-value.size // _MOST_TEXTS) or 1
        return value.nbytes + step * sum([len(each) for each in value.flat[::step] if type(each) is bytes])
    if isinstance(value, (np.ndarray, np.generic)):
        return value.nbytes
    return len(value) if isinstance(value, bytes) else 1
