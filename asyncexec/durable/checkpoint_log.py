"""CheckpointLog: the last two checkpoints of one stream in a store.

They have a key each, which they take in turn, and a number that grows.  So a checkpoint that is torn, damaged or of a
newer version leaves the one before it, which is read instead, with a warning.  Where the store commits results with
each checkpoint, that is refused: the results behind the one before are there, and would come twice.

A third key names the owner: the stream that has begun last.  A stream that finds another owner there stores nothing
more, so of two that run at once the older one ends.  A stream that has crashed keeps nobody from beginning.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
import secrets
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from asyncexec.durable.large_tensors import large_tensors, tensors_of
from asyncexec.durable.record import Codec, Record, from_bytes, joined, to_parts, told_in
from asyncexec.durable.store import Store, bytes_in
from asyncexec.framework.errors import (
    AbortedError,
    DataLossError,
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
    OpError,
)

INLINE_BYTES: Final = 64 * 1024  # checkpoints up to this are made and read in the event loop
_KEPT: Final = 2
_OWNER_BYTES: Final = 16
_UNFIT: Final = re.compile(r"[^A-Za-z0-9_.=+-]+")


class CheckpointWarning(UserWarning):
    """A checkpoint cannot be read, and the one before it is used; or a pause cannot, and the others are told.

    >>> warnings.simplefilter("error", ax.checkpoint.CheckpointWarning)
    """


class Loaded(NamedTuple):
    """A checkpoint that was read, its key and its number."""

    key: str
    record: Record
    number: int


class Entry(NamedTuple):
    """A checkpoint that is to be stored: its bytes, and the tensors that are stored apart."""

    parts: Sequence[bytes | memoryview]
    tensors: Mapping[str, Any]


class CheckpointLog:
    """The checkpoints of the stream *name* in *store*."""

    def __init__(self, store: Store, name: str, codec: Codec) -> None:
        self._store = store
        self._name = name
        self._keys = [f"{name}/{i}" for i in range(_KEPT)]
        self._owner_key = f"{name}/owner"
        self._owner = secrets.token_hex(_OWNER_BYTES).encode()
        self._codec = codec
        self._number = 0
        self._is_new = False

    def _tensors_key(self, number: int) -> str:
        return f"{self._keys[(number - 1) % _KEPT]}-{number}.safetensors"

    async def own(self) -> None:
        """Be the owner, before anything is loaded: what another stream stores from now on is not its own."""
        await self._store.put(self._owner_key, self._owner)

    async def _put(self, key: str, parts: Sequence[bytes | memoryview]) -> None:
        put_parts: Any = getattr(self._store, "put_parts", None)
        if put_parts is not None:
            await put_parts(key, parts)
        else:
            await self._store.put(key, b"".join(parts))

    async def _check_owner(self) -> None:
        """AbortedError if another stream has become the owner."""
        try:
            owner = await bytes_in(self._store, self._owner_key)
        except NotFoundError:  # somebody has emptied the store
            await self.own()
            return
        if owner != self._owner:
            raise AbortedError(
                f"another stream keeps its checkpoints under {self._name!r} in {self._store!r}, and has begun later",
                hint="end this one; streams with the same fetches that run at once need two stores, or two tables",
            )

    async def load(self) -> Loaded | None:
        """The last checkpoint that can be read; None where there is none.

        Raises:
            DataLossError, FailedPreconditionError: there are some, and none can be read; or the last one cannot, and
                the store has committed results with it.
        """
        found: list[Loaded] = []
        failures: list[_Failure] = []
        for key in self._keys:
            try:
                content = await bytes_in(self._store, key)
            except NotFoundError:
                continue
            try:
                found.append(await self._read(key, content))
            except (DataLossError, FailedPreconditionError) as error:
                failures.append(_Failure(key, error, _number_in(content)))
        if not found:
            if failures:
                raise _none_is_readable(failures)
            return None
        last = max(found, key=lambda each: each.number)
        self._number = last.number
        for failure in failures:
            if getattr(self._store, "commits_outputs", False) and not failure.is_before(last):
                raise _cannot_go_back(failure, last)
            warnings.warn(f"{failure.told}; {last.key!r} is used instead", CheckpointWarning, stacklevel=2)
        return last

    def begin_anew(self) -> None:
        """Let the next checkpoint be the only one: those that are there are of another run."""
        self._is_new = True

    async def _read(self, key: str, content: bytes) -> Loaded:
        apart: Mapping[str, object] | None = None
        tensors_key = told_in(content).get("tensors")
        if tensors_key is not None:
            try:
                apart = tensors_of(await bytes_in(self._store, tensors_key), repr(tensors_key))
            except (NotFoundError, InvalidArgumentError) as error:
                raise DataLossError(f"its tensors cannot be read: {error.message}") from error
        record = await read_record(content, self._codec, apart)
        number = record.about.get("log")
        if type(number) is not int:
            raise DataLossError("it is no checkpoint of a stream")
        return Loaded(key, record, number)

    def entry(self, record: Record) -> Entry:
        """*record* as the next checkpoint.  Needs no event loop."""
        number = self._number + 1
        about = {**record.about, "log": number}
        tensors = large_tensors(record.values) if hasattr(self._store, "put_tensors") else {}
        if tensors:
            about["tensors"] = self._tensors_key(number)
        parts = to_parts(Record(about, record.values), self._codec, tensors)
        return Entry(parts if hasattr(self._store, "put_parts") else [joined(parts)], tensors)

    async def append(self, entry: Entry) -> None:
        """Store *entry* in place of the older of the two.

        Raises:
            AbortedError: another stream of this name has begun later.
        """
        number = self._number + 1
        key = self._keys[self._number % _KEPT]
        put_tensors: Any = getattr(self._store, "put_tensors", None)
        put_guarded: Any = getattr(self._store, "put_guarded", None)
        if put_guarded is None or entry.tensors:
            await self._check_owner()
        if entry.tensors:
            await put_tensors(self._tensors_key(number), entry.tensors)
        if put_guarded is None:
            await self._put(key, entry.parts)
        else:
            while not await put_guarded(key, b"".join(entry.parts), self._owner_key, self._owner):
                await self._check_owner()
        self._number = number
        if put_tensors is not None and number > _KEPT:
            await self._store.delete(self._tensors_key(number - _KEPT))
        if self._is_new:
            for other in self._keys:
                if other != key:
                    await self._store.delete(other)
            self._is_new = False


class _Failure(NamedTuple):
    """A checkpoint that cannot be read: its key, why, and its number if that is known."""

    key: str
    error: OpError
    number: int | None

    @property
    def told(self) -> str:
        return f"checkpoint {self.key!r}: {self.error.message}"

    def is_before(self, last: Loaded) -> bool:
        return self.number is not None and self.number < last.number


def _number_in(content: bytes) -> int | None:
    try:
        number = told_in(content).get("log")
    except (DataLossError, FailedPreconditionError):
        return None
    return number if type(number) is int else None


def _none_is_readable(failures: Sequence[_Failure]) -> OpError:
    # Where one is of a newer version, that version can go on.
    error = next((each.error for each in failures if isinstance(each.error, FailedPreconditionError)), None)
    hint = "put a copy of the store in its place, or go on at a snapshot by restore=" if error is None else error.hint
    told = "; ".join(failure.told for failure in failures)
    return type(error or failures[0].error)(
        f"no checkpoint can be read: {told}", hint=f"{hint}; or resume=False begins anew"
    )


def _cannot_go_back(failure: _Failure, last: Loaded) -> OpError:
    """The error of a last checkpoint that cannot be read, where results were committed with it."""
    others = (
        f"delete the results behind the first {last.record.about.get('number')} items and the key {failure.key!r} of"
        " the store, and the stream goes on there; or resume=False begins anew"
    )
    return type(failure.error)(
        f"{failure.told}; the results behind {last.key!r} were committed with it, and would come twice",
        hint=f"{failure.error.hint}; or {others}" if failure.error.hint else others,
    )


async def read_record(content: bytes, codec: Codec, apart: Mapping[str, object] | None = None) -> Record:
    """As ``from_bytes``; on a thread where that may take long."""
    if len(content) <= INLINE_BYTES and apart is None:
        return from_bytes(content, codec)
    return await asyncio.to_thread(from_bytes, content, codec, apart)


def name_of(fetches: Iterable[str]) -> str:
    """The name of a stream in its store, from the names of what it fetches."""
    names = sorted(fetches)
    digest = hashlib.sha256("\n".join(names).encode()).hexdigest()[:12]
    shown = _UNFIT.sub("-", names[0].removesuffix(":0") if names else "")[:60].strip(".-")
    return f"{shown or 'stream'}-{digest}"
