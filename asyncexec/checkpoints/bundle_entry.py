"""What the index of a checkpoint tells: one header, and an entry for each tensor and each part of one.

Source: ``tensorflow/core/util/tensor_bundle/tensor_bundle.cc``, ``naming.cc``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from asyncexec.checkpoints.bundle_messages import bundle_message
from asyncexec.checkpoints.tensor_slice import TensorSlice
from asyncexec.framework.errors import DataLossError, InvalidArgumentError, UnimplementedError
from asyncexec.framework.extras import require
from asyncexec.framework.tensor_proto import dtype_of_enum
from asyncexec.framework.tensor_shape import TensorShape
from asyncexec.framework.types import DType

HEADER_KEY: Final = b""
VERSION: Final = 1  # of the format
_LITTLE: Final = 0
_MOST_SHARDS: Final = 99_999


@dataclass(frozen=True, slots=True)
class BundleEntry:
    """Where a tensor is, or into which parts it is divided; a divided tensor has no bytes of its own."""

    dtype: DType
    shape: tuple[int, ...]
    shard_id: int = 0
    offset: int = 0
    size: int = 0
    crc32c: int = 0
    slices: tuple[TensorSlice, ...] = ()

    @property
    def num_elements(self) -> int:
        """Of the whole tensor."""
        return TensorShape(self.shape).num_elements or 0

    def in_shard(self, shard_id: int) -> BundleEntry:
        """The same in another shard."""
        return replace(self, shard_id=shard_id)

    def with_slices(self, slices: Iterable[TensorSlice]) -> BundleEntry:
        """The same, divided into *slices*."""
        return replace(self, slices=tuple(slices))


def index_path(prefix: Path) -> Path:
    """The index of the checkpoint called *prefix*."""
    return prefix.with_name(f"{prefix.name}.index")


def shard_path(prefix: Path, shard_id: int, num_shards: int) -> Path:
    """The file of a shard of the checkpoint called *prefix*."""
    return prefix.with_name(f"{prefix.name}.data-{shard_id:05}-of-{num_shards:05}")


def decode_header(data: bytes) -> int:
    """The number of shards that a header tells.

    Raises:
        DataLossError: it is none.
        InvalidArgumentError, UnimplementedError: it is of a version that cannot be read, or of a big-endian machine.
    """
    header = _parsed("BundleHeaderProto", data)
    if header.version.min_consumer > VERSION or VERSION in header.version.bad_consumers:
        raise InvalidArgumentError(
            f"it needs a reader of version {header.version.min_consumer}; this one reads version {VERSION}"
        )
    if header.endianness != _LITTLE:
        raise UnimplementedError("it was written by a big-endian machine")
    if not 0 <= header.num_shards <= _MOST_SHARDS:
        raise DataLossError(f"it tells of {header.num_shards} shards")
    return int(header.num_shards)


def decode_entry(data: bytes) -> BundleEntry:
    """The entry in *data*; DataLossError, InvalidArgumentError where it is none."""
    message = _parsed("BundleEntryProto", data)
    if message.shape.unknown_rank or any(dim.size < 0 for dim in message.shape.dim):
        raise DataLossError("its shape has unknown sizes")
    return BundleEntry(
        dtype_of_enum(message.dtype),
        TensorShape(dim.size for dim in message.shape.dim).as_tuple(),
        message.shard_id,
        message.offset,
        message.size,
        message.crc32c,
        tuple(map(_decode_slice, message.slices)),
    )


def _decode_slice(message: Any) -> TensorSlice:
    return TensorSlice(
        tuple((each.start, each.length) if each.WhichOneof("has_length") else None for each in message.extent)
    )


def _parsed(name: str, data: bytes) -> Any:
    try:
        return bundle_message(name).FromString(data)
    except require("google.protobuf.message", extra="tf").DecodeError as error:
        raise DataLossError(f"it is no {name}: {error}") from error


def encode_index(num_shards: int, entries: Mapping[bytes, BundleEntry]) -> dict[bytes, bytes]:
    """The table of a checkpoint with *entries*."""
    header = bundle_message("BundleHeaderProto")(num_shards=num_shards, version={"producer": VERSION})
    return {HEADER_KEY: header.SerializeToString()} | {key: _encode_entry(entry) for key, entry in entries.items()}


def _encode_entry(entry: BundleEntry) -> bytes:
    slices = [
        {"extent": [{} if each is None else {"start": each[0], "length": each[1]} for each in part.extents]}
        for part in entry.slices
    ]
    message = bundle_message("BundleEntryProto")(
        dtype=entry.dtype.enum,
        shape={"dim": [{"size": size} for size in entry.shape]},
        shard_id=entry.shard_id,
        offset=entry.offset,
        size=entry.size,
        crc32c=entry.crc32c,
        slices=slices,
    )
    data: bytes = message.SerializeToString(deterministic=True)
    return data
