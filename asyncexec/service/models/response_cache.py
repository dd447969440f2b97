"""ResponseCache: what models have given, by the content of what they were given (``response_cache`` of a config).

Requests of the same content that come at one time share a run: it ends when the last of those who wait for it leaves.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Hashable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from asyncexec.framework.errors import DeadlineExceededError
from asyncexec.framework.single_flight import Flights, Part
from asyncexec.service.datatypes import to_raw
from asyncexec.session.session_config import RunOptions

if TYPE_CHECKING:
    from asyncexec.framework.arrays import Array

Values = Sequence[Any]
_DIGEST_BYTES: Final = 32
_OVERHEAD_BYTES: Final = 512  # of an entry, and of each of its values
_STRING_BYTES: Final = 64  # of an element of a tensor of strings, beside its own


class _Kept(NamedTuple):
    values: Values
    num_bytes: int


class ResponseCache:
    """Keeps at most *max_bytes* of values: those that have been asked for last."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._kept: OrderedDict[tuple[Hashable, bytes], _Kept] = OrderedDict()
        self._flights = Flights()
        self._num_bytes = 0

    @property
    def num_bytes(self) -> int:
        """How much is kept."""
        return self._num_bytes

    async def values(
        self,
        owner: Hashable,
        key: bytes,
        options: RunOptions | None,
        run: Callable[[RunOptions | None], Coroutine[Any, Any, Values]],
    ) -> tuple[Values, bool]:
        """What *owner* has for *key*, and whether it was there, or is on its way; else *run* makes it.

        Args:
            options: only requests that wait in the same way share a run; each waits for as long as its own timeout.

        Raises:
            DeadlineExceededError: that is over.
        """
        found = self._kept.get((owner, key))
        if found is not None:
            self._kept.move_to_end((owner, key))
            return found.values, True
        how = None if options is None or options.queue is None else RunOptions(queue=options.queue)
        timeout_s = None if options is None else options.timeout

        async def begin() -> Values:
            values = await run(how)
            self._keep((owner, key), values)
            return values

        scope = asyncio.timeout(timeout_s)
        try:
            async with scope:
                values, part = await self._flights.result_of((owner, key, how), begin)
                return values, part is Part.JOINED
        except TimeoutError:
            if not scope.expired():
                raise
            raise DeadlineExceededError(f"the call took more than its timeout of {timeout_s:g} s") from None

    def _keep(self, key: tuple[Hashable, bytes], values: Values) -> None:
        num_bytes = _OVERHEAD_BYTES + sum(_OVERHEAD_BYTES + _size(value) for value in values)
        if num_bytes > self._max_bytes or key in self._kept:
            return
        self._kept[key] = _Kept([_frozen(value) for value in values], num_bytes)
        self._num_bytes += num_bytes
        while self._num_bytes > self._max_bytes:
            _, dropped = self._kept.popitem(last=False)
            self._num_bytes -= dropped.num_bytes

    def forget(self, owner: Hashable) -> None:
        """Drop all that *owner* has."""
        for key in [key for key in self._kept if key[0] == owner]:
            self._num_bytes -= self._kept.pop(key).num_bytes


def content_key(inputs: Mapping[str, Array], outputs: Iterable[str]) -> bytes:
    """What tells *inputs*, of which *outputs* are wanted, from others."""
    digest = hashlib.blake2b(digest_size=_DIGEST_BYTES)
    for name in outputs:
        _add(digest, name.encode())
    for name, array in sorted(inputs.items()):
        _add(digest, f"{name}\0{array.dtype.str}\0{array.dtype.name}\0{array.shape}".encode())
        _add(digest, to_raw(array) if array.dtype.kind == "O" else np.ascontiguousarray(array).tobytes())
    return digest.digest()


def _add(digest: Any, data: bytes) -> None:
    digest.update(len(data).to_bytes(8, "little"))  # so that no two lists of them are one text
    digest.update(data)


def _size(value: object) -> int:
    if isinstance(value, (bytes, str)):
        return len(value)
    if isinstance(value, np.ndarray) and value.dtype.kind == "O":
        return int(value.nbytes) + sum(_STRING_BYTES + len(item) for item in value.flat)
    return int(getattr(value, "nbytes", 0))


def _frozen(value: object) -> object:
    """*value* as an array of its own, which nobody changes, and which keeps no larger one alive."""
    if not isinstance(value, np.ndarray):
        return value
    copy = value.copy()
    copy.flags.writeable = False
    return copy
