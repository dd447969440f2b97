"""BundleReader: the tensors of a checkpoint by name, each read when it is asked for."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import Any, Final, TypeVar

import numpy as np

from asyncexec.checkpoints.bundle_entry import (
    HEADER_KEY,
    BundleEntry,
    decode_entry,
    decode_header,
    index_path,
    shard_path,
)
from asyncexec.checkpoints.table import read_table
from asyncexec.checkpoints.tensor_bytes import read_tensor
from asyncexec.checkpoints.tensor_slice import TensorSlice, slice_key
from asyncexec.framework.errors import (
    DataLossError,
    NotFoundError,
    OpError,
    ResourceExhaustedError,
)
from asyncexec.framework.file_errors import file_errors
from asyncexec.framework.git_lfs import MAX_POINTER_BYTES, check_no_lfs_pointer
from asyncexec.framework.ownership import freeze
from asyncexec.framework.tensor_shape import TensorShape
from asyncexec.framework.types import string

T = TypeVar("T")
R = TypeVar("R")

_MOST_INDEX_BYTES: Final = 2**30
_OF_A_SLICE: Final = b"\0"  # what keys of parts begin with


class BundleReader:
    """The checkpoint called *prefix*: ``PREFIX.index`` and ``PREFIX.data-00000-of-00001``.

    No file stays open.

    Args:
        check: is given each path before it is opened, and returns the one to open.

    Raises:
        NotFoundError: there is no such checkpoint.
        DataLossError: the index is cut short, or no index.
    """

    def __init__(self, prefix: Path, *, check: Callable[[Path], Path] | None = None) -> None:
        self.prefix: Path = prefix
        self._check = check or _any_path
        path = self._check(index_path(prefix))
        with file_errors():
            if path.stat().st_size > _MOST_INDEX_BYTES:
                raise ResourceExhaustedError(f"{path} is larger than {_MOST_INDEX_BYTES} bytes")
            data = path.read_bytes()
        check_no_lfs_pointer(path, data)
        self._table = read_table(data, str(path))
        if HEADER_KEY not in self._table:
            raise DataLossError(f"{path}: it has no header")
        self.num_shards: int = self._at(str(path), decode_header, self._table.pop(HEADER_KEY))

    @property
    def names(self) -> list[str]:
        """The names of all tensors, in order."""
        return [_text(key) for key in self._table if not key.startswith(_OF_A_SLICE)]

    def __contains__(self, name: str) -> bool:
        return _key(name) in self._table

    def entry(self, name: str) -> BundleEntry:
        """What the index tells of the tensor *name*; NotFoundError where there is none."""
        return self._entry(_key(name), name)

    def require(self, names: Iterable[str]) -> None:
        """NotFoundError, which lists all that are missing, unless there are tensors of all *names*."""
        missing = sorted(name for name in set(names) if name not in self)
        if missing:
            raise NotFoundError(
                f"not in the checkpoint {self.prefix}: {', '.join(map(repr, missing[:100]))}"
                + (f" and {len(missing) - 100} more" if len(missing) > 100 else ""),
                hint=f"it has {_few(self.names)}",
            )

    def read(self, name: str, part: TensorSlice | None = None) -> Any:
        """The tensor *name*, or a part of it: a read-only array, a numpy scalar, or bytes.

        Raises:
            NotFoundError: there is none, or a part of it is missing.
            DataLossError: its bytes are not what the index tells.
            InvalidArgumentError: *part* lies outside.
        """
        entry = self.entry(name)
        if entry.slices:
            return self._read_parts(name, entry, part)
        value = self._read(entry, name)
        return value if part is None else freeze(np.asarray(value)[part.bounds(entry.shape)].copy())

    def parts(self, name: str) -> dict[bytes, BundleEntry]:
        """The entries of the tensor *name* by key: its own, and those of its parts."""
        entry = self.entry(name)
        keys = [slice_key(_key(name), part) for part in entry.slices]
        return {_key(name): entry} | {key: self._entry(key, name) for key in keys}

    def shard(self, shard_id: int) -> Path:
        """The file of a shard."""
        return shard_path(self.prefix, shard_id, self.num_shards)

    def _read_parts(self, name: str, entry: BundleEntry, part: TensorSlice | None) -> object:
        wanted = (part or TensorSlice((None,) * len(entry.shape))).bounds(entry.shape)
        found = [(each.bounds(entry.shape), slice_key(_key(name), each)) for each in entry.slices]
        overlaps = [(key, bounds, _overlap(bounds, wanted)) for bounds, key in found]
        inside = [(key, bounds, both) for key, bounds, both in overlaps if both is not None]
        volume = _volume(wanted)
        if sum(_volume(both) for _, _, both in inside) != volume:
            raise NotFoundError(f"{name!r} in {self.prefix}: its {len(found)} parts do not make up what is wanted")
        # The sum of sizes on the disk bounds what memory is taken.
        pieces, np_dtype = [], entry.dtype.as_numpy_dtype
        for key, bounds, both in inside:
            stored = self._entry(key, name)
            if stored.dtype is not entry.dtype or stored.shape != tuple(each.stop - each.start for each in bounds):
                raise DataLossError(f"{name!r} in {self.prefix}: a part of it has another shape or dtype")
            value = np.asarray(self._read(stored, name))
            pieces.append((_shifted(both, wanted), value[_shifted(both, bounds)]))
        result = np.full([each.stop - each.start for each in wanted], b"" if entry.dtype is string else 0, np_dtype)
        for place, piece in pieces:
            result[place] = piece
        return freeze(result)

    def _read(self, entry: BundleEntry, name: str) -> Any:
        if not 0 <= entry.shard_id < self.num_shards:
            raise DataLossError(f"{name!r} in {self.prefix}: it is in shard {entry.shard_id} of {self.num_shards}")
        path = self._check(self.shard(entry.shard_id))
        with file_errors(), path.open("rb", buffering=0) as file:
            size = file.seek(0, 2)
            if size <= MAX_POINTER_BYTES:
                file.seek(0)
                check_no_lfs_pointer(path, file.read())
            return self._at(f"{name!r} in {path}", lambda _: read_tensor(file, size, entry), None)

    def _entry(self, key: bytes, name: str) -> BundleEntry:
        data = self._table.get(key)
        if data is None:
            raise NotFoundError(f"Key {name} not found in checkpoint {self.prefix}", hint=f"it has {_few(self.names)}")
        return self._at(f"{name!r} in {self.prefix}", decode_entry, data)

    def _at(self, place: str, read: Callable[[T], R], data: T) -> R:
        """``read(data)``, whose errors name *place*."""
        try:
            return read(data)
        except OpError as error:
            raise type(error)(f"{place}: {error.message}") from error


def _any_path(path: Path) -> Path:
    return path


def _key(name: str) -> bytes:
    return name.encode("utf-8", "surrogateescape")


def _text(key: bytes) -> str:
    return key.decode("utf-8", "surrogateescape")


def _few(names: Collection[str]) -> str:
    shown = sorted(names)[:10]
    return (", ".join(map(repr, shown)) or "no tensors") + (f" and {len(names) - 10} more" if len(names) > 10 else "")


def _overlap(a: tuple[slice, ...], b: tuple[slice, ...]) -> tuple[slice, ...] | None:
    both = tuple(slice(max(x.start, y.start), min(x.stop, y.stop)) for x, y in zip(a, b, strict=True))
    return both if all(each.start < each.stop for each in both) else None


def _shifted(inner: tuple[slice, ...], outer: tuple[slice, ...]) -> tuple[slice, ...]:
    return tuple(slice(x.start - y.start, x.stop - y.start) for x, y in zip(inner, outer, strict=True))


def _volume(bounds: tuple[slice, ...]) -> int:
    return TensorShape(each.stop - each.start for each in bounds).num_elements or 0
