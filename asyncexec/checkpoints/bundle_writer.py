"""Writing checkpoints: tensors into a shard and an index, and several checkpoints merged into one.

The index is replaced last, and names shards that no index has named before.  So the checkpoint that was there stays
whole until the new one is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from asyncexec.checkpoints.bundle_entry import BundleEntry, encode_index, index_path, shard_path
from asyncexec.checkpoints.bundle_reader import BundleReader
from asyncexec.checkpoints.replaced_file import replacing, sync_folder
from asyncexec.checkpoints.table import write_table
from asyncexec.checkpoints.tensor_bytes import write_tensor
from asyncexec.checkpoints.tensor_slice import TensorSlice, slice_key
from asyncexec.framework.errors import InvalidArgumentError, OpError
from asyncexec.framework.file_errors import file_errors
from asyncexec.framework.types import DType


@dataclass(frozen=True, slots=True)
class SavedTensor:
    """A tensor to save; with *shape* and *part*, it is that part of a tensor of that shape."""

    name: str
    value: Any
    dtype: DType
    shape: tuple[int, ...] | None = None
    part: TensorSlice | None = None


def write_bundle(prefix: Path, tensors: Iterable[SavedTensor]) -> None:
    """Write *tensors* as the checkpoint called *prefix*, in place of the one that is there.

    Raises:
        InvalidArgumentError: two have one name, a part does not fit, or a dtype cannot be saved.
        NotFoundError, PermissionDeniedError, ResourceExhaustedError: the folder is missing, ..., the disk is full.
    """
    entries: dict[bytes, BundleEntry] = {}
    with file_errors():
        prefix.parent.mkdir(parents=True, exist_ok=True)
        before = _num_shards_of(prefix)
        num_shards = 2 if before == 1 else 1  # the second one is empty
        with replacing(shard_path(prefix, 0, num_shards)) as file:
            for tensor in tensors:
                offset = file.tell()
                size, crc = write_tensor(file, tensor.value, tensor.dtype)
                shape = np.shape(tensor.value)
                _add(entries, tensor, BundleEntry(tensor.dtype, shape, 0, offset, size, crc))
        if num_shards == 2:
            with replacing(shard_path(prefix, 1, num_shards)):
                pass
        with replacing(index_path(prefix)) as file:
            file.write(write_table(encode_index(num_shards, entries)))
        if before is not None:
            _remove(shard_path(prefix, number, before) for number in range(before))


def _num_shards_of(prefix: Path) -> int | None:
    """The number of shards of the checkpoint that is there."""
    try:
        return BundleReader(prefix).num_shards
    except OpError:
        return None


def _add(entries: dict[bytes, BundleEntry], tensor: SavedTensor, entry: BundleEntry) -> None:
    name = tensor.name.encode("utf-8", "surrogateescape")
    if not name:
        raise InvalidArgumentError("a tensor to save needs a name")
    if tensor.shape is None or tensor.part is None:
        if name in entries:
            raise InvalidArgumentError(f"two tensors to save are called {tensor.name!r}")
        entries[name] = entry
        return
    wanted = tuple(each.stop - each.start for each in tensor.part.bounds(tensor.shape))
    if entry.shape != wanted:
        raise InvalidArgumentError(
            f"the slice {tensor.part} of {tensor.name!r} has the shape {list(wanted)}, its value {list(entry.shape)}"
        )
    whole = BundleEntry(tensor.dtype, tensor.shape, slices=(tensor.part,))
    _merge_entries(entries, {name: whole, slice_key(name, tensor.part): entry}, tensor.name)


def _merge_entries(entries: dict[bytes, BundleEntry], more: dict[bytes, BundleEntry], what: str) -> None:
    """Add *more*; of tensors that are in both, the parts are put together."""
    for key, entry in more.items():
        found = entries.get(key)
        if found is None:
            entries[key] = entry
            continue
        if not found.slices or not entry.slices or (found.dtype, found.shape) != (entry.dtype, entry.shape):
            raise InvalidArgumentError(f"two tensors to save are called {what!r}, and are no parts of one tensor")
        entries[key] = found.with_slices(dict.fromkeys((*found.slices, *entry.slices)))


def merge_bundles(
    prefixes: Sequence[Path],
    destination: Path,
    *,
    allow_missing_files: bool = False,
    check: Callable[[Path], Path] | None = None,
) -> None:
    """Make one checkpoint *destination* of those called *prefixes*: their shards are renamed, their indexes removed.

    Raises:
        NotFoundError: one is not there, unless *allow_missing_files*.
        InvalidArgumentError: two have a tensor of one name.
    """
    readers = [
        BundleReader(prefix, check=check)
        for prefix in dict.fromkeys(prefixes)
        if not allow_missing_files or index_path(prefix).exists()
    ]
    if not readers:
        raise InvalidArgumentError("there is no checkpoint to merge")
    num_shards = sum(reader.num_shards for reader in readers)
    entries: dict[bytes, BundleEntry] = {}
    moved: list[tuple[Path, Path]] = []
    for reader in readers:
        first = len(moved)
        for name in reader.names:
            found = reader.parts(name)
            _merge_entries(entries, {key: each.in_shard(first + each.shard_id) for key, each in found.items()}, name)
        for number in range(reader.num_shards):
            moved.append((reader.shard(number), shard_path(destination, len(moved), num_shards)))
    with file_errors():
        destination.parent.mkdir(parents=True, exist_ok=True)
        for source, target in moved:
            if source.exists():  # a shard without tensors may not be there
                source.replace(target)
        sync_folder(destination.parent)
        with replacing(index_path(destination)) as file:
            file.write(write_table(encode_index(num_shards, entries)))
        _remove(index_path(reader.prefix) for reader in readers if reader.prefix != destination)


def _remove(paths: Iterable[Path]) -> None:
    for path in paths:
        with suppress(FileNotFoundError):
            path.unlink()
