"""Where results of ops are kept: ResultCache, in memory; and how they are written to a store."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any, Final, NamedTuple

from asyncexec.durable.record import JsonCodec, Record, from_bytes, to_bytes
from asyncexec.framework.errors import DataLossError, InvalidArgumentError
from asyncexec.framework.ownership import freeze

_OVERHEAD_BYTES: Final = 512  # of an entry
_JSON: Final = JsonCodec()


@dataclass(frozen=True, slots=True)
class ResultCacheStatistics:
    """What a ResultCache holds: the number of results, and of their bytes."""

    num_results: int
    num_bytes: int


class _Kept(NamedTuple):
    outputs: Sequence[Any]
    num_bytes: int
    time_s: float


class ResultCache:
    """Results of ops in memory: ``@ax.op(cache=ax.ResultCache())``.  It ends with the process.

    If there are too many bytes, the results go that were not asked for for the longest time.  Several ops, graphs and
    sessions may share one, on any thread.  Results are not copied: a Python object that an op gives must not be
    changed.

    >>> cache = ax.ResultCache(max_bytes=1_000_000)
    >>> cache
    <ax.ResultCache of 0 results, 0 of 1,000,000 bytes>

    Attributes:
        max_bytes: the limit; a result that is larger is not kept.

    Raises:
        InvalidArgumentError: *max_bytes* is no number of 1 or more.
    """

    max_bytes: int

    def __init__(self, max_bytes: int = 64 * 2**20) -> None:
        if type(max_bytes) is not int or max_bytes < 1:
            raise InvalidArgumentError(f"a cache holds at least 1 byte, not {max_bytes!r}")
        self.max_bytes = max_bytes
        self._lock = Lock()
        self._kept: OrderedDict[bytes, _Kept] = OrderedDict()
        self._num_bytes = 0

    def clear(self) -> None:
        """Forget all results."""
        with self._lock:
            self._kept.clear()
            self._num_bytes = 0

    def statistics(self) -> ResultCacheStatistics:
        """How much there is."""
        with self._lock:
            return ResultCacheStatistics(len(self._kept), self._num_bytes)

    def find(self, digest: bytes, now_s: float, ttl_s: float | None) -> Sequence[Any] | None:
        """The outputs that are there for *digest*, and not older than *ttl_s*."""
        with self._lock:
            found = self._kept.get(digest)
            if found is None:
                return None
            if is_over(found.time_s, now_s, ttl_s):
                self._drop(digest)
                return None
            self._kept.move_to_end(digest)
            return found.outputs

    def keep(self, digest: bytes, outputs: Sequence[object], num_bytes: int, now_s: float) -> None:
        """Keep *outputs*, of *num_bytes*, which nobody changes, unless they are too large."""
        num_bytes += _OVERHEAD_BYTES
        with self._lock:
            self._drop(digest)
            if num_bytes > self.max_bytes:
                return
            self._kept[digest] = _Kept(outputs, num_bytes, now_s)
            self._num_bytes += num_bytes
            while self._num_bytes > self.max_bytes:
                self._drop(next(iter(self._kept)))

    def _drop(self, digest: bytes) -> None:
        dropped = self._kept.pop(digest, None)
        if dropped is not None:
            self._num_bytes -= dropped.num_bytes

    def __repr__(self) -> str:
        held = self.statistics()
        return f"<ax.ResultCache of {held.num_results} results, {held.num_bytes:,} of {self.max_bytes:,} bytes>"


def is_over(time_s: float, now_s: float, ttl_s: float | None) -> bool:
    """Whether what was kept at *time_s* is too old; what was kept later than now was kept by another clock."""
    return ttl_s is not None and abs(now_s - time_s) >= ttl_s


def packed(key: str, outputs: Sequence[object]) -> bytes:
    """The bytes of *outputs* in a store, under *key*; needs no event loop.

    Raises:
        InvalidArgumentError: they have no form in a store.
    """
    values = {f"output {number}": value for number, value in enumerate(outputs)}
    return to_bytes(Record({"result": key, "time": time.time()}, values), _JSON)


def unpacked(key: str, content: bytes, ttl_s: float | None) -> list[Any] | None:
    """The outputs that *content*, found under *key*, holds; None where they are too old.  Needs no event loop.

    Raises:
        DataLossError, FailedPreconditionError: it is damaged, or holds none.
    """
    record = from_bytes(content, _JSON)
    time_s = record.about.get("time")
    if record.about.get("result") != key or not isinstance(time_s, float):
        raise DataLossError("it is no result of this op")
    return None if is_over(time_s, time.time(), ttl_s) else [freeze(value) for value in record.values.values()]
